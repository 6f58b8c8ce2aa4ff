#!/bin/bash
# One rank more, and each rank of an IterableDataset prepares every sample of all ranks.
#
# Guess: split_dataset_by_node() gives each of N ranks 1/N of the samples, and map() runs on those: more ranks prepare less.
# Seen (datasets 5.2.0, CPU, 2026-11-29), 120 samples in 12 shards: on 4 and on 6 ranks each prepares its 30 and 20. On 5, 8
#   and 16 ranks, numbers that do not divide the shards, each prepares all 120 and then leaves out those of others; 24, 15
#   and 7 or 8 are used. So a used sample takes 5, 8 and 16 times the work, and nothing is said.
# Source: IterableDataset._prepare_ex_iterable_for_iteration in datasets/iterable_dataset.py; its strategy "auto", the default,
#   takes whole shards where ranks divide them, else single samples, after map(). Its documentation calls the first
#   "most optimized".
# Why it matters: an elastic run that loses one of six nodes becomes bound by its loaders.
. "$(dirname "$0")/lib"
packages datasets==5.2.0
"$python" -m pip install -q --disable-pip-version-check pyarrow pandas dill multiprocess xxhash fsspec huggingface-hub httpx filelock
cat >"$work/ranks.py" <<'P'
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node

def samples(shards):
    for shard in shards:
        for i in range(10):
            yield {"sample": 10 * shard + i}

def prepare(sample):
    prepared.append(sample)
    return sample

for ranks in (4, 5, 6, 8, 16):
    found = []
    for rank in range(ranks):
        prepared = []
        data = IterableDataset.from_generator(samples, gen_kwargs={"shards": list(range(12))}).map(prepare)
        used = sum(1 for _ in split_dataset_by_node(data, rank=rank, world_size=ranks))
        found.append((len(prepared), used))
    print(ranks, "ranks: prepared, used", *sorted(set(found)))
P
"$python" "$work/ranks.py" 2>/dev/null | expect "4 ranks: prepared, used (30, 30)
5 ranks: prepared, used (120, 24)
6 ranks: prepared, used (20, 20)
8 ranks: prepared, used (120, 15)
16 ranks: prepared, used (120, 7) (120, 8)"
