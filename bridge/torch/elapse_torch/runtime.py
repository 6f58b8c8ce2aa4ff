"""What a step takes beside its items: the time per op of PyTorch's pipelining runtime, and the price of
a backward in two ops. Measured by that runtime itself, with all stages on one rank."""
import os
import signal
import tempfile
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from .device import now_ns
from .files import percentile
from .losses import mean_of, pieces
from .split import SplitStage

MICROBATCHES, ROUNDS, WARM_UP = 4, 7, 2
WHOLE = "0F{0},1F{0},1B{0},0B{0}"
HALVES = "0F{0},1F{0},1I{0},0I{0},1W{0},0W{0}"


def load_ops(schedule, text):
    """Give the runtime an op list, a line a rank."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as f:
        f.write(text)
    try:
        schedule._load_csv(f.name)
    finally:
        os.unlink(f.name)


@contextmanager
def one_rank():
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


class Bench:
    """Two stages on one rank. times: {method of the second stage: [ns]} of the last round."""

    METHODS = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")

    def __init__(self, stages, loss, device):
        self.device, self.times = device, {}
        held = [SplitStage(s, i, 2, device) for i, s in enumerate(stages)]
        self.schedule = _PipelineScheduleRuntime(held, MICROBATCHES, scale_grads=False, loss_fn=loss)
        for name in self.METHODS:
            setattr(held[1], name, self._timed(name, getattr(held[1], name)))

    def _timed(self, name, function):
        def call(*args, **kwargs):
            begin = now_ns(self.device)
            out = function(*args, **kwargs)
            self.times.setdefault(name, []).append(now_ns(self.device) - begin)
            return out
        return call

    def load(self, ops):
        """ops: of one micro-batch."""
        load_ops(self.schedule, ",".join(ops.format(m) for m in range(MICROBATCHES)) + "\n")

    def step_ns(self, args, target, keywords):
        """A step's time, and {method: ns of all micro-batches} of the second stage."""
        self.times = {}
        begin = now_ns(self.device)
        self.schedule.step(*args, target=target, losses=[], **keywords)
        return now_ns(self.device) - begin, {n: sum(t) for n, t in self.times.items()}


def op_overhead_ns(device):
    """Time per op of stages that compute next to nothing, without what they compute."""
    stages = [nn.Linear(1, 1, device=device) for _ in range(2)]
    x = torch.ones(MICROBATCHES, 1, device=device)

    def bare():
        begin = now_ns(device)
        out = stages[0](x[:1].clone().requires_grad_())
        out.backward(out.detach())
        return (now_ns(device) - begin) / 2
    alone = percentile([bare() for _ in range(50)], .5)
    bench = Bench(stages, lambda out, target: (out - target).mean(), device)
    bench.load(WHOLE)
    steps = [bench.step_ns((x,), x, {})[0] for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
    return max(0, int(percentile(steps, .5) / (4 * MICROBATCHES) - alone))


def split_backward(chain, batch, size, loss, device):
    """By which share a backward in two ops takes longer than one in one, of the chain's second half.
    batch: (args, kwargs, target) of MICROBATCHES micro-batches of `size` samples, the chain's."""
    args, kwargs, target = batch
    targets, numbers = pieces(target, size, MICROBATCHES), torch.arange(MICROBATCHES)
    count = len(chain.items)
    if count < 2:
        return 0.0
    at = (count + 1) // 2
    bench = Bench([chain.stage(0, at), chain.stage(at, count)],
                  lambda out, m: mean_of(loss(chain.output(out), targets[int(m)])), device)
    keywords = chain.keywords(args, kwargs)
    # In turn, and the fastest counts, because other programs only make a round longer.
    whole, halves = [], []
    for _ in range(WARM_UP + ROUNDS):
        for ops, found in ((WHOLE, whole), (HALVES, halves)):
            bench.load(ops)
            found.append(sum(ns for name, ns in bench.step_ns((), numbers, keywords)[1].items()
                             if name.startswith("backward")))
    for p in chain.module.parameters():
        p.grad = None
    # Each half repeats the whole backward at most.
    more = min(halves[WARM_UP:]) / min(whole[WARM_UP:]) - 1
    return round(min(max(0.0, more), 1.0), 4)


@contextmanager
def busy_ranks(count, work):
    """`count` processes that call work() until the block ends, as the other ranks of a machine do. A
    core whose neighbours compute is slower, above all with small micro-batches."""
    parent, children = os.getpid(), []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                while os.getppid() == parent:
                    work()
            finally:
                os._exit(0)
        children.append(child)
    try:
        if children:
            time.sleep(0.2)
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
