"""Timed freezing: backwards leave out weight gradients of whole items, by a plan's shares.

A weight that a micro-batch leaves out needs no gradient in its forward, backward and weights' half, so autograd
computes none and keeps nothing for it. Which ones is libelapse's choice, the same on all replicas. A weight that
several items read is never left out."""
from contextlib import contextmanager

from . import library
from .errors import BridgeError

METHODS = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")


class Shares:
    """Of the stages of a layout, whose trained items begin with `base`; None stands for a plan without shares."""

    def __init__(self, plan, chain, bounds, freeze, seed):
        """freeze: the job's keys."""
        self.shares, self.bounds, self.seed = plan["shares"], bounds, seed
        self.choice, self.rescale = freeze.get("choice", "rotate"), freeze.get("rescale", True)
        self.count = plan["microbatches"]
        if plan.get("shard", "none") != "none":
            raise BridgeError("the plan has shares, and weights in shards, which hold no items of their own", code=1,
                              hint="plan with pipeline.shard=none or freeze.max_share=0")
        tied = chain.tied()
        self.weights = [{n: p for n, p in chain.weights(i, i + 1).items() if n not in tied} for i in range(len(chain.items))]
        self.out = [{} for _ in range(self.count)]

    def begin(self, step, ramp):
        """Choose for a step."""
        for m in range(self.count):
            self.out[m] = {}
            for s, (first, end) in enumerate(zip(self.bounds, self.bounds[1:])):
                found = library.left_out(seed=self.seed, step=step, microbatch=m, first_item=first, end_item=end,
                                         share=ramp * self.shares[s][m], choice=self.choice.encode())
                for i, out in enumerate(found, first):
                    if out:
                        self.out[m].update(self.weights[i])

    @contextmanager
    def only(self, microbatch):
        """While this micro-batch runs."""
        held = [p for p in self.out[microbatch].values() if p.requires_grad]
        for p in held:
            p.requires_grad_(False)
        try:
            yield
        finally:
            for p in held:
                p.requires_grad_(True)

    def guard(self, stage):
        """A stage of PyTorch's, or one with methods of the same names."""
        for name in METHODS:
            if hasattr(stage, name):
                setattr(stage, name, self._guarded(getattr(stage, name)))

    def _guarded(self, function):
        def call(microbatch, *args, **kwargs):
            with self.only(int(microbatch)):
                return function(microbatch, *args, **kwargs)
        return call

    def factor(self, name):
        """What the sum of a weight's gradients is multiplied with; 0: no micro-batch counted it."""
        counted = sum(name not in out for out in self.out)
        return 0 if not counted else self.count / counted if self.rescale else 1

    def end(self, weights):
        """The gradients of {name: parameter} are summed."""
        for name, p in weights.items():
            factor = self.factor(name)
            if not factor:
                p.grad = None
            elif factor != 1 and p.grad is not None:
                p.grad.mul_(factor)
