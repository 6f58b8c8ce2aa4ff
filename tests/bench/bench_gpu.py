#!/usr/bin/env python3
"""The benchmark table of `make gpu-check`: training steps of elapse beside PyTorch on one GPU.

    bench_gpu.py --elapse build/bin/elapse --out DIR [--device cuda] [--budget 240] [--only MODEL]
        [--no-torch] [--no-compile] [--set KEY=VALUE]...

Both train the same shapes at the same batch: bf16 over fp32 weights, AdamW, no dropout, no
clipping. elapse profiles the model, which finds the fastest algorithms of its products, and runs whole
jobs (`elapse train`, built-in data, K = 1, M = 1); its step is the time from one step's start to the next's,
what lies between them included (op_ms: from a step's first op to its last, on the device); PyTorch's is
bench_torch_gpu.py's, from event to event. Medians over the steps behind the warm-up; the ratio is elapse's rate over
PyTorch's. Writes DIR/bench.json and prints the table. What does not fit into the budget (seconds) or
fails is in the table as such.
"""
import argparse
import json
import os
import sqlite3
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# MODEL of elapse, batch, rate counted in, target a second on one H200
MODELS = {
    "gpt2": ("gpt2:seq=1024", 16, "tokens", 600e3),
    "bert-base": ("bert-base:task=classify,seq=128,classes=2", 256, "samples", 7000),
    "vit-b16": ("vit-b16:image=224,classes=1000", 256, "samples", 4600),
    "bert-large": ("bert-large:task=classify,seq=128,classes=2", 128, "samples", 2050),
    "tiny": ("gpt2:seq=32,layers=2,hidden=64,heads=2,mlp=128,vocab=512", 4, "tokens", None),
}
WARM_UP, STEPS = 6, 20


def run(command, seconds):
    """(stdout, what went wrong)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1, seconds))
    except subprocess.TimeoutExpired:
        return "", f"ran past {seconds:.0f} s"
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return "", f"exit {done.returncode}: {lines[-1] if lines else ''}"
    return done.stdout, None


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def elapse_step(args, name, seconds):
    model, batch, _, _ = MODELS[name]
    folder = os.path.join(args.out, "bench-" + name)
    job = {
        "name": "bench-" + name, "model": model,
        "data": {"kind": "synthetic", "train_samples": batch * (WARM_UP + STEPS), "test_samples": batch},
        "train": {"epochs": 1, "batch": {"per_pipeline": batch}, "dtype": args.dtype, "device": args.device,
                  "optimizer": {"kind": "adamw", "lr": 1e-4, "weight_decay": 0.01}, "seed": 1},
        "pipeline": {"num_stages": 1, "num_replicas": 1, "num_microbatches": 1, "schedule": "gpipe"},
    }
    path = os.path.join(args.out, f"bench-{name}.json")
    with open(path, "w") as file:
        json.dump(job, file)
    # The fastest algorithm of each product, as a profile of the model finds it.
    begin, store = time.monotonic(), os.path.join(args.out, "bench.db")
    _, wrong = run([args.elapse, "profile", "--device", args.device, "--model", f"{model},dtype={args.dtype}",
                    "--microbatches", str(batch), "--quick", "-n", "1", "--db", store], seconds / 2)
    if wrong:
        print(f"bench_gpu: {name}: profile: {wrong}", file=sys.stderr)
    seconds -= time.monotonic() - begin
    command = [args.elapse, "train", path, "-n", "1", "--out", folder, "--no-eval", "--trace-steps", "0", "--json"]
    if not wrong:
        command += ["--db", store]
    for value in args.set:
        command += ["--set", value]
    out, wrong = run(command, seconds)
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


def torch_step(args, name, seconds):
    command = [sys.executable, os.path.join(HERE, "bench_torch_gpu.py"), name, "--device", args.device,
               "--batch", str(MODELS[name][1]), "--steps", str(STEPS), "--warm-up", str(WARM_UP)]
    if args.no_compile:
        command.append("--no-compile")
    out, wrong = run(command, seconds)
    return {"error": wrong} if wrong else json.loads(out.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--elapse", default="build/bin/elapse")
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--budget", type=float, default=240)
    parser.add_argument("--only", action="append", default=[], choices=MODELS)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    end = time.monotonic() + args.budget
    results, lines = {}, []
    for name in args.only or [m for m in MODELS if m != "tiny"]:
        _, batch, unit, target = MODELS[name]
        ours = theirs = {"error": "no time left"}
        if time.monotonic() < end - 10:
            ours = elapse_step(args, name, min(60, end - time.monotonic()))
        if args.no_torch:
            theirs = {"error": "not asked for"}
        elif time.monotonic() < end - 10:
            theirs = torch_step(args, name, min(100, end - time.monotonic()))
        result = {"model": name, "batch": batch, "unit": unit, "target_per_s": target, "elapse": ours, "torch": theirs}
        tokens = int(MODELS[name][0].split("seq=")[1].split(",")[0]) if unit == "tokens" else 1
        for who in (ours, theirs):
            if "samples_per_s" in who:
                who["rate_per_s"] = who["samples_per_s"] * tokens
        if "rate_per_s" in ours and "rate_per_s" in theirs:
            result["ratio"] = ours["rate_per_s"] / theirs["rate_per_s"]
        results[name] = result
        show = lambda who: f"{who['step_ms']:9.2f} {who['rate_per_s']:11,.0f}" if "rate_per_s" in who else f"{'-':>9} {'-':>11}"
        lines.append(f"{name:<11} {batch:>5} {unit + '/s':<10} {show(ours)}   {show(theirs)}   "
                     f"{result.get('ratio', float('nan')):6.3f} {target or 0:>9,.0f}")
        for who, what in (("elapse", ours), ("torch", theirs)):
            if "error" in what:
                lines.append(f"    {who}: {what['error'][:200]}")
        with open(os.path.join(args.out, "bench.json"), "w") as file:
            json.dump(results, file, indent=1)
        print(lines[-1], file=sys.stderr, flush=True)
    print(f"{'model':<11} {'batch':>5} {'unit':<10} {'ms':>9} {'elapse/s':>11}   {'ms':>9} {'torch/s':>11}   "
          f"{'ratio':>6} {'H200 goal':>9}")
    print("\n".join(lines))
    sys.exit(0 if results and all("ratio" in r or args.no_torch for r in results.values()) else 1)


main()
