#!/usr/bin/env python3
"""How wide an interval of 80 % has to be, by leaving one source out: rows of the source that is left out are predicted by one
factor from another of its rows, and the width comes from the other sources of its group alone. A group is all, one
framework, or one family of operators (dense, experts, adapters); the spread of a group is that which a share of its
sources stay below. Sources are those of truth_table.py.

usage: truth_widths.py FOLDER
"""
import math
import os
import sys
import tempfile

import predict
import truth_table

LEAST, QUANTILE = 3, 1.2816 # sources a group has, else all count; of the normal distribution


def logs_of(source, top):
    """ln (measured / predicted) of the rows of a source, and its framework and family."""
    logs, about = [], None
    for i, (ms, run) in enumerate(source.runs):
        if not ms:
            continue
        folder = "%s/%d" % (top, i)
        os.mkdir(folder)
        predict.write_run(run, folder)
        answer, why = predict.simulate(folder, top + "/none.db")
        if not why:
            experts = run["model"].startswith(("qwen3-30b", "gpt-oss"))
            logs.append(math.log(ms / (answer["step_ns"] / 1e6)))
            about = {"all": "", "framework": run.get("framework"),
                     "family": "adapters" if run.get("lora") else "experts" if experts else "dense"}
    return logs, about


def spread_of(logs):
    middle = predict.mean(logs)
    return math.sqrt(sum((x - middle) ** 2 for x in logs) / (len(logs) - 1))


def main():
    found = {}
    for source in truth_table.sources(sys.argv[1]):
        with tempfile.TemporaryDirectory() as top:
            logs, about = logs_of(source, top)
        if len(logs) > 1:
            found[source.name] = (logs, about)
    for group in ("all", "framework", "family"):
        for share in (0.5, 0.6, 0.7, 0.8):
            held, widths = [], []
            for name, (logs, about) in found.items():
                others = {n: spread_of(f[0]) for n, f in found.items() if n != name}
                near = [s for n, s in others.items() if found[n][1][group] == about[group]]
                spreads = sorted(near if len(near) >= LEAST else others.values())
                width = QUANTILE * math.sqrt(2) * spreads[min(len(spreads) - 1, int(share * len(spreads)))]
                pairs = [abs(a - b) <= width for i, a in enumerate(logs) for b in logs[:i]]
                held.append(predict.mean(pairs))
                widths.append(width)
            print("by %-9s %.1f: width %4.1f %%; %2d of %d sources hold 75 to 90 %%, %2d less, %2d all; mean %.1f %%" % (
                group, share, 100 * predict.mean(widths), sum(0.75 <= h <= 0.9 for h in held), len(held),
                sum(h < 0.75 for h in held), sum(h == 1 for h in held), 100 * predict.mean(held)))


if __name__ == "__main__":
    main()
