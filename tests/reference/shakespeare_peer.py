#!/usr/bin/env python3
"""A small Llama on a text, by elapse and by Hugging Face's model in PyTorch, same job: losses over seeds.

    tests/reference/shakespeare_peer.py TEXT [SEEDS]

TEXT is a file; tokens are its bytes, a sample is 64 of them, the last tenth of the samples is the test split. Both
sides draw their own weights and orders, so the means are compared with their spread. Needs torch, transformers and
build/bin/elapse (or ELAPSE_BIN)."""
import json
import math
import os
import subprocess
import sys
import tempfile

import torch
import transformers

SEQ, BATCH, STEPS, RATE, WARMUP = 64, 32, 400, 2e-3, 40
HIDDEN, LAYERS, HEADS, KV, MLP = 96, 3, 4, 2, 256


def ours(text, seed, folder):
    job = {"model": {"preset": "llama", "seq": SEQ, "vocab": 256, "hidden": HIDDEN, "layers": LAYERS, "heads": HEADS,
                     "kv_heads": KV, "mlp": MLP},
           "data": {"kind": "text", "path": text},
           "train": {"epochs": 1, "max_steps": STEPS, "batch": {"global": BATCH}, "seed": seed, "clip_norm": 1.0,
                     "optimizer": {"kind": "adamw", "lr": RATE, "weight_decay": 0.1},
                     "lr_schedule": {"kind": "cosine", "warmup_steps": WARMUP}},
           "pipeline": {"num_stages": 1, "num_replicas": 1, "num_microbatches": 1, "schedule": "1f1b"}}
    path = os.path.join(folder, f"job{seed}.json")
    json.dump(job, open(path, "w"))
    binary = os.path.join(os.environ.get("ELAPSE_BIN", "build/bin"), "elapse")
    out = subprocess.run([binary, "train", path, "--out", os.path.join(folder, f"run{seed}"), "--json"],
                         capture_output=True, text=True, check=True).stdout
    return json.loads(out)["eval_loss"]


def theirs(text, seed):
    torch.manual_seed(seed)
    data = torch.tensor(list(open(text, "rb").read()))
    samples = (len(data) - 1) // SEQ
    inputs, targets = data[:samples * SEQ].view(samples, SEQ), data[1:samples * SEQ + 1].view(samples, SEQ)
    test = samples // 10
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=256, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV, intermediate_size=MLP, max_position_embeddings=SEQ, tie_word_embeddings=False))
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=RATE)
    order = torch.randperm(samples - test)
    total = min(STEPS, (samples - test) // BATCH)

    def loss_of(ids):
        logits = model(inputs[ids]).logits
        return torch.nn.functional.cross_entropy(logits.view(-1, 256), targets[ids].view(-1))

    for step in range(total):
        part = (step + 1) / WARMUP if step < WARMUP else \
            0.5 + 0.5 * math.cos(math.pi * (step - WARMUP) / (total - WARMUP))
        for group in optimizer.param_groups:
            group["lr"] = RATE * part
        loss_of(order[step * BATCH:(step + 1) * BATCH]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        ids = torch.arange(samples - test, samples)
        return sum(float(loss_of(part)) * len(part) for part in ids.split(256)) / test


def main():
    torch.set_num_threads(1)
    text, seeds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, seeds + 1):
            rows.append((ours(text, seed, folder), theirs(text, seed)))
            print(f"seed {seed}: elapse {rows[-1][0]:.4f}, transformers {transformers.__version__} {rows[-1][1]:.4f}")
    means = [sum(r[i] for r in rows) / seeds for i in (0, 1)]
    spread = [math.sqrt(sum((r[i] - means[i]) ** 2 for r in rows) / max(seeds - 1, 1)) for i in (0, 1)]
    apart, noise = means[0] - means[1], math.hypot(*spread)
    print(f"means {means[0]:.4f} and {means[1]:.4f}, apart by {apart:+.4f}, spread of a seed {noise:.4f}")
    sys.exit(abs(apart) > 2 * noise + 0.005)


if __name__ == "__main__":
    main()
