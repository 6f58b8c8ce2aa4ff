#!/usr/bin/env python3
"""Fit the attention curve of H100 to FlashAttention-2's rates (data/h100_attention.csv), every second row, with the
numbers of blocks as they were, because all rows have 2,048. Fit the attention curves of AMD's kinds to AITER's published kernels (data/amd_attention.csv): a share of the peak
and the number of blocks of 128 rows at half of it for each pass, and the length at which half is lost for both. Rows with
a causal mask decide; they are divided in two halves by a hash, of which one is fitted and the other judges.

usage: fit_attention.py
"""
import itertools
import json
import math
import os
import zlib

import predict
import rows

PASSES = ("fwd", "bwd")


def figures_of(kind):
    with open(os.path.join(predict.ROOT, "profiles", "devices", kind + ".json")) as f:
        return json.load(f)


def rate_of(share, half_blocks, half_seq, row):
    """The share of the peak, whose flops are those of the whole square (device_curves.c)."""
    seq = int(row["seq"])
    blocks = int(row["batch"]) * int(row["heads"]) * math.ceil(seq / 128)
    return share * blocks / (blocks + half_blocks) * (1 + half_seq / 4096) / (1 + half_seq / seq)


def logs(peak, half_blocks, half_seq, chosen):
    """ln of what each row reaches over a share of 1; its flops are half of the square's."""
    return [math.log(2 * float(r["tflops"]) / peak / rate_of(1, half_blocks, half_seq, r)) for r in chosen]


def share_and_error(peak, half_blocks, half_seq, chosen):
    got = sorted(logs(peak, half_blocks, half_seq, chosen))
    middle = got[len(got) // 2]
    return math.exp(middle), sum(abs(x - middle) for x in got) / len(got)


def fit(peak, by_pass):
    """half_seq, and of each pass half_blocks and share."""
    best = (math.inf,)
    for half_seq in range(0, 2000, 50):
        each = [min((share_and_error(peak, blocks, half_seq, by_pass[p])[::-1] + (blocks,) for blocks in range(0, 800, 50)))
                for p in PASSES]
        best = min(best, (sum(e[0] for e in each), half_seq, each))
    return best[1], {p: (e[2], e[1]) for p, e in zip(PASSES, best[2])}


def h100():
    figures = figures_of("h100")
    peak, kept = 989.4, {p: figures["attention_%s_half_blocks" % p] for p in PASSES}
    table = rows.table(rows.HERE + "/data/h100_attention.csv")[:12]

    def each(half_seq):
        found = {p: share_and_error(peak, kept[p], half_seq, [r for r in table[::2] if r["pass"] == p]) for p in PASSES}
        return sum(f[1] for f in found.values()), half_seq, {p: f[0] for p, f in found.items()}
    _, half_seq, shares = min(map(each, range(0, 1000, 10)))
    for part in (0, 1):
        errors = [rate_of(figures["attention_%s_share" % r["pass"]], kept[r["pass"]], figures["attention_half_seq"], r)
                  * peak / 2 / float(r["tflops"]) - 1 for r in table[part::2]]
        print("h100, %s half, %d rows: mean |error| of the rate %.1f %%, bias %+.1f %%" % (
            ("fitted", "other")[part], len(errors), 100 * predict.mean([abs(x) for x in errors]), 100 * predict.mean(errors)))
    print("  fitted: shares %.3f and %.3f, half_seq %d" % (shares["fwd"], shares["bwd"], half_seq))


def main():
    h100()
    table = [r for r in rows.table(rows.HERE + "/data/amd_attention.csv") if r["causal"] == "1"]
    for kind in ("mi300x", "mi355x"):
        figures = figures_of(kind)
        peak = float(figures["peak_bf16"].replace("TFLOPS", ""))
        halves = {p: ([], []) for p in PASSES}
        for r in table:
            if r["kind"] == kind:
                halves[r["pass"]][zlib.crc32(repr(sorted(r.items())).encode()) % 2].append(r)
        half_seq, got = fit(peak, {p: halves[p][0] for p in PASSES})
        for p, part in itertools.product(PASSES, (0, 1)):
            kept = [figures["attention_%s_share" % p], figures["attention_%s_half_blocks" % p], figures["attention_half_seq"]]
            errors = [kept[0] / math.exp(x) - 1 for x in logs(peak, kept[1], kept[2], halves[p][part])]
            print("%s %s, %s half, %2d rows: mean |error| of the rate %.1f %%, bias %+.1f %%" % (
                kind, p, ("fitted", "other")[part], len(errors), 100 * predict.mean([abs(x) for x in errors]),
                100 * predict.mean(errors)))
        for p in PASSES:
            print("  fitted: share %.3f, half_blocks %d, half_seq %d" % (got[p][1], got[p][0], half_seq))


if __name__ == "__main__":
    main()
