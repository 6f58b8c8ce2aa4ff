#!/bin/bash
# tests/bench/bench_pairs.sh [MODEL...] - plan models on ten clusters in the default budget, a line each. A word at the
# end marks an answer to look at: MFU above 75 %, EMPTY memory (below 3 %), IDLE for half of the devices and more.
elapse=${ELAPSE_BIN:-build/bin}/elapse
tmp=$(mktemp -d) || exit 3
trap 'rm -rf "$tmp"' EXIT
[ $# -gt 0 ] || set -- llama3.1-8b llama3-70b qwen3-32b mixtral-8x7b gemma2-9b vit-h14
for cluster in gb200-nvl72 dgx-b300-2 dgx-b200-1 h200-1x8 h100-64x8 mi300x-1x8 rtx4090-1x8 l40s-1x4 h20-2x8 a100-2x8; do
    for model; do
        batch=256
        [ $cluster = h100-64x8 ] && batch=1024
        cat >"$tmp/job.json" <<END
{"model": "$model", "cluster": "$cluster", "data": {"kind": "synthetic", "train_samples": 100000},
 "train": {"dtype": "bf16", "optimizer": {"kind": "adamw"}, "batch": {"global": $batch}}}
END
        "$elapse" plan "$tmp/job.json" --quiet --json >"$tmp/out" 2>"$tmp/err"
        python3 - "$model" "$cluster" $? "$tmp" <<'END'
import json, sys
model, cluster, code, tmp = sys.argv[1:]
head = f"{model:13} {cluster:12}"
if code != "0":
    sys.exit(f"{head} {open(tmp + '/err').readline().strip()}")
a = json.load(open(tmp + "/out"))
used = sum(len(row) for row in a["devices"]) * a.get("tensor", 1)
share = max(a["memory_bytes"]) / a["memory_limit_bytes"]
marks = [w for w, on in (("MFU", a["mfu"] > .75), ("EMPTY", share < .03), ("IDLE", a["idle_devices"] >= used)) if on]
print(f"{head} {a['solve_ns'] / 1e9:5.1f} s  K {a['pipeline_length']} R {a['replicas']} T {a.get('tensor', 1)} "
      f"M {a['microbatches']} x {a['microbatch_size']} {a['schedule']}, {a.get('shard', 'none')}, {a['recompute']}: "
      f"MFU {100 * a['mfu']:.1f} %, memory {100 * share:.0f} %, idle {a['idle_devices']}", *marks)
END
    done
done
