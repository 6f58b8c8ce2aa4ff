#!/bin/bash
# FSDP2 gathers every weight for every micro-batch, whichever setting is meant to save messages.
#
# Guess: set_requires_gradient_sync(False) on all micro-batches but the last saves most messages of accumulation, and
#   reshard_after_forward=False gathers weights once a step.
# Seen (torch 2.15.0, gloo, CPU, 2026-11-28), 4 layers, 3 micro-batches: by default 24 all-gathers (each layer before its
#   forward and again before its backward) and 4 reduce-scatters; without the first setting 12 reduce-scatters and the
#   same 24. reshard_after_forward=False halves the all-gathers to 12, one a micro-batch, because weights are dropped
#   after each backward. Only set_reshard_after_backward(False), until the last micro-batch, brings them to 4 a step.
# Source: torch/distributed/fsdp/_fully_shard/_fsdp_state.py (root_post_backward), _fsdp_param_group.py (post_backward).
# Why it matters: at M micro-batches the traffic of weights is M times what the accumulated gradients take.
. "$(dirname "$0")/lib"
torch
cat >"$work/gathers.py" <<'P'
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

class Watch(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.gathers = self.scatters = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.gathers += "allgather_base" in str(func)
        self.scatters += "reduce_scatter_base" in str(func)
        return func(*args, **(kwargs or {}))

def step(mesh, forward, sync, backward):
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    for part in [*model, model]:
        fully_shard(part, mesh=mesh, reshard_after_forward=forward)
    watch = Watch()
    for micro_batch in range(3):
        last = micro_batch == 2
        if sync:
            model.set_requires_gradient_sync(last)
        if backward:
            model.set_reshard_after_backward(last)
        with watch:
            model(torch.randn(2, 64)).sum().backward()
    return watch.gathers, watch.scatters

def rank(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for name, setting in (("default", (True, False, False)), ("no sync until the last", (True, True, False)),
                          ("and no reshard after forward", (False, True, False)), ("nor after backward", (False, True, True))):
        gathers, scatters = step(mesh, *setting)
        if rank == 0:
            print(f"{name}: {gathers} all-gathers, {scatters} reduce-scatters", flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, (str(20000 + os.getpid() % 20000),), 2)
P
"$python" "$work/gathers.py" 2>/dev/null | grep gathers | expect "default: 24 all-gathers, 12 reduce-scatters
no sync until the last: 24 all-gathers, 4 reduce-scatters
and no reshard after forward: 12 all-gathers, 4 reduce-scatters
nor after backward: 4 all-gathers, 4 reduce-scatters"
