#!/usr/bin/env python3
"""The matrix products that no constant was fitted on, timed with the constants of
profiles/devices, beside a constant efficiency.

usage: truth_matmul.py FOLDER    FOLDER has a100_pcie_matmul.csv and b200_matmul.csv
"""
import json
import os
import sys

import fit_matmul
import predict
import rows


def constants(kind):
    """The matmul constants of a measured kind, as its file has them."""
    name = {"a100": "a100-pcie"}.get(kind, kind)
    with open(os.path.join(predict.ROOT, "profiles", "devices", name + ".json")) as f:
        figures = json.load(f)
    got = {"peak": figures["matmul_share"], "start_us": figures["matmul_start_ns"] / 1e3,
           "warm_us": figures["matmul_warm_ns"] / 1e3}
    return {name: got[name] if name in got else figures["matmul_" + name]
            for name in fit_matmul.NAMES + fit_matmul.NARROW}


def show(title, kind, p, all_rows):
    fitted, kept = rows.halves(all_rows)
    rates = sorted(r["flops"] / kind["peak"] / r["seconds"] for r in fitted)
    flat = rates[len(rates) // 2]
    simple = [r["flops"] / kind["peak"] / flat / r["seconds"] - 1 for r in kept]
    errors = [fit_matmul.time_of(p, kind, r) / r["seconds"] - 1 for r in kept]
    print("%-34s %4d rows: mean |error| %5.1f %%, bias %+6.1f %%, worst %+6.1f %%" % (
        "matrix products, " + title, len(kept), 100 * sum(map(abs, errors)) / len(errors),
        100 * sum(errors) / len(errors), 100 * max(errors, key=abs)))
    print("%-34s            mean |error| %5.1f %%, bias %+6.1f %%" % (
        "  constant efficiency %.2f" % flat, 100 * sum(map(abs, simple)) / len(simple),
        100 * sum(simple) / len(simple)))
    print("%-34s            the other %d rows" % ("  fitted on", len(fitted)))


def main():
    for name in ("a100", "h100", "b200"):
        kind, p = rows.KINDS[name], constants(name)
        if name == "h100":  # timed in bursts, at a clock that has not fallen
            p["hot"] = p["peak"]
        show(name, kind, p, rows.matmuls(name, sys.argv[1]))
        if name == "a100":
            show("a100, narrow", kind, p, rows.narrow())
    kind, p = rows.KINDS["h100"], constants("h100")
    for name, measured in (("uniform numbers", rows.sustained()), ("normal numbers", rows.sustained("normal"))):
        for hot in (p["hot"], p["peak"]):
            errors = [fit_matmul.time_of(dict(p, hot=hot), kind, r) / r["seconds"] - 1 for r in measured]
            print("%-34s %4d rows: mean |error| %5.1f %%, bias %+6.1f %%" % (
                "h100, hot, %s, %.3g" % (name, hot), len(errors),
                100 * sum(map(abs, errors)) / len(errors), 100 * sum(errors) / len(errors)))


if __name__ == "__main__":
    main()
