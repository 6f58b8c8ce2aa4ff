#!/usr/bin/env python3
"""Two published tables of Megatron-LM on Selene (DGX A100, 8 x 200 Gb/s HDR InfiniBand a node).

SC'21: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", table 1: rates per GPU, from which the step follows by the paper's formula for flops.
Micro-batches and chunks are not in the table, and the paper says that they were tuned: the
fastest of 1, 2, 4, 8 and of 1 to 3 chunks that fits is taken.
Table 5: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022,
tables 3 and 5: seconds of an iteration with full recomputation, and with selective recomputation and
sequence parallelism.

usage: truth_megatron.py [-v]
"""
import sys

import predict

# heads, hidden, layers, tp, pp, GPUs, batch, TFLOP/s per GPU
SC21 = [
    (24, 2304, 24, 1, 1, 32, 512, 137),
    (32, 3072, 30, 2, 1, 64, 512, 138),
    (32, 4096, 36, 4, 1, 128, 512, 142),
    (48, 6144, 40, 8, 1, 256, 1024, 135),
    (64, 8192, 48, 8, 2, 512, 1536, 138),
    (80, 10240, 60, 8, 4, 1024, 1792, 140),
    (96, 12288, 80, 8, 8, 1536, 2304, 148),
    (128, 16384, 96, 8, 16, 1920, 2160, 155),
    (128, 20480, 105, 8, 35, 2520, 2520, 163),
    (160, 25600, 128, 8, 64, 3072, 3072, 163),
]
# name, heads, hidden, layers, pp, chunks, GPUs, batch, micro-batch, seconds full, seconds selective
TABLE5 = [
    ("22B", 64, 6144, 48, 1, 1, 8, 4, 4, 1.42, 1.10),
    ("175B", 96, 12288, 96, 8, 3, 64, 64, 1, 18.13, 13.75),
    ("530B", 128, 20480, 105, 35, 3, 280, 280, 1, 49.05, 37.83),
    ("1T", 160, 25600, 128, 64, 1, 512, 512, 1, 94.42, 71.49),
]
SEQ, VOCAB = 2048, 51200


def base(heads, hidden, layers, tp, pp, gpus):
    return {"model": predict.gpt(layers, hidden, heads, SEQ, VOCAB),
            "cluster": predict.cluster("a100", gpus, sends="blocking", uplink="1600Gb/s",
                                       nic="200Gb/s"), "layers": layers,
            "tp": tp, "pp": pp, "dp": gpus // tp // pp, "dtype": "fp16", "dropout": 0.1,
            "attention": "unfused", "judges": "megatron-2021"}


def fastest(run, batch, layers):
    """The fastest micro-batch and number of chunks."""
    best = None
    share = batch // run["dp"]
    for micro in (1, 2, 4, 8):
        for chunks in (1, 2, 3):
            if share % micro or layers % (run["pp"] * chunks) or (chunks > 1 and (
                    run["pp"] == 1 or share // micro % run["pp"])):
                continue
            tried = dict(run, micro_batch=micro, micro_batches=share // micro, chunks=chunks)
            ms, _ = predict.step_ms(tried)
            if ms and (not best or ms < best[0]):
                best = (ms, tried)
    return best[1] if best else dict(run, micro_batch=1, micro_batches=share)


def main():
    verbose = "-v" in sys.argv
    sc21 = predict.Table("Megatron-LM, SC'21 table 1", "nothing; micro-batch and chunks chosen",
                         verbose)
    for heads, hidden, layers, tp, pp, gpus, batch, rate in SC21:
        run = dict(base(heads, hidden, layers, tp, pp, gpus), recompute="layer")
        run = fastest(run, batch, layers)
        flops = (96 * batch * SEQ * layers * hidden ** 2 *
                 (1 + SEQ / (6 * hidden) + VOCAB / (16 * layers * hidden)))
        label = "h %d L %d tp %d pp %d GPUs %d mb %d v %d" % (
            hidden, layers, tp, pp, gpus, run["micro_batch"], run.get("chunks", 1))
        sc21.add(label, flops / (gpus * rate * 1e12) * 1e3, run, flops, gpus, "a100")
    sc21.show()
    table5 = predict.Table("Korthikanti et al., table 5", "nothing", verbose)
    for name, heads, hidden, layers, pp, chunks, gpus, batch, micro, full, selective in TABLE5:
        run = dict(base(heads, hidden, layers, 8, pp, gpus), micro_batch=micro, chunks=chunks,
                   micro_batches=batch // micro)
        for seconds, extra, forwards in (
                (full, {"recompute": "layer"}, 2),
                (selective, {"recompute": "selective", "sequence_parallel": True}, 1)):
            flops = predict.gpt_flops(batch, layers, hidden, SEQ, VOCAB, forwards)
            table5.add("%s %s" % (name, extra["recompute"]), seconds * 1e3, dict(run, **extra), flops,
                       gpus, "a100")
    table5.show()


if __name__ == "__main__":
    main()
