#!/usr/bin/env python3
"""One table of all sources: the error natively, after `elapse calibrate` on one and on two rows of the source, how
many of the rows that were not fitted lie in the interval that is to hold 80 %, and the verdicts of memory.

Which rows are fitted is drawn with a fixed seed, DRAWS times a source and size, and at most MOST others judge each: in brackets how their error changes.
Over two minutes of processor time, so not part of `make truth`.

usage: truth_table.py FOLDER [NAME]    FOLDER as for `make truth`; NAME: only sources with that in their name
"""
import contextlib
import importlib
import io
import math
import os
import random
import subprocess
import sys
import tempfile

import predict

DRAWS = 24
MOST = 8
MODULES = ("truth_steps", "truth_layouts", "truth_megatron", "truth_fsdp", "truth_h100", "truth_nemo", "truth_gptoss",
           "truth_lora")


class Source:
    """Takes the place of predict.Table, and keeps the runs of a source."""
    found = []

    def __init__(self, name, fitted, verbose):
        self.name, self.runs, self.rows, self.refused = name, [], [], 0
        Source.found.append(self)

    def add(self, label, measured_ms, run, flops, gpus, kind, group=None):
        self.runs.append((measured_ms, run))

    def show(self):
        pass


def sources(folder):
    predict.Table, predict.show_all = Source, lambda name, tables: None
    sys.argv = ["", folder]
    with contextlib.redirect_stdout(io.StringIO()):
        for name in MODULES:
            importlib.import_module(name).main()
    return Source.found


def fit(steps, store):
    """Calibrate on (measured ms, folder). Returns the answer."""
    words = []
    for ms, folder in steps:
        words += ["--step", "%s/job.json --plan %s/plan.json" % (folder, folder), "--measured", "%.3fms" % ms]
    got = subprocess.run([predict.ELAPSE, "calibrate", *words, "-o", "fit", "--json"], capture_output=True, text=True,
                         env=dict(os.environ, ELAPSE_DB=store))
    return got.returncode == 0


def judge(steps, store):
    """Errors of a calibration, and how many steps lie in their interval."""
    errors, inside = [], 0
    for ms, folder in steps:
        answer, why = predict.simulate(folder, store, "--calibration", "fit")
        if why:
            sys.exit(why)
        low, high = answer["predicted_interval_ns"]
        errors.append(abs(answer["step_ns"] / 1e6 / ms - 1))
        inside += low <= ms * 1e6 <= high
    return errors, inside


def line_of(source, top):
    ran, died, allowed, refused, logs, native, unnamed = [], 0, 0, 0, [], {}, []
    for i, (ms, run) in enumerate(source.runs):
        folder = "%s/%d" % (top, i)
        os.mkdir(folder)
        limit = predict.write_run(run, folder)
        answer, why = predict.simulate(folder, top + "/none.db")
        if why:
            continue
        judged = not run.get("on_host") # layers with activations in the host's memory, which the tool has not
        fits = max(d["peak_bytes"] for d in answer["devices"]) <= limit or not judged
        died, allowed = died + (not ms), allowed + (not ms and fits)
        if ms:
            ran.append((ms, folder))
            native[folder] = abs(answer["step_ns"] / 1e6 / ms - 1)
            refused += not fits
            logs.append(math.log(ms / (answer["step_ns"] / 1e6)))
            predict.write_run(dict(run, framework="auto"), top)
            answer, why = predict.simulate(top, top + "/none.db")
            unnamed += [] if why else [abs(answer["step_ns"] / 1e6 / ms - 1)]
    middle = predict.mean(logs)
    spread = math.sqrt(sum((x - middle) ** 2 for x in logs) / max(1, len(logs) - 1))
    cells = ["%.1f" % (100 * predict.mean([abs(math.exp(-x) - 1) for x in logs]))]
    for size in (1, 2):
        errors, inside, before = [], 0, []
        for draw in range(min(DRAWS, 2 * len(ran)) if len(ran) > size else 0):
            turned = random.Random(draw).sample(ran, min(len(ran), size + MOST))
            store = "%s/%d-%d.db" % (top, size, draw)
            if fit(turned[:size], store):
                e, hits = judge(turned[size:], store)
                errors, inside = errors + e, inside + hits
                before += [native[folder] for _, folder in turned[size:]]
        cells += ["%.1f (%+.1f)" % (100 * predict.mean(errors), 100 * (predict.mean(errors) - predict.mean(before))),
                  "%.0f" % (100 * inside / len(errors))] if errors else ["", ""]
    memory = "%d of %d, %d of %d" % (allowed, died, refused, len(ran)) if died or refused else "0 of %d" % len(ran)
    return [source.name, "%d" % len(ran), "%+.2f, %.2f" % (middle, spread), *cells, memory,
            "%.1f" % (100 * predict.mean(unnamed)) if unnamed else ""]


def main():
    name = sys.argv[2] if len(sys.argv) > 2 else ""
    print("| source | rows | ln: mean, spread | natively, % | one row | inside | two rows | inside | memory | unnamed |")
    print("| --- " * 10 + "|")
    for source in sources(sys.argv[1]):
        if name in source.name and source.runs:
            with tempfile.TemporaryDirectory() as top:
                print("| %s |" % " | ".join(line_of(source, top)))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
