#!/bin/bash
# PyTorch's zero-bubble schedules run a checkpointed block's forward again for each of its weights.
#
# Guess: a backward in two halves has the products of one in one; under activation checkpointing the forward is repeated
#   once, at worst once a half. A torch.autograd.Function that looks at ctx.needs_input_grad computes in each half what
#   that half wants.
# Seen (torch 2.15.0, CPU, 2026-11-29): a stage that is one checkpointed nn.TransformerEncoderLayer runs its forward 2 times a
#   micro-batch under interleaved 1F1B and 8 times under interleaved zero-bubble: once, once for the input's half, and
#   once for each of its 6 operators with weights, because the weights' half is a call of autograd each. Two linear layers
#   that are a Function of their own take 10 products in place of 6: needs_input_grad says what the graph wants, not what
#   the call wants, so each half computes both products.
# Source: stage_backward_input() and stage_backward_weight() in torch/distributed/pipelining/_backward.py.
# Why it matters: the bubble that such a schedule saves is a small part of what it repeats.
. "$(dirname "$0")/lib"
torch
cat >"$work/repeats.py" <<'P'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble
from torch.nn.functional import mse_loss
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

class Products(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += str(func).startswith("aten.mm.")
        return func(*args, **(kwargs or {}))

class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight if ctx.needs_input_grad[0] else None, grad.T @ x if ctx.needs_input_grad[1] else None

class Own(nn.Linear):
    def forward(self, x):
        return Linear.apply(x, self.weight)

class Checkpointed(nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True)

    def body(self, x):
        self.calls += 1
        return self.layer(x)

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)

def step(schedule, last, x):
    stages = [PipelineStage(m, i, 2, torch.device("cpu")) for i, m in enumerate((nn.Identity(), last))]
    run = schedule(stages, n_microbatches=4, loss_fn=mse_loss)
    run.step(x.requires_grad_(), target=x.detach())  # finds the shapes
    last.calls = 0
    with Products() as products:
        run.step(x, target=x.detach())
    return last.calls / 4, products.count / 4

for schedule in (ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble):
    forwards, _ = step(schedule, Checkpointed(), torch.randn(4, 8, 16))
    products = [step(schedule, nn.Sequential(kind(16, 16, bias=False), kind(16, 16, bias=False)), torch.randn(8, 16))[1]
                for kind in (nn.Linear, Own)]
    print(schedule.__name__, "forwards", forwards, "products", *products)
P
"$python" "$work/repeats.py" 2>/dev/null | expect "ScheduleInterleaved1F1B forwards 2.0 products 6.0 6.0
ScheduleInterleavedZeroBubble forwards 8.0 products 6.0 10.0"
