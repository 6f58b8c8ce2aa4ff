#!/bin/bash
# PyTorch's pipeline schedules divide .grad itself by the number of micro-batches, whatever is in it already.
#
# Guess: two steps of a schedule without zero_grad() add two gradients, as two backwards do; a weight that two stages of
#   one rank share gets the sum of both gradients, under every schedule the same.
# Seen (torch 2.15.0, 2026-11-29): with 4 micro-batches two equal steps give 1.25 and three 1.31 times the gradient of one,
#   because what the first left is divided again. A tied table of embedding and head on one rank has another gradient
#   than the whole model, and another one under each schedule, as each stage divides it after its own last backward.
#   Nothing is said. A loss that sums wants scale_grads=False, where both are right.
# Source: _PipelineStageBase.scale_grads() and its callers in torch/distributed/pipelining.
. "$(dirname "$0")/lib"
torch
cat >"$work/scaled.py" <<'P'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B,
                                          ScheduleLoopedBFS)
from torch.nn.functional import cross_entropy, embedding

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
cpu = torch.device("cpu")

def steps(schedule, times):
    torch.manual_seed(0)
    model, whole = nn.Linear(8, 3), nn.Linear(8, 3)
    whole.load_state_dict(model.state_dict())
    x, y = torch.randn(8, 8), torch.randint(0, 3, (8,))
    run = schedule(PipelineStage(model, 0, 1, cpu), n_microbatches=4, loss_fn=cross_entropy)
    for _ in range(times):
        run.step(x, target=y)
    cross_entropy(whole(x), y).backward()
    return (model.weight.grad.norm() / whole.weight.grad.norm()).item()

class Table(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table
class Embedding(Table):
    def forward(self, ids):
        return embedding(ids, self.table)
class Head(Table):
    def forward(self, x):
        return x @ self.table.T

def tied(schedule, **words):
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn(16, 8))
    whole = table.detach().clone().requires_grad_()
    ids, y = torch.randint(0, 16, (8,)), torch.randint(0, 16, (8,))
    stages = [PipelineStage(kind(table), i, 2, cpu) for i, kind in enumerate((Embedding, Head))]
    sums = lambda *a: cross_entropy(*a, reduction="sum")
    schedule(stages, n_microbatches=4, loss_fn=sums if words else cross_entropy, **words).step(ids, target=y)
    cross_entropy(embedding(ids, whole) @ whole.T, y, reduction="sum" if words else "mean").backward()
    return table.grad, whole.grad

for schedule in (ScheduleGPipe, Schedule1F1B):
    print(schedule.__name__, *("%.2f" % steps(schedule, n) for n in (1, 2, 3)))
found = []
for schedule in (ScheduleInterleaved1F1B, ScheduleLoopedBFS):
    (got, want), (sums, all_sums) = tied(schedule), tied(schedule, scale_grads=False)
    print(schedule.__name__, "mean", "equal" if torch.allclose(got, want, atol=1e-5) else "differs",
          "sum", "equal" if torch.allclose(sums, all_sums, atol=1e-5) else "differs")
    found.append(got)
print("the two schedules", "agree" if torch.allclose(*found, atol=1e-5) else "differ")
P
"$python" "$work/scaled.py" 2>/dev/null | expect "ScheduleGPipe 1.00 1.25 1.31
Schedule1F1B 1.00 1.25 1.31
ScheduleInterleaved1F1B mean differs sum equal
ScheduleLoopedBFS mean differs sum equal
the two schedules differ"
