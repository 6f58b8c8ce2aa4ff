#!/usr/bin/env python3
"""What must hold whatever is asked: random steps, plans, whole runs and absurd figures.

    properties.py ELAPSE FOLDER [CASES [SEED [LAWS]]]

Nothing here knows what the answer is (step_oracle.py does), only how answers belong together: what is
counted twice is equal, what closed forms give, what cannot be less than something else. FOLDER takes
the job files. LAWS jobs (0.3 of CASES) are asked again with other figures, and the answers must follow. Exit 1
and the command lines of what breaks.
"""
import json
import math
import random
import re
import shlex
import subprocess
import sys

V_SHAPED = ("zb-v", "dualpipe-v", "v-half", "v-min")
TWO_CHUNKS = ("interleaved", "breadth-first", "looped-bfs") + V_SHAPED
KINDS = ["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"] + list(TWO_CHUNKS)
FREE_LINKS = {"link": "1000000000GBps", "uplink": "1000000000GBps", "latency": "0ns"}


def no_constant(name):
    raise ValueError(name + " is no JSON")


# What says how far a long command is, on a slow machine.
PROGRESS = re.compile("plan: .* candidates, |[a-z]+: .* left$")


class Tool:
    """Runs the program; all that breaks is kept with the command that showed it."""

    def __init__(self, elapse, folder):
        self.elapse, self.folder, self.runs, self.broken = elapse, folder, 0, []
        self.said = ""  # the last error, with its hints
        self.laws = {}  # tries of each law

    def breaks(self, what, args):
        self.broken.append(f"{what}: elapse {' '.join(shlex.quote(a) for a in args)}")

    def job(self, name, job):
        path = f"{self.folder}/{name}.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(job, file)
        return path

    def ask(self, *args):
        """(exit status, answer or None): one error line or one strict JSON object, never both."""
        args = [str(a) for a in args] + ["--json"]
        done = subprocess.run([self.elapse] + args, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=1000)
        self.runs += 1
        self.said = done.stderr
        lines = [x for x in done.stderr.splitlines() if not x.startswith("hint: ") and not PROGRESS.match(x)]
        if done.returncode not in (0, 1, 2, 3):
            self.breaks(f"exit {done.returncode} {done.stderr[:200]}", args)
        elif done.returncode > 0 and (len(lines) != 1 or done.stdout):
            self.breaks(f"{len(lines)} lines of error {done.stderr[:200]}", args)
        elif done.returncode == 0:
            try:
                return 0, json.loads(done.stdout, parse_constant=no_constant)
            except ValueError as why:
                self.breaks(f"no JSON ({why})", args)
        return done.returncode, None

    def holds(self, condition, what, args):
        if not condition:
            self.breaks(what, [str(a) for a in args])


# ---- one step ---------------------------------------------------------------------------------------
def rank_of(kind, ranks, stage):
    return 2 * ranks - 1 - stage if stage >= ranks and kind in V_SHAPED else stage % ranks


def without(answer, key):
    return {name: value for name, value in answer.items() if name != key}


def check_step(tool, rng):
    layers, kind = rng.randint(1, 16), rng.choice(KINDS)
    v = 2 if kind in TWO_CHUNKS else 1
    k, r, m = rng.randint(1, max(1, min(6, layers // v))), rng.randint(1, 3), rng.randint(1, 12)
    m = max(m, 2 * k) if kind == "dualpipe-v" else m
    if k * v > layers:
        return
    f, i, w = (rng.randint(1, 10**6) for _ in range(3))
    act, params = (rng.choice([0, rng.randint(1, 10**7)]) for _ in range(2))
    nodes = rng.choice([1, 2])
    args = ["sim", "--step", "--no-wall", "--model",
            f"uniform:layers={layers},fwd={f}ns,bwd_input={i}ns,bwd_weight={w}ns,act={act}B,"
            f"params={params},stash={rng.randint(0, 10**6)}B", "--stages", k, "--replicas", r,
            "--microbatches", m, "--schedule", kind, "--cluster", f"{nodes}x{-(-k * r // nodes)}"]
    status, step = tool.ask(*args)
    if status:
        tool.breaks(f"exit {status}", [str(a) for a in args])
        return
    ns, devices, cut = step["step_ns"], step["devices"], step["cut"]
    for d in devices:
        tool.holds(d["busy_ns"] + d["idle_ns"] == ns and
                   sum(d["idle"].values()) == d["idle_ns"] and min(d["idle"].values()) >= 0,
                   "a device's time is not busy + idle by cause", args)
        tool.holds(0 <= d["first_ns"] and d["busy_ns"] <= d["last_ns"] - d["first_ns"] and
                   d["last_ns"] <= ns, "busy outside of first..last", args)
        live = {"gpipe": m, "1f1b": min(k - d["rank"], m)}.get(kind, d["peak_live"])
        tool.holds(d["peak_live"] == live and live <= m * v, f"{live} micro-batches live", args)
    idle = sum(d["idle_ns"] for d in devices)
    tool.holds(math.isclose(step["bubble_fraction"], idle / (ns * k * r), abs_tol=1e-12), "bubble", args)
    tool.holds(sum(d["busy_ns"] for d in devices) == r * m * layers * (f + i + w), "work", args)
    tool.holds(ns >= layers * (f + i), "shorter than one micro-batch's way", args)
    if k == 1 and r == 1:
        tool.holds(ns == m * layers * (f + i + w), "one device takes its work", args)
    crossed = sum(rank_of(kind, k, s) != rank_of(kind, k, s + 1) for s in range(len(cut) - 1))
    ring = sum(2 * (r - 1) * 4 * params * items for items in cut)
    sent = sum(t["bytes"] for t in step["traffic"])
    tool.holds(abs(sent - crossed * 2 * m * act * r - ring) <= 2 * r * r * len(cut), "traffic", args)
    fixed = args + ["--cut", ",".join(map(str, cut))]
    # With a given cut there is less to search, or nothing.
    given = tool.ask(*fixed)[1] or {}
    tool.holds(without(given, "searched") == without(step, "searched"), "the found cut, given, is another step", fixed)
    # The same step as a job; the planner may find a better cut and tells what the simulator says of it.
    # A run has the plan that train would choose, without shared links.
    job = {"model": args[4], "cluster": args[-1], "train": {"batch": {"per_pipeline": m}},
           "data": {"train_samples": 3 * m * r},
           "pipeline": {"num_stages": k, "num_replicas": r, "num_microbatches": m, "schedule": kind,
                        "bucket_bytes": 0, "chunks": v}}
    path = tool.job("step", job)
    chosen = f"{tool.folder}/chosen.json"
    plan = tool.ask("plan", path, "--explain", "-o", chosen)[1]
    again = plan and tool.ask("sim", path, "--step", "--plan", chosen, "--no-wall")[1]
    run, once = tool.ask("sim", path)[1], tool.ask("sim", path, "--step")[1]
    if not (plan and again and run and once):
        tool.breaks("a step, but no plan of it: " + json.dumps(job), ["plan", path])
        return
    first = [d["peak_bytes"] for d in again["devices"] if d["replica"] == 0]
    tool.holds(plan["step_ns"] == again["step_ns"] and plan["cut"] == again["cut"] and
               plan["memory_bytes"] == first and plan["lower_bound_ns"] <= plan["step_ns"],
               "plan and sim --step differ: " + json.dumps(job), ["plan", path])
    tool.holds(all(b["step_ns"] >= b["unshared_step_ns"] for b in plan["best"]),
               "sharing links makes a step shorter: " + json.dumps(job), ["plan", path])
    tool.holds(plan["step_ns"] <= once["step_ns"], "slower than without the engine: " + json.dumps(job),
               ["plan", path])
    tool.holds(run["total_ns"] == 3 * once["step_ns"], "3 steps of a run: " + json.dumps(job), ["sim", path])


# ---- a plan -----------------------------------------------------------------------------------------
def check_plan(tool, rng):
    """Where links are free the best plan of all is the best of those with K, R and schedule given, which keep the
    optimizer on the devices: only the search over all layouts may find room by putting it elsewhere."""
    layers, devices, batch = rng.randint(2, 8), rng.choice([2, 3, 4]), rng.randint(1, 24)
    cluster = {"nodes": 1, "devices_per_node": devices, **FREE_LINKS}
    if rng.random() < 0.5:
        cluster["mem"] = f"{rng.randint(10**6, 3 * 10**7)}B"
    if rng.random() < 0.3:
        cluster["host_op"] = f"{rng.randint(0, 10**5)}ns"
    times = ",".join(f"{name}={rng.randint(1, 10**6)}ns" for name in ("fwd", "bwd_input", "bwd_weight"))
    path = tool.job("plan", {
        "model": f"uniform:layers={layers},{times},act={rng.randint(0, 10**6)}B,"
                 f"params={rng.randint(0, 10**6)},stash={rng.randint(0, 10**6)}B",
        "cluster": cluster, "train": {"batch": {rng.choice(["per_pipeline", "global"]): batch}},
        "data": {"train_samples": 1000}})
    frozen = ["--frozen", rng.choice([0, 0, 1])]
    status, plan = tool.ask("plan", path, *frozen)
    best = None
    for k in range(1, devices + 1):
        for r in range(1, devices // k + 1):
            for kind in KINDS:
                one = tool.ask("plan", path, *frozen, "--set", f"pipeline.num_stages={k}", "--set",
                               f"pipeline.num_replicas={r}", "--set", f"pipeline.schedule={kind}",
                               "--set", f"pipeline.chunks={2 if kind in TWO_CHUNKS else 1}")[1]
                if one and (not best or one["samples_per_s"] > best["samples_per_s"]):
                    best = one
    with open(path, encoding="utf-8") as file:
        text = file.read()
    tool.holds((status == 0) == (best is not None) or (plan and plan["offload"]), f"feasible or not: {text}", ["plan", path] + frozen)
    if plan and best:
        tool.holds(plan["samples_per_s"] >= best["samples_per_s"] * (1 - 1e-9),
                   f"slower than K={best['pipeline_length']} R={best['replicas']} {best['schedule']}: {text}",
                   ["plan", path] + frozen)


# ---- a plan where links are slow ---------------------------------------------------------------------
def check_rivals(tool, rng):
    """What anyone would try first, judged in the event engine, is not faster than the plan that it has chosen."""
    nodes, per_node = rng.choice([(1, 4), (2, 2), (2, 4), (4, 2), (4, 4)])
    devices, batch = nodes * per_node, rng.choice([16, 32, 64])
    half, weight = rng.randint(20000, 300000), rng.randint(20000, 300000)
    act, params = rng.choice([10000, 200000, 5000000]), rng.choice([10**5, 10**6, 10**7])
    items = [{"name": f"i{n}", "layer": n, "fwd_ns": rng.randint(4000, 300000), "bwd_input_ns": half,
              "bwd_weight_ns": weight, "act_bytes": act, "params": params}
             for n in range(rng.randint(devices, 24))]
    path = tool.job("rivals", {
        "model": {"family": "explicit", "items": items}, "train": {"batch": {"global": batch}},
        "cluster": {"preset": f"{nodes}x{per_node}", "latency": "5us",
                    "link": f"{rng.choice([1, 2, 4])}00MBps", "uplink": f"{rng.choice([25, 50, 100, 500])}MBps"}})
    plan = tool.ask("plan", path, "--simulate")[1]
    for k in [k for k in range(1, devices + 1) if devices % k == 0]:
        for m in {m for m in (1, k, 2 * k, 4 * k) if m <= batch * k // devices}:
            for kind in ("gpipe", "1f1b"):
                rival = tool.ask("plan", path, "--set", f"pipeline.num_stages={k}", "--set",
                                 f"pipeline.num_replicas={devices // k}", "--set",
                                 f"pipeline.num_microbatches={m}", "--set", f"pipeline.schedule={kind}")[1]
                tool.holds(plan and rival and plan["samples_per_s"] >= rival["samples_per_s"] * (1 - 1e-9),
                           f"slower than K={k} M={m} {kind}", ["plan", path, "--simulate"])


# ---- a whole run ------------------------------------------------------------------------------------
def random_run(rng):
    layers = rng.randint(1, 10)
    job = {"model": rng.choice([f"vit-tiny:layers={layers},hidden={2 * rng.randint(1, 99)},heads=2",
                                f"bert-base:layers={layers},seq={rng.randint(1, 512)}",
                                f"gpt2:layers={layers},seq={rng.randint(1, 256)}"]),
           "data": {"train_samples": rng.randint(1, 3000), "test_samples": rng.randint(0, 50)},
           "cluster": rng.choice(["rtx5000-2x8", "a100-1x8", "h100-1x8"]),
           "train": {"epochs": rng.randint(1, 6),
                     "batch": {rng.choice(["per_pipeline", "global"]): rng.randint(1, 200)}},
           "pipeline": {"balancer": rng.choice(["optimal", "released", "paper"])},
           "freeze": {"policy": rng.choice(["none", "closed-form", "table", "gradient-norm", "plateau"]),
                      "alpha": rng.choice(["1/3", "1/2", "9/10", 0.25]), "warmup": rng.randint(0, 2)},
           "elastic": {"setup": rng.choice(["0us", "1ms", "16s"]), "auto_dp": rng.random() < 0.7},
           "cache": {"policy": rng.choice(["off", "on", "auto"])}}
    if rng.random() < 0.3:
        job["train"]["max_steps"] = rng.randint(1, 60)
    if rng.random() < 0.3:
        job["pipeline"]["num_stages"] = rng.randint(1, 4)
    if job["freeze"]["policy"] == "table":
        job["freeze"]["table"] = sorted(rng.randint(0, layers) for _ in range(4))
    elif job["freeze"]["policy"] in ("gradient-norm", "plateau"):
        job["freeze"]["norms"] = [[rng.choice([0, rng.random()]) for _ in range(layers)] for _ in range(6)]
    return layers, job


def check_run(tool, rng):
    layers, job = random_run(rng)
    path, text = tool.job("run", job), json.dumps(job)
    args = ["sim", path, "--no-wall"]
    status, run = tool.ask(*args)
    # The same by --set over a job that says nothing.
    sets = []
    for key, value in job.items():
        for name, one in value.items() if isinstance(value, dict) else [(None, value)]:
            one = one if isinstance(one, str) else json.dumps(one)
            sets += ["--set", f"{key}{'.' + name if name else ''}={one}"]
    other, same = tool.ask("sim", tool.job("bare", {"model": job["model"], "cluster": "1x1"}),
                           "--no-wall", *sets)
    tool.holds(other == status and (status or all(same[key] == run[key] for key in
                                                  ("epochs", "total_ns", "speedup", "fair_speedup"))),
               "--set differs from the file: " + text, args)
    if status:
        return
    samples, most = job["data"]["train_samples"], job["train"].get("max_steps", 0)
    done, device_ns, before = 0, 0, None
    for e in run["epochs"]:
        k, r, batch = e["pipeline_length"], e["replicas"], job["train"]["batch"]
        all_of_step = batch["global"] if "global" in batch else batch["per_pipeline"] * r
        steps = -(-samples // all_of_step)
        tool.holds(e["steps"] == (min(steps, most - done) if most else steps), "steps: " + text, args)
        tool.holds(e["epoch_ns"] == (e["steps"] - 1) * e["step_ns"] + e["last_step_ns"],
                   "an epoch is not its steps: " + text, args)
        tool.holds(e["microbatches"] == -(-(all_of_step // r) // e["microbatch_size"]), "M: " + text, args)
        tool.holds(not e["cached"] or (e["frozen_layers"] and job["cache"]["policy"] != "off"),
                   "a cache of nothing: " + text, args)
        if before:
            changed = (before["pipeline_length"], before["replicas"]) != (k, r)
            setup = {"0us": 0, "1ms": 10**6, "16s": 16 * 10**9}[job["elastic"]["setup"]]
            tool.holds(e["transition_ns"] >= setup if changed else
                       e["transition_ns"] == 0 or e["frozen_layers"] > before["frozen_layers"],
                       "what a change costs: " + text, args)
            tool.holds(e["frozen_layers"] >= before["frozen_layers"], "F shrinks: " + text, args)
        done, before = done + e["steps"], e
        device_ns += k * r * (e["epoch_ns"] + e["transition_ns"])
    tool.holds(run["total_ns"] == sum(e["epoch_ns"] + e["transition_ns"] for e in run["epochs"]),
               "a run is not its epochs: " + text, args)
    tool.holds(math.isclose(run["device_hours"], device_ns / 3.6e12, rel_tol=1e-9),
               "device_hours: " + text, args)
    freeze = job["freeze"]
    ask = ["freeze", "--layers", layers, "--epochs", len(run["epochs"]), "--policy", freeze["policy"],
           "--alpha", freeze["alpha"], "--warmup", freeze["warmup"]]
    for name in ("table", "norms"):
        if name in freeze:
            rows = freeze[name][:len(run["epochs"])] if name == "norms" else freeze[name]
            ask += ["--" + name, tool.job(name, rows)]
    frozen = tool.ask(*ask)[1]
    tool.holds(frozen and frozen["frozen"] == [e["frozen_layers"] for e in run["epochs"]],
               "elapse freeze differs: " + text, ask)


# ---- laws: what changes with the question --------------------------------------------------------------
def law_job(rng):
    """A job on a mixed cluster of few devices: a chain of its own, given K and M or none."""
    nodes, per_node = rng.choice([(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 3)])
    speeds = rng.choice([[1], [1, 1, 2], [1, 0.5, 4]])
    devices = [{"node": n, "speed": rng.choice(speeds), "mem": "16GiB"} for n in range(nodes) for _ in range(per_node)]
    items = [{"name": f"i{n}", "layer": n, "fwd_ns": 1000 * rng.randint(1, 99), "bwd_input_ns": 1000 * rng.randint(1, 99),
              "bwd_weight_ns": 1000 * rng.randint(1, 99), "update_ns": 1000 * rng.randint(0, 9),
              "act_bytes": 1000 * rng.randint(0, 400), "params": rng.choice([0, 1000, 10**6])}
             for n in range(rng.randint(3, 12))]
    job = {"model": {"items": items}, "data": {"train_samples": 960}, "train": {"batch": {"global": 48}},
           "cluster": {"devices": devices, "link": rng.choice(["1GBps", "100MBps"]),
                       "uplink": rng.choice(["1GBps", "50MBps"]), "latency": "4us", "host_op": rng.choice(["0us", "2us"])},
           "pipeline": {}}
    if rng.random() < 0.9 or len(devices) > 3:  # a search that its budget ends may give another answer each time
        k = rng.randint(1, min(len(devices), len(items)))
        job["pipeline"] = {"num_stages": k, "num_replicas": rng.randint(1, len(devices) // k),
                           "num_microbatches": rng.choice([1, 2, 4, 8]),
                           "schedule": rng.choice(["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"])}
    return job


def scaled(job, times, rates):
    """The job with all times and all rates of links multiplied."""
    job = json.loads(json.dumps(job))
    for item in job["model"]["items"]:
        for key in [key for key in item if key.endswith("_ns")]:
            item[key] *= times
    cluster = job["cluster"]
    for key in ("latency", "host_op"):
        cluster[key] = f"{int(cluster[key][:-2]) * times}us"
    for key in ("link", "uplink"):
        cluster[key] = f"{float(cluster[key][:-4]) * rates:g}{cluster[key][-4:]}"
    return job


def shuffled(rng, value):
    """The same JSON value with the keys of its objects in another order."""
    if isinstance(value, list):
        return [shuffled(rng, one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: shuffled(rng, value[key]) for key in rng.sample(sorted(value), len(value))}


TIME = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10, "h": 3.6e12}


def check_laws(tool, rng):
    job = law_job(rng)
    path, chosen, text = tool.job("law", job), f"{tool.folder}/law-plan.json", json.dumps(job)
    plan = tool.ask("plan", path, "-o", chosen)[1]
    if not plan:
        return

    def law(name, holds, args):
        tool.laws[name] = tool.laws.get(name, 0) + 1
        tool.holds(holds, f"{name}: {text}", args)

    def step_of(name, other, file=chosen):
        return tool.ask("sim", tool.job(name, other), "--step", "--plan", file, "--no-wall")[1]

    step = step_of("law-same", job)
    law("a plan, read from its file, takes the same step", step and step["step_ns"] == plan["step_ns"], ["sim", path])
    other = tool.ask("plan", tool.job("law-order", shuffled(rng, job)))[1]
    answer = ("step_ns", "samples_per_s", "pipeline_length", "replicas", "microbatches", "schedule", "cut", "devices",
              "memory_bytes", "lower_bound_ns", "candidates")
    law("the order of keys changes nothing", other and all(other[k] == plan[k] for k in answer),
        ["plan", path])
    if not step:
        return
    twice = step_of("law-twice", scaled(job, 2, 0.5))
    law("all costs doubled double the step", twice and abs(twice["step_ns"] - 2 * step["step_ns"]) <= 2 * step["events"],
        ["sim", path, "--step", "--plan", chosen])
    faster = step_of("law-links", scaled(job, 1, 2))
    law("faster links are not slower for a plan", faster and faster["step_ns"] <= step["step_ns"] + step["events"],
        ["sim", path, "--step", "--plan", chosen])
    more = json.loads(text)
    for device in more["cluster"]["devices"]:
        device["mem"] = "32GiB"
    same = step_of("law-memory", more)
    law("more memory changes no step of a plan", same and same["step_ns"] == step["step_ns"], ["sim", path])
    # Devices of a node that are equal change places in the plan.
    with open(chosen, encoding="utf-8") as file:
        swapped = json.load(file)
    devices, place = job["cluster"]["devices"], list(range(len(job["cluster"]["devices"])))
    for like in {(d["node"], d["speed"]) for d in devices}:
        group = [i for i, d in enumerate(devices) if (d["node"], d["speed"]) == like]
        for i, at in zip(group, rng.sample(group, len(group))):
            place[i] = at
    swapped["devices"] = [[place[d] for d in row] for row in swapped["devices"]]
    permuted = step_of("law-places", job, tool.job("law-swapped", swapped))
    law("equal devices may change places", permuted and permuted["step_ns"] == step["step_ns"], ["sim", path])
    said = subprocess.run([tool.elapse, "plan", path], capture_output=True, text=True, check=False).stdout
    found = re.search(r"^step ([0-9.]+) (ns|us|ms|s|min|h)\b.*^PP (\d+) x DP (\d+) .*?M (\d+) ", said, re.M | re.S)
    law("text and --json agree", found and math.isclose(float(found[1]) * TIME[found[2]], plan["step_ns"], rel_tol=0.006) and
        [int(n) for n in found.groups()[2:]] == [plan[k] for k in ("pipeline_length", "replicas", "microbatches")],
        ["plan", path])


# ---- absurd figures ---------------------------------------------------------------------------------
NUMBERS = ["0", "1", "2", "-1", "-0", "2147483648", "576460752303423488", "1152921504606846976",
           "4611686018427387904", "9223372036854775807", "9223372036854775808", "1e308", "1e-308", "nan",
           "0x10", "", "1.5", "1e12", "+1", " 1"]


def figure(rng, units):
    number = rng.choice(NUMBERS) if rng.random() < 0.3 else str(2 ** rng.randint(30, 62))
    return number + rng.choice(units)


def check_absurd(tool, rng):
    """An answer or one line; no time or size that is negative (a sum that wrapped)."""
    times, sizes, rates = ["ns"] * 9 + ["s"], ["B"] * 9 + ["TB"], ["Bps", "TBps"]
    units = {"fwd": times, "bwd_input": times, "update": times, "act": sizes, "stash": sizes, "params": [""]}
    model = "uniform:layers=4" + "".join(f",{name}={figure(rng, units[name])}" for name in
                                         rng.sample(sorted(units), rng.choice([0, 0, 1])))
    options = {"latency": times, "host-op": times, "link": rates, "uplink": rates, "mem": sizes,
               "bucket": sizes, "batch": [""], "seed": [""], "optimizer-bytes": [""]}
    args = ["sim", "--step", "--no-wall", "--model", model, "--stages", rng.choice([1, 2, 4]),
            "--replicas", rng.choice([1, 2, 3]), "--microbatches", rng.choice([1, 1, 3]),
            "--schedule", rng.choice(KINDS[:2] + KINDS[3:5]),
            "--allreduce", rng.choice(["ring", "tree", "hierarchical"])]
    for name in rng.sample(sorted(options), 1) + rng.choice([[], ["latency"], ["host-op"]]):
        args += [f"--{name}={figure(rng, options[name])}"]
    args += [flag for flag in ("--clip", "--half-duplex", "--host-blocking") if rng.random() < 0.2]
    step = tool.ask(*args)[1]
    if step:
        figures = [step["step_ns"], step["allreduce_ns"]] + [t["bytes"] for t in step["traffic"]]
        for d in step["devices"]:
            figures += [d["busy_ns"], d["idle_ns"], d["peak_bytes"], *d["idle"].values()]
            tool.holds(d["busy_ns"] + d["idle_ns"] == step["step_ns"], "busy + idle", args)
        tool.holds(min(figures) >= 0 and max(figures) < 2**63, "a figure has wrapped", args)
    keys = {"latency": times, "host_op": times, "context": sizes, "link": rates, "copy": rates}
    cluster = {name: figure(rng, keys[name]) for name in rng.sample(sorted(keys), 2)}
    args = ["plan", tool.job("absurd", {"model": "vit-tiny:layers=2", "data": {"train_samples": 64},
                                        "cluster": {"preset": "rtx5000-1x4", **cluster}})]
    plan = tool.ask(*args)[1]
    tool.holds(not plan or 0 < plan["lower_bound_ns"] <= plan["step_ns"] <= 2**60,
               f"a plan's bound and step: {cluster}", args)


def main():
    tool = Tool(sys.argv[1], sys.argv[2])
    cases = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    laws = int(sys.argv[5]) / cases if len(sys.argv) > 5 else 0.3
    for check, share in ((check_step, 1), (check_plan, 0.1), (check_rivals, 0.5), (check_run, 0.6), (check_absurd, 2),
                         (check_laws, laws)):
        rng = random.Random(seed)
        for _ in range(math.ceil(cases * share)):
            check(tool, rng)
    print("\n".join(tool.broken[:20]))
    print("\n".join(f"{tries} tries: {name}" for name, tries in tool.laws.items()))
    print(f"{tool.runs} commands, {len(tool.broken)} properties broken")
    return 1 if tool.broken or tool.runs < cases else 0


if __name__ == "__main__":
    sys.exit(main())
