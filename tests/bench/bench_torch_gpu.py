#!/usr/bin/env python3
"""Training steps of PyTorch on a GPU, for the table of `make gpu-check`.

    bench_torch_gpu.py MODEL [--batch N] [--steps 20] [--warm-up 5] [--device cuda] [--no-compile]

MODEL: gpt2 (T=1024), bert-base, bert-large (T=128, classifier), vit-b16 (224), llama (100 M parameters) and
llama-1b (T=1024, tied heads), or tiny and tiny-llama (any device, for a test of this script). torch.compile, bf16 by autocast over fp32 weights, fused attention
(scaled_dot_product_attention), AdamW in its fused form, no dropout, one batch, which every step
copies from pinned host memory, as elapse's steps do. GPT-2's table is padded to 50304 rows, which is the faster way. Prints one JSON object:
median, p10 and p90 of the step in ms by events, samples and tokens a second, versions.
"""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

# layers, hidden, heads, mlp, tokens, vocabulary or classes, default batch
SIZES = {
    "gpt2": (12, 768, 12, 3072, 1024, 50304, 16),
    "bert-base": (12, 768, 12, 3072, 128, 30522, 256),
    "bert-large": (24, 1024, 16, 4096, 128, 30522, 128),
    "vit-b16": (12, 768, 12, 3072, 197, 1000, 256),
    "llama": (12, 768, 12, 2048, 1024, 32000, 16),
    "llama-1b": (16, 2048, 32, 8192, 1024, 32000, 8),
    "tiny": (1, 16, 1, 16, 8, 16, 4),
    "tiny-llama": (1, 16, 2, 16, 8, 16, 4),
}
KV_HEADS = {"llama": 4, "llama-1b": 8, "tiny-llama": 1}


class Block(nn.Module):
    def __init__(self, hidden, heads, mlp, post, causal, gelu):
        super().__init__()
        self.heads, self.post, self.causal, self.gelu = heads, post, causal, gelu
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc1, self.fc2 = nn.Linear(hidden, mlp), nn.Linear(mlp, hidden)
        self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def attention(self, x):
        n, t, h = x.shape
        q, k, v = (y.view(n, t, self.heads, h // self.heads).transpose(1, 2) for y in self.qkv(x).split(h, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, t, h))

    def mlp(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate=self.gelu))

    def forward(self, x):
        if self.post:
            x = self.ln1(x + self.attention(x))
            return self.ln2(x + self.mlp(x))
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class LlamaBlock(nn.Module):
    """A layer of Llama; cosines and sines of the positions are the caller's."""

    def __init__(self, hidden, heads, kv_heads, mlp):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, hidden // heads
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.dim, bias=False)
        self.out, self.down = nn.Linear(hidden, hidden, bias=False), nn.Linear(mlp, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * mlp, bias=False)
        self.ln1, self.ln2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)

    def turned(self, x, cos, sin):
        low, high = x.chunk(2, -1)
        return (x * cos + torch.cat((-high, low), -1) * sin).to(x.dtype)

    def forward(self, x, cos, sin):
        n, t, h = x.shape
        parts = self.qkv(self.ln1(x)).split([self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim], 2)
        q, k, v = (y.view(n, t, -1, self.dim).transpose(1, 2) for y in parts)
        y = F.scaled_dot_product_attention(self.turned(q, cos, sin), self.turned(k, cos, sin), v, is_causal=True,
                                           enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, h))
        gate, up = self.gate_up(self.ln2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, kind):
        super().__init__()
        layers, h, heads, mlp, self.tokens, self.out, _ = SIZES[kind]
        self.gpt, self.vit = True, False
        self.word = nn.Embedding(self.out, h)
        self.blocks = nn.ModuleList(LlamaBlock(h, heads, KV_HEADS[kind], mlp) for _ in range(layers))
        self.norm = nn.RMSNorm(h, eps=1e-5)
        dim = h // heads
        angles = torch.arange(self.tokens)[:, None] * 500000.0 ** (-torch.arange(0, dim, 2) / dim)
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())

    def forward(self, data, labels):
        x = self.word(data)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(F.linear(self.norm(x), self.word.weight).flatten(0, 1), labels.flatten())


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        layers, h, heads, mlp, self.tokens, self.out, _ = SIZES[kind]
        self.gpt, self.vit = kind in ("gpt2", "tiny"), kind == "vit-b16"
        self.blocks = nn.ModuleList(
            Block(h, heads, mlp, not (self.gpt or self.vit), self.gpt, "tanh" if self.gpt else "none")
            for _ in range(layers))
        self.norm = nn.LayerNorm(h)
        self.pos = nn.Parameter(torch.zeros(self.tokens, h))
        if self.vit:
            self.patch = nn.Conv2d(3, h, 16, 16)
            self.cls = nn.Parameter(torch.zeros(1, 1, h))
            self.head = nn.Linear(h, self.out)
        else:
            self.word = nn.Embedding(self.out, h)
            if not self.gpt:
                self.types, self.pool, self.head = nn.Embedding(2, h), nn.Linear(h, h), nn.Linear(h, 2)

    def forward(self, data, labels):
        if self.vit:
            x = self.patch(data).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        else:
            x = self.word(data) + self.pos
            if not self.gpt:
                x = self.norm(x + self.types.weight[0])
        for block in self.blocks:
            x = block(x)
        if self.gpt:
            logits = F.linear(self.norm(x), self.word.weight)
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        x = self.head(self.norm(x)[:, 0] if self.vit else torch.tanh(self.pool(x[:, 0])))
        return F.cross_entropy(x, labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", choices=SIZES)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    batch = args.batch or SIZES[args.model][6]
    cuda = args.device == "cuda"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = (Llama if args.model in KV_HEADS else Model)(args.model).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=cuda)
    if model.vit:
        data = torch.randn(batch, 3, 224, 224)
        labels = torch.randint(1000, (batch,))
    else:
        data = torch.randint(min(model.out, 50257), (batch, model.tokens))
        labels = data.roll(-1, 1) if model.gpt else torch.randint(2, (batch,))
    if cuda:
        data, labels = data.pin_memory(), labels.pin_memory()
    started = time.perf_counter()
    run = model if args.no_compile else torch.compile(model)

    def step():
        inputs, targets = (host.to(args.device, non_blocking=True) for host in (data, labels))
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = run(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(args.warm_up):
        loss = step()
    loss.item()
    warm_s = time.perf_counter() - started
    times = []
    if cuda:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(args.steps + 1)]
        marks[0].record()
        for i in range(args.steps):
            loss = step()
            marks[i + 1].record()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    else:
        for _ in range(args.steps):
            start = time.perf_counter()
            loss = step()
            times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    at = lambda q: times[min(len(times) - 1, int(q * len(times)))]
    print(json.dumps({
        "model": args.model, "batch": batch, "tokens": model.tokens, "step_ms": at(0.5), "p10_ms": at(0.1),
        "p90_ms": at(0.9), "samples_per_s": batch / at(0.5) * 1e3,
        "tokens_per_s": batch * model.tokens / at(0.5) * 1e3, "loss": float(loss.detach()), "compiled": not args.no_compile,
        "warm_up_s": warm_s, "peak_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
        "torch": torch.__version__, "device": torch.cuda.get_device_name() if cuda else "cpu"}))


main()
