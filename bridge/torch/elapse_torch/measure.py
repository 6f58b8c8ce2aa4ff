"""Times and sizes of a chain's items. Each distinct item is measured alone, as a stage of its own,
with inputs that a forward of the whole chain has made."""
import time
from contextlib import contextmanager, nullcontext

import torch

from .device import Marks, peak_bytes, peak_reset
from .files import percentile

WARM_UP = 2
LEAST_ROUNDS, MOST_ROUNDS = 5, 40


class Timer:
    """Rounds of an item: as many as fit `budget_s`, between LEAST_ROUNDS and MOST_ROUNDS."""

    def __init__(self, device, budget_s):
        self.device, self.budget_s = device, budget_s

    def rounds(self, once):
        """once() -> {name: ns}. Returns {name: [ns]}."""
        for _ in range(WARM_UP):
            once()
        found, end = {}, time.monotonic() + self.budget_s
        while True:
            for name, ns in once().items():
                found.setdefault(name, []).append(ns)
            count = len(next(iter(found.values())))
            if count >= MOST_ROUNDS or (count >= LEAST_ROUNDS and time.monotonic() > end):
                return found


def leaves(values):
    return [v.detach().requires_grad_(v.dtype.is_floating_point) for v in values]


def as_tuple(out):
    return (out,) if isinstance(out, torch.Tensor) else tuple(out)


def flows(outs):
    return [o for o in outs if o.requires_grad]


class Saved:
    """Bytes that autograd keeps for the backward, parameters and buffers apart."""

    def __init__(self, apart):
        self.apart = {p.untyped_storage().data_ptr() for p in apart}
        self.sizes = {}

    def pack(self, tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.apart:
            self.sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    def __enter__(self):
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda t: t)
        self.hooks.__enter__()
        return self

    def __exit__(self, *error):
        self.hooks.__exit__(*error)

    def bytes(self):
        return sum(self.sizes.values())


@contextmanager
def one_region():
    """Regions of torch.autocast inside are one: a weight that trains is converted once, as in a step of several
    micro-batches, and not in each pass."""
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()


def measure_item(stage, values, keywords, finish, timer, context):
    """Times [ns] of fwd, bwd_input, bwd_weight, and stash and work in bytes of one item.

    finish(outs) -> the tensors that the backward starts from: the loss after the last item."""
    with one_region():
        return _measure_item(stage, values, keywords, finish, timer, context)


def conversions(stage, values, keywords, context, timer):
    """Time [ns] that autocast takes for an item's weights, which a step converts once."""
    def once(cold):
        if cold:
            torch.clear_autocast_cache()
        given = leaves(values)
        marks = Marks(timer.device)
        with context():
            stage(*given, **keywords)
        marks.mark()
        return marks.spans()[0]
    with one_region():
        found = timer.rounds(lambda: {"cold": once(True), "warm": once(False)})
    return max(0, int(percentile(found["cold"], .5) - percentile(found["warm"], .5)))


def _measure_item(stage, values, keywords, finish, timer, context):
    device = timer.device
    weights = [p for p in stage.parameters() if p.requires_grad]

    def forward(given):
        with context():
            return finish(as_tuple(stage(*given, **keywords)))

    # Copies of weights in another type, which the micro-batches of a step share, are no stash of one.
    shared, first = Saved(()), None
    if context is not nullcontext:
        with shared, context():
            first = finish(as_tuple(stage(*leaves([v.clone() for v in values]), **{
                k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in keywords.items()})))
    given = leaves(values)
    saved = Saved(list(stage.parameters()) + list(stage.buffers()))
    saved.apart |= set(shared.sizes)
    peak_reset(device)
    with saved:
        outs = flows(forward(given))
    del first
    grads = [torch.ones_like(o) for o in outs]
    inputs = [v for v in given if v.requires_grad]

    def whole():
        given = leaves(values)
        marks = Marks(device)
        outs = flows(forward(given))
        marks.mark()
        torch.autograd.backward(outs, grads)
        marks.mark()
        return dict(zip(("fwd", "bwd"), marks.spans()))

    def input_half():
        given = leaves(values)
        outs = flows(forward(given))
        marks = Marks(device)
        torch.autograd.grad(outs, [v for v in given if v.requires_grad], grads, allow_unused=True)
        marks.mark()
        return {"bwd_input": marks.spans()[0]}

    found = timer.rounds(whole)
    work = peak_bytes(device)
    if inputs:
        found.update(timer.rounds(input_half))
    else:
        found["bwd_input"] = [0] * len(found["bwd"])
    # A backward is one op of which the input's half can also run alone; the rest is the weights'.
    both = percentile(found["bwd"], .5)
    half = min(percentile(found["bwd_input"], .5), both) if weights else both
    found["bwd_input"] = [min(ns, both) for ns in found["bwd_input"]] if weights else found["bwd"]
    found["bwd_weight"] = [max(0, ns - half) for ns in found["bwd"]]
    del found["bwd"]
    return found, saved.bytes(), max(0, work - saved.bytes())


def measure_update(weights, make_optimizer, timer):
    """Times [ns] of an optimizer's step over an item's weights."""
    if not weights:
        return [0]
    for p in weights:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    optimizer = make_optimizer(weights)

    def once():
        marks = Marks(timer.device)
        optimizer.step()
        marks.mark()
        return {"update": marks.spans()[0]}
    before = [p.detach().clone() for p in weights]
    found = timer.rounds(once)["update"]
    with torch.no_grad():
        for p, old in zip(weights, before):
            p.copy_(old)
            p.grad = None
    return found


def walk(chain, keywords, context):
    """Values at each boundary, of a forward of the whole chain."""
    values, at = [()], ()
    with torch.no_grad(), context():
        for i in range(len(chain.items)):
            at = as_tuple(chain.stage(i, i + 1)(*at, **keywords))
            values.append(tuple(v.detach().clone() for v in at))
    return values


