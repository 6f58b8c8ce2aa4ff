#!/usr/bin/env python3
"""NeMo's Megatron-Bridge: GPT OSS 120B in bf16 on H100, B200, B300, GB200 and GB300, NVIDIA's performance
summaries, releases 26.02 to 26.04.

usage: truth_gptoss.py FOLDER [-v]    FOLDER has gptoss_part.csv
"""
import sys

import predict
import rows
import truth_nemo

LAYERS = 36


def recipe_of(r):
    """From NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs/gpt_oss (gpt_oss_workload_base_configs.py,
    the configurations with a batch of 1,280; gpt_oss_llm_pretrain.py). The tokens' all-to-alls are those of
    GPTOSSProvider (src/megatron/bridge/models/gpt_oss/gpt_oss_provider.py) but for B300's with E = 8.
    "layernorm" and "moe_act" run again on GB200, B200 and H100."""
    return {"overlap": "experts" if r["gpu"] == "gb200" else "none",
            "dispatcher": "flex" if r["gpu"] == "b300" and r["ep"] == "8" else "alltoall",
            "cuda_graphs": "layers" if r["gpu"] in ("gb300", "b300") else "none",
            "recompute": "never" if r["gpu"] in ("gb300", "b300") else "norms"}


def main():
    verbose = "-v" in sys.argv
    truth_nemo.MODELS["GPT OSS 120B"] = ("gpt-oss-120b", LAYERS)
    tables = {}
    for r in rows.table(sys.argv[1] + "/gptoss_part.csv"):
        run = dict(truth_nemo.run_of(r), **recipe_of(r))
        gpus, samples, seq = int(r["gpus"]), int(r["global_batch"]), int(r["seq"])
        measured = samples * seq / gpus / float(r["tokens_per_s_per_gpu"]) * 1e3
        flops = float(r["model_tflops_per_gpu"]) * 1e12 * gpus * measured / 1e3
        name = "GPT OSS 120B, " + r["gpu"]
        if name not in tables:
            tables[name] = predict.Table(name, "nothing", verbose)
        tables[name].add("%s %s ep %s pp %s" % (r["release"], r["gpu"], r["ep"], r["pp"]), measured, run, flops, gpus,
                         r["gpu"])
    for table in tables.values():
        table.show()
    predict.show_all("GPT OSS 120B", tables.values())


if __name__ == "__main__":
    main()
