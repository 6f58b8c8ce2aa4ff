#!/bin/bash
# DeepSpeed's pipeline, balanced by parameters, puts all frozen layers on its first stage.
#
# Guess: partition_method="parameters", the default, cuts 24 equal layers into 6 6 6 6 over 4 stages, also when the first 12
#   are frozen; or it counts a frozen layer as the third of the work that its forward is.
# Seen (deepspeed 0.19.8, torch 2.15.0, 2026-11-29): frozen weights count 0, so the stages have 15 3 3 3 layers. With a backward of
#   two forwards the first stage takes 21 forwards a micro-batch and the others 9, where equal counts take 18 at most
#   and the best cut, 12 4 4 4, takes 12. It also keeps 15 layers' weights on one GPU. With 18 frozen it is 20 2 1 1.
# Source: PipelineModule._count_layer_params() in deepspeed/runtime/pipe/module.py.
# Why it matters: freezing layers, meant to make steps shorter, makes the slowest stage longer than equal counts do.
. "$(dirname "$0")/lib"
torch
packages hjson==3.1.0 py-cpuinfo==9.0.0 msgpack==1.2.4 einops==0.8.2 psutil==7.2.2 tqdm packaging
"$python" -m pip install -q --disable-pip-version-check pydantic setuptools
"$python" -m pip download -q --disable-pip-version-check --no-deps -d "$work" deepspeed==0.19.8
tar xf "$work"/deepspeed-0.19.8.tar.gz -C "$work"
cat >"$work/cut.py" <<'P'
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
import deepspeed
from deepspeed.pipe import PipelineModule

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled
deepspeed.init_distributed(dist_backend="gloo")
for frozen in (0, 6, 12, 18):
    layers = [nn.Linear(64, 64) for _ in range(24)]
    for layer in layers[:frozen]:
        layer.requires_grad_(False)
    ends = PipelineModule(layers, num_stages=4).parts
    work = [sum(1 if i < frozen else 3 for i in range(a, b)) for a, b in zip(ends, ends[1:])]
    print(frozen, "frozen: layers", *(int(b - a) for a, b in zip(ends, ends[1:])), "forwards", *work)
P
PYTHONPATH=$work/deepspeed-0.19.8 LOCAL_RANK=0 "$python" "$work/cut.py" 2>/dev/null | grep forwards |
    expect "0 frozen: layers 6 6 6 6 forwards 18 18 18 18
6 frozen: layers 11 5 4 4 forwards 21 15 12 12
12 frozen: layers 15 3 3 3 forwards 21 9 9 9
18 frozen: layers 20 2 1 1 forwards 24 6 3 3"
