#!/usr/bin/python3
"""Training steps beside PyTorch: same models, batches and threads, runs alternated.

    /usr/bin/python3 tests/bench/bench_torch.py BENCH_KERNELS [--threads 2] [--rounds 5] [--steps 3]
        [--dtype bf16] [--compile] [--keep-memory] [MODEL...]

BENCH_KERNELS is build/.../tests/bench_kernels. PyTorch's models are written with nn.Module layers
as Hugging Face's are (separate query, key and value; scaled_dot_product_attention from PyTorch 2 on,
softmax between batched GEMMs before) and train with SGD momentum; prints the medians over rounds
(fastest..slowest) and their ratio. --dtype bf16: autocast over fp32 weights beside our bf16. --compile:
torch.compile, whose first step compiles and is not timed. --keep-memory runs PyTorch with a malloc that
never gives pages back, which spares it their faults.
"""
import argparse
import math
import os
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, hidden, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        if fused:
            self.qkv = nn.Linear(hidden, 3 * hidden)
        else:
            self.q, self.k, self.v = (nn.Linear(hidden, hidden) for _ in range(3))
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x, mask):
        n, s, h = x.shape
        split = lambda t: t.view(n, s, self.heads, h // self.heads).transpose(1, 2)
        q, k, v = self.qkv(x).split(h, 2) if self.fused else (self.q(x), self.k(x), self.v(x))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(split(q), split(k), split(v), is_causal=mask is not None)
        else:
            scores = split(q) @ split(k).transpose(2, 3) / math.sqrt(h // self.heads)
            if mask is not None:
                scores = scores.masked_fill(mask, float("-inf"))
            y = scores.softmax(-1) @ split(v)
        return self.out(y.transpose(1, 2).reshape(n, s, h))


class Block(nn.Module):
    def __init__(self, hidden, heads, mlp, post, tanh):
        super().__init__()
        self.post, self.tanh = post, tanh
        self.attn = Attention(hidden, heads, tanh)
        self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.fc1, self.fc2 = nn.Linear(hidden, mlp), nn.Linear(mlp, hidden)

    def mlp(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh" if self.tanh else "none"))

    def forward(self, x, mask):
        if self.post:
            x = self.ln1(x + self.attn(x, mask))
            return self.ln2(x + self.mlp(x))
        x = x + self.attn(self.ln1(x), mask)
        return x + self.mlp(self.ln2(x))


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        layers, h, heads, mlp, self.seq = {"minilm": (6, 384, 12, 1536, 64), "vit-tiny": (12, 192, 3, 768, 65),
                                           "gpt2": (12, 768, 12, 3072, 256)}[kind]
        self.blocks = nn.ModuleList(Block(h, heads, mlp, kind == "minilm", kind == "gpt2") for _ in range(layers))
        self.norm = nn.LayerNorm(h)
        self.mask = None
        if kind == "vit-tiny":
            self.patch = nn.Conv2d(3, h, 4, 4)
            self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, h)), nn.Parameter(torch.zeros(1, 65, h))
            self.head = nn.Linear(h, 10)
        else:
            self.word = nn.Embedding(30522 if kind == "minilm" else 50257, h)
            self.pos = nn.Embedding(1024, h)
            if kind == "minilm":
                self.types = nn.Embedding(2, h)
                self.pool, self.head = nn.Linear(h, h), nn.Linear(h, 2)
            else:
                self.mask = torch.ones(self.seq, self.seq, dtype=torch.bool).triu(1)

    def forward(self, data, labels):
        if self.kind == "vit-tiny":
            x = self.patch(data).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        else:
            x = self.word(data) + self.pos.weight[: self.seq]
            if self.kind == "minilm":
                x = self.norm(x + self.types.weight[0])
        for block in self.blocks:
            x = block(x, self.mask)
        if self.kind == "minilm":
            return F.cross_entropy(self.head(torch.tanh(self.pool(x[:, 0]))), labels)
        x = self.norm(x)
        if self.kind == "vit-tiny":
            return F.cross_entropy(self.head(x[:, 0]), labels)
        return F.cross_entropy((x @ self.word.weight.t()).flatten(0, 1), labels.flatten())


class Trainer:
    """One model, its batch and its optimizer; lives through all rounds."""

    def __init__(self, kind, dtype, compiled):
        torch.manual_seed(0)
        self.model, self.bf16 = Model(kind), dtype == "bf16"
        self.run = torch.compile(self.model) if compiled else self.model
        batch = {"minilm": 32, "vit-tiny": 64, "gpt2": 4}[kind]
        if kind == "vit-tiny":
            self.data, self.labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
        else:
            self.data = torch.randint(30000, (batch, self.model.seq))
            self.labels = torch.randint(2, (batch,)) if kind == "minilm" else torch.randint(50000, (batch, self.model.seq))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def step_ms(self):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.run(self.data, self.labels)
        loss.backward()
        self.optimizer.step()
        return (time.perf_counter() - start) * 1e3

    def median_ms(self, steps):
        times = sorted(self.step_ms() for _ in range(steps))
        return times[len(times) // 2]


def report(name, times):
    times = sorted(times)
    return f"{name} {times[len(times) // 2]:.0f} ms ({times[0]:.0f}..{times[-1]:.0f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="timed steps a round, behind one that is not")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", action="store_true", help="torch.compile (PyTorch 2 and a C++ compiler)")
    parser.add_argument("--keep-memory", action="store_true", help="PyTorch with a malloc that gives nothing back")
    args = parser.parse_intermixed_args()
    keep = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 26)}
    if args.keep_memory and "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **keep})
    plain = {k: v for k, v in os.environ.items() if k not in keep}
    torch.set_num_threads(args.threads)
    for kind in args.models or ["minilm", "vit-tiny", "gpt2"]:
        ours, theirs = [], []
        trainer = Trainer(kind, args.dtype, args.compile)
        for r in range(args.rounds):
            line = subprocess.run([args.bench, kind, str(args.threads), str(args.steps), args.dtype], check=True,
                                  capture_output=True, text=True, env=plain)
            ours.append(float(line.stdout.split("median ")[1].split()[0]))
            trainer.step_ms()
            theirs.append(trainer.median_ms(args.steps))
        a, b = sorted(ours)[len(ours) // 2], sorted(theirs)[len(theirs) // 2]
        torch_name = f"pytorch {torch.__version__}" + " (compiled)" * args.compile + " (malloc keeps)" * args.keep_memory
        print(f"{kind}: {report('elapse', ours)}, {report(torch_name, theirs)}, ratio {b / a:.2f}", flush=True)
        del trainer


main()
