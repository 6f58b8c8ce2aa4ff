#!/bin/bash
# DDP's find_unused_parameters turns its buckets round: the small one, made to begin early, is reduced last.
#
# Guess: buckets of about 25 MiB in the order in which gradients come, a small one first, so that messages begin early;
#   find_unused_parameters=True costs a walk over the graph and nothing else.
# Seen (torch 2.15.0, gloo, CPU, 2026-11-28), 12 layers of 4 MiB: the first step of DDP has one bucket of 48 MiB, whose
#   all-reduce begins when the whole backward has ended; from the second step on 4, 28, 16 (a bucket closes after its
#   cap, so 25 makes 28). With static_graph=True it takes until the third step. With find_unused_parameters=True every
#   step has 16, 28, 4: the limit of the first bucket is given to the first layers of the model, whose gradients come last,
#   and buckets are never rebuilt by arrival. The messages left when the backward ends are then the same, but the first
#   one begins after 16 MiB of gradients in place of 4.
# Source: torch/nn/parallel/distributed.py (_ddp_init_helper: limits, reversed()), torch/csrc/distributed/c10d/reducer.cpp
#   (rebuild_buckets, should_rebuild_buckets).
# Why it matters: a time of the first steps, or of a model with that flag, is no measure of overlap.
. "$(dirname "$0")/lib"
torch
cat >"$work/buckets.py" <<'P'
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

def rank(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for options in {}, {"static_graph": True}, {"find_unused_parameters": True}:
        model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(12)]), **options)
        seen = []

        def hook(_, bucket):
            seen.append(round(bucket.buffer().numel() / 2**18))
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])

        model.register_comm_hook(None, hook)
        for step in range(3):
            seen.clear()
            model(torch.randn(2, 1024)).sum().backward()
            if rank == 0:
                print("buckets", *options, "step", step, "MiB", *seen, flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, (str(20000 + os.getpid() % 20000),), 2)
P
"$python" "$work/buckets.py" 2>/dev/null | grep ^buckets | expect "buckets step 0 MiB 48
buckets step 1 MiB 4 28 16
buckets step 2 MiB 4 28 16
buckets static_graph step 0 MiB 48
buckets static_graph step 1 MiB 48
buckets static_graph step 2 MiB 4 28 16
buckets find_unused_parameters step 0 MiB 16 28 4
buckets find_unused_parameters step 1 MiB 16 28 4
buckets find_unused_parameters step 2 MiB 16 28 4"
