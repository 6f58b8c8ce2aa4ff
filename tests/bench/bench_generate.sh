#!/bin/bash
# tests/bench/bench_generate.sh - tokens per second of one sequence as a share of memory bandwidth: a Llama of about
# 100 M parameters in fp32, whose products read their weights once a token. Both are measured in turn, and the best
# of each counts. Takes about a minute.
#
#   bench_generate.sh [ROUNDS [TOKENS]]     (5 rounds of 64 tokens)
set -u
cd "$(dirname "$0")/../.." || exit 3
elapse="$(readlink -f "${ELAPSE_BIN:-build/bin}")/elapse"
rounds=${1:-5} tokens=${2:-64}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
${CC:-cc} -O3 -march=native -fopenmp tests/bench/read_memory.c -o "$tmp/read_memory" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir "$tmp/text"
for i in $(seq 400); do echo "$i sheep jump over the fence"; done >"$tmp/text/input.txt"
cat >"$tmp/job.json" <<'JOB'
{"name": "generate", "model": "llama:layers=16,hidden=768,heads=12,kv_heads=4,mlp=2048,vocab=256,seq=256,dtype=fp32",
 "data": {"kind": "text", "path": "text"}, "train": {"epochs": 0, "batch": {"global": 1}}}
JOB
"$elapse" train "$tmp/job.json" -n 1 --out "$tmp/run" --quiet >/dev/null || exit 1
# Weights of products: all parameters but the token table, of which a token reads one row.
bytes=$("$elapse" model llama:layers=16,hidden=768,heads=12,kv_heads=4,mlp=2048,vocab=256,seq=256 --json |
    python3 -c 'import json, sys; m = json.load(sys.stdin); print(4 * (m["total_params"] - m["items"][0]["params"]))')
for _ in $(seq "$rounds"); do
    rate=$("$tmp/read_memory")
    speed=$("$elapse" generate "$tmp/run" --prompt "1 sheep" --max-tokens "$tokens" --json 2>/dev/null |
        sed 's/.*"tokens_per_s":\([0-9.]*\).*/\1/')
    echo "$rate $speed"
done | awk -v bytes="$bytes" '{ if ($1 > rate) rate = $1; if ($2 > speed) speed = $2 }
    END { printf "%.1f tokens/s x %.0f MB = %.1f GB/s of %.1f GB/s that memory reads: %.0f %%\n", speed, bytes / 1e6,
                 speed * bytes / 1e9, rate / 1e9, 100 * speed * bytes / rate; exit !(speed > 0) }'
