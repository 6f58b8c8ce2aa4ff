# tests/e2e/runs.sh - sourced behind lib.sh by the shell tests that train: runs below $tmp, and claims
# about them for verify. $device, where set, is the device of every run.
#
#   freezing_vit                   $tmp/vit.json: 4 layers, of which 0, 1, 2 and 4 are frozen in 4 epochs of 7 steps
#   like FROM TO MODEL DATA        $tmp/TO.json: the job $tmp/FROM.json of another model and data
#   train JOB OUT ARGS...          a quiet run of $tmp/JOB.json into $tmp/OUT, its output beside
#                                  that; at most TEST_TIMEOUT seconds (300)
#   value RUN KEY                  the first value of that name in its summary
#   losses RUN                     a line a step: step, epoch, loss
#   same_run A B                   the same losses and weights, to the bit
#   near_run A B TOLERANCE         the same losses, each within a relative tolerance of A's
#   shapes RUN                     "EPOCH=F:K:R " of every plan, in order
#   has_shapes RUN SHAPES
#   has RUN KEY TEST NUMBER        a value of its summary, as by test(1): -eq, -gt, ...
#   says RUN PATTERN               a line of its stderr
#   calculate EXPRESSION           awk finds it true
device=

freezing_vit() {
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
}

like() {
    sed -e "s/\"name\": \"$1\"/\"name\": \"$2\"/" -e '/"model":/,/"classes"/d' \
        -e "s|^  \"data\".*|  \"model\": {$3},\n  \"data\": {$4},|" "$tmp/$1.json" >"$tmp/$2.json"
}

train() {
    local job=$1 out=$2
    shift 2
    timeout "${TEST_TIMEOUT:-300}" "$elapse" train "$tmp/$job.json" --no-measure --out "$tmp/$out" ${device:+--device "$device"} --json "$@" \
        >"$tmp/$out.json" 2>"$tmp/$out.err" </dev/null
}

value() { grep -o "\"$2\":[^,}]*" "$tmp/$1/summary.json" 2>/dev/null | head -1 | tr -d ' \t' | cut -d: -f2-; }
losses() { grep -o '"step":[0-9]*,"epoch":[0-9]*,"loss":[^,]*' "$tmp/$1/metrics.jsonl"; }

same_run() {
    local digest
    digest=$(value "$1" weights_sha256)
    [ -n "$digest" ] && [ "$digest" = "$(value "$2" weights_sha256)" ] && [ "$(losses "$1")" = "$(losses "$2")" ] ||
        { cat "$tmp/$1.err" "$tmp/$2.err"; paste <(losses "$1") <(losses "$2") | head -40; false; }
}

near_run() {
    paste <(losses "$1" | sed 's/.*"loss"://') <(losses "$2" | sed 's/.*"loss"://') >"$tmp/pairs"
    awk -v t="$3" 'NF == 2 {n++; d = $1 - $2; if (d < 0) d = -d; if (d > t * ($1 < 0 ? -$1 : $1)) bad = 1; if (d > w) w = d}
        NF != 2 {bad = 1} END {print n + 0 " steps, worst " w; exit !(n > 1 && !bad)}' "$tmp/pairs" ||
        { cat "$tmp/$1.err" "$tmp/$2.err"; head -20 "$tmp/pairs"; false; }
}

shapes() {
    sed -n 's/.*"epoch":\([0-9]*\),.*"frozen_layers":\([0-9]*\),"pipeline_length":\([0-9]*\),"replicas":\([0-9]*\).*/\1=\2:\3:\4/p' \
        "$tmp/$1/metrics.jsonl" | uniq | tr '\n' ' '
}
has_shapes() { [ "$(shapes "$1")" = "$2" ] || { shapes "$1"; tail -3 "$tmp/$1.err"; false; }; }
has() { [ "$(value "$1" "$2")" "$3" "$4" ] || { echo "$2 $(value "$1" "$2")"; cat "$tmp/$1.err"; false; }; }
says() { grep -Eq -- "$2" "$tmp/$1.err" || { cat "$tmp/$1.err"; false; }; }
calculate() { awk "BEGIN { exit !($1) }" || { echo "$1"; false; }; }
