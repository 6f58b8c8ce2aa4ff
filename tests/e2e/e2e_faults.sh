#!/bin/bash
# tests/e2e/e2e_faults.sh - `elapse sim JOB --faults` from outside: without losses it is `sim`, a trace by
# hand, seeds that repeat, and bad input.
. "$(dirname "$0")/lib.sh"
begin
job=$tmp/job.json
cat >"$job" <<'JOB'
{"name": "faults", "model": "uniform:layers=16,fwd=20ms,bwd_input=20ms,bwd_weight=20ms,act=1MiB,params=1000000",
 "data": {"kind": "synthetic", "train_samples": 1000000, "test_samples": 10},
 "train": {"epochs": 2, "batch": {"global": 512}}, "cluster": "4x8",
 "pipeline": {"num_stages": 8, "num_microbatches": 32, "schedule": "1f1b"}}
JOB
total=$("$elapse" sim "$job" --json | grep -o '"total_ns":[0-9]*' | cut -d: -f2)
faults() { # TEXT [OPTION...]
    local text=$1
    shift
    "$elapse" sim "$job" --faults "$text" --no-wall "$@"
}
export -f faults
export elapse job
expect "without losses a run is sim's, to the ns" 0 "\"mean_ns\":$total,\"p10_ns\":$total,\"p90_ns\":$total," \
    bash -c 'faults restart=60s --json'
# Lost at 1000 s and back at 1500 s without a checkpoint: 1560 s, then the whole run.
printf 'time,node,event\n1000,2,lost\n1500,2,back\n' >"$tmp/trace.csv"
expect "a trace by hand, to the ns" 0 "\"mean_ns\":$((total + 1560000000000))," \
    bash -c "faults trace=$tmp/trace.csv,restart=60s,detect=7s --json"
# Lost at step 100 with a checkpoint each 64: 36 steps are done again, and steps count from 64.
printf '100,2,lost\n' >"$tmp/steps.csv"
faults trace_steps=$tmp/steps.csv,interval_steps=64,restart=60s,detect=7s,policy=shrink,min_nodes=3 --seeds 1 --timeline "$tmp/line.csv" >"$tmp/said"
check "a trace of steps: its timeline has what was lost" test \
    "$(sed -n '2,6s/^[0-9]*,[0-9]*,//p' "$tmp/line.csv" | paste -sd' ')" = "useful,4 lost,4 detect,3 restart,3 useful,3"
expect "a timeline needs losses" 2 '.-timeline needs --faults' "$elapse" sim "$job" --timeline "$tmp/x"
rates=device_per_hour=0.05,restart=60s,detect=10s,stall=5s,repair=600s,policy=shrink
faults $rates --json --threads 1 >"$tmp/one"
faults $rates --json --threads 3 >"$tmp/two"
check "seeds repeat on any number of threads" cmp "$tmp/one" "$tmp/two"
# 16 layers of 1,000,000 params with a momentum: 8 bytes each.
check "a checkpoint holds weights and optimizer states" cmp <(faults $rates,write=1s --seeds 20) <(faults $rates,storage=128MBps --seeds 20)
expect "the text names the best interval beside Daly's" 0 'checkpoint every .*Young 150.0 s, Daly 146.7 s' \
    bash -c "faults $rates"
printf '{"device_per_hour": 0.05, "restart": "60s", "detect": "10s", "stall": "5s", "repair": "600s", "policy": "shrink"}' >"$tmp/f.json"
check "a file says what pairs say" cmp "$tmp/one" <(faults "$tmp/f.json" --json)
printf '{"preset": "4x8", "faults": %s}' "$(cat "$tmp/f.json")" >"$tmp/lossy.json"
sed 's/"cluster": "4x8"/"cluster": "lossy.json"/' "$job" >"$tmp/in_job.json"
check "a job says what --faults says" cmp "$tmp/one" <("$elapse" sim "$tmp/in_job.json" --no-wall --json)
expect "--faults overrides single keys of the job" 0 'policy restart, 1.6 losses per hour, 3 seeds' \
    "$elapse" sim "$tmp/in_job.json" --faults policy=restart --seeds 3
expect "a key of --faults twice" 2 "'node_per_hour' is given twice" "$elapse" sim "$job" --faults node_per_hour=1,node_per_hour=2
expect "--faults none loses no node" 0 "\"total_ns\":$total," "$elapse" sim "$tmp/in_job.json" --faults none --json
expect "a wrong key in the job" 2 "unknown key 'cluster.faults.nope'" "$elapse" sim "$job" --set cluster.faults.nope=1
expect "losses of a job that are no object" 2 'cluster.faults must be an object' "$elapse" sim "$job" --set cluster.faults=3
expect "a negative rate" 2 'node_per_hour must be 0..1000000, got -1' bash -c 'faults node_per_hour=-1'
expect "rates at which no run ends" 1 '.-faults: a run meets 100000 losses in its first .* and is not done' \
    bash -c 'faults device_per_hour=1000,detect=60s,restart=300s,stall=1s'
expect "an unknown key" 2 "unknown key 'nope'" bash -c 'faults nope=1'
expect "no pair" 2 "expected key=value, got 'x'" bash -c 'faults x'
printf '5,1,back\n' >"$tmp/bad.csv"
expect "a node returns that is not lost" 2 'node 1 returns, but is not lost' bash -c "faults trace=$tmp/bad.csv"
printf '5,1,gone\n' >"$tmp/bad.csv"
expect "a line of a trace that is none" 2 'line 1 must be seconds,node,lost' bash -c "faults trace=$tmp/bad.csv"
printf '5,1,lost\n' >"$tmp/few.csv"
expect "fewer nodes than any plan needs" 1 'fewer nodes are left than any plan needs' \
    bash -c "faults trace=$tmp/few.csv"
expect "no checkpoint fits the interval" 1 'no checkpoint is complete within the interval' \
    bash -c 'faults async=true,interval=1s,write=2s'
expect "a run that never ends" 1 'the run never ends: it reaches faults.limit' \
    bash -c 'faults node_per_hour=1e5,limit=1h --seeds 3'
faults $rates --seed 1 --seeds 50 --json >"$tmp/one"
faults $rates --seed 2 --seeds 50 --json >"$tmp/two"
check "two seeds share no runs" test "$(grep -o '"p10_ns":[0-9]*' "$tmp/one")" != "$(grep -o '"p10_ns":[0-9]*' "$tmp/two")"
sed 's/"cluster": "4x8"/"cluster": {"devices": [{"kind": "a100", "node": 0}, {"kind": "a100", "node": 1, "speed": 0.5}]}/; s/"num_stages": 8/"num_stages": 2/' "$job" >"$tmp/mixed.json"
expect "unequal nodes cannot shrink" 2 'shrink needs equal nodes' "$elapse" sim "$tmp/mixed.json" --faults $rates
expect "slow links beside losses" 2 'takes no --stragglers' "$elapse" sim "$job" --faults $rates --stragglers 0:2
expect "seeds without losses" 2 '.-seeds needs --faults' "$elapse" sim "$job" --seeds 3
finish
