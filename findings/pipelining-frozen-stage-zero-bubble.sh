#!/bin/bash
# Behind frozen stages, PyTorch's zero-bubble schedule leaves the first trained stage without gradients.
#
# Guess: a schedule decides when gradients are computed, never which: with the first quarter of a model frozen, 1F1B and
#   zero-bubble train the same weights.
# Seen (torch 2.15.0, CPU, 2026-11-29), 4 stages of 2 layers on one rank, the first frozen: under interleaved 1F1B 6 layers get
#   gradients, under interleaved zero-bubble 4. The weights' half of a backward begins at operators on the way from the
#   stage's inputs, and where no input needs a gradient there is no such way. .grad of the second stage stays None, which
#   optimizers leave out, and nothing is said. Without frozen layers all 8 train.
# Source: _autograd_grad_for_inputs() and get_param_groups() in torch/distributed/pipelining/_backward.py.
# Why it matters: fine-tuning with a frozen prefix loses a stage, and only that stage's weights show it.
. "$(dirname "$0")/lib"
torch
cat >"$work/frozen.py" <<'P'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble
from torch.nn.functional import mse_loss

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
x = torch.randn(8, 16)
for frozen in (0, 2):
    for schedule in (ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble):
        layers = [nn.Linear(16, 16) for _ in range(8)]
        for layer in layers[:frozen]:
            layer.requires_grad_(False)
        stages = [PipelineStage(nn.Sequential(*layers[2 * i:2 * i + 2]), i, 4, torch.device("cpu")) for i in range(4)]
        schedule(stages, n_microbatches=4, loss_fn=mse_loss).step(x, target=x)
        print(frozen, "frozen", schedule.__name__, "trains", *(i for i, l in enumerate(layers) if l.weight.grad is not None))
P
"$python" "$work/frozen.py" 2>/dev/null | expect "0 frozen ScheduleInterleaved1F1B trains 0 1 2 3 4 5 6 7
0 frozen ScheduleInterleavedZeroBubble trains 0 1 2 3 4 5 6 7
2 frozen ScheduleInterleaved1F1B trains 2 3 4 5 6 7
2 frozen ScheduleInterleavedZeroBubble trains 4 5 6 7"
