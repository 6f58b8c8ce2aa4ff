#!/bin/bash
# checkpoint_sequential: one segment more than half the layers, and half of them are not checkpointed any more.
#
# Guess: segments differ by one layer at most, and from sqrt(layers) segments on more of them means a little more
#   memory.
# Seen (torch 2.15.0, CPU, 2026-11-30): a segment has layers // segments layers, and all that is left goes to the last
#   one, which is not checkpointed. 24 layers in 12 segments: 2 layers keep what they compute. In 13 segments: 12 do,
#   and the tensors kept go from 17 to 48. In 4 segments they are 21. Of 32 layers in 20 segments 13 are not
#   checkpointed.
# Source: checkpoint_sequential() in torch/utils/checkpoint.py (segment_size).
# Why it matters: who raises the number because memory is short gets a larger peak.
. "$(dirname "$0")/lib"
torch
cat >"$work/segments.py" <<'P'
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

class Layer(nn.Linear):
    forwards = 0

    def forward(self, x):
        self.forwards += 1
        return torch.tanh(super().forward(x))

for layers, counts in (24, (4, 8, 12, 13, 16, 24)), (32, (8, 16, 17, 20)):
    for segments in counts:
        model = nn.Sequential(*(Layer(8, 8) for _ in range(layers)))
        kept = []

        def pack(t):
            kept.append(t)
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = checkpoint_sequential(model, segments, torch.randn(2, 8, requires_grad=True), use_reentrant=False)
        out.sum().backward()
        print(layers, "layers in", segments, "segments: not checkpointed", sum(l.forwards == 1 for l in model), "tensors kept",
              len(kept))
P
"$python" "$work/segments.py" 2>/dev/null | expect "24 layers in 4 segments: not checkpointed 6 tensors kept 21
24 layers in 8 segments: not checkpointed 3 tensors kept 16
24 layers in 12 segments: not checkpointed 2 tensors kept 17
24 layers in 13 segments: not checkpointed 12 tensors kept 48
24 layers in 16 segments: not checkpointed 9 tensors kept 42
24 layers in 24 segments: not checkpointed 1 tensors kept 26
32 layers in 8 segments: not checkpointed 4 tensors kept 19
32 layers in 16 segments: not checkpointed 2 tensors kept 21
32 layers in 17 segments: not checkpointed 16 tensors kept 64
32 layers in 20 segments: not checkpointed 13 tensors kept 58"
