#!/usr/bin/env python3
"""What autograd keeps of one layer of a Llama with adapters, beside the rules of docs/layouts-memory.md.

    python3 tests/reference/stash_peer.py

The layer is as a fused framework runs it: RMSNorm is one function that keeps its input and 1 / rms, the base is frozen,
each adapter drops its own copy of its input (with a mask of a byte, as on a GPU; rank 4, one on queries, keys and
values, one behind attention), SwiGLU is Megatron-LM's with and without activation_func_fp8_input_store.
saved_tensors_hooks count each storage once, without weights. test_lora.c has these sums. Needs torch (PyPI).
"""
import sys

import torch
import torch.nn.functional as F

TOKENS, HIDDEN, HEADS, KEYS, MLP, RANK = 32, 64, 4, 2, 176, 4
WIDTH = HIDDEN // HEADS


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, weight, scale)
        return (x.float() * scale).to(x.dtype) * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight, scale = ctx.saved_tensors
        normal, g = x.float() * scale, (grad * weight).float()
        return ((g - normal * (g * normal).mean(-1, keepdim=True)) * scale).to(x.dtype), None


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, narrow):
        ctx.save_for_backward(x.to(torch.float8_e4m3fn) if narrow else x)
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx, grad):
        gate, up = ctx.saved_tensors[0].to(grad.dtype).chunk(2, -1)
        s = torch.sigmoid(gate)
        return torch.cat((grad * up * s * (1 + gate * (1 - s)), grad * F.silu(gate)), -1), None


def weight(rows, columns, trains=False):
    return torch.randn(rows, columns, dtype=torch.bfloat16).requires_grad_(trains)


class Layer:
    def __init__(self, narrow):
        key = KEYS * WIDTH
        self.narrow, self.weights = narrow, []
        self.one, self.qkv = self.new(1, HIDDEN), self.new(HIDDEN + 2 * key, HIDDEN)
        self.proj = self.new(HIDDEN, HIDDEN)
        self.first, self.second = self.new(2 * MLP, HIDDEN), self.new(HIDDEN, MLP)
        self.a = [self.new(RANK, HIDDEN, True) for _ in range(2)]
        self.b = [self.new(HIDDEN + 2 * key, RANK, True), self.new(HIDDEN, RANK, True)]

    def new(self, *sizes):
        self.weights.append(weight(*sizes))
        return self.weights[-1]

    def adapted(self, x, base, i):
        return F.linear(x, base) + F.linear(F.linear(torch.native_dropout(x, 0.1, True)[0], self.a[i]), self.b[i])

    def attention(self, x):
        qkv = self.adapted(Norm.apply(x, self.one), self.qkv, 0)
        q, k, v = (t.reshape(1, TOKENS, -1, WIDTH).transpose(1, 2).contiguous()
                   for t in qkv.split((HIDDEN, KEYS * WIDTH, KEYS * WIDTH), -1))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return x + self.adapted(out.transpose(1, 2).reshape(TOKENS, HIDDEN), self.proj, 1)

    def mlp(self, x):
        return x + F.linear(SwiGLU.apply(F.linear(Norm.apply(x, self.one), self.first), self.narrow), self.second)

    def kept(self, part, x):
        """Bytes that the backward of a part needs, by the storages that autograd saves."""
        weights = {w.untyped_storage().data_ptr() for w in self.weights}
        found = {}

        def pack(t):
            if t.untyped_storage().data_ptr() not in weights:
                found[t.untyped_storage().data_ptr()] = (t.untyped_storage().nbytes(), t)
            return t
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = part(x)
        sizes = sorted((n for n, _ in found.values()), reverse=True)
        y.float().sum().backward()
        return sum(sizes), sizes


def expected(narrow):
    """The rules (docs/layouts-memory.md), and what they leave out: [tokens, rank] numbers of each adapter."""
    key = KEYS * WIDTH
    attention = 2 * HIDDEN + 4 + 2 * (HIDDEN + 2 * key) + 2 * HIDDEN + 4 * HEADS + 2 * 3 * HIDDEN
    mlp = 2 * HIDDEN + 4 + (1 if narrow else 2) * 2 * MLP
    return TOKENS * attention, TOKENS * 2 * 2 * RANK, TOKENS * mlp


def main():
    torch.manual_seed(1)
    wrong = 0
    for narrow in (False, True):
        layer = Layer(narrow)
        x = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        attention, sizes = layer.kept(layer.attention, x)
        mlp, more = layer.kept(layer.mlp, x)
        want, low, want_mlp = expected(narrow)
        print("fp8 input of SwiGLU %-5s  attention %d, by rule %d + %d   MLP %d, by rule %d" % (
            narrow, attention, want, low, mlp, want_mlp))
        if attention != want + low or mlp != want_mlp:
            print("  attention keeps", sizes, "MLP keeps", more)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
