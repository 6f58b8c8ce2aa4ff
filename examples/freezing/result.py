#!/usr/bin/env python3
"""examples/freezing/result.py WORKLOAD ARM SEED DIR CPU_S - one JSON line about a finished run."""
import datetime
import json
import os
import sys

workload, arm, seed, folder, cpu_s = sys.argv[1:6]
with open(os.path.join(folder, "summary.json")) as f:
    summary = json.load(f)
with open(os.path.join(folder, "metrics.jsonl")) as f:
    steps = [json.loads(line) for line in f]
frozen = [0] * (steps[-1]["epoch"] + 1)  # F of the last step of each epoch
for step in steps:
    frozen[step["epoch"]] = step["frozen_layers"]
print(json.dumps({
    "workload": workload, "arm": arm, "seed": int(seed),
    "accuracy": summary["eval_accuracy"], "loss": summary["eval_loss"],
    "initial_accuracy": summary.get("initial_accuracy"), "initial_loss": summary.get("initial_loss"),
    "train_s": round(summary["train_ns"] / 1e9, 3), "wall_s": round(summary["wall_ns"] / 1e9, 3),
    "cpu_s": float(cpu_s), "steps": summary["steps"], "frozen": frozen,
    "frozen_steps": sum(step["frozen_layers"] for step in steps),
    "probe_share": summary.get("probe_share"), "ranks": summary["ranks"],
    "machine": summary["machine"]["device_name"], "version": summary["version"],
    "round": int(os.environ.get("ROUND", 1)), "load": round(os.getloadavg()[0], 1), "date": datetime.date.today().isoformat(),
}, separators=(",", ":")))
