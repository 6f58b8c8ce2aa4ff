#!/bin/bash
# torch.distributed.pipelining.pipeline() makes two tables of one that embedding and head share.
#
# Guess: a tied table whose two users come to lie on two stages is refused, or stays one tensor where both stages are
#   in one process, or its two gradients are added.
# Seen (torch 2.15.0, CPU, 2026-11-30): each stage gets a table of its own. After one step with SGD the two differ,
#   where the whole model's is one. The first stage also keeps a copy of the head's table, which it does not use: 328
#   weights in place of 200 on that stage, and no gradient. Nothing is said.
# Source: Pipe.from_tracing() in torch/distributed/pipelining/_IR.py: multi_use_param_spec is REPLICATE.
# Why it matters: a model that is tied when built, and in its file, trains untied.
. "$(dirname "$0")/lib"
torch
cat >"$work/tied.py" <<'P'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import ScheduleInterleaved1F1B, SplitPoint, pipeline
from torch.nn.functional import cross_entropy

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer, self.head = nn.Embedding(16, 8), nn.Linear(8, 8), nn.Linear(8, 16, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(self.layer(self.table(ids)))

def loss(out, ids):
    return cross_entropy(out.flatten(0, 1), ids.flatten())

ids = torch.randint(0, 16, (4, 4))
model = Model()
print("the model has", sum(p.numel() for p in model.parameters()), "weights")
pipe = pipeline(model, (ids[:2],), split_spec={"head": SplitPoint.BEGINNING})
stages = [pipe.build_stage(i, torch.device("cpu")) for i in range(pipe.num_stages)]
for i, stage in enumerate(stages):
    print("stage", i, "has", sum(p.numel() for p in stage.submod.parameters()), *(n for n, _ in stage.submod.named_parameters()))
tables = stages[0].submod.table.weight, stages[1].submod.head.weight
print("before a step:", "equal" if torch.equal(*tables) else "differ")
optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=0.1)
ScheduleInterleaved1F1B(stages, n_microbatches=2, loss_fn=loss).step(ids, target=ids)
optimizer.step()
print("after a step:", "equal" if torch.equal(*tables) else "differ")
P
"$python" "$work/tied.py" 2>/dev/null | expect "the model has 200 weights
stage 0 has 328 table.weight layer.weight layer.bias head.weight
stage 1 has 128 head.weight
before a step: equal
after a step: differ"
