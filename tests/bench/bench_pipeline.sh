#!/bin/bash
# tests/bench/bench_pipeline.sh [ROUNDS [STEPS]] - a pipeline of 2 beside 2 replicas: the same model,
# global batch and micro-batch size, a thread a rank, runs alternated. The ideal pipeline has
# M / (M + K - 1) of the replicas' speed. Medians over rounds of the median step.
set -u
cd "$(dirname "$0")/../.." || exit 3
export LC_ALL=C OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
elapse="$(readlink -f "${ELAPSE_BIN:-build/bin}")/elapse"
rounds=${1:-3} steps=${2:-10} micro=8
[ -x "$elapse-exec" ] || { echo "no elapse-exec: skipped"; exit 0; }
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/job.json" <<'JOB'
{ "name": "vit-tiny",
  "model": {"family": "vit", "preset": "vit-tiny", "image": 32, "patch": 4, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 6400, "test_samples": 64},
  "train": {"epochs": 1, "batch": {"global": 64}, "optimizer": {"kind": "sgd", "lr": 0.01, "momentum": 0.9}},
  "pipeline": {"num_stages": 2, "num_replicas": 1, "num_microbatches": 8, "schedule": "1f1b"} }
JOB
export ELAPSE_DB="$tmp/profiles.db"

# step_ms NAME ARGS...: median step of a run behind its first 2
step_ms() {
    local out=$tmp/$1
    shift
    rm -rf "$out"
    "$elapse" train "$tmp/job.json" -n 2 --threads 1 --out "$out" --no-eval --trace-steps 0 --steps "$steps" "$@" \
        >"$tmp/log" 2>&1 </dev/null || { cat "$tmp/log" >&2; return 1; }
    grep -o '"step_ns":[ ]*[0-9]*' "$out/metrics.jsonl" | tr -dc '0-9\n' | tail -n +3 | sort -n |
        awk '{t[NR] = $1} END {if (!NR) exit 1; printf "%.1f\n", t[int((NR + 1) / 2)] / 1e6}'
}
middle() { sort -n "$1" | awk '{t[NR] = $1} END {printf "%.1f %.1f %.1f", t[int((NR + 1) / 2)], t[1], t[NR]}'; }

for ((r = 0; r < rounds; r++)); do
    step_ms pipeline >>"$tmp/k2" || exit 1
    step_ms replicas --set pipeline.num_stages=1 --set pipeline.num_replicas=2 --set pipeline.num_microbatches=4 \
        >>"$tmp/r2" || exit 1
done
read -r k2 k2_low k2_high <<<"$(middle "$tmp/k2")"
read -r r2 r2_low r2_high <<<"$(middle "$tmp/r2")"
awk -v m=$micro -v k2="$k2" -v r2="$r2" -v a="$k2_low..$k2_high" -v b="$r2_low..$r2_high" 'BEGIN {
    ideal = r2 * (m + 1) / m
    printf "vit-tiny, batch 64, M %d: K=2 %.1f ms (%s), R=2 %.1f ms (%s), ideal K=2 %.1f ms: %.3f of the ideal\n", m, k2, a, r2, b, ideal, ideal / k2
}'
