"""PyTorch's side of the benchmarks on CPUs: the models, whole or a stage of them, and one batch of each.

The models are written with nn.Module layers as Hugging Face's are (separate query, key and value;
scaled_dot_product_attention from PyTorch 2 on, softmax between batched GEMMs before). bf16 is autocast
over fp32 weights. report() is how times are printed, KEEP_MEMORY a malloc that never gives pages back.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
               "MALLOC_TOP_PAD_": str(1 << 26)}
# layers, hidden, heads, mlp, tokens, batch
SIZES = {"minilm": (6, 384, 12, 1536, 64, 32), "vit-tiny": (12, 192, 3, 768, 65, 64), "gpt2": (12, 768, 12, 3072, 256, 4)}


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
    """Layers [begin, end) of a model: the first ones with what embeds the input, the last ones with the head.
    A parameter has the same name in a stage and in the whole; GPT-2's last stage has a table of its own,
    whose gradient the caller adds to the first one's."""

    def __init__(self, kind, dtype="fp32", begin=0, end=None):
        super().__init__()
        layers, h, heads, mlp, self.seq, _ = SIZES[kind]
        end = layers if end is None else end
        self.kind, self.bf16, self.first, self.last = kind, dtype == "bf16", begin == 0, end == layers
        self.blocks = nn.ModuleDict({str(i): Block(h, heads, mlp, kind == "minilm", kind == "gpt2")
                                     for i in range(begin, end)})
        self.mask = torch.ones(self.seq, self.seq, dtype=torch.bool).triu(1) if kind == "gpt2" else None
        if kind == "vit-tiny":
            if self.first:
                self.patch = nn.Conv2d(3, h, 4, 4)
                self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, h)), nn.Parameter(torch.zeros(1, 65, h))
        elif self.first or kind == "gpt2":
            self.word = nn.Embedding(30522 if kind == "minilm" else 50257, h)
            if self.first:
                self.pos = nn.Embedding(1024, h)
            if kind == "minilm":
                self.types = nn.Embedding(2, h)
        if self.first if kind == "minilm" else self.last:
            self.norm = nn.LayerNorm(h)
        if self.last and kind == "minilm":
            self.pool = nn.Linear(h, h)
        if self.last and kind != "gpt2":
            self.head = nn.Linear(h, 2 if kind == "minilm" else 10)

    def embed(self, data):
        if self.kind == "vit-tiny":
            x = self.patch(data).flatten(2).transpose(1, 2)
            return torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        x = self.word(data) + self.pos.weight[: self.seq]
        return self.norm(x + self.types.weight[0]) if self.kind == "minilm" else x

    def predict(self, x):
        if self.kind == "minilm":
            return self.head(torch.tanh(self.pool(x[:, 0])))
        x = self.norm(x)
        return self.head(x[:, 0]) if self.kind == "vit-tiny" else x @ self.word.weight.t()

    def forward(self, x, labels=None):
        """The loss where labels are given, else what leaves the last layer."""
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            x = self.embed(x) if self.first else x
            for block in self.blocks.values():
                x = block(x, self.mask)
            x = self.predict(x) if self.last else x
            return x if labels is None else loss_of(x, labels)


class Llama(nn.Module):
    """LlamaForCausalLM of transformers, 100 M parameters with a tied head: as bench_kernels' llama."""

    def __init__(self, dtype="fp32"):
        super().__init__()
        import transformers
        self.bf16 = dtype == "bf16"
        self.model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            num_hidden_layers=12, hidden_size=768, num_attention_heads=12, num_key_value_heads=4, intermediate_size=2048,
            vocab_size=32000, max_position_embeddings=256, tie_word_embeddings=True))

    def forward(self, x, labels):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            logits = self.model(x, use_cache=False).logits
        return loss_of(logits, labels)


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())


def batch_of(kind, seed):
    """(data, labels): the one batch that all steps of a benchmark train on."""
    torch.manual_seed(seed)
    if kind == "llama":
        return torch.randint(32000, (2, 256)), torch.randint(32000, (2, 256))
    seq, batch = SIZES[kind][4:]
    if kind == "vit-tiny":
        return torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    return torch.randint(30000, (batch, seq)), torch.randint(*((2, (batch,)) if kind == "minilm" else (50000, (batch, seq))))


def median(times):
    return sorted(times)[len(times) // 2]


def report(name, times):
    return f"{name} {median(times):.0f} ms ({min(times):.0f}..{max(times):.0f})"
