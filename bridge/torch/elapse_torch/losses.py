"""The loss of a step is the whole batch's: the sum over what counts, divided by its number in all micro-batches of all
replicas. A loss function gives (sum, count) of a micro-batch. One that gives a mean is taken as a mean over samples,
which is checked at each step."""
import collections.abc
import contextlib
import inspect
import math

import torch
from torch.utils import _pytree as pytree

from .errors import BridgeError

IGNORED = -100  # the target that PyTorch's cross entropy leaves out
CURE = "let loss(output, target) return (sum, count): the sum over what counts, and its number"


def first_tensor(output):
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, collections.abc.Mapping):
        return first_tensor(output["logits"] if "logits" in output else next(iter(output.values())))
    return first_tensor(output[0])


def default_loss(output, target):
    """Cross entropy of the first output for integer targets, else the square error."""
    out = first_tensor(output)
    if target is None:
        return out.float().square().sum(), out.numel()
    if target.dtype.is_floating_point:
        if out.shape != target.shape:
            _refuse_shapes(out, target, "a mean square error wants one shape")
        return torch.nn.functional.mse_loss(out, target, reduction="sum"), target.numel()
    last, second = out.shape[:-1] == target.shape, out.ndim > 2 and (out.shape[0], *out.shape[2:]) == tuple(target.shape)
    if out.ndim < 2 or (last and second) or out.numel() != out.shape[1 if second else -1] * target.numel():
        _refuse_shapes(out, target, "which dimension holds the classes is not clear")
    if out.shape[1 if second else -1] < 2:
        _refuse_shapes(out, target, "there is one class, whose cross entropy is 0")
    if not second:
        out, target = out.reshape(-1, out.shape[-1]), target.reshape(-1)
    return (torch.nn.functional.cross_entropy(out.float(), target, ignore_index=IGNORED, reduction="sum"), counted(target))


def _refuse_shapes(out, target, why):
    raise BridgeError(f"outputs of shape {tuple(out.shape)} and targets of shape {tuple(target.shape)}: {why}",
                      hint="give loss=, a function loss(output, target) that returns (sum, count)")


def counted(target):
    """How many integer targets count, or None if there are none of integers."""
    leaves = [t for t in pytree.tree_leaves(target) if isinstance(t, torch.Tensor) and t.ndim
              and not t.dtype.is_floating_point and t.dtype != torch.bool]
    return int(sum((t != IGNORED).sum() for t in leaves)) if leaves else None


def as_sum(found, samples):
    """(sum, count, whether the function gave a mean) of what a loss function returned for so many samples."""
    if isinstance(found, (tuple, list)) and len(found) == 2 and isinstance(found[0], torch.Tensor) and found[0].numel() == 1:
        count = float(found[1])
        if count >= 0 and math.isfinite(count):
            return found[0].reshape(()), count, False
        raise BridgeError(f"loss(output, target) returned a count of {count:g}", hint=CURE)
    if not isinstance(found, torch.Tensor) or found.numel() != 1:
        what = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
        raise BridgeError(f"loss(output, target) returned {what}, not a mean or (sum, count)", hint=CURE)
    return found.reshape(()) * samples, samples, True


def mean_of(found):
    """The mean of one batch alone, as a scalar tensor."""
    total, count, _ = as_sum(found, 1)
    return total / max(count, 1e-30)


def pieces(tree, size, count):
    """A batch in `count` micro-batches of `size` samples. Leaves without a dimension of samples are in each."""
    leaves, spec = pytree.tree_flatten(tree)

    def part(x, i):
        has = isinstance(x, torch.Tensor) and x.ndim and x.shape[0] == size * count
        return x[i * size:(i + 1) * size] if has else x
    return [pytree.tree_unflatten([part(x, i) for x in leaves], spec) for i in range(count)]


def joined(trees, sizes):
    """Batches of these sizes as one, or None if a leaf is no tensor with a dimension of samples."""
    flat = [pytree.tree_flatten(t) for t in trees]
    leaves = []
    for same in zip(*[f[0] for f in flat]):
        tensors = all(isinstance(x, torch.Tensor) for x in same)
        if tensors and all(x.ndim and x.shape[0] == n for x, n in zip(same, sizes)):
            leaves.append(torch.cat(same))
        elif same[0] is None or not isinstance(same[0], torch.Tensor) and all(x == same[0] for x in same):
            leaves.append(same[0])
        else:
            return None
    return pytree.tree_unflatten(leaves, flat[0][1])


class StepLoss:
    """Adds up the loss of one step on a rank of the last stage.

    What a micro-batch's backward begins from is its sum over `base`, the samples of a pipeline's batch. The
    gradients are scaled once the count of all micro-batches is known."""

    def __init__(self, loss, output, plan):
        self.loss, self.output, self.base = loss, output, plan["batch"]
        self.size, self.parts = plan["microbatch_size"], plan["microbatches"]
        self.alone = self.parts * plan["replicas"] == 1
        self.scale, self.steps = 0.0, 0

    def begin(self, target):
        self.targets = pieces(target, self.size, self.parts)
        self.steps += 1
        self._clear()

    def _clear(self):
        self.rows, self.labels, self.apart = {}, [], []
        self.before, self.failed, self.proved = None, None, False

    def part(self, out, index):
        """What the backward of a micro-batch begins from."""
        index = int(index)
        if index in self.rows:  # the runtime's first step calls it with values of no meaning, for their shapes
            self._clear()
        target, out = self.targets[index], self.output(out)
        try:
            total, count, mean = as_sum(self.loss(out, target), self.size)
            if mean and not self.alone:
                self._check_mean(out, target, total.detach() / self.size)
            elif not mean and self.steps == 1:
                self._check_sum(out, target, total.detach(), count)
        except Exception as error:  # the other ranks are told at the end of the step
            if not isinstance(error, BridgeError):
                text = (str(error) or "no message").splitlines()[0]
                told = BridgeError(f"loss(output, target) failed: {type(error).__name__}: {text}")
                told.__cause__, error = error, told
            self.failed = self.failed or error
            total, count = first_tensor(out).float().sum() * 0, 1
        self.rows[index] = total.detach(), count
        return total / self.base

    def _check_sum(self, out, target, total, count):
        """Whether (sum, count) of two micro-batches at once are those of each, added; of one micro-batch, of its halves.
        (mean, count) and (loss, accuracy) are not, nor is a loss that compares samples with each other."""
        out = pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, out)
        with torch.no_grad():
            if self.parts > 1:
                before, self.before = self.before, (out, target, total, count)
                if not before:
                    return
                whole = joined([(before[0], before[1]), (out, target)], [self.size] * 2)
                parts = [before[2:], (total, count)]
            elif self.size > 1:
                whole = (out, target)
                parts = [as_sum(self.loss(*half), 1)[:2] for half in self._halves(out, target)]
            else:
                return
            if whole is None:
                return
            (a, n, _), (again, _, _) = (as_sum(self.loss(*whole), 1) for _ in range(2))
            if float(a) != float(again):  # it draws numbers
                return
        self.apart.append((a, sum(p[0] for p in parts)))
        if abs(n - sum(p[1] for p in parts)) > 1e-5 * abs(n) + 1e-6:
            self.failed = self.failed or BridgeError(
                f"loss(output, target) returned a count of {n:g} for two parts of a batch at once, and "
                f"{' and '.join(f'{p[1]:g}' for p in parts)} for each", hint=CURE)

    def _halves(self, out, target):
        first = self.size // 2
        return [pytree.tree_map(lambda x: x[a:b] if isinstance(x, torch.Tensor) and x.ndim else x, (out, target))
                for a, b in ((0, first), (first, self.size))]

    def _check_mean(self, out, target, mean):
        """Whether the loss of two micro-batches at once is the mean of the losses of each; with one micro-batch a
        replica, of the losses of its halves."""
        self.labels.append(counted(target))
        out = pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, out)
        with torch.no_grad():
            if self.parts > 1:
                before, self.before = self.before, (out, target, mean)
                if not before:
                    return
                two = joined([(before[0], before[1]), (out, target)], [self.size] * 2)
                if two is None:
                    return
                self.apart.append((self.loss(*two), (before[2] + mean) / 2))
                self.proved |= self.labels[-1] != self.labels[-2]
            elif self.size > 1:
                first, halves = self.size // 2, self._halves(out, target)
                rows = [self.loss(*half) for half in halves]
                self.apart.append((mean, (rows[0] * first + rows[1] * (self.size - first)) / self.size))
                self.proved = counted(halves[0][1]) != counted(halves[1][1])

    def end(self):
        """[sum, count, fewest and most counted targets of a micro-batch, whether a mean was seen to be over samples],
        and the BridgeError of this rank or None."""
        total = sum(float(t) for t, _ in self.rows.values())
        count = sum(float(c) for _, c in self.rows.values())
        for together, mean in self.apart:
            a, b = float(together), float(mean)
            eps = torch.finfo(together.dtype).eps if together.dtype.is_floating_point else 0
            self.scale = max(self.scale, abs(a) if math.isfinite(a) else 0)
            if not abs(a - b) <= max(2e-5, 4 * eps) * self.scale + 1e-6:
                what, of = ("mean over samples", "mean") if self.labels else ("sum over samples", "sum")
                self.failed = self.failed or BridgeError(
                    f"the loss is not a {what}: of two parts of a batch at once it is {a:.6g}, the {of} of the "
                    f"parts is {b:.6g}", hint=CURE)
        labels = [n for n in self.labels if n is not None]
        return [total, count, min(labels, default=math.inf), max(labels, default=-math.inf), float(self.proved)], self.failed


def whole_batch(rows):
    """(mean loss, count) of the batch by the rows of StepLoss.end() of all ranks. A sum of nothing is 0."""
    total, count = (sum(r[i] for r in rows) for i in (0, 1))
    fewest, most = min(r[2] for r in rows), max(r[3] for r in rows)
    if fewest < most and not any(r[4] for r in rows):
        raise BridgeError(f"the loss is a mean, and micro-batches have {fewest:g} to {most:g} counted targets", hint=CURE)
    return total / count if count else 0.0, count


# ---- the loss that a model computes itself -------------------------------------------------------------------------

@contextlib.contextmanager
def evaluating(model):
    """All modules in eval mode, and afterwards each in its own again."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def modes_of(model):
    """What a graph of the model holds fast, to see whether it has changed: numbers, words and modes of the modules, which
    weights are trained, and which tensors its buffers are."""
    kept = (bool, int, float, str, type(None))
    return ([{k: v for k, v in vars(m).items() if type(v) in kept} for m in model.modules()],
            [(id(p), p.requires_grad) for p in model.parameters()], [id(b) for b in model.buffers()])


def mixes_samples(model, batch, half):
    """Whether the output for a sample depends on the others, of a batch (args, kwargs) of 4 samples and its first 2."""
    try:
        with torch.no_grad(), evaluating(model):
            whole, again, part = (first_tensor(model(*a, **k)) for a, k in (batch, batch, half))
    except Exception:  # the export finds it again and names the place
        return False
    if whole.ndim == 0 or len(whole) != 4 or len(part) != 2 or not whole.dtype.is_floating_point or not torch.equal(whole, again):
        return False
    apart = (whole[:2].double() - part.double()).abs().max()
    return bool(apart > max(1e-3, 8 * torch.finfo(whole.dtype).eps) * whole.double().abs().max())


def takes(model, inputs):
    """Whether the model's forward has a parameter for each of these keywords."""
    try:
        inspect.signature(model.forward).bind(**inputs)
    except TypeError:
        return False
    return True


def _is_tokens(labels):
    return isinstance(labels, torch.Tensor) and labels.ndim > 1 and not labels.dtype.is_floating_point


COUNTS = {  # what a model's mean may be over: (whether it can be of these labels, the count)
    "counted labels but the first of each sample": (_is_tokens, lambda labels, rows: counted(labels[:, 1:])),
    "counted labels": (lambda labels: counted(labels) is not None, lambda labels, rows: counted(labels)),
    "samples": (lambda labels: True, lambda labels, rows: rows),
}


class OwnLoss:
    """The loss that the model returns, a mean over one of COUNTS."""

    def __init__(self, over):
        self.over = over

    def __call__(self, output, labels):
        rest = [v for k, v in output.items() if k != "loss"]
        rows = labels.shape[0] if isinstance(labels, torch.Tensor) else first_tensor(rest).shape[0]
        count = COUNTS[self.over][1](labels, rows)
        if count:
            return output["loss"] * count, count
        return first_tensor(rest).float().sum() * 0, 0  # a mean of nothing is not a number


def has_own_loss(model, inputs):
    """Whether the model returns a loss for these inputs."""
    if not takes(model, inputs):
        return False
    try:
        with torch.no_grad(), evaluating(model):
            output = model(**inputs)
    except Exception:  # the export finds it again and names the place
        return False
    return isinstance(output, collections.abc.Mapping) and isinstance(output.get("loss"), torch.Tensor)


def own_loss(model, inputs):
    """OwnLoss of a model that returns one for these inputs, keywords of 4 samples or more. What its mean is over shows
    where two halves have unequal counts: the loss of both together must be their mean by the counts."""
    labels = inputs.get("labels")
    for name in inputs:
        if "label" in name and name != "labels":
            raise BridgeError(f"the model's own loss has a target beside 'labels', '{name}'",
                              hint="give (inputs, target) and loss=, a function loss(output, target) that returns (sum, count)")
    misfit = {n: 0.0 for n, (possible, _) in COUNTS.items() if possible(labels)}
    with torch.no_grad(), evaluating(model), _without_zeros(model):
        if len(misfit) == 1:
            for part in (inputs, *_with_strays(inputs)):
                _misfits(model, part, misfit)
        else:
            for kept in (2, max(3, (labels.shape[1] + 1) // 2)) if labels.ndim > 1 else (0,):
                _misfits(model, _uneven(inputs, kept), misfit)
    fits = sorted(misfit, key=misfit.get)
    if misfit[fits[0]] > 1e-5 or (len(fits) > 1 and misfit[fits[1]] < 4 * misfit[fits[0]] + 1e-6):
        raise BridgeError("what the model's own loss is a mean over is not found (no mean over samples or counted labels)",
                          hint="give loss=, a function loss(output, labels) that returns (sum, count)")
    return OwnLoss(fits[0])


def _uneven(inputs, kept):
    """Where all labels count but those after the first `kept` of the first half's samples (of labels without a second
    dimension: those of all but one of its samples)."""
    labels = inputs["labels"].masked_fill(inputs["labels"] == IGNORED, 0)
    half = labels.shape[0] // 2
    if labels.ndim > 1:
        labels[:half, kept:] = IGNORED
    else:
        labels[:half - 1] = IGNORED
    return {**inputs, "labels": labels}


def _with_strays(inputs):
    """Where integers of one input that may be a target under another name, one a sample, do not count or lie outside, as
    the positions of an answer that a window lacks."""
    for name, x in inputs.items():
        if isinstance(x, torch.Tensor) and x.ndim == 1 and not x.dtype.is_floating_point and x.dtype != torch.bool:
            for stray in (IGNORED, 1 << 20):
                strays = x.clone()
                strays[:x.shape[0] // 2 - 1] = stray
                yield {**inputs, name: strays}


def _misfits(model, inputs, misfit):
    """Raise misfit[name] to how far a mean by these counts of two halves is from the loss of all samples. What the model
    does not take says nothing."""
    labels = inputs.get("labels")
    rows = next(x.shape[0] for x in inputs.values() if isinstance(x, torch.Tensor) and x.ndim)
    half, losses, counts = rows // 2, [], []
    try:
        for a, b in ((0, half), (half, rows), (0, rows)):
            part = {k: v[a:b] if isinstance(v, torch.Tensor) and v.ndim and v.shape[0] == rows else v for k, v in inputs.items()}
            losses.append(float(model(**part)["loss"]))
            counts.append((None if labels is None else labels[a:b], b - a))
    except (IndexError, RuntimeError, ValueError):
        return
    for name in misfit:
        n = [COUNTS[name][1](*c) for c in counts[:2]]
        want = sum(c * loss for c, loss in zip(n, losses)) / max(1, sum(n))
        apart = abs(want - losses[2]) / max(1e-12, abs(losses[2]))
        misfit[name] = max(misfit[name], apart if math.isfinite(apart) else math.inf)


@contextlib.contextmanager
def _without_zeros(model):
    """Weights that are zero as a whole get random values for a while, because a head of zeros gives all labels one loss."""
    zero = [p for p in model.parameters() if p.numel() and p.dtype.is_floating_point and not p.any()]
    draw = torch.Generator().manual_seed(1)
    for p in zero:
        p.copy_(torch.randn(p.shape, generator=draw).to(p.device, p.dtype) * .5)
    try:
        yield
    finally:
        for p in zero:
            p.zero_()


def loss_for(model, batch, loss=None):
    """(whether the model gets the whole batch, the loss function) for the batches of a loader, of which `batch` is one.
    A dict's labels are the model's own affair unless `loss` is given."""
    if loss or not isinstance(batch, collections.abc.Mapping):
        return False, loss or default_loss
    batch = dict(batch)
    if has_own_loss(model, batch):
        return True, own_loss(model, batch)
    labels = batch.get("labels")
    if labels is None:
        raise BridgeError("the batch has no 'labels' and the model returns no 'loss'",
                          hint="give loss=, a function loss(output, labels) that returns (sum, count)")
    if _is_tokens(labels) or takes(model, batch):
        raise BridgeError("the batch has 'labels' from which the model returns no 'loss'",
                          hint="give loss=, a function loss(output, labels) that returns (sum, count) and shifts "
                          "labels where the model predicts the next one")
    return False, default_loss
