"""A plan of `elapse` as stages, groups and a schedule of torch.distributed.pipelining."""
import inspect
import json
import re

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from . import program
from .errors import BridgeError
from .losses import StepLoss, whole_batch
from .runtime import load_ops
from .shares import Shares
from .split import SplitStage


def read_plan(path):
    try:
        with open(path, encoding="utf-8") as f:
            plan = json.load(f)
    except OSError as error:
        raise BridgeError(f"cannot read plan '{path}': {error.strerror}", code=3) from None
    except ValueError as error:
        raise BridgeError(f"plan '{path}' is no JSON: {error}") from None
    for key in ("pipeline_length", "replicas", "microbatches", "microbatch_size", "batch", "chunks",
                "schedule", "cut", "devices", "step_ns"):
        if key not in plan:
            raise BridgeError(f"plan '{path}' has no '{key}'", hint="write it by `elapse plan -o`")
    return plan


def check_plan(plan, chain, world, idle=False):
    """Refuse what the package cannot run, by name. idle: ranks may be left over."""
    used = plan["pipeline_length"] * plan["replicas"] * plan.get("tensor", 1)
    if plan.get("tensor", 1) > 1 or plan.get("expert", 1) > 1:
        raise BridgeError("the plan has tensor or expert groups, which PyTorch is not given here",
                          code=1, hint="plan with pipeline.tensor=1 and pipeline.expert=1")
    if used != world and not idle:
        raise BridgeError(f"the plan uses {used} ranks (K = {plan['pipeline_length']}, R = "
                          f"{plan['replicas']}), torchrun started {world}", code=3,
                          hint=f"torchrun --nproc-per-node {used}")
    named = {d for row in plan["devices"] for d in row}
    if len(named) != used or not named <= set(range(world)):
        raise BridgeError(f"the plan's devices are not among 0..{world - 1}", code=1)
    if chain and sum(plan["cut"]) != len(chain.items) - chain.frozen_items(plan):
        raise BridgeError(f"the plan cuts {sum(plan['cut'])} items, the model has "
                          f"{len(chain.items)}, {chain.frozen_items(plan)} of them frozen", code=1,
                          hint="profile and plan this model again")
    if plan.get("recompute", "never") not in ("never", "stage", "always", "except-last", "layer"):
        raise BridgeError(f"recompute '{plan['recompute']}' has no form in PyTorch here", code=1,
                          hint="plan with pipeline.recompute=never or stage")
    if plan["batch"] != plan["microbatches"] * plan["microbatch_size"]:
        raise BridgeError(f"a batch of {plan['batch']} is not {plan['microbatches']} micro-batches "
                          f"of {plan['microbatch_size']}", code=1)


GROUPS = {}


def group_of(ranks):
    """The group of these ranks, made once: gloo of PyTorch 2.11 cannot make one again that was
    destroyed. Collective over all ranks."""
    key = tuple(sorted(ranks))
    if key not in GROUPS:
        dist.barrier()  # It fails at once if a rank has ended. new_group() would wait for half an hour.
        GROUPS[key] = dist.new_group(key)
    return GROUPS[key]


def digest(tree):
    """A number by which ranks see whether they have one batch: of at most 4096 values of each tensor, exact."""
    total = 0
    for x in torch.utils._pytree.tree_leaves(tree):
        if isinstance(x, torch.Tensor) and x.numel():
            x = x.detach().reshape(-1)[::max(1, x.numel() // 4096)].contiguous()
            if x.dtype.is_floating_point:
                x = x.double().view(torch.int64)
            elif x.dtype.is_complex:
                continue
            weights = torch.arange(1, len(x) + 1, device=x.device) * 2654435761 + 1
            total = (total * 31 + int((x.long() * weights).sum())) % (1 << 40)
    return float(total)


class Prefixed(nn.Module):
    """The first stage after frozen items. prefix(inputs) gives what they put out."""

    def __init__(self, prefix, stage):
        super().__init__()
        self.prefix, self.stage = prefix, stage

    def forward(self, *_, **inputs):
        return self.stage(*self.prefix(inputs), **inputs)


class Whole:
    """A stage that is the whole pipeline. It needs no messages, so it runs without PyTorch's runtime, which
    takes longer for each op. The methods are named as those of PipelineStage, which cmd_run traces."""

    stage_index = 0

    def __init__(self, stage, loss):
        self.stage, self.loss, self.losses = stage, loss, {}

    def forward_one_chunk(self, microbatch, keywords):
        self.losses[microbatch] = self.loss.part(self.stage(**keywords), microbatch)

    def backward_one_chunk(self, microbatch):
        loss = self.losses.pop(microbatch)
        if loss.requires_grad:  # not where all weights are left out
            loss.backward()

    def step(self, ops, count, keywords):
        """ops: [(F or B, micro-batch)] in order."""
        parts = list(zip(*[x.chunk(count) if isinstance(x, torch.Tensor) and x.ndim else [x] * count
                           for x in keywords.values()]))
        for op, m in ops:
            if op == "F":
                self.forward_one_chunk(m, dict(zip(keywords, parts[m])))
            else:
                self.backward_one_chunk(m)


class Layout:
    """What this rank holds of a plan. Collective over all ranks.

    stages: {index: Stage}; weights: {name: parameter} that these stages train. Items before `base`
    are frozen and run in the first stage. A rank that the plan does not use has no stages."""

    def __init__(self, plan, chain, device, loss, prefix=None, idle=False):
        """chain: for one micro-batch. loss(output, target): (sum, count), or a mean over samples (losses.py).
        prefix(inputs): what the frozen items put out. idle: the plan may leave ranks over."""
        self.plan, self.device, self.chain = plan, device, chain
        self.loss = StepLoss(loss, chain.output, plan)
        check_plan(plan, chain, dist.get_world_size(), idle)
        rank = dist.get_rank()
        self.length, self.replicas = plan["pipeline_length"], plan["replicas"]
        self.replica, self.place = next(((r, row.index(rank)) for r, row in
                                         enumerate(plan["devices"]) if rank in row), (None, None))
        self.pipe = self.across = None
        for row in plan["devices"]:
            group = group_of(row)
            if rank in row:
                self.pipe = group
        for k in range(self.length):
            ranks = [row[k] for row in plan["devices"]]
            group = group_of(ranks)
            if rank in ranks:
                self.across = group
        used = [rank for row in plan["devices"] for rank in row]
        self.used = group_of(used) if len(used) > 1 else None
        text = plan.get("order") or program.op_csv(plan["schedule"], self.length, plan["microbatches"], plan["chunks"])
        self.rows = [[re.match(r"(\d+)([A-Z]+)(\d+)", op).groups() for op in
                      re.findall(r"\d+[A-Z]+\d+", line)] for line in text.splitlines()]
        self.owner = {int(s): k for k, row in enumerate(self.rows) for s, _, _ in row}
        self.base = chain.frozen_items(plan)
        bounds = [self.base]
        for n in plan["cut"]:
            bounds.append(bounds[-1] + n)
        self.bounds = bounds
        mine = [s for s in range(len(plan["cut"])) if self.owner[s] == self.place]
        again = plan.get("recompute", "never") != "never"
        self.stages = {s: self.chain.stage(bounds[s], bounds[s + 1], again) for s in mine}
        self.weights = {}
        for s in mine:
            self.weights.update(self.chain.weights(bounds[s], bounds[s + 1]))
        if 0 in self.stages and self.base:
            # A weight that the prefix reads and a later item trains must follow the later item.
            trained = self.chain.weights(self.base, len(self.chain.items))
            self.weights.update({n: p for n, p in self.chain.weights(0, self.base).items()
                                 if n in trained})
            self.stages[0] = Prefixed(prefix or self.compute_prefix, self.stages[0])
        self._tie()
        self.schedule = None
        job = plan.get("job", {})
        self.shares = Shares(plan, chain, bounds, job.get("freeze", {}), int(job.get("train", {}).get("seed", 0))) \
            if any(map(any, plan.get("shares", ()))) else None
        if self.stages:
            # A group orders its ranks by number, whatever the plan's order is.
            row = plan["devices"][self.replica]
            lines = [line for _, line in sorted(zip(row, text.splitlines()))]
            self._make_schedule("\n".join(lines) + "\n")
            for stage in self.torch_stages if self.shares else ():
                self.shares.guard(stage)

    def compute_prefix(self, inputs):
        if not hasattr(self, "frozen_stage"):
            self.frozen_stage = self.chain.stage(0, self.base)
        with torch.no_grad():
            out = self.frozen_stage(**inputs)
        return (out,) if isinstance(out, torch.Tensor) else tuple(out)

    def place_of(self, item):
        """The rank of a pipeline that runs an item."""
        stage = max(s for s in range(len(self.plan["cut"])) if s == 0 or self.bounds[s] <= item)
        return self.owner[stage]

    def _tie(self):
        """Groups of ranks whose stages read one parameter that is trained."""
        self.tied = []
        for name, items in self.chain.tied().items():
            places = sorted({self.place_of(i) for i in items})
            if len(places) > 1 and items[-1] >= self.base:
                for row in self.plan["devices"]:
                    ranks = [row[k] for k in places]
                    group = group_of(ranks)
                    if dist.get_rank() in ranks:
                        self.tied.append((name, group, len(places)))

    def _make_schedule(self, text):
        shard = self.plan.get("shard", "none") != "none" and self.replicas > 1
        # DDP expects a backward after each forward, and no split backward. Schedules have neither.
        self.sum_here = self.replicas > 1 and not shard
        # FSDP averages the gradients of replicas.
        self.divided = self.replicas if shard else 1
        held, count = [], self.plan["microbatches"]
        if len(self.plan["cut"]) == 1 and not shard and all(op in "FB" for _, op, _ in self.rows[0]):
            self.schedule = Whole(self.stages[0], self.loss)
            self.torch_stages = [self.schedule]
            return
        # The runtime would divide the gradients of each stage by M, and twice those of a parameter
        # that two stages of a rank share. The losses are divided instead.
        for index, stage in self.stages.items():
            if shard:
                from torch.distributed.device_mesh import DeviceMesh
                from torch.distributed.fsdp import fully_shard
                # It puts parameters of its own, which are divided, in the place of the model's.
                whole = {id(p): n for n, p in self.weights.items()}
                name_of = {n: whole[id(p)] for n, p in stage.named_parameters()}
                fully_shard(stage, mesh=DeviceMesh.from_group(self.across, self.device.type))
                self.weights.update({name_of[n]: p for n, p in stage.named_parameters()})
            held.append(SplitStage(stage, index, len(self.plan["cut"]), self.device, group=self.pipe))
        self.torch_stages = held
        self.schedule = _PipelineScheduleRuntime(
            held, count, scale_grads=False, loss_fn=self.loss.part)
        load_ops(self.schedule, text)
        if self.device.type == "cpu":
            # It connects by itself. PyTorch 2.11 would send to neighbours, and fail where a stage's
            # neighbour is on its own rank, as in zb-v.
            for stage in held:
                stage._get_init_p2p_neighbors_ops = list
        takes = inspect.signature(self.schedule.step).parameters
        self.options = {"return_outputs": False} if "return_outputs" in takes else {}

    def forward_backward(self, args, kwargs, target, step=0, ramp=1.0, **more):
        """Gradients of the loss of the whole batch, of all replicas. Returns that loss on ranks with the last stage,
        else None. step, ramp: for shares. more: inputs of the prefix. Collective over the ranks of the plan."""
        if not self.schedule:
            return None
        if self.shares:
            self.shares.begin(step, ramp)
        keywords = self.chain.keywords(args, kwargs)
        self._check_shapes(keywords)
        keywords.update(more)
        count, last = self.plan["microbatches"], len(self.plan["cut"]) - 1 in self.stages
        self.digest = digest((args, kwargs, target))
        self.loss.begin(target if last else None)
        if isinstance(self.schedule, Whole):
            self.schedule.step([(op, int(m)) for _, op, m in self.rows[0]], count, keywords)
        else:
            # A target is the number of its micro-batch, because the runtime divides tensors only.
            self.schedule.step(target=torch.arange(count) if last else None, losses=[] if last else None,
                               **self.options, **keywords)
        loss, counted = self._agree()
        for name, _, _ in self.tied:
            if self.weights[name].grad is None:
                self.weights[name].grad = torch.zeros_like(self.weights[name])
        scale = self.loss.base * self.divided / counted if counted else 1.0
        if self.sum_here:
            self._sum(scale)
        elif scale != 1:
            for p in self.weights.values():
                if p.grad is not None:
                    p.grad.mul_(scale)
        for name, group, _ in self.tied:
            dist.all_reduce(self.weights[name].grad, group=group)
        if self.shares:
            self.shares.end(self.weights)
        return torch.tensor(loss) if last else None

    def _check_shapes(self, keywords):
        """The model is cut for one shape of each input."""
        size, batch = self.plan["microbatch_size"], self.plan["batch"]
        for node, (name, x) in zip(self.chain.inputs, keywords.items()):
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor) or not isinstance(x, torch.Tensor):
                continue
            if not value.ndim or value.shape[0] != size:
                raise BridgeError(f"input '{node.name}' of shape {tuple(value.shape)} has no dimension of the {size} samples "
                                  "of a micro-batch", hint="make it from inputs that have one, in the model's forward")
            if (batch, *value.shape[1:]) != tuple(x.shape):
                raise BridgeError(f"input '{node.name}' has the shape {tuple(x.shape)}, the model was cut for "
                                  f"{(batch, *value.shape[1:])}", hint="pad all batches to one shape (collate_fn)")

    def _agree(self):
        """(loss, count) of the whole batch, on all ranks of the plan."""
        mine, failed = self.loss.end()
        rows = [mine + [float(failed is not None), self.digest]]
        # (sum, count, labels ..., failed, digest): the last two are not of the loss.
        if self.used is not None:
            found = [torch.zeros(len(rows[0]), dtype=torch.float64) for _ in range(self.replicas * self.length)]
            dist.all_gather(found, torch.tensor(rows[0], dtype=torch.float64), group=self.used)
            rows = [f.tolist() for f in found]
            if any(r[-2] for r in rows):
                every = [None] * len(rows)
                dist.all_gather_object(every, failed and (str(failed), failed.hint), group=self.used)
                text, hint = next(e for e in every if e)
                told = BridgeError(text, hint=hint)
                told.__cause__, failed = failed and failed.__cause__, told
            ranks = sorted(d for row in self.plan["devices"] for d in row)
            for row in self.plan["devices"]:
                if not failed and len({rows[ranks.index(d)][-1] for d in row}) > 1:
                    failed = BridgeError("the ranks of one pipeline have different batches", hint="draw by the generators of "
                                         "torch, random or numpy, in the data set or collate_fn, and not in the loop")
        if failed:
            raise failed
        return whole_batch(rows)

    def _sum(self, scale):
        """Add the gradients of all replicas."""
        grads = [p.grad for p in self.weights.values() if p.grad is not None]
        if not grads:
            return
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat, group=self.across)
        flat *= scale
        at = 0
        for g in grads:
            g.copy_(flat[at:at + g.numel()].view_as(g))
            at += g.numel()

    def clip(self, most):
        """Scale gradients down to a global norm."""
        if not self.schedule:
            return
        times = {name: count for name, _, count in self.tied}
        total = sum((p.grad.float().square().sum() / times.get(name, 1)
                     for name, p in self.weights.items() if p.grad is not None),
                    torch.zeros((), device=self.device))
        dist.all_reduce(total, group=self.pipe)
        scale = (most / (total.sqrt() + 1e-6)).clamp(max=1.0)
        for p in self.weights.values():
            if p.grad is not None:
                p.grad.mul_(scale)
