"""Ask `elapse sim` for the step time of a published run, and print predictions beside measurements."""
import json
import math
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ELAPSE = os.path.join(os.environ.get("ELAPSE_BIN", os.path.join(ROOT, "build", "bin")), "elapse")
PEAK = {"a100": 312e12, "h100": 989.4e12, "b200": 2250e12, "gb200": 2500e12, "b300": 2250e12, "gb300": 2500e12}
# What a process gets, by PyTorch's message of a lack ("total capacity of"): A100 79.25 GiB (OOTDiffusion issue 235, Vad-R1
# issue 11), H100 79.18; the others as in profiles/devices.
MEMORY = {kind: int(gib * 2**30) for kind, gib in
          {"a100": 79.25, "h100": 79.18, "h200": 139.8, "b200": 178.35, "gb200": 184.31, "b300": 267.69, "gb300": 276.5}.items()}


def cluster(kind, gpus, **more):
    """Nodes of 8 devices; link figures and the memory of the context are those of the kind unless given."""
    devices = min(8, gpus)
    return dict({"kind": kind, "nodes": -(-gpus // devices), "devices_per_node": devices,
                 "latency": "5us"}, **more)


def megatron_places(tp, dp, pp):
    """First devices of each replica's groups: tensor ranks are neighbours, pipeline ranks far."""
    return [[(k * dp + r) * tp for k in range(pp)] for r in range(dp)]


def step_ms(run):
    """Like predicted(), refused where the memory does not suffice. Returns (ms, None), or
    (None, reason)."""
    ms, full, why = predicted(run)
    return (ms, None) if ms and full <= 1 else (None, why or "out of memory")


# `elapse plan` prefers a plan whose peak may be as many times larger (framework_memory_doubt() in partition/model/framework.c)
# to one that is faster by no more than NEARLY (plan_margin_of() in cli/plans/plan_memory.c).
DOUBT, NEARLY = math.exp(1.2816 * 0.1), 0.05


def predicted(run):
    """Returns (ms, peak over memory, None), or (None, None, reason)."""
    with tempfile.TemporaryDirectory() as folder:
        limit = write_run(run, folder)
        answer, why = simulate(folder, folder + "/none.db")
    if why:
        return None, None, why
    peak = max(d["peak_bytes"] for d in answer["devices"])
    return answer["step_ns"] / 1e6, peak / limit, None


def simulate(folder, store, *more):
    """The answer of `elapse sim` for the run in a folder and None, or None and the reason."""
    got = subprocess.run([ELAPSE, "sim", folder + "/job.json", "--step", "--plan", folder + "/plan.json",
                          "--json", *more], capture_output=True, text=True, env=dict(os.environ, ELAPSE_DB=store))
    if got.returncode:
        return None, got.stderr.strip().split("\n")[0]
    return json.loads(got.stdout), None


def bucket_of(run):
    """What overlap_grad_reduce sums at once (framework_bucket_bytes() in partition/model/framework.c); elsewhere the rows
    are of runs that sum after the backward, or under FSDP."""
    family = run.get("framework", "auto").split("@")
    if family[0] not in ("megatron-te", "nemo") or family[1:] == ["2023"]:
        return 0
    replicas = run.get("dp", 1) * run.get("context", 1)
    return max(40, replicas) * 10**6 * (run.get("gradient_bytes", 0) or (2 if family[0] == "nemo" else 4))


def write_run(run, folder):
    """Write job.json and plan.json of a run: model, cluster, micro_batch, micro_batches, tp, dp, pp, context, lora, and
    the keys of job and plan below. Returns the memory of a device in bytes."""
    pp, v, layers = run.get("pp", 1), run.get("chunks", 1), run["layers"]
    recompute = run.get("recompute", "never")
    batch = run["micro_batch"] * run["micro_batches"]
    pipeline = {"num_stages": pp, "num_replicas": run.get("dp", 1), "chunks": v,
                "num_microbatches": run["micro_batches"], "tensor": run.get("tp", 1),
                "sequence_parallel": run.get("sequence_parallel", False),
                "shard": run.get("shard", "none"), "recompute": recompute,
                "expert": run.get("expert", 1), "context": run.get("context", 1),
                "schedule": run.get("schedule", "1f1b" if v == 1 else "interleaved")}
    cluster = dict(run["cluster"])
    limit = cluster["mem"] if "mem" in cluster else MEMORY[cluster["kind"]]
    cluster["mem"] = 1 << 50 # the limit is judged here, so that a run without room has a time
    job = {"name": "truth", "model": run["model"], "cluster": cluster,
           "data": {"kind": "synthetic", "train_samples": 1 << 24},
           "train": {"framework": run.get("framework", "auto"), "norm": run.get("norm", "auto"),
                     "overlap": run.get("overlap", "auto"), "dispatcher": run.get("dispatcher", "alltoall"),
                     "cuda_graphs": run.get("cuda_graphs", "none"), "gradient_bytes": run.get("gradient_bytes", 0),
                     "fp8_attention": run.get("fp8_attention", False),
                     "fp8_activation": run.get("fp8_activation", False), "fp8_scaling": run.get("fp8_scaling", "current"),
                     "batch": {"per_pipeline": batch}, "dtype": run.get("dtype", "bf16"),
                     "dropout": run.get("dropout", 0), "attention": run.get("attention", "fused"),
                     "optimizer": {"kind": "adamw"}, "clip_norm": 1.0, "lora": run.get("lora", {})},
           "pipeline": pipeline,
           "cost": {"source": run.get("cost", "kernels")}}
    tail = run.get("tail_items", 2)
    per = run.get("stage_layers") or [layers * (k + 1) // (pp * v) - layers * k // (pp * v) for k in range(pp * v)]
    cut = [run.get("layer_items", 2) * n for n in per]
    cut[0] += 1
    cut[-1] += tail
    plan = {"schema": 1, "pipeline_length": pp, "chunks": v, "replicas": run.get("dp", 1),
            "microbatches": run["micro_batches"], "microbatch_size": run["micro_batch"],
            "batch": batch, "schedule": pipeline["schedule"], "frozen_layers": 0, "frozen": "none",
            "recompute": recompute, "cut": cut, "tensor": pipeline["tensor"],
            "sequence_parallel": pipeline["sequence_parallel"], "expert": pipeline["expert"], "shard": pipeline["shard"],
            "context": pipeline["context"],
            "devices": megatron_places(pipeline["tensor"], run.get("dp", 1) * pipeline["context"], pp),
            "cache_write": False, "bucket_bytes": run.get("bucket_bytes", bucket_of(run)), "clip": True,
            "optimizer_bytes_per_param": 8, "canonical": False, "step_ns": 0,
            "memory_bytes": [0] * pp}
    if "expert_tensor" in run: # of the group's devices; else all of them
        pipeline["expert_tensor"] = plan["expert_tensor"] = run["expert_tensor"]
    if recompute == "layer":
        plan["recompute_layers"] = [min(n, run.get("recompute_layers", layers) * n // layers) for n in per]
    with open(folder + "/job.json", "w") as f:
        json.dump(job, f)
    with open(folder + "/plan.json", "w") as f:
        json.dump(plan, f)
    return limit


def gpt(layers, hidden, heads, seq, vocab=51200):
    return ("gpt2:layers=%d,hidden=%d,heads=%d,mlp=%d,seq=%d,max_seq=%d,vocab=%d" %
            (layers, hidden, heads, 4 * hidden, seq, seq, vocab))


def gpt_flops(samples, layers, hidden, seq, vocab, forwards):
    """Flops of a step that runs `forwards` forwards and one backward (two forwards' worth)."""
    forward = samples * seq * (layers * (24 * hidden ** 2 + 4 * seq * hidden))
    return (forwards + 2) * forward + 6 * samples * seq * hidden * vocab


def llama_flops(samples, layers, hidden, kv, mlp, seq, vocab, forwards):
    weights = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * mlp
    forward = samples * seq * layers * (2 * weights + 4 * seq * hidden)
    return (forwards + 2) * forward + 6 * samples * seq * hidden * vocab


def ranks(values):
    """Places of the values in ascending order; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    got, i = [0.0] * len(values), 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
            j += 1
        for k in order[i:j + 1]:
            got[k] = (i + j) / 2
        i = j + 1
    return got


def spearman(x, y):
    """Rank correlation (Spearman 1904): that of the ranks; 0 where all of a list are equal."""
    a, b = ranks(x), ranks(y)
    middle = (len(a) - 1) / 2
    both = sum((i - middle) * (j - middle) for i, j in zip(a, b))
    sizes = sum((i - middle) ** 2 for i in a) * sum((j - middle) ** 2 for j in b)
    return both / sizes ** 0.5 if sizes else 0


class Row:
    """One published run. group: what it is a layout of; None: of nothing that others are layouts of.
    measured: ms, None where it ran out of memory. predicted: ms; full: the
    computed peak over the memory, and fits: the verdict; simple: FLOPs / (peak x 0.45)."""

    def __init__(self, label, group, measured, predicted, full, simple):
        self.label, self.group, self.measured = label, group, measured
        self.predicted, self.full, self.simple = predicted, full, simple
        self.fits = full is not None and full <= 1


def first_choices(group, time):
    """The rows of the shortest time. More than one where times are equal: each is as likely."""
    best = min(map(time, group))
    return [r for r in group if time(r) == best]


def rank(found, time):
    """Over groups: the first choice among the runs that ran, and among all that were tried and that the
    memory model allows, as `elapse plan` makes it: one with room if it is nearly as fast. Returns the regrets of the former, (share of choices that ran, regret
    of those) of the latter, and rank correlations."""
    ran, tried, correlation = [], [], []
    for name in dict.fromkeys(r.group for r in found if r.group):
        group = [r for r in found if r.group == name and r.predicted]
        alive = [r for r in group if r.measured]
        if len(alive) < 2:
            continue
        best = min(r.measured for r in alive)
        ran.append(mean([r.measured / best - 1 for r in first_choices(alive, time)]))
        correlation.append(spearman([time(r) for r in alive], [r.measured for r in alive]))
        if len(alive) < len(group):
            chosen = first_choices([r for r in group if r.fits] or group, time)
            safe = [r for r in group if r.full * DOUBT <= 1 and time(r) * (1 - NEARLY) <= time(chosen[0])]
            chosen = first_choices(safe, time) if safe else chosen
            lived = [r.measured / best - 1 for r in chosen if r.measured]
            tried.append((len(lived) / len(chosen), mean(lived) if lived else None))
    return ran, tried, correlation


def mean(values):
    return sum(values) / len(values)


def show_rank(name, found, time):
    ran, tried, correlation = rank(found, time)
    if not ran:
        return
    line = "regret among those that ran %.1f %% (%d groups), rank correlation %.2f" % (
        100 * mean(ran), len(ran), mean(correlation))
    if tried:
        regrets = [r for _, r in tried if r is not None]
        line += "; first choice of all tried ran in %.3g of %d%s" % (
            sum(share for share, _ in tried), len(tried),
            ", regret %.1f %%" % (100 * mean(regrets)) if regrets else "")
    print("%-34s            %s" % (name, line))


class Table:
    """Rows of one source."""

    def __init__(self, name, fitted, verbose):
        self.name, self.fitted, self.verbose = name, fitted, verbose
        self.rows, self.refused = [], 0

    def add(self, label, measured_ms, run, flops, gpus, kind, group=None):
        ms, full, why = predicted(run)
        simple = flops / (gpus * PEAK[kind] * 0.45) * 1e3
        self.rows.append(Row(label, group, measured_ms, ms, full, simple))
        if ms is None:
            self.refused += 1
            print("  %-44s refused: %s" % (label, why))
        elif self.verbose:
            print("  %-44s measured %9s  predicted %9.1f ms%s  %s" % (
                label, "%.1f ms" % measured_ms if measured_ms else "oom", ms,
                "" if full <= 1 else " (no room)",
                "%+6.1f %%   simple %+6.1f %%" % (100 * (ms / measured_ms - 1), 100 * (simple / measured_ms - 1))
                if measured_ms else ""))

    def show(self):
        show_rows(self.name, self.rows, self.refused)
        print("%-34s            %s" % ("  fitted on", self.fitted))
        sys.stdout.flush()


def show_rows(name, found, refused):
    def line(e):
        return "mean |error| %5.1f %%, bias %+6.1f %%, worst %+6.1f %%" % (
            100 * mean([abs(x) for x in e]), 100 * mean(e), 100 * max(e, key=abs))
    timed = [r for r in found if r.measured and r.predicted]
    errors = [r.predicted / r.measured - 1 for r in timed]
    print("%-34s %4d rows: %s" % (name, len(errors), line(errors) if errors else "none"))
    if timed:
        print("%-34s            %s" % ("  FLOPs / (peak x 0.45)", line([r.simple / r.measured - 1 for r in timed])))
    show_rank("  ranking", found, lambda r: r.predicted)
    show_rank("  ranking by FLOPs / (peak x 0.45)", found, lambda r: r.simple)
    judged = [r for r in found if r.predicted]
    died = [r for r in judged if not r.measured]
    if died:
        print("%-34s            %d of %d that died are allowed, %d of %d that ran are refused" % (
            "  memory", sum(r.fits for r in died), len(died),
            sum(not r.fits for r in judged if r.measured), sum(1 for r in judged if r.measured)))
    if refused:
        print("%-34s            %d rows refused" % ("", refused))


def show_all(name, tables):
    tables = list(tables)
    found = []
    for t in tables:
        for r in t.rows:
            found.append(Row(r.label, r.group and (t.name, r.group), r.measured, r.predicted, r.full, r.simple))
    show_rows(name, found, sum(t.refused for t in tables))
