#!/bin/bash
# torch.compile and freezing layer by layer: from the ninth freeze on the whole model runs uncompiled.
#
# Guess: freezing one more layer compiles once more, since the backward is another; or not at all, the forward being
#   the same.
# Seen (torch 2.15.0, CPU, 2026-11-30), 16 layers, one more frozen before each step: steps 1 to 8 compile the whole
#   model again; from step 9 on nothing is compiled, nor run compiled, because a function may be compiled 8 times. One
#   warning is logged. If each layer is compiled for itself, 3 compilations are enough for all 16 steps.
# Source: recompile_limit in torch/_dynamo/config.py; the guard on requires_grad of each weight in
#   torch/_dynamo/guards.py.
# Why it matters: freezing is to make steps faster, and the longest part of such a run is without compilation.
. "$(dirname "$0")/lib"
torch
cat >"$work/freeze.py" <<'P'
import torch
import torch._dynamo
from torch import nn

class Backend:
    def __init__(self):
        self.compiled = self.runs = 0

    def __call__(self, graph, example):
        self.compiled += 1

        def run(*args):
            self.runs += 1
            return graph(*args)

        return run

def steps(whole):
    torch._dynamo.reset()
    backend = Backend()
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(16)))
    for part in [model] if whole else model:
        part.compile(backend=backend)
    compiled, runs = [], []
    for frozen in range(16):
        model[:frozen].requires_grad_(False)
        before = backend.runs
        model(torch.randn(2, 8)).sum().backward()
        compiled.append(backend.compiled)
        runs.append(backend.runs - before)
    print("the model" if whole else "each layer", "compiled", *compiled, "runs of compiled code", *runs)

for whole in True, False:
    steps(whole)
P
"$python" "$work/freeze.py" 2>/dev/null | expect "the model compiled 1 2 3 4 5 6 7 8 8 8 8 8 8 8 8 8 runs of compiled code 1 1 1 1 1 1 1 1 0 0 0 0 0 0 0 0
each layer compiled 2 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 runs of compiled code 16 16 16 16 16 16 16 16 16 16 16 16 16 16 16 16"
