#!/bin/bash
# PyTorch's own FLOP counter: an encoder layer has FLOPs in training and none in eval(); an LSTM has none, a GRU all.
#
# Guess: torch.utils.flop_counter sees every product, because it watches the operators below the modules; eval() changes
#   dropout only; the three recurrent layers count alike.
# Seen (torch 2.15.0, CPU, 2026-11-28): nn.TransformerEncoderLayer 4,718,592 in train(), 0 in eval() without gradients,
#   where one fused operator runs the layer; nn.LSTM 0 (one operator of oneDNN), nn.GRU and nn.RNN 2 x weights x tokens;
#   nn.Bilinear 0. Nothing is said about operators without a formula.
# Source: torch/utils/flop_counter.py (flop_registry); the fast path of nn/modules/transformer.py; aten/src/ATen/native/RNN.cpp.
# Why it matters: the usual check of other counters is itself blind where inference is fastest.
. "$(dirname "$0")/lib"
torch
cat >"$work/count.py" <<'P'
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

def count(name, module, *inputs):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*inputs)
    print(name, "flops", counter.get_total_flops())

encoder = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
count("encoder, train()", encoder.train(), torch.randn(2, 32, 64))
count("encoder, eval()", encoder.eval(), torch.randn(2, 32, 64))
for kind in nn.LSTM, nn.GRU, nn.RNN:
    count(kind.__name__, kind(64, 64), torch.randn(32, 4, 64))
count("Bilinear", nn.Bilinear(16, 16, 16), torch.randn(4, 16), torch.randn(4, 16))
P
"$python" "$work/count.py" 2>/dev/null | grep flops | expect "encoder, train() flops 4718592
encoder, eval() flops 0
LSTM flops 0
GRU flops 6291456
RNN flops 2097152
Bilinear flops 0"
