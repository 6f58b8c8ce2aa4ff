#!/bin/bash
# tests/bench/bench_checkpoint.sh - for how long steps wait for a checkpoint of GPT-2 small with AdamW on 2 ranks (1.5 GB):
# for files written during the next steps, for the last file, for which the run waits as it once did for each, and for
# copies in memory. Takes about 3 minutes and 8 GB of memory; the machine must have nothing else to do.
#
#   bench_checkpoint.sh [STEPS [EVERY]]     (12 steps, a file every 4, a copy every 2)
set -u
cd "$(dirname "$0")/../.." || exit 3
elapse="$(readlink -f "${ELAPSE_BIN:-build/bin}")/elapse"
steps=${1:-12} every=${2:-4}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir "$tmp/text"
for i in $(seq 200); do echo "$i sheep jump over the fence"; done >"$tmp/text/input.txt"
cat >"$tmp/job.json" <<'JOB'
{"name": "checkpoint", "model": {"preset": "gpt2", "seq": 64}, "data": {"kind": "text", "path": "text"},
 "train": {"epochs": 100, "batch": {"global": 4}, "optimizer": {"kind": "adamw", "lr": 1e-4}, "eval_every_epochs": 0},
 "pipeline": {"num_stages": 2, "num_microbatches": 2}, "freeze": {"policy": "none"}}
JOB
for copies in 0 2; do
    "$elapse" train "$tmp/job.json" -n 2 --steps "$steps" --out "$tmp/run$copies" --quiet --json \
        --set train.checkpoint_every_steps="$every" --set train.checkpoint_memory_every_steps=$copies \
        >/dev/null 2>"$tmp/err" || { cat "$tmp/err"; exit 1; }
done
python3 - "$tmp" <<'END'
import json, sys
for copies in (0, 2):
    run = f"{sys.argv[1]}/run{copies}"
    steps = [json.loads(line) for line in open(run + "/metrics.jsonl")]
    summary = json.load(open(run + "/summary.json"))
    files, memory = summary["checkpoints"], summary.get("memory_copies", {"count": 0})
    times = sorted(s["step_ns"] for s in steps[2:])
    n = files["count"] - 1
    print(f"step {times[len(times) // 2] / 1e6:.0f} ms (median); {n} files written beside steps: waits of "
          f"{(files['stall_ns'] - files['longest_stall_ns']) / n / 1e6:.0f} ms each; the last file, waited for: "
          f"{files['longest_stall_ns'] / 1e6:.0f} ms")
    if memory["count"]:
        print(f"{memory['count']} copies in memory: {memory['stall_ns'] / memory['count'] / 1e6:.0f} ms each, at most "
              f"{memory['longest_stall_ns'] / 1e6:.0f} ms")
END
