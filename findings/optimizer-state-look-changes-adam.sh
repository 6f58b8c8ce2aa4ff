#!/bin/bash
# Reading the state of a new optimizer for a checkpoint changes how it trains.
#
# Guess: get_optimizer_state_dict() reads; called before the first step, as for a checkpoint of step 0, it changes nothing.
# Seen (torch 2.15.0, CPU, 2026-11-29): so that there is a state to read it makes a step with zero gradients and a learning rate
#   of 0, and that step stays counted: the first real one of AdamW is its second, both bias corrections are one too far,
#   and it moves weights by 0.74 of the length, RAdam's by 0.53. SGD takes dampening for its first gradient too, 0.5 here.
#   SGD without dampening and Adagrad are the same. Nothing is said, and weights are the same before the first step.
# Source: _init_optim_state() in torch/distributed/checkpoint/state_dict.py.
# Why it matters: two runs from one seed, one of which saved at its start, drift apart for that reason alone.
. "$(dirname "$0")/lib"
torch
cat >"$work/look.py" <<'P'
import torch
from torch import nn, optim
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

def first_step(look, kind, words):
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = kind(model.parameters(), lr=0.01, **words)
    if look:
        get_optimizer_state_dict(model, optimizer)
    before = model.weight.detach().clone()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    return (model.weight - before).norm().item()

for kind, words in ((optim.AdamW, {"weight_decay": 0}), (optim.RAdam, {}), (optim.SGD, {"momentum": 0.9, "dampening": 0.5}),
                    (optim.SGD, {"momentum": 0.9}), (optim.Adagrad, {})):
    print(kind.__name__, *words.values(), "%.2f" % (first_step(True, kind, words) / first_step(False, kind, words)))
P
"$python" "$work/look.py" 2>/dev/null | expect "AdamW 0 0.74
RAdam 0.53
SGD 0.9 0.5 0.50
SGD 0.9 1.00
Adagrad 1.00"
