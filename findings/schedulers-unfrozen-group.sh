#!/bin/bash
# A group of weights that is unfrozen during warm-up ends at twice its learning rate in some PyTorch schedulers.
#
# Guess: add_param_group() with lr=1 during a warm-up to 1: the schedule holds for the new group as for the old one,
#   or the new one keeps its 1, or all schedulers refuse it.
# Seen (torch 2.15.0, 2026-11-30), added in the middle of 8 steps of warm-up, then to their end: LinearLR takes the
#   new group to 1.82 and ConstantLR to 2.00, because they multiply what is there by the ratio of two steps. StepLR
#   does that too, where it lowers. LambdaLR, CyclicLR and warm restarts raise a ValueError about zip() at the next
#   step, OneCycleLR a KeyError. SequentialLR raises where its next part begins, here 4 steps later.
# Source: get_lr() and _update_lr() of each class in torch/optim/lr_scheduler.py.
# Why it matters: gradual unfreezing adds groups, and a rate that is twice as high looks like any other.
. "$(dirname "$0")/lib"
torch
cat >"$work/unfreeze.py" <<'P'
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler as lrs

def linear(optimizer):
    return lrs.LinearLR(optimizer, 0.1, 1, 8)

for name, schedule in (("LinearLR", linear), ("ConstantLR", lambda o: lrs.ConstantLR(o, 0.5, 8)),
                       ("SequentialLR", lambda o: lrs.SequentialLR(o, [linear(o), lrs.CosineAnnealingLR(o, 8)], [8])),
                       ("StepLR", lambda o: lrs.StepLR(o, 1, 0.9)), ("LambdaLR", lambda o: lrs.LambdaLR(o, lambda k: k / 8)),
                       ("CyclicLR", lambda o: lrs.CyclicLR(o, 0.1, 1, 8)), ("OneCycleLR", lambda o: lrs.OneCycleLR(o, 1, 8)),
                       ("CosineAnnealingWarmRestarts", lambda o: lrs.CosineAnnealingWarmRestarts(o, 8))):
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.9)
    scheduler = schedule(optimizer)
    try:
        for step in range(8):
            if step == 4:
                optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": 1.0})
            optimizer.step()
            scheduler.step()
        print(name, *("%.2f" % group["lr"] for group in optimizer.param_groups))
    except (KeyError, ValueError) as e:
        print(name, "raises", type(e).__name__, "at step", step)
P
"$python" "$work/unfreeze.py" 2>/dev/null | expect "LinearLR 1.00 1.82
ConstantLR 1.00 2.00
SequentialLR raises ValueError at step 7
StepLR 0.43 0.66
LambdaLR raises ValueError at step 4
CyclicLR raises ValueError at step 4
OneCycleLR raises KeyError at step 4
CosineAnnealingWarmRestarts raises ValueError at step 4"
