#!/usr/bin/env python3
"""examples/freezing/tables.py RESULTS.jsonl - Markdown tables of what run.sh has measured.

Differences are paired by seed with the static run: points of accuracy, or per cent of the loss for
language models. A loss of accuracy and a rise of the loss are both negative. Times are processor
seconds of training: those of the run less those of a run of one step (arm "startup"), which opens the
data and evaluates as the others do. A run is compared with the static run of its round (ROUND of run.sh),
because another round may be of another machine. Intervals are 95 %, Student's t over seeds."""
import json
import math
import sys
import textwrap

BUDGET = 1.0  # freeze.max_loss of the arm safe
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]  # 1 to 9 degrees of freedom
ORDER = ["static", "closed-1/5", "closed-1/3", "closed-1/2", "gradient-norm", "plateau", "safe"]


def mean(values):
    return sum(values) / len(values)


def half_width(values):
    n = len(values)
    if n < 2:
        return None
    m = mean(values)
    return T95[n - 2] * math.sqrt(sum((v - m) ** 2 for v in values) / (n - 1) / n)


def place(arm):
    return (ORDER.index(arm), arm) if arm in ORDER else (len(ORDER), arm)


def is_fixed(arm):
    return arm.startswith(("closed-", "table-"))


def interval(values, digits=2):
    w = half_width(values)
    m = mean(values)
    return "-" if w is None else f"{m - w:+.{digits}f} to {m + w:+.{digits}f}"


def fill(text):
    print(textwrap.fill(text, 120, break_on_hyphens=False))


def report(workload, rows):
    startup, static, runs = {}, {}, {}
    for r in rows:
        r.setdefault("round", 1)
        if r["arm"] == "startup":
            startup.setdefault(r["round"], r["cpu_s"])
        else:
            runs[r["arm"], r["seed"]] = r
            if r["arm"] == "static":
                static[r["round"], r["seed"]] = r
    if not startup or not static:
        return
    language = workload.startswith("gpt")
    seeds = sorted({seed for _, seed in runs})
    arms = sorted({arm for arm, _ in runs}, key=place)
    value = (lambda r: r["loss"]) if language else (lambda r: 100 * r["accuracy"])
    digits = 3 if language else 2

    def seconds(r):
        return r["cpu_s"] - startup[r["round"]]

    def base(arm, seed):
        return static[runs[arm, seed]["round"], seed]

    before = next(iter(runs.values()))
    print(f"### {workload}\n")
    print(f"Before training: {value({'loss': before['initial_loss'], 'accuracy': before['initial_accuracy']}):.{digits}f}"
          f" (seed {before['seed']}).\n")
    head = "loss" if language else "accuracy, %"
    print(f"| {head} | " + " | ".join(f"seed {s}" for s in seeds) + " | difference to static, each | mean | 95 % interval"
          " | processor s | wall s, busy | speed-up |")
    print("| --- |" + " --: |" * len(seeds) + " --- | --: | --- | --: | --: | --: |")
    summary = {}
    for arm in arms:
        own = [s for s in seeds if (arm, s) in runs]
        both = [s for s in own if (runs[arm, s]["round"], s) in static]
        cells = [f"{value(runs[arm, s]):.{digits}f}" if s in own else "-" for s in seeds]
        sign = -100 if language else 1
        lost = [0.0 + sign * (value(runs[arm, s]) / value(base(arm, s)) - 1) if language
                else value(runs[arm, s]) - value(base(arm, s)) for s in both]
        faster = sum(seconds(base(arm, s)) for s in both) / sum(seconds(runs[arm, s]) for s in both) if both else None
        wall = sum(runs[arm, s]["train_s"] for s in own) / len(own)
        tail = [" ".join(f"{v:+.2f}" for v in lost), f"{mean(lost):+.2f}", interval(lost)] if arm != "static" and both \
            else ["", "", ""]
        print(f"| {arm} | " + " | ".join(cells + tail + [f"{mean([seconds(runs[arm, s]) for s in own]):.1f}", f"{wall:.0f}",
                                                          f"{faster:.2f}" if faster else "-"]) + " |")
        if both:
            summary[arm] = (lost, 1 - 1 / faster, len(both))
    print()
    fill(f"F by epoch (seed {seeds[0]}): " + "; ".join(
        f"{arm} {' '.join(map(str, runs[arm, seeds[0]]['frozen']))}" for arm in arms
        if arm != "static" and (arm, seeds[0]) in runs) + ".")
    for arm in arms:
        pairs = [(value(runs[arm, s]), value(runs[arm[:-7], s])) for s in seeds
                 if arm.endswith("-anneal") and (arm, s) in runs and (arm[:-7], s) in runs
                 and runs[arm, s]["round"] == runs[arm[:-7], s]["round"]]
        if pairs:
            more = [-100 * (a / b - 1) if language else a - b for a, b in pairs]
            print(f"\n{arm} less {arm[:-7]}, paired: {' '.join(f'{v:+.2f}' for v in more)}, mean {mean(more):+.2f}, "
                  f"interval {interval(more)}.")
    for arm in arms:
        own = [runs[arm, s] for s in seeds if (arm, s) in runs]
        if not arm.startswith("safe") or arm not in summary:
            continue
        verdict(arm, summary, language)
        print(f"\n| {arm}, seed | F by epoch | evidence, % of the run's time | of a static run's |\n| --: | --- | --: | --: |")
        for r in own:
            share = 100 * (r["probe_share"] or 0)
            print(f"| {r['seed']} | {' '.join(map(str, r['frozen']))} | {share:.1f} | "
                  f"{share * seconds(r) / seconds(base(arm, r['seed'])):.1f} |")
    print()


def verdict(arm, summary, language):
    lost, saved, n = summary[arm]
    unit = "% of the loss" if language else "point" if BUDGET == 1 else "points"
    width = half_width(lost)
    holds = mean(lost) >= -BUDGET
    sure = width is not None and mean(lost) - width >= -BUDGET
    print(f"\n{arm} against its budget of {BUDGET:g} {unit}, {n} seeds: {mean(lost):+.2f}, interval {interval(lost)}: "
          + ("within, the whole interval too" if holds and sure else "the mean is within, the interval is not" if holds
             else f"over by {-BUDGET - mean(lost):.2f}") + ".")
    harmless = {a: s for a, s in summary.items() if is_fixed(a) and mean(s[0]) >= -BUDGET}
    if not harmless:
        print("No fixed schedule that was run is harmless (mean loss within the budget).")
    else:
        best = max(harmless, key=lambda a: harmless[a][1])
        keeps = saved / harmless[best][1] if harmless[best][1] > 0 else float("inf")
        fill(f"The best harmless fixed schedule that was run, {best} ({harmless[best][2]} seeds), saves "
             f"{100 * harmless[best][1]:.0f} % of the time, {arm} {100 * saved:.0f} %: it keeps {100 * keeps:.0f} %.")


def main():
    rows = {}
    with open(sys.argv[1]) as f:
        for line in f:
            r = json.loads(line)
            rows.setdefault(r["workload"], []).append(r)
    for workload in rows:
        report(workload, rows[workload])


if __name__ == "__main__":
    main()
