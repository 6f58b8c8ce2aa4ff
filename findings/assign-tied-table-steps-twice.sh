#!/bin/bash
# load_state_dict(assign=True) makes two weights of one tied table in one memory, and AdamW steps on it twice.
#
# Guess: a tied model built on the meta device and filled by assign=True is tied, as one filled by copying; or it has
#   two tables, which drift apart.
# Seen (torch 2.15.0, CPU, 2026-11-30): neither. torch.load() gives both names one memory, and each gets a Parameter of
#   its own over it, so the tables stay equal, whoever compares them. SGD moves them as before, because the two
#   gradients add up. AdamW has two states, normalises each gradient for itself and makes both steps: after 3 steps the
#   table has moved 1.52 times as far. Nothing is said. To tie again after loading helps.
# Source: Module._load_from_state_dict() in torch/nn/modules/module.py (assign_to_params_buffers).
# Why it matters: meta device and assign=True is how large models are loaded, and every check of values passes.
. "$(dirname "$0")/lib"
torch
cat >"$work/tied.py" <<'P'
import io
import torch
from torch import nn
from torch.nn.functional import cross_entropy

def tied():
    model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16, bias=False))
    model[1].weight = model[0].weight
    return model

torch.manual_seed(0)
file = io.BytesIO()
torch.save(tied().state_dict(), file)
tokens = torch.arange(16)
for name, optimizer_of in ("SGD", lambda p: torch.optim.SGD(p, 0.1)), ("AdamW", lambda p: torch.optim.AdamW(p, 0.1)):
    moved = []
    for device, assign in ("cpu", False), ("meta", True):
        with torch.device(device):
            model = tied()
        file.seek(0)
        model.load_state_dict(torch.load(file), assign=assign)
        optimizer = optimizer_of(model.parameters())
        before = model[0].weight.detach().clone()
        for _ in range(3):
            cross_entropy(model(tokens), tokens.roll(1)).backward()
            optimizer.step()
            optimizer.zero_grad()
        moved.append((model[0].weight - before).norm().item())
        print(name, "assigned" if assign else "copied", "weights", len(list(model.parameters())), "equal",
              torch.equal(*(layer.weight for layer in model)))
    print(name, "moved %.2f times as far" % (moved[1] / moved[0]))
P
"$python" "$work/tied.py" 2>/dev/null | expect "SGD copied weights 1 equal True
SGD assigned weights 2 equal True
SGD moved 1.00 times as far
AdamW copied weights 1 equal True
AdamW assigned weights 2 equal True
AdamW moved 1.52 times as far"
