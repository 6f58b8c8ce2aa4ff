#!/usr/bin/env python3
"""Golden values of decoders and of adapters in tests/unit/exec/test_parity.c, from transformers in double precision.

    python3 tests/reference/decoders.py [NAME...]     (rewrites tests/golden/parity-NAME.bin, all of those below)

Needs torch, transformers and peft (PyPI). Weights and inputs come from the integer hash of exec/base/rng.h, as
in parity.py, whose format the files have: gradients of the first step, losses and weights of ten steps
of SGD. transformers computes RMSNorm and angles in fp32, whatever the dtype.
"""
import os
import sys

import peft
import torch
import transformers

import parity

SHAPE = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=12, rms_norm_eps=1e-5, pad_token_id=None, bos_token_id=None,
             eos_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=12)
YARN = dict(rope_type="yarn", rope_theta=50.0, factor=3.0, original_max_position_embeddings=64)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=2.0)
PLAIN = dict(rope_type="default", rope_theta=1000.0)

MODELS = {
    "llama": transformers.LlamaConfig(**SHAPE, num_key_value_heads=2, rope_parameters=LLAMA3),
    "qwen2": transformers.Qwen2Config(**SHAPE, num_key_value_heads=2, tie_word_embeddings=True,
                                      rope_parameters=LINEAR),
    "qwen3": transformers.Qwen3Config(**SHAPE, num_key_value_heads=1, head_dim=6, rope_parameters=YARN),
    "mistral": transformers.MistralConfig(**SHAPE, num_key_value_heads=4, sliding_window=4,
                                          rope_parameters=PLAIN),
    "gemma": transformers.GemmaConfig(**SHAPE, num_key_value_heads=1, head_dim=8, rope_parameters=PLAIN,
                                      hidden_act="gelu_pytorch_tanh"),
}
# Models that parity.py has without adapters; names of their classes.
OTHERS = {
    "gpt": (transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_inner=32, n_positions=12, resid_pdrop=0,
                                    embd_pdrop=0, attn_pdrop=0, bos_token_id=None, eos_token_id=None), "GPT2LMHeadModel", "lm"),
    "bert": (transformers.BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=32, max_position_embeddings=12, num_labels=3, hidden_dropout_prob=0,
                                     attention_probs_dropout_prob=0), "BertForSequenceClassification", "classify"),
    "vit": (transformers.ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                                   image_size=12, patch_size=4, num_labels=5), "ViTForImageClassification", "classify"),
}
OUTPUTS = {"gpt": 40, "bert": 3, "vit": 5}
# Adapters by peft: of which model, rank, alpha, products.
ADAPTERS = {
    "lora-llama": ("llama", 3, 6.0, ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    "lora-qwen2": ("qwen2", 2, 5.0, ["q_proj", "k_proj", "v_proj"]),
    "lora-mlp": ("qwen3", 4, 2.0, ["gate_proj", "up_proj", "down_proj"]),
    "lora-gpt": ("gpt", 3, 6.0, ["c_attn", "c_proj", "c_fc"]),
    "lora-bert": ("bert", 3, 6.0, ["query", "value", "dense"]),
    "lora-vit": ("vit", 2, 3.0, ["q_proj", "k_proj", "fc1", "mlp.fc2"]),
}
# transformers 5 has other names for ViT's modules, whose weights it reads and writes under the old ones.
VIT = {"layers.": "encoder.layer.", "q_proj": "attention.query", "k_proj": "attention.key", "v_proj": "attention.value",
       "o_proj": "output.dense", "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}


def ours(name):
    for part in ("base_model.model.", ".base_layer", ".modules_to_save", ".default"):
        name = name.replace(part, "")
    for new, old in VIT.items() if name.startswith("vit.") else ():
        name = name.replace(new, old)
    return name


def other_names(of, task, have):
    """Those of OTHERS: an item's adapters stand behind its last product."""
    order = []
    for n, _ in parity.parameters(of, task, OUTPUTS[of]):
        order.append(n)
        module = n[:-len(".bias")]
        ends = {"attn.c_proj": ["attn.c_attn", "attn.c_proj"], "mlp.c_proj": ["mlp.c_fc", "mlp.c_proj"],
                "pooler.dense": ["pooler.dense"],
                "attention.output.dense": [*(("attention.self." if of == "bert" else "attention.attention.") + p
                                             for p in ("query", "key", "value")), "attention.output.dense"],
                "output.dense": ["intermediate.dense", "output.dense"]}
        for end, products in ends.items() if n.endswith(".bias") else ():
            if module.endswith("." + end):
                layer = module[:-len(end)]
                order += [f"{layer}{p}.lora_{ab}.weight" for p in products for ab in "AB"]
                break
    return [n for n in order if n in have]


def names(config, have):
    """The tensors in the order of stage_params()."""
    adapters = lambda b, products: [f"{b}{p}_proj.lora_{ab}.weight" for p in products for ab in "AB"]
    order = ["model.embed_tokens.weight"]
    for i in range(config.num_hidden_layers):
        b = f"model.layers.{i}."
        order += [b + "input_layernorm.weight", b + "self_attn.q_norm.weight", b + "self_attn.k_norm.weight"]
        order += [b + f"self_attn.{n}_proj.{kind}" for n in "qkv" for kind in ("weight", "bias")]
        order += [b + "self_attn.o_proj.weight"] + adapters(b + "self_attn.", "qkvo")
        order += [b + "post_attention_layernorm.weight"]
        order += [b + f"mlp.{n}_proj.weight" for n in ("gate", "up", "down")]
        order += adapters(b + "mlp.", ("gate", "up", "down"))
    order += ["model.norm.weight", "lm_head.weight"]
    return [n for n in order if n in have]


def golden(name, of, adapters=None):
    torch.manual_seed(0)
    config, kind, task = OTHERS.get(of) or (MODELS[of], "AutoModelForCausalLM", "lm")
    config._attn_implementation = "eager"
    model = getattr(transformers, kind)
    model = model(config) if of in OTHERS else model.from_config(config, dtype=torch.float64)
    if adapters:
        rank, alpha, targets = adapters
        saved = ["classifier"] if task == "classify" else None
        model = peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, modules_to_save=saved))
    model.eval().double()
    have = {ours(n): p for n, p in model.named_parameters() if ".original_module." not in n}
    order = other_names(of, task, have) if of in OTHERS else names(config, have)
    assert sorted(order) == sorted(have), set(have) ^ set(order)
    with torch.no_grad():
        for i, n in enumerate(order):
            centre = 1.0 if have[n].dim() == 1 and n.endswith("weight") else 0.0
            have[n].copy_(centre + 0.5 * parity.uniform(1000 + i, have[n].shape))
    data = parity.inputs(of, task, OUTPUTS.get(of, parity.VOCAB))
    train = [n for n in order if have[n].requires_grad]
    groups = [{"params": [have[n] for n in train if have[n].dim() >= 2], "weight_decay": 0.01},
              {"params": [have[n] for n in train if have[n].dim() < 2], "weight_decay": 0.0}]
    groups = [g for g in groups if g["params"]]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    losses, grads = [], None
    for _ in range(parity.STEPS):
        optimizer.zero_grad()
        if of == "vit":
            logits = model(data["images"]).logits
        elif of == "bert":
            mask = (torch.arange(parity.SEQ)[None] < data["lengths"][:, None]).long()
            logits = model(data["tokens"], attention_mask=mask, token_type_ids=data["types"]).logits
        else:
            logits = model(data["tokens"], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), data["labels"].reshape(-1))
        loss.backward()
        losses.append(loss.detach().reshape(1))
        if grads is None:
            grads = [have[n].grad.clone().reshape(-1) for n in train]
        optimizer.step()
    sections = [("grads", torch.cat(grads)), ("sgd-losses", torch.cat(losses)),
                ("sgd-weights", torch.cat([have[n].detach().reshape(-1) for n in order]))]
    path = os.path.join(parity.GOLDEN, f"parity-{name}.bin")
    with open(path, "wb") as f:
        f.write("".join(f"{key} {len(v)}\n" for key, v in sections).encode() + b"\n")
        for _, values in sections:
            f.write(values.detach().numpy().astype("<f4").tobytes())
    print(path, os.path.getsize(path))


def main():
    torch.set_default_dtype(torch.float64)
    for name in sys.argv[1:] or [*MODELS, *ADAPTERS]:
        of, *adapters = ADAPTERS.get(name, (name,))
        golden(name, of, adapters)


if __name__ == "__main__":
    main()
