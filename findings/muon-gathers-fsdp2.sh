#!/bin/bash
# torch.optim.Muon under FSDP2 sends 15 times for each matrix in each step, 11 times its size.
#
# Guess: a sharded matrix is gathered once for the orthogonal step, or is refused; AdamW sends nothing.
# Seen (torch 2.15.0, gloo, CPU, 2026-11-30), 2 ranks: AdamW has no message. Muon makes 5 iterations of three products
#   of sharded tensors, and each product gathers an operand: 15 all-gathers of 11.3 times a matrix of 64 x 256, 15
#   times one of 64 x 64, where one gather of the whole has all that is needed. A tall one, 256 x 64, is turned
#   before, so that its shards are columns: 10 all-reduces and one for the norm, of 2.5 times its size.
# Source: _zeropower_via_newtonschulz() in torch/optim/_muon.py, with DTensor's rules for products.
# Why it matters: by messages, an optimizer step is as much as the weights' gathers of 7 micro-batches.
. "$(dirname "$0")/lib"
torch
cat >"$work/muon.py" <<'P'
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

class Sent(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.gathers = self.sums = self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # comes again as what this rank does for it
        out = func(*args, **(kwargs or {}))
        gathers, sums = "all_gather" in str(func), "all_reduce" in str(func)
        self.gathers += gathers
        self.sums += sums
        self.numbers += out.numel() if gathers or sums else 0
        return out

def rank(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for kind, rows, columns in ((torch.optim.AdamW, 64, 256), (torch.optim.Muon, 64, 256), (torch.optim.Muon, 64, 64),
                                (torch.optim.Muon, 256, 64)):
        model = nn.Linear(columns, rows, bias=False)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        model(torch.randn(8, columns)).square().sum().backward()
        with Sent() as sent:
            kind(model.parameters()).step()
        if rank == 0:
            print(f"{kind.__name__} {rows} x {columns}: {sent.gathers} all-gathers, {sent.sums} all-reduces,",
                  "%.1f matrices" % (sent.numbers / rows / columns), flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, (str(20000 + os.getpid() % 20000),), 2)
P
"$python" "$work/muon.py" 2>/dev/null | grep gathers | expect "AdamW 64 x 256: 0 all-gathers, 0 all-reduces, 0.0 matrices
Muon 64 x 256: 15 all-gathers, 1 all-reduces, 11.3 matrices
Muon 64 x 64: 15 all-gathers, 1 all-reduces, 15.0 matrices
Muon 256 x 64: 0 all-gathers, 11 all-reduces, 2.5 matrices"
