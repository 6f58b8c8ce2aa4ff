#!/usr/bin/env python3
"""Kernels of a training step, the longest first, as Nsight Compute saw them: ncu_table.py RAW.csv

RAW.csv is `ncu --import FILE --page raw --csv`: a row of names, a row of units, then a row a launch. Equal kernels are
one line: launches, time in all, and the mean share of what the device can do for arithmetic and for memory.
"""
import csv
import sys
from collections import defaultdict

COLUMNS = {"ms": "gpu__time_duration.sum", "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
           "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
           "registers": "launch__registers_per_thread", "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active"}
TO_MS = {"nsecond": 1e-6, "ns": 1e-6, "usecond": 1e-3, "us": 1e-3, "msecond": 1.0, "ms": 1.0, "second": 1e3, "s": 1e3}

with open(sys.argv[1], newline="") as file:
    rows = [row for row in csv.reader(file) if len(row) > 2]
if len(rows) < 3:
    sys.exit(f"ncu_table: no kernel in '{sys.argv[1]}'")
names, units, launches = rows[0], rows[1], rows[2:]
at = {key: names.index(name) for key, name in COLUMNS.items() if name in names}
if "ms" not in at:
    sys.exit(f"ncu_table: '{sys.argv[1]}' has no {COLUMNS['ms']}")
name_at, scale = names.index("Kernel Name"), TO_MS[units[at["ms"]]]
number = lambda text: float(text.replace(",", "")) if text else 0.0
kernels = defaultdict(list)
for row in launches:
    kernels[row[name_at]].append({key: number(row[column]) for key, column in at.items()})
total = sum(one["ms"] for ones in kernels.values() for one in ones) * scale
print(f"{'kernel':<64} {'times':>5} {'ms':>8} {'share':>6} {'compute':>8} {'memory':>7} {'warps':>6} {'regs':>5}")
for name, ones in sorted(kernels.items(), key=lambda item: -sum(one["ms"] for one in item[1]))[:40]:
    ms = sum(one["ms"] for one in ones) * scale
    mean = lambda key: f"{sum(one[key] for one in ones) / len(ones):.0f}" if key in at else "-"
    print(f"{name.split('(')[0][-64:]:<64} {len(ones):>5} {ms:>8.3f} {100 * ms / total:>5.1f}% {mean('compute'):>7}% "
          f"{mean('memory'):>6}% {mean('occupancy'):>5}% {mean('registers'):>5}")
print(f"{len(launches)} launches, {total:.3f} ms")
