#!/bin/bash
# ptflops counts fewer FLOPs when the same attention runs fused.
#
# Guess: a model's FLOPs do not depend on which implementation of attention computes them.
# Seen (ptflops 0.7.5, transformers 5.24.0, torch 2.15.0, 2026-11-28): with attn_implementation "sdpa", the default, neither
#   of its two backends counts the scores and the weighted sum; with "eager" both do. At 128 tokens that is 8 % of a small
#   GPT-2, and it grows with the length. PyTorch's own counter gives one number for both.
# Source: ptflops/pytorch_ops.py and ptflops/aten_ops.py have rules for matmul, none for the fused operator.
. "$(dirname "$0")/lib"
torch
"$python" -m pip install -q --disable-pip-version-check transformers==5.24.0
packages ptflops==0.7.5
cat >"$work/count.py" <<'P'
import torch, ptflops
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2Model
tokens = torch.randint(0, 1000, (1, 128))
model = GPT2Model(GPT2Config(n_layer=2, n_embd=256, n_head=4, vocab_size=1000, bos_token_id=None, eos_token_id=None)).eval()
for attention in "eager", "sdpa":
    model.set_attn_implementation(attention)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(tokens)
    macs = [ptflops.get_model_complexity_info(
        model, (128,), input_constructor=lambda _: {"input_ids": tokens}, as_strings=False, print_per_layer_stat=False,
        verbose=False, backend=backend)[0] for backend in ("pytorch", "aten")]
    print(attention, "torch", counter.get_total_flops(), "ptflops", *(round(2 * m / 1e6) for m in macs), "million")
P
"$python" "$work/count.py" 2>/dev/null | grep torch | expect "eager torch 436207616 ptflops 437 437 million
sdpa torch 436207616 ptflops 403 404 million"
