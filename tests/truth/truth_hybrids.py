#!/usr/bin/env python3
"""Models with state-space layers that NVIDIA publishes the step of. Nothing is fitted to them.

- Nemotron-3 Nano 30B-A3B (23 Mamba-2, 23 layers of experts, 6 attention) on 8 H100, bf16, 512 samples of 4,096 tokens by
  NeMo AutoModel 26.02: weights sharded over all 8, experts over 8, DeepEP (docs.nvidia.com/nemo/automodel, performance
  summary).
- Nemotron-H 56B (54 Mamba-2, 54 MLP, 10 attention), fp8, 8,192 tokens: on 128 GB200 384 samples, tensor parallel 4,
  micro-batches of 2; on 256 H100 768 samples, tensor parallel 8, micro-batches of 1, Mamba layers in CUDA graphs
  (NVIDIA/dgxc-benchmarking, nemotron-h/README.md: examples of logs, of which the second varies by 19 %).
"""
import json
import os
import tempfile

import predict

CONFIGS = os.path.join(predict.ROOT, "tests", "golden", "hf_configs.json")
ROWS = [ # name, GPUs, samples, micro-batch, tokens, tensor, experts, measured s, the rest
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "h100", 8, 512, 4, 4096, 1, 8, 15.614,
     {"dtype": "bf16", "shard": "weights", "dispatcher": "flex", "framework": "megatron-te",
      "recompute": "layer"}),
    ("nvidia/Nemotron-H-56B-Base-8K", "h100", 256, 768, 1, 8192, 8, 1, 15.714,
     {"dtype": "fp8", "shard": "optimizer", "overlap": "tensor", "framework": "megatron-te"}),
    ("nvidia/Nemotron-H-56B-Base-8K", "gb200", 128, 384, 2, 8192, 4, 1, 5.310,
     {"dtype": "fp8", "shard": "optimizer", "overlap": "tensor", "framework": "megatron-te"}),
]


def main():
    configs = {row["name"]: row["config"] for row in json.load(open(CONFIGS))}
    for name, kind, gpus, samples, micro, seq, tp, expert, measured, rest in ROWS:
        layers, dp = configs[name]["num_hidden_layers"], gpus // tp
        cluster = predict.cluster(kind, gpus, uplink="3200Gb/s", nic="400Gb/s")
        if kind == "gb200": # one NVLink domain holds 72
            cluster.update(nodes=gpus // 64, devices_per_node=64)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            json.dump(dict(configs[name], seq=seq), config)
            config.flush()
            run = {"model": config.name, "cluster": cluster, "layers": layers, "layer_items": 1, "micro_batch": micro,
                   "micro_batches": samples // dp // micro, "tp": tp, "dp": dp, "expert": expert,
                   "sequence_parallel": tp > 1, **rest}
            ms, memory, why = predict.predicted(run)
        if why:
            print("%-44s %s" % (name, why))
        else:
            print("%-44s %3d %s measured %6.2f s predicted %6.2f s (%+.1f %%) memory %.2f" %
                  (name, gpus, kind, measured, ms / 1e3, (ms / 1e3 / measured - 1) * 100, memory))


if __name__ == "__main__":
    main()
