"""GPT-2 in plain PyTorch, for the part "torch" of tests/gpu/gpu_check.sh: no package beside PyTorch."""
import os

import torch
from torch import nn

SMALL = os.environ.get("ELAPSE_TORCH_SIZE") != "full"
WIDTH, HEADS, LAYERS, SEQ, VOCAB = (64, 2, 2, 32, 101) if SMALL else (768, 12, 12, 512, 50257)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCAB, WIDTH), nn.Embedding(SEQ, WIDTH)

    def forward(self, ids):
        return self.token(ids) + self.place.weight


def make_model():
    return nn.Sequential(Embedding(), *[Block() for _ in range(LAYERS)], nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False))


def make_batch(samples):
    ids = torch.randint(0, VOCAB, (samples, SEQ))
    return ids, ids.roll(-1, 1)


def loss(output, target):
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())
