#!/bin/bash
# Where two ranks save values under one name, PyTorch's distributed checkpoint keeps one rank's for the one name and the
# other's for the next.
#
# Guess: of plain tensors and numbers with equal names (stages with names of their own, random states, counters of samples)
#   rank 0's are kept, or there is an error.
# Seen (torch 2.15.0, gloo, CPU, 2026-11-29), two ranks: equal names count as copies, each written by the rank that has least
#   to write so far. Of 4 weights those of layers 0 and 2 are rank 0's, 1 and 3 rank 1's; the step is rank 0's and the
#   random state rank 1's. Both ranks load that mixture. Nothing is said.
# Source: dedup_save_plans() in torch/distributed/checkpoint/_dedup_save_plans.py.
# Why it matters: a pipeline whose stages each count their layers from 0 comes back with every second layer of another stage.
. "$(dirname "$0")/lib"
torch
cat >"$work/names.py" <<'P'
import os, sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

def state(value):
    return {**{f"layers.{i}.weight": torch.full((4,), value) for i in range(4)}, "step": value, "random": [value]}

def rank(rank, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    dcp.save(state(rank), checkpoint_id=folder)
    found = state(-1)
    dcp.load(found, checkpoint_id=folder)
    for shown in range(2):
        dist.barrier()
        if shown == rank:
            print("rank", rank, "loads layers of ranks", *(int(found[f"layers.{i}.weight"][0]) for i in range(4)), "step of",
                  found["step"], "random state of", *found["random"], flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, (str(20000 + os.getpid() % 20000), sys.argv[1]), 2)
P
"$python" "$work/names.py" "$work/checkpoint" 2>/dev/null | grep ^rank |
    expect "rank 0 loads layers of ranks 0 1 0 1 step of 0 random state of 1
rank 1 loads layers of ranks 0 1 0 1 step of 0 random state of 1"
