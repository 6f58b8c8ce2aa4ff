#!/bin/bash
# Elastic training end to end: same bits as without elasticity, idle ranks, resume, bad input.
. "$(dirname "$0")/lib.sh"
begin
export ELAPSE_DB="$tmp/profiles.db" # not there: plans come from the shipped profiles

cat >"$tmp/vit.json" <<'JOB'
{ "name": "vit",
  "model": {"family": "vit", "preset": "vit-tiny", "image": 16, "patch": 8, "hidden": 32, "heads": 2,
            "mlp": 64, "layers": 4, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 200, "test_samples": 50},
  "train": {"epochs": 4, "batch": {"global": 32}, "clip_norm": 1.0, "dropout": 0.1, "reduction": "canonical",
            "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
            "lr_schedule": {"kind": "cosine", "warmup_steps": 3}, "seed": 1},
  "pipeline": {"num_microbatches": 8, "schedule": "1f1b"},
  "freeze": {"policy": "table", "table": [0, 1, 2, 4]} }
JOB
sed -e 's/"name": "vit"/"name": "bert"/' -e '/"model":/,/"classes"/d' -e 's|^  "data".*|  "model": {"family": "bert", "preset": "bert-base", "seq": 16, "hidden": 32, "heads": 2, "mlp": 64, "layers": 4, "vocab": 512, "task": "classify", "classes": 2},\n  "data": {"kind": "synthetic", "train_samples": 200, "test_samples": 50},|' "$tmp/vit.json" >"$tmp/bert.json"

verify() {
    local name=$1
    shift
    "$@" >"$tmp/verify.out" 2>&1
    report $? "$name" <"$tmp/verify.out"
}
# train JOB OUT ARGS...: a quiet run into $tmp/OUT
train() {
    local job=$1 out=$2
    shift 2
    timeout 100 "$elapse" train "$tmp/$job.json" --out "$tmp/$out" --json "$@" \
        >"$tmp/$out.json" 2>"$tmp/$out.err" </dev/null
}
value() { grep -o "\"$2\":[^,}]*" "$tmp/$1/summary.json" | head -1 | tr -d ' \t' | cut -d: -f2-; }
losses() { grep -o '"step":[0-9]*,"epoch":[0-9]*,"loss":[^,]*' "$tmp/$1/metrics.jsonl"; }
same_run() { [ -n "$(value "$1" weights_sha256)" ] && [ "$(value "$1" weights_sha256)" = "$(value "$2" weights_sha256)" ] &&
    [ "$(losses "$1")" = "$(losses "$2")" ] || { cat "$tmp/$1.err" "$tmp/$2.err"; paste <(losses "$1") <(losses "$2") | head -40; false; }; }
# shapes RUN: "F:K:R " of every epoch
shapes() { sed -n 's/.*"epoch":\([0-9]*\),.*"frozen_layers":\([0-9]*\),"pipeline_length":\([0-9]*\),"replicas":\([0-9]*\).*/\1=\2:\3:\4/p' "$tmp/$1/metrics.jsonl" | uniq | cut -d= -f2 | tr '\n' ' '; }
has_shapes() { [ "$(shapes "$1")" = "$2" ] || { shapes "$1"; tail -3 "$tmp/$1.err"; false; }; }

adamw=(--set train.optimizer.kind=adamw --set train.optimizer.lr=0.002 --set train.optimizer.weight_decay=0.01)
for job in vit bert; do
    for kind in sgd adamw; do
        args=()
        [ $kind = adamw ] && args=("${adamw[@]}")
        train $job $job-$kind-1 -n 1 "${args[@]}"
        train $job $job-$kind-4 -n 4 --set 'elastic.stages=[4,4,2,1]' "${args[@]}"
        verify "$job, $kind: an elastic run shrinks its pipelines and grows replicas" \
            has_shapes $job-$kind-4 "0:4:1 1:4:1 2:2:2 4:1:4 "
        verify "$job, $kind: the elastic run has the bits of one rank without elasticity" \
            same_run $job-$kind-1 $job-$kind-4
    done
done
finish
