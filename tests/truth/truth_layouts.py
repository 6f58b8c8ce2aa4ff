#!/usr/bin/env python3
"""Measured layouts of LLaMA-like models on A100-80GB, with those that ran out of memory: Hagemann et
al., "Efficient Parallelization Layouts for Large-Scale Distributed Model Training", 2023 (arXiv
2311.05610), published sheets.

A group is what a user chooses a layout for: model, GPUs, length, attention kernel, norm kernel. The
first choice is the layout of the shortest predicted step among those that the memory model allows.

usage: truth_layouts.py FOLDER [-v]    FOLDER has layouts_a100.csv
"""
import sys

import predict
import rows

# The paper's kernels as keys of a job.
KERNELS = {
    "flash2": {"attention": "fused"},
    "flash1": {"attention": "flash1"},
    "megatron-softmax": {"attention": "unfused"},
    "pytorch": {"attention": "eager"},
}


def uniform_layers(layers, stages):
    """Layers of each stage where embedding, layers, norm and head are divided by their count, the first
    stages taking what is left over (pipe_partition_uniform() of Aleph-Alpha/scaling, 2024)."""
    parts = layers + 3
    per = [parts // stages + (k < parts % stages) for k in range(stages)]
    per[0] -= 1
    per[-1] -= 2
    return per


def run_of(r):
    n = {k: int(r[k]) for k in ("gpus", "layers", "hidden", "heads", "mlp", "vocab", "seq",
                                "global_batch", "micro_batch", "tp", "pp", "dp")}
    run = {"model": "llama:layers=%d,hidden=%d,heads=%d,mlp=%d,seq=%d,vocab=%d" %
                    (n["layers"], n["hidden"], n["heads"], n["mlp"], n["seq"], n["vocab"]),
           "cluster": predict.cluster("a100", n["gpus"], uplink="200Gb/s", nic="200Gb/s", sends="blocking"),
           "layers": n["layers"], "micro_batch": n["micro_batch"],
           "micro_batches": n["global_batch"] // n["dp"] // n["micro_batch"],
           "tp": n["tp"], "dp": n["dp"], "pp": n["pp"], "dtype": "bf16",
           "shard": "optimizer" if n["dp"] > 1 else "none", "recompute": r["recompute"]}
    run["stage_layers"] = uniform_layers(n["layers"], n["pp"])
    run.update(KERNELS[r["attention"]], framework="aa-scaling",
               norm="fused" if r["rmsnorm_kernel"] == "yes" else "eager")
    return n, run


def main():
    verbose = "-v" in sys.argv
    tables = {}
    for r in rows.table(sys.argv[1] + "/layouts_a100.csv"):
        n, run = run_of(r)
        kernel = r["attention"] + (" + norm kernel" if r["rmsnorm_kernel"] == "yes" else "")
        group = (n["layers"], n["gpus"], n["seq"])
        if kernel not in tables:
            tables[kernel] = predict.Table("layouts, %s" % kernel, "nothing; 200 Gb/s a node, not a port, chosen with these rows", verbose)
        flops = predict.llama_flops(n["global_batch"], n["layers"], n["hidden"], n["hidden"], n["mlp"],
                                    n["seq"], n["vocab"], 2 if r["recompute"] == "layer" else 1)
        label = "L %d seq %d %s mb %d tp %d pp %d %s" % (
            n["layers"], n["seq"], kernel, n["micro_batch"], n["tp"], n["pp"], r["recompute"])
        measured = None if r["step_ms"] == "oom" else float(r["step_ms"])
        tables[kernel].add(label, measured, run, flops, n["gpus"], "a100", group)
    for table in tables.values():
        table.show()
    predict.show_all("layouts, all kernels", tables.values())


if __name__ == "__main__":
    main()
