#!/usr/bin/env python3
"""60 pairs of a model and a cluster, planned within the default budget: which answer and which look wrong.

usage: pairs.py [ELAPSE]    (build/bin/elapse)

Prints a line a pair. Flags: MFU above 75 %, EMPTY memory (below 3 %), IDLE half of the devices. Ends
with 1 if a pair has an error other than "does not fit". 3 to 5 minutes."""
import json
import os
import subprocess
import sys
import time

ELAPSE = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../../build/bin/elapse")
CLUSTERS = "gb200-nvl72 dgx-b300-2 dgx-b200-1 h200-1x8 h100-64x8 mi300x-1x8 rtx4090-1x8 l40s-1x4 h20-2x8 a100-2x8"
MODELS = "llama3.1-8b llama3-70b qwen3-32b mixtral-8x7b gemma2-9b vit-h14"
wrong = planned = 0
for cluster in CLUSTERS.split():
    for model in MODELS.split():
        batch = "1024" if cluster == "h100-64x8" else "256"
        start = time.time()
        got = subprocess.run([ELAPSE, "plan", "--model", model, "--cluster", cluster, "--batch", batch, "--json",
                              "--quiet", "--set", "train.dtype=bf16", "--set", "train.optimizer.kind=adamw"],
                             capture_output=True, text=True)
        line = f"{model:13} {cluster:12} {time.time() - start:5.1f} s  "
        if got.returncode:
            fits = "does not fit" not in got.stderr
            wrong += fits
            print(line + got.stderr.splitlines()[0], flush=True)
            continue
        a = json.loads(got.stdout)
        planned += 1
        used = a["pipeline_length"] * a["replicas"] * a.get("tensor", 1) * a.get("context", 1)
        limit = a.get("memory_limit_bytes") or 0
        memory = max(a["memory_bytes"]) / limit if limit else 1
        flags = [name for name, bad in (("MFU", a.get("mfu", 0) > .75), ("EMPTY", memory < .03),
                                        ("IDLE", a["idle_devices"] >= used)) if bad]
        print(line + f"K {a['pipeline_length']} R {a['replicas']} T {a.get('tensor', 1)} {a['schedule']} "
              f"MFU {100 * a.get('mfu', 0):.1f} % memory {100 * memory:.0f} % idle {a['idle_devices']} "
              + " ".join(flags), flush=True)
print(f"{planned} planned, {wrong} errors other than memory")
sys.exit(wrong > 0)
