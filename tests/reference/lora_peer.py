#!/usr/bin/env python3
"""Compare adapters that `elapse export` wrote with what peft makes of them.

    python3 tests/reference/lora_peer.py BASE ADAPTERS MERGED

BASE, MERGED: folders of from_pretrained(); ADAPTERS: of the run that began with BASE. Needs torch, transformers and
peft (PyPI). The adapters must load over BASE without a missing or unexpected name, and the logits must be those of MERGED.
"""
import json
import os
import sys

import peft
import safetensors.torch
import torch
import transformers

base, adapters, merged = sys.argv[1:]
load = lambda folder: transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
model = peft.PeftModel.from_pretrained(load(base), adapters).eval()
whole = load(merged).eval()
given = safetensors.torch.load_file(os.path.join(adapters, "adapter_model.safetensors"))
wanted = peft.get_peft_model_state_dict(model)
assert sorted(given) == sorted(wanted), set(given) ^ set(wanted)
assert all(torch.equal(given[n], wanted[n]) for n in given)
tokens = torch.randint(0, whole.config.vocab_size, (4, 16), generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    ours, theirs, before = whole(tokens).logits, model(tokens).logits, load(base)(tokens).logits
worst = (ours - theirs).abs().max().item()
print(json.dumps({"tensors": len(given), "worst": worst, "moved": (before - theirs).abs().max().item()}))
assert worst < 1e-5
