#!/bin/bash
# ZeroRedundancyOptimizer deals frozen weights out too, so one rank may hold the states of all that is trained.
#
# Guess: each rank of two holds half of what is trained, and a step sends the weights that it has changed.
# Seen (torch 2.15.0, gloo, CPU, 2026-11-30), an embedding as large as 8 linear layers together: trained, both ranks
#   have 65,536 numbers of AdamW. With the embedding frozen it still counts as rank 0's half, so rank 0 has none and
#   rank 1 all 65,536, as if nothing were sharded, and all updates are computed by rank 1. Each step also broadcasts
#   the frozen table, half of the bytes.
# Source: ZeroRedundancyOptimizer._partition_parameters(), _broadcast_params_from_rank() in
#   torch/distributed/optim/zero_redundancy_optimizer.py.
# Why it matters: fine-tuning with a frozen embedding is when state is meant to be small. Give it the trained weights
#   only.
. "$(dirname "$0")/lib"
torch
cat >"$work/zero.py" <<'P'
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.utils._python_dispatch import TorchDispatchMode

class Sent(TorchDispatchMode):
    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "broadcast" in str(func):
            self.numbers += sum(t.numel() for t in args[0])
        return func(*args, **(kwargs or {}))

def rank(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for name, frozen, all_of_them in (("trained", False, True), ("frozen", True, True), ("left out", True, False)):
        model = nn.Sequential(nn.Embedding(512, 64), *(nn.Linear(64, 64, bias=False) for _ in range(8)))
        model[0].weight.requires_grad_(not frozen)
        replica = nn.parallel.DistributedDataParallel(model)
        optimizer = ZeroRedundancyOptimizer([p for p in model.parameters() if all_of_them or p.requires_grad],
                                            torch.optim.AdamW)
        replica(torch.randint(0, 512, (4,))).sum().backward()
        with Sent() as sent:
            optimizer.step()
        states = [None, None]
        dist.all_gather_object(states, sum(t.numel() for state in optimizer.optim.state.values() for key, t in state.items()
                                           if key != "step"))
        if rank == 0:
            print("embedding", name + ": states of ranks", *states, "numbers sent", sent.numbers, flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, (str(20000 + os.getpid() % 20000),), 2)
P
"$python" "$work/zero.py" 2>/dev/null | grep ^embedding | expect "embedding trained: states of ranks 65536 65536 numbers sent 65536
embedding frozen: states of ranks 0 65536 numbers sent 65536
embedding left out: states of ranks 32768 32768 numbers sent 32768"
