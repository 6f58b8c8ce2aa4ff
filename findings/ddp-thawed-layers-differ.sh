#!/bin/bash
# A layer that was frozen when DDP wrapped the model is never reduced, so unfrozen it trains apart on each rank.
#
# Guess: DDP looks at requires_grad in each step; or it refuses a weight that wants a gradient and is in no bucket.
# Seen (torch 2.15.0, gloo, CPU, 2026-11-30), 2 ranks, 4 layers, the lower two frozen for 4 steps and then trained for
#   4, one optimizer over all: layers 0 and 1 end with other weights on each rank, layers 2 and 3 are equal. The same
#   with find_unused_parameters=True and with static_graph=True. Nothing is said. Wrapped again after the change, all
#   are equal.
# Source: DistributedDataParallel._build_params_for_reducer() in torch/nn/parallel/distributed.py.
# Why it matters: the loss still falls, and a checkpoint has the lower half of one rank under an upper half of both.
. "$(dirname "$0")/lib"
torch
cat >"$work/thaw.py" <<'P'
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def train(replica, optimizer, random):
    for _ in range(4):
        replica(torch.randn(4, 8, generator=random)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

def rank(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for name, flags, again in (("default", {}, False), ("unused", {"find_unused_parameters": True}, False),
                               ("static", {"static_graph": True}, False), ("wrapped again", {}, True)):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        random = torch.Generator().manual_seed(rank)
        model[:2].requires_grad_(False)
        replica = DistributedDataParallel(model, **flags)
        train(replica, optimizer, random)
        model.requires_grad_(True)
        train(DistributedDataParallel(model) if again else replica, optimizer, random)
        all_weights = [None, None]
        dist.all_gather_object(all_weights, [layer.weight.detach() for layer in model])
        if rank == 0:
            print("equal,", name + ":", *(torch.equal(a, b) for a, b in zip(*all_weights)), flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, (str(20000 + os.getpid() % 20000),), 2)
P
"$python" "$work/thaw.py" 2>/dev/null | grep ^equal | expect "equal, default: False False True True
equal, unused: False False True True
equal, static: False False True True
equal, wrapped again: True True True True"
