"""The loss of a step is the whole batch's, on two ranks: losses and gradients of layouts beside those of the whole batch
in one piece, losses that are refused, and what Elastic takes from a loader. Prints `ok NAME` or `not ok NAME` on rank 0."""
import copy
import itertools
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
from elapse_torch import losses
from elapse_torch.chain import chain_of
from elapse_torch.errors import BridgeError
from elapse_torch.layout import Layout

VOCAB, SEQ = 17, 12
CPU = torch.device("cpu")
warnings.filterwarnings("ignore")


class Net(nn.Module):
    """Scores of the next token. own: the loss that it returns for labels."""

    def __init__(self, own=None, dropout=0.0):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 16)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(dropout)) for _ in range(3))
        self.head = nn.Linear(16, VOCAB)
        self.own = own

    def forward(self, input_ids, labels=None):
        x = self.emb(input_ids)
        for layer in self.layers:
            x = x + layer(x)
        logits = self.head(x)
        if self.own is None:
            return logits
        return {"logits": logits} if labels is None else {"loss": self.own(logits, labels), "logits": logits}


class Answers(Net):
    """Where an answer begins. Positions outside do not count."""

    def forward(self, input_ids, start_positions=None):
        scores = super().forward(input_ids)[:, :, 0]
        if start_positions is None:
            return {"logits": scores}
        return {"loss": F.cross_entropy(scores, start_positions.clamp(0, SEQ), ignore_index=SEQ), "logits": scores}


class Pair(Net):
    """The mean over the labels, and another one over the samples."""

    def forward(self, input_ids, labels=None, next_label=None):
        logits = super().forward(input_ids)
        return {"loss": shifted(logits, labels) + F.cross_entropy(logits[:, 0, :2], next_label), "logits": logits}


class Picture(nn.Module):
    """Batch norm that must stay in eval mode, and dropout."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(.5)) for _ in range(4))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def flat(logits, labels):
    return logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)


def shifted(logits, labels):
    return F.cross_entropy(*flat(logits[:, :-1], labels[:, 1:]))


def smoothed(logits, labels):
    return F.cross_entropy(*flat(logits, labels), label_smoothing=.1)


def plan_of(length, replicas, parts, size, cut, schedule="1f1b"):
    return {"pipeline_length": length, "replicas": replicas, "microbatches": parts, "microbatch_size": size, "step_ns": 1,
            "batch": parts * size, "chunks": 1, "schedule": schedule, "cut": cut,
            "devices": [list(range(r * length, (r + 1) * length)) for r in range(replicas)]}


def rows(count, kept, seed=5):
    """(ids, labels): of sample i the first kept[i] labels count."""
    draw = torch.Generator().manual_seed(seed)
    ids, labels = (torch.randint(VOCAB, (count, SEQ), generator=draw) for _ in range(2))
    for i in range(count):
        labels[i, kept[i % len(kept)]:] = -100
    return ids, labels


def apart(model, loss, args, kwargs, target, plan):
    """(of the loss, of the gradients) the largest difference of a layout from the whole batch."""
    whole, size = copy.deepcopy(model), plan["microbatch_size"]
    one = losses.pieces((args, kwargs), size, plan["microbatches"] * plan["replicas"])[0]
    layout = Layout(plan, chain_of(model, *one), CPU, loss)
    own = losses.pieces((args, kwargs, target), plan["batch"], plan["replicas"])[layout.replica]
    told = layout.forward_backward(*own)
    want = losses.mean_of(loss(whole(*args, **kwargs), target))
    want.backward()
    grads = {n: p.grad for n, p in whole.named_parameters()}
    mine = {n: p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for n, p in layout.weights.items()}
    worst = max((g - grads[n]).abs().max().item() for n, g in mine.items())
    found = [None] * 2
    dist.all_gather_object(found, (0 if told is None else abs(told.item() - want.item()), worst))
    for p in model.parameters():
        p.grad = None
    return max(f[0] for f in found), max(f[1] for f in found)


def tell(name, right, more=""):
    if dist.get_rank() == 0:
        print(("ok " if right else "not ok ") + name, more, flush=True)


def equal(name, *args):
    found = apart(*args)
    tell(name, found[0] < 1e-5 and found[1] < 1e-5, "%.1e %.1e" % found)


def refused(name, word, function):
    try:
        function()
    except BridgeError as error:
        return tell(name, word in str(error), str(error))
    tell(name, False, "was not refused")


def layouts():
    pair = plan_of(2, 1, 4, 2, [2, 3])
    two = plan_of(1, 2, 2, 2, [5])
    for plan, what in ((pair, "K = 2"), (two, "R = 2"), (dict(two, shard="weights"), "R = 2 with FSDP")):
        ids, labels = rows(8, [1, 12, 2, 11, 3])
        equal(f"unequal counts, {what}", Net(), losses.default_loss, (ids,), {}, labels, plan)
        labels[2:4] = -100
        equal(f"a micro-batch that counts nothing, {what}", Net(), losses.default_loss, (ids,), {}, labels, plan)
        labels[:] = -100
        equal(f"a batch that counts nothing, {what}", Net(), losses.default_loss, (ids,), {}, labels, plan)
        for own in (shifted, smoothed):
            ids, labels = rows(8, [2, 12, 3, 11, 4])
            batch = {"input_ids": ids, "labels": labels}
            model = Net(own)
            gets_all, loss = losses.loss_for(model, batch)
            tell(f"{own.__name__}: the model's own loss, {what}", gets_all, loss.over)
            equal(f"{own.__name__}: the whole batch's", model, loss, (), batch, labels, plan)
            labels[2:4] = -100
            equal(f"{own.__name__}: a micro-batch that counts nothing", model, loss, (), batch, labels, plan)
        per_sample = lambda out, want: F.cross_entropy(out.transpose(1, 2), want, reduction="none").sum(1).mean()
        ids, labels = rows(8, [1, 12, 2, 11])
        equal(f"a mean over samples, {what}", Net(), per_sample, (ids,), {}, labels, plan)
        ids, labels = rows(8, [5])
        mean = lambda out, want: F.cross_entropy(*flat(out, want))
        equal(f"a mean over equal counts, {what}", Net(), mean, (ids,), {}, labels, plan)
        ids, uneven = rows(8, [12, 12, 2, 11, 3])
        weights = torch.linspace(.1, 5, VOCAB)
        for name, loss, target in (
                ("a mean over unequal counts", mean, uneven),
                ("weights of classes", lambda out, want: F.cross_entropy(*flat(out, want), weight=weights), labels),
                ("a sum", lambda out, want: F.cross_entropy(*flat(out, want), reduction="sum"), labels),
                ("another ignored target", lambda out, want: F.cross_entropy(*flat(out, want), ignore_index=0), uneven.clamp(min=0)),
                ("no scalar", lambda out, want: F.cross_entropy(*flat(out, want), reduction="none"), labels)):
            refused(f"{name}, {what}", "loss", lambda: apart(Net(), loss, (ids,), {}, target, plan))
    half = plan_of(1, 2, 1, 4, [5])
    ids, labels = rows(8, [4] * 4 + [9] * 4)
    refused("replicas with unequal counts", "loss", lambda: apart(
        Net(), lambda out, want: F.cross_entropy(*flat(out, want)), (ids,), {}, labels, half))
    torch.manual_seed(2)
    picture = Picture()
    picture.layers.eval()
    equal("modules in eval mode stay there", picture, losses.default_loss, (torch.randn(8, 16),), {},
          torch.randint(3, (8,)), dict(pair, cut=[4, 5]))


def weightless(model):
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    return model


def own_losses():
    ids, labels = rows(4, [12])
    batch = {"input_ids": ids, "labels": labels}
    found = losses.loss_for(weightless(Net(shifted)), batch)[1]
    tell("a head of zeros", found.over == "counted labels but the first of each sample", found.over)
    refused("labels that no model takes", "labels", lambda: losses.loss_for(Net(), batch))
    refused("an own loss that is no mean", "own loss", lambda: losses.loss_for(
        Net(lambda out, want: F.cross_entropy(*flat(out, want)) ** 2), batch))
    contrast = {"input_ids": ids, "labels": torch.rand(4, SEQ)}
    refused("an own loss between samples", "own loss", lambda: losses.loss_for(
        Net(lambda out, want: F.cross_entropy(out[:, 0] @ out[:, 0].T, torch.arange(len(out)))), contrast))
    tell("an own loss of floats", losses.loss_for(Net(lambda out, want: F.mse_loss(out[:, :, 0], want)), contrast)[1].over == "samples")
    few = labels.clone()
    few[:2] = -100
    tell("a first batch whose half counts nothing", losses.loss_for(Net(shifted), {"input_ids": ids, "labels": few})[1].over
         == "counted labels but the first of each sample")
    refused("a second target", "next_label", lambda: losses.loss_for(Pair(), {**batch, "next_label": torch.arange(4) % 2}))
    refused("positions that may lie outside", "own loss", lambda: losses.loss_for(
        Answers(), {"input_ids": ids, "start_positions": torch.arange(4)}))
    tell("a loss of the user's comes first", losses.loss_for(Net(shifted), batch, smoothed) == (False, smoothed))


class Rows(feed.Dataset):
    def __init__(self, count=32):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.full((SEQ,), i % VOCAB), torch.full((SEQ,), i % VOCAB)


class Given(feed.Sampler):
    """A sampler of this length that gives these numbers."""

    def __init__(self, length, numbers):
        self.length, self.numbers = length, numbers

    def __len__(self):
        return self.length

    def __iter__(self):
        return iter(self.numbers)


class Stream(feed.IterableDataset):
    def __iter__(self):
        return iter(Rows())


def loaders(folder):
    item = {"params": 300, "act_bytes": 768, "stash_bytes": 1536, "fwd_ns": "1ms", "bwd_input_ns": "1ms", "bwd_weight_ns": "1ms"}
    items = [dict(item, name=n, layer=i) for n, i in (("emb", -1), ("layer", 0), ("layer", 1), ("layer", 2), ("head", 3))]
    job = {"name": "five", "model": "model.json", "train": {"batch": {"per_pipeline": 8}, "epochs": 1},
           "pipeline": {"num_stages": 2, "num_replicas": 1, "num_microbatches": 2, "schedule": "1f1b"},
           "data": {"kind": "synthetic", "train_samples": 64}, "cluster": {"nodes": 1, "devices_per_node": 2, "kind": "cpu"}}
    if dist.get_rank() == 0:
        for name, content in (("model", {"name": "five", "layers": 3, "items": items}), ("job", job)):
            with open(f"{folder}/{name}.json", "w", encoding="utf-8") as f:
                json.dump(content, f)
    dist.barrier()

    def samples(loader, model=None, **more):
        model = model or Net()
        seen = []
        with elapse_torch.Elastic(model, torch.optim.SGD(model.parameters(), .1), loader, f"{folder}/job.json", **more) as run:
            for batch in run:
                run.step(batch)
                seen += run.samples
        return seen
    make = feed.DataLoader
    tell("in order, as the loader", samples(make(Rows(), 8)) == list(range(32)))
    mixed = samples(make(Rows(), 8, shuffle=True))
    tell("shuffled, as the loader", sorted(mixed) == list(range(32)) != mixed)
    tell("shuffle=False", samples(make(Rows(), 8, shuffle=True), shuffle=False) == list(range(32)))
    tell("a subset", set(samples(make(Rows(), 8, sampler=feed.SubsetRandomSampler(range(16))))) == set(range(16)))
    weighted = feed.WeightedRandomSampler([1.0] * 4 + [0.0] * 28, 16)
    tell("weights of samples", len(samples(make(Rows(), 8, sampler=weighted))) == 16 and max(samples(make(Rows(), 8, sampler=weighted))) < 4)
    tell("drop_last", len(samples(make(Rows(30), 8, drop_last=True))) == 24)
    tell("a dict of another kind", len(samples(make(Rows(), 8, collate_fn=lambda part: feed.default_collate(
        [{"input_ids": x, "labels": y} for x, y in part])), Net(shifted))) == 32)
    for name, word, loader in (
            ("a rest", "drop_last", lambda: make(Rows(30), 8)),
            ("fewer samples than a step", "a step has 8", lambda: make(Rows(5), 8)),
            ("a batch_sampler", "batch_sampler", lambda: make(Rows(), batch_sampler=[[i] for i in range(32)])),
            ("no batches", "batch_size=None", lambda: make(Rows(), batch_size=None)),
            ("a stream", "IterableDataset", lambda: make(Stream(), 8)),
            ("a DistributedSampler", "DistributedSampler", lambda: make(Rows(), 8, sampler=feed.DistributedSampler(Rows(), 2, 0))),
            ("a sampler without end", "gives more samples", lambda: make(Rows(), 8, sampler=Given(32, itertools.cycle(range(32))))),
            ("a sampler that ends early", "gives 9 samples", lambda: make(Rows(), 8, sampler=Given(16, range(9)))),
            ("samples that are not there", "the number 99", lambda: make(Rows(), 8, sampler=Given(8, [99] * 8))),
            ("pairs of samples", "is no number", lambda: make(Rows(), 8, sampler=Given(8, [(0, 1)] * 8))),
            ("no loader", "DataLoader", lambda: [1, 2])):
        refused(f"loader: {name}", word, lambda: samples(loader()))
    ragged = lambda part: (torch.stack([x for x, _ in part])[:, :SEQ - int(part[0][0][0] % 2)],
                           torch.stack([y for _, y in part])[:, :SEQ - int(part[0][0][0] % 2)])
    refused("loader: batches of several shapes", "shape", lambda: samples(
        make(Rows(), 8, sampler=[*range(0, 8), *range(1, 9)], collate_fn=ragged)))


dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(1)
layouts()
own_losses()
loaders(sys.argv[1])
sys.stdout.flush()
dist.barrier()
os._exit(0)
