"""A user's training loop under Elastic on two ranks, beside the same loop in plain PyTorch: losses of each step and the
weights at the end. What a step cannot take into account is refused. Prints `ok NAME` or `not ok NAME` on rank 0.

    loops.py FOLDER [NAME]..."""
import contextlib
import copy
import json
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils import data as feed

import elapse_torch
from elapse_torch.chain import chain_of
from elapse_torch.errors import BridgeError

FOLDER, ONLY = sys.argv[1], sys.argv[2:]
PAIR, TWO = (2, 1), (1, 2)  # pipeline length, replicas
warnings.filterwarnings("ignore")


class Net(nn.Module):
    """body(self, layer, x, number of the layer): what a layer does."""

    def __init__(self, norm=None, out=3, body=None, act=nn.Tanh):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), *([norm(16)] if norm else []), act()) for _ in range(4))
        self.head = nn.Linear(16, out)
        self.register_buffer("scale", torch.ones(1))
        self.alpha, self.body = 1.0, body

    def forward(self, x, y=None, flip=False):
        x = x if y is None else x - 2 * y
        for i, layer in enumerate(self.layers):
            x = self.body(self, layer, x, i) if self.body else layer(x)
        return self.head(-x if flip else x) * (self.scale * 1.0) * self.alpha


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(17, 16)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(4))
        self.head = nn.Linear(16, 17)

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


def numbers(count=32, classes=3):
    draw = torch.Generator().manual_seed(4)
    return [(torch.randn(16, generator=draw), torch.randint(classes, (), generator=draw)) for _ in range(count)]


def words(count=32):
    draw = torch.Generator().manual_seed(3)
    return [(torch.randint(1, 17, (12,), generator=draw),) * 2 for _ in range(count)]


def masked(part):
    """As masked language models: which words are asked for is drawn."""
    ids = torch.stack([p[0] for p in part]).clone()
    hidden = torch.rand(ids.shape) < .3
    hidden[:, 0] = True
    labels = ids.masked_fill(~hidden, -100)
    return ids.masked_fill(hidden, 0), labels


def keywords(part, turn=False, flip=None):
    x, target = feed.default_collate(part)
    found = {"y": x / 2, "x": x} if turn else {"x": x, "y": x / 2}
    return (found if flip is None else dict(found, flip=flip)), target


def adam(model):
    return torch.optim.AdamW(model.parameters(), 1e-2, eps=1e-3)


def split(batch):
    inputs, target = batch
    return ((), inputs, target) if isinstance(inputs, dict) else ((inputs,), {}, target)


def job_of(chain, layout, clip):
    item = {"params": 300, "act_bytes": 768, "stash_bytes": 1536, "fwd_ns": "1ms", "bwd_input_ns": "1ms", "bwd_weight_ns": "1ms"}
    items = [dict(item, name=f"item{i}", layer=made.layer) for i, made in enumerate(chain.items)]
    job = {"name": "loop", "model": "model.json", "train": {"batch": {"per_pipeline": 8 // layout[1]}, "epochs": 1},
           "pipeline": {"num_stages": layout[0], "num_replicas": layout[1], "num_microbatches": 2, "schedule": "1f1b"},
           "data": {"kind": "synthetic", "train_samples": 32}, "cluster": {"nodes": 1, "devices_per_node": 2, "kind": "cpu"}}
    if clip:
        job["train"]["clip_norm"] = clip
    if dist.get_rank() == 0:
        for name, content in (("model", {"name": "loop", "layers": chain.num_layers, "items": items}), ("job", job)):
            with open(f"{FOLDER}/{name}.json", "w", encoding="utf-8") as f:
                json.dump(content, f)
    dist.barrier()


def plain_step(model, optimizer, batches, loss, clip, parts):
    """The whole batch in plain PyTorch; parts: in so many pieces, for batch norm."""
    total, pieces = 0.0, []
    for args, kwargs, target in map(split, batches):
        size = len(target) // parts
        pieces += [([x[i:i + size] for x in args], {k: v[i:i + size] if isinstance(v, torch.Tensor) else v for k, v in
                                                   kwargs.items()}, target[i:i + size]) for i in range(0, len(target), size)]
    counted = sum(int((t != -100).sum()) for *_, t in pieces)
    for args, kwargs, target in pieces:
        found = loss(model(*args, **kwargs), target) / counted
        found.backward()
        total += found.item()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    model.zero_grad()
    return total


def entropy_sum(output, target):
    return F.cross_entropy(output.transpose(1, -1), target, reduction="sum")


def both(model, layout, data=numbers, loss=None, optim=adam, change=None, before=None, collate=None, clip=None, parts=1,
         sets=(), around=contextlib.nullcontext, rate=None):
    """(largest difference of a loss, of a weight or buffer over its largest value) between the two loops."""
    torch.manual_seed(1)
    rows, net, collate = data(), model(), collate or feed.default_collate
    whole, optimizer = copy.deepcopy(net), optim(net)
    if before:
        before(net, optimizer)
    args, kwargs, _ = split(collate([rows[i] for i in range(4 // layout[1])]))
    job_of(chain_of(copy.deepcopy(net), args, kwargs), layout, clip)
    found, batches = [], []
    with elapse_torch.Elastic(net, optimizer, feed.DataLoader(rows, 8, collate_fn=collate), f"{FOLDER}/job.json", loss=loss,
                              overrides=list(sets)) as run:
        schedule = rate and rate(optimizer)
        for batch in run:
            with around():
                told = run.step(batch)
            if schedule:
                schedule.step()
            every = [None] * 2
            dist.all_gather_object(every, (None if told is None else told.item(), run.layout.replica, batch))
            found.append(next(e[0] for e in every if e[0] is not None))
            # Of a pipeline the last rank's batch, whose targets count.
            batches.append([next(e[2] for e in reversed(every) if e[1] == r) for r in range(layout[1])])
            if change:
                change(net, optimizer, len(found))
    optimizer = optim(whole)
    if before:
        before(whole, optimizer)
    schedule, want = rate and rate(optimizer), []
    for several in batches:
        with around():
            want.append(plain_step(whole, optimizer, several, entropy_sum, clip, parts))
        if schedule:
            schedule.step()
        if change:
            change(whole, optimizer, len(want))
    kept = net.state_dict()  # after the loop `net` itself is up to date
    return (max(abs(a - b) for a, b in zip(found, want)),
            max(((kept[n].float() - v.float()).abs().max() / v.float().abs().max().clamp(min=.01)).item()
                for n, v in whole.state_dict().items()))


def tell(name, right, more=""):
    every = [None] * 2
    dist.all_gather_object(every, bool(right))
    if dist.get_rank() == 0:
        print(("ok " if all(every) else "not ok ") + name, more, flush=True)


def equal(name, *args, **more):
    if ONLY and name not in ONLY:
        return
    for layout in (PAIR,) if more.pop("pair", False) else (PAIR, TWO):
        try:
            found = both(args[0], layout, **more)
            tell(f"{name}, K = {layout[0]} R = {layout[1]}", found[0] < 2e-5 and found[1] < 1e-3, "%.1e %.1e" % found)
        except BridgeError as error:
            tell(name, False, f"refused: {error}")


def refused(name, word, *args, layout=PAIR, **more):
    if ONLY and name not in ONLY:
        return
    try:
        both(args[0], layout, **more)
    except BridgeError as error:
        return tell(name, word in str(error), str(error))
    tell(name, False, "was not refused")


def loaded(model, optimizer):
    for p in model.parameters():
        optimizer.state[p] = {"step": torch.tensor(5.0), "exp_avg": torch.full_like(p, .5), "exp_avg_sq": torch.full_like(p, .25)}


def in_step(number, do):
    """A change after this step."""
    return lambda model, optimizer, step: do(model) if step == number else None


def thaws():
    net = Net()
    net.layers[0].requires_grad_(False)
    return net


def hooked(net, module):
    if module:
        net.layers[1].register_full_backward_hook(lambda *_: None)
    else:
        net.head.weight.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    return net


def penalty(model, optimizer, step):
    (1e-3 * sum(p.abs().sum() for p in model.parameters())).backward()


def read(model, optimizer, step):
    model(torch.zeros(2, 16))


class Draws(feed.Dataset):
    """From a generator of its own, which differs by rank."""

    def __init__(self):
        self.rows, self.draw = numbers(), torch.Generator().manual_seed(dist.get_rank())

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i][0] + torch.randn(16, generator=self.draw), self.rows[i][1]


def main():
    batch_norm = lambda: Net(norm=nn.BatchNorm1d)
    equal("running means", batch_norm, parts=2, pair=True)
    equal("running means, and forwards are repeated", batch_norm, parts=2, pair=True, sets=["pipeline.recompute=stage"])
    equal("batch norm that goes to eval mode", batch_norm, parts=2, pair=True, change=in_step(2, lambda m: m.layers.eval()))
    equal("an optimizer with state", Net, before=loaded)
    equal("a learning rate by step", Net, rate=lambda o: torch.optim.lr_scheduler.StepLR(o, 1, .5))
    equal("clipping, of weights that the optimizer lacks", Net, clip=.1, optim=lambda m: torch.optim.SGD(m.head.parameters(), .1))
    equal("a buffer that is filled", Net, change=lambda m, o, step: m.scale.fill_(1 + step))
    equal("a buffer that is replaced", Net, change=in_step(2, lambda m: setattr(m, "scale", torch.full((1,), 3.0))))
    equal("a number of the model's", Net, change=in_step(2, lambda m: setattr(m, "alpha", 3.0)))
    equal("a number of a module's", lambda: Net(act=nn.LeakyReLU), change=in_step(2, lambda m: setattr(m.layers[0][1], "negative_slope", .9)))
    first = numbers()[0][0]
    turned = lambda part: keywords(part, not torch.equal(part[0][0], first))
    equal("keywords in another order", Net, collate=turned)
    equal("words that are hidden at random", Words, data=words, collate=masked, pair=True)
    equal("no gradient", lambda: Net(body=lambda self, layer, x, i: layer(x.detach()) + x if i == 1 else layer(x)))
    equal("straight through", lambda: Net(body=lambda self, layer, x, i: x + (torch.round(layer(x) * 4) / 4 - x).detach()))
    half = lambda: torch.autocast("cpu", dtype=torch.bfloat16)
    equal("autocast, around a model that converts by itself", lambda: Net(body=lambda self, layer, x, i: layer(x).float() + x),
          around=half, parts=2)
    flag = lambda part: keywords(part, flip=not torch.equal(part[0][0], first))
    refused("layers that are trained later, and profiled without", "4 items", thaws, change=in_step(2, lambda m: m.requires_grad_(True)))
    refused("weights in shards", "pipeline.shard=weights", Net, layout=TWO, sets=["pipeline.shard=weights"])
    refused("shards of the optimizer that may be chosen", "pipeline.shard=auto", Net, layout=TWO, sets=["pipeline.shard=auto"])
    refused("a flag that changes", "'flip' is True", Net, collate=flag)
    refused("a backward of the model's own", "'Reversed'", lambda: Net(body=lambda self, layer, x, i: layer(Reversed.apply(x))))
    refused("a module's hook", "backward hook", lambda: hooked(Net(), True))
    refused("a weight's hook", "hook on its gradient", lambda: hooked(Net(), False))
    refused("a mean square that broadcasts", "one shape", lambda: Net(out=1), data=lambda: [(x, y.float()) for x, y in numbers()])
    refused("one class", "one class", lambda: Net(out=1), data=lambda: [(x, y * 0) for x, y in numbers()])
    refused("classes in one of two dimensions", "which dimension", lambda: nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)),
            data=lambda: [(x.expand(16, 16), y.expand(16)) for x, y in numbers()])
    refused("samples that are mixed", "depends on the other samples", lambda: Net(body=lambda self, layer, x, i: layer(x - x.mean(0))))
    refused("a sum that compares samples", "not a sum", lambda: Net(out=16), loss=lambda out, y: (
        F.cross_entropy(out @ out.T, torch.arange(len(out)), reduction="sum"), len(out)))
    refused("a loss and an accuracy", "loss", Net, loss=lambda out, y: (F.cross_entropy(out, y), (out.argmax(1) == y).float().mean() + .1))
    refused("a mean and a count", "not a sum", Net, loss=lambda out, y: (F.cross_entropy(out, y), len(y)))
    refused("a loss that fails", "KeyError", Net, loss=lambda out, y: {}["loss"])
    refused("float16", "scaled loss", Net, around=lambda: torch.autocast("cpu", dtype=torch.float16))
    refused("gradients from before the step", "gradient from before", Net, change=penalty)
    refused("a model that is behind", "are behind those", Net, change=read)
    refused("batches that differ by rank", "different batches", Net, data=Draws)
    resume()


def resume():
    """The learning rate of a checkpoint."""
    if ONLY and "resume" not in ONLY:
        return
    job_of(chain_of(Net(), (torch.zeros(4, 16),)), PAIR, None)
    state = None
    for _ in range(2):
        torch.manual_seed(1)
        net = Net()
        optimizer = adam(net)
        with elapse_torch.Elastic(net, optimizer, feed.DataLoader(numbers(), 8), f"{FOLDER}/job.json") as run:
            if state:
                run.load_state_dict(state)
                tell("a checkpoint's learning rate", optimizer.param_groups[0]["lr"] == .125)
            else:
                optimizer.param_groups[0]["lr"] = .125
                state = copy.deepcopy(run.state_dict())


dist.init_process_group("gloo")
torch.set_num_threads(1)
main()
sys.stdout.flush()
dist.barrier()
os._exit(0)
