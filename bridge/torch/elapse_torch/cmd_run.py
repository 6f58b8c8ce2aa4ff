"""torchrun -m elapse_torch run MODEL.py PLAN.json: a plan of `elapse plan -o`, in PyTorch."""
import argparse
import math
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

from . import files, program
from .chain import chain_of
from .cmd_profile import make_optimizer, to_device, trains_batch_norm
from .device import describe, now_ns, open_device
from .errors import BridgeError
from .layout import Layout, check_plan, read_plan
from .losses import as_sum, joined, mean_of, pieces
from .source import load

WARM_UP = 3
LOOPBACK = next((n for _, n in socket.if_nameindex() if n.startswith("lo")), "lo")


def options(argv):
    p = argparse.ArgumentParser(prog="torchrun -m elapse_torch run")
    p.add_argument("model", metavar="MODEL.py:make_model")
    p.add_argument("plan", metavar="PLAN.json")
    p.add_argument("--inputs", help="one sample, as for profile")
    p.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    p.add_argument("--steps", type=int, default=20, help="measured steps (default 20)")
    p.add_argument("--threads", type=int, default=0, help="of PyTorch on CPU (default 1)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--check", action="store_true",
                   help="compare loss and gradients of a step with those of the whole model")
    p.add_argument("--trace", metavar="FILE", help="Chrome trace of the last step")
    p.add_argument("--out", metavar="FILE", help="losses and step times as JSON")
    p.add_argument("--run-dir", metavar="DIR", help="a run folder for `elapse compare`, `plot timeline`, `report` and "
                   "`calibrate --run`, with the ops of the last step")
    return p.parse_args(argv)


def start(device):
    """Join the ranks that torchrun started."""
    if "RANK" not in os.environ:
        raise BridgeError("no ranks: start with torchrun",
                          hint="torchrun --nproc-per-node 2 -m elapse_torch run MODEL.py PLAN.json")
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE"):
        # One machine: no rank listens on the network.
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
            os.environ.setdefault(name, LOOPBACK)
    # Losses and answers of rank 0 are on the host, so gloo is there beside NCCL.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return device


class Tracer:
    """Start and end of each op of a step, on this rank."""

    METHODS = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}

    def __init__(self, layout, device):
        self.ops, self.device, self.on = [], device, False
        self.split = {(int(s), int(m)) for row in layout.rows for s, op, m in row if op == "I"}
        for stage in layout.torch_stages:
            for name, op in self.METHODS.items():
                if hasattr(stage, name):
                    setattr(stage, name, self._timed(getattr(stage, name), op, stage.stage_index))

    def _timed(self, function, op, index):
        def call(microbatch, *args, **kwargs):
            if not self.on:
                return function(microbatch, *args, **kwargs)
            begin = now_ns(self.device)
            out = function(microbatch, *args, **kwargs)
            kind = "I" if op == "B" and (index, microbatch) in self.split else op
            self.ops.append((kind, index, microbatch, begin, now_ns(self.device)))
            return out
        return call


def chrome(ops_of_ranks):
    """A Chrome trace, a row a rank. Clocks of one machine."""
    first = min((op[3] for ops in ops_of_ranks for op in ops), default=0)
    events = []
    for rank, ops in enumerate(ops_of_ranks):
        events.append({"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}})
        events += [{"name": f"{kind}{mb}", "cat": kind, "ph": "X", "pid": rank, "tid": 0,
                    "ts": (begin - first) / 1e3, "dur": (end - begin) / 1e3,
                    "args": {"stage": stage, "microbatch": mb}}
                   for kind, stage, mb, begin, end in ops]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def counted_gradients(model, source, batches, shares, sizes):
    """(loss, {name: gradient}) of micro-batches one by one, each added to the weights that it counts for."""
    grads, total, number = {}, 0.0, 0.0
    for i, (a, k, target) in enumerate(batches):
        found, count, _ = as_sum(source.loss(model(*a, **k), target), sizes[i])
        own = dict(zip(dict(model.named_parameters()), torch.autograd.grad(found, list(model.parameters()), allow_unused=True)))
        total, number = total + found.item(), number + count
        for name, grad in own.items():
            if grad is not None and name not in shares.out[i % shares.count]:
                grads[name] = grads[name] + grad if name in grads else grad
    return total / number, {n: g * (shares.factor(n) / number) for n, g in grads.items()}


def whole_model(source, args, device, batches, shares=None):
    """(loss, {name: gradient}, whether all samples went through at once) of the whole model for the whole batch of all
    replicas: [(args, kwargs, target)] of micro-batches. Batch norm has the statistics of each micro-batch in any plan,
    so a model with it gets them one by one; the loss is of all outputs at once."""
    model = load(args.model, args.inputs, args.seed).model.to(device)
    sizes = [next(x.shape[0] for x in torch.utils._pytree.tree_leaves(b) if isinstance(x, torch.Tensor)) for b in batches]
    at_once = not trains_batch_norm(model)
    if shares:
        return (*counted_gradients(model, source, batches, shares, sizes), at_once)
    inputs = joined(batches, sizes)
    if inputs is None:
        raise BridgeError("--check: an input or target of the model has no dimension of samples", code=1)
    if at_once:
        out = model(*inputs[0], **inputs[1])
    else:
        out = joined([model(*a, **k) for a, k, _ in batches], sizes)
    loss = mean_of(source.loss(out, inputs[2]))
    loss.backward()
    return loss.item(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, at_once


def apart(grad, ref, largest):
    """The largest difference of a gradient over its largest value. A gradient that is the rounding of the model's largest
    one, as that of a bias of keys, which softmax takes away, is compared with that one."""
    scale = ref.abs().max().item()
    if scale <= torch.finfo(ref.dtype).eps * largest:
        scale = largest
    return (grad - ref).abs().max().item() / max(scale, 1e-12)


def compare(layout, source, args, device, batches, loss):
    """(difference of the loss from the whole model's, the largest difference of a gradient over its largest value,
    whether all samples went through the whole model at once)."""
    size, count = layout.plan["microbatch_size"], layout.plan["microbatches"]
    want, grads, at_once = whole_model(source, args, device, [p for b in batches for p in pieces(b, size, count)],
                                       layout.shares)
    worst, largest = 0.0, max((g.abs().max().item() for g in grads.values()), default=0.0)
    for name, p in layout.weights.items():
        ref = grads[name] if name in grads else torch.zeros(())
        if p.grad is None:
            worst = max(worst, float(name in grads))
            continue
        grad = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
        worst = max(worst, apart(grad, ref, largest))
    mine = torch.tensor([math.inf if loss is None else loss.item(), worst], dtype=torch.float64)
    every = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return min(e[0].item() for e in every) - want, max(e[1].item() for e in every), at_once


def run(args):
    device = open_device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(args.threads or 1)
    if args.run_dir:
        files.check_run_folder(args.run_dir)
    device = start(device)
    plan = read_plan(args.plan)
    check_plan(plan, None, dist.get_world_size())
    if plan.get("frozen_layers"):
        raise BridgeError("the plan has frozen layers, which elapse_torch.Elastic runs", code=1)
    source = load(args.model, args.inputs, args.seed)
    source.model.to(device)
    torch.manual_seed(args.seed)
    sample = to_device(source.batch(plan["microbatch_size"]), device, torch.float32)
    layout = Layout(plan, chain_of(source.model, *sample[:2]), device, source.loss)
    kind = plan["job"]["train"]["optimizer"]["kind"] if "job" in plan else "adamw"
    optimizer = make_optimizer(kind)(list(layout.weights.values()))
    tracer = Tracer(layout, device)
    # Every rank draws the batches of all replicas, so that it knows its own.
    batches = [to_device(source.batch(plan["batch"]), device, torch.float32)
               for _ in range(plan["replicas"])]
    own = batches[layout.replica]
    losses, times, difference = [], [], None
    for step in range(WARM_UP + args.steps):
        tracer.on = bool(args.trace or args.run_dir) and step == WARM_UP + args.steps - 1
        begin = now_ns(device)
        loss = layout.forward_backward(*own, step=step)
        if step == 0 and args.check:
            difference = compare(layout, source, args, device, batches, loss)
        if plan.get("clip"):
            layout.clip(plan["job"]["train"]["clip_norm"])
        optimizer.step()
        optimizer.zero_grad()
        times.append(now_ns(device) - begin)
        losses.append(float("nan") if loss is None else loss.item())
    return report(args, plan, layout, times, losses, difference, tracer)


def report(args, plan, layout, times, losses, difference, tracer):
    world = dist.get_world_size()
    gathered = [None] * world
    dist.all_gather_object(gathered, (times, losses, tracer.ops))
    places = [None] * world
    dist.all_gather_object(places, (layout.replica, layout.place))
    if dist.get_rank() != 0:
        return 0
    # Ranks end a step apart; the mean over steps is the same for all of them.
    measured = max(files.percentile(t[WARM_UP:], .5) for t, _, _ in gathered)
    ends = [x for _, x, _ in gathered if x[0] == x[0]]
    loss = [sum(e[i] for e in ends) / len(ends) for i in range(len(times))]
    predicted = plan["step_ns"]
    error = predicted / measured - 1
    print(f"K = {layout.length}, R = {layout.replicas}, M = {plan['microbatches']} x "
          f"{plan['microbatch_size']}, {plan['schedule']}, cut {plan['cut']}")
    print(f"step: predicted {predicted / 1e6:.2f} ms, measured {measured / 1e6:.2f} ms, "
          f"error {100 * error:+.1f} % (median of {args.steps})")
    print(f"loss: {loss[0]:.5f} at first, {loss[-1]:.5f} after {len(loss)} steps")
    if difference:
        print(f"whole model: loss differs by {difference[0]:.1e}, gradients by at most "
              f"{difference[1]:.1e} of their largest value" +
              ("" if difference[2] else " (batch norm: statistics of each micro-batch, as in the plan)"))
    if args.trace:
        files.write_json(args.trace, chrome([ops for _, _, ops in gathered]))
    slowest = [max(t[i] for t, _, _ in gathered) for i in range(len(times))]
    if args.run_dir:
        files.write_run(args.run_dir, plan, describe(layout.device), slowest, loss,
                        [(*place, ops) for place, (_, _, ops) in zip(places, gathered)])
        program.ask("runs", "import", f"{args.run_dir}/run.json", "--db", f"{args.run_dir}/run.db")
    if args.out:
        files.write_json(args.out, {
            "predicted_step_ns": predicted, "measured_step_ns": measured, "error": error,
            "losses": loss, "step_ns": slowest,
            "loss_difference": difference and difference[0],
            "gradient_difference": difference and difference[1]})
    return 0


def main(argv):
    args = options(argv)
    try:
        code = run(args)
    except BridgeError:
        # Every rank has found it; one tells.
        if int(os.environ.get("RANK", 0)) != 0:
            time.sleep(1)
            os._exit(2)
        raise
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.stdout.flush()
    return code
