#!/usr/bin/python3
"""Training steps on 2 ranks beside PyTorch's own: `elapse train` beside torch.distributed.pipelining
(K = 2) and DistributedDataParallel (K = 1, R = 2) over gloo, a thread and a core a rank, runs alternated.

    /usr/bin/python3 tests/bench/bench_torch_ranks.py ELAPSE [--rounds 3] [--steps 3] [--dtype bf16]
        [--model NAME]... [--no-compile] [--return-memory] [CASE...]

ELAPSE is build/bin/elapse; CASE is 1f1b:M or gpipe:M (M micro-batches), or ddp. Both sides train whole
steps (AdamW in PyTorch's fused form, no clipping) on the models of torch_models.py, cut at the same layer.
A step is the time from its start to the next one's, in our runs behind two steps that are not counted, in
PyTorch's behind one. PyTorch runs as it is and under torch.compile, both with a malloc that keeps its memory
(--return-memory: that does not). Its batch is always the same one, ours is made anew in each step. Before it
is timed its two ranks must find the gradient that one process finds, and its loss must fall meanwhile. Prints
medians over rounds (fastest..slowest) and ratios.
"""
import argparse
import importlib.util
import json
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

from torch_models import KEEP_MEMORY, SIZES, Model, batch_of, loss_of, median, report

RANKS = 2
WARM_UP = 2
ELAPSE_MODELS = {"minilm": "minilm-l6:seq=64,task=classify,classes=2",
                 "vit-tiny": "vit-tiny:image=32,patch=4,classes=10", "gpt2": "gpt2:seq=256"}
LR, WEIGHT_DECAY = 1e-4, 0.01
# of a gradient beside one process's, relative to its norm: sums in another order, bf16 in other blocks
GRADIENT_TOLERANCE = {"fp32": 1e-4, "bf16": 3e-2}


class Pipeline:
    """This rank's stage of 2, and its schedule."""

    def __init__(self, rank, kind, dtype, case, cut, compiled):
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

        name, num_microbatches = case.split(":")
        self.first, self.tied = rank == 0, kind == "gpt2"
        self.model = Model(kind, dtype, 0 if self.first else cut, cut if self.first else None)
        self.data, self.labels = batch_of(kind, seed=1)
        stage = PipelineStage(torch.compile(self.model) if compiled else self.model, rank, RANKS, torch.device("cpu"))
        self.schedule = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}[name](stage, int(num_microbatches), loss_fn=loss_of)

    def gradient(self):
        """The gradient of the whole batch in the parameters; the last rank returns the loss."""
        losses = []
        if self.first:
            self.schedule.step(self.data)
        else:
            self.schedule.step(target=self.labels, losses=losses)
        if self.tied:
            dist.all_reduce(self.model.word.weight.grad)
        return sum(loss.item() for loss in losses) / len(losses) if losses else None


class Replica:
    """One of 2 replicas, with its half of the batch."""

    def __init__(self, rank, kind, dtype, compiled):
        self.model = Model(kind, dtype)
        half = SIZES[kind][5] // RANKS
        self.data, self.labels = (part[rank * half : (rank + 1) * half] for part in batch_of(kind, seed=1))
        replicas = torch.nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        self.run = torch.compile(replicas) if compiled else replicas

    def gradient(self):
        loss = self.run(self.data, self.labels)
        loss.backward()
        return loss.item()


def gradient_error(trainer, kind, dtype):
    """How far the ranks' gradient is from one process's, relative to its norm, over all ranks; they have its
    weights from then on."""
    torch.manual_seed(0)
    whole = Model(kind, dtype)
    expected, own = dict(whole.named_parameters()), trainer.model.state_dict()
    trainer.model.load_state_dict({name: value for name, value in whole.state_dict().items() if name in own})
    whole(*batch_of(kind, seed=1)).backward()
    trainer.gradient()
    pairs = [(p.grad, expected[name].grad) for name, p in trainer.model.named_parameters()]
    sums = torch.tensor([sum(float((a - b).double().square().sum()) for a, b in pairs),
                         sum(float(b.double().square().sum()) for _, b in pairs)], dtype=torch.float64)
    dist.all_reduce(sums)
    return float((sums[0] / sums[1]).sqrt())


def adamw(parameters):
    try:
        return torch.optim.AdamW(parameters, lr=LR, weight_decay=WEIGHT_DECAY, fused=True)
    except (TypeError, RuntimeError):  # PyTorch before 2.4 fuses on GPUs only, if at all
        return torch.optim.AdamW(parameters, lr=LR, weight_decay=WEIGHT_DECAY)


def work(rank, core, store, kind, dtype, case, cut, compiled, pipe):
    """A rank of PyTorch: sends its gradient's error, then for each number received the times of as many
    steps, in ms, and the losses of all; ends where the pipe does."""
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=RANKS)
    trainer = Replica(rank, kind, dtype, compiled) if case == "ddp" else Pipeline(rank, kind, dtype, case, cut, compiled)
    pipe.send(gradient_error(trainer, kind, dtype))
    optimizer = adamw(trainer.model.parameters())
    while True:
        try:
            steps = pipe.recv()
        except EOFError:
            break
        starts, losses = [], []
        for _ in range(steps + 1):
            starts.append(time.perf_counter())
            optimizer.zero_grad(set_to_none=True)
            losses.append(trainer.gradient())
            optimizer.step()
        dist.barrier()
        starts.append(time.perf_counter())
        pipe.send(([(b - a) * 1e3 for a, b in zip(starts[1:], starts[2:])], losses))
    dist.destroy_process_group()


class Torch:
    """Both ranks of PyTorch, which live through all rounds and wait in between."""

    def __init__(self, folder, *config):
        spawn = multiprocessing.get_context("spawn")
        store = os.path.join(tempfile.mkdtemp(dir=folder), "store")
        self.pipes, self.ranks, self.losses = [], [], []
        for rank, core in enumerate(sorted(os.sched_getaffinity(0))[:RANKS]):
            here, there = spawn.Pipe()
            self.ranks.append(spawn.Process(target=work, args=(rank, core, store, *config, there), daemon=True))
            self.ranks[-1].start()
            there.close()
            self.pipes.append(here)
        self.error = self.ask()[0]

    def ask(self, *steps):
        """What each rank answers, behind the number of steps if one is given."""
        try:
            for pipe in self.pipes:
                for number in steps:
                    pipe.send(number)
            return [pipe.recv() for pipe in self.pipes]
        except (EOFError, OSError):
            sys.exit("bench_torch_ranks: a rank of PyTorch failed")

    def times(self, steps):
        (times, _), (_, losses) = self.ask(steps)
        self.losses += losses
        return times

    def end(self):
        for pipe in self.pipes:
            pipe.close()
        for rank in self.ranks:
            rank.join()


class Elapse:
    """`elapse train` of the same step on 2 ranks."""

    def __init__(self, program, folder, kind, dtype, case):
        self.program, self.folder = program, os.path.join(folder, "run")
        schedule, _, m = case.partition(":")
        batch = SIZES[kind][5]
        job = {"name": kind, "model": ELAPSE_MODELS[kind],
               "data": {"kind": "synthetic", "train_samples": 100 * batch, "test_samples": batch},
               "train": {"epochs": 1, "batch": {"global": batch}, "dtype": dtype,
                         "optimizer": {"kind": "adamw", "lr": LR, "weight_decay": WEIGHT_DECAY}, "seed": 1},
               "pipeline": {"num_stages": 1, "num_replicas": 2, "num_microbatches": 1, "schedule": "gpipe"} if case == "ddp"
               else {"num_stages": 2, "num_replicas": 1, "num_microbatches": int(m), "schedule": schedule}}
        self.job = os.path.join(folder, "job.json")
        with open(self.job, "w") as file:
            json.dump(job, file)
        # No store lies there, so plans come from the costs that are shipped.
        plain = {k: v for k, v in os.environ.items() if k not in KEEP_MEMORY}
        self.env = {**plain, "ELAPSE_DB": os.path.join(folder, "profiles.db")}

    def times(self, steps):
        shutil.rmtree(self.folder, ignore_errors=True)
        command = [self.program, "train", self.job, "-n", str(RANKS), "--threads", "1", "--out", self.folder, "--no-eval",
                   "--trace-steps", "0", "--steps", str(WARM_UP + steps + 1)]
        done = subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"bench_torch_ranks: elapse train: {done.stderr.strip()}")
        with sqlite3.connect(os.path.join(self.folder, "run.db")) as db:
            starts = [row[0] for row in db.execute("SELECT start_ns FROM step ORDER BY step")][WARM_UP:]
        return [(b - a) / 1e6 for a, b in zip(starts, starts[1:])]

    def layers_before_cut(self):
        """How many layers our first stage has: its items are the embedding, then attention and mlp of each."""
        with open(os.path.join(self.folder, "summary.json")) as file:
            cut = json.load(file)["plan"]["cut"]
        return cut[0] // 2


def measure(args, kind, case, folder):
    ours = Elapse(args.elapse, folder, kind, args.dtype, case)
    ours.times(1)
    cut = ours.layers_before_cut()
    peers = [Torch(folder, kind, args.dtype, case, cut, compiled) for compiled in (False, True)[: 1 + args.compile]]
    for peer in peers:
        if not peer.error < GRADIENT_TOLERANCE[args.dtype]:
            sys.exit(f"bench_torch_ranks: {kind} {case}: PyTorch's ranks find another gradient than one process "
                     f"(off by {peer.error:.1e})")
    times = [[] for _ in range(1 + len(peers))]
    for _ in range(args.rounds):
        for side, runner in enumerate([ours, *peers]):
            times[side].append(median(runner.times(args.steps)))
    name = f"pytorch {torch.__version__}"
    text = f"{kind} {case}{'' if case == 'ddp' else f' (PyTorch cut at {cut})'} {args.dtype}: {report('elapse', times[0])}"
    for peer, theirs in zip(peers, times[1:]):
        peer.end()
        text += f"; {report(name, theirs)}, ratio {median(theirs) / median(times[0]):.2f}"
        name = "compiled"
        if not peer.losses[-1] < peer.losses[0]:
            sys.exit(f"bench_torch_ranks: {kind} {case}: PyTorch's loss went from {peer.losses[0]} to {peer.losses[-1]}")
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("elapse")
    parser.add_argument("cases", nargs="*", default=[])
    parser.add_argument("--model", action="append", choices=SIZES, help="default: minilm and vit-tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="timed steps a round")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--return-memory", action="store_true", help="PyTorch with the malloc's own settings")
    args = parser.parse_intermixed_args()
    if len(os.sched_getaffinity(0)) < RANKS or not dist.is_available():
        print(f"needs {RANKS} cores and a PyTorch with torch.distributed: skipped")
        return
    args.compile &= hasattr(torch, "compile")
    cases = args.cases or ["1f1b:4", "1f1b:8", "gpipe:4", "gpipe:8", "ddp"]
    if not importlib.util.find_spec("torch.distributed.pipelining"):
        print(f"pytorch {torch.__version__} has no torch.distributed.pipelining (2.5 has): skipped, all but ddp", flush=True)
        cases = [case for case in cases if case == "ddp"]
    os.environ.update({"GLOO_SOCKET_IFNAME": "lo", **({} if args.return_memory else KEEP_MEMORY)})
    for kind in args.model or ["minilm", "vit-tiny"]:
        for case in cases:
            with tempfile.TemporaryDirectory() as folder:
                measure(args, kind, case, folder)


if __name__ == "__main__":
    main()
