#!/bin/bash
# torch.profiler's with_flops gives fused attention no FLOPs.
#
# Guess: with_flops counts scaled_dot_product_attention as it counts bmm, of which it consists.
# Seen (torch 2.15.0, CPU, 2026-11-28): matmul, bmm, baddbmm and conv2d have FLOPs, the fused operator has 0, without a
#   word. The two products written out by hand are counted. torch.utils.flop_counter counts both forms alike.
# Source: torch/csrc/profiler/util.cpp has a list of operators with a formula.
. "$(dirname "$0")/lib"
torch
cat >"$work/flops.py" <<'P'
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
q = torch.randn(1, 4, 64, 16)

def fused():
    torch.nn.functional.scaled_dot_product_attention(q, q, q)

def by_hand():
    torch.bmm(torch.softmax(torch.bmm(q[0], q[0].transpose(1, 2)), -1), q[0])

for name, run in ("by hand", by_hand), ("fused", fused):
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as p:
        run()
    with FlopCounterMode(display=False) as counter:
        run()
    print(name, "profiler", sum(e.flops for e in p.key_averages()), "flop_counter", counter.get_total_flops())
P
"$python" "$work/flops.py" 2>/dev/null | grep profiler | expect "by hand profiler 1048576 flop_counter 1048576
fused profiler 0 flop_counter 1048576"
