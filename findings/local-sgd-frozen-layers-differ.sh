#!/bin/bash
# Local SGD in PyTorch: a layer that is frozen between two averages stays another one on each replica for ever.
#
# Guess: a period of 4 averages all weights every 4 steps, so after the next average the replicas are equal, whichever
#   layers train.
# Seen (torch 2.15.0, gloo, CPU, 2026-11-30): weights without a gradient are left out of the average. Frozen after 6
#   of 17 steps, layer 0 differs between the two replicas at the end, with all other layers equal. Frozen after 4
#   steps it does too, because the first average is after step 1, then after 5, 9, 13 and 17; frozen after 5 it is
#   equal. Nothing is said.
# Source: get_params_to_average() in torch/distributed/algorithms/model_averaging/utils.py; PeriodicModelAverager.
# Why it matters: the averaged upper layers fit neither lower half, and a checkpoint of rank 0 has one of them.
. "$(dirname "$0")/lib"
torch
cat >"$work/freeze.py" <<'P'
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

def rank(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for frozen_after in (99, 4, 5, 6):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
        optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                          PeriodicModelAverager(period=4, warmup_steps=0))
        torch.manual_seed(rank)
        for step in range(17):
            model[0].requires_grad_(step < frozen_after)
            optimizer.zero_grad()
            model(torch.randn(2, 4)).square().mean().backward()
            optimizer.step()
        weights = [None, None]
        dist.all_gather_object(weights, [layer.weight.detach() for layer in model])
        if rank == 0:
            print("layer 0 frozen after step", frozen_after, *("equal" if torch.equal(a, b) else "differs"
                                                               for a, b in zip(*weights)), flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, (str(20000 + os.getpid() % 20000),), 2)
P
"$python" "$work/freeze.py" 2>/dev/null | grep ^layer | expect "layer 0 frozen after step 99 equal equal equal
layer 0 frozen after step 4 differs equal equal
layer 0 frozen after step 5 equal equal equal
layer 0 frozen after step 6 differs equal equal"
