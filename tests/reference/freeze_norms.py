#!/usr/bin/python3
"""Record per-layer gradient norms of a small ViT fine-tuned on CIFAR-10 under several learning-rate
schedules, for the freeze policies: tests/golden/norms-<schedule>.json, a JSON array of epochs, each
an array of the layers' norms (root mean square over the epoch's steps), as `elapse freeze --norms`
reads it.

Usage: freeze_norms.py CIFAR_DIR [OUT_DIR]   (Debian's python3-torch; about two minutes on one core)
"""
import json
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, PATCH, EPOCHS, BATCH, PRETRAIN = 6, 64, 4, 8, 14, 50, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        tokens = (32 // PATCH) ** 2 + 1
        self.embed = nn.Conv2d(3, HIDDEN, PATCH, PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, HIDDEN))
        self.position = nn.Parameter(torch.randn(1, tokens, HIDDEN) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 10)

    def forward(self, images):
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def load(directory, first, count):
    with open(os.path.join(directory, "data_batch_1.bin"), "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(-1, 3073)
    data = data[first : first + count]
    images = data[:, 1:].reshape(-1, 3, 32, 32).float() / 127.5 - 1
    return images, data[:, 0].long()


def rate(schedule, epoch):
    base = 0.03
    if schedule == "constant":
        return base
    if schedule == "tenth":  # everything ten times slower
        return base / 10
    if schedule == "step":  # a drop in mid-run
        return base if epoch < EPOCHS // 2 else base / 30
    if epoch == 0:  # cosine with one epoch of warm-up
        return base / 10
    return base * 0.5 * (1 + math.cos(math.pi * epoch / EPOCHS))


def epoch_of(model, data, lr, velocity, generator):
    images, labels = data
    order, squares, steps, total = torch.randperm(len(labels), generator=generator), None, 0, 0.0
    for start in range(0, len(order), BATCH):
        pick = order[start : start + BATCH]
        loss = F.cross_entropy(model(images[pick]), labels[pick])
        model.zero_grad()
        loss.backward()
        now = [sum(p.grad.pow(2).sum().item() for p in b.parameters()) for b in model.blocks]
        squares = now if squares is None else [a + b for a, b in zip(squares, now)]
        steps, total = steps + 1, total + loss.item()
        with torch.no_grad():
            for p, v in zip(model.parameters(), velocity):
                v.mul_(0.9).add_(p.grad)
                p.sub_(lr * v)
    return [math.sqrt(s / steps) for s in squares], total / steps


def main():
    out = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "../golden")
    torch.set_num_threads(1)
    for schedule in ("constant", "tenth", "step", "cosine"):
        torch.manual_seed(1)
        generator = torch.Generator().manual_seed(2)
        model, rows = ViT(), []
        velocity = [torch.zeros_like(p) for p in model.parameters()]
        for _ in range(PRETRAIN):
            epoch_of(model, load(sys.argv[1], 0, 1500), 0.03, velocity, generator)
        for v in velocity:
            v.zero_()
        for epoch in range(EPOCHS):
            norms, loss = epoch_of(model, load(sys.argv[1], 1500, 1500), rate(schedule, epoch),
                                   velocity, generator)
            rows.append([float(f"{n:.6g}") for n in norms])
            print(f"{schedule} epoch {epoch} loss {loss:.4f}", *(f"{n:.4f}" for n in norms))
        with open(os.path.join(out, f"norms-{schedule}.json"), "w", encoding="ascii") as file:
            file.write("[\n " + ",\n ".join(json.dumps(r) for r in rows) + "\n]\n")


main()
