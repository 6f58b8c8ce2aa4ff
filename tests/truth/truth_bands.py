#!/usr/bin/env python3
"""Write partition/cost/published_steps.c: how far `elapse sim` is off the published steps of each framework, kind of
GPU and class of model. From ten runs on the band is from the 10th to the 90th percentile of predicted / measured - 1,
below that from the least to the largest.

usage: truth_bands.py FOLDER [--check]    FOLDER as for `make truth`; --check: print what differs in place of writing
"""
import difflib
import os
import sys
import tempfile

import predict
import truth_hybrids
import truth_table

FAMILY = {"nemo": "megatron-te"} # framework_family() of partition/model/framework.c, by which answers look
FILE = "partition/cost/published_steps.c"
HEAD = """/* Published steps beside computed ones, made by `python3 tests/truth/truth_bands.py FOLDER` from the sources of
 * docs/costs-published.md: computed / published - 1, from the 10th to the 90th percentile, with fewer than ten runs
 * from the least to the largest. Do not edit. */
#include "partition/cost/step_band.h"

/* clang-format off */
const struct published_steps published_steps[] = {
"""
TAIL = """    {NULL, NULL, 0, 0, 0, 0},
};
"""


def judged(run):
    """Its class of models, its computed ms, or None where it cannot be asked."""
    with tempfile.TemporaryDirectory() as folder:
        predict.write_run(run, folder)
        answer, why = predict.simulate(folder, folder + "/none.db")
    return None if why else (answer["published_runs"]["models"], answer["step_ns"] / 1e6)


def band(errors):
    errors = sorted(errors)
    last = len(errors) - 1
    return (errors[round(last / 10)], errors[round(last * 9 / 10)]) if last >= 9 else (errors[0], errors[last])


def hybrids():
    """The steps of truth_hybrids.py: (measured ms, run, name)."""
    runs, last = [], {}
    inner = predict.predicted

    def predicted(run):
        last["run"] = run
        last["judged"] = judged(run)
        return inner(run)

    def show(name, measured, ms, memory, why):
        runs.append((measured * 1e3, last["run"], last["judged"]))
    predict.predicted, truth_hybrids.show = predicted, show
    truth_hybrids.main()
    predict.predicted = inner
    return runs


def table(folder):
    groups = {}

    def add(ms, run, found, name):
        if ms and found:
            kind = run["cluster"]["kind"]
            kind = kind if isinstance(kind, str) else kind["like"]
            framework = run.get("judges") or run.get("framework", "auto").split("@")[0]
            key = found[0], kind, FAMILY.get(framework, framework)
            groups.setdefault(key, []).append((found[1] / ms - 1, name))
    for ms, run, found in hybrids():
        add(ms, run, found, "hybrids and Qwen3 235B")
    for source in truth_table.sources(folder):
        for ms, run in source.runs:
            add(ms, run, ms and judged(run), source.name)
    rows = ""
    for (models, kind, framework), found in sorted(groups.items()):
        low, high = band([error for error, _ in found])
        names = "; ".join(dict.fromkeys(name for _, name in found))
        rows += '    /* %s */\n    {"%s", "%s", BAND_%s, %d, %.3f, %.3f},\n' % (
            names, framework, kind, models.upper(), len(found), low, high)
    return HEAD + rows + TAIL


def main():
    check = "--check" in sys.argv  # sources() sets sys.argv
    new = table(sys.argv[1])
    path = os.path.join(predict.ROOT, FILE)
    if not check:
        with open(path, "w") as file:
            file.write(new)
        return
    with open(path) as file:
        lines = list(difflib.unified_diff(file.read().split("\n"), new.split("\n"), FILE, "now", lineterm=""))
    print("\n".join(lines))
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
