#!/bin/bash
# PyTorch's interleaved schedules keep more activations for 7 micro-batches than for 8, 10, 12 or 16.
#
# Guess: 4 ranks of 2 stages hold at most 11 micro-batches' activations, 2 x 3 + 4 + 1, however many there are; fewer
#   micro-batches can only mean fewer held.
# Seen (torch 2.15.0, 2026-11-30), held by the rank that holds most: of 8, 12 or 16 micro-batches 11, of 7 all 14, as
#   GPipe would. Micro-batches go in max(1, M // 4) rounds of equal size, so 7 are one round of 7, 10 two of 5 (12 held);
#   9 raises a ValueError. Interleaved zero-bubble: 8 of 8, 11 of 7.
# Source: ScheduleInterleaved1F1B.__init__ in torch/distributed/pipelining/schedules.py (number_of_rounds).
# Why it matters: who has one micro-batch less because a replica was added may run out of memory.
. "$(dirname "$0")/lib"
torch
cat >"$work/held.py" <<'P'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
ENDS = "FULL_BACKWARD", "BACKWARD_WEIGHT"
for kind in ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble:
    for batches in 6, 7, 8, 9, 10, 12, 16:
        stages = [PipelineStage(nn.Linear(2, 2), i, 8, torch.device("cpu")) for i in (0, 4)]
        try:
            schedule = kind(stages, batches, loss_fn=lambda output, target: None)
        except ValueError:
            print(kind.__name__, batches, "ValueError")
            continue
        most = 0
        for actions in schedule.pipeline_order.values():
            held = 0
            for action in filter(None, actions):
                held += (action.computation_type.name == "FORWARD") - (action.computation_type.name in ENDS)
                most = max(most, held)
        print(kind.__name__, batches, "held", most)
P
"$python" "$work/held.py" 2>/dev/null | expect "ScheduleInterleaved1F1B 6 held 12
ScheduleInterleaved1F1B 7 held 14
ScheduleInterleaved1F1B 8 held 11
ScheduleInterleaved1F1B 9 ValueError
ScheduleInterleaved1F1B 10 held 12
ScheduleInterleaved1F1B 12 held 11
ScheduleInterleaved1F1B 16 held 11
ScheduleInterleavedZeroBubble 6 held 10
ScheduleInterleavedZeroBubble 7 held 11
ScheduleInterleavedZeroBubble 8 held 8
ScheduleInterleavedZeroBubble 9 ValueError
ScheduleInterleavedZeroBubble 10 held 9
ScheduleInterleavedZeroBubble 12 held 8
ScheduleInterleavedZeroBubble 16 held 8"
