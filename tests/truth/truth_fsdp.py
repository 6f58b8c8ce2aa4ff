#!/usr/bin/env python3
"""Three published tables of runs under PyTorch FSDP.

MPT: MosaicML, llm-foundry, scripts/train/benchmarking/README.md: MPT models on H100-80GB, bf16, FULL_SHARD,
tokens per second and GPU. Rows with sequences of 2,048. Dimensions from the yamls of that repository.
Llama 3.1: PyTorch, torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3: 8 B, 8,192 tokens,
bf16, selective checkpointing by operator (selective_ac_option = 'op' of train_configs/llama3_8b.toml, 2024). Their H100
has a 500 W limit and 2.4 TB/s.
Llama 2: IBM and Meta, fms-fsdp, README.md: 4,096 tokens, bf16, 128 A100. The rows
of 34 B and 70 B are FSDP with checkpointing; those of 7 B and 13 B shard inside a node only (HSDP), which Elapse has not.
Their network is not in that table; taken as 4 x 100 Gb/s a node.

usage: truth_fsdp.py [-v]
"""
import sys

import predict

# name: hidden, layers, heads
MPT = {"70b": (8192, 80, 64), "30b": (7168, 48, 56), "13b": (5120, 40, 40), "7b": (4096, 32, 32),
       "3b": (2560, 32, 20), "1b": (2048, 24, 16), "760m": (1536, 24, 12)}
# name, GPUs, micro-batch, micro-batches, tokens/s/GPU, checkpointing
MPT_ROWS = [
    ("70b", 64, 8, 4, 1039, True), ("70b", 32, 2, 16, 882, True), ("30b", 32, 14, 3, 2308, True),
    ("30b", 16, 10, 3, 2263, True), ("30b", 8, 3, 21, 2002, True), ("13b", 64, 2, 1, 4800, False),
    ("13b", 32, 2, 1, 4811, False), ("13b", 16, 2, 1, 4767, False), ("13b", 8, 2, 1, 4792, False),
    ("7b", 8, 6, 1, 10643, False), ("3b", 64, 6, 3, 22525, False), ("3b", 32, 6, 3, 23021, False),
    ("3b", 16, 10, 3, 24142, False), ("1b", 64, 20, 1, 44402, False), ("1b", 32, 20, 1, 45130, False),
    ("1b", 16, 20, 1, 46037, False), ("1b", 8, 14, 1, 45455, False), ("760m", 32, 24, 1, 67971, False),
    ("760m", 16, 24, 1, 68551, False), ("760m", 8, 24, 2, 63147, False),
]
# GPUs, tokens/s/GPU, framework
LLAMA3_ROWS = [(8, 6667, "fsdp-compiled"), (128, 6514, "fsdp-compiled"), (8, 5762, "fsdp"), (128, 5605, "fsdp")]
# Their page says that the card's peak is between the SXM module's and the NVL card's. Those have 989 TFLOP/s at 700 W and 835 at
# 400 W (data sheets), so 886 on the line between them at 500 W: what a product at the power limit reaches, times 0.896.
CARD_500W = {"name": "h100-500w", "like": "h100", "mem": "96GB", "mem_bandwidth": "2400GB/s", "matmul_hot": 0.845 * 0.896,
             "source": "torchtitan's page"}
# name, layers, hidden, width of keys, mlp, micro-batch, tokens/s/GPU, checkpointing
LLAMA2_ROWS = [("llama2-70b:layers=48,mlp=22016", 48, 8192, 1024, 22016, 8, 772, True),
               ("llama2-70b", 80, 8192, 1024, 28672, 6, 380, True)]


def mpt(verbose):
    table = predict.Table("llm-foundry, MPT on H100", "nothing", verbose)
    for name, gpus, micro, count, rate, again in MPT_ROWS:
        hidden, layers, heads = MPT[name]
        samples = gpus * micro * count
        run = {"model": predict.gpt(layers, hidden, heads, 2048, 50368), "layers": layers,
               "cluster": predict.cluster("h100", gpus, uplink="3200Gb/s", nic="400Gb/s"), "dp": gpus,
               "micro_batch": micro, "micro_batches": count, "framework": "composer", "shard": "weights", "attention": "flash1",
               "recompute": "layer" if again else "never"}
        flops = predict.gpt_flops(samples, layers, hidden, 2048, 50368, 2 if again else 1)
        table.add("%s GPUs %d batch %d x %d%s" % (name, gpus, micro, count, " again" if again else ""),
                  micro * count * 2048 / rate * 1e3, run, flops, gpus, "h100")
    table.show()


def llama3(verbose):
    table = predict.Table("torchtitan, Llama 3.1 8B on H100", "nothing", verbose)
    for gpus, rate, framework in LLAMA3_ROWS:
        run = {"model": "llama3-8b:seq=8192", "layers": 32, "micro_batch": 2, "micro_batches": 1,
               "cluster": predict.cluster(CARD_500W, gpus, uplink="3200Gb/s", nic="400Gb/s", mem=96 * 10**9),
               "dp": gpus, "framework": framework, "shard": "weights", "recompute": "op"}
        flops = predict.llama_flops(2 * gpus, 32, 4096, 1024, 14336, 8192, 128256, 1.5)
        table.add("8B GPUs %d %s" % (gpus, framework), 2 * 8192 / rate * 1e3, run, flops, gpus, "h100")
    table.show()


def llama2(verbose):
    table = predict.Table("fms-fsdp, Llama 2 on A100", "nothing", verbose)
    for name, layers, hidden, kv, mlp, micro, rate, again in LLAMA2_ROWS:
        run = {"model": name + ("," if ":" in name else ":") + "seq=4096", "layers": layers, "micro_batch": micro, "micro_batches": 1,
               "cluster": predict.cluster("a100", 128, uplink="400Gb/s", nic="100Gb/s"), "dp": 128,
               "framework": "fsdp", "shard": "weights", "recompute": "layer" if again else "never"}
        flops = predict.llama_flops(128 * micro, layers, hidden, kv, mlp, 4096, 32000, 2 if again else 1)
        table.add(name, micro * 4096 / rate * 1e3, run, flops, 128, "a100")
    table.show()


def main():
    verbose = "-v" in sys.argv
    mpt(verbose)
    llama3(verbose)
    llama2(verbose)


if __name__ == "__main__":
    main()
