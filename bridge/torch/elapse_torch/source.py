"""The user's model: MODEL.py:make_model, and beside it, where the file has them,

    make_batch(samples) -> (inputs, target)   inputs: a tensor, a tuple, or a dict of keywords
    loss(output, target) -> (sum, count)      over what counts, or a tensor: the mean over the samples

Without make_batch, --inputs describes one sample: `3x224x224`, or for integers below a limit
`ids=128:int64<30522`, several separated by commas. Without loss, the loss that the model itself returns for a dict
without a target is taken; else cross entropy of the first output for integer targets, else the mean square."""
import collections.abc
import importlib.util
import os
import sys

import torch

from .errors import BridgeError
from .losses import default_loss, has_own_loss, own_loss

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Source:
    """model, batch(samples) -> (args, kwargs, target), loss(output, target)."""

    def __init__(self, model, make_batch, loss):
        self.model, self._make_batch, self.loss = model, make_batch, loss or default_loss
        self.labels = None
        if not loss:
            _, inputs, target = self.batch(4)
            if target is None and inputs and has_own_loss(model, inputs):
                self.loss, self.labels = own_loss(model, inputs), "labels"

    def batch(self, samples):
        made = self._make_batch(samples)
        inputs, target = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
        if isinstance(inputs, collections.abc.Mapping):
            return (), dict(inputs), inputs.get(self.labels) if self.labels else target
        return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), {}, target


def _inputs(text):
    """[(name or None, shape, dtype, limit)] of --inputs."""
    parsed = []
    for part in text.split(","):
        name, _, rest = part.rpartition("=")
        rest, _, limit = rest.partition("<")
        shape, _, dtype = rest.partition(":")
        try:
            dims = [int(d) for d in shape.split("x")]
            kind = getattr(torch, dtype or ("int64" if limit else "float32"))
            parsed.append((name or None, dims, kind, int(limit or 2)))
        except (ValueError, AttributeError):
            raise BridgeError(f"--inputs: '{part}' is not [NAME=]SHAPE[:DTYPE][<LIMIT]",
                              hint="for example 3x224x224, or input_ids=128:int64<30522") from None
    return parsed


def _random_batch(text):
    described = _inputs(text)

    def make(samples):
        tensors = [torch.randint(0, limit, [samples] + dims, dtype=kind)
                   if not kind.is_floating_point else torch.randn([samples] + dims, dtype=kind)
                   for _, dims, kind, limit in described]
        if described[0][0]:
            return {d[0]: t for d, t in zip(described, tensors)}, None
        return tuple(tensors), None
    return make


def load(text, inputs=None, seed=1):
    """Load MODEL.py:make_model. The weights depend on the seed alone."""
    path, _, name = text.rpartition(":")
    if not path:
        path, name = text, "make_model"
    if not os.path.exists(path):
        raise BridgeError(f"cannot open model file '{path}'", code=3)
    spec = importlib.util.spec_from_file_location("elapse_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["elapse_model"] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BridgeError(f"cannot load '{path}': {type(error).__name__}: {error}") from error
    make = getattr(module, name, None)
    if not callable(make):
        known = [n for n in vars(module) if n.startswith("make")] or ["none"]
        raise BridgeError(f"'{path}' has no function '{name}', it has: " + " ".join(known))
    make_batch = getattr(module, "make_batch", None)
    if inputs:
        make_batch = _random_batch(inputs)
    if not make_batch:
        raise BridgeError(f"'{path}' has no make_batch(samples)", hint="or describe a sample: "
                          "--inputs 3x224x224, --inputs input_ids=128:int64<30522")
    torch.manual_seed(seed)
    model = make()
    if not isinstance(model, torch.nn.Module):
        raise BridgeError(f"{name}() of '{path}' returns {type(model).__name__}, not an nn.Module")
    return Source(model, make_batch, getattr(module, "loss", None))
