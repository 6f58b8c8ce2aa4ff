#!/usr/bin/python3
"""The accuracy that PyTorch reaches with the recipe of a job file: the same model, initial
distribution, optimizer, schedule, clipping, augmentation, batch and epochs as `elapse train JOB`.

    /usr/bin/python3 tests/bench/accuracy_torch.py JOB --data DIR [--vocab FILE] [--init FILE]
        [--seed N]... [--threads N] [--epochs N]

For jobs on cifar10 (ViT) and sst2 (BERT, --init names a Hugging Face model.safetensors). Random
numbers are PyTorch's own, so equal seeds give other weights, batches, crops and dropout masks than
ours do: compare accuracies, over several seeds where that can be afforded. --epochs shortens both
the run and its schedule, as `--set train.epochs=N` does for us.
"""
import argparse
import json
import math
import os
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import minilm

PRESETS = {"vit-tiny": {"hidden": 192, "heads": 3, "mlp": 768, "layers": 12},
           "minilm-l6": {"hidden": 384, "heads": 12, "mlp": 1536, "layers": 6, "vocab": 30522, "max_seq": 512}}
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
EPS = 1e-12


class Block(nn.Module):
    """post: LayerNorm behind each residual sum (BERT), else in front of each sublayer (ViT)."""

    def __init__(self, m, post, dropout):
        super().__init__()
        h = m["hidden"]
        self.heads, self.post, self.dropout = m["heads"], post, dropout
        self.norm1, self.norm2 = nn.LayerNorm(h, EPS), nn.LayerNorm(h, EPS)
        self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.fc1, self.fc2 = nn.Linear(h, m["mlp"]), nn.Linear(m["mlp"], h)

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def attend(self, x, mask):
        n, s, h = x.shape
        q, k, v = self.qkv(x).view(n, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / math.sqrt(h // self.heads)
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        return self.drop(self.out((self.drop(scores.softmax(-1)) @ v).transpose(1, 2).reshape(n, s, h)))

    def mlp(self, x):
        return self.drop(self.fc2(F.gelu(self.fc1(x))))

    def forward(self, x, mask):
        if self.post:
            x = self.norm1(x + self.attend(x, mask))
            return self.norm2(x + self.mlp(x))
        x = x + self.attend(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    def __init__(self, m, dropout):
        super().__init__()
        h, p = m["hidden"], m["patch"]
        self.patch = nn.Conv2d(3, h, p, p)
        self.cls = nn.Parameter(torch.zeros(1, 1, h))
        self.pos = nn.Parameter(torch.zeros(1, (m["image"] // p) ** 2 + 1, h))
        self.blocks = nn.ModuleList(Block(m, False, dropout) for _ in range(m["layers"]))
        self.norm, self.head = nn.LayerNorm(h, EPS), nn.Linear(h, m["classes"])
        self.dropout = dropout

    def forward(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x, None)
        return self.head(self.norm(x)[:, 0])


class Bert(nn.Module):
    def __init__(self, m, dropout):
        super().__init__()
        h = m["hidden"]
        self.word, self.pos, self.types = nn.Embedding(m["vocab"], h), nn.Embedding(m["max_seq"], h), nn.Embedding(2, h)
        self.norm = nn.LayerNorm(h, EPS)
        self.blocks = nn.ModuleList(Block(m, True, dropout) for _ in range(m["layers"]))
        self.pool, self.head = nn.Linear(h, h), nn.Linear(h, m["classes"])
        self.dropout = dropout

    def forward(self, tokens, lengths):
        s = tokens.shape[1]
        drop = lambda t: F.dropout(t, self.dropout, self.training)
        x = drop(self.norm(self.word(tokens) + self.pos.weight[:s] + self.types.weight[0]))
        mask = (torch.arange(s)[None] >= lengths[:, None])[:, None, None]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(drop(torch.tanh(self.pool(x[:, 0]))))


def initialise(model):
    """Normal, deviation 0.02, for all of two dimensions and more; biases 0, norms 1 and 0."""
    for name, p in model.named_parameters():
        if p.ndim >= 2:
            nn.init.normal_(p, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(p)


def load_bert(model, path):
    """Everything but the classifier, which starts from its initial distribution."""
    w = minilm.load(path)
    put = lambda module, name: (module.weight.data.copy_(w[name + ".weight"]), module.bias.data.copy_(w[name + ".bias"]))
    model.word.weight.data.copy_(w["embeddings.word_embeddings.weight"])
    model.pos.weight.data.copy_(w["embeddings.position_embeddings.weight"])
    model.types.weight.data.copy_(w["embeddings.token_type_embeddings.weight"])
    put(model.norm, "embeddings.LayerNorm")
    for i, block in enumerate(model.blocks):
        p = f"encoder.layer.{i}."
        names = [f"{p}attention.self.{n}" for n in ("query", "key", "value")]
        block.qkv.weight.data.copy_(torch.cat([w[n + ".weight"] for n in names]))
        block.qkv.bias.data.copy_(torch.cat([w[n + ".bias"] for n in names]))
        put(block.out, p + "attention.output.dense")
        put(block.norm1, p + "attention.output.LayerNorm")
        put(block.fc1, p + "intermediate.dense")
        put(block.fc2, p + "output.dense")
        put(block.norm2, p + "output.LayerNorm")
    put(model.pool, "pooler.dense")


def read_cifar(folder, names):
    raw = np.concatenate([np.fromfile(os.path.join(folder, n), np.uint8).reshape(-1, 3073) for n in names])
    images = torch.from_numpy(raw[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255)
    images = (images - torch.tensor(CIFAR_MEAN)[:, None, None]) / torch.tensor(CIFAR_STD)[:, None, None]
    return [images], torch.from_numpy(raw[:, 0].astype(np.int64))


def read_sst2(path, vocab, seq):
    with open(path, encoding="utf-8", newline="\n") as f:
        rows = [line.rstrip("\r\n").split("\t") for line in f][1:]
    tokens, lengths = torch.full((len(rows), seq), vocab["[PAD]"]), torch.zeros(len(rows), dtype=torch.long)
    for i, (text, _) in enumerate(rows):
        ids = [vocab["[CLS]"]] + minilm.wordpiece(text, vocab)[: seq - 2] + [vocab["[SEP]"]]
        tokens[i, : len(ids)], lengths[i] = torch.tensor(ids), len(ids)
    return [tokens, lengths], torch.tensor([int(label) for _, label in rows])


def crop_flip(images):
    """Padded by an eighth with the mean, cropped back at a random place, every other one mirrored."""
    n, _, side, _ = images.shape
    pad = side // 8
    padded, out = F.pad(images, (pad,) * 4), torch.empty_like(images)
    at, flip = torch.randint(2 * pad + 1, (n, 2)).tolist(), torch.randint(2, (n,)).tolist()
    for i, ((y, x), mirrored) in enumerate(zip(at, flip)):
        view = padded[i, :, y : y + side, x : x + side]
        out[i] = view.flip(2) if mirrored else view
    return out


def learning_rate(train, step, total):
    schedule, lr = train.get("lr_schedule", {}), train["optimizer"]["lr"]
    warmup = schedule.get("warmup_steps", 0)
    if step < warmup:
        return lr * (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    kind = schedule.get("kind", "constant")
    return lr * {"constant": 1, "linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}[kind]


def accuracy(model, inputs, labels, batch=250):
    model.eval()
    with torch.no_grad():
        right = sum((model(*(t[i : i + batch] for t in inputs)).argmax(1) == labels[i : i + batch]).sum().item()
                    for i in range(0, len(labels), batch))
    model.train()
    return right / len(labels)


def train_once(job, args, seed, splits):
    torch.manual_seed(seed)
    train, dropout = job["train"], job["train"].get("dropout", 0.0)
    vit = job["data"]["kind"] == "cifar10"
    model = (Vit if vit else Bert)(job["model"], dropout)
    initialise(model)
    if args.init:
        load_bert(model, args.init)
    (inputs, labels), (test_inputs, test_labels) = splits
    decay = train["optimizer"].get("weight_decay", 0.0)
    groups = [{"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": decay},
              {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8)
    epochs, batch = args.epochs or train["epochs"], train["batch"]["global"]
    per_epoch = math.ceil(len(labels) / batch)
    step, start = 0, time.time()
    print(f"seed {seed}: accuracy {accuracy(model, test_inputs, test_labels):.4f} before", flush=True)
    for epoch in range(epochs):
        order, losses = torch.randperm(len(labels)), []
        for i in range(0, len(labels), batch):
            at = order[i : i + batch]
            views = [t[at] for t in inputs]
            if job["data"].get("augment") == "crop-flip":
                views[0] = crop_flip(views[0])
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(train, step, per_epoch * epochs)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(*views), labels[at])
            loss.backward()
            if train.get("clip_norm"):
                nn.utils.clip_grad_norm_(model.parameters(), train["clip_norm"])
            optimizer.step()
            losses.append(loss.item())
            step += 1
        print(f"seed {seed}: epoch {epoch + 1}/{epochs} step {step} loss {np.mean(losses):.4f} "
              f"accuracy {accuracy(model, test_inputs, test_labels):.4f} after {time.time() - start:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    parser.add_argument("--data", required=True)
    parser.add_argument("--vocab")
    parser.add_argument("--init")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int)
    args = parser.parse_args()
    with open(args.job) as f:
        job = json.load(f)
    if job["data"]["kind"] not in ("cifar10", "sst2") or job["train"]["optimizer"]["kind"] != "adamw":
        sys.exit(f"{args.job}: only cifar10 and sst2 with adamw")
    job["model"] = {**PRESETS[job["model"]["preset"]], **job["model"]}
    torch.set_num_threads(args.threads)
    if job["data"]["kind"] == "cifar10":
        splits = [read_cifar(args.data, sorted(n for n in os.listdir(args.data) if n.startswith(prefix) and n.endswith(".bin")))
                  for prefix in ("data_batch", "test_batch")]
    else:
        with open(args.vocab, encoding="utf-8", newline="\n") as f:
            vocab = {line.rstrip("\r\n"): i for i, line in enumerate(f)}
        splits = [read_sst2(os.path.join(args.data, n), vocab, job["model"]["seq"]) for n in ("train.tsv", "dev.tsv")]
    for seed in args.seed or [train_seed(job)]:
        train_once(job, args, seed, splits)


def train_seed(job):
    return job["train"].get("seed", 1)


main()
