#!/usr/bin/env python3
"""Fit the matmul curves of profiles/devices to published measurements.

Rows are divided into two halves by a hash of the row: constants are fitted on one, errors are
reported on the other. The model is written out here a second time, apart from the C code;
truth_matmul.py compares what `elapse costs` says with the same rows. Plain Python, about 3 minutes.

usage: fit_matmul.py FOLDER [KIND ...]    FOLDER has a100_pcie_matmul.csv and b200_matmul.csv
"""
import math
import os
import random
import sys

import rows

TILES = [(256, 128), (128, 256), (128, 128), (64, 256), (256, 64), (64, 128), (128, 64), (64, 64)]
NAMES = ["peak", "tile", "tail", "part", "depth", "nn", "nt", "start_us", "hot", "warm_us"]
# Fitted for kinds whose narrow products were measured. For others, memory is the fraction that
# memory-bound kernels reach (SimuMax; H100: as the A100), and the longer of the two times counts.
NARROW = ["memory", "blend"]
FIXED = {"h100": {"memory": 0.91, "blend": 0}, "b200": {"memory": 0.67, "blend": 0}}


def time_of(p, kind, row):
    """Seconds of one product; the formula of device_curves.c."""
    batch, m, n, k = row["batch"], row["m"], row["n"], row["k"]
    best = math.inf
    for a, b in TILES:
        waves = batch * -(-m // a) * -(-n // b) / kind["sms"]
        whole = math.ceil(waves)
        used = waves + (whole - waves) * p["tail"] if waves > 1 else waves + (1 - waves) * p["part"]
        best = min(best, used * 2.0 * a * b * k * (1 + 64 * p["tile"] * (1 / a + 1 / b)))
    ideal = 2.0 * batch * m * n * k / kind["peak"]
    warm = ideal / (ideal + p["warm_us"] * 1e-6)
    clock = p["peak"] + (min(p["hot"], p["peak"]) - p["peak"]) * warm
    layout = {"TN": 1, "NN": p["nn"], "NT": p["nt"]}[row["layout"]]
    work = best * kind["sms"] / kind["peak"] * (1 + p["depth"] / k) / clock / layout / row["clock"]
    out = row["out_bytes"] * (2 if row["accumulate"] else 1)
    moved = batch * (2.0 * k * (m + n) + m * n * out)
    pair = sorted((work, moved / (row["bandwidth"] * p["memory"])))
    blend = p["blend"]
    both = pair[1] * (1 + (pair[0] / pair[1]) ** blend) ** (1 / blend) if blend else pair[1]
    return both + p["start_us"] * 1e-6


def unpack(x, fixed):
    p = dict(fixed, **dict(zip(NAMES + NARROW, (abs(v) for v in x))))
    for name in ("peak", "tail", "part", "memory"):
        p[name] = min(p[name], 1.0)
    p["blend"] = min(max(p["blend"], 1.0), 16.0) if p["blend"] else 0
    return p


def error(p, kind, sample):
    return sum(abs(time_of(p, kind, r) / r["seconds"] - 1) for r in sample) / len(sample)


def misfit(x, kind, sample, fixed):
    p = unpack(x, fixed)
    return sum(abs(math.log(time_of(p, kind, r) / r["seconds"])) for r in sample) / len(sample)


def descend(f, x, steps):
    """Nelder and Mead 1965."""
    n = len(x)
    simplex = [list(x)] + [[v * (1.25 if i == j else 1) for j, v in enumerate(x)] for i in range(n)]
    values = [f(s) for s in simplex]
    for _ in range(steps):
        order = sorted(range(n + 1), key=values.__getitem__)
        simplex, values = [simplex[i] for i in order], [values[i] for i in order]
        mean = [sum(s[j] for s in simplex[:-1]) / n for j in range(n)]
        away = [2 * c - w for c, w in zip(mean, simplex[-1])]
        got = f(away)
        if got < values[0]:
            far = [3 * c - 2 * w for c, w in zip(mean, simplex[-1])]
            more = f(far)
            simplex[-1], values[-1] = (far, more) if more < got else (away, got)
        elif got < values[-2]:
            simplex[-1], values[-1] = away, got
        else:
            near = [(c + w) / 2 for c, w in zip(mean, simplex[-1])]
            got = f(near)
            if got < values[-1]:
                simplex[-1], values[-1] = near, got
            else:
                for i in range(1, n + 1):
                    simplex[i] = [(a + b) / 2 for a, b in zip(simplex[0], simplex[i])]
                    values[i] = f(simplex[i])
    best = min(range(n + 1), key=values.__getitem__)
    return values[best], simplex[best]


def fit(kind, sample, starts, fixed):
    chance = random.Random(1)
    first = [0.9, 0.15, 0.5, 0.3, 90, 1, 0.95, 4, 0.8, 50] + ([] if fixed else [0.8, 3])
    best = (math.inf, first)
    for s in range(starts):
        x = [v * math.exp(0.4 * chance.gauss(0, 1)) if s else v for v in first]
        best = min(best, descend(lambda v: misfit(v, kind, sample, fixed), x, 350))
    return unpack(descend(lambda v: misfit(v, kind, sample, fixed), best[1], 700)[1], fixed)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ELAPSE_TRUTH", "")
    for name in sys.argv[2:] or ["a100", "h100", "b200"]:
        kind = rows.KINDS[name]
        all_rows = rows.matmuls(name, folder) + (rows.narrow() if name == "a100" else [])
        fitted, kept = rows.halves(all_rows)
        p = fit(kind, fitted, 6, FIXED.get(name, {}))
        constant = sorted(r["flops"] / kind["peak"] / r["seconds"] for r in fitted)[len(fitted) // 2]
        flat = sum(abs(r["flops"] / kind["peak"] / constant / r["seconds"] - 1) for r in kept)
        print("%s: %d rows fitted, mean error %.1f %%; %d rows kept back, mean error %.1f %% "
              "(a constant efficiency of %.2f: %.1f %%)" %
              (name, len(fitted), 100 * error(p, kind, fitted), len(kept),
               100 * error(p, kind, kept), constant, 100 * flat / len(kept)))
        print("    " + ", ".join(".%s = %.4g" % (k, v) for k, v in p.items()))


if __name__ == "__main__":
    main()
