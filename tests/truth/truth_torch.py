#!/usr/bin/env python3
"""torchtitan on H100 of 500 W: float8, tensor parallelism with and without async steps, context parallelism.

PyTorch, torchtitan, benchmarks/llama3_h100_202412_torchtitan.md (2024: tables 1 to 4) and
asyncTP_llama3_h100_2025-06_torchtitan.md with its figure; pytorch/pytorch, issue 149990 (128 GPUs). bf16, or fp8 with one
scale a tensor. The rows of 70 B and of contexts run all layers again, those of 8 B by operators. Not here: scales by row,
and Llama 405B.

usage: truth_torch.py [-v]
"""
import sys

import predict
import truth_fsdp

# GPUs, tokens/s/GPU
FLOAT8 = [(8, 8532), (128, 8380)]
# context, tokens/s/GPU: 32,768 tokens a device, one sample a group
CONTEXT = [(1, 3890), (2, 2540), (4, 1071), (8, 548)]
# model, layers, GPUs, micro-batch, recompute, framework, dtype, tokens/s/GPU without and with async steps
TENSOR = [("llama3-70b", 80, 256, 16, "layer", "fsdp-compiled@2025", "bf16", 597.3, 652.4),
          ("llama3-70b", 80, 256, 16, "layer", "fsdp-compiled@2025", "fp8", 809.8, 942.4),
          ("llama3-8b", 32, 64, 12, "op", "fsdp-compiled@2025", "bf16", 4378, 4809.4),
          ("llama3-8b", 32, 64, 12, "op", "fsdp-compiled@2025", "fp8", 5078.1, 5570.1),
          ("llama3-70b", 80, 256, 16, "layer", "fsdp-compiled", "fp8", 829, 876),
          ("llama3-70b", 80, 128, 16, "layer", "fsdp-compiled@2025", "bf16", 598, 673),
          ("llama3-70b", 80, 128, 16, "layer", "fsdp-compiled@2025", "fp8", 820, 950)]


def run(gpus, **more):
    return dict({"cluster": predict.cluster(truth_fsdp.CARD_500W, gpus, uplink="3200Gb/s", nic="400Gb/s", mem=96 * 10**9),
                 "framework": "fsdp-compiled", "shard": "weights", "micro_batches": 1}, **more)


def flops(model, samples, seq, forwards):
    hidden, mlp, layers = (8192, 28672, 80) if "70b" in model else (4096, 14336, 32)
    return predict.llama_flops(samples, layers, hidden, 1024, mlp, seq, 128256, forwards)


def float8(verbose):
    table = predict.Table("torchtitan, Llama 3.1 8B in fp8", "nothing", verbose)
    for gpus, rate in FLOAT8:
        table.add("GPUs %d" % gpus, 2 * 8192 / rate * 1e3,
                  run(gpus, dp=gpus, model="llama3-8b:seq=8192", layers=32, micro_batch=2, dtype="fp8", recompute="op"),
                  flops("8b", 2 * gpus, 8192, 1.5), gpus, "h100")
    table.show()


def context(verbose):
    table = predict.Table("torchtitan, contexts of Llama 3.1 8B", "nothing", verbose)
    for ways, rate in CONTEXT:
        table.add("context %d" % ways, 32768 / rate * 1e3,
                  run(8, dp=8 // ways, context=ways, model="llama3-8b:seq=%d" % (32768 * ways), layers=32, micro_batch=1,
                      dtype="fp8", recompute="layer"), flops("8b", 8 // ways, 32768 * ways, 2), 8, "h100")
    table.show()


def tensor(verbose):
    table = predict.Table("torchtitan, tensor parallelism", "nothing", verbose)
    for model, layers, gpus, micro, again, framework, dtype, plain, stepped in TENSOR:
        for overlap, rate in (("none", plain), ("tensor", stepped)):
            table.add("%s GPUs %d %s %s" % (model, gpus, dtype, overlap), micro * 8192 / 8 / rate * 1e3,
                      run(gpus, dp=gpus // 8, tp=8, sequence_parallel=True, model=model + ":seq=8192", layers=layers,
                          micro_batch=micro, dtype=dtype, recompute=again, overlap=overlap, framework=framework),
                      flops(model, gpus // 8 * micro, 8192, 2 if again == "layer" else 1.5), gpus, "h100")
        if verbose and table.rows[-1].predicted and table.rows[-2].predicted:
            print("  %-44s gain %.3f, predicted %.3f" % (
                "", stepped / plain, table.rows[-2].predicted / table.rows[-1].predicted))
    table.show()


def main():
    verbose = "-v" in sys.argv
    float8(verbose)
    context(verbose)
    tensor(verbose)


if __name__ == "__main__":
    main()
