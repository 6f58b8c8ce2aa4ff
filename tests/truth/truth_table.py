#!/usr/bin/env python3
"""One table of all sources: the error natively, after `elapse calibrate` on one and on two rows of the source, how
many of the rows that were not fitted lie in the interval that is to hold 80 %, and the verdicts of memory.

Which rows are fitted is drawn with a fixed seed, DRAWS times a source and size, and at most MOST others judge each. docs/costs-truth.md
says what each column is. Over two minutes of processor time, so not part of `make truth`.

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
PERFECT = 200
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
    """Calibrate on (measured ms, folder). Returns whether it did."""
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


class Line:
    """What the table says of a source. ran: (ms, folder); native, unnamed: errors; one, two: judge_draws()."""

    def __init__(self, source, top):
        self.name, self.ran, self.native, self.unnamed = source.name, [], {}, []
        self.died = self.allowed = self.refused = self.judged = 0
        for i, (ms, run) in enumerate(source.runs):
            folder = "%s/%d" % (top, i)
            os.mkdir(folder)
            limit = predict.write_run(run, folder)
            answer, why = predict.simulate(folder, top + "/none.db")
            if not why:
                self.add(ms, run, folder, answer, limit)
        self.one, self.two = (judge_draws(self, size, top) for size in (1, 2))

    def add(self, ms, run, folder, answer, limit):
        fits = max(d["peak_bytes"] for d in answer["devices"]) <= limit
        if not run.get("on_host"): # layers with activations in the host's memory, which the tool has not
            self.died, self.allowed = self.died + (not ms), self.allowed + (not ms and fits)
            self.judged, self.refused = self.judged + bool(ms), self.refused + bool(ms and not fits)
        if ms:
            self.ran.append((ms, folder))
            self.native[folder] = abs(answer["step_ns"] / 1e6 / ms - 1)
            other = folder + "-unnamed"
            os.mkdir(other)
            predict.write_run(dict(run, framework="auto"), other)
            answer, why = predict.simulate(other, other + "/none.db")
            self.unnamed += [] if why else [abs(answer["step_ns"] / 1e6 / ms - 1)]

    def cells(self):
        def percent(x, form="%.1f"):
            return form % (100 * x)
        one, two = self.one, self.two
        return [self.name, "%d" % len(self.ran), percent(predict.mean(list(self.native.values()))),
                percent(predict.mean(self.unnamed)) if self.unnamed else "", percent(one.error) if one else "",
                percent(one.change, "%+.1f") if one else "", percent(one.inside, "%.0f") if one else "",
                "%s (%s)" % (percent(two.error), percent(two.inside, "%.0f")) if two else "",
                ("%d of %d, " % (self.allowed, self.died) if self.died else "") + "%d of %d" % (self.refused, self.judged)]


class Drawn:
    def __init__(self, errors, before, inside):
        self.error, self.inside = predict.mean(errors), inside / len(errors)
        self.change = self.error - predict.mean(before)


def judge_draws(line, size, top):
    """Fit `size` rows, judge others of the source, for each draw; None where there are too few."""
    errors, inside, before = [], 0, []
    for draw in range(min(DRAWS, 2 * len(line.ran)) if len(line.ran) > size else 0):
        turned = random.Random(draw).sample(line.ran, min(len(line.ran), size + MOST))
        store = "%s/%d-%d.db" % (top, size, draw)
        if fit(turned[:size], store):
            e, hits = judge(turned[size:], store)
            errors, inside = errors + e, inside + hits
            before += [line.native[folder] for _, folder in turned[size:]]
    return Drawn(errors, before, inside) if errors else None


def perfect(sizes):
    """Of sources with so many rows, how many have 75 to 90 % of them inside if each spread is known and all rows are
    normal: the pairs of rows that lie within the 80 % interval of their difference. The mean of PERFECT draws."""
    width, held, chance = 1.2816 * math.sqrt(2), 0, random.Random(1)
    for n in sizes:
        for _ in range(PERFECT):
            x = [chance.gauss(0, 1) for _ in range(min(n, 60))]
            held += 0.75 <= predict.mean([abs(a - b) <= width for i, a in enumerate(x) for b in x[:i]]) <= 0.9
    return held / PERFECT


def tally(lines):
    errors = sorted(e for line in lines for e in line.native.values())
    drawn = [line for line in lines if line.one]
    near = [line for line in drawn if 0.75 <= line.one.inside <= 0.9]
    worse = [line.name for line in drawn if predict.mean(list(line.native.values())) < 0.08 and line.one.change > 0.005]
    print("\n%d rows: mean %.1f %%, median %.1f %%; %d of %d that died are allowed, %d of %d that ran are refused" % (
        len(errors), 100 * predict.mean(errors), 100 * errors[len(errors) // 2], sum(line.allowed for line in lines),
        sum(line.died for line in lines), sum(line.refused for line in lines), sum(line.judged for line in lines)))
    print("75 to 90 %% inside after one row: %d of %d sources (perfect widths: %.1f); fewer %d, all %d; mean %.0f %%" % (
        len(near), len(drawn), perfect([len(line.ran) for line in drawn]), sum(line.one.inside < 0.75 for line in drawn),
        sum(line.one.inside == 1 for line in drawn), 100 * predict.mean([line.one.inside for line in drawn])))
    print("below 8 %% and worse by over 0.5 after one row: %s" % (", ".join(worse) or "none"))


def main():
    name = sys.argv[2] if len(sys.argv) > 2 else ""
    lines = []
    print("| source | rows | natively | unnamed | one row | change | inside | two rows | memory |")
    print("| --- " * 9 + "|")
    for source in sources(sys.argv[1]):
        if name in source.name and source.runs:
            with tempfile.TemporaryDirectory() as top:
                lines.append(Line(source, top))
            if lines[-1].ran:
                print("| %s |" % " | ".join(lines[-1].cells()))
            sys.stdout.flush()
    tally(lines)


if __name__ == "__main__":
    main()
