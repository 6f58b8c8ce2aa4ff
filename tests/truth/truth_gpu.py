#!/usr/bin/env python3
"""Steps measured on a GPU beside predictions from the profile of the same machine.

    truth_gpu.py [-v]

gpu-DEVICE-DATE/ has what `make gpu-bundle` brought back (docs/gpu.md): profile.json is the machine's profile,
compare.json the measured steps of `elapse compare --matrix` with what the program predicted on that day. This script
predicts the same steps with the present program. Prints one line per folder; -v prints each row.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ELAPSE = os.path.join(os.environ.get("ELAPSE_BIN", os.path.join(HERE, "../../build/bin")), "elapse")


def run(*command):
    done = subprocess.run([ELAPSE, *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"truth_gpu: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def predict(measured, row, cluster, store):
    frozen = ["--frozen-placement", row["frozen"]] if row["frozen_layers"] else []
    return json.loads(run(
        "sim", "--step", "--json", "--cost", "profile", "--db", store, "--cluster", cluster,
        "--model", f"{measured['model']},dtype={measured['dtype']}", "--optimizer", measured["optimizer"],
        "--batch", measured["batch"], "--stages", 1, "--replicas", 1, "--schedule", "gpipe",
        "--microbatches", row["microbatches"], "--recompute", row["recompute"], "--frozen", row["frozen_layers"], *frozen))


def main():
    for folder in sorted(glob.glob(os.path.join(HERE, "gpu-*-*"))):
        with open(os.path.join(folder, "compare.json")) as file:
            measured = json.load(file)
        errors, then = [], []
        with tempfile.TemporaryDirectory() as scratch:
            store, cluster = os.path.join(scratch, "store.db"), os.path.join(scratch, "cluster.json")
            with open(cluster, "w") as file:
                json.dump({"kind": os.path.basename(folder).split("-")[1], "nodes": 1, "devices_per_node": 1,
                           "context": 0}, file)
            run("profiles", "import", os.path.join(folder, "profile.json"), "--db", store)
            for row in measured["configs"]:
                step = predict(measured, row, cluster, store)
                errors.append(step["step_ns"] / row["real_step_ns"] - 1)
                then.append(row["sim_step_ns"] / row["real_step_ns"] - 1)
                if "-v" in sys.argv:
                    print(f"  M={row['microbatches']} {row['recompute']:6} F={row['frozen_layers']} {row['frozen']:6} "
                          f"{row['real_step_ns'] / 1e6:8.2f} ms, on that day {then[-1]:+.1%}, now {errors[-1]:+.1%}")
        middle = lambda e: sorted(map(abs, e))[len(e) // 2]
        worst = lambda e: max(map(abs, e))
        print(f"{os.path.basename(folder)}: {len(errors)} steps; on that day median {middle(then):.1%}, worst {worst(then):.1%}; "
              f"now median {middle(errors):.1%}, worst {worst(errors):.1%}")


main()
