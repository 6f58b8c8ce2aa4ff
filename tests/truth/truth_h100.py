#!/usr/bin/env python3
"""NeMo-Megatron with Transformer Engine: GPT-3 175B on 128 to 2,048 H100 (DGX H100, 8 x 400 Gb/s a
node), bf16, distributed optimizer: NVIDIA, dgxc-benchmarking, README_175b.md.

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
               "sequence_parallel": r["sequence_parallel"] == "yes", "framework": "megatron-te"}


def main():
    table = predict.Table("NeMo, GPT-3 175B on H100", "nothing", "-v" in sys.argv)
    for r in rows.table(sys.argv[1] + "/steps_h100.csv"):
        n, run = run_of(r)
        flops = predict.gpt_flops(n["global_batch"], n["layers"], n["hidden"], n["seq"], n["vocab"], 1)
        table.add("GPUs %d dp %d" % (n["gpus"], n["dp"]), float(r["step_ms"]), run, flops, n["gpus"], "h100")
    table.show()


if __name__ == "__main__":
    main()
