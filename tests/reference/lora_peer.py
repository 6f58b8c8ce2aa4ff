#!/usr/bin/env python3
"""Compare adapters that `elapse export` wrote with what peft makes of them, or write adapters of peft to read back.

    python3 tests/reference/lora_peer.py BASE ADAPTERS MERGED
    python3 tests/reference/lora_peer.py --write BASE TARGETS ADAPTERS MERGED

BASE, MERGED: folders of from_pretrained(); ADAPTERS: of the run that began with BASE. Needs torch, transformers and
peft (PyPI). The adapters must load over BASE without a missing or unexpected name, and the logits must be those of MERGED.
--write makes random adapters on the modules TARGETS (joined by commas), saved by peft, and the model that has them
merged: `elapse eval BASE JOB --adapter ADAPTERS` and `elapse eval MERGED JOB` must print one loss.
"""
import json
import os
import sys

import peft
import safetensors.torch
import torch
import transformers


def load(folder):
    name = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    return getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()


def batch(config):
    generator = torch.Generator().manual_seed(1)
    if config.model_type == "vit":
        return {"pixel_values": torch.randn(4, config.num_channels, config.image_size, config.image_size, generator=generator)}
    seq = min(16, config.max_position_embeddings)
    return {"input_ids": torch.randint(0, config.vocab_size, (4, seq), generator=generator)}


def write(base, targets, adapters, merged):
    model = load(base)
    heads = [n for n in ("classifier", "qa_outputs") if hasattr(model, n)]
    config = peft.LoraConfig(r=3, lora_alpha=5, target_modules=targets.split(","), modules_to_save=heads or None)
    model = peft.get_peft_model(model, config).eval()
    torch.manual_seed(2)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(adapters)
    model.merge_and_unload().save_pretrained(merged)


def compare(base, adapters, merged):
    model, whole = peft.PeftModel.from_pretrained(load(base), adapters).eval(), load(merged)
    given = safetensors.torch.load_file(os.path.join(adapters, "adapter_model.safetensors"))
    wanted = peft.get_peft_model_state_dict(model)
    assert sorted(given) == sorted(wanted), set(given) ^ set(wanted)
    assert all(torch.equal(given[n], wanted[n]) for n in given)
    data = batch(whole.config)
    with torch.no_grad():
        ours, theirs, before = whole(**data).logits, model(**data).logits, load(base)(**data).logits
    worst = (ours - theirs).abs().max().item()
    print(json.dumps({"tensors": len(given), "worst": worst, "moved": (before - theirs).abs().max().item()}))
    assert worst < 1e-5


if sys.argv[1] == "--write":
    write(*sys.argv[2:])
else:
    compare(*sys.argv[1:])
