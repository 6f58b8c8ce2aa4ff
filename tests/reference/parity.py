#!/usr/bin/python3
"""Golden values of tests/unit/exec/test_parity.c, from PyTorch in double precision.

    /usr/bin/python3 tests/reference/parity.py     (rewrites tests/golden/parity-*.bin)

Each model is written out with torch.nn.functional and named after Hugging Face's modules; weights,
inputs and labels come from the integer hash of exec/base/rng.h, so that only results need to be stored.
A file is a text header ("section count" a line, then an empty line) and the sections as fp32.
"""
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

HIDDEN, HEADS, MLP, LAYERS = 16, 2, 32, 2
IMAGE, PATCH, CHANNELS = 12, 4, 3
SEQ, MAX_SEQ, VOCAB = 9, 12, 40
SAMPLES, STEPS = 6, 10
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")


def bits(key, n):
    """rng_bits(key, 0..n-1) for a key below 2^32."""
    x = np.arange(n, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(key)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def uniform(key, shape):
    n = int(np.prod(shape))
    values = (bits(key, n) >> np.uint32(8)).astype(np.float64) * 2.0**-24 - 0.5
    return torch.tensor(values.reshape(shape))


def dense(names, prefix, n_in, n_out, in_out=False):
    names.append((prefix + ".weight", (n_in, n_out) if in_out else (n_out, n_in)))
    names.append((prefix + ".bias", (n_out,)))


def norm(names, prefix):
    names += [(prefix + ".weight", (HIDDEN,)), (prefix + ".bias", (HIDDEN,))]


def parameters(family, task, classes):
    """Names and shapes in the order of stage_params()."""
    p = []
    if family == "vit":
        tokens = (IMAGE // PATCH) ** 2 + 1
        e = "vit.embeddings."
        p += [(e + "cls_token", (1, 1, HIDDEN)), (e + "position_embeddings", (1, tokens, HIDDEN))]
        p += [(e + "patch_embeddings.projection.weight", (HIDDEN, CHANNELS, PATCH, PATCH))]
        p += [(e + "patch_embeddings.projection.bias", (HIDDEN,))]
    elif family == "bert":
        e = "bert.embeddings."
        p += [(e + "word_embeddings.weight", (VOCAB, HIDDEN))]
        p += [(e + "position_embeddings.weight", (MAX_SEQ, HIDDEN))]
        p += [(e + "token_type_embeddings.weight", (2, HIDDEN))]
        norm(p, e + "LayerNorm")
    else:
        p += [("transformer.wte.weight", (VOCAB, HIDDEN)), ("transformer.wpe.weight", (MAX_SEQ, HIDDEN))]
    for i in range(LAYERS):
        if family == "gpt":
            b = f"transformer.h.{i}."
            norm(p, b + "ln_1")
            dense(p, b + "attn.c_attn", HIDDEN, 3 * HIDDEN, True)
            dense(p, b + "attn.c_proj", HIDDEN, HIDDEN, True)
            norm(p, b + "ln_2")
            dense(p, b + "mlp.c_fc", HIDDEN, MLP, True)
            dense(p, b + "mlp.c_proj", MLP, HIDDEN, True)
            continue
        b = f"{family}.encoder.layer.{i}."
        vit = family == "vit"
        norm(p, b + ("layernorm_before" if vit else "attention.output.LayerNorm"))
        for n in ("query", "key", "value"):
            dense(p, b + ("attention.attention." if vit else "attention.self.") + n, HIDDEN, HIDDEN)
        dense(p, b + "attention.output.dense", HIDDEN, HIDDEN)
        norm(p, b + ("layernorm_after" if vit else "output.LayerNorm"))
        dense(p, b + "intermediate.dense", HIDDEN, MLP)
        dense(p, b + "output.dense", MLP, HIDDEN)
    if family == "vit":
        norm(p, "vit.layernorm")
    if family == "gpt":
        norm(p, "transformer.ln_f")
    if task == "classify" and family == "bert":
        dense(p, "bert.pooler.dense", HIDDEN, HIDDEN)
    if task == "classify":
        dense(p, "classifier", HIDDEN, classes)
    if task == "qa":
        dense(p, "qa_outputs", HIDDEN, 2)
    if task == "mlm":
        dense(p, "cls.predictions.transform.dense", HIDDEN, HIDDEN)
        norm(p, "cls.predictions.transform.LayerNorm")
        p.append(("cls.predictions.bias", (VOCAB,)))
    return p


def layer_norm(w, prefix, x, eps):
    return F.layer_norm(x, (HIDDEN,), w[prefix + ".weight"], w[prefix + ".bias"], eps)


def linear(w, prefix, x, in_out=False):
    weight = w[prefix + ".weight"]
    return F.linear(x, weight.t() if in_out else weight, w[prefix + ".bias"])


def attend(q, k, v, mask):
    n, s, _ = q.shape
    split = lambda t: t.reshape(n, s, HEADS, HIDDEN // HEADS).transpose(1, 2)
    scores = split(q) @ split(k).transpose(2, 3) / math.sqrt(HIDDEN // HEADS)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return (scores.softmax(-1) @ split(v)).transpose(1, 2).reshape(n, s, HIDDEN)


def forward(family, task, w, data):
    if family == "vit":
        x = F.conv2d(data["images"], w["vit.embeddings.patch_embeddings.projection.weight"],
                     w["vit.embeddings.patch_embeddings.projection.bias"], stride=PATCH)
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([w["vit.embeddings.cls_token"].expand(len(x), -1, -1), x], 1)
        x = x + w["vit.embeddings.position_embeddings"]
        for i in range(LAYERS):
            b = f"vit.encoder.layer.{i}."
            h = layer_norm(w, b + "layernorm_before", x, 1e-12)
            q, k, v = (linear(w, b + "attention.attention." + n, h) for n in ("query", "key", "value"))
            x = x + linear(w, b + "attention.output.dense", attend(q, k, v, None))
            h = layer_norm(w, b + "layernorm_after", x, 1e-12)
            x = x + linear(w, b + "output.dense", F.gelu(linear(w, b + "intermediate.dense", h)))
        x = layer_norm(w, "vit.layernorm", x, 1e-12)
        return F.cross_entropy(linear(w, "classifier", x[:, 0]), data["labels"])
    if family == "gpt":
        x = w["transformer.wte.weight"][data["tokens"]] + w["transformer.wpe.weight"][:SEQ]
        mask = torch.ones(SEQ, SEQ, dtype=torch.bool).tril()
        for i in range(LAYERS):
            b = f"transformer.h.{i}."
            h = layer_norm(w, b + "ln_1", x, 1e-5)
            q, k, v = linear(w, b + "attn.c_attn", h, True).split(HIDDEN, 2)
            x = x + linear(w, b + "attn.c_proj", attend(q, k, v, mask), True)
            h = linear(w, b + "mlp.c_fc", layer_norm(w, b + "ln_2", x, 1e-5), True)
            h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
            x = x + linear(w, b + "mlp.c_proj", h, True)
        x = layer_norm(w, "transformer.ln_f", x, 1e-5)
        logits = x @ w["transformer.wte.weight"].t()
        return F.cross_entropy(logits.reshape(-1, VOCAB), data["labels"].reshape(-1))
    e = "bert.embeddings."
    x = w[e + "word_embeddings.weight"][data["tokens"]] + w[e + "position_embeddings.weight"][:SEQ]
    x = layer_norm(w, e + "LayerNorm", x + w[e + "token_type_embeddings.weight"][data["types"]], 1e-12)
    mask = (torch.arange(SEQ)[None] < data["lengths"][:, None])[:, None, None]
    for i in range(LAYERS):
        b = f"bert.encoder.layer.{i}."
        q, k, v = (linear(w, b + "attention.self." + n, x) for n in ("query", "key", "value"))
        h = linear(w, b + "attention.output.dense", attend(q, k, v, mask))
        x = layer_norm(w, b + "attention.output.LayerNorm", x + h, 1e-12)
        h = linear(w, b + "output.dense", F.gelu(linear(w, b + "intermediate.dense", x)))
        x = layer_norm(w, b + "output.LayerNorm", x + h, 1e-12)
    if task == "classify":
        pooled = torch.tanh(linear(w, "bert.pooler.dense", x[:, 0]))
        return F.cross_entropy(linear(w, "classifier", pooled), data["labels"])
    if task == "qa":
        logits, labels = linear(w, "qa_outputs", x), data["labels"]
        return (F.cross_entropy(logits[..., 0], labels[:, 0]) + F.cross_entropy(logits[..., 1], labels[:, 1])) / 2
    h = F.gelu(linear(w, "cls.predictions.transform.dense", x))
    h = layer_norm(w, "cls.predictions.transform.LayerNorm", h, 1e-12)
    logits = h @ w[e + "word_embeddings.weight"].t() + w["cls.predictions.bias"]
    return F.cross_entropy(logits.reshape(-1, VOCAB), data["labels"].reshape(-1), ignore_index=-100)


def initial(params):
    w = {}
    for i, (name, shape) in enumerate(params):
        centre = 1.0 if len(shape) == 1 and name.endswith("weight") else 0.0
        w[name] = (centre + 0.5 * uniform(1000 + i, shape)).requires_grad_()
    return w


def inputs(family, task, outputs):
    integers = lambda key, shape, end: torch.tensor((bits(key, int(np.prod(shape))) % end).astype(np.int64).reshape(shape))
    label_shape = {"classify": (SAMPLES,), "qa": (SAMPLES, 2)}.get(task, (SAMPLES, SEQ))
    data = {"labels": integers(1, label_shape, outputs)}
    if task == "mlm":
        skip = torch.arange(SAMPLES * SEQ).reshape(SAMPLES, SEQ) % 10 != 0
        data["labels"][skip] = -100
    data["images"] = 4 * uniform(2, (SAMPLES, CHANNELS, IMAGE, IMAGE))
    data["tokens"] = integers(3, (SAMPLES, SEQ), VOCAB)
    data["types"] = integers(4, (SAMPLES, SEQ), 2)
    data["lengths"] = 1 + integers(5, (SAMPLES,), SEQ)
    return data


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2, written out (PyTorch has none)."""

    def __init__(self, groups):
        super().__init__(groups, {"lr": 0.01, "weight_decay": 0.0})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1
                s["m"] = 0.9 * s["m"] + 0.1 * p.grad
                s["v"] = 0.999 * s["v"] + 0.001 * p.grad**2
                m, v = s["m"] / (1 - 0.9 ** s["t"]), s["v"] / (1 - 0.999 ** s["t"])
                u = m / (v.sqrt() + 1e-8) + group["weight_decay"] * p.data
                p.data -= group["lr"] * p.data.norm() / u.norm() * u


def train(family, task, params, data, kind):
    w = initial(params)
    groups = [{"params": [w[n] for n, s in params if len(s) >= 2], "weight_decay": 0.01},
              {"params": [w[n] for n, s in params if len(s) < 2], "weight_decay": 0.0}]
    if kind == "sgd":
        optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    elif kind == "adamw":
        optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-8)
    else:
        optimizer = Lamb(groups)
    losses, grads = [], None
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = forward(family, task, w, data)
        loss.backward()
        losses.append(loss.detach().reshape(1))
        if grads is None:
            grads = [w[n].grad.clone().reshape(-1) for n, _ in params]
        optimizer.step()
    return losses, grads, [w[n].detach().reshape(-1) for n, _ in params]


def main():
    torch.set_default_dtype(torch.float64)
    for family, task, outputs in (("vit", "classify", 5), ("bert", "classify", 3), ("bert", "qa", SEQ),
                                  ("bert", "mlm", VOCAB), ("gpt", "lm", VOCAB)):
        params, data = parameters(family, task, outputs), inputs(family, task, outputs)
        sections = []
        for kind in ("sgd", "adamw", "lamb") if task in ("classify", "lm") else ("sgd",):
            losses, grads, weights = train(family, task, params, data, kind)
            if kind == "sgd":
                sections.append(("grads", torch.cat(grads)))
            sections += [(kind + "-losses", torch.cat(losses)), (kind + "-weights", torch.cat(weights))]
        path = os.path.join(GOLDEN, f"parity-{family}-{task}.bin")
        with open(path, "wb") as f:
            f.write("".join(f"{name} {len(v)}\n" for name, v in sections).encode() + b"\n")
            for _, values in sections:
                f.write(values.numpy().astype("<f4").tobytes())
        print(path, os.path.getsize(path))


if __name__ == "__main__":
    main()
