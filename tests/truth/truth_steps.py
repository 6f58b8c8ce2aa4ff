#!/usr/bin/env python3
"""vTrain's measured steps (MICRO 2024) of GPT models on A100-80GB: one node, and 64 GPUs.

usage: truth_steps.py FOLDER [-v]    FOLDER has steps_a100.csv
"""
import sys

import predict
import rows

VOCAB = 50257


def fitted(n):
    """The launch time of the A100 was fitted on these."""
    return n["hidden"] == 1024 and n["micro_batch"] == 1 and n["tp"] == 1


def run_of(r):
    n = {k: int(v) for k, v in r.items() if k != "step_ms"}
    more = {"uplink": "800Gb/s", "nic": "200Gb/s"} if n["gpus"] > 8 else {}
    return n, {"model": predict.gpt(n["layers"], n["hidden"], n["heads"], n["seq"], VOCAB),
               "cluster": predict.cluster("a100", n["gpus"], sends="blocking", **more),
               "layers": n["layers"], "micro_batch": n["micro_batch"],
               "micro_batches": n["global_batch"] // n["dp"] // n["micro_batch"],
               "tp": n["tp"], "dp": n["dp"], "pp": n["pp"], "dtype": "fp16", "dropout": 0.1,
               "attention": "unfused", "recompute": "layer", "judges": "deepspeed"}


def main():
    verbose = "-v" in sys.argv
    tables = {
        False: predict.Table("vTrain, one node", "launch time: hidden 1,024 with micro-batch 1 and "
                             "tp = 1; the other rows judge", verbose),
        True: predict.Table("vTrain, 64 GPUs", "nothing", verbose)}
    for r in rows.table(sys.argv[1] + "/steps_a100.csv"):
        n, run = run_of(r)
        if fitted(n):
            continue
        far = n["gpus"] > 8
        flops = predict.gpt_flops(n["global_batch"], n["layers"], n["hidden"], n["seq"], VOCAB, 2)
        label = "h %d L %d tp %d dp %d pp %d batch %d x %d" % (
            n["hidden"], n["layers"], n["tp"], n["dp"], n["pp"], n["global_batch"], n["micro_batch"])
        tables[far].add(label, float(r["step_ms"]), run, flops, n["gpus"], "a100",
                        (n["hidden"], n["layers"], n["seq"], n["gpus"], n["global_batch"]))
    for far in (False, True):
        tables[far].show()


if __name__ == "__main__":
    main()
