#!/bin/bash
# DeepSpeed's memory estimators see one weight of a model on the meta device, and optimizer states of frozen ones.
#
# Guess: estimate_zero2/3_model_states_mem_needs_all_live(model) counts parameters, for which shapes on the meta device are
#   enough; weights without gradients need 2 bytes and no optimizer state.
# Seen (deepspeed 0.19.8, torch 2.15.0, CPU, 2026-11-29): weights are told apart by their address, which is 0 for all of the
#   meta device, so a model of 25.2 million there has 1,024: those of the last bias. Its largest layer is right, so ZeRO-3's
#   bytes look plausible and are that layer alone. On CPU the count is right. With 23 of 24 layers
#   frozen the estimate stays, twice what ZeRO-2 then keeps and nearly five times for ZeRO-3.
# Source: model_to_params() in deepspeed/runtime/zero/stage3.py and stage_1_and_2.py.
# Why it matters: models too large to be built are what one asks an estimator about.
. "$(dirname "$0")/lib"
torch
packages hjson==3.1.0 py-cpuinfo==9.0.0 msgpack==1.2.4 einops==0.8.2 psutil==7.2.2 tqdm packaging
"$python" -m pip install -q --disable-pip-version-check pydantic setuptools
"$python" -m pip download -q --disable-pip-version-check --no-deps -d "$work" deepspeed==0.19.8
tar xf "$work"/deepspeed-0.19.8.tar.gz -C "$work"
cat >"$work/estimate.py" <<'P'
import torch
from torch import nn
from deepspeed.runtime.zero import stage3, stage_1_and_2

for device, frozen in (("cpu", 0), ("cpu", 23), ("meta", 0)):
    with torch.device(device):
        model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(24)))
    model[:frozen].requires_grad_(False)
    counted, (total, largest) = stage_1_and_2.model_to_params(model), stage3.model_to_params(model)
    _, two = stage_1_and_2.estimate_zero2_model_states_mem_needs(counted, num_gpus_per_node=8, num_nodes=1, cpu_offload=False,
                                                                 additional_buffer_factor=1.5)
    _, three, _ = stage3.estimate_zero3_model_states_mem_needs(total, largest, num_gpus_per_node=8, num_nodes=1,
                                                               cpu_offload=False, cpu_offload_params=False, zero_init=True,
                                                               additional_buffer_factor=1.5)
    print(device, frozen, "frozen: has", sum(p.numel() for p in model.parameters()), "counted", counted, total,
          "ZeRO-2 %.2f ZeRO-3 %.2f MB a GPU" % (two / 1e6, three / 1e6))
P
PYTHONPATH=$work/deepspeed-0.19.8 "$python" "$work/estimate.py" 2>/dev/null | grep counted |
    expect "cpu 0 frozen: has 25190400 counted 25190400 25190400 ZeRO-2 107.06 ZeRO-3 60.88 MB a GPU
cpu 23 frozen: has 25190400 counted 25190400 25190400 ZeRO-2 107.06 ZeRO-3 60.88 MB a GPU
meta 0 frozen: has 25190400 counted 1024 1024 ZeRO-2 0.00 ZeRO-3 4.20 MB a GPU"
