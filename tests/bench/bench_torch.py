#!/usr/bin/python3
"""Training steps beside PyTorch: same models, batches and threads, runs alternated.

    /usr/bin/python3 tests/bench/bench_torch.py BENCH_KERNELS [--threads 2] [--rounds 5] [--steps 3]
        [--dtype bf16] [--compile] [--keep-memory] [MODEL...]

BENCH_KERNELS is build/.../tests/bench_kernels. PyTorch's models (torch_models.py) train with SGD
momentum; prints the medians over rounds (fastest..slowest) and their ratio. --dtype bf16: autocast over
fp32 weights beside our bf16. --compile: torch.compile, whose first step compiles and is not timed.
MODEL: those of torch_models.py (vit is vit-tiny), or llama (needs transformers), which is not among the
default ones.
--keep-memory runs PyTorch with a malloc that never gives pages back, which spares it their faults.
"""
import argparse
import os
import subprocess
import sys
import time

import torch

from torch_models import KEEP_MEMORY, SIZES, Llama, Model, batch_of, median, report


class Trainer:
    """One model, its batch and its optimizer; lives through all rounds."""

    def __init__(self, kind, dtype, compiled):
        torch.manual_seed(0)
        self.model = Llama(dtype) if kind == "llama" else Model(kind, dtype)
        self.run = torch.compile(self.model) if compiled else self.model
        self.data, self.labels = batch_of(kind, seed=1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def step_ms(self):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        self.run(self.data, self.labels).backward()
        self.optimizer.step()
        return (time.perf_counter() - start) * 1e3


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
    known = [*SIZES, "llama"]
    names = {"vit": "vit-tiny"}
    kinds = [names.get(m, m) for m in args.models] or list(SIZES)
    for kind in kinds:
        if kind not in known:
            parser.error(f"no model '{kind}': {', '.join(known)}")
    if args.keep_memory and "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    plain = {k: v for k, v in os.environ.items() if k not in KEEP_MEMORY}
    torch.set_num_threads(args.threads)
    for kind in kinds:
        ours, theirs = [], []
        trainer = Trainer(kind, args.dtype, args.compile)
        for r in range(args.rounds):
            line = subprocess.run([args.bench, kind, str(args.threads), str(args.steps), args.dtype], check=True,
                                  capture_output=True, text=True, env=plain)
            ours.append(float(line.stdout.split("median ")[1].split()[0]))
            trainer.step_ms()
            theirs.append(median([trainer.step_ms() for _ in range(args.steps)]))
        torch_name = f"pytorch {torch.__version__}" + " (compiled)" * args.compile + " (malloc keeps)" * args.keep_memory
        print(f"{kind}: {report('elapse', ours)}, {report(torch_name, theirs)}, "
              f"ratio {median(theirs) / median(ours):.2f}", flush=True)
        del trainer


main()
