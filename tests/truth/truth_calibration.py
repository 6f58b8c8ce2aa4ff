#!/usr/bin/env python3
"""Calibrations cross-validated: `elapse calibrate` is fitted on one row of a source, on three, on half of
them, and judged on the others: the error that is left, and how many of them lie in the interval that is to
hold 80 %. Rows are drawn with fixed seeds, DRAWS times each.

usage: truth_calibration.py FOLDER [-v]    FOLDER has layouts_a100.csv, steps_a100.csv and steps_h100.csv
"""
import os
import random
import subprocess
import sys
import tempfile

import predict
import rows
import truth_h100
import truth_layouts
import truth_steps

DRAWS = 4
MOST = 40 # rows that judge a fit


def sources(folder):
    """Name: list of (measured ms, run)."""
    found = {}
    for r in rows.table(folder + "/layouts_a100.csv"):
        if r["step_ms"] != "oom":
            kernel = r["attention"] + (" + norm kernel" if r["rmsnorm_kernel"] == "yes" else "")
            found.setdefault("layouts, " + kernel, []).append((float(r["step_ms"]), truth_layouts.run_of(r)[1]))
    for r in rows.table(folder + "/steps_a100.csv"):
        n, run = truth_steps.run_of(r)
        if not truth_steps.fitted(n):
            found.setdefault("vTrain, 64 GPUs" if n["gpus"] > 8 else "vTrain, one node", []).append((float(r["step_ms"]), run))
    for r in rows.table(folder + "/steps_h100.csv"):
        found.setdefault("NeMo, GPT-3 175B on H100", []).append((float(r["step_ms"]), truth_h100.run_of(r)[1]))
    return found


def fit(folders, store):
    """Calibrate on (folder, measured ms)."""
    steps = []
    for folder, ms in folders:
        steps += ["--step", "%s/job.json --plan %s/plan.json" % (folder, folder), "--measured", "%.3fms" % ms]
    got = subprocess.run([predict.ELAPSE, "calibrate", *steps, "-o", "fit", "--json"], capture_output=True,
                         text=True, env=dict(os.environ, ELAPSE_DB=store))
    if got.returncode:
        sys.exit(got.stderr)


def judge(folders, store):
    """Errors and hits of a calibration."""
    errors, inside = [], 0
    for folder, ms in folders:
        answer, why = predict.simulate(folder, store, "--calibration", "fit")
        if why:
            sys.exit(why)
        low, high = answer["predicted_interval_ns"]
        errors.append(abs(answer["step_ns"] / 1e6 / ms - 1))
        inside += low <= ms * 1e6 <= high
    return errors, inside


def main():
    for name, found in sources(sys.argv[1]).items():
        with tempfile.TemporaryDirectory() as top:
            folders = []
            for i, (ms, run) in enumerate(found):
                os.mkdir("%s/%d" % (top, i))
                predict.write_run(run, "%s/%d" % (top, i))
                folders.append(("%s/%d" % (top, i), ms))
            for size in (1, 3, min(len(found) // 2, 60)):
                errors, inside = [], 0
                for draw in range(DRAWS):
                    order = folders[:]
                    random.Random(draw).shuffle(order)
                    store = "%s/%d-%d.db" % (top, size, draw)
                    fit(order[:size], store)
                    e, hits = judge(order[size:size + MOST], store)
                    errors += e
                    inside += hits
                print("%-34s fitted on %3d: mean |error| %5.1f %%, in the interval %5.1f %% of %d" % (
                    name, size, 100 * predict.mean(errors), 100 * inside / len(errors), len(errors)))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
