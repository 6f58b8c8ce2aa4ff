#!/usr/bin/env python3
"""Parameters of tests/golden/hf_configs.json, as PyPI's transformers counts them on the meta device.

Prints each model whose count differs and ends with 1. --write puts the counts into the file. A
router's persistent bias (DeepSeek-V3) is a buffer in transformers and a parameter of its checkpoint;
it counts. Needs torch and transformers; no weights are read."""
import json
import os
import sys

import torch
import transformers

PATH = os.path.join(os.path.dirname(__file__), "../golden/hf_configs.json")


def count(config):
    name = config.get("architectures", [None])[0]
    text = transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):
        if name is None:
            model = transformers.AutoModelForCausalLM.from_config(text)
        else:
            model = getattr(transformers, name)._from_config(text)
    model.tie_weights()
    total = sum(p.numel() for p in model.parameters())
    # transformers 5 ties T5's head in any case; the checkpoints of version 1.1 have one of their own
    if config["model_type"] == "t5" and config.get("tie_word_embeddings") is False:
        total += model.get_input_embeddings().weight.numel()
    return total + sum(b.numel() for n, b in model.named_buffers() if "correction_bias" in n)


rows = json.load(open(PATH))
wrong = 0
for row in rows:
    params = count(dict(row["config"]))
    if params != row["params"]:
        wrong += 1
        print(f"{row['name']}: {row['params']}, transformers {transformers.__version__}: {params}")
        row["params"] = params
if "--write" in sys.argv:
    lines = ",\n".join(json.dumps(row) for row in rows)
    open(PATH, "w").write(f"[\n{lines}\n]\n")
    wrong = 0
print(f"{len(rows)} models, {wrong} differ")
sys.exit(wrong > 0)
