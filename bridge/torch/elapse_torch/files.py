"""Files for `elapse`: a model, a job, a profile. Without PyTorch, so that `make test` checks them."""
import json
import os
import re

from . import __version__
from .errors import BridgeError

PASSES = ("fwd", "bwd_input", "bwd_weight")
DTYPE_NAMES = ("fp32", "bf16", "tf32", "fp16")


def item_name(path, taken):
    """At most 31 characters without commas and quotes, and not in `taken`."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path)[-31:]
    count = 1
    while name in taken:
        count += 1
        tail = f"~{count}"
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", path)[-(31 - len(tail)):] + tail
    return name


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values):
    return {"median_ns": percentile(values, .5), "p10_ns": percentile(values, .1),
            "p90_ns": percentile(values, .9), "count": len(values)}


def layer_row(device_kind, dtype, ranks, item, name, samples, times):
    return {"backend": "cpu" if device_kind == "cpu" else "cuda", "dtype": dtype,
            "threads": 0, "ranks": ranks, "item": item, "variant": "own", "hidden": 0, "heads": 0,
            "mlp": 0, "seq": 0, "patch": 0, "image": 0, "vocab": 0, "classes": 0, "pass": name,
            "samples": samples, **times}


def profile_json(name, about, layers=(), links=(), collectives=(), note=""):
    """A profile in the form of `elapse profiles export`."""
    head = {"name": name, "source": "measured", "note": note, "device_kind": "cpu",
            "device_name": "", "mem_bytes": 0, "cores": 0, "clock_mhz": 0, "driver": "",
            "libraries": "", "host": "", "measured_at": "", "version": f"elapse-torch {__version__}",
            "load": 0, "bf16_kernel": "", "fp32_kernel": ""}
    head.update({k: v for k, v in about.items() if k in head})
    return {"elapse_profile": 1, "profile": head, "layer_cost": list(layers),
            "link_cost": list(links), "collective_cost": list(collectives), "host_cost": [],
            "memory_use": []}


def times_rows(medians):
    """Rows [microbatch, fwd, bwd_input, bwd_weight] of {size: {pass: ns}}. A larger micro-batch is
    never given less time than a smaller one, which noise can measure."""
    rows, least = [], dict.fromkeys(PASSES, 0)
    for size in sorted(medians):
        least = {p: max(least[p], int(medians[size][p])) for p in PASSES}
        rows.append([size] + [least[p] for p in PASSES])
    return rows


def model_json(name, num_layers, kind, items, costs=()):
    """An explicit model. items: dicts with name, layer, params, act_bytes, stash_bytes, work_bytes,
    update_ns, times: {size: {pass: ns}}. costs: further keys of the model, such as op_overhead_ns."""
    rows = []
    for item in items:
        row = {k: item[k] for k in ("name", "layer", "params", "act_bytes", "stash_bytes",
                                    "work_bytes", "update_ns")}
        row["times"] = {kind: times_rows(item["times"])}
        rows.append(row)
    return {"name": name, "layers": num_layers, **dict(costs), "items": rows}


def job_json(name, model_file, kind, ranks, batch, optimizer, cluster=None):
    return {"name": name, "model": model_file,
            "train": {"batch": {"per_pipeline": batch}, "optimizer": {"kind": optimizer}},
            "data": {"kind": "synthetic", "train_samples": batch * 100},
            "cluster": dict({"nodes": 1, "devices_per_node": ranks, "kind": kind}, **(cluster or {}))}


def write_json(path, content):
    """Write the whole file or leave the old one."""
    with open(path + ".tmp", "w", encoding="utf-8") as f:
        json.dump(content, f, indent=1)
        f.write("\n")
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)


def message_host(busy):
    """Keys of a cluster for the processor time of a message at one end, [(bytes, ns)] by rising size. The shortest time is
    that of any message. What the largest takes beyond it is by its bytes."""
    least = min((ns for _, ns in busy), default=0)
    keys = {"message_host": f"{least / 1e3:.3f}us"} if least > 0 else {}
    if busy and busy[-1][1] > least:
        keys["message_host_rate"] = f"{busy[-1][0] / (busy[-1][1] - least):.6f}GBps"
    return keys


def cluster_json(kind, ranks, links, busy=()):
    """A cluster of one node. links: rows of link_cost. The shortest time is the latency. A message
    takes at most the time of a larger one. Messages larger than any that takes less than twice the
    latency give a rate, which must not fall with the size; smaller ones show noise only. busy: of message_host()."""
    cluster = {"nodes": 1, "devices_per_node": ranks, "kind": kind}
    if links:
        latency = min(row["median_ns"] for row in links)
        cluster["latency"] = f"{latency / 1e3:.3f}us"
        noise = max(row["bytes"] for row in links if row["median_ns"] < 2 * latency)
        points, most, longest = [], float("inf"), float("inf")
        for row in sorted(links, key=lambda row: -row["bytes"]):
            if row["bytes"] > noise:
                longest = min(longest, row["median_ns"])
                most = min(most, row["bytes"] / (longest - latency))
                points.insert(0, [row["bytes"], f"{most:.6f}GBps"])
        if points:
            cluster["link"] = points
    return {**cluster, **message_host(busy)}


def check_run_folder(folder):
    """Refuse a folder that holds a run, as `elapse train` does."""
    if any(os.path.exists(f"{folder}/{name}") for name in ("run.db", "run.json", "summary.json", "metrics.jsonl")):
        raise BridgeError(f"folder '{folder}' already holds a run", hint="name another one with --run-dir")


def write_run(folder, plan, about, step_ns, losses, ops_of_ranks):
    """run.json, for `elapse runs import`, and summary.json of a run folder. step_ns, losses: of all steps in order.
    ops_of_ranks: [(replica, rank in its pipeline, [(kind, stage, micro-batch, begin, end)])] of the last step."""
    os.makedirs(folder, exist_ok=True)
    length, replicas, last = plan["pipeline_length"], plan["replicas"], len(step_ns) - 1
    begin = min((op[3] for _, _, ops in ops_of_ranks for op in ops), default=0)
    job = plan.get("job", {})
    write_json(f"{folder}/run.json", {
        "name": job.get("name", "torch"), "host": about["host"], "cost_source": plan.get("cost_label", ""),
        "devices": length * replicas, "job": job,
        "steps": [{"step": i, "step_ns": ns, "loss": loss, "samples_per_s": plan["batch"] * replicas * 1e9 / ns,
                   "pipeline_length": length, "replicas": replicas}
                  for i, (ns, loss) in enumerate(zip(step_ns, losses))],
        "ops": [{"step": last, "replica": replica, "rank": rank, "op": kind, "stage": stage, "microbatch": m,
                 "start_ns": start - begin, "end_ns": end - begin}
                for replica, rank, ops in ops_of_ranks for kind, stage, m, start, end in ops]})
    write_json(f"{folder}/summary.json", {
        "plan": plan, "ranks": length * replicas, "cluster": "job", "backend": "torch", "machine": about})
