#!/bin/bash
# The same bits at any pipeline length, under any schedule and after a resume: BERT, masked BERT and
# GPT with dropout, K = 1 to 4. ViT: e2e_train.sh; two ranks and every schedule: test_runtime.c.
. "$(dirname "$0")/lib.sh"
begin
export ELAPSE_DB="$tmp/profiles.db"

# train NAME OUT ARGS...: a quiet run of job NAME into $tmp/NAME-OUT
train() {
    local name=$1 out=$1-$2
    shift 2
    timeout 100 "$elapse" train "$tmp/$name.json" --out "$tmp/$out" --threads 1 --json "$@" \
        >"$tmp/$out.json" 2>"$tmp/$out.err" </dev/null
}
digest() { grep -o '"weights_sha256":[^,}]*' "$tmp/$1/summary.json"; }
losses() { grep -o '"step":[0-9]*,"epoch":[0-9]*,"loss":[^,]*' "$tmp/$1/metrics.jsonl"; }
same() { # NAME OUT OUT2
    [ -n "$(digest "$2")" ] && [ "$(digest "$2")" = "$(digest "$3")" ] && [ "$(losses "$2")" = "$(losses "$3")" ]
    local rc=$?
    cat "$tmp/$3.err" 2>/dev/null | report $rc "$1"
}

small='"layers": 4, "hidden": 32, "heads": 2, "mlp": 64, "seq": 16, "vocab": 70'
for family in bert mlm gpt; do
    case $family in
    bert) model='"preset": "bert-base", "task": "classify", "classes": 3' schedule=gpipe ;;
    mlm) model='"preset": "bert-base", "task": "mlm"' schedule=zb-h1 ;;
    gpt) model='"preset": "gpt2"' schedule=1f1b ;;
    esac
    cat >"$tmp/$family.json" <<JOB
{ "name": "$family", "model": {$model, $small},
  "data": {"kind": "synthetic", "train_samples": 60, "test_samples": 16},
  "train": {"epochs": 2, "batch": {"global": 16}, "clip_norm": 1.0, "dropout": 0.1,
            "optimizer": {"kind": "adamw", "lr": 0.003}, "seed": 1},
  "pipeline": {"num_stages": "auto", "num_replicas": 1, "num_microbatches": 4, "schedule": "1f1b"} }
JOB
    train $family k1 -n 1
    train $family k4 -n 4 --set "pipeline.schedule=$schedule"
    same "$family: K=1 and K=4, $schedule" $family-k1 $family-k4
    train $family part -n 2 --steps 6
    train $family part -n 3 --resume "$tmp/$family-part"
    same "$family: stopped at K=2 in the second epoch, resumed at K=3" $family-k1 $family-part
done
finish
