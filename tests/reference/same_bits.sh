#!/bin/bash
# Losses and weights of short runs of the families vit, bert and gpt by an older build, byte for byte as by this one.
#
#   tests/reference/same_bits.sh OLD_BIN [NEW_BIN]      folders with elapse and elapse-exec (NEW_BIN: build/bin)
#
# fp32 and bf16; one stage, two, and two behind a cached frozen prefix that grows. Both builds need the same compiler,
# flags and BLAS. Exit 1 when a run differs.
set -u
cd "$(dirname "$0")/../.." || exit 3
. tests/env.sh
[ $# -ge 1 ] || { sed -n '2,4p' "$0"; exit 2; }
declare -A bins=([old]=$1 [new]=${2:-build/bin})
declare -A models=([vit]='"preset": "vit-tiny", "image": 32, "patch": 8, "hidden": 96, "heads": 3, "mlp": 384'
    [bert]='"preset": "bert-base", "task": "classify", "hidden": 64, "heads": 4, "mlp": 256, "vocab": 2000, "seq": 32'
    [mlm]='"preset": "bert-base", "task": "mlm", "hidden": 64, "heads": 4, "mlp": 256, "vocab": 2000, "seq": 32'
    [gpt]='"preset": "gpt2", "hidden": 64, "heads": 4, "mlp": 256, "vocab": 2000, "seq": 32')
two=(-n 2 --set pipeline.num_stages=2)
frozen=("${two[@]}" --set freeze.policy=table --set 'freeze.table=[0,1,2]')
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
for model in vit bert mlm gpt; do
    cat >"$tmp/job.json" <<JOB
{"name": "$model", "model": {${models[$model]}, "layers": 4}, "data": {"kind": "synthetic", "train_samples": 128, "test_samples": 32},
 "train": {"epochs": 3, "batch": {"global": 16}, "clip_norm": 1.0, "dropout": 0.1, "optimizer": {"kind": "adamw", "lr": 0.003}, "seed": 1},
 "pipeline": {"num_stages": 1, "num_replicas": 1, "num_microbatches": 4, "schedule": "1f1b"}}
JOB
    for dtype in fp32 bf16; do
        for shape in one two frozen; do
            case $shape in
            one) options=(-n 1) ;;
            two) options=("${two[@]}") ;;
            frozen) # masks are drawn anew each epoch, so no cache holds their samples
                options=("${frozen[@]}" --set "cache.policy=$([ "$model" = mlm ] && echo off || echo on)")
                ;;
            esac
            for build in old new; do
                rm -rf "$tmp/run"
                "${bins[$build]}/elapse" train "$tmp/job.json" --out "$tmp/run" --quiet --set "train.dtype=$dtype" "${options[@]}" \
                    >/dev/null 2>"$tmp/why" || cat "$tmp/why"
                grep -ho '"weights_sha256":[^,}]*' "$tmp/run/summary.json" | head -1 >"$tmp/$build"
                grep -o '"step":[0-9]*,"epoch":[0-9]*,"loss":[^,]*' "$tmp/run/metrics.jsonl" >>"$tmp/$build"
            done
            if [ "$(wc -l <"$tmp/new")" -gt 2 ] && cmp -s "$tmp/old" "$tmp/new"; then
                echo "$model $dtype $shape: the same $(($(wc -l <"$tmp/new") - 1)) losses and weights"
            else
                echo "$model $dtype $shape: DIFFERENT"
                paste "$tmp/old" "$tmp/new" | head -4
                bad=1
            fi
        done
    done
done
exit $bad
