#!/usr/bin/env python3
"""What autograd keeps of one layer of a Llama with adapters, and of a step of two, beside the rules of
docs/layouts-memory.md and what `elapse plan` counts.

    python3 tests/reference/stash_peer.py [ELAPSE]    ELAPSE: the program; without it the step is beside the rules only

The layer is as a fused framework runs it: RMSNorm is one function that keeps its input and 1 / rms, the base is frozen,
each adapter drops its own copy of its input (with a mask of a byte, as on a GPU; rank 4, one on queries, keys and
values, one behind attention), SwiGLU is Megatron-LM's with and without activation_func_fp8_input_store.
saved_tensors_hooks count each storage once, without weights. test_lora.c has these sums. Needs torch (PyPI).
"""
import json
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

TOKENS, HIDDEN, HEADS, KEYS, MLP, RANK, LAYERS, VOCAB = 32, 64, 4, 2, 176, 4, 2, 512
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


class Step(Layer):
    """A frozen table, layers, a norm, a frozen head, and the loss in fp32."""

    def __init__(self):
        super().__init__(False)
        self.layers = [Layer(False) for _ in range(LAYERS)]
        self.weights += sum((layer.weights for layer in self.layers), [])
        self.table, self.head = self.new(VOCAB, HIDDEN), self.new(VOCAB, HIDDEN)

    def loss(self, ids):
        x = F.embedding(ids, self.table)
        for layer in self.layers:
            x = layer.mlp(layer.attention(x))
        logits = F.linear(Norm.apply(x, self.one), self.head)
        return F.cross_entropy(logits.float(), torch.roll(ids, -1))


def counted(elapse):
    """The stash of that step as `elapse plan` has it."""
    job = {"name": "peer", "cluster": {"kind": "h100", "nodes": 1, "devices_per_node": 1, "latency": "5us"},
           "model": "llama:layers=%d,hidden=%d,heads=%d,kv_heads=%d,mlp=%d,vocab=%d,seq=%d" % (
               LAYERS, HIDDEN, HEADS, KEYS, MLP, VOCAB, TOKENS),
           "data": {"kind": "synthetic", "train_samples": 64},
           "train": {"framework": "megatron-te", "dtype": "bf16", "batch": {"per_pipeline": 1}, "attention": "fused",
                     "optimizer": {"kind": "adamw"},
                     "lora": {"rank": RANK, "targets": "attention", "dropout": 0.1, "fused_qkv": True}},
           "pipeline": {"num_stages": 1, "num_replicas": 1, "num_microbatches": 1, "recompute": "never"},
           "cost": {"source": "kernels"}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(job, f)
        f.flush()
        got = subprocess.run([elapse, "plan", f.name, "--json"], capture_output=True, text=True, check=True)
    return json.loads(got.stdout)["memory_ranks"][0]["stash"]


def check_step():
    """Where nothing before the first layer trains, autograd keeps neither that layer's first norm nor its dropout's mask;
    the rules count every layer alike. `elapse plan` leaves [tokens, rank] out, and counts the input of the frozen head."""
    step, ids = Step(), torch.randint(VOCAB, (TOKENS,))
    kept, sizes = step.kept(step.loss, ids)
    attention, low, mlp = expected(False)
    rule = LAYERS * (attention + mlp) + TOKENS * (2 * HIDDEN + 4) + TOKENS * (4 * VOCAB + 8) # the last norm; the loss
    want = rule + LAYERS * low - TOKENS * (2 * HIDDEN + 4) - TOKENS * HIDDEN + 4 # a sum of weights of the loss
    print("step of %d layers: autograd keeps %d, by rule %d + %d, less %d" % (
        LAYERS, kept, rule, LAYERS * low, rule + LAYERS * low - want))
    plan = counted(sys.argv[1]) if len(sys.argv) > 1 else rule + TOKENS * 2 * HIDDEN
    print("  elapse plan counts %d, %+.1f %%" % (plan, 100 * (plan / kept - 1)))
    if kept != want:
        print("  autograd keeps", sizes)
    return kept != want or plan != rule + TOKENS * 2 * HIDDEN


def main():
    torch.manual_seed(1)
    wrong = int(check_step())
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
