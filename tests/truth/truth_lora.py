#!/usr/bin/env python3
"""Fine-tuning with adapters and in full: MLPerf Training v5.1's Llama 2 70B LoRA, and Qwen 1.8B and 7B by Hugging
Face's Trainer on A100 (QwenLM/Qwen's README).

MLPerf: rank 16 on attention, 8,192 tokens a sample, norms of Transformer Engine; the base is kept in the format of
the row. Qwen: micro-batches of one sample, 8 a step, layers run again in the backward, rank 64 on all linears, Q-LoRA
on a base of 4 bits by GPTQ. Attention in fp8 (FP8_DPA=1, NVTE_FP8_DPA_BWD=1) is that of NVIDIA's configurations; SETTINGS
has those of the others, by their files in mlcommons/training_results_v5.1. All have scales of earlier steps (FP8_AMAX_ALGO). Dropout of adapters: 0.1 in
MLPerf's reference, 0.05 in Qwen's finetune.py, whose c_attn has one adapter for queries, keys and values. Qwen's rows of two nodes are left out: they take twice what one GPU takes.

usage: truth_lora.py FOLDER [-v]    FOLDER has mlperf_part.csv and qwen_part.csv
"""
import sys

import predict
import rows

NVL72 = ("gb200", "gb300")
AMD = ("mi300x", "mi325x", "mi355x")
predict.PEAK.update(h200=989.4e12, mi300x=1307e12, mi325x=1307e12, mi355x=2500e12)
predict.MEMORY.update(mi300x=192 << 30, mi325x=256 << 30, mi355x=288 << 30)


# FP8_DPA, FP8_ACTIVATION (or FP8_ACT), and ACL: layers that run again. Cisco: config_C885A_H200_1x8x2xtp1pp1cp2.sh and
# config_DGXH100_16x8x1xtp4pp1cp2.sh; Dell: config_XE9780x8B300-SXM-270GB_1x8x1xtp1pp1cp1.sh; MangoBoost:
# config_MI300X_2x8x1.sh, config_MI325X_2x8x1.sh. AMD's own files are not at hand: MI300X as MangoBoost's
# config_MI300X_1x8x1.sh, MI355X as Dell's config_MI350X_1x8x1.sh.
SETTINGS = {("Cisco", "h200"): (False, True, 0), ("Cisco", "h100"): (False, False, 0), ("Dell", "b300"): (True, True, 0),
            ("MangoBoost", "mi300x"): (False, True, 21), ("MangoBoost", "mi325x"): (False, True, 21),
            ("AMD", "mi300x"): (False, True, 21), ("AMD", "mi355x"): (False, True, 0)}


def mlperf_run(r):
    kind, gpus = r["gpu"], int(r["gpus"])
    tp, cp = int(r["tp"] or 1), int(r["cp"] or 1)
    cluster = predict.cluster(kind, gpus, uplink="3200Gb/s", nic="400Gb/s")
    if kind in NVL72: # domains of 72
        cluster.update(nodes=gpus // 64, devices_per_node=64)
    attention, activation, again = SETTINGS.get((r["org"], kind), (True, False, 0))
    return {"model": "llama2-70b:seq=%s" % r["seq"], "cluster": cluster, "layers": 80,
            "micro_batch": int(r["micro_batch"] or 1), "micro_batches": int(r["micro_batches"] or 1), "tp": tp,
            "dp": gpus // tp // cp, "context": cp, "dtype": r["format"], "attention": "fused",
            "shard": "optimizer" if gpus > tp * cp else "none", "sequence_parallel": tp > 1,
            "framework": "megatron-te", "overlap": "tensor" if r["tp_overlap"] == "1" else "none",
            "cuda_graphs": r["cuda_graphs"] or "none", "fp8_attention": attention, "fp8_scaling": "delayed",
            "fp8_activation": activation, "recompute": "layer" if again else "never", "recompute_layers": again,
            "lora": {"rank": 16, "targets": "attention", "dropout": 0.1}}


QWEN = {"1.8B": (24, 2048, 16, 5504), "7B": (32, 4096, 32, 11008)}


def qwen_run(r):
    layers, hidden, heads, mlp = QWEN[r["size"]]
    gpus = int(r["gpus_per_node"])
    lora = {} if r["method"] == "full" else {"rank": 64, "targets": "all", "dropout": 0.05, "fused_qkv": True,
                                             "base": "gptq" if r["method"] == "qlora" else "same"}
    return {"model": "llama:layers=%d,hidden=%d,heads=%d,mlp=%d,vocab=151936,qkv_bias=1,seq=%s" %
            (layers, hidden, heads, mlp, r["seq"]), "layers": layers, "cluster": predict.cluster("a100", gpus),
            "micro_batch": 1, "micro_batches": 8, "dp": gpus, "recompute": "layer",
            "framework": "deepspeed" if r["method"] == "full" else "hf-eager",
            "shard": "weights" if r["method"] == "full" else "none", "lora": lora}


def flops_of(parameters, tokens, passes):
    return 2 * passes * parameters * tokens


def main():
    verbose = "-v" in sys.argv
    tables = {}

    def table(name):
        return tables.setdefault(name, predict.Table(name, "nothing", verbose))
    for r in rows.table(sys.argv[1] + "/mlperf_part.csv"):
        if r["benchmark"] != "llama2_70b_lora":
            continue
        gpus, tokens = int(r["gpus"]), int(r["global_batch"]) * int(r["seq"])
        name = "MLPerf LoRA, " + ("AMD" if r["gpu"] in AMD else "NVIDIA")
        table(name).add("%s %s x %d" % (r["org"], r["gpu"], gpus), float(r["step_ms"]), mlperf_run(r),
                        flops_of(70e9, tokens, 2), gpus, r["gpu"])
    for r in rows.table(sys.argv[1] + "/qwen_part.csv"):
        if "multinode" in r["method"]:
            continue
        gpus = int(r["gpus_per_node"])
        size = 1.8e9 if r["size"] == "1.8B" else 7.7e9
        table("Qwen, " + r["method"]).add("%s %s seq %s" % (r["size"], r["method"], r["seq"]),
                                          float(r["s_per_it"]) * 1e3, qwen_run(r),
                                          flops_of(size, 8 * gpus * int(r["seq"]), 4), gpus, "a100")
    for t in tables.values():
        t.show()


if __name__ == "__main__":
    main()
