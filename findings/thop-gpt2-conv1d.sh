#!/bin/bash
# thop counts 0.3 % of a GPT-2's products.
#
# Guess: a FLOP counter that is right for a Llama within some per cent (it leaves attention's scores out) is so for GPT-2.
# Seen (thop 0.1.1.post2209072238, transformers 5.24.0, torch 2.15.0, 2026-11-28): transformers writes GPT-2's products as
#   its own class Conv1D, for which thop has no rule, and a module without a rule counts as 0 and is not named. Of 436 M
#   FLOPs that PyTorch's own counter sees, thop counts 1.3 M, all of them norms. Of a Llama of that size it counts 94 %.
# Source: thop/profile.py (register_hooks), transformers/pytorch_utils.py (Conv1D).
. "$(dirname "$0")/lib"
torch
"$python" -m pip install -q --disable-pip-version-check transformers==5.24.0
packages thop==0.1.1.post2209072238
cat >"$work/count.py" <<'P'
import torch, thop
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaModel
tokens = torch.randint(0, 1000, (1, 128))
gpt2 = GPT2Model(GPT2Config(n_layer=2, n_embd=256, n_head=4, vocab_size=1000, bos_token_id=None, eos_token_id=None))
llama = LlamaModel(LlamaConfig(num_hidden_layers=2, hidden_size=256, intermediate_size=1024, num_attention_heads=4,
                               num_key_value_heads=1, vocab_size=1000))
for name, model in ("gpt2", gpt2), ("llama", llama):
    model.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(tokens)
    macs, _ = thop.profile(model, inputs=(tokens,), verbose=False)
    print(name, "torch", counter.get_total_flops(), "thop", int(2 * macs))
P
"$python" "$work/count.py" 2>/dev/null | expect "gpt2 torch 436207616 thop 1310720
llama torch 520093696 thop 486539264"
