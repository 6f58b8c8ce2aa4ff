#!/bin/bash
# tests/e2e/e2e_sim.sh - `elapse sim` from outside: the closed forms of one step, traces, tables, whole
# runs, and every kind of bad input.
. "$(dirname "$0")/lib.sh"
begin
uniform=uniform:layers=4,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,act=0B,params=1000
# one step without communication; a program, so that check and expect can run it
cat >"$tmp/step" <<SCRIPT
#!/bin/bash
model=$uniform
exec "$elapse" sim --step --model "\$model" --cluster 1x4 --stages 4 --link 1000000TBps \\
    --latency 0us "\$@"
SCRIPT
chmod +x "$tmp/step"
PATH=$tmp:$PATH

# --- one step ---------------------------------------------------------------------------------------
for kind in gpipe 1f1b; do
    expect "$kind takes (M+K-1)(f+b)" 0 '"step_ns":33000000,"period_ns":33000000,"bubble_fraction":0.272727' \
        step --microbatches 8 --schedule $kind --json
done
expect "interleaved halves the bubble" 0 '"step_ns":28500000' \
    "$elapse" sim --step --model uniform:layers=8,fwd=500us,bwd_input=500us,bwd_weight=500us,act=0B,params=1 \
    --stages 4 --microbatches 8 --schedule interleaved --chunks 2 --link 1000000TBps --latency 0us --json
expect "zb-h1 leaves a third of it" 0 '"step_ns":27000000' \
    step --microbatches 8 --schedule zb-h1 --json
expect "ring all-reduce by its formula" 0 '"allreduce_ns":1503000,' \
    "$elapse" sim --step --model uniform:layers=1,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,act=1B,params=250000 \
    --cluster 1x4 --replicas 4 --microbatches 1 --link 1GBps --latency 500ns --json
# The planner's own times have no shared links: by those another plan is best, which sharing makes slower.
echo '{"model": "vit-b16", "cluster": "h100-1x4", "data": {"kind": "synthetic", "train_samples": 64},
      "train": {"batch": {"global": 8}, "optimizer": {"kind": "sgd"}}, "cost": {"source": "roofline"},
      "pipeline": {"tensor": 1, "shard": "none"}}' >"$tmp/shared.json"
plans_alike() { # a step, a run and a point of a sweep begin with the plan of `plan`
    local job="$tmp/shared.json --set cluster.link=100GBps" ns
    ns=$("$elapse" plan $job --json | grep -o '"step_ns":[0-9]*' | head -1)
    "$elapse" sim --step $job --json | grep "$ns," && "$elapse" sim $job --json | grep "$ns," &&
        "$elapse" sim --step $job --sweep train.dtype=fp32 --json | grep "$ns,"
}
verify "sim simulates the plan that plan answers" plans_alike
"$elapse" sim --step --model ${uniform/act=0B/act=1MB} --cluster 2x2 --stages 2 --replicas 2 \
    --microbatches 4 --schedule 1f1b --json >"$tmp/step.json"
for key in step_ns bubble_fraction devices device busy_ns idle_ns first_ns last_ns peak_bytes \
    peak_live traffic from to bytes allreduce_ns allreduce_exposed_ns events wall_ns schema version; do
    check "json has $key" grep -q "\"$key\":" "$tmp/step.json"
done
echo '{"model": "gpt2", "cluster": "a100-2x4", "train": {"batch": {"per_pipeline": 8}},
      "pipeline": {"num_stages": 2, "num_replicas": 4, "num_microbatches": 4, "schedule": "1f1b",
                   "recompute": "never", "bucket_bytes": 0}}' >"$tmp/layout.json"
one_layout() { # options and a job that say the same get one plan, its places on the nodes included
    "$elapse" sim --step --model gpt2 --cluster a100-2x4 --stages 2 --replicas 4 --microbatches 4 --batch 8 \
        --json --no-wall >"$tmp/one" && "$elapse" sim "$tmp/layout.json" --step --json --no-wall >"$tmp/two" &&
        cmp "$tmp/one" "$tmp/two"
}
verify "a step without a job is the step of a job" one_layout
expect "an optimizer by name, with its state" 0 '"optimizer":"adamw".*"optimizer_bytes_per_param":8' \
    step --microbatches 4 --optimizer adamw --json
short_options_are_keys() { # of a step without a job and of one with
    local base=("$elapse" sim --step --model gpt2 --cluster h100-1x2 --replicas 2 --no-wall)
    cmp <("${base[@]}" --seq 512 --dtype bf16 --price 2.5 --tokens 1000000) \
        <("${base[@]}" --set model.seq=512 --set train.dtype=bf16 --set cluster.price=2.5 --set train.tokens=1000000 \
            --set data.train_samples=0) &&
        cmp <("$elapse" sim examples/what-if/gpt2-xl.json --no-wall --dtype fp16 --seq 512 --price 2.5 --budget 1s) \
            <("$elapse" sim examples/what-if/gpt2-xl.json --no-wall --set train.dtype=fp16 --set model.seq=512 \
                --set cluster.price=2.5 --budget 1s)
}
verify "short options are their keys" short_options_are_keys
expect "a step without a job has a step's own defaults" 0 '^dtype fp32, optimizer sgd-momentum' \
    "$elapse" sim --step --model gpt2 --cluster h100-1x1
expect "an optimizer of no name" 2 'optimizer must be one of momentum, sgd, adam, adamw' step --optimizer foo
"$elapse" schedule --kind zb-h1 --stages 4 --microbatches 8 --csv >"$tmp/zb.csv"
expect "a schedule from a file" 0 '"step_ns":27000000' step --schedule-csv "$tmp/zb.csv" --json
expect "which is nobody's kind" 0 '"schedule":"custom"' step --schedule-csv "$tmp/zb.csv" --json
expect "a schedule from a file that has another M" 2 "microbatches is 4, schedule '.*zb.csv' has 8" \
    step --schedule-csv "$tmp/zb.csv" --microbatches 4
expect "a schedule from a file beside one by name" 2 'exclude each other' step --schedule-csv "$tmp/zb.csv" --schedule 1f1b
expect "a schedule from a file in a sweep" 2 'schedule-csv and --sweep exclude each other' \
    step --schedule-csv "$tmp/zb.csv" --sweep link=1GBps,2GBps
expect "a cut of our own for a job" 0 '"cut":\[5,10\]' \
    "$elapse" sim examples/vit-cifar10.json --step --cut 5,10 --json
expect "a cut of too few items" 2 '--cut has 14 items' \
    "$elapse" sim examples/vit-cifar10.json --step --cut 5,9
expect "a cut of other stages than the plan's" 2 '--cut has 3 stages' \
    "$elapse" sim examples/vit-cifar10.json --step --cut 5,9,1
expect "a schedule from a file in a whole run" 2 'add --step' "$elapse" sim examples/demo.json --schedule-csv "$tmp/zb.csv"
expect "more micro-batches than samples" 2 'microbatches must be at most the batch of 3' step --microbatches 4 --batch 3
expect "a table in two forms at once" 2 '\-\-csv and \-\-json exclude each other' \
    step --sweep microbatches=4,8 --csv --json
printf '0F0,0B0\n1B0,1F0\n' >"$tmp/wrong.csv"
expect "more chunks than a V has" 2 'chunks must be 2 for schedule zb-v, got 3' \
    "$elapse" sim --step --model ${uniform/layers=4/layers=8} --cluster 1x4 --stages 2 --microbatches 4 --schedule zb-v --chunks 3
expect "a schedule that cannot work" 1 '1B0 before 1F0' \
    "$elapse" sim --step --model $uniform --stages 2 --schedule-csv "$tmp/wrong.csv"

cat >"$tmp/uneven.json" <<'JOB'
{ "model": "vit-tiny:layers=4", "data": {"train_samples": 1000}, "train": {"batch": {"global": 7}}, "cluster": "rtx5000-2x8",
  "pipeline": {"balancer": "released"}, "freeze": {"policy": "closed-form"} }
JOB
expect "why no number of replicas will do, not why two will not" 1 'leaves stage 1 of 8 empty' \
    "$elapse" sim "$tmp/uneven.json"

# --- files ------------------------------------------------------------------------------------------
snapshot() {
    step --microbatches 4 --json --memory-snapshot "$tmp/step.pickle" >"$tmp/step.json" &&
        python3 tests/e2e/snapshot.py "$tmp/step.pickle" "$tmp/step.json"
}
verify "memory snapshot: allocations add up to each rank's peak" snapshot
traces() { # of a chain, and of a model with replicas, tied tables, a norm and a cache of its frozen layers
    local with
    for with in "$uniform --cluster 1x4 --stages 4 --schedule zb-h1" "gpt2 --cluster a100-2x4 --stages 2 --replicas 2 --schedule 1f1b" \
        "gpt2 --cluster a100-2x4 --stages 2 --replicas 2 --schedule interleaved --frozen 3 --set train.clip_norm=1"; do
        rm -rf "$tmp/traces"
        "$elapse" sim --step --model $with --microbatches 4 --no-wall --chakra "$tmp/traces" --ops "$tmp/chakra.csv" >/dev/null &&
            python3 tests/e2e/chakra.py "$tmp/traces" "$tmp/chakra.csv" || return 1
    done
}
verify "chakra: nodes have the step's times, and messages their ends" traces
expect "chakra: a folder that cannot be made" 3 "cannot make '$tmp/no/such'" step --microbatches 4 --chakra "$tmp/no/such"
check "trace and ops" step --microbatches 4 --trace "$tmp/trace.json" --ops "$tmp/ops.csv"
check "the trace is a Chrome trace" grep -q '"traceEvents"' "$tmp/trace.json"
check "32 compute ops, 4 updates, 24 messages" test "$(wc -l <"$tmp/ops.csv")" -eq 61
expect "a folder that is not there" 3 "no/such" step --microbatches 4 --ops "$tmp/no/such/ops.csv"

# --- tables -----------------------------------------------------------------------------------------
step --sweep microbatches=1,2,4,8 --sweep schedule=gpipe,1f1b --threads 1 >"$tmp/one"
step --sweep microbatches=1,2,4,8 --sweep schedule=gpipe,1f1b --threads 4 >"$tmp/four"
check "eight lines" test "$(wc -l <"$tmp/one")" -eq 8
check "threads do not change the table" cmp "$tmp/one" "$tmp/four"
either_way() { # a point of a thread may have the job and the plan of the one before
    step --jitter 0.1 --sweep seed=1,2 --sweep frozen=0,2 --threads 1 --csv | sort >"$tmp/seeds"
    step --jitter 0.1 --sweep frozen=0,2 --sweep seed=1,2 --threads 1 --csv |
        sed 's/^\([a-z0-9]*\),\([a-z0-9]*\),/\2,\1,/' | sort | cmp - "$tmp/seeds" && [ "$(cut -d, -f3 "$tmp/seeds" | sort -u | wc -l)" -eq 5 ]
}
verify "the order of a table's axes does not matter" either_way
check "a line has its point" grep -q '"microbatches":8,"schedule":"1f1b","step_ns":33000000' "$tmp/one"
expect "a point may have no answer" 0 '"stages":5,"error":"stages must be 1..4' \
    "$elapse" sim --step --model $uniform --cluster 1x8 --sweep stages=4,5
expect "nor a batch that its replicas do not divide" 0 '"pipeline.num_replicas":2,"step_ns":' \
    "$elapse" sim examples/demo.json --step --set cluster=rtx5000-1x8 --sweep pipeline.num_replicas=3,2
check "which has its row" grep -q '"pipeline.num_replicas":3,"error":".*64 must be a multiple' "$tmp/expect.out"
for sweep in num_stages=98,99:1 num_replicas=3,7:2; do
    expect "a table of refusals is one: ${sweep%:*}" ${sweep#*:} 'no point has an answer; the first: ' \
        "$elapse" sim examples/demo.json --step --sweep pipeline.${sweep%:*}
done
"$elapse" sim --step --model $uniform --cluster 1x8 --sweep stages=4,5 --csv >"$tmp/table"
expect "short words of the field are options" 0 '1f1b, PP 4 x DP 2 x TP 1, 4 micro-batches' "$elapse" sim --step --model $uniform --cluster 1x8 --pp 4 --dp 2 --microbatches 4
expect "and axes of a sweep" 0 '"pp":4,.*"replicas":1' "$elapse" sim --step --model $uniform --cluster 1x8 --sweep pp=2,4 --microbatches 4
check "every row has the columns of the head" test "$(awk -F, 'NR <= 3 { print NF }' <(sed "s/\"[^\"]*\"/x/" "$tmp/table") | sort -u)" = 28
check "a row without an answer says why in the last" grep -q '^5,*"\{0,1\}stages must be 1..4' "$tmp/table"
step --sweep microbatches=1,8 --sweep schedule=gpipe,1f1b --table >"$tmp/people"
check "a table for people has the chosen plan" grep -Eq '^ *microbatches +schedule +K +R +T +M schedule +step +bubble' "$tmp/people"
check "and units" grep -Eq '^ +8 +1f1b +4 +1 +1 +8 1f1b +33.0 ms +27.3 %' "$tmp/people"
check "and names the fastest" grep -Eq '^fastest: microbatches=8 schedule=' "$tmp/people"
check "a JSON line has it too" grep -Eq '"pipeline_length":4,"replicas":1,"tensor":1,"extrapolated"' "$tmp/one"
expect "a table and CSV" 2 'table and --csv exclude' step --sweep microbatches=4,8 --csv --table
echo '{"nodes": 2, "devices_per_node": 4, "kind": "a100", "link": "100GBps", "uplink": "10GBps"}' >"$tmp/cluster.json"
sed 's/"this-machine"/"cluster.json"/' examples/demo.json >"$tmp/filed.json"
expect "a cluster given as a file can be swept" 0 '"cluster.uplink":"1GBps","step_ns"' \
    "$elapse" sim "$tmp/filed.json" --step --set pipeline.num_stages=8 --sweep cluster.uplink=1GBps,20GBps
check "and its keys count" test "$(grep -o '"step_ns":[0-9]*' "$tmp/expect.out" | sort -u | wc -l)" -eq 2
expect "a missing cluster file" 3 'absent/gone.json' "$elapse" sim examples/demo.json --step --set cluster=absent/gone.json \
    --set cluster.uplink=1GBps
expect "plans in a table" 0 '^ *4 +4 +[0-9]+ +1 +[0-9]+ ' "$elapse" plan examples/paper/vit.json --sweep pipeline.num_stages=2,4 --table
expect "a table of plans writes no plan" 2 'sweep excludes' "$elapse" plan examples/demo.json --sweep train.seed=1,2 -o "$tmp/x.json"
if [ -w /dev/full ]; then
    expect "a table of 10^6 points that nobody reads ends" 3 'cannot write to standard output' bash -c \
        '"$@" >/dev/full' - "$elapse" sim --step --model $uniform --cluster 1x8 --stages 4 --microbatches 4 \
        --sweep seed="$(seq -s, 1000)" --sweep batch="$(seq -s, 4 1003)"
else
    skip "a table of 10^6 points that nobody reads ends" "no /dev/full"
fi
expect "a setting swept twice" 2 'stages given twice' step --sweep stages=1,2 --sweep stages=4
expect "no baseline is no number" 0 '"baseline_ns":null,"speedup":null' \
    "$elapse" sim examples/demo.json --sweep train.epochs=1
many=()
for i in {1..65}; do many+=(--set "train.seed=$i"); done
expect "more settings than there is room for" 2 'more than 64 times' \
    "$elapse" sim examples/paper/vit.json --step "${many[@]}"
# A pipe can be read once.
printf '{"model": "vit-tiny", "cluster": "a100-1x8", "freeze": {"alpha": 0.5}, "data": {"train_samples": 640},
         "baseline": {"freeze.policy": "none"}}' >"$tmp/once.json"
piped=(bash -c 'cat "$0" | "$@"' "$tmp/once.json" "$elapse")
expect "a run and its baselines read the job once" 0 '"tuned_m_speedup":[0-9]' "${piped[@]}" sim /dev/stdin --json
expect "so does a table of runs" 0 '^2,' "${piped[@]}" sim /dev/stdin --sweep train.epochs=1,2 --csv
expect "and one of plans" 0 '^2,[0-9]' "${piped[@]}" plan /dev/stdin --sweep pipeline.num_stages=1,2 --csv
expect "no such setting" 2 "no setting 'linc'" step --sweep linc=1GBps
expect "no such key" 2 "pipeline.num_stagez" \
    "$elapse" sim examples/paper/vit.json --sweep pipeline.num_stagez=1,2
expect "an empty value" 2 'empty value' step --sweep link=1GBps,,2GBps
expect "no values" 2 'takes path=v1' step --sweep link

# --- explain ----------------------------------------------------------------------------------------
expect "the path of a fill is compute" 0 '"critical_path":\{"transfer_ns":0,"allreduce_ns":0,"host_ns":0,' \
    step --microbatches 4 --explain --json
expect "Monte Carlo gives an interval" 0 'median .* 5..95 %' \
    step --microbatches 4 --jitter 0.05 --monte-carlo 50
expect "Monte Carlo needs jitter" 2 'needs --jitter' step --microbatches 4 --monte-carlo 50
check "and nothing was answered before" test ! -s "$tmp/expect.out"

expect "costs without spread are named" 2 'constants of the model. have no spread' \
    step --microbatches 4 --monte-carlo 50

# --- stragglers and slow links ----------------------------------------------------------------------
expect "a straggler of a table" 0 '"step_ns":57000000' step --microbatches 8 --stragglers 3:0.5 --json
expect "its slowness has a cause" 0 '"straggler_ns":[1-9]' step --microbatches 8 --stragglers 2:1/2 --json
expect "all of them slow by chance" 0 '"step_ns":66000000' \
    step --microbatches 8 --stragglers random:1:0.5 --json
step --microbatches 8 --stragglers random:0.5:0.5 --sweep seed=1,2,3,4,5,6,7,8 --csv | cut -d, -f2 | sort -u >"$tmp/slow"
check "a seed decides which" test "$(wc -l <"$tmp/slow")" -gt 2
expect "a slow link" 0 '"step_ns":[1-9][0-9]{9,}' "$elapse" sim --step --model ${uniform/act=0B/act=1GB} \
    --cluster 1x4 --stages 4 --microbatches 8 --slow-links 1:0.1 --json
expect "no such straggler" 2 'stragglers: a device must be 0..3' step --stragglers 4:0.5
expect "a straggler twice" 2 'device 1 given twice' step --stragglers 1:0.5,1:0.7
expect "a straggler that stands still" 2 'above 0 and at most 1' step --stragglers 1:0
for half in 1 random:1; do
    expect "half a table: $half" 2 "DEVICE:FACTOR,... or random:SHARE:FACTOR, got '$half'" step --slow-links $half
done
expect "a straggler slows a run" 0 '"speedup":2.6' \
    "$elapse" sim examples/paper/vit.json --stragglers 3:0.5 --json

# --- whole runs -------------------------------------------------------------------------------------
check "ten epochs of the real system" examples/paper/ten-epochs.sh "$elapse"
export elapse
between() { # LOW HIGH options: speedup of the paper's job
    local low=$1 high=$2
    shift 2
    "$elapse" sim examples/paper/vit.json --json "$@" |
        sed -n 's/.*"speedup":\([0-9.]*\).*/\1/p' |
        awk -v low="$low" -v high="$high" '{ n++; bad += $1 < low || $1 > high } END { exit n != 1 || bad }'
}
export -f between
check "all: 2.83 within 15 %" bash -c 'between "$@"' - 2.41 3.25
check "no cache: 2.27 within 15 %" bash -c 'between "$@"' - 1.93 2.61 --set cache.policy=off
check "no AutoDP: 1.26 within 15 %" bash -c 'between "$@"' - 1.07 1.45 --set elastic.auto_dp=false
check "freeze only is slower than not freezing" bash -c 'between "$@"' - 0.7 1 --set cache.policy=off \
    --set elastic.auto_dp=false --set elastic.auto_pipe=false
check "another alpha" bash -c 'between "$@"' - 3 5 --set freeze.alpha=1/2
cat >"$tmp/groups.json" <<JOB
{"name": "groups", "model": {"family": "gpt", "preset": "gpt2"}, "data": {"kind": "synthetic", "train_samples": 512},
 "train": {"epochs": 1, "batch": {"global": 64}, "dtype": "bf16"}, "cluster": "a100-1x8",
 "pipeline": {"num_stages": 1, "num_replicas": 1, "tensor": 4}}
JOB
"$elapse" sim "$tmp/groups.json" --quiet --json >"$tmp/groups.out"
check "device hours count the devices of a group, and those that are idle" python3 - "$tmp/groups.out" <<'PY'
import json, sys
run = json.load(open(sys.argv[1]))
hours = 4 * run["total_ns"] / 3.6e12  # T = 4 of 8 devices
sys.exit(any(abs(run[key] / hours - 1) > 1e-9 for key in ("device_hours", "device_hours_idle")))
PY
expect "a plan names its idle devices" 0 'idle: 4 of 8 devices .4,5,6,7' "$elapse" plan "$tmp/groups.json" --quiet
for key in total_ns baseline_ns speedup tuned_baseline_ns fair_speedup device_hours epochs epoch \
    frozen_layers pipeline_length replicas microbatches steps step_ns samples_per_s \
    bubble_fraction transition_ns cached cost_source; do
    [ -e "$tmp/run.json" ] || "$elapse" sim examples/paper/vit.json --json >"$tmp/run.json"
    check "run json has $key" grep -q "\"$key\":" "$tmp/run.json"
done

cat >"$tmp/nothing.json" <<JOB
{"model": "uniform:layers=2,fwd=0ns,bwd_input=0ns,bwd_weight=0ns,act=0B,params=0", "cluster": {"preset": "1x2", "latency": "0ns"},
 "data": {"train_samples": 64}, "train": {"epochs": 1}}
JOB
expect "steps that take no time have no rate" 0 '"epoch_ns":0,"samples_per_s":0,' "$elapse" sim "$tmp/nothing.json" --json
expect "an evaluation is reported apart" 0 '"eval_ns":4236800000,"epochs"' "$elapse" sim examples/paper/vit.json --json
expect "an evaluation after each epoch" 0 '"eval_ns":[0-9]{11}' \
    "$elapse" sim examples/paper/vit.json --set train.eval_every_epochs=1 --json

# A cache with room for half of the samples: where a micro-batch that lacks one is computed as a whole, next to
# nothing is read; kernels of our own compute what lacks. Profiles say which multiplied.
for kernel in avx512 blas; do
    "$elapse" profiles export cpu-2core-zen4 | sed -E "s/(\"fp32_kernel\":\s*)\"\"/\\1\"$kernel\"/" >"$tmp/$kernel.json"
    "$elapse" profiles import "$tmp/$kernel.json" --replace --db "$tmp/$kernel.db" >"$tmp/import.out" 2>&1
    "$elapse" sim examples/demo.json --db "$tmp/$kernel.db" --json --set freeze.policy=table --set 'freeze.table=[0,3]' \
        --set elastic.auto_dp=false --set elastic.auto_pipe=false --set cache.policy=on --set cache.limit_bytes=25MB >"$tmp/$kernel.run"
done
total() { grep -oE '"total_ns":[0-9]+' "$tmp/$1.run" | cut -d: -f2; }
verify "half of a cache saves where what lacks is computed alone" test "$(total avx512)" -lt "$(total blas)"

# --- bad input --------------------------------------------------------------------------------------
expect "no job" 2 'needs a job' "$elapse" sim
same_answer() { # of two lists of words
    "$elapse" sim examples/paper/vit.json --step --json --no-wall $1 >"$tmp/one" &&
        "$elapse" sim examples/paper/vit.json --step --json --no-wall $2 >"$tmp/two" && cmp "$tmp/one" "$tmp/two"
}
verify "an option of a step is short for the job's key" same_answer "--stages 4 --clip --half-duplex" \
    "--set pipeline.num_stages=4 --set train.clip_norm=1 --set cluster.half_duplex=true"
for option in "--frozen 4" "--frozen-placement first" --cache-write "--schedule-csv $tmp/wrong.csv"; do
    expect "${option%% *} of a whole run" 2 'needs a single step: add --step' "$elapse" sim examples/paper/vit.json $option
done
for where in first spread; do
    "$elapse" sim examples/paper/vit.json --step --frozen 4 --no-wall --frozen-placement $where >"$tmp/$where.option"
    expect "$where, a job's frozen forward, as the option says" 0 '^same' bash -c \
        '"$1" sim examples/paper/vit.json --step --frozen 4 --no-wall --set pipeline.frozen="$2" | cmp - "$3" && echo same' \
        - "$elapse" $where "$tmp/$where.option"
done
check "a run record" "$elapse" sim examples/paper/vit.json --record "$tmp/runs.db"
expect "and it is listed" 0 "paper's cluster" "$elapse" runs list --db "$tmp/runs.db"
expect "a run within what was measured" 0 '"extrapolated":false' "$elapse" sim examples/demo.json --json
# The profile knows micro-batches of 4 to 64. One part of the answer at a time is outside of that: the run,
# its baseline, the baseline with the best M of K..6K.
while read -r want name sets; do
    expect "extrapolated, $name: $want" 0 "\"extrapolated\":$want," "$elapse" sim examples/demo.json --json $sets
done <<'SETS'
false the_run_of_64 --set train.batch.global=128 --set pipeline.num_microbatches=2
true the_run_of_128 --set train.batch.global=128 --set pipeline.num_microbatches=1
false the_baseline_of_64 --set baseline={"train.batch.global":256,"pipeline.num_microbatches":4}
true the_baseline_of_128 --set baseline={"train.batch.global":128,"pipeline.num_microbatches":1}
true the_best_M_of_171_and_more --set baseline={"train.batch.global":2048,"pipeline.num_microbatches":32}
SETS
cat >"$tmp/small.json" <<JOB
{"model": "vit-b16:classes=10", "data": {"kind": "synthetic", "train_samples": 64}, "cluster": "rtx5000-1x8",
 "train": {"batch": {"per_pipeline": 4}},
 "baseline": {"pipeline": {"num_stages": 8, "num_replicas": 1, "num_microbatches": 4}}}
JOB
expect "a batch too small for any M of K to 6K" 0 'times faster$' "$elapse" sim "$tmp/small.json"
expect "a trace of a whole run" 2 'add --step' \
    "$elapse" sim examples/paper/vit.json --trace "$tmp/run.json.trace"
expect "no model" 2 'needs --model' "$elapse" sim --step
expect "no such job" 3 'nothere.json' "$elapse" sim "$tmp/nothere.json"
expect "zero bandwidth" 2 'link must be a bandwidth' \
    "$elapse" sim --step --model $uniform --stages 2 --link 0Bps
expect "negative latency" 2 'latency must be a time' \
    "$elapse" sim --step --model $uniform --stages 2 --latency -5us
expect "jitter above 1" 2 'jitter must be 0..1' step --microbatches 2 --jitter 3
expect "a billion stages" 2 'must have 1..1048576 devices' \
    "$elapse" sim --step --model $uniform --stages 1000000000
expect "a billion micro-batches" 1 'too large to simulate' step --microbatches 1000000000
expect "more work than anyone waits for" 1 'step too large to simulate' timeout 5 "$elapse" sim --step \
    --model ${uniform/layers=4/layers=1000} --stages 1000 --microbatches 1000000
expect "more stages than items" 1 'stages must be 1..4' \
    "$elapse" sim --step --model $uniform --cluster 1x8 --stages 8
expect "too small a cluster" 1 'do not fit a cluster' step --replicas 2
expect "all of them frozen" 1 'leave nothing' step --frozen 4
expect "too many frozen" 1 'frozen must be 0..4' step --frozen 5
expect "out of memory says where, when and of what" 1 \
    'device 0 \(rank 0 of replica 0\) out of memory at .*F of micro-batch .*stash' \
    "$elapse" sim --step --model ${uniform/act=0B/act=1MB} --cluster 1x4 --stages 4 \
    --microbatches 64 --schedule gpipe --mem 32MB
expect "more samples than time" 2 'too long to simulate' \
    "$elapse" sim examples/paper/vit.json --set data.train_samples=9000000000000000000
expect "an unknown schedule" 2 '2f2b' step --schedule 2f2b
expect "a cut of the wrong length" 2 '--cut has 3 stages, the plan of the job 4' step --cut 1,1,2
expect "a cut that does not cover" 2 '--cut has 5 items' step --cut 1,1,1,2
expect "behind a frozen prefix nobody wants the gradient of the first item's input" 0 'cut 2,1 ' \
    "$elapse" sim --step --model uniform:layers=4,fwd=1ms,bwd_input=10ms,bwd_weight=1ms,bwd_rest=0us \
    --cluster 1x2 --stages 2 --microbatches 4 --frozen 1 --frozen-placement cached

# K stays as freezing goes on, but for a schedule of two stages a rank whose items are too few by then.
echo '{"name":"v","model":"vit-tiny:layers=4","data":{"kind":"synthetic"},"train":{"epochs":2,"batch":{"global":16}},"cluster":"rtx5000-2x8",
    "pipeline":{"schedule":"zb-v","num_stages":2,"num_replicas":1},"freeze":{"policy":"table","table":[0,4]},"elastic":{"auto_pipe":false}}' >"$tmp/v.json"
expect "a rank's two stages of a V count when few items are left" 0 '^ *1 +4 +1 ' "$elapse" sim "$tmp/v.json"
expect "one item that is left runs 1f1b" 0 '^ *1 +4 +1 .* 1f1b +first ' \
    "$elapse" sim "$tmp/v.json" --set model=bert-base:layers=4,task=mlm,seq=32 --set pipeline.frozen=first
expect "a length that has more stages than items is not said to want memory" 1 'replica count, micro-batch count and schedule fit together' \
    "$elapse" sim "$tmp/v.json" --set pipeline.frozen=first --set 'elastic.stages=[2,2]'
# GPipe of 4 stages with f = i = w = 1 ms, M = 8: (M + K - 1)(f + i + w) is 33 ms, without half of the weight gradients 27.5 ms,
# and without all of them 22 ms; with at most half of a stage's, where they count: (K - 1)(f + i) + M (f + i + w / 2), 26 ms.
share=(sim --step --model uniform:layers=4,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,act=1,params=1 --cluster 1x4 --latency 0us
    --stages 4 --microbatches 8 --schedule gpipe)
expect "share: none" 0 '^step 33.0 ms' "$elapse" "${share[@]}"
expect "share: half of each" 0 '^step 27.5 ms' "$elapse" "${share[@]}" --share 0.5
expect "share: all" 0 '^without 100 % of the weight gradients' "$elapse" "${share[@]}" --share 1
expect "share: half where it counts" 0 '^step 26.0 ms' "$elapse" "${share[@]}" --max-share 0.5
expect "share: half where it counts, with a cut" 0 '^step 26.0 ms' "$elapse" "${share[@]}" --max-share 0.5 --cut 1,1,1,1
nothing_sought() { ! "$elapse" "${share[@]}" --max-share 0.5 --cut 1,1,1,1 --json | grep -q '"searched"'; }
verify "share: with a cut they are solved once" nothing_sought
expect "share: with a cut, of no weight gradients" 2 'have no weight gradients to leave out' \
    "$elapse" sim --step --model uniform:layers=2,bwd_weight=0 --stages 2 --microbatches 4 --cut 1,1 --max-share 0.5
expect "share: too large" 2 'share must be 0..1, got 1.5' "$elapse" "${share[@]}" --share 1.5
shares_add_up() {
    "$elapse" "${share[@]}" --max-share 0.5 --json | python3 -c "import json, sys; p = json.load(sys.stdin); s = p['shares']
assert len(s) == 32 and abs(sum(x['share'] for x in s) / 32 - p['share_mean']) < 1e-9 and abs(p['share_mean'] - .5) < 1e-4, p['share_mean']"
}
verify "share: JSON has those of all backwards" shares_add_up
finish
