#!/usr/bin/env python3
"""Random steps by two builds: the simulated times must be equal integers, to the nanosecond.

    tests/reference/steps_before.py OLD NEW [COUNT]     paths of two `elapse`; 500 steps unless COUNT says

Both simulate the same plan: a step has a cut of its own, and replicas are on one node or there is one, because
newer builds choose the places of ranks. Models have given times, because costs of devices have changed.
Prints each other difference with its command, then exits 1.
"""
import json
import random
import subprocess
import sys

KEYS = ["step_ns", "bubble_fraction", "allreduce_ns", "allreduce_exposed_ns", "links_shared"]
OLD_NAMES = [("stage-early", "always")]  # before modes that frameworks have took these names
KINDS = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"]


def cut_of(rng, items, stages):
    ends = sorted(rng.sample(range(1, items), stages - 1)) + [items]
    return [end - start for start, end in zip([0] + ends, ends)]


def step_of(rng):
    """The options of a step that both builds accept."""
    ranks, replicas = rng.choice([1, 2, 3, 4, 6, 8, 16]), rng.choice([1, 1, 1, 2, 4])
    kind = rng.choice(KINDS if ranks > 1 else KINDS[:2])
    chunks = rng.choice([2, 3]) if kind == "interleaved" else 2 if kind == "zb-v" else 1
    stages = ranks * chunks
    layers = stages + rng.randrange(0, 2 * stages)
    micro = ranks * rng.randrange(1, 5) if kind == "interleaved" else rng.randrange(1, 40)
    model = "uniform:layers=%d,fwd=%dus,bwd_input=%dus,bwd_weight=%dus,update=%dus,act=%dKiB,params=%d" % (
        layers, rng.randrange(1, 3000), rng.randrange(0, 3000), rng.randrange(0, 3000), rng.randrange(0, 900),
        rng.choice([0, 1, 64, 1024, 20000]), rng.choice([0, 1000, 10**6, 10**7]))
    devices = ranks * replicas
    nodes = rng.choice([n for n in (1, 2, 4, 8) if devices % n == 0 and (n == 1 or replicas == 1)])
    words = ["--model", model, "--cluster", f"{nodes}x{devices // nodes}", "--stages", str(ranks), "--replicas",
             str(replicas), "--microbatches", str(micro), "--schedule", kind,
             "--cut", ",".join(map(str, cut_of(rng, layers, stages)))]
    words += ["--chunks", str(chunks)] if chunks > 1 else []
    words += ["--link", f"{rng.choice([1, 5, 16, 50])}GBps"] if rng.random() < 0.5 else []
    words += ["--uplink", f"{rng.choice([1, 3, 16])}GBps"] if rng.random() < 0.5 else []
    words += ["--half-duplex"] if rng.random() < 0.2 else []
    if kind in ("gpipe", "1f1b") and rng.random() < 0.3:
        words += ["--recompute", rng.choice(["stage-early", "except-last"])]
    return words


def answer(elapse, words, names=()):
    words = [dict(names).get(word, word) for word in words]
    run = subprocess.run([elapse, "sim", "--step", "--json", *words], capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else run.stderr.strip().splitlines()[0]


def main():
    old, new = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 500
    rng = random.Random(64)
    equal = refused = shared = other = 0
    while equal + other < count:
        words = step_of(rng)
        was, now = answer(old, words, OLD_NAMES), answer(new, words)
        if isinstance(was, str) or isinstance(now, str):
            refused += 1
            if isinstance(was, str) != isinstance(now, str):
                print("refused by one:", was if isinstance(was, str) else now, "\n  ", *words)
            continue
        if all(was[key] == now[key] for key in KEYS):
            equal += 1
            shared += was["links_shared"]
        else:
            other += 1
            print("differs:", *(f"{key} {was[key]} {now[key]}" for key in KEYS if was[key] != now[key]), "\n  ", *words)
    print(f"{equal} steps equal, {shared} of them with transfers that share a link; {other} differ; {refused} refused")
    return other > 0


if __name__ == "__main__":
    sys.exit(main())
