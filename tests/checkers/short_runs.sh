#!/bin/bash
# tests/checkers/short_runs.sh - short runs of the programs, for sanitized builds: profile, plan, sim, train on two
# ranks with freezing, cache and a change of plan, resume, eval, export, compare.
. "$(dirname "$0")/../e2e/lib.sh"
begin
bin=$PWD/${ELAPSE_OUT:-build}/bin elapse=$PWD/${ELAPSE_OUT:-build}/bin/elapse
cat >"$tmp/job.json" <<'JOB'
{"name": "small", "data": {"kind": "synthetic", "train_samples": 32, "test_samples": 8}, "cluster": "this-machine",
 "model": "vit-tiny:layers=3,hidden=16,heads=2,mlp=16,image=8,patch=4,classes=10",
 "train": {"epochs": 3, "batch": {"global": 8}, "optimizer": {"kind": "adamw"}, "eval_every_epochs": 1,
           "clip_norm": 1.0, "checkpoint_every_steps": 2},
 "freeze": {"policy": "table", "table": [0, 1, 2]}, "cache": {"policy": "on"}}
JOB
run=$tmp/run
check "profile" "$elapse" profile --quick -n 2 --microbatches 1,2 --model vit-tiny:layers=1,hidden=16,heads=2,mlp=16,image=8,patch=4 --name here
check "plan" "$elapse" plan "$tmp/job.json" -o "$tmp/plan.json"
check "sim" "$elapse" sim "$tmp/job.json"
check "sim of steps with jitter" "$elapse" sim "$tmp/job.json" --step --monte-carlo 20 --jitter 0.1
check "sim, and a trace" "$elapse" sim "$tmp/job.json" --step --trace "$tmp/trace.json"
check "a sweep" "$elapse" sim "$tmp/job.json" --step --sweep pipeline.num_stages=1,2
check "train on two ranks, freezing" "$elapse" train "$tmp/job.json" -n 2 --out "$run" --threads 2
check "two stages" "$elapse" train "$tmp/job.json" -n 2 --out "$tmp/two" --set pipeline.num_stages=2 \
    --set pipeline.num_microbatches=4 --set train.dtype=bf16
check "resume" "$elapse" train --resume "$run" -n 2 --set train.epochs=4 --override
check "eval" "$elapse" eval "$run" "$tmp/job.json"
check "export" "$elapse" export "$run" -o "$tmp/weights.safetensors"
check "verify" "$elapse" checkpoint verify "$run"
check "compare" "$elapse" compare "$run"
check "report" "$elapse" report "$run" -o "$tmp/report.html"
finish
