#!/bin/bash
# On CPUs, weights that are initialised after FSDP2 has sharded them are one block, repeated for each rank.
#
# Guess: the recipe for large models (meta device, fully_shard, to_empty, one seed on all ranks, reset_parameters) draws
#   one matrix, each rank its rows of it, as on GPUs; else each rank draws rows of its own.
# Seen (torch 2.15.0, gloo, CPU, 2026-11-29): DTensor keeps ranks apart by offsets of the random stream, on devices that have
#   them. On CPU each rank draws the same rows: on 4 ranks a weight of 64 x 64 has 16 different rows and rank 16. A
#   warning says that random operators "may not have complete support on cpu". With a seed for each rank, or weights that
#   are drawn before they are sharded, it has rank 64.
# Source: torch/distributed/tensor/_random.py (is_rng_supported_mesh), _dispatch.py.
# Why it matters: FSDP2 with weights that are kept on the host, or a test of it over gloo, begins with a quarter of a model.
. "$(dirname "$0")/lib"
torch
cat >"$work/repeat.py" <<'P'
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

def rank(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (4,))
    for name, meta, seed in ("after, one seed", True, 0), ("after, a seed a rank", True, rank), ("before", False, 0):
        torch.manual_seed(seed)
        with torch.device("meta" if meta else "cpu"):
            model = nn.Linear(64, 64, bias=False)
        fully_shard(model, mesh=mesh)
        if meta:
            model.to_empty(device="cpu")
            model.reset_parameters()
        weight = model.weight.full_tensor().detach()
        if rank == 0:
            print("drawn", name, "different rows", len(weight.unique(dim=0)), "rank",
                  torch.linalg.matrix_rank(weight).item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, (str(20000 + os.getpid() % 20000),), 4)
P
"$python" "$work/repeat.py" 2>/dev/null | grep ^drawn | expect "drawn after, one seed different rows 16 rank 16
drawn after, a seed a rank different rows 64 rank 64
drawn before different rows 64 rank 64"
