#!/usr/bin/env python3
"""The changes of plan of elastic runs as a table: change_table.py SUMMARY.json..."""
import json
import sys

worst = 0
print(f"{'transport':<10} {'K x R, F':>10} {'total ms':>9} {'plan':>7} {'move':>7} {'groups':>7} {'moved MiB':>10} {'communicators':>14}")
for path in sys.argv[1:]:
    with open(path) as file:
        run = json.load(file)
    if not run["transitions"]:
        sys.exit(f"{path}: no change of plan")
    for one in run["transitions"]:
        ms = lambda part: one[part + "_ns"] / 1e6
        worst = max(worst, ms("total"))
        there, made = one["communicators_ready"], one["communicators_made"]
        print(f"{path.split('/')[-2]:<10} {one['pipeline_length']:>3} x {one['replicas']}, {one['frozen_layers']:>2} {ms('total'):>9.1f} "
              f"{ms('plan'):>7.1f} {ms('move'):>7.1f} {ms('groups'):>7.1f} {one['moved_bytes'] / 2**20:>10.1f} {there:>7} + {made:<4}")
print(f"longest change of plan: {worst:.1f} ms")
