#!/bin/bash
# In PyTorch a frozen convolution keeps its input for the backward, a frozen linear layer does not.
#
# Guess: below it something trains, so a frozen layer passes the gradient of its input on. A linear map needs its
#   weight for that and not its input, so freezing a linear layer or a convolution frees the input, as far as nothing
#   else keeps it.
# Seen (torch 2.15.0, CPU, 2026-11-30), bytes kept in sizes of the input, trained and frozen: Linear 1 and 0, Conv2d 1
#   and 1, also a Conv1d of width 1, which is a linear layer. BatchNorm2d in eval(), where it is a scale and a shift,
#   keeps 1 too. LayerNorm does, and needs it.
# Source: tools/autograd/derivatives.yaml: a tensor is not kept only if the formula of one gradient alone names it,
#   and convolution_backward and native_batch_norm_backward compute all gradients in one call.
# Why it matters: of an estimate that drops what frozen layers keep, a ViT gets the memory and a ResNet does not.
. "$(dirname "$0")/lib"
torch
cat >"$work/kept.py" <<'P'
import torch
from torch import nn

def kept(layer, x, frozen):
    layer.requires_grad_(not frozen)
    weights = {p.untyped_storage().data_ptr() for p in [*layer.parameters(), *layer.buffers()]}
    bytes_of = {}

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in weights:
            bytes_of[storage.data_ptr()] = storage.nbytes()
        return t  # keeps it, so that no other takes its address

    x = x.clone().requires_grad_() * 1
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = layer(x)
    assert out.requires_grad
    return "%.1f" % (sum(bytes_of.values()) / x.numel() / 4)

rows, pictures = torch.randn(4, 32, 64), torch.randn(2, 8, 16, 16)
for name, layer, x in (("Linear", nn.Linear(64, 64), rows), ("Conv1d of width 1", nn.Conv1d(32, 32, 1), rows),
                       ("Conv2d", nn.Conv2d(8, 8, 3, padding=1), pictures),
                       ("BatchNorm2d in eval()", nn.BatchNorm2d(8).eval(), pictures), ("LayerNorm", nn.LayerNorm(64), rows)):
    print(name, "trained", kept(layer, x, False), "frozen", kept(layer, x, True))
P
"$python" "$work/kept.py" 2>/dev/null | expect "Linear trained 1.0 frozen 0.0
Conv1d of width 1 trained 1.0 frozen 1.0
Conv2d trained 1.0 frozen 1.0
BatchNorm2d in eval() trained 1.0 frozen 1.0
LayerNorm trained 1.0 frozen 1.0"
