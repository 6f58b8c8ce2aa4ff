"""Elastic training of a PyTorch model: first layers freeze, and the pipeline is cut anew.

    with elapse_torch.Elastic(model, optimizer, loader, "job.json", loss=loss, probe=held_out) as run:
        for epoch in range(run.epochs):
            for batch in run:
                run.step(batch)

Every decision is libelapse's (library/elapse.h): rank 0 asks, the others are told. Every rank keeps
the whole model's weights. Gradients, activations and optimizer state are only on the ranks that
train a layer, and the frozen prefix has none.

Step numbers, weights and optimizer state do not depend on the plan in force, so a state_dict() of
one count of ranks goes on with another."""
import collections.abc
import math
import sys
import time

import torch
import torch.distributed as dist

from .cache import Cache
from .chain import chain_of
from .cmd_profile import to_device
from .cmd_run import start
from .device import open_device
from .errors import BridgeError
from .feed import Feed
from .layout import Layout
from .library import Job
from .losses import as_sum, evaluating, first_tensor, loss_for, mixes_samples, modes_of, pieces

LEAST_BLOCKS = 8  # micro-batches of a probe, for the error of their mean


def split_batch(batch, whole=False):
    """(args, kwargs, target) of what a loader gives: (inputs, target), or a dict with `labels`. whole: the model gets
    the labels too."""
    if isinstance(batch, collections.abc.Mapping):
        return (), {k: v for k, v in batch.items() if whole or k != "labels"}, batch.get("labels")
    if not (isinstance(batch, (tuple, list)) and len(batch) == 2):
        raise BridgeError("a batch must be (inputs, target), or a dict with 'labels'")
    inputs, target = batch
    if isinstance(inputs, collections.abc.Mapping):
        return (), dict(inputs), target
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), {}, target


def send_tensors(tensors, source, device):
    """{key: tensor} of one rank to all. A flat message for each dtype."""
    told = [[(k, tuple(t.shape), t.dtype) for k, t in tensors.items()]
            if dist.get_rank() == source else None]
    dist.broadcast_object_list(told, source)
    found = {}
    for dtype in dict.fromkeys(d for _, _, d in told[0]):
        rows = [(k, shape) for k, shape, d in told[0] if d == dtype]
        count = sum(math.prod(shape) for _, shape in rows)
        flat = torch.cat([tensors[k].detach().reshape(-1).to(device) for k, _ in rows]) \
            if tensors else torch.empty(count, dtype=dtype, device=device)
        dist.broadcast(flat, source)
        for (key, shape), part in zip(rows, flat.split([math.prod(s) for _, s in rows])):
            found[key] = part.view(shape)
    return found


class Elastic:
    """Collective: every rank makes one with equal arguments and runs equal loops.

    loader: a DataLoader over a map-style data set (feed.py says what of it is used). How many samples a step has comes
    from the job and the plan.
    loss(output, target): (sum, count), or a mean over samples; None: the loss that the model returns for the labels of
    a dict, or losses.default_loss. probe: a data set that is held out, which policy `safe` needs. rate(step): the
    learning rate of later steps; None: the present one stays. shuffle: None: as the loader. Modules in eval mode
    stay there."""

    def __init__(self, model, optimizer, loader, job, loss=None, probe=None, rate=None, device="cpu", overrides=(),
                 shuffle=None):
        self.device = open_device(device) if dist.is_initialized() else start(open_device(device))
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.model, self.optimizer = model.to(self.device), optimizer
        self.behind, self.cast, self.guards = False, None, []
        self.feed, self.probe, self.rate = Feed(loader, shuffle), probe, rate
        self.names = {id(p): n for n, p in model.named_parameters()}
        self.params = dict(model.named_parameters())
        self.group_names = [[self.names[id(p)] for p in g["params"] if id(p) in self.names]
                            for g in optimizer.param_groups]
        if sum(len(g["params"]) for g in optimizer.param_groups) != sum(map(len, self.group_names)):
            raise BridgeError("the optimizer holds parameters that are not the model's")
        self.brain, self.layout, self.cache, self.chains, self.modes = None, None, None, {}, None
        self.kept, self.owner, self.buffer_owner = {}, {}, {}
        self.epoch = self.position = self.count = self.frozen = self.turn = 0
        self.decisions, self.transition_ns, self.calls = [], 0, []
        self.cache_hits = self.cache_misses = 0
        self.samples = self.lagged = None
        self.noted = False
        self._open(job, overrides)
        if self.rank == 0:  # what the optimizer has from an earlier run goes to the ranks that train a weight
            self.kept = {self.names[id(p)]: {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in s.items()}
                         for p, s in optimizer.state.items()}
        self.gets_all, self.loss = self._told(lambda: loss_for(self.model, self._to_device(self.feed.batch_of(4)), loss)) \
            if loss is None else (False, loss)
        self._told(self._check_samples)
        self._guard()
        self.sums, self.summed = torch.zeros(self.layers, device=self.device), 0
        self.window_steps, self.window_rate = 0, 0.0

    def __enter__(self):
        return self

    def __exit__(self, kind, *error):
        if kind is None and self.behind:
            self.sync()
        self.close()

    def _check_samples(self):
        four = self._split(self.feed.batch_of(4))[:2]
        if mixes_samples(self.model, four, pieces(four, 2, 2)[0]):
            raise BridgeError("the model's output for a sample depends on the other samples of its batch, and each "
                              "micro-batch is a batch of its own", hint="let it depend on that sample alone")

    def _guard(self):
        """Refuse to read a model whose weights are behind on this rank, because other ranks train some of them."""
        def check(module, *_, **__):
            if self.behind and module is self.model:
                raise BridgeError(f"this rank's weights are behind those of step {self.count}, because other ranks train some "
                                  "of them", hint="call run.sync() on all ranks first; run.state_dict() does")
        self.guards = [self.model.register_forward_pre_hook(check), self.model.register_state_dict_pre_hook(check)]

    # ---- the brain, on rank 0 ----------------------------------------------------------------

    def _told(self, ask):
        """What `ask()` gives on rank 0, or its BridgeError, on all ranks."""
        answer = [None]
        if self.rank == 0:
            try:
                answer = [(ask(), None)]
            except BridgeError as error:
                answer = [(None, (str(error), error.code, error.hint))]
        dist.broadcast_object_list(answer, 0)
        value, failed = answer[0]
        if failed:
            raise BridgeError(failed[0], code=failed[1], hint=failed[2])
        return value

    def _open(self, job, overrides):
        # The prefix runs in the first stage, or not at all where its output is cached.
        more = list(overrides) + ["pipeline.frozen=first"]
        num_samples = len(self.feed)

        def ask():
            self.brain = Job(job, more)
            found = self.brain.open_freezer(num_samples, len(self.probe or ()))
            if self.brain.info.num_devices != self.world:
                raise BridgeError(f"the job has {self.brain.info.num_devices} devices, torchrun "
                                  f"started {self.world} ranks", code=3,
                                  hint=f"torchrun --nproc-per-node {self.brain.info.num_devices}")
            shard = self.brain.json["pipeline"].get("shard") or "none"
            if shard != "none":
                raise BridgeError(f"the job has pipeline.shard={shard}, and Elastic's optimizer holds whole weights", code=1,
                                  hint="set pipeline.shard=none")
            if found.uses_evidence and not self.probe:
                raise BridgeError("policy 'safe' measures on samples that are held out",
                                  hint="give Elastic probe=DATASET")
            return (self.brain.json, found.num_layers, self.brain.info.num_items,
                    bool(found.uses_norms), bool(found.uses_evidence), found.every_steps,
                    found.probe_samples)
        (self.job, self.layers, self.items, self.uses_norms, self.uses_evidence, self.every,
         self.probe_samples) = self._told(ask)
        self.epochs = self.job["train"]["epochs"]
        self._send_model()

    def _send_model(self):
        """Rank 0's weights to all ranks, so that all begin equal."""
        state = {**self.params, **dict(self.model.named_buffers())}
        for name, value in send_tensors(state if self.rank == 0 else {}, 0, self.device).items():
            with torch.no_grad():
                state[name].copy_(value)

    def _call(self, name, *args):
        """A call of the freezer, written down so that a resumed run can make it again."""
        self.calls.append((name, args))
        return getattr(self.brain, name)(*args)

    # ---- plans -------------------------------------------------------------------------------

    def _to_device(self, batch):
        return to_device(dict(batch) if isinstance(batch, collections.abc.Mapping) else batch, self.device, torch.float32)

    def _split(self, batch):
        return to_device(split_batch(batch, self.gets_all), self.device, torch.float32)

    def _chain(self, size):
        """The model cut for micro-batches of `size` samples, in the modes that its modules are in."""
        if self.modes != modes_of(self.model):
            self.chains, self.cache = {}, None
        if size not in self.chains:
            args, kwargs, _ = self._split(self.feed.batch_of(size))
            behind, self.behind = self.behind, False  # an export runs no numbers
            try:
                chain = chain_of(self.model, args, kwargs)
            finally:
                self.behind = behind
            self.modes = modes_of(self.model)
            if len(chain.items) != self.items or chain.num_layers != self.layers:
                raise BridgeError(f"the job's model has {self.items} items and {self.layers} layers"
                                  f", this one {len(chain.items)} and {chain.num_layers}", code=1,
                                  hint="profile this model: elapse-torch profile")
            self.chains = {size: chain}
        return self.chains[size]

    def _wants_cache(self, frozen):
        if not frozen or self.job["cache"]["policy"] == "off":
            return False
        chain = next(iter(self.chains.values())) if self.chains else self._chain(2)
        size = next(iter(self.chains))
        base = chain.frozen_items({"frozen_layers": frozen})
        return chain.repeats(0, base) and all(
            v.meta["val"].ndim and v.meta["val"].shape[0] == size for v in chain.live[base])

    def _apply(self, frozen):
        """The plan for a frozen prefix: stages, groups, weights and state where they are needed."""
        begin = time.perf_counter_ns()
        cached = self._wants_cache(frozen)
        turn = self.turn - 1
        try:
            plan = self._told(lambda: self.brain.find_plan(frozen, cached, turn))
            self._change(plan, frozen, plan["frozen"] == "cached")
        except RuntimeError as error:
            raise BridgeError(f"the change to F = {frozen} failed: {str(error).splitlines()[0]}",
                              code=3, hint="a rank may have ended; see its own message") from error
        self.transition_ns += time.perf_counter_ns() - begin

    def _change(self, plan, frozen, cached):
        chain = self._chain(plan["microbatch_size"])
        layout = Layout(plan, chain, self.device, self.loss, self._prefix if cached else None,
                        idle=True)
        trained = chain.weights(layout.base, self.items)
        self._note_shared(chain, layout.base, trained)
        owner = {n: plan["devices"][0][layout.place_of(i)] for i in range(layout.base, self.items)
                 for n in chain.weights(i, i + 1)}
        self._move(trained, layout)
        self.owner = owner
        self.buffer_owner = {n: plan["devices"][0][layout.place_of(i)] for i in range(self.items)
                             for n in chain.buffers(i, i + 1)}
        for group, names in zip(self.optimizer.param_groups, self.group_names):
            group["params"] = [self.params[n] for n in names if n in layout.weights]
        self.layout, self.frozen, self.cast = layout, frozen, None
        self.behind = False  # _move() has brought all weights here
        if frozen != (self.cache[0] if self.cache else 0) or not cached:
            self.cache = None
        if cached and not self.cache:
            values = [torch.zeros(v.meta["val"].shape, dtype=v.meta["val"].dtype)
                      for v in chain.live[layout.base]]
            c = self.job["cache"]
            self.cache = (frozen, Cache(values, len(self.feed.data),
                                        int(c.get("limit_bytes") or 0), c.get("dtype", "fp32"),
                                        c.get("dir")))

    def _note_shared(self, chain, base, trained):
        """Say once that a table which a later item reads does not freeze."""
        shared = sorted(set(chain.weights(0, base)) & set(trained))
        if shared and not self.noted and self.rank == 0:
            self.noted = True
            print(f"elapse-torch: '{shared[0]}' of the frozen layers goes on training, in "
                  f"{chain.items[chain.tied()[shared[0]][-1]].name}, so their output is not cached", file=sys.stderr)

    def _move(self, trained, layout):
        """Weights and buffers to all ranks, optimizer state to those that train a weight now. What
        is frozen from now on keeps its state in rank 0's host memory, for when it thaws."""
        state = self.optimizer.state
        own = {n: state.pop(p) for n, p in self.params.items() if p in state}
        for source in sorted(set(self.owner.values()) | set(self.buffer_owner.values()) | {0}):
            mine = source == self.rank
            has = {n: own[n] for n in own if self.owner.get(n) == source} if mine else {}
            if mine and source == 0:
                has.update({n: s for n, s in self.kept.items() if n in trained})
            flat = {(n, k): v for n, s in has.items() for k, v in s.items()
                    if isinstance(v, torch.Tensor)}
            rest = [{(n, k): v for n, s in has.items() for k, v in s.items()
                     if not isinstance(v, torch.Tensor)} if mine else None]
            self._sync_from(source)
            dist.broadcast_object_list(rest, source)
            for (name, key), value in {**rest[0], **send_tensors(flat, source, self.device)}.items():
                # Steps are counted in host memory unless the optimizer is capturable or fused.
                if isinstance(value, torch.Tensor):
                    value = value.cpu() if key == "step" else value.clone()
                if name in layout.weights:
                    state[self.params[name]][key] = value
                elif name not in trained and self.rank == 0:
                    value = value.cpu() if isinstance(value, torch.Tensor) else value
                    self.kept.setdefault(name, {})[key] = value
        for name in trained:
            self.kept.pop(name, None)
        for name, p in self.params.items():
            p.grad = None

    def _sync_from(self, source):
        """Weights and buffers that a rank owns, to all ranks."""
        owns = {n: p for n, p in self.params.items() if self.owner.get(n) == source}
        buffers = dict(self.model.named_buffers())
        owns.update({n: buffers[n] for n, r in self.buffer_owner.items() if r == source})
        for name, value in send_tensors(owns if source == self.rank else {}, source,
                                        self.device).items():
            if source != self.rank:
                with torch.no_grad():
                    (self.params if name in self.params else buffers)[name].copy_(value)

    def sync(self):
        """Bring `model` on every rank up to date. Collective."""
        for source in sorted(set(self.owner.values()) | set(self.buffer_owner.values())):
            self._sync_from(source)
        self.behind = False

    # ---- the frozen prefix -------------------------------------------------------------------

    def _prefix(self, inputs):
        samples = inputs["samples"].cpu()
        found = self.cache[1].read(samples, self.device)
        if found is None:
            self.cache_misses += len(samples)
            found = self.layout.compute_prefix(inputs)
            self.cache[1].write(samples, found)
        else:
            self.cache_hits += len(samples)
        return found

    # ---- the loop ----------------------------------------------------------------------------

    def __iter__(self):
        """The batches of this rank's pipeline in one epoch, from where the run stands."""
        order = self.feed.order(int(self.job["train"]["seed"]) * 1000003 + self.epoch, self.position)
        num = len(order)
        while True:
            if self.layout is None or self._turn_begins():
                self._begin_turn()
            elif self.modes != modes_of(self.model):
                self._apply(self.frozen)
            size, replicas = self.layout.plan["batch"], self.layout.replicas
            self.feed.check_rest(num, self.position, size * replicas, self.count == 0)
            steps = (num - self.position) // (size * replicas)
            if self.every:
                steps = min(steps, self.every - self.count % self.every)
            if steps == 0:
                break
            first = self.position + (self.layout.replica or 0) * size
            rows = [order[first + i * size * replicas:][:size] for i in range(steps)]
            for row, batch in zip(rows, self.feed.batches(rows, int(self.job["train"]["seed"]) * 1000003 + self.epoch)):
                self.samples = row
                before = self.count
                yield batch
                if self.count != before + 1:
                    raise BridgeError("run.step(batch) must be called once for each batch")
        self.epoch, self.position = self.epoch + 1, 0

    def _turn_begins(self):
        return self.turn <= (self.count // self.every if self.every else self.epoch)

    def step(self, batch):
        """Forward, backward and update. The loss of the whole batch on the ranks with the last stage, else None."""
        self._look_again()
        args, kwargs, target = self._split(batch)
        more = {"samples": torch.tensor(self.samples)} if self.cache else {}
        loss = self.layout.forward_backward(args, kwargs, target, step=self.count, ramp=self._ramp(), **more)
        if self.uses_norms:
            self._add_norms()
        if self.job["train"].get("clip_norm"):
            self.layout.clip(float(self.job["train"]["clip_norm"]))
        self.window_rate += self.optimizer.param_groups[0]["lr"]
        self.window_steps += 1
        self.optimizer.step()
        for p in self.params.values():  # also of weights that the optimizer does not have
            p.grad = None
        self.optimizer.zero_grad()
        torch.clear_autocast_cache()  # it holds the weights before the update, where autocast goes around the loop
        self.count += 1
        self.position += self.layout.plan["batch"] * self.layout.replicas
        self.behind = self.layout.length > 1 or self.layout.length * self.layout.replicas < self.world
        return loss

    def _look_again(self):
        """Before a step: cut the model anew if it has changed since, and refuse what the step would not take into account."""
        kind = self.device.type
        cast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)
        if cast == torch.float16:
            raise BridgeError("autocast to float16 needs a scaled loss, which step() does not have",
                              hint="autocast to torch.bfloat16")
        if any(p.grad is not None and bool(p.grad.any()) for p in self.params.values()):
            raise BridgeError("a weight has a gradient from before the step, which computes all gradients itself",
                              hint="make what it came from a part of loss(output, target)")
        if self.modes != modes_of(self.model) or self.cast not in (None, cast):
            plan = self.layout.plan
            self._change(plan, self.frozen, plan["frozen"] == "cached" and self._wants_cache(self.frozen))
        self.cast = cast

    def _ramp(self):
        """Of the shares, by libelapse on rank 0."""
        if not self.layout.shares:
            return 1.0
        return self._told(lambda: self.brain.ramp(self.count, self.epoch, self.position, len(self.feed)))

    def _add_norms(self):
        """Squares of the step's gradients by layer, of the first pipeline."""
        self.summed += 1
        if self.layout.replica != 0:
            return
        chain = self.layout.chain
        for i in range(self.layout.base, self.items):
            layer = chain.items[i].layer
            if 0 <= layer < self.layers and self.layout.place_of(i) == self.layout.place:
                for p in chain.weights(i, i + 1).values():
                    if p.grad is not None:
                        self.sums[layer] += p.grad.float().square().sum()

    # ---- turns -------------------------------------------------------------------------------

    def _begin_turn(self):
        norms = None
        if self.turn:
            if self.uses_norms and self.summed:
                dist.all_reduce(self.sums)
                norms = (self.sums / self.summed).sqrt().double().tolist()
                self.sums.zero_()
                self.summed = 0
            if self.uses_evidence:
                self._measure()
        turn, has_plan = self.turn, self.layout is not None

        def ask():
            d = self._call("decide", turn, norms)
            return d.num_frozen, bool(d.change) or not has_plan, d.reason.decode(), d.lowest
        frozen, change, reason, lowest = self._told(ask)
        self.turn += 1
        if change:
            before = self.frozen
            self._apply(frozen)
            self._open_window()
            if before != frozen or not has_plan:
                plan = self.layout.plan
                self.decisions.append({"turn": turn, "step": self.count, "frozen": frozen,
                                       "reason": reason, "K": plan["pipeline_length"],
                                       "R": plan["replicas"], "cut": plan["cut"],
                                       "cached": plan["frozen"] == "cached"})
        if lowest and self.rank == 0:
            chain = self.layout.chain
            for name in chain.weights(0, chain.frozen_items({"frozen_layers": lowest})):
                self.kept.pop(name, None)

    def _open_window(self):
        self.window_steps, self.window_rate = 0, 0.0
        if self.uses_evidence:
            self.lagged = {n: self.params[n].detach().clone() for n in self.owner}

    def _measure(self):
        """Give the freezer the losses that it asks for: present and lagged weights, over the probe."""
        plan = self.layout.plan
        a_step = plan["batch"] * self.layout.replicas
        left = (self.epochs - self.epoch) * (len(self.feed) // a_step) - \
            self.position // a_step
        later = [self.rate(self.count + i) for i in range(left)] if self.rate else \
            [self.optimizer.param_groups[0]["lr"]] * left
        window = {"turn": self.turn - 1, "step": self.count, "steps_window": self.window_steps,
                  "rate_window": self.window_rate, "steps_left": left, "rate_left": sum(later)}
        if not self._told(lambda: self._call("begin", window)):
            return
        self.sync()
        frozen = self._told(lambda: self._call("ask"))
        now, before = self._losses(()), self._losses(self.owner)
        fall, fall_se = combine([before, now], [1, -1])
        correct, count = sum(b[2] for b in now), sum(b[3] for b in now)
        losses = {"loss": combine([now], [1])[0], "loss_before": combine([before], [1])[0],
                  "fall_se": fall_se, "accuracy": correct / count if correct >= 0 else -1.0,
                  "num_probe": count}
        self._told(lambda: self._call("losses", losses))
        chain = self.layout.chain
        while frozen > 0:
            base = chain.frozen_items({"frozen_layers": frozen})
            lower = set(chain.weights(0, base))
            prefix = self._losses(lower & set(self.owner))
            rest = self._losses(set(self.owner) - lower)
            share, error = combine([prefix, now, before, rest], [.5, -.5, .5, -.5])
            self._told(lambda: self._call("share", frozen, share, error))
            frozen = self._told(lambda: self._call("ask"))
        self._told(lambda: self._call("end"))
        self._open_window()

    def _losses(self, lagged):
        """[(loss sum, count, right answers or -inf, samples)] of the probe's blocks, with lagged weights of these
        names. The ranks share the blocks."""
        num = min(self.probe_samples or len(self.probe), len(self.probe))
        size = max(1, min(self.layout.plan["microbatch_size"], num // LEAST_BLOCKS))
        present = {n: self.params[n].data for n in lagged}
        for n in lagged:
            self.params[n].data = self.lagged[n]
        mine = []
        with torch.no_grad(), evaluating(self.model):
            for b in range(self.rank, num // size, self.world):
                args, kwargs, target = self._split(self.feed.collate([self.probe[i] for i in range(b * size, (b + 1) * size)]))
                out = self.model(*args, **kwargs)
                total, count, _ = as_sum(self.loss(out, target), size)
                if count:
                    mine.append((b, total.item(), count, _right(out, target), size))
        for n in lagged:
            self.params[n].data = present[n]
        every = [None] * self.world
        dist.all_gather_object(every, mine)
        return [row[1:] for row in sorted(r for rows in every for r in rows)]

    # ---- checkpoints -------------------------------------------------------------------------

    def state_dict(self):
        """Weights under the model's names, optimizer state by name, and where the run stands, on
        every rank. Any count of ranks goes on from it. Collective."""
        self.sync()
        state = {}
        for source in sorted(set(self.owner.values()) | {0}):
            has = {n: dict(self.optimizer.state[self.params[n]]) for n, r in self.owner.items()
                   if r == source == self.rank and self.params[n] in self.optimizer.state}
            if source == 0 == self.rank:
                has.update(self.kept)
            told = [has if source == self.rank else None]
            dist.broadcast_object_list(told, source)
            state.update(told[0])
        calls = [self.calls]
        dist.broadcast_object_list(calls, 0)
        return {"model": {n: v.detach().clone() for n, v in self.model.state_dict().items()},
                "optimizer": state, "groups": self._groups(),
                "elapse": {"calls": calls[0], "epoch": self.epoch, "position": self.position,
                           "step": self.count, "turn": self.turn, "frozen": self.frozen,
                           "layers": self.layers, "decisions": self.decisions,
                           "lagged": self.lagged, "window": (self.window_steps, self.window_rate),
                           "norms": self._whole_sums(), "summed": self.summed, "order": self.feed.drawn}}

    def _groups(self):
        """Learning rates and other settings of the optimizer's groups."""
        return [{k: v for k, v in g.items() if k != "params"} for g in self.optimizer.param_groups]

    def _whole_sums(self):
        sums = self.sums.clone()
        dist.all_reduce(sums)
        return sums

    def load_state_dict(self, state):
        """Before the first step. Collective."""
        told = state["elapse"]
        if told["layers"] != self.layers:
            raise BridgeError(f"the checkpoint is of {told['layers']} layers, the job has "
                              f"{self.layers}")
        groups = state.get("groups", self._groups())
        if len(groups) != len(self.optimizer.param_groups):
            raise BridgeError(f"the checkpoint's optimizer has {len(groups)} groups of weights, this one "
                              f"{len(self.optimizer.param_groups)}")
        for group, found in zip(self.optimizer.param_groups, groups):
            group.update(found)
        self.model.load_state_dict(state["model"])
        self.kept = dict(state["optimizer"]) if self.rank == 0 else {}
        self.epoch, self.position, self.count = told["epoch"], told["position"], told["step"]
        self.turn, self.decisions = told["turn"], list(told["decisions"])
        self.lagged = told["lagged"]
        self.window_steps, self.window_rate = told["window"]
        self.summed = told["summed"]
        self.feed.drawn = told.get("order")
        if self.rank == 0:
            self.sums = told["norms"].to(self.device)

        def again():
            for name, args in told["calls"]:
                self._call(name, *args)
        self._told(again)
        self.owner = self.buffer_owner = {}
        if self.turn:
            self._apply(told["frozen"])

    def close(self):
        if self.brain:
            self.brain.close()
            self.brain = None
        if not self.behind:
            for guard in self.guards:
                guard.remove()
        self.layout = None


def _right(out, target):
    logits = first_tensor(out)
    if not isinstance(target, torch.Tensor) or target.dtype.is_floating_point or \
            target.ndim != 1 or logits.ndim != 2:
        return -math.inf
    return int((logits.argmax(1) == target).sum())


def combine(passes, weights):
    """Mean of sum(weight * loss) over the blocks, and its standard error: that of a ratio of sums, as
    exec/probe/probe_pass.h measures it."""
    rows = [sum(w * p[b][0] for w, p in zip(weights, passes)) for b in range(len(passes[0]))]
    counts = [b[1] for b in passes[0]]
    total = sum(counts)
    mean = sum(rows) / total
    squares = sum((r - mean * n) ** 2 for r, n in zip(rows, counts))
    n = len(rows)
    return mean, math.sqrt(squares * n / (n - 1)) / total if n > 1 else abs(mean)
