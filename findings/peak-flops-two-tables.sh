#!/bin/bash
# Lightning and torchtitan divide by different peaks of one GPU, by up to 8 times; to Lightning an L40S is an L4.
#
# Guess: the dense bf16 peak of a GPU is a number of its data sheet, and MFU of one run differs by some per cent between tools.
# Seen (lightning 2.6.6, torchtitan 0.3.0, torch 2.15.0, 2026-11-29), TFLOP/s of bf16 by the name that the driver gives:
#   A100 and H100 SXM agree. An H100 NVL has 1,979 (two cards) and 835, an RTX A6000 38.7 (without tensor cores) and 155, an
#   A40 37.4 and 312, because torchtitan takes an A100, with a warning, for what it does not know. A name that holds "l4"
#   is an L4, so an L40S has 121 where its data sheet has 362. Lightning's H200 waits for a name that ends in "sxm1", where
#   the 1 is a footnote of the data sheet, so "NVIDIA H200" has no peak and no MFU.
# Source: lightning/fabric/utilities/throughput.py (get_available_flops), torchtitan/tools/utils.py (get_peak_flops).
# Why it matters: a run on an A40 at 10 % by one tool is at 83 % by the other.
. "$(dirname "$0")/lib"
torch
packages lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0 torchtitan==0.3.0 packaging pyyaml tqdm
cat >"$work/peaks.py" <<'P'
from unittest import mock
import torch
from lightning.fabric.utilities.throughput import get_available_flops
from torchtitan.tools.utils import get_peak_flops

for name in ("A100-SXM4-80GB", "H100 80GB HBM3", "H100 NVL", "RTX A6000", "A40", "L40S", "H200"):
    with mock.patch("torch.cuda.get_device_name", lambda device: "NVIDIA " + name), \
            mock.patch("subprocess.run", side_effect=FileNotFoundError):  # lspci, which would name this machine's GPU
        peak = get_available_flops(torch.device("cuda", 0), torch.bfloat16)
        print(name, *("none" if p is None else "%.1f" % (p / 1e12) for p in (peak, get_peak_flops("NVIDIA " + name))))
P
"$python" "$work/peaks.py" 2>/dev/null | expect "A100-SXM4-80GB 312.0 312.0
H100 80GB HBM3 989.4 989.0
H100 NVL 1978.8 835.0
RTX A6000 38.7 154.8
A40 37.4 312.0
L40S 121.0 312.0
H200 none 989.0"
