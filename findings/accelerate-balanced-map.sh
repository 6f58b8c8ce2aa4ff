#!/bin/bash
# Equal blocks over equal GPUs by accelerate's "balanced" device map: the last GPU may get none.
#
# Guess: device_map="balanced" deals 32 equal blocks to 8 GPUs as 4 each, give or take one.
# Seen (accelerate 1.15.0, torch 2.15.0, 2026-11-28): 4 5 5 5 5 5 3 0. The budget of each GPU but the last is the mean and a
#   quarter of a block more, which is rounded up to whole blocks; the first one also keeps room for its largest block.
#   What that adds up to is missing at the end, so one GPU of eight does nothing. 16 blocks on 4 GPUs: 4 5 5 2.
# Source: get_balanced_memory() and infer_auto_device_map() in accelerate/utils/modeling.py.
# Why it matters: a pipeline cut read from such a map has a slowest stage 1.25 times the mean, and an idle rank.
. "$(dirname "$0")/lib"
torch
packages accelerate==1.15.0 psutil==7.2.2 packaging pyyaml huggingface-hub safetensors tqdm requests
cat >"$work/map.py" <<'P'
import logging
from collections import Counter
logging.disable(logging.CRITICAL)
import torch
from torch import nn
from accelerate import infer_auto_device_map
from accelerate.utils import get_balanced_memory

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

for blocks, gpus in (8, 4), (16, 4), (12, 3), (24, 8), (32, 8), (80, 8):
    with torch.device("meta"):
        model = nn.Sequential(*(Block() for _ in range(blocks)))
    room = {gpu: 10**9 for gpu in range(gpus)}
    room = get_balanced_memory(model, max_memory=room, no_split_module_classes=["Block"])
    places = Counter(infer_auto_device_map(model, max_memory=room, no_split_module_classes=["Block"]).values())
    print(blocks, "blocks on", gpus, "GPUs:", *(places.get(gpu, 0) for gpu in range(gpus)))
P
"$python" "$work/map.py" 2>/dev/null | grep blocks | expect "8 blocks on 4 GPUs: 2 3 3 0
16 blocks on 4 GPUs: 4 5 5 2
12 blocks on 3 GPUs: 4 5 3
24 blocks on 8 GPUs: 3 4 4 4 4 4 1 0
32 blocks on 8 GPUs: 4 5 5 5 5 5 3 0
80 blocks on 8 GPUs: 10 11 11 11 11 11 11 4"
