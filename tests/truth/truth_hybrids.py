#!/usr/bin/env python3
"""Models with state-space layers that NVIDIA publishes the step of. Nothing is fitted to them.

- Nemotron-3 Nano 30B-A3B (23 Mamba-2, 23 layers of experts, 6 attention) on 8 H100, bf16, 512 samples of 4,096 tokens by
  NeMo AutoModel 26.02: weights sharded over all 8, experts over 8, DeepEP (docs.nvidia.com/nemo/automodel, performance
  summary).
- Nemotron-H 56B (54 Mamba-2, 54 MLP, 10 attention), fp8, 8,192 tokens: on 128 GB200 384 samples, tensor parallel 4,
  micro-batches of 2; on 256 H100 768 samples, tensor parallel 8, micro-batches of 1, Mamba layers in CUDA graphs
  (NVIDIA/dgxc-benchmarking, nemotron-h/README.md: examples of logs, of which the second varies by 19 %).
- Qwen3-Next 80B-A3B (36 gated delta nets, 12 attention, all with experts) on 128 H100, bf16, 256 samples of 4,096 tokens,
  4 stages of 3 chunks, experts over 32, DeepEP ("not well tuned"; yanring/Megatron-MoE-ModelZoo, best_practice/Qwen3).

Qwen3 235B-A22B, which has no such layers, in the layouts of that page: they are ranked, and what it says of the host's
launches holds for Qwen3-Next as well.
"""
import json
import os
import tempfile

import predict

CONFIGS = os.path.join(predict.ROOT, "tests", "golden", "hf_configs.json")
ZOO = {"dtype": "bf16", "shard": "optimizer", "dispatcher": "flex", "framework": "megatron-te", "expert_tensor": 1}
ROWS = [ # name, GPUs, samples, micro-batch, tokens, tensor, experts, measured s, the rest
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "h100", 8, 512, 4, 4096, 1, 8, 15.614,
     {"dtype": "bf16", "shard": "weights", "dispatcher": "flex", "framework": "megatron-te",
      "recompute": "layer"}),
    ("nvidia/Nemotron-H-56B-Base-8K", "h100", 256, 768, 1, 8192, 8, 1, 15.714,
     {"dtype": "fp8", "shard": "optimizer", "overlap": "tensor", "framework": "megatron-te"}),
    ("nvidia/Nemotron-H-56B-Base-8K", "gb200", 128, 384, 2, 8192, 4, 1, 5.310,
     {"dtype": "fp8", "shard": "optimizer", "overlap": "tensor", "framework": "megatron-te"}),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", "h100", 128, 256, 1, 4096, 1, 32, 2.2, dict(ZOO, pp=4, chunks=3)),
]
LAYOUTS = [ # tensor, experts, stages, chunks, micro-batch, measured s, the rest
    (2, 32, 8, 4, 1, 19.7, {}),
    (2, 32, 8, 4, 1, 17.6, {"overlap": "experts"}),
    (2, 8, 1, 1, 4, 17.6, {"shard": "weights", "recompute": "layer"}),
    (2, 8, 32, 3, 1, 24.2, {"dispatcher": "alltoall"}),
    (4, 8, 8, 4, 1, 29.0, {}),
]


def show(name, measured, ms, memory, why):
    print("%-56s measured %6.2f s " % (name, measured) +
          (why or "predicted %6.2f s (%+.1f %%) memory %.2f" % (ms / 1e3, (ms / 1e3 / measured - 1) * 100, memory)))


def main():
    configs = {row["name"]: row["config"] for row in json.load(open(CONFIGS))}
    for name, kind, gpus, samples, micro, seq, tp, expert, measured, rest in ROWS:
        layers, dp = configs[name]["num_hidden_layers"], gpus // tp // rest.get("pp", 1)
        cluster = predict.cluster(kind, gpus, uplink="3200Gb/s", nic="400Gb/s")
        if kind == "gb200": # one NVLink domain holds 72
            cluster.update(nodes=gpus // 64, devices_per_node=64)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            json.dump(dict(configs[name], seq=seq), config)
            config.flush()
            run = {"model": config.name, "cluster": cluster, "layers": layers,
                   "layer_items": 2 if "Next" in name else 1, "micro_batch": micro,
                   "micro_batches": samples // dp // micro, "tp": tp, "dp": dp, "expert": expert,
                   "sequence_parallel": tp > 1, **rest}
            ms, memory, why = predict.predicted(run)
        show("%s, %d %s" % (name, gpus, kind), measured, ms, memory, why)
    for tp, expert, pp, v, micro, measured, rest in LAYOUTS:
        dp, chunks = 256 // tp // pp, pp * v
        per = [(94 + 2) // chunks] * chunks # embedding and head count as layers
        if chunks > 1:
            per[0] -= 1
            per[-1] -= 1
        run = {"model": "qwen3-235b-a22b:seq=4096", "layers": 94, "micro_batch": micro,
               "cluster": predict.cluster("h100", 256, uplink="3200Gb/s", nic="400Gb/s"),
               "micro_batches": 2048 // dp // micro, "tp": tp, "dp": dp, "pp": pp, "chunks": v, "expert": expert,
               "sequence_parallel": True, "stage_layers": per if chunks > 1 else None, **dict(ZOO, **rest)}
        ms, memory, why = predict.predicted(run)
        show("Qwen3 235B-A22B, TP %d EP %d PP %d %s" % (tp, expert, pp, " ".join(str(x) for x in rest.values())), measured,
             ms, memory, why)


if __name__ == "__main__":
    main()
