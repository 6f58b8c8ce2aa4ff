"""A real run that loses ranks and takes them back, beside the simulation of the same trace: fault_replay.py ELAPSE FOLDER
[--epochs N] [--seeds SEED...]. It profiles this machine, measures one loss and one return, and replays a trace of 6 losses and 6
returns a seed on 2 ranks with freezing. Prints the finishing times, each loss's time, and whether the weights are those of
the run without losses. Exit 1 where the weights differ or a time is further off than LIMIT_RUN or LIMIT_LOSS. By hand:
the machine must have nothing else to do."""
import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys

LIMIT_RUN, LIMIT_LOSS = 0.05, 0.20
RANKS, EVERY, PER_EPOCH, LOSSES = 2, 16, 64, 6
MODEL = {"family": "vit", "preset": "vit-tiny", "image": 32, "patch": 4, "hidden": 64, "heads": 4, "mlp": 128, "layers": 4,
         "classes": 10}


def run(words, allowed=(0,)):
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode not in allowed:
        raise SystemExit(f"exit {done.returncode}: {' '.join(words)}\n{done.stderr}")
    return done.stdout


class Replay:
    def __init__(self, elapse, folder, epochs):
        self.elapse, self.folder, self.epochs = elapse, folder, epochs
        self.db, self.job = os.path.join(folder, "profile.db"), os.path.join(folder, "job.json")
        with open(self.job, "w") as file:
            json.dump({"name": "replay", "model": MODEL,
                       "data": {"kind": "synthetic", "train_samples": 32 * PER_EPOCH, "test_samples": 32},
                       "train": {"epochs": epochs, "batch": {"global": 32}, "reduction": "canonical", "eval_every_epochs": 0,
                                 "optimizer": {"kind": "sgd", "lr": 0.02, "momentum": 0.9},
                                 "checkpoint_every_steps": EVERY, "seed": 1},
                       "freeze": {"policy": "table", "table": [min(e * 4 // epochs, 3) for e in range(epochs)]},
                       "cluster": {"nodes": RANKS, "devices_per_node": 1, "kind": "cpu", "link": "4GBps", "uplink": "4GBps",
                                   "latency": "2us"},
                       "cache": {"policy": "off"},
                       "pipeline": {"num_stages": 1, "num_replicas": "auto", "num_microbatches": 4, "schedule": "1f1b"}}, file)

    def profile(self):
        model = ",".join(f"{k}={v}" for k, v in MODEL.items() if k not in ("family", "preset"))
        run([self.elapse, "profile", "--model", "vit-tiny:" + model, "-n", str(RANKS), "--microbatches", "8", "--threads", "1",
             "--db", self.db, "--quiet"])
        # Ranks of one machine play nodes. `sim` would take a node's own rank for one that is alone on its machine, so
        # only what was measured with all ranks busy is left.
        with sqlite3.connect(self.db) as store:
            store.execute("DELETE FROM layer_cost WHERE ranks = 1")

    def train(self, name, trace=None):
        out = os.path.join(self.folder, name)
        shutil.rmtree(out, ignore_errors=True)
        words = [self.elapse, "train", self.job, "-n", str(RANKS), "--out", out, "--threads", "1", "--db", self.db,
                 "--trace-steps", "0", "--quiet"]
        if trace:
            words += ["--max-restarts", "99", "--plan-losses", self.write(name, trace)]
        run(words)
        with open(os.path.join(out, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        with open(os.path.join(out, "summary.json")) as file:
            return json.load(file), lines

    def write(self, name, trace):
        path = os.path.join(self.folder, name + ".csv")
        with open(path, "w") as file:
            file.writelines(f"{step},{rank},{what}\n" for step, rank, what in trace)
        return path

    def simulate(self, name, trace):
        line = os.path.join(self.folder, name + ".timeline.csv")
        got = json.loads(run([self.elapse, "sim", self.job, "--db", self.db, "--seeds", "1", "--json", "--timeline", line,
                              "--faults", f"policy=shrink,run={os.path.join(self.folder, 'probe')},"
                              f"trace_steps={self.write(name, trace)}"]))
        with open(line) as file:
            return got, [(int(a), int(b), part) for a, b, part, _ in (row.split(",") for row in file.readlines()[1:])]


def trace_of(seed, steps):
    """Losses and returns in turn, away from checkpoints that are still being written."""
    draw = random.Random(seed)
    trace, length = [], (steps - 2 * EVERY) // (2 * LOSSES)
    for i in range(LOSSES):
        rank, begin = draw.randrange(RANKS), 2 * i * length + EVERY
        lost = (begin + draw.randrange(length // 2)) // EVERY * EVERY + draw.randrange(EVERY // 2, EVERY - 1)
        trace += [(lost, rank, "lost"), (begin + length + draw.randrange(length // 2), rank, "back")]
    return trace


def losses_of(timeline):
    """The time of each stop: what was thrown away, and what passed until the first step behind it."""
    times, now = [], 0
    for a, b, part in timeline:
        if part in ("lost", "detect", "waiting", "restart"):
            now += b - a
        elif part == "useful" and now:
            times.append(now)
            now = 0
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("elapse")
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--keep-profile", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    asked = parser.parse_args()
    os.makedirs(asked.folder, exist_ok=True)
    replay, bad = Replay(asked.elapse, asked.folder, asked.epochs), 0
    if not (asked.keep_profile and os.path.exists(replay.db)):
        replay.profile()
    replay.train("probe", [(24, 1, "lost"), (40, 1, "back"), (72, 0, "lost"), (90, 0, "back")])
    whole, whole_lines = replay.train("whole")
    ideal = sum(l["step_ns"] for l in whole_lines if "loss" in l)
    steps = asked.epochs * PER_EPOCH
    for seed in asked.seeds:
        trace = trace_of(seed, steps)
        summary, lines = replay.train(f"seed{seed}", trace)
        got, timeline = replay.simulate(f"seed{seed}", trace)
        stops = [l for l in lines if l.get("event") == "restart"]
        real = summary["train_ns"] + sum(l["lost_ns"] + l["redo_ns"] for l in stops)
        off = got["mean_ns"] / real - 1
        same = summary["weights_sha256"] == whole["weights_sha256"]
        times = losses_of(timeline)
        print(f"seed {seed}: real {real / 1e9:.2f} s, simulated {got['mean_ns'] / 1e9:.2f} s ({100 * off:+.1f} %), without losses "
              f"{got['ideal_ns'] / 1e9:.2f} s (real {ideal / 1e9:.2f} s), weights {'equal' if same else 'DIFFER'}")
        bad += not same or abs(off) > LIMIT_RUN or len(times) != len(stops)
        for stop, time in zip(stops, times):
            took = stop["lost_ns"] + stop["redo_ns"]
            bad += abs(time / took - 1) > LIMIT_LOSS
            print(f"  step {stop['step']}, {stop['ranks']} ranks: real {took / 1e6:.0f} ms, simulated {time / 1e6:.0f} ms "
                  f"({100 * (time / took - 1):+.0f} %)")
    print("all within limits" if bad == 0 else f"{bad} outside of the limits")
    sys.exit(bad > 0)


main()
