#!/usr/bin/env python3
"""NeMo's Megatron-Bridge with Transformer Engine in fp8, mxfp8 and nvfp4: Llama 3 70B and Qwen3 30B-A3B
on H100, B200, B300, GB200 and GB300: NVIDIA's performance summaries, releases 25.09 to 26.08.

Rows say the layout; recipe_of() has what their recipes say besides. None of them recomputes. A row with
`fsdp` is asked with weights sharded over its data-parallel ranks. GB200 and GB300 are one NVLink domain.
LoRA rows have tables of their own.

usage: truth_nemo.py FOLDER [-v]    FOLDER has steps_nemo.csv
"""
import sys

import predict
import rows

FORMATS = {"fp8-cs": "fp8", "fp8-mx": "mxfp8"}
MODELS = {"LLAMA3_70B": ("llama3-70b", 80), "Qwen3_30B_a3B": ("qwen3-30b-a3b", 48)}
NVL72 = ("gb200", "gb300")
# cpu_offloading_num_layers of llama3_workload_base_configs.py: layers whose activations lie in the host's memory.
OFFLOADED = {("gb300", "fp8"): 20, ("gb200", "fp8"): 40}


def recipe_of(r, dtype):
    """Overlap, dispatcher and CUDA graphs of a row, from NVIDIA-NeMo/Megatron-Bridge:
    scripts/performance/configs/llama/ (llama3_llm_pretrain.py, llama3_llm_finetune.py,
    llama3_workload_base_configs.py) and configs/qwen/ (qwen3_llm_pretrain.py, qwen3_workload_base_configs.py);
    from 26.06 on src/megatron/bridge/perf_recipes/{llama,qwen}. Pull requests date what changed between releases.
    Gradients are summed in 2 bytes there (grad_reduce_in_fp32 is False).
    """
    blackwell = r["gpu"] != "h100"
    if r["model"] == "LLAMA3_70B":
        # tp_comm_overlap is off with nvfp4. cuda_graph_scope: ["mlp"] in the recipes of sft and LoRA for
        # GB200 and GB300, and for H100 in that of sft; none before training.
        return {"overlap": "none" if dtype == "nvfp4" else "tensor",
                "cuda_graphs": "mlp" if r["task"] != "pre-training" and (blackwell or r["task"] == "sft") else "none"}
    if r["release"] >= "26.06" and blackwell:
        # Full-iteration graphs and overlap_moe_expert_parallel_comm (pull requests 4211, 4249).
        return {"overlap": "experts", "dispatcher": "flex", "cuda_graphs": "step"}
    # B200 and H100 went from all-to-alls to HybridEP in 26.02.01 (pull requests 2499, 2477), GB200, GB300
    # and B300 had it before. cuda_graph_scope: ["moe_router", "moe_preprocess"], with "attn" on B200 from
    # 26.02.01 on; none on H100. moe_a2a_overlap is on for H100 until 26.02.
    flex = r["gpu"] in NVL72 + ("b300",) or r["release"] >= "26.02.01"
    return {"overlap": "none" if blackwell or flex else "experts", "dispatcher": "flex" if flex else "alltoall",
            "cuda_graphs": "none" if not blackwell else "layers" if r["gpu"] == "b200" and flex else "mlp"}


def layout_of(r):
    """tp, pp, chunks and micro-batch. Two rows of 26.02.01 print another layout than the recipe's, with which the
    weights and gradients of 70 B parameters do not fit: theirs is that of the rows before and after."""
    tp, pp, v = (int(r[k] or 1) for k in ("tp", "pp", "virtual_stages"))
    micro = int(r["micro_batch"])
    if r["release"] == "26.02.01" and r["gpu"] == "gb300" and r["precision"] in ("mxfp8", "nvfp4") and micro == 2:
        return 1, 4, 5, 1
    return tp, pp, v, micro


def run_of(r):
    model, layers = MODELS[r["model"]]
    kind, gpus, samples = r["gpu"], int(r["gpus"]), int(r["global_batch"])
    tp, pp, v, micro = layout_of(r)
    dp = gpus // (tp * pp * int(r["cp"] or 1))
    dtype = FORMATS.get(r["precision"], r["precision"])
    cluster = predict.cluster(kind, gpus, uplink="3200Gb/s", nic="400Gb/s")
    if kind in NVL72: # one NVLink domain
        cluster.update(nodes=1, devices_per_node=gpus)
        del cluster["uplink"], cluster["nic"]
    return {"model": "%s:seq=%s" % (model, r["seq"]), "expert": int(r["ep"] or 1), "cluster": cluster, "layers": layers,
            "micro_batch": micro, "micro_batches": samples // dp // micro, "chunks": v if pp > 1 else 1, "tp": tp,
            "dp": dp, "pp": pp, "dtype": dtype, "attention": "fused",
            "shard": "weights" if int(r["fsdp"] or 0) > 1 else "optimizer" if dp > 1 else "none",
            "sequence_parallel": tp > 1, "framework": "nemo", "context": int(r["cp"] or 1),
            "on_host": OFFLOADED.get((kind, dtype), 0) if int(r["fsdp"] or 0) > 1 else 0,
            "lora": {"rank": 16, "targets": "qkv"} if r["task"] == "lora" else {}, **recipe_of(r, dtype)}


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
        tables[name].add("%s %s %s tp %s pp %s" % (r["release"], r["gpu"], r["task"], r["tp"], r["pp"]), measured, run,
                         flops, gpus, r["gpu"])
    for table in tables.values():
        table.show()
    for model in MODELS:
        predict.show_all("NeMo, " + model, [t for n, t in tables.items() if n.startswith(model + ",")])
    predict.show_all("NeMo, LLAMA3_70B LoRA", [t for n, t in tables.items() if " LoRA" in n])


if __name__ == "__main__":
    main()
