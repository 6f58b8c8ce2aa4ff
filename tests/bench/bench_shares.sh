#!/bin/bash
# tests/bench/bench_shares.sh [ROUNDS [STEPS]] - what shares of weight gradients bring on two ranks:
# the gain that the simulator predicts from measured costs beside the gain of the runs. A GPT, a ViT and
# a MiniLM of random weights, 8 micro-batches, a thread a rank. Each run with shares stands between two
# without: its gain is their mean step over its own, of medians of steps, and `drift` is by how much the
# two differ, which says how well the machine kept still. Then the median of rounds. SCHEDULES, SHARES and
# MODELS choose; QUICK=1 measures costs quickly; ROWS=FILE keeps a line a run. A round takes about a
# quarter of an hour on two idle cores.
set -u
cd "$(dirname "$0")/../.." || exit 3
export LC_ALL=C OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
elapse="$(readlink -f "${ELAPSE_BIN:-build/bin}")/elapse"
rounds=${1:-1} steps=${2:-20}
[ -x "$elapse-exec" ] || { echo "no elapse-exec: skipped"; exit 0; }
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
lines=${ROWS:-$tmp/all}
export ELAPSE_DB="$tmp/profiles.db"
model_of() {
    case $1 in
    gpt) echo '"gpt2:layers=6,hidden=192,heads=3,mlp=768,vocab=256,seq=64,max_seq=64"' ;;
    vit) echo '"vit-tiny:image=32,patch=4,classes=10,layers=6"' ;;
    minilm) echo '"minilm-l6:task=classify,classes=2,seq=32"' ;;
    esac
}

# run MODEL SCHEDULE SHARE: predicted and measured ns of a step
run() {
    local out=$tmp/run
    rm -rf "$out"
    cat >"$tmp/job.json" <<JOB
{ "name": "$1", "model": $(model_of "$1"), "data": {"kind": "synthetic", "train_samples": 6400, "test_samples": 64},
  "train": {"epochs": 1, "batch": {"global": 32}, "optimizer": {"kind": "adamw", "lr": 0.001}},
  "freeze": {"policy": "$([ "$3" = 0 ] && echo none || echo timed)", "max_share": $3, "every_steps": 1},
  "pipeline": {"num_stages": 2, "num_replicas": 1, "num_microbatches": 8, "schedule": "$2", "recompute": "never"} }
JOB
    "$elapse" train "$tmp/job.json" -n 2 --threads 1 --out "$out" --no-eval --steps "$steps" >"$tmp/log" 2>&1 </dev/null &&
        "$elapse" compare "$out" --json >"$tmp/compare.json" 2>>"$tmp/log" || { tail -3 "$tmp/log" >&2; return 1; }
    python3 - "$tmp/compare.json" "$out/metrics.jsonl" <<'PY'
import json, statistics, sys
with open(sys.argv[2]) as f: # the ramp ends with step 3
    steps = [json.loads(line)["step_ns"] for line in f][5:]
with open(sys.argv[1]) as f:
    print(json.load(f)["configs"][-1]["sim_step_ns"], statistics.median(steps))
PY
}

for model in ${MODELS:-gpt vit minilm}; do
    "$elapse" profile --model "$(model_of "$model" | tr -d '"')" -n 2 --threads 1 --microbatches 4 --quiet ${QUICK:+--quick} \
        >"$tmp/log" 2>&1 || { tail -3 "$tmp/log" >&2; exit 1; }
    for schedule in ${SCHEDULES:-gpipe 1f1b zb-h1}; do
        for ((r = 0; r < rounds; r++)); do
            # shellcheck disable=SC2046,SC2086 # words: 0 0.25 0 0.5 0
            for share in 0 $(printf '%s 0 ' ${SHARES:-0.25 0.5 0.75 0.9}); do
                got=$(run $model $schedule "$share") || exit 1
                echo "$model $schedule $r $share $got" >>"$lines"
            done
        done
    done
done
python3 - "$lines" <<'PY'
import statistics, sys
with open(sys.argv[1]) as f:
    runs = [line.split() for line in f]
cases, errors = {}, []
for before, (model, schedule, _, share, *got), after in zip(runs, runs[1:], runs[2:]):
    if share != "0":
        none = [[float(a), float(b)] for a, b in zip(before[4:], after[4:])]
        gains = [(a + b) / 2 / float(own) for (a, b), own in zip(none, got)]
        cases.setdefault((model, schedule, share), []).append(gains + [abs(none[1][1] / none[1][0] - 1)])
print("model  schedule share  predicted  measured   error    drift")
for (model, schedule, share), rounds in cases.items():
    predicted, measured, drift = map(statistics.median, zip(*rounds))
    errors.append(predicted / measured - 1)
    print(f"{model:6} {schedule:8} {share:5} {predicted:10.3f} {measured:9.3f} {100 * errors[-1]:+6.1f} % {100 * drift:6.1f} %")
sizes = sorted(map(abs, errors))
print(f"gain, predicted against measured: median {100 * statistics.median(sizes):.1f} %, worst {100 * sizes[-1]:.1f} %")
PY
