"""What the frozen prefix puts out, a slot a sample, in memory that the ranks of a node share."""
import os
import tempfile

import torch
import torch.distributed as dist

from .memory import room_in

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def make_files(folder, sizes):
    """Files of these sizes whose pages exist, so that no write can fail later; False: there is no room."""
    for i, size in enumerate(sizes):
        with open(f"{folder}/{i}", "wb") as f:
            try:
                os.posix_fallocate(f.fileno(), 0, size)
            except OSError:
                return False
    return True


class Cache:
    """Samples [0, slots) of the data set have a slot; the others are computed each time. A slot is
    written once. Collective over all ranks."""

    def __init__(self, values, num_samples, limit_bytes, dtype, folder=None):
        """values: of one micro-batch, samples first. limit_bytes: of a node; 0: half of the room in the
        folder. dtype: of stored floats."""
        self.kinds = [v.dtype for v in values]
        stored = [DTYPES[dtype] if v.dtype.is_floating_point else v.dtype for v in values]
        sizes = [v[0].numel() for v in values]
        each = sum(n * torch.empty(0, dtype=d).element_size() for n, d in zip(sizes, stored))
        local = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
        found = [None] * dist.get_world_size()
        folder = folder or ("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())
        mine = None
        if local == 0:
            free = room_in(folder)
            slots = min(num_samples, min(limit_bytes or free // 2, free) // (each + 1))
            made = tempfile.mkdtemp(prefix="elapse-cache.", dir=folder)
            widths = [n * torch.empty(0, dtype=d).element_size() for n, d in zip(sizes + [1], stored + [torch.uint8])]
            while slots and not make_files(made, [slots * w for w in widths]):
                slots //= 2
            mine = made, slots
        dist.all_gather_object(found, (os.environ.get("GROUP_RANK", "0"), mine))
        node = os.environ.get("GROUP_RANK", "0")
        path, self.slots = next(m for n, m in found if n == node and m)
        self.tensors, self.filled = [], None
        if self.slots:
            made = [torch.from_file(f"{path}/{i}", shared=True, size=self.slots * n, dtype=d)
                    for i, (n, d) in enumerate(zip(sizes + [1], stored + [torch.uint8]))]
            self.tensors = [t.view(self.slots, *v.shape[1:]) for t, v in zip(made, values)]
            self.filled = made[-1]
        dist.barrier()
        if local == 0:  # the memory is freed when the last rank lets go of it
            for name in os.listdir(path):
                os.unlink(os.path.join(path, name))
            os.rmdir(path)

    def read(self, samples, device):
        """The values of a micro-batch, or None if one of its samples is not there."""
        if not self.slots or int(samples.max()) >= self.slots or not self.filled[samples].all():
            return None
        return tuple(t[samples].to(device, kind) for t, kind in zip(self.tensors, self.kinds))

    def write(self, samples, values):
        here = samples < self.slots
        if not here.any():
            return
        for tensor, value in zip(self.tensors, values):
            tensor[samples[here]] = value[here.to(value.device)].to("cpu", tensor.dtype)
        self.filled[samples[here]] = 1
