#!/usr/bin/env python3
"""NeMo-Megatron with Transformer Engine: GPT-3 175B on 128 to 2,048 H100 (DGX H100, 8 x 400 Gb/s a
node), bf16, distributed optimizer: NVIDIA, dgxc-benchmarking, README_175b.md. Before it, layers of MPT on one H100 in
PyTorch (data/h100_layers.csv): a layer is what six layers take more than two, and two micro-batches more than one.

usage: truth_h100.py FOLDER [-v]    FOLDER has steps_h100.csv
"""
import sys

import predict
import rows


def run_of(r):
    n = {k: int(v) for k, v in r.items() if k not in ("step_ms", "sequence_parallel")}
    return n, {"model": predict.gpt(n["layers"], n["hidden"], n["heads"], n["seq"], n["vocab"]),
               "cluster": predict.cluster("h100", n["gpus"], uplink="3200Gb/s", nic="400Gb/s"),
               "layers": n["layers"], "micro_batch": n["micro_batch"],
               "micro_batches": n["global_batch"] // n["dp"] // n["micro_batch"],
               "chunks": n["virtual_stages"], "tp": n["tp"], "dp": n["dp"], "pp": n["pp"],
               "dtype": "bf16", "attention": "fused", "shard": "optimizer",
               "sequence_parallel": r["sequence_parallel"] == "yes", "framework": "megatron-te", "dropout": 0.1}


def layer_ms(n):
    def step(layers, micro_batches):
        return predict.predicted({"model": predict.gpt(layers, n["hidden"], n["heads"], 2048, 50368), "layers": layers,
                                  "cluster": predict.cluster("h100", 1), "micro_batch": n["samples"],
                                  "micro_batches": micro_batches})[0]
    return (step(6, 2) - step(6, 1) - step(2, 2) + step(2, 1)) / 4


def layers(verbose):
    errors = []
    for r in rows.table(rows.HERE + "/data/h100_layers.csv"):
        n = {k: int(r[k]) for k in ("hidden", "heads", "samples")}
        ms = layer_ms(n)
        errors.append(ms / float(r["ms"]) - 1)
        if verbose:
            print("  hidden %5d samples %2d   measured %8.3f  predicted %8.3f ms %+6.1f %%" % (
                n["hidden"], n["samples"], float(r["ms"]), ms, 100 * errors[-1]))
    print("%-34s %4d rows: mean |error| %5.1f %%, bias %+6.1f %%, worst %+6.1f %%" % (
        "MPT's layers on one H100", len(errors), 100 * predict.mean([abs(e) for e in errors]),
        100 * predict.mean(errors), 100 * max(errors, key=abs)))


def main():
    layers("-v" in sys.argv)
    table = predict.Table("NeMo, GPT-3 175B on H100", "nothing", "-v" in sys.argv)
    for r in rows.table(sys.argv[1] + "/steps_h100.csv"):
        n, run = run_of(r)
        flops = predict.gpt_flops(n["global_batch"], n["layers"], n["hidden"], n["seq"], n["vocab"], 1)
        table.add("GPUs %d dp %d" % (n["gpus"], n["dp"]), float(r["step_ms"]), run, flops, n["gpus"], "h100")
    table.show()


if __name__ == "__main__":
    main()
