"""Ask `elapse sim` for the step time of a published run, and print predictions beside measurements."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ELAPSE = os.path.join(os.environ.get("ELAPSE_BIN", os.path.join(ROOT, "build", "bin")), "elapse")
PEAK = {"a100": 312e12, "h100": 989.4e12}


def cluster(kind, gpus, **more):
    """Nodes of 8 devices; link figures are those of the kind unless given."""
    devices = min(8, gpus)
    return dict({"kind": kind, "nodes": -(-gpus // devices), "devices_per_node": devices}, **more)


def megatron_places(tp, dp, pp):
    """First devices of each replica's groups: tensor ranks are neighbours, pipeline ranks far."""
    return [[(k * dp + r) * tp for k in range(pp)] for r in range(dp)]


def step_ms(run):
    """Run: model, cluster, micro_batch, micro_batches, tp, dp, pp, and what job() and plan() read.
    Returns (ms, None), or (None, reason)."""
    pp, v, layers = run.get("pp", 1), run.get("chunks", 1), run["layers"]
    recompute = run.get("recompute", "never")
    batch = run["micro_batch"] * run["micro_batches"]
    pipeline = {"num_stages": pp, "num_replicas": run.get("dp", 1), "chunks": v,
                "num_microbatches": run["micro_batches"], "tensor": run.get("tp", 1),
                "sequence_parallel": run.get("sequence_parallel", False),
                "shard": run.get("shard", "none"), "recompute": recompute,
                "schedule": run.get("schedule", "1f1b" if v == 1 else "interleaved")}
    job = {"name": "truth", "model": run["model"], "cluster": run["cluster"],
           "data": {"kind": "synthetic", "train_samples": 1 << 24},
           "train": {"batch": {"per_pipeline": batch}, "dtype": run.get("dtype", "bf16"),
                     "dropout": run.get("dropout", 0), "attention": run.get("attention", "fused"),
                     "optimizer": {"kind": "adamw"}, "clip_norm": 1.0},
           "pipeline": pipeline,
           "cost": {"source": run.get("cost", "kernels")}}
    tail = run.get("tail_items", 2)
    cut = [2 * layers // (pp * v)] * (pp * v)
    cut[0] += 1
    cut[-1] += tail
    plan = {"schema": 1, "pipeline_length": pp, "chunks": v, "replicas": run.get("dp", 1),
            "microbatches": run["micro_batches"], "microbatch_size": run["micro_batch"],
            "batch": batch, "schedule": pipeline["schedule"], "frozen_layers": 0, "frozen": "none",
            "recompute": recompute, "cut": cut, "tensor": pipeline["tensor"],
            "sequence_parallel": pipeline["sequence_parallel"], "shard": pipeline["shard"],
            "devices": megatron_places(pipeline["tensor"], run.get("dp", 1), pp),
            "cache_write": False, "bucket_bytes": run.get("bucket_bytes", 0), "clip": True,
            "optimizer_bytes_per_param": 8, "canonical": False, "step_ns": 0,
            "memory_bytes": [0] * pp}
    if recompute == "layer":
        plan["recompute_layers"] = [run.get("recompute_layers", layers) // (pp * v)] * (pp * v)
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/job.json", "w") as f:
            json.dump(job, f)
        with open(folder + "/plan.json", "w") as f:
            json.dump(plan, f)
        env = dict(os.environ, ELAPSE_DB=folder + "/none.db")
        got = subprocess.run([ELAPSE, "sim", folder + "/job.json", "--step", "--plan",
                              folder + "/plan.json", "--json"], capture_output=True, text=True,
                             env=env)
    if got.returncode:
        return None, got.stderr.strip().split("\n")[0]
    return json.loads(got.stdout)["step_ns"] / 1e6, None


def gpt(layers, hidden, heads, seq, vocab=51200):
    return ("gpt2:layers=%d,hidden=%d,heads=%d,mlp=%d,seq=%d,max_seq=%d,vocab=%d" %
            (layers, hidden, heads, 4 * hidden, seq, seq, vocab))


def gpt_flops(samples, layers, hidden, seq, vocab, forwards):
    """Flops of a step that runs `forwards` forwards and one backward (two forwards' worth)."""
    forward = samples * seq * (layers * (24 * hidden ** 2 + 4 * seq * hidden))
    return (forwards + 2) * forward + 6 * samples * seq * hidden * vocab


class Table:
    """Rows of one source."""

    def __init__(self, name, fitted, verbose):
        self.name, self.fitted, self.verbose = name, fitted, verbose
        self.errors, self.simple, self.refused = [], [], []

    def add(self, label, measured_ms, run, flops, gpus, kind):
        ms, why = step_ms(run)
        simple = flops / (gpus * PEAK[kind] * 0.45) * 1e3
        self.simple.append(simple / measured_ms - 1)
        if ms is None:
            self.refused.append(label)
            print("  %-44s measured %9.1f ms  refused: %s" % (label, measured_ms, why))
            return
        self.errors.append(ms / measured_ms - 1)
        if self.verbose:
            print("  %-44s measured %9.1f ms  predicted %9.1f ms  %+6.1f %%   simple %+6.1f %%" %
                  (label, measured_ms, ms, 100 * self.errors[-1], 100 * self.simple[-1]))

    def show(self):
        def line(e):
            return "mean |error| %5.1f %%, bias %+6.1f %%, worst %+6.1f %%" % (
                100 * sum(map(abs, e)) / len(e), 100 * sum(e) / len(e), 100 * max(e, key=abs))
        print("%-34s %4d rows: %s" % (self.name, len(self.errors),
                                      line(self.errors) if self.errors else "none"))
        print("%-34s            %s" % ("  FLOPs / (peak x 0.45)", line(self.simple)))
        print("%-34s            %s" % ("  fitted on", self.fitted))
        if self.refused:
            print("%-34s            %d rows refused" % ("", len(self.refused)))
        sys.stdout.flush()
