#!/bin/bash
# A plan is a file: planned once, simulated and trained exactly as written, refused where it does not fit.
source "$(dirname "$0")/lib.sh"
begin

cat >"$tmp/job.json" <<'JOB'
{ "name": "file", "model": {"family": "vit", "preset": "vit-tiny", "image": 16, "patch": 8, "layers": 4, "hidden": 32, "heads": 2,
    "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 64, "test_samples": 16},
  "train": {"epochs": 1, "batch": {"per_pipeline": 8}, "max_steps": 3},
  "cluster": {"nodes": 1, "devices_per_node": 4, "kind": "cpu"}, "pipeline": {"num_microbatches": 4} }
JOB
job=$tmp/job.json plan=$tmp/plan.json
shape='"(pipeline_length|replicas|microbatches|microbatch_size|batch|chunks|schedule|recompute|cut|devices|frozen)":'
export elapse tmp job plan shape

# The members of a plan in an answer, a line each.
members() { tr -d ' \n\t' <"$1" | sed 's/"released":.*//; s/.*"pipeline_length"/"pipeline_length"/' | grep -oE "$shape(\[[][0-9,]*\]|[^,}]*)" | sort; }
export -f members

check "plan -o writes a file" "$elapse" plan "$job" -o "$plan" --set pipeline.num_stages=3 --set pipeline.num_replicas=1 \
    --set pipeline.schedule=gpipe
expect "and prints the plan as ever" 0 '^PP 2 x ' "$elapse" plan "$job" -o "$tmp/two.json" --set pipeline.num_stages=2
planned_again() { # the file is what --json prints
    "$elapse" plan "$job" --json -o "$tmp/same.json" >"$tmp/printed.json" &&
        diff <(tr -d ' \n\t' <"$tmp/printed.json" | sed -E 's/"(solve|processor)_ns":[0-9]*//g') \
            <(tr -d ' \n\t' <"$tmp/same.json" | sed -E 's/"(solve|processor)_ns":[0-9]*//g')
}
verify "the file is the answer of --json" planned_again

# A plan that the planner would not choose, on devices that it would not take.
tr -d ' \n\t' <"$plan" | sed 's/"devices":\[\[[0-9,]*\]\]/"devices":[[0,3,2]]/; s/"cut":\[[0-9,]*\]/"cut":[1,2,8]/' >"$tmp/own.json"
simulated() {
    "$elapse" sim "$job" --step --plan "$tmp/own.json" --json >"$tmp/step.json" && tr -d ' \n\t' <"$tmp/step.json" |
        grep -o '"pipeline_length":3.*"schedule":"gpipe".*"cut":\[1,2,8\].*"device":3,"replica":0,"rank":1'
}
verify "sim --step --plan simulates what is written" simulated
whole_run() {
    "$elapse" sim "$job" --plan "$tmp/own.json" --json >"$tmp/run.json" &&
        tr -d ' \n\t' <"$tmp/run.json" | grep -o '"pipeline_length":3,"replicas":1,"microbatches":4.*"schedule":"gpipe"'
}
verify "sim --plan simulates the whole run on it" whole_run
best_is_best() { # of a run without freezing nothing is said of a best static plan
    python3 -c 'import json, sys
run = json.load(open(sys.argv[1]))
assert run["tuned_baseline_ns"] <= run["total_ns"], run' "$tmp/run.json" || return 1
    "$elapse" sim "$job" --plan "$tmp/own.json" >"$tmp/run.txt" && ! grep 'best static plan' "$tmp/run.txt" &&
        "$elapse" sim "$job" --plan "$tmp/own.json" --set freeze.policy=closed-form --set freeze.alpha=0.5 | grep 'best static plan'
}
verify "no best static plan is slower than the given one, or is named without freezing" best_is_best

# A plan with op lists of its own.
searched() {
    "$elapse" plan "$job" -o "$tmp/lists.json" --set pipeline.schedule=search --set cost.source=roofline --set pipeline.num_stages=3 --set pipeline.num_microbatches=3 \
        --set pipeline.num_replicas=1 >"$tmp/lists.txt" && grep -q '^schedule search' "$tmp/lists.txt" || return 1
    "$elapse" sim "$job" --step --plan "$tmp/lists.json" --set cost.source=roofline --json >"$tmp/step.json" || return 1
    python3 - "$tmp/lists.json" "$tmp/step.json" "$tmp/lists.csv" <<'PY'
import json, sys
plan, step = (json.load(open(f)) for f in sys.argv[1:3])
assert plan["schedule"] == step["schedule"] == "search" and plan["step_ns"] == step["step_ns"], (plan["step_ns"], step["step_ns"])
open(sys.argv[3], "w").write(plan["order"])
PY
    "$elapse" schedule --check "$tmp/lists.csv" && "$elapse" sim "$job" --step --schedule-csv "$tmp/lists.csv" --json >/dev/null
}
verify "a plan keeps the op lists that were found, and sim --plan runs them" searched
sed 's/"order":[^"]*"[^"]*"/"order": "0F0,0B0"/' "$tmp/lists.json" >"$tmp/bad.json"
expect "op lists of another plan" 1 'does not fit a plan of 3, 3, 3' "$elapse" sim "$job" --step --plan "$tmp/bad.json"
sed 's/"order":[^"]*"[^"]*",//' "$tmp/lists.json" >"$tmp/bad.json"
expect "no op lists" 2 'plan.order must be the op lists as CSV' "$elapse" sim "$job" --step --plan "$tmp/bad.json"

if [ -x "$(dirname "$elapse")/elapse-exec" ]; then
    trained() {
        "$elapse" train "$job" -n 4 --plan "$tmp/own.json" --out "$tmp/run" || return 1
        members "$tmp/own.json" >"$tmp/want"
        members "$tmp/run/summary.json" >"$tmp/got"
        diff "$tmp/want" "$tmp/got" && [ "$(wc -l <"$tmp/got")" -ge 10 ] &&
            [ "$(wc -l <"$tmp/run/metrics.jsonl")" -eq 3 ]
    }
    verify "train --plan trains what is written, one rank without a place" trained
    check "compare simulates the run's own plan" "$elapse" compare "$tmp/run" --tolerance 100000%
    expect "a plan for more ranks than there are" 1 'plan.pipeline_length' "$elapse" train "$job" -n 2 --plan "$tmp/own.json" --out "$tmp/few"
    expect "a plan of another batch" 1 'plan.batch is 8, the job says 16' "$elapse" train "$job" -n 4 --plan "$tmp/own.json" \
        --set train.batch.per_pipeline=16 --out "$tmp/other"
    sed 's/\[\[0,3,2\]\]/[[1,3,2]]/' "$tmp/own.json" >"$tmp/zero.json"
    expect "rank 0 needs a place" 1 'plan.devices' "$elapse" train "$job" -n 4 --plan "$tmp/zero.json" --out "$tmp/zero"
else
    skip "train --plan" "no MPI"
fi

refused() { # WORD IN THE FILE, WHAT IT BECOMES, STATUS, MESSAGE
    sed "s/$1/$2/g" "$tmp/own.json" >"$tmp/bad.json"
    expect "refused: $2" "$3" "$4" "$elapse" sim "$job" --step --plan "$tmp/bad.json"
}
refused '"microbatch_size":' '"microbatch_sizes":' 2 'plan.microbatch_size must be'
refused '"schedule": *"gpipe"' '"schedule":"gpipes"' 2 'plan.schedule must be'
refused '\[\[0,3,2\]\]' '[[0,4,2]]' 1 'plan.devices.0..1.: the cluster has no such device'
refused '\[\[0,3,2\]\]' '[[0,2,2]]' 1 'plan.devices.0..2.: the device has a place'
refused '\[1,2,8\]' '[1,2,9]' 1 'plan.cut'
refused '"clip": *[a-z]*' '"clip":true' 1 'plan.clip'
head -c 100 "$tmp/own.json" >"$tmp/cut.json"
expect "a truncated file" 2 'cut.json' "$elapse" sim "$job" --step --plan "$tmp/cut.json"
expect "no file" 3 'none.json' "$elapse" sim "$job" --step --plan "$tmp/none.json"
expect "--plan goes with a job" 2 'needs the job' "$elapse" sim --step --model vit-tiny --plan "$tmp/own.json"
expect "--plan and --frozen" 2 'exclude each other' "$elapse" sim "$job" --step --plan "$tmp/own.json" --frozen 1
finish
