#!/bin/bash
# tests/e2e/e2e_warnings.sh - how far an answer can be believed: the band of published runs beside computed steps, and what
# is said of a profile, in every answer that uses it.
# seconds: 10
. "$(dirname "$0")/lib.sh"
begin

band_of() { # ARGS...: step_band_ns over step_ns, and its runs
    "$elapse" "$@" --json --quiet | python3 -c "import json, sys
for line in sys.stdin:
    a = json.loads(line)
    print(*(round(ns / a['step_ns'], 4) for ns in a['step_band_ns']), a.get('published_runs', {}).get('runs', ''))"
}
same_band() { # plan, its step in sim, a sweep
    local job="$tmp/band.json" want
    echo '{"model": "llama3-8b", "cluster": "h100-1x8", "train": {"dtype": "bf16", "optimizer": {"kind": "adamw"},
           "framework": "megatron-te", "batch": {"global": 32}}}' >"$job"
    "$elapse" plan "$job" --quiet -o "$tmp/band.plan" >"$tmp/band.txt"
    want=$(band_of plan "$job")
    [ "$want" = "$(band_of sim "$job" --step --plan "$tmp/band.plan")" ] &&
        [ "${want% *} " = "$(band_of plan "$job" --sweep train.batch.global=32)" ] &&
        grep -E '^[0-9.]+ s to [0-9.]+ s: [0-9]+ published runs of its kind \(dense models, megatron-te on h100\) read' "$tmp/band.txt"
}
verify "the band is one in plan, sim and a sweep" same_band
expect "a run has it as a share" 0 '^[0-9]+ published runs of its kind \(dense models, megatron-te on h100\) read' \
    "$elapse" sim "$tmp/band.json" --set data.train_samples=64 --no-wall
faults_too() { # the band of sim --faults is that of the run
    local ask=(sim "$tmp/band.json" --set data.train_samples=64 --json) runs='"published_runs":[{][^}]*[}]'
    [ "$("$elapse" "${ask[@]}" | grep -o "$runs")" = "$("$elapse" "${ask[@]}" --faults node_per_hour=0.01 --seeds 3 | grep -o "$runs")" ] &&
        "$elapse" "${ask[@]:0:4}" --faults node_per_hour=0.01 --seeds 3 | grep -E '^[0-9]+ published runs of its kind .* read'
}
verify "a run that loses nodes has it too" faults_too
band_page() { "$elapse" report "$tmp/band.json" --set data.train_samples=64 -o "$tmp/band.html" && grep -F "<p>$(grep 'published runs' "$tmp/band.txt").</p>" "$tmp/band.html"; }
verify "a report has the line of its plan" band_page
expect "images have no published runs, which is said" 0 '^no published run of its kind' "$elapse" plan --model vit-b16 --cluster h100-1x2
no_band() { ! "$elapse" "$@" | grep -q published.runs; }
verify "constants have no band" no_band sim --step --model uniform:layers=4,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,act=1,params=1 --cluster 1x2 \
    --stages 2 --json
verify "the ideal has none" no_band plan "$tmp/band.json" --cost roofline --json
"$elapse" profiles export cpu-2core-zen4 -o "$tmp/quiet.json"
# A profile that is noisy, was stopped, and is of another host.
python3 - "$tmp" <<'PY'
import json, sys
profile = json.load(open(sys.argv[1] + "/quiet.json"))
for row in profile["layer_cost"]:
    row["p90_ns"] = 2 * row["median_ns"]
profile["profile"].update(name="doubtful", note="noisy: repeats of a layer spread by 100 % on average; "
                          "incomplete: not all phases have micro-batches of 8", measured_at="2026-12-01T00:00:00Z")
json.dump(profile, open(sys.argv[1] + "/doubtful.json", "w"))
PY
"$elapse" profiles import "$tmp/doubtful.json" --db "$tmp/doubtful.db" >/dev/null 2>&1
says='doubtful. is noisy: p10 to p90 spans [0-9]+ % of the median; profile .doubtful. is incomplete: not all phases have micro-batches of 8'
ask=(examples/demo.json --db "$tmp/doubtful.db" --set data.train_samples=64)
expect "plan says what is wrong with a profile" 0 "^note: .*$says" "$elapse" plan "${ask[@]}" --quiet
expect "plan --json too" 0 "\"cost_note\":\".*$says" "$elapse" plan "${ask[@]}" --quiet --json
expect "plan --all-frozen too" 0 "^note: .*$says" "$elapse" plan "${ask[@]}" --quiet --all-frozen
expect "sim too" 0 "^note: .*$says" "$elapse" sim "${ask[@]}"
expect "sim --json too" 0 "\"cost_note\":\".*$says" "$elapse" sim "${ask[@]}" --json
expect "sim --step too" 0 "^note: .*$says" "$elapse" sim "${ask[@]}" --step
expect "a sweep of steps too" 0 "^elapse: note: .*$says" "$elapse" plan "${ask[@]}" --sweep train.seed=1,2 --table
expect "a sweep of runs too" 0 "^elapse: note: .*$says" "$elapse" sim "${ask[@]}" --sweep train.seed=1,2 --csv
verify "its lines of JSON too" eval '[ "$("$elapse" sim "${ask[@]}" --sweep train.seed=1,2 --json 2>/dev/null | grep -cE "\"cost_note\":\".*$says")" -eq 2 ]'
expect "sim --faults too" 0 "^note: .*$says" "$elapse" sim "${ask[@]}" --faults node_per_hour=0.01 --seeds 3
verify "a report too" eval '"$elapse" report examples/demo.json --db "$tmp/doubtful.db" --set data.train_samples=64 -o "$tmp/report.html" &&
    grep -Eq "is noisy: p10 to p90 spans" "$tmp/report.html"'
verify "a calibration has an interval in place of the band" eval '"$elapse" calibrate --step "$tmp/band.json --plan $tmp/band.plan" \
    --measured 9s -o mine --db "$tmp/doubtful.db" >/dev/null && ask=(sim "$tmp/band.json" --step --plan "$tmp/band.plan" \
    --calibration mine --db "$tmp/doubtful.db") && no_band "${ask[@]}" && "$elapse" "${ask[@]}" | grep "with a probability of 80 %"'

# Runs of this host beside the shipped profile of another.
small=(--set data.train_samples=128 --set data.test_samples=32 --set train.epochs=2 --set freeze.policy=none --no-measure)
"$elapse" train examples/demo.json -n 2 --out "$tmp/static" "${small[@]}" >"$tmp/static.log" 2>&1
"$elapse" train examples/demo.json -n 2 --out "$tmp/elastic" "${small[@]}" --set 'elastic.stages=[2,1]' >"$tmp/elastic.log" 2>&1
for run in static elastic; do
    expect "compare of a run that is $run judges nothing by another host's profile" 1 "the profile is of another host" \
        "$elapse" compare "$tmp/$run" --tolerance 99%
    expect "compare of a run that is $run prints the error beside that" 0 "measured with another host" "$elapse" compare "$tmp/$run"
done
verify "the latter is compared by epochs" eval '"$elapse" compare "$tmp/elastic" --json 2>/dev/null | grep "\"elastic\":true"'
finish
