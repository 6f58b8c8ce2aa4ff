#!/usr/bin/env python3
"""Plans from quick profiles, beside all plans of a matrix that was run: ten small jobs on two ranks.

    tests/reference/quick_profiles.py ELAPSE FOLDER [JOB ...]    alone on the machine

Of each job: `profile --quick`, the first plan of `plan`, then `compare --matrix` over lengths, replicas and
micro-batches, with the first plan among them. Prints by how much the first plan is slower than the fastest of
all that ran, and how far predicted steps are off. Runs that compare calls noisy have no error.
"""
import json
import pathlib
import statistics
import subprocess
import sys

VIT = "vit-tiny:image=32,patch=4,classes=10"
IMAGES = {"kind": "synthetic", "train_samples": 8000, "test_samples": 100}
JOBS = {  # name: model, batch
    "vit-2": (VIT + ",layers=2,hidden=96,heads=3,mlp=384", 64),
    "vit-4": (VIT + ",layers=4,hidden=64,heads=4,mlp=256", 64),
    "vit-6": (VIT + ",layers=6,hidden=128,heads=4,mlp=256", 64),
    "vit-6-wide": (VIT + ",layers=6,hidden=192,heads=3,mlp=768", 32),
    "vit-8": (VIT + ",layers=8,hidden=64,heads=2,mlp=128", 128),
    "vit-12": (VIT + ",layers=12,hidden=192,heads=3,mlp=768", 32),
    "vit-few-tokens": ("vit-tiny:image=32,patch=8,classes=10,layers=6,hidden=192,heads=3,mlp=768", 64),
    "vit-many-tokens": ("vit-tiny:image=32,patch=2,classes=10,layers=3,hidden=96,heads=3,mlp=384", 16),
    "vit-batch-16": (VIT + ",layers=4,hidden=128,heads=4,mlp=512", 16),
    "vit-batch-256": (VIT + ",layers=4,hidden=96,heads=3,mlp=384", 256),
}
MATRIX = ["--stages", "1,2", "--replicas", "1,2", "--schedules", "1f1b", "--microbatches"]
MICROBATCHES = [1, 2, 4, 8, 16]  # of each replica, as far as the batch goes
RUNS = ["-n", "2", "--repeats", "1", "--steps", "10", "--json"]


def ask(*words):
    run = subprocess.run(words, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"quick_profiles.py: {' '.join(map(str, words))}\n{run.stderr}")
    return json.loads(run.stdout)


def measure(elapse, folder, name):
    model, batch = JOBS[name]
    job, db = folder / f"{name}.json", folder / f"{name}.db"
    db.unlink(missing_ok=True)
    job.write_text(json.dumps({
        "name": name, "model": model, "data": IMAGES, "cluster": "this-machine",
        "train": {"epochs": 1, "batch": {"global": batch}, "optimizer": {"kind": "adamw", "lr": 0.001}, "seed": 1},
        "pipeline": {"num_stages": "auto", "num_replicas": "auto", "num_microbatches": "auto", "schedule": "auto"}}))
    ask(elapse, "profile", "--quick", "-n", "2", "--model", model, "--db", db, "--json", "--quiet")
    first = ask(elapse, "plan", job, "--db", db, "--json")
    kind = first["schedule"] if first["pipeline_length"] > 1 else "1f1b"  # one rank runs the same ops
    own = ["--stages", first["pipeline_length"], "--replicas", first["replicas"], "--microbatches",
           first["microbatches"], "--schedules", kind]
    rows = []
    counts = ",".join(str(count) for count in MICROBATCHES if 2 * count <= batch)
    for matrix in (MATRIX + [counts], own):
        rows += ask(elapse, "compare", "--matrix", job, "--db", db, *map(str, matrix), *RUNS)["configs"]
    (folder / f"{name}.rows.json").write_text(json.dumps(rows))
    return first, rows


def percent(ratio):
    return f"{100 * (ratio - 1):+.1f} %"


def show(name, first, rows):
    """Print a job's line. Returns how much slower the first plan is, and the errors of all predictions."""
    def where(row):
        return f"{row['pipeline_length']} x {row['replicas']}, {row['microbatches']}"

    best = min(rows, key=lambda row: row["real_step_ns"])
    own = min((row for row in rows if where(row) == where(first)), key=lambda row: row["real_step_ns"])
    errors = [row["sim_step_ns"] / row["real_step_ns"] - 1 for row in rows if not row["noisy"]]
    sizes = sorted(abs(error) for error in errors) or [float("nan")]
    behind = own["real_step_ns"] / best["real_step_ns"]
    print(f"{name:16} {where(first):>10} {own['real_step_ns'] / 1e6:9.1f} "
          f"{percent(first['step_ns'] / own['real_step_ns']):>9} {where(best):>10} {best['real_step_ns'] / 1e6:9.1f} "
          f"{percent(behind):>9} {100 * statistics.median(sizes):7.1f} % {100 * sizes[-1]:7.1f} % "
          f"{len(rows) - len(errors):6}", flush=True)
    return behind - 1, errors


def main():
    elapse, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{'job':16} {'first':>10} {'ms':>9} {'predicted':>9} {'fastest':>10} {'ms':>9} {'behind':>9} "
          f"{'median':>9} {'worst':>9} {'noisy':>6}   (K x R, M)")
    behind, errors = [], []
    for name in sys.argv[3:] or JOBS:
        slower, own = show(name, *measure(elapse, folder, name))
        behind.append(slower)
        errors += own
    sizes = sorted(abs(error) for error in errors) or [float("nan")]
    print(f"first plans behind the fastest: worst {100 * max(behind):.1f} %; predictions: median "
          f"{100 * statistics.median(sizes):.1f} %, worst {100 * sizes[-1]:.1f} % of {len(errors)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
