"""elapse-torch profile: measure a model item by item, and write what `elapse` reads."""
import argparse
import contextlib
import os
import sys
import time

import torch

from . import files
from .chain import chain_of
from .device import describe, open_device
from .errors import BridgeError
from .losses import mean_of
from .measure import Timer, conversions, measure_item, measure_update, walk
from .runtime import MICROBATCHES, busy_ranks, one_rank, op_overhead_ns, split_backward
from .source import DTYPES, load


def options(argv):
    p = argparse.ArgumentParser(
        prog="elapse-torch profile", description="measure a PyTorch model item by item; writes "
        "DIR/model.json, DIR/job.json and DIR/profile.json")
    p.add_argument("model", metavar="MODEL.py:make_model")
    p.add_argument("--inputs", help="one sample, where the file has no make_batch: 3x224x224, "
                   "or input_ids=128:int64<30522")
    p.add_argument("--microbatches", default="1,2,4", metavar="1,2,4",
                   help="samples of a micro-batch (default 1,2,4)")
    p.add_argument("--device", default="cpu", help="cpu, cuda, mps or xpu (default cpu)")
    p.add_argument("--dtype", default="fp32", choices=DTYPES, help="of weights (default fp32)")
    p.add_argument("--autocast", choices=("bf16", "fp16"), help="compute under torch.autocast")
    p.add_argument("--compile", action="store_true", help="measure items under torch.compile")
    p.add_argument("--optimizer", default="adamw", choices=("sgd", "adamw"))
    p.add_argument("--threads", type=int, default=0, help="of PyTorch on CPU (default 1)")
    p.add_argument("--ranks", type=int, default=2, help="devices of job.json (default 2)")
    p.add_argument("--alone", action="store_true", help="on CPU, measure without other ranks that "
                   "compute at once (default: the other ranks of --ranks, as far as there are cores)")
    p.add_argument("--batch", type=int, default=0, help="samples of a step of job.json")
    p.add_argument("--budget", type=float, default=0.1, metavar="S",
                   help="seconds an item, pass and size (default 0.1)")
    p.add_argument("--time-limit", type=float, default=0, metavar="S",
                   help="stop after so many seconds; what is measured is written (default: none)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("-o", dest="out", default="profile", metavar="DIR", help="(default profile)")
    return p.parse_args(argv)


def sizes_of(text):
    try:
        sizes = sorted({int(s) for s in text.split(",")})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise BridgeError(f"--microbatches must be counts of samples as 1,2,4, got '{text}'")
    return sizes


def trains_batch_norm(model):
    return any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.training for m in model.modules())


def without_one(sizes, model):
    """Micro-batches of one sample are left out where batch norm would divide by the deviation of one value."""
    if 1 not in sizes or not trains_batch_norm(model):
        return sizes
    if sizes == [1]:
        raise BridgeError("--microbatches 1: the model has batch norm, which needs two samples",
                          hint="--microbatches 2,4")
    print("elapse-torch: micro-batches of 1 sample are left out, because batch norm needs two", file=sys.stderr)
    return sizes[1:]


def make_optimizer(kind):
    if kind == "sgd":
        return lambda weights: torch.optim.SGD(weights, lr=1e-3, momentum=0.9)
    return lambda weights: torch.optim.AdamW(weights, lr=1e-3)


def say(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def to_device(tree, device, dtype):
    def move(t):
        if not isinstance(t, torch.Tensor):
            return t
        return t.to(device, dtype) if t.dtype.is_floating_point else t.to(device)
    return torch.utils._pytree.tree_map(move, tree)


def context_of(args, device):
    if not args.autocast:
        return contextlib.nullcontext
    return lambda: torch.autocast(device.type, dtype=DTYPES[args.autocast])


def others_of(args, device):
    """How many ranks compute beside the one that is measured."""
    if args.alone or device.type != "cpu":
        return 0
    return max(0, min(args.ranks, len(os.sched_getaffinity(0))
                      if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) - 1)


def runtime_costs(source, args, device, context, size):
    """Keys of the model beside its items. Where the runtime cannot take the model, they are left out."""
    try:
        with one_rank():
            costs = {"op_overhead_ns": op_overhead_ns(device)}
            batch, one = (to_device(source.batch(n * size), device, DTYPES[args.dtype]) for n in (MICROBATCHES, 1))
            with context():
                costs["split_backward"] = split_backward(chain_of(source.model, *one[:2]), batch, size,
                                                         source.loss, device)
    except (RuntimeError, ValueError, TypeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        print(f"elapse-torch: the runtime's own time is left out: {lines[0]}", file=sys.stderr)
        return {}
    return costs


def measure_size(source, args, device, size, context, known, deadline):
    """Measure all distinct items for one micro-batch's size. known: {key: {size: found}}.
    Returns (chain, keys), and what stopped it or None."""
    inputs, keywords, target = source.batch(size)
    dtype = DTYPES[args.dtype]
    inputs, keywords, target = to_device((inputs, keywords, target), device, dtype)
    with context():
        chain = chain_of(source.model, inputs, keywords)
    named = chain.keywords(inputs, keywords)
    timer = Timer(device, args.budget)
    # The last item's key has the loss in it.
    last = len(chain.items) - 1
    keys = [chain.shape_key(i) + ("loss" if i == last else "") for i in range(last + 1)]
    try:
        values = walk(chain, named, context)
    except torch.OutOfMemoryError:
        return chain, keys, f"out of memory in a forward of all items with micro-batch {size}"
    for i, key in enumerate(keys):
        if size in known.get(key, {}):
            continue
        if deadline and time.monotonic() > deadline:
            return chain, keys, f"the time limit of {args.time_limit:g} s"
        say(f"micro-batch {size}: item {i + 1} of {last + 1}, {chain.items[i].name}")
        stage = chain.stage(i, i + 1)
        if args.compile:
            stage.graph = torch.compile(stage.graph)

        def finish(outs, i=i):
            return (mean_of(source.loss(chain.output(outs), target)),) if i == last else outs
        try:
            found, stash, work = measure_item(stage, values[i], named, finish, timer, context)
            update = measure_update([p for p in stage.parameters() if p.requires_grad],
                                    make_optimizer(args.optimizer), timer)
            if args.autocast:  # An update makes the converted weights stale.
                once = conversions(stage, values[i], named, context, timer)
                update = [ns + once for ns in update]
        except torch.OutOfMemoryError:
            return chain, keys, (f"out of memory in item '{chain.items[i].name}' with micro-batch "
                                 f"{size}")
        act = sum(v.numel() * v.element_size() for v in values[i + 1]) if i < last else 0
        known.setdefault(key, {})[size] = (found, stash, work, act, update)
    return chain, keys, None


def write(args, chain, keys_of, known, about, costs, ranks):
    """model.json, job.json and profile.json of all sizes for which every item is measured."""
    sizes = [s for s in sorted(keys_of) if all(s in known.get(k, {}) for k in keys_of[s])]
    if not sizes:
        return []
    dtype = args.autocast or args.dtype
    name = os.path.basename(args.model.rpartition(":")[0] or args.model).rsplit(".", 1)[0]
    kind = about["device_kind"]
    items, rows, name_of, taken = [], [], {}, set()
    for i, item in enumerate(chain.items):
        key = keys_of[sizes[0]][i]
        first = key not in name_of
        if first:
            name_of[key] = files.item_name(item.name, taken)
            taken.add(name_of[key])
        by_size = {s: known[keys_of[s][i]][s] for s in sizes}
        _, stash, work, act, update = by_size[sizes[-1]]
        times = {s: {p: files.percentile(found[0][p], .5) for p in files.PASSES}
                 for s, found in by_size.items()}
        weights = chain.weights(i, i + 1)
        items.append({"name": name_of[key], "layer": item.layer,
                      "params": sum(p.numel() for p in weights.values()),
                      "act_bytes": act // sizes[-1], "stash_bytes": stash // sizes[-1],
                      "work_bytes": work // sizes[-1],
                      "update_ns": int(files.percentile(update, .5)), "times": times})
        if first:
            for s, (found, _, _, _, update) in by_size.items():
                rows += [files.layer_row(kind, dtype, ranks, name_of[key], p, s, files.spread(found[p]))
                         for p in files.PASSES]
            rows += [files.layer_row(kind, dtype, ranks, name_of[key], "update", n,
                                     files.spread(update)) for n in range(3)]
    os.makedirs(args.out, exist_ok=True)
    batch = args.batch or 8 * sizes[0]
    files.write_json(os.path.join(args.out, "model.json"),
                     files.model_json(name, chain.num_layers, kind, items, costs))
    files.write_json(os.path.join(args.out, "job.json"),
                     files.job_json(name, "model.json", kind, args.ranks, batch, args.optimizer))
    files.write_json(os.path.join(args.out, "profile.json"),
                     files.profile_json(f"torch-{name}", about, rows,
                                        note=f"items of '{os.path.basename(args.model)}' in PyTorch, {dtype}"))
    return sizes


def main(argv):
    args = options(argv)
    device = open_device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(args.threads or 1)
    begin = time.monotonic()
    deadline = begin + args.time_limit if args.time_limit else 0
    sizes = sizes_of(args.microbatches)
    source = load(args.model, args.inputs, args.seed)
    source.model.to(device, DTYPES[args.dtype])
    sizes = without_one(sizes, source.model)
    context = context_of(args, device)
    about = describe(device)
    known, keys_of, stopped, chain = {}, {}, None, None
    others, first = others_of(args, device), source.batch(sizes[0])

    def work():
        mean_of(source.loss(source.model(*first[0], **first[1]), first[2])).backward()
    with busy_ranks(others, work):
        costs = runtime_costs(source, args, device, context, sizes[0])
        for size in sizes:
            chain, keys_of[size], stopped = measure_size(source, args, device, size, context, known,
                                                         deadline)
            done = write(args, chain, keys_of, known, about, costs, 1 + others)
            if stopped:
                break
    say("")
    if not done:
        raise BridgeError(f"nothing is measured: {stopped}", code=1)
    last = done[-1]
    distinct = len({k for k in keys_of[last]})
    print(f"{len(chain.items)} items, {distinct} distinct, micro-batches of "
          f"{','.join(map(str, done))} on {about['device_name']}, {about['libraries']}, "
          f"{time.monotonic() - begin:.1f} s")
    for name, users in chain.tied().items():
        print(f"tied: '{name}' in items {' and '.join(chain.items[i].name for i in users)}; "
              "each holds a copy, and their gradients are added")
    print(f"wrote {args.out}/model.json, {args.out}/job.json, {args.out}/profile.json")
    print(f"next: elapse plan {args.out}/job.json -o plan.json; "
          f"elapse profiles import {args.out}/profile.json")
    if stopped:
        raise BridgeError(f"stopped by {stopped}; what was measured is written", code=1)
    return 0
