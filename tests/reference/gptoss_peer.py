#!/usr/bin/env python3
"""The operators of the experts of GPT OSS as PyTorch runs them, beside the list of partition/cost/kernels.c.

    python3 tests/reference/gptoss_peer.py

The functions are those of megatron-core 0.16 outside its compiled kernels: TEGroupedMLP._apply_bias() (moe/experts.py) and
the clamps in weighted_bias_quick_geglu_impl() (fusions/fused_bias_geglu.py). A dispatch mode sees every operator of
forward and backward but views. For each kernel: bytes an element of a row's part, whether it reads its elements one by one
(a view, a repeated operand, or a cast of what it reads, but fp32 to bf16, which has a kernel of its own), and how often it
runs. test_kernels.c has the sums. Needs torch (PyPI).
"""
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

EXPERTS, ROWS, HIDDEN = 4, 32, 64


def tensors(x):
    if isinstance(x, torch.Tensor):
        return [x]
    return sum((tensors(y) for y in x), []) if isinstance(x, (list, tuple)) else []


class Kernels(TorchDispatchMode):
    """(name, bytes, one by one) of each kernel; tensors smaller than an expert's rows count for nothing."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        ins, outs, name = tensors(list(args)), tensors([out]), func.__name__.split(".")[0]
        shares = any(o.untyped_storage()._cdata == i.untyped_storage()._cdata for o in outs for i in ins)
        if shares and not name.endswith("_"):
            return out # a view
        whole = EXPERTS * ROWS * HIDDEN
        large = [t for t in ins + outs if t.numel() >= ROWS * HIDDEN]
        if not large:
            return out
        operands = [t for t in ins if t.dim() > 0]
        n = max(t.numel() for t in outs)
        plain = name in ("cat", "sum") or (name == "_to_copy" and outs[0].dtype == torch.bfloat16)
        casts = name in ("add", "mul", "_to_copy") and any(t.dtype != outs[0].dtype for t in operands)
        repeated = any(t.numel() < n for t in operands)
        strided = any(not t.is_contiguous() for t in operands)
        self.found.append((name, sum(t.numel() * t.element_size() for t in large) / whole,
                           not plain and (casts or repeated or strided)))
        return out


def biases():
    rows = torch.randn(EXPERTS * ROWS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    bias = [torch.randn(HIDDEN, dtype=torch.bfloat16, requires_grad=True) for _ in range(EXPERTS)]
    weight = torch.rand(EXPERTS * ROWS, 1, requires_grad=True)

    def run():
        parts = zip(torch.split(rows, [ROWS] * EXPERTS), bias, torch.split(weight, [ROWS] * EXPERTS))
        return torch.cat([t + b * w for t, b, w in parts]).view(rows.shape).to(rows.dtype)
    return run


def clamps():
    both = torch.randn(EXPERTS * ROWS, 2 * HIDDEN, dtype=torch.bfloat16, requires_grad=True)

    def run():
        gate, up = both.chunk(2, -1)
        return torch.cat((gate.clamp(min=None, max=7.0), up.clamp(min=-7.0, max=7.0)), -1)
    return run


# (name, bytes an element of [rows, hidden], one by one, runs): what kernels.c lists, forward and backward.
LISTED = {
    "biases": ([("_to_copy", 6, False, 1), ("add", 10, True, EXPERTS), ("cat", 8, False, 1), ("mul", 4, True, EXPERTS)],
               [("_to_copy", 6, False, EXPERTS), ("_to_copy", 6, True, 1), ("cat", 4, False, 1), ("mul", 8, True, EXPERTS),
                ("mul", 8, True, EXPERTS), ("sum", 4, False, EXPERTS), ("sum", 4, False, EXPERTS)]),
    "clamps": ([("cat", 8, False, 1), ("clamp", 4, True, 1), ("clamp", 4, True, 1)],
               [("cat", 8, False, 1), ("ge", 3, True, 1), ("le", 3, True, 1), ("le", 3, True, 1),
                ("logical_and_", 3, False, 1), ("where", 5, True, 1), ("where", 5, True, 1)]),
}


def joined(found):
    """The kernels that run for each expert as one of EXPERTS runs."""
    got = []
    for kernel in sorted(set(found)):
        count, share = found.count(kernel), kernel[1]
        if count % EXPERTS == 0:
            got += [(kernel[0], round(share * EXPERTS, 9), kernel[2], EXPERTS)] * (count // EXPERTS)
        else:
            got += [(kernel[0], share, kernel[2], 1)] * count
    return sorted(got)


def main():
    torch.manual_seed(1)
    wrong = 0
    for name, part in (("biases", biases()), ("clamps", clamps())):
        with Kernels() as forward:
            out = part()
        grad = torch.randn_like(out)
        with Kernels() as backward:
            out.backward(grad)
        for way, seen, listed in zip(("forward", "backward"), (forward.found, backward.found), LISTED[name]):
            got = joined(seen)
            print("%s %s: %g bytes an element, of %d kernels %d one by one" % (
                name, way, sum(k[1] for k in got), sum(k[3] for k in got), sum(k[3] for k in got if k[2])))
            if got != sorted((k[0], float(k[1]), *k[2:]) for k in listed):
                print("  listed", sorted(listed), "\n  seen  ", got)
                wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
