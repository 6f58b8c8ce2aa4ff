#!/usr/bin/env python3
"""NeMo's Megatron-Bridge with Transformer Engine in fp8, mxfp8 and nvfp4: Llama 3 70B and Qwen3 30B-A3B
on H100, B200, B300, GB200 and GB300: NVIDIA's performance summaries, releases 25.09 to 26.08.

Rows say neither recompute nor overlap: none is taken, so most of them have no room by the memory
model. A row with `fsdp` is asked with weights sharded over its data-parallel ranks. GB200 and GB300 are
one NVLink domain. LoRA rows have tables of their own; they do not say which products have adapters
of which rank: rank 16 beside queries, keys and values is assumed.

usage: truth_nemo.py FOLDER [-v]    FOLDER has steps_nemo.csv
"""
import sys

import predict
import rows

FORMATS = {"fp8-cs": "fp8", "fp8-mx": "mxfp8"}
MODELS = {"LLAMA3_70B": ("llama3-70b", 80), "Qwen3_30B_a3B": ("qwen3-30b-a3b", 48)}
NVL72 = ("gb200", "gb300")


def run_of(r):
    model, layers = MODELS[r["model"]]
    kind, gpus = r["gpu"], int(r["gpus"])
    tp, pp, v = (int(r[k] or 1) for k in ("tp", "pp", "virtual_stages"))
    dp = gpus // (tp * pp * int(r["cp"] or 1))
    micro, samples = int(r["micro_batch"]), int(r["global_batch"])
    cluster = predict.cluster(kind, gpus, uplink="3200Gb/s", nic="400Gb/s")
    if kind in NVL72: # one NVLink domain
        cluster.update(nodes=1, devices_per_node=gpus)
        del cluster["uplink"], cluster["nic"]
    return {"model": "%s:seq=%s" % (model, r["seq"]), "expert": int(r["ep"] or 1), "cluster": cluster, "layers": layers, "micro_batch": micro,
            "micro_batches": samples // dp // micro, "chunks": v if pp > 1 else 1, "tp": tp, "dp": dp,
            "pp": pp, "dtype": FORMATS.get(r["precision"], r["precision"]), "attention": "fused",
            "shard": "weights" if int(r["fsdp"] or 0) > 1 else "optimizer" if dp > 1 else "none",
            "sequence_parallel": tp > 1, "framework": "megatron-te", "context": int(r["cp"] or 1),
            "lora": {"rank": 16, "targets": "qkv"} if r["task"] == "lora" else {}}


def main():
    verbose = "-v" in sys.argv
    tables = {}
    for r in rows.table(sys.argv[1] + "/steps_nemo.csv"):
        if r["model"] not in MODELS:
            continue
        run = run_of(r)
        gpus, samples, seq = int(r["gpus"]), int(r["global_batch"]), int(r["seq"])
        measured = samples * seq / gpus / float(r["tokens_per_s_per_gpu"]) * 1e3
        flops = float(r["model_tflops_per_gpu"]) * 1e12 * gpus * measured / 1e3
        lora = " LoRA" if r["task"] == "lora" else ""
        name = "%s%s, %s, %s" % (r["model"], lora, r["gpu"], run["dtype"])
        if name not in tables:
            tables[name] = predict.Table(name, "nothing", verbose)
        tables[name].add("%s %s tp %s pp %s" % (r["release"], r["task"], r["tp"], r["pp"]), measured, run,
                         flops, gpus, r["gpu"])
    for table in tables.values():
        table.show()
    for model in MODELS:
        predict.show_all("NeMo, " + model, [t for n, t in tables.items() if n.startswith(model + ",")])
    predict.show_all("NeMo, LLAMA3_70B LoRA", [t for n, t in tables.items() if " LoRA" in n])


if __name__ == "__main__":
    main()
