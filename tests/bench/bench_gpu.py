#!/usr/bin/env python3
"""The benchmark table of `make gpu-check`: training steps of elapse beside PyTorch on one GPU.

    bench_gpu.py --elapse build/bin/elapse --out DIR [--device cuda] [--budget 340] [--only ROW]
        [--no-torch] [--no-compile] [--set KEY=VALUE]...

Both train the same shapes at the same batch: bf16 over fp32 weights, AdamW, no dropout, no
clipping. elapse profiles the model first, which finds the fastest algorithms of its products, in PROFILE_SECONDS at most;
a row whose profile did not end in time or failed is marked `untuned`. Then it runs a whole
job (`elapse train`, built-in data, K = 1, M = 1); its step is the time from one step's start to the next's,
what lies between them included (op_ms: from a step's first op to its last, on the device); PyTorch's is
bench_torch_gpu.py's, from event to event. Medians over the steps behind the warm-up; the ratio is elapse's rate over
PyTorch's.
The estimates were counted for one H200 before any measurement: low, middle, high.
Writes DIR/bench.json and prints the table. What does not fit into the budget (seconds) or fails is in the table
as such. Rows behind keep MIN_ROW_SECONDS each, whatever one row takes.
"""
import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GPT2 = "gpt2:seq=1024"
TINY = "gpt2:seq=8,layers=1,hidden=16,heads=1,mlp=16,vocab=16"
# Row: its model for elapse, for PyTorch, batch, unit of its rate, tokens a unit's sample has, estimate a second on one
# H200 (None: not counted). The most wanted first.
LLAMA = "llama3.2-1b:seq=1024,vocab=32000"
ROWS = {
    "llama-1b": (LLAMA, "llama-1b", 8, "tokens", 1024, None),
    "llama": (LLAMA + ",layers=12,hidden=768,heads=12,kv_heads=4,mlp=2048", "llama", 16, "tokens", 1024, None),
    "gpt2": (GPT2, "gpt2", 64, "tokens", 1024, (541e3, 598e3, 650e3)),
    "bert-base": ("bert-base:task=classify,seq=128,classes=2", "bert-base", 256, "samples", 1, (6400, 7000, 7500)),
    "vit-b16": ("vit-b16:image=224,classes=1000", "vit-b16", 256, "samples", 1, (3900, 4300, 4700)),
    "bert-large": ("bert-large:task=classify,seq=128,classes=2", "bert-large", 128, "samples", 1, (2000, 2200, 2300)),
    "gpt2-b16": (GPT2, "gpt2", 16, "tokens", 1024, None),
    "tiny": (TINY, "tiny", 4, "tokens", 8, None),
    "tiny-llama": ("llama3.2-1b:seq=8,layers=1,hidden=16,heads=2,kv_heads=1,mlp=16,vocab=16", "tiny-llama", 4, "tokens", 8, None),
}
WARM_UP, STEPS = 6, 20
PROFILE_SECONDS, TRAIN_SECONDS, TORCH_SECONDS, MIN_ROW_SECONDS = 90, 60, 100, 30


def run(command, seconds, environment=None):
    """(stdout, what went wrong)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1, seconds), env=environment)
    except subprocess.TimeoutExpired:
        return "", f"ran past {seconds:.0f} s"
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return "", f"exit {done.returncode}: {lines[-1] if lines else ''}"
    return done.stdout, None


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def profile(args, row, store, seconds):
    """The fastest algorithm of each product into the store; (seconds it took, what went wrong)."""
    model, _, batch = ROWS[row][:3]
    begin = time.monotonic()
    _, wrong = run([args.elapse, "profile", "--device", args.device, "--model", f"{model},dtype={args.dtype}",
                    "--microbatches", str(batch), "--quick", "-n", "1", "--db", store],
                   min(PROFILE_SECONDS, seconds))
    if wrong:
        print(f"bench_gpu: {row}: profile: {wrong}", file=sys.stderr)
    return time.monotonic() - begin, wrong


def train(args, row, store, seconds):
    """The steps of one job; store is None where no profile came about."""
    model, _, batch = ROWS[row][:3]
    name, environment = "bench-" + row, None
    job = {
        "name": name, "model": model,
        "data": {"kind": "synthetic", "train_samples": batch * (WARM_UP + STEPS), "test_samples": batch},
        "train": {"epochs": 1, "batch": {"per_pipeline": batch}, "dtype": args.dtype, "device": args.device,
                  "optimizer": {"kind": "adamw", "lr": 1e-4, "weight_decay": 0.01}, "seed": 1},
        "pipeline": {"num_stages": 1, "num_replicas": 1, "num_microbatches": 1, "schedule": "gpipe"},
    }
    path, folder = os.path.join(args.out, f"{name}.json"), os.path.join(args.out, name)
    with open(path, "w") as file:
        json.dump(job, file)
    shutil.rmtree(folder, ignore_errors=True)
    command = [args.elapse, "train", path, "-n", "1", "--out", folder, "--no-eval", "--trace-steps", "0", "--json"]
    if store:
        command += ["--db", store]
    else:  # nor shall it find a profile of something else in the user's own store
        environment = dict(os.environ, ELAPSE_DB=os.path.join(args.out, "none.db"))
    for value in args.set:
        command += ["--set", value]
    out, wrong = run(command, min(TRAIN_SECONDS, seconds), environment)
    if wrong:
        return {"error": wrong}
    with sqlite3.connect(os.path.join(folder, "run.db")) as db:
        steps = db.execute("SELECT start_ns, step_ns, loss FROM step ORDER BY step").fetchall()
    timed = steps[WARM_UP:]
    ms = [(after[0] - before[0]) / 1e6 for before, after in zip(timed, timed[1:])]
    if not ms:
        return {"error": f"only {len(steps)} steps"}
    median = quantile(ms, 0.5)
    return {"batch": batch, "step_ms": median, "p10_ms": quantile(ms, 0.1), "p90_ms": quantile(ms, 0.9),
            "op_ms": quantile([s[1] / 1e6 for s in timed], 0.5), "samples_per_s": batch / median * 1e3,
            "first_loss": steps[0][2], "last_loss": steps[-1][2], "summary": json.loads(out)}


def elapse_step(args, row, end):
    """One line of elapse's: profile, then train, both before the time `end`."""
    store = os.path.join(args.out, "bench.db")
    # The profile leaves the run its time, even where it takes all of its own.
    left = end - time.monotonic()
    took, wrong = profile(args, row, store, max(10, left - TRAIN_SECONDS / 2))
    step = train(args, row, None if wrong else store, end - time.monotonic())
    step.update(profile_s=took, tuned=not wrong, untuned_because=wrong)
    return step


def torch_step(args, row, end):
    _, model, batch = ROWS[row][:3]
    command = [sys.executable, os.path.join(HERE, "bench_torch_gpu.py"), model, "--device", args.device,
               "--batch", str(batch), "--steps", str(STEPS), "--warm-up", str(WARM_UP)]
    if args.no_compile:
        command.append("--no-compile")
    out, wrong = run(command, min(TORCH_SECONDS, end - time.monotonic()))
    return {"error": wrong} if wrong else json.loads(out.strip().splitlines()[-1])


def line_of(row, ours, theirs, ratio):
    _, _, batch, unit, _, estimate = ROWS[row]
    show = lambda who: f"{who['step_ms']:9.2f} {who['rate_per_s']:11,.0f}" if "rate_per_s" in who else f"{'-':>9} {'-':>11}"
    short = lambda rate: f"{rate / 1e3:.0f}K" if rate >= 1e5 else f"{rate / 1e3:.1f}K"
    expected = " / ".join(short(rate) for rate in estimate) if estimate else "-"
    note = "" if ours.get("tuned", True) else "  untuned"
    return (f"{row:<16} {batch:>5} {unit + '/s':<10} {show(ours)}   {show(theirs)}   "
            f"{f'{ratio:6.3f}' if ratio else '     -'}   {expected:<20}{note}")


def bench_row(args, row, end):
    """The result of a row."""
    none = {"error": "no time left"}
    unit_tokens = ROWS[row][4]
    ours = elapse_step(args, row, end) if time.monotonic() < end - 10 else dict(none)
    theirs = {"error": "not asked for"} if args.no_torch else none
    if not args.no_torch and time.monotonic() < end - 10:
        theirs = torch_step(args, row, end)
    for who in (ours, theirs):
        if "samples_per_s" in who:
            who["rate_per_s"] = who["samples_per_s"] * unit_tokens
    result = {"model": row, "batch": ROWS[row][2], "unit": ROWS[row][3],
              "estimate_per_s": ROWS[row][5], "elapse": ours, "torch": theirs}
    if "rate_per_s" in ours and "rate_per_s" in theirs:
        result["ratio"] = ours["rate_per_s"] / theirs["rate_per_s"]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--elapse", default="build/bin/elapse")
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--budget", type=float, default=340)
    parser.add_argument("--only", action="append", default=[], choices=ROWS)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    end = time.monotonic() + args.budget
    rows = args.only or [row for row in ROWS if "tiny" not in row]
    results, lines = {}, []
    for i, row in enumerate(rows):
        result = bench_row(args, row, end - MIN_ROW_SECONDS * (len(rows) - 1 - i))
        results[row] = result
        lines.append(line_of(row, result["elapse"], result["torch"], result.get("ratio")))
        print(lines[-1], file=sys.stderr, flush=True)
        for who, what in (("elapse", result["elapse"]), ("torch", result["torch"])):
            if "error" in what and what["error"] != "not asked for":
                lines.append(f"    {who}: {what['error'][:140]}")
        if result["elapse"].get("untuned_because"):
            lines.append(f"    untuned: {result['elapse']['untuned_because'][:140]}")
        with open(os.path.join(args.out, "bench.json"), "w") as file:
            json.dump(results, file, indent=1)
    print(f"{'model':<16} {'batch':>5} {'unit':<10} {'ms':>9} {'elapse/s':>11}   {'ms':>9} {'torch/s':>11}   "
          f"{'ratio':>6}   {'estimate for an H200':<20}")
    print("\n".join(lines))
    print(f"profile: {sum(r['elapse'].get('profile_s', 0) for r in results.values()):.0f} s of {args.budget:.0f} s")
    sys.exit(0 if results and all("ratio" in r or (args.no_torch and "rate_per_s" in r["elapse"]) for r in results.values()) else 1)


main()
