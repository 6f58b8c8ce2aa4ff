#!/bin/bash
# examples/freezing/run.sh - what does freezing cost, and what does it save? Trains every workload
# with every arm and seed that results.jsonl does not hold yet, and adds one JSON line a run to it.
#
#   examples/freezing/run.sh [OUT]       (default build/freezing: data, weights and run folders)
#
#   RESULTS=FILE   where the lines go (default OUT/results.jsonl)
#   WORKLOADS="vit vit-tuned minilm gpt gpt-kjv llama-kjv"   SEEDS="1 2 3 4 5"
#   ARMS="static closed-1/3 closed-1/5 closed-1/2 gradient-norm plateau safe"
#                  also table-0,0,3,5 (F by turn), closed-1/3-anneal, shares-0.5 (of all weight gradients),
#                  autofreeze, apf, ARM+KEY=VALUE (an override), and safe-NAME, to keep runs of another build
#                  (ELAPSE=FILE) apart
#   MICROBATCHES=1  a step, where RANKS is 1; shares need some
#   CIFAR10=DIR SST2=DIR SHAKESPEARE=DIR MINILM=DIR   data and weights; a workload without them is left out
#   ROUND=1        a number for runs of another machine: tables compare runs of one round
#   RANKS=1        processes a run; with one, accuracy and loss are those of any K, and processor seconds
#                  are the run's work alone, because no rank spins while it waits for another
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/freezing}
elapse=${ELAPSE:-build/bin/elapse}
cifar=${CIFAR10:-data/cifar10} sst2=${SST2:-data/sst2} shakespeare=${SHAKESPEARE:-data/tinyshakespeare}
minilm=${MINILM:-build/minilm} ranks=${RANKS:-1} microbatches=${MICROBATCHES:-1}
mkdir -p "$out"
out=$(realpath "$out") cifar=$(realpath -m "$cifar") sst2=$(realpath -m "$sst2")
shakespeare=$(realpath -m "$shakespeare") minilm=$(realpath -m "$minilm")
results=${RESULTS:-$out/results.jsonl}
touch "$results"

say() { printf '[%s] %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
finished() { grep -qs '"interrupted":[[:space:]]*false' "$1/summary.json"; }

# --- data: the tuned ViT sees the third training file, its pretraining only the first two ---
split_cifar() {
    [ -d "$out/front" ] && return
    mkdir -p "$out/front.part" "$out/rest"
    cat "$cifar/data_batch_1.bin" "$cifar/data_batch_2.bin" >"$out/front.part/data_batch_1.bin"
    cp "$cifar/data_batch_3.bin" "$out/rest/data_batch_1.bin"
    cp "$cifar/test_batch.bin" "$out/front.part/"
    cp "$cifar/test_batch.bin" "$out/rest/"
    mv "$out/front.part" "$out/front"
}

# 256 rows spread evenly over train.tsv, because its front is not a fair sample
thin_sst2() {
    [ -s "$out/sst2/dev.tsv" ] && return
    mkdir -p "$out/sst2"
    awk -v step=$((($(wc -l <"$sst2/train.tsv") - 1) / 256)) \
        'NR == 1 || ((NR - 2) % step == 0 && k++ < 256)' "$sst2/train.tsv" >"$out/sst2/train.tsv"
    cp "$sst2/dev.tsv" "$out/sst2/"
}

# Genesis to Deuteronomy of the King James Version, from Debian's packages bible-kjv and -text
fetch_kjv() {
    local tmp
    [ -s "$out/kjv/input.txt" ] && return
    tmp=$(mktemp -d)
    (cd "$tmp" && apt-get download bible-kjv bible-kjv-text && for deb in *.deb; do dpkg -x "$deb" .; done) \
        >/dev/null 2>&1 || { rm -rf "$tmp"; return 1; }
    mkdir -p "$out/kjv"
    echo 'gen1:1-deut34:12' | "$tmp/usr/bin/bible" -l76 -p "$tmp/usr/lib" | tail -n +4 >"$out/kjv/input.txt"
    rm -rf "$tmp"
    [ -s "$out/kjv/input.txt" ]
}

# --- weights that fine-tuning starts from; their seed is none of those compared ---
pretrain() { # NAME JOB OVERRIDES...
    local name=$1 job=$2 set sets=()
    shift 2
    finished "$out/$name" && return
    for set in "$@" train.seed=101; do sets+=(--set "$set"); done
    say "pretrain $name"
    rm -rf "${out:?}/$name"
    "$elapse" train "examples/freezing/$job.json" -n 1 --threads 1 --out "$out/$name" "${sets[@]}" \
        --set pipeline.num_microbatches=1 --json >"$out/$name.json" 2>"$out/$name.log"
}

prepare() {
    case $1 in
    vit | vit-full) [ -s "$cifar/test_batch.bin" ] || { echo "no CIFAR-10 in '$cifar' (CIFAR10=DIR)"; return 1; } ;;
    vit-tuned)
        prepare vit && split_cifar &&
            pretrain vit-before vit data.path="$out/front" data.train_samples=10000 train.epochs=4
        ;;
    minilm)
        [ -s "$sst2/train.tsv" ] || { echo "no SST-2 in '$sst2' (SST2=DIR)"; return 1; }
        examples/elastic/fetch.sh "$minilm" && thin_sst2
        ;;
    gpt) [ -s "$shakespeare/input.txt" ] || { echo "no input.txt in '$shakespeare' (SHAKESPEARE=DIR)"; return 1; } ;;
    gpt-kjv | llama-kjv)
        prepare gpt || return 1
        fetch_kjv || { echo "apt-get cannot fetch bible-kjv-text"; return 1; }
        pretrain "${1%-kjv}-before" "$1" data.path="$shakespeare" data.train_samples=4096 train.epochs=2 \
            train.optimizer.lr=0.002 train.lr_schedule.warmup_steps=40
        ;;
    *) echo "no such workload"; return 1 ;;
    esac
}

# the overrides and options of a workload, then of an arm, one a line
of_workload() {
    case $1 in
    vit | vit-full) echo "data.path=$cifar" ;;
    vit-tuned) echo "data.path=$out/rest" ;;
    minilm) printf '%s\n' "data.path=$out/sst2" "data.vocab=$minilm/vocab.txt" ;;
    gpt) echo "data.path=$shakespeare" ;;
    *-kjv) echo "data.path=$out/kjv" ;;
    esac
}
start_of() {
    case $1 in
    vit-tuned) ls -d "$out"/vit-before/checkpoint-* ;;
    minilm) echo "$minilm/model.safetensors" ;;
    *-kjv) ls -d "$out/${1%-kjv}-before"/checkpoint-* ;;
    esac
}
of_arm() {
    local arm=${1%%+*}
    case $arm in
    static) echo "freeze.policy=none" ;;
    startup) printf '%s\n' freeze.policy=none train.max_steps=1 ;; # what is no training: opening, evaluation
    closed-*-anneal) printf '%s\n' freeze.policy=closed-form "freeze.alpha=$(cut -d- -f2 <<<"$arm")" freeze.anneal=true ;;
    closed-*) printf '%s\n' freeze.policy=closed-form "freeze.alpha=${arm#closed-}" ;;
    safe-*) echo "freeze.policy=safe" ;; # with ELAPSE, of another build
    shares-*) echo "freeze.policy=timed" ;;
    table-*) printf '%s\n' freeze.policy=table "freeze.table=[${arm#table-}]" ;;
    *) echo "freeze.policy=$arm" ;;
    esac
    [ "$arm" = "$1" ] || tr + '\n' <<<"${1#*+}" # overrides come last
}

# One rank waits for each backward, so all have one share: a plan of the job that says so.
plan_of_shares() { # JOB SHARE PLAN OVERRIDES...
    local job=$1 share=$2 plan=$3
    shift 3
    "$elapse" plan "$job" -o "$plan" "$@" --set freeze.policy=none --set pipeline.num_stages=1 \
        --set 'cluster={"nodes": 1, "devices_per_node": 1, "kind": "cpu"}' &&
        python3 - "$plan" "$share" <<'PY'
import json, sys
with open(sys.argv[1]) as f:
    plan = json.load(f)
plan["shares"] = [[float(sys.argv[2])] * plan["microbatches"]]
with open(sys.argv[1], "w") as f:
    json.dump(plan, f)
PY
}

train() { # WORKLOAD ARM SEED
    local workload=$1 arm=$2 seed=$3 set sets=() start dir cpu
    grep -qF "\"workload\":\"$workload\",\"arm\":\"$arm\",\"seed\":$seed," "$results" && return
    dir=$out/runs/$workload-${arm//\//of}-$seed
    while read -r set; do sets+=(--set "$set"); done < <(of_workload "$workload" && of_arm "$arm")
    [ "$ranks" != 1 ] || sets+=(--threads 1 --set pipeline.num_microbatches="$microbatches")
    start=$(start_of "$workload")
    [ -z "$start" ] || sets+=(--init "$start")
    say "$workload $arm, seed $seed"
    rm -rf "$dir"
    mkdir -p "$out/runs"
    if [[ $arm = shares-* ]]; then
        set=${arm#shares-}
        plan_of_shares "examples/freezing/$workload.json" "${set%%+*}" "$dir.plan" --set data.path="$(of_workload "$workload" |
            sed -n 's/^data.path=//p')" --set pipeline.num_microbatches="$microbatches" >"$dir.log" 2>&1 || { tail -3 "$dir.log" >&2; return 1; }
        sets+=(--plan "$dir.plan")
    fi
    TIMEFORMAT='%U %S'
    { time "$elapse" train "examples/freezing/$workload.json" -n "$ranks" --out "$dir" "${sets[@]}" \
        --set "train.seed=$seed" --trace-steps 0 --json >"$dir.json" 2>"$dir.log"; } 2>"$dir.cpu" ||
        { tail -3 "$dir.log" >&2; return 1; }
    finished "$dir" || { say "$dir was interrupted"; return 1; }
    cpu=$(awk '{ print $1 + $2 }' "$dir.cpu")
    python3 examples/freezing/result.py "$workload" "$arm" "$seed" "$dir" "$cpu" >>"$results"
    rm -rf "$dir"/checkpoint-*
}

workloads=
for workload in ${WORKLOADS:-vit vit-tuned minilm gpt gpt-kjv llama-kjv}; do
    if reason=$(prepare "$workload"); then workloads+=" $workload"; else say "$workload is left out: $reason"; fi
done
for seed in ${SEEDS:-1 2 3 4 5}; do
    for workload in $workloads; do
        [ -n "${ARMS:-}" ] || train "$workload" startup 1
        for arm in ${ARMS:-static closed-1/3 closed-1/5 closed-1/2 gradient-norm plateau safe}; do
            train "$workload" "$arm" "$seed" || say "$workload $arm, seed $seed failed"
        done
    done
done
[ -s "$results" ] && python3 examples/freezing/tables.py "$results"
