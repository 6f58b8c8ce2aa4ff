"""Samples of an ordinary DataLoader, in steps whose size is the plan's.

Used: the data set, the sampler, collate_fn, drop_last, and how workers run. Every rank gets the order that rank 0 draws.
Refused by name: what would decide which samples share a step."""
import contextlib
import itertools
import random
import sys

import torch
import torch.distributed as dist
from torch.utils.data import (BatchSampler, DataLoader, DistributedSampler, IterableDataset, RandomSampler,
                              SequentialSampler)

from .errors import BridgeError

WORKERS = ("num_workers", "worker_init_fn", "timeout", "prefetch_factor", "multiprocessing_context", "pin_memory")


class Feed:
    """data: the data set. drawn: the order of the present epoch if a sampler of the user's has drawn it."""

    def __init__(self, loader, shuffle=None):
        """shuffle: True or False instead of what a loader without a sampler of the user's says."""
        self.loader, self.data, self.drawn = loader, getattr(loader, "dataset", None), None
        if not isinstance(loader, DataLoader):
            raise BridgeError(f"the loader is a {type(loader).__name__}, not a torch.utils.data.DataLoader")
        if isinstance(self.data, IterableDataset):
            raise BridgeError("the data set is an IterableDataset, whose samples have no numbers",
                              hint="give a data set with __getitem__ and __len__")
        if loader.batch_sampler is None:
            raise BridgeError("the loader has batch_size=None, so its samples are whole batches",
                              hint="let the data set give single samples; the job's train.batch makes batches of them")
        if type(loader.batch_sampler) is not BatchSampler:
            raise BridgeError(f"the loader has a batch_sampler of its own, {type(loader.batch_sampler).__name__}, but the "
                              "job's train.batch decides which samples share a step", hint="give sampler=")
        self.sampler = loader.sampler
        if isinstance(self.sampler, DistributedSampler):
            raise BridgeError("the loader's sampler is a DistributedSampler, but Elastic itself divides samples among the "
                              "ranks", hint="give shuffle=True, or a sampler of all samples")
        self.collate = loader.collate_fn
        self.shuffled = type(self.sampler) is RandomSampler and not self.sampler.replacement and \
            self.sampler.num_samples == len(self.data)
        self.plain = self.shuffled or type(self.sampler) is SequentialSampler
        if shuffle is not None:
            if not self.plain:
                raise BridgeError(f"shuffle={shuffle} and a sampler of the loader's, {type(self.sampler).__name__}")
            self.shuffled = bool(shuffle)
        if not hasattr(self.sampler, "__len__"):
            raise BridgeError(f"the loader's sampler {type(self.sampler).__name__} has no length")

    def __len__(self):
        """Samples of an epoch."""
        return len(self.sampler)

    def batch_of(self, count):
        """A batch of some samples, as the data set's first ones."""
        return self.collate([self.data[i % len(self.data)] for i in range(count)])

    def order(self, seed, position):
        """[number of a sample] of an epoch that stands at `position`. Collective."""
        if self.shuffled:
            return torch.randperm(len(self.data), generator=torch.Generator().manual_seed(seed)).tolist()
        if self.plain:
            return list(range(len(self.data)))
        if not (position and self.drawn):
            told = [None]
            if dist.get_rank() == 0:
                told = [self._draw(seed)]
            dist.broadcast_object_list(told, 0)
            if isinstance(told[0], str):
                raise BridgeError(f"the loader's sampler {type(self.sampler).__name__} {told[0]}",
                                  hint="give numbers of samples, as many as its length says")
            self.drawn = told[0]
        return self.drawn

    def _draw(self, seed):
        """An epoch of the user's sampler, or what is wrong with it as a text."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(seed)
        most, found = len(self), []
        for i in itertools.islice(self.sampler, most + 1):
            try:
                found.append(int(i))
            except (TypeError, ValueError):
                return f"gives {i!r}, which is no number of a sample"
            if not 0 <= found[-1] < len(self.data):
                return f"gives the number {found[-1]}, the data set has {len(self.data)} samples"
        if len(found) != most:
            return f"gives {'more' if len(found) > most else len(found)} samples, its length is {most}"
        return found

    def check_rest(self, num, position, step, first):
        """Refuse an epoch without a step; before training begins (first) also one whose last samples fill none, unless
        the loader drops them. A plan that changes later may leave samples out, which is told."""
        if num < step:
            raise BridgeError(f"the data set has {num} samples, a step has {step}",
                              hint="lower the job's train.batch or pipeline.num_replicas")
        rest = (num - position) % step
        if self.loader.drop_last or not rest:
            return
        if first:
            raise BridgeError(f"the last {rest} of {num} samples fill no step of {step}, and the loader has drop_last=False",
                              hint="drop_last=True leaves them out of each epoch")
        if num - position == rest and dist.get_rank() == 0:
            print(f"elapse_torch: with steps of {step} samples, the last {rest} of this epoch are left out", file=sys.stderr)

    def batches(self, rows, seed):
        """The batch of each row of sample numbers. What the data set and collate_fn draw (a crop, masked words) depends on
        `seed` and the row, so that all ranks of a pipeline have one batch: the first one needs its inputs, the last
        one its targets."""
        given = {name: getattr(self.loader, name) for name in WORKERS}
        draw = torch.Generator().manual_seed(hash((seed, tuple(rows[0]))) % (1 << 63))
        with drawing(hash((seed, -1)) % (1 << 63)):
            found = iter(DataLoader(self.data, batch_sampler=rows, collate_fn=self.collate, generator=draw, **given))
        for row in rows:
            with drawing(hash((seed, tuple(row))) % (1 << 63)):
                batch = next(found)
            yield batch


@contextlib.contextmanager
def drawing(seed):
    """The generators of torch, random and NumPy begin at a seed, and afterwards go on from where they were."""
    numpy = sys.modules.get("numpy")
    kept = torch.get_rng_state(), random.getstate(), numpy and numpy.random.get_state()
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if numpy:
        numpy.random.seed(seed % (1 << 32))
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        if numpy:
            numpy.random.set_state(kept[2])
