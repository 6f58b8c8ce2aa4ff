#!/usr/bin/env python3
"""Extreme and wrong values of every documented key of jobs, models and clusters.

    extremes.py ELAPSE FOLDER [--part N/M]

The keys come from `elapse --help=rows`, so a new key is tested at once. Each value must give an error of one line
that names the key (or the file that a text names), or an answer without NaN, infinity or a negative time, size or
rate, within LIMIT_S seconds. "does not fit" (exit 1) is an answer.
FOLDER takes the job files. --part takes every Mth case from the Nth on. Exit 1 and the command lines of what breaks.
"""
import json
import math
import os
import re
import resource
import subprocess
import sys

from properties import Tool

LIMIT_S = 10  # of processor time; without a line of progress in that time a user takes it for a hang
NUMBERS = [0, 1, -1, 2, 7, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 1e308, -1e308, 1e-308, 0.5, 1.5]
WRONG = [True, None, "", "x", "nan", "inf", "-inf", "1/0", "0/0", "1e999", [], {}, [0], ["x"], [[0, 0]],
         [[-1, "1GBps"]], [None], {"x": 1}]
UNITS = {"time": ["0ns", "1ns", "-1ns", "9223372036854775807ns", "1e300s", "nans", "292y"],
         "size": ["0B", "1B", "-1B", "9223372036854775807B", "1e300TiB", "16EiB"],
         "bandwidth": ["0Bps", "1Bps", "-1GBps", "1000000000000000000Bps", "1e300TBps", "1e-300Bps"]}
LITERALS = ["NaN", "Infinity", "-Infinity", "1e999", "0x10", "01"]
WORDS = re.compile(r"[a-z0-9][a-z0-9-]*$")

# Two small jobs with a value for as many keys as belong together: constant times, and computed ones.
UNIFORM = {"family": "uniform", "layers": 6}
GPT = {"preset": "gpt2", "layers": 2, "hidden": 64, "heads": 2, "mlp": 256, "vocab": 512, "seq": 32, "max_seq": 32}
LLAMA = {"preset": "llama", "layers": 2, "hidden": 64, "heads": 4, "mlp": 128, "vocab": 512, "seq": 32,
         "experts": 4, "experts_active": 2}
VIT = {"preset": "vit-tiny", "layers": 2}
DEIT = {"preset": "deit-ti16-distilled", "layers": 2}
BERT = {"preset": "bert-base", "layers": 2, "hidden": 64, "heads": 2, "mlp": 256, "vocab": 512, "seq": 32}
ITEMS = [{"name": f"item{i}", "params": 1000, "act_bytes": 1000, "fwd_ns": 1000, "bwd_input_ns": 1000,
          "bwd_weight_ns": 1000} for i in range(3)]
CHAIN = {"items": ITEMS, "skips": [{"from": 0, "to": 2, "bytes": 8}]}
FLAT = {"nodes": 2, "devices_per_node": 2, "mem": "16GiB", "link": "16GBps", "uplink": "4GBps", "latency": "5us"}
DEVICES = {"devices": [{"node": 0, "mem": "8GiB"}, {"node": 0}, {"node": 1, "speed": 2}, {"node": 1}],
           "link": "16GBps", "uplink": "4GBps"}
RUN = {"data": {"train_samples": 64, "test_samples": 8}, "train": {"epochs": 2, "batch": {"global": 8}}}
BASES = {"uniform": (UNIFORM, FLAT), "gpt": (GPT, "h100-1x4"), "llama": (LLAMA, "h100-1x4"),
         "vit": (VIT, "rtx5000-1x2"), "composed": (DEIT, "rtx5000-1x2"), "bert": (BERT, "a100-1x4"), "chain": (CHAIN, DEVICES)}
PLACES = {"item": ("chain", "model.items.1"), "skip": ("chain", "model.skips.0"), "cluster": ("uniform", "cluster"),
          "cluster.device": ("chain", "cluster.devices.1"),
          "cluster.collective": ("uniform", "cluster.collective")}


def base(name):
    model, cluster = BASES[name]
    return json.loads(json.dumps({"model": model, "cluster": cluster, **RUN}))


def put(job, path, value):
    """Set a dotted path, through arrays by index; what is no object on the way is replaced."""
    *way, last = path.split(".")
    for name in way:
        if isinstance(job, list):
            job = job[int(name)]
            continue
        if not isinstance(job.get(name), (dict, list)):
            job[name] = {}
        job = job[name]
    job[last] = value


def keys(elapse):
    """(base, dotted path in the job, what the key takes) for every documented key."""
    rows = subprocess.run([elapse, "--help=rows"], capture_output=True, text=True, check=True).stdout
    for row in rows.splitlines():
        what, *cells = row.split("\t")
        if what == "key":
            yield "uniform", cells[0], cells[1].replace(" ", "|")
            yield "gpt", cells[0], cells[1].replace(" ", "|")
        elif what == "field":
            table, key, takes = cells[:3]
            where, path = PLACES.get(table, (table, "model"))
            yield where, f"{path}.{key}", takes


def values(takes):
    units = [v for kind, some in UNITS.items() if takes in ("", kind) for v in some]
    words = [w for w in takes.split("|") if WORDS.match(w)]
    return NUMBERS + WRONG + units + words


def bad_figure(answer, path=""):
    """The path of the first number that no answer may have."""
    if isinstance(answer, dict):
        pairs = answer.items()
    elif isinstance(answer, list):
        pairs = enumerate(answer)
    else:
        low = 0 if re.search(r"(_ns|_bytes|_per_s|hours|kwh)(\.\d+)*$", path) else -math.inf
        number = isinstance(answer, (int, float)) and not isinstance(answer, bool)
        return path if number and not (low <= answer < math.inf) else None
    return next((bad for name, one in pairs if name != "job" or path
                 if (bad := bad_figure(one, f"{path}.{name}" if path else str(name)))), None)


def names(tool, key):
    """Whether the error names the key, or another that it made necessary ("rope_dim must be ...")."""
    need = re.search(r"([a-z_.]+) must ", tool.said)
    return key.split(".")[-1] in tool.said or need and need[1].split(".")[-1] in tool.keys


def check(tool, args, key, value, syntax):
    """The exit status."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        status, answer = tool.ask(*args)
    except subprocess.TimeoutExpired:
        tool.breaks("no end", args)
        return 2
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    tool.slowest = max(tool.slowest, (took, " ".join(args)))
    tool.holds(took < LIMIT_S, f"{took:.1f} s", args)
    tool.count[status] = tool.count.get(status, 0) + 1
    if status == 0:
        bad = bad_figure(answer)
        tool.holds(not bad, f"{bad} in the answer", args)
    elif not (re.search(r":\d+:\d+: ", tool.said) if syntax else names(tool, key) or status == 1 or
              status == 3 and value.strip('"') in tool.said):
        tool.breaks(f"exit {status} without the key {key}: {tool.said[:300]!r}", args)
    return status


def main():
    tool = Tool(sys.argv[1], sys.argv[2])
    tool.slowest, tool.count = (0, ""), {}
    part, of = map(int, sys.argv[4].split("/")) if len(sys.argv) > 4 else (0, 1)
    n, seen, table = 0, set(), list(keys(tool.elapse))
    tool.keys = {path.split(".")[-1] for _, path, _ in table}
    for where, path, takes in table:
        seen.add(path)
        cases = [(json.dumps(v), False) for v in values(takes)] + [(text, True) for text in LITERALS]
        for text, syntax in cases:
            n += 1
            if n % of != part:
                continue
            job = base(where)
            put(job, path, "@@")
            name = f"{tool.folder}/x{n}.json"
            with open(name, "w", encoding="utf-8") as file:
                file.write(json.dumps(job).replace('"@@"', text))
            left = len(tool.broken)
            for args in (["plan", name], ["sim", name], ["sim", name, "--step"]):
                if check(tool, args, path, text, syntax) == 2:
                    break  # all commands read a job in the same way
            if len(tool.broken) == left:
                os.remove(name)
            else:
                tool.broken[left] += f"\n    {path} = {text}"
    print("\n".join(tool.broken[:200]))
    print(f"slowest: {tool.slowest[0]:.1f} s of processor time: {tool.slowest[1]}")
    print(f"{len(seen)} keys, {tool.runs} commands (exit: {tool.count}), {len(tool.broken)} broken")
    return 1 if tool.broken or len(seen) < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
