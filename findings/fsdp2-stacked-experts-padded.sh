#!/bin/bash
# FSDP2 on more ranks than experts sends more than the weight, and ranks without experts hold as large a buffer for it.
#
# Guess: fully_shard() cuts each weight evenly over all ranks, or at least sends no more than its size.
# Seen (torch 2.15.0, gloo, CPU, 2026-11-30), 4 ranks: by default a weight is cut along its first dimension only. A stack
#   of 8 experts: a quarter each. A stack of 2: ranks 0 and 1 hold half each, ranks 2 and 3 nothing, yet each keeps a
#   padded buffer of a half, and the all-gather and the reduce-scatter have 2 times the weight. A weight of [1, 197, 768],
#   as positions of a ViT are: rank 0 has all, each rank a buffer for all, the messages have 4 times. States of Adam are
#   only with the ranks that hold weights.
# Source: FSDPParam._init_sharded_param() in torch/distributed/fsdp/_fully_shard/_fsdp_param.py (padded_sharded_size).
# Why it matters: where experts are stored as one stack, they are most of the model.
. "$(dirname "$0")/lib"
torch
cat >"$work/shards.py" <<'P'
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

class Messages(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "allgather" in str(func) or "reduce_scatter" in str(func):
            sizes.append(max(t.numel() for t in args[:2]))
        return func(*args, **(kwargs or {}))

class Scale(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))

    def forward(self, x):
        return x * self.weight.sum()

def rank(rank, port):
    global sizes
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=4)
    mesh = dist.device_mesh.init_device_mesh("cpu", (4,))
    for shape in (8, 64, 64), (2, 128, 128), (1, 197, 768):
        model = Scale(shape)
        whole = model.weight.numel()
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        sizes = []
        with Messages():
            model(torch.ones(1, requires_grad=True)).sum().backward()
        optimizer.step()
        shard = model.weight.to_local()
        state = sum(s.to_local().numel() for s in optimizer.state[model.weight].values() if s.dim())
        held = [None] * 4
        dist.all_gather_object(held, [n / whole for n in (shard.numel(), shard.untyped_storage().nbytes() // 4, state)])
        if rank == 0:
            print("weight", list(shape), *("shards, buffers, states".split(", ")[i] + " " + " ".join("%g" % h[i] for h in held)
                                           for i in range(3)), "messages", *("%g" % (n / whole) for n in sizes), flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, (str(20000 + os.getpid() % 20000),), 4)
P
"$python" "$work/shards.py" 2>/dev/null | grep ^weight | expect "weight [8, 64, 64] shards 0.25 0.25 0.25 0.25 buffers 0.25 0.25 0.25 0.25 states 0.5 0.5 0.5 0.5 messages 1 1
weight [2, 128, 128] shards 0.5 0.5 0 0 buffers 0.5 0.5 0.5 0.5 states 1 1 0 0 messages 2 2
weight [1, 197, 768] shards 1 0 0 0 buffers 1 1 1 1 states 2 0 0 0 messages 4 4"
