#!/bin/bash
# A mixture of experts loses two thirds of its FLOPs when its products are grouped.
#
# Guess: the counted FLOPs of a Mixtral do not depend on which implementation of experts multiplies.
# Seen (transformers 5.24.0, torch 2.15.0, CPU, 2026-11-28): 8 experts of which 2 are active, 64 tokens: 8,978,432 with
#   "eager" and with "batched_mm", 2,686,976 with "grouped_mm": aten._grouped_mm has no formula, and an operator
#   without one counts as 0 and is not named. "grouped_mm" is the default.
# Source: transformers/integrations/moe.py; torch/utils/flop_counter.py (flop_registry).
# Why it matters: an MFU taken so falls when the faster kernel is switched on.
. "$(dirname "$0")/lib"
torch
"$python" -m pip install -q --disable-pip-version-check transformers==5.24.0
cat >"$work/count.py" <<'P'
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import MixtralConfig, MixtralModel
config = MixtralConfig(num_hidden_layers=1, hidden_size=64, intermediate_size=128, num_attention_heads=4,
                       num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2, vocab_size=100)
model = MixtralModel(config).eval()
tokens = torch.randint(0, 100, (1, 64))
print("default", model.config._experts_implementation)
for experts in "eager", "batched_mm", "grouped_mm":
    model.set_experts_implementation(experts)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(tokens)
    print(experts, "flops", counter.get_total_flops())
P
"$python" "$work/count.py" 2>/dev/null | grep -E 'flops|default' | expect "default grouped_mm
eager flops 8978432
batched_mm flops 8978432
grouped_mm flops 2686976"
