"""Elastic under torchrun against the whole model: losses, weights and optimizer state, while layers
freeze and thaw, and from a checkpoint on. Prints `equal` on rank 0.

    elastic.py JOB [--set a.b=v]... [--case [--check equal|resume|safe] [--die METHOD:N] [--set a.b=v]...]...

The cases share one start of the ranks; without --case there is one."""
import argparse
import copy
import os
import signal
import sys

import torch
import torch.distributed as dist

import elapse_torch
import models
from elapse_torch import library


def make(data):
    torch.manual_seed(1)
    model = models.make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-3)
    return model, optimizer, torch.utils.data.DataLoader(data, batch_size=8)


def train(run, most=None):
    """[(loss, frozen layers, samples of the step, [names that a micro-batch leaves out] or None)] of all steps."""
    rows = []
    while run.epoch < run.epochs and (most is None or run.epoch < most):
        for batch in run:
            loss = run.step(batch)
            every, shares = [None] * run.world, run.layout.shares
            dist.all_gather_object(every, (None if loss is None else loss.item(), run.samples,
                                           run.layout.replica, run.layout.place,
                                           [set(o) for o in shares.out] if shares else None))
            losses = [e[0] for e in every if e[0] is not None]
            # A rank without a stage chooses nothing: the ranks of the first place tell.
            first = sorted((e for e in every if e[3] == 0), key=lambda e: e[2])
            samples = [i for e in first for i in e[1]]
            rows.append((sum(losses) / len(losses), run.frozen, samples, first[0][4]))
    return rows


def whole(model, optimizer, data, rows, chain):
    """Losses of the whole model that takes the same steps."""
    found = []
    for _, frozen, samples, out in rows:
        inputs = torch.stack([data[i][0] for i in samples])
        target = torch.stack([data[i][1] for i in samples])
        loss = models.loss(model(inputs), target)
        if out:
            one_by_one(model, inputs, target, out)
        else:
            loss.backward()
        names = chain.weights(chain.frozen_items({"frozen_layers": frozen}), len(chain.items))
        for name, p in model.named_parameters():
            if name not in names:
                p.grad = None
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def one_by_one(model, inputs, target, out):
    """Gradients of each micro-batch for the weights that it counts for, over the part that did. One pipeline."""
    count, size = len(out), len(target) // len(out)
    for m in range(count):
        part = slice(m * size, (m + 1) * size)
        grads = torch.autograd.grad(models.loss(model(inputs[part]), target[part]), list(model.parameters()))
        for (name, p), grad in zip(model.named_parameters(), grads):
            counted = sum(name not in o for o in out)
            if name not in out[m]:
                p.grad = grad / counted if p.grad is None else p.grad + grad / counted


def with_shares(share):
    """Plans get this share for every backward."""
    find = library.Job.find_plan

    def find_plan(*args):
        plan = find(*args)
        plan["shares"] = [[share] * plan["microbatches"] for _ in plan["cut"]]
        return plan
    library.Job.find_plan = find_plan
    return find


def die_in(name, number):
    method, calls = getattr(elapse_torch.Elastic, name), []

    def call(*args):
        calls.append(name)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*args)
    setattr(elapse_torch.Elastic, name, call)


def worst(a, b):
    return max((x - y).abs().max().item() / y.abs().max().clamp(min=1e-6).item()
               for x, y in zip(a, b))


def main(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    parser.add_argument("--check", default="equal")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--die", metavar="METHOD:N", help="kill rank 1 in its Nth call of this method")
    parser.add_argument("--share", type=float, default=0)
    args = parser.parse_args(words)
    find = with_shares(args.share) if args.share else library.Job.find_plan
    torch.set_num_threads(1)
    torch.manual_seed(2)
    samples = [models.make_batch(1) for _ in range(64)]
    data = [(x[0], y[0]) for x, y in samples]
    model, optimizer, loader = make(data)
    probe = data[:32] if args.check == "safe" else None
    run = elapse_torch.Elastic(model, optimizer, loader, args.job, loss=models.loss,
                               probe=probe, overrides=args.set)
    if args.die and run.rank == 1:
        die_in(args.die.split(":")[0], int(args.die.split(":")[1]))
    if args.check == "resume":
        rows = train(run, most=2)
        saved = copy.deepcopy(run.state_dict())
        run.close()
        model, optimizer, loader = make(data)
        for p in model.parameters():
            p.data.zero_()
        run = elapse_torch.Elastic(model, optimizer, loader, args.job, loss=models.loss,
                                   overrides=args.set + ["pipeline.num_stages=2"])
        run.load_state_dict(saved)
        rows += train(run)
    else:
        rows = train(run)
    assert not args.share or any(any(r[3]) for r in rows), "nothing was left out"
    state = run.state_dict()
    ref, ref_optimizer, _ = make(data)
    expected = whole(ref, ref_optimizer, data, rows, run.layout.chain)
    if run.rank == 0:
        print("decisions:", [(d["turn"], d["frozen"], d["K"], d["R"], d["cached"])
                             for d in run.decisions], "hits", run.cache_hits)
        loss = max(abs(r[0] - e) for r, e in zip(rows, expected))
        weights = dict(ref.named_parameters())
        moved = worst([state["model"][n] for n in weights], list(weights.values()))
        moments = [(state["optimizer"][n][k], ref_optimizer.state[p][k]) for n, p in weights.items()
                   if n in state["optimizer"] or n in run.owner for k in ref_optimizer.state[p]]
        kept = worst([a for a, _ in moments], [b for _, b in moments])
        print(f"{len(rows)} steps, loss {loss:.1e}, weights {moved:.1e}, state {kept:.1e}")
        print(("equal: " + args.check) if loss < 1e-5 and moved < 1e-4 and kept < 1e-3 else "different")
    run.close()
    library.Job.find_plan = find


common, *cases = " ".join(sys.argv[1:]).split(" --case ")
for case in cases or [""]:
    main(common.split() + case.split())
dist.destroy_process_group()
