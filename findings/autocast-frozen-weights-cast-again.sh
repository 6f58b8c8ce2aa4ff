#!/bin/bash
# Freezing a layer makes autocast convert its weight again for every micro-batch.
#
# Guess: autocast keeps the bf16 copy of a weight until its region ends, frozen or not; freezing can only save work.
# Seen (torch 2.15.0, CPU, 2026-11-30), 4 forwards of a layer in one region: a trained weight is converted once, a
#   frozen one 4 times. The cache takes only leaves that want a gradient. A layer that is used 4 times in one forward
#   has 4 conversions too, once it is frozen. Without a cache both have 4, so freezing a layer is as switching it off.
# Source: cached_cast() in aten/src/ATen/autocast_mode.cpp, which has one rule for all devices.
# Why it matters: in a step of M micro-batches the frozen part of a model reads its fp32 weights M times.
. "$(dirname "$0")/lib"
torch
cat >"$work/casts.py" <<'P'
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

class Casts(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += "_to_copy" in str(func) and args[0].shape == (64, 48) and kwargs["dtype"] == torch.bfloat16
        return func(*args, **(kwargs or {}))

def casts(layer, forward, **words):
    with Casts() as casts, torch.autocast("cpu", dtype=torch.bfloat16, **words):
        forward(layer)
    return casts.count

def micro_batches(layer):
    for _ in range(4):
        layer(torch.randn(2, 48, requires_grad=True)).sum().backward()

def shared(layer):
    x = torch.randn(2, 48, requires_grad=True)
    sum(layer(x + i) for i in range(4)).sum().backward()

for frozen in False, True:
    layer = nn.Linear(48, 64, bias=False)
    layer.weight.requires_grad_(not frozen)
    print("frozen" if frozen else "trained", "micro-batches", casts(layer, micro_batches), "shared", casts(layer, shared),
          "without a cache", casts(layer, micro_batches, cache_enabled=False))
P
"$python" "$work/casts.py" 2>/dev/null | expect "trained micro-batches 1 shared 1 without a cache 4
frozen micro-batches 4 shared 4 without a cache 4"
