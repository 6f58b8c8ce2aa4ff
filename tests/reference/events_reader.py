#!/usr/bin/env python3
"""Reads a run's TensorBoard event files by TensorBoard's own reader (PyPI: tensorboard).

    events_reader.py EVENTS_DIR RUN_DIR

Each curve has one point a step of metrics.jsonl with that step's value, and the last accuracy is that of
summary.json. Prints the names of the curves.
"""
import json
import math
import os
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# Curve: what metrics.jsonl says of it. An event holds single precision.
CURVES = {
    "train/loss": lambda row: row["loss"],
    "train/lr": lambda row: row["lr"],
    "train/grad_norm": lambda row: row["grad_norm"],
    "speed/step_ms": lambda row: row["step_ns"] / 1e6,
    "speed/samples_per_s": lambda row: row["samples_per_s"],
    "plan/K": lambda row: row["pipeline_length"],
    "plan/R": lambda row: row["replicas"],
    "plan/F": lambda row: row["frozen_layers"],
}


def check(name, got, want):
    if got[0] != want[0] or not math.isclose(got[1], want[1], rel_tol=1e-6):
        sys.exit(f"{name}: TensorBoard reads {got[1]} at step {got[0]}, the run says {want[1]} at {want[0]}")


def main():
    events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    with open(os.path.join(sys.argv[2], "metrics.jsonl")) as f:
        rows = [json.loads(line) for line in f]
    with open(os.path.join(sys.argv[2], "summary.json")) as f:
        summary = json.load(f)
    for name, value in CURVES.items():
        if name not in tags:
            sys.exit(f"no curve '{name}' among {tags}")
        points = events.Scalars(name)
        if len(points) != len(rows):
            sys.exit(f"{name}: {len(points)} points of {len(rows)} steps")
        for point, row in zip(points, rows):
            check(name, (point.step, point.value), (row["step"], value(row)))
    last = events.Scalars("eval/accuracy")[-1]
    check("eval/accuracy", (last.step, last.value), (rows[-1]["step"], summary["eval_accuracy"]))
    print(len(rows), "steps:", *sorted(tags))


main()
