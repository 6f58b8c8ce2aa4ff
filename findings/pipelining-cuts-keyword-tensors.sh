#!/bin/bash
# PyTorch's pipeline schedules cut every tensor argument along its first dimension, also those without a batch.
#
# Guess: a keyword argument whose first dimension is not the batch's, a table of 16 positions beside 8 samples, goes whole
#   to each micro-batch, or is refused.
# Seen (torch 2.15.0, 2026-11-29): each of 4 micro-batches gets a quarter of the table, another one each, without a word;
#   a causal mask [tokens, tokens] loses its rows so. A batch of 10 makes micro-batches of 3, 3, 2 and 2, and the mean of
#   their means is the step's loss, so that samples of the last two count half as much again.
#   `kwargs_chunk_spec` says what is not to be cut.
# Source: DEFAULT_CHUNK_DIM in torch/distributed/pipelining/microbatch.py.
. "$(dirname "$0")/lib"
torch
cat >"$work/cuts.py" <<'P'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import cross_entropy

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
seen = []

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 3)

    def forward(self, x, table=None):
        seen.append((len(x), None if table is None else [int(table[0]), len(table)]))
        return self.head(x)

def step(samples, **words):
    seen.clear()
    losses = []
    ScheduleGPipe(PipelineStage(Model(), 0, 1, torch.device("cpu")), n_microbatches=4, loss_fn=cross_entropy).step(
        torch.randn(samples, 8), target=torch.randint(0, 3, (samples,)), losses=losses, **words)
    return seen[-4:]

print("first element and length of the table:", *(table for _, table in step(8, table=torch.arange(16.0))))
print("samples:", *(samples for samples, _ in step(10)))
P
"$python" "$work/cuts.py" 2>/dev/null | expect "first element and length of the table: [0, 4] [4, 4] [8, 4] [12, 4]
samples: 3 3 2 2"
