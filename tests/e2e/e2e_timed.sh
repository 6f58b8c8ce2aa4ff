#!/bin/bash
# Timed freezing, trained: backwards leave out weight gradients by the shares of a plan. The same bits at any K, under split
# and whole backwards, over a restart in each phase; one clear line for what cannot be.
# group: slow, seconds: 30
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin
as_users_wait

cat >"$tmp/gpt.json" <<'JOB'
{ "name": "gpt", "model": {"preset": "gpt2", "layers": 4, "hidden": 32, "heads": 2, "mlp": 64, "seq": 16, "vocab": 70},
  "data": {"kind": "synthetic", "train_samples": 60, "test_samples": 16},
  "train": {"epochs": 6, "batch": {"global": 16}, "clip_norm": 1.0, "dropout": 0.1,
            "optimizer": {"kind": "adamw", "lr": 0.003}, "seed": 1},
  "freeze": {"policy": "timed", "max_share": 0.5, "warmup": 1},
  "pipeline": {"num_replicas": 1, "num_microbatches": 4, "schedule": "1f1b"} }
JOB
cp "$tmp/gpt.json" "$tmp/lora.json"
sed -i 's/"dropout": 0.1/"dropout": 0, "lora": {"rank": 2}/' "$tmp/lora.json"

# NAME K SHARE ARGS...: a plan of the job with one share for all backwards; SHARE 0: without shares.
plan_of() {
    local name=$1 k=$2 share=$3
    shift 3
    "$elapse" plan "$tmp/${job:-gpt}.json" -o "$tmp/$name.plan" --set "cluster={\"nodes\": 1, \"devices_per_node\": $k, \"kind\": \"cpu\"}" \
        --set pipeline.num_stages=$k --set freeze.policy=none --set freeze.max_share=0 "$@" >"$tmp/$name.txt" 2>&1 &&
        python3 - "$tmp/$name.plan" "$share" <<'PY'
import json, sys
plan, share = json.load(open(sys.argv[1])), float(sys.argv[2])
if share > 0:
    plan["shares"] = [[share] * plan["microbatches"] for _ in plan["cut"]]
json.dump(plan, open(sys.argv[1], "w"))
PY
}
differ() { ! same_run "$1" "$2" >/dev/null && [ "$(losses "$1" | head -4)" = "$(losses "$2" | head -4)" ]; }

plan_of none 1 0
plan_of one 1 0.5
plan_of two 2 0.5
plan_of zb 2 0.5 --set pipeline.schedule=zb-h1
train gpt whole -n 1 --plan "$tmp/none.plan"
train gpt one -n 1 --plan "$tmp/one.plan"
train gpt two -n 2 --plan "$tmp/two.plan"
train gpt zb -n 2 --plan "$tmp/zb.plan" --set pipeline.schedule=zb-h1
verify "shares change a run, after the warm-up" differ whole one
verify "to the same bits at K = 1 and 2" same_run one two
verify "and where weight gradients have ops of their own" same_run one zb
train gpt off -n 2 --plan "$tmp/two.plan" --set freeze.warmup=6
verify "a run that ends in the warm-up has the bits of one without shares" same_run whole off
train gpt biased -n 2 --plan "$tmp/two.plan" --set freeze.rescale=false
verify "without freeze.rescale the sums are shorter" differ one biased
train gpt random -n 2 --plan "$tmp/two.plan" --set freeze.choice=random
verify "random leaves out other items" differ one random

# An epoch has 4 steps: warm-up to step 4, then the shares rise to step 16.
for at in 2 7 14 19; do
    train gpt cut-$at -n 2 --plan "$tmp/two.plan" --steps $at
    train gpt cut-$at -n 1 --plan "$tmp/one.plan" --resume "$tmp/cut-$at"
    verify "stopped at K = 2 after $at steps, resumed at K = 1: the same bits" same_run one cut-$at
done
# A run that lost its last checkpoints goes on with the one before them.
train gpt saved -n 2 --plan "$tmp/two.plan" --set train.checkpoint_every_steps=6 --set train.keep_checkpoints=9
rm -rf "$tmp"/saved/checkpoint-{18,23,24}
train gpt saved -n 2 --plan "$tmp/two.plan" --resume "$tmp/saved"
verify "and from a checkpoint in the ramp" same_run one saved

# Killed at the end of the warm-up, in the ramp and after it. No rank takes the place of the lost one, so the run ends.
for at in 4 8 14 20; do
    killed=(-n 2 --plan "$tmp/two.plan" --set train.checkpoint_every_steps=1)
    train gpt killed-$at "${killed[@]}" --max-restarts 1 --plan-losses <(printf 'step,rank,event\n%d,1,lost\n' $at)
    verify "a rank is killed after $at steps" grep -q 'signal 9 (Killed)' "$tmp/killed-$at.err"
    train gpt killed-$at "${killed[@]}" --resume "$tmp/killed-$at"
    verify "and the run resumed: the same bits" same_run one killed-$at
done

norms=(--set freeze.choice=norm)
train gpt norm -n 2 --plan "$tmp/two.plan" "${norms[@]}"
verify "norm: no order is known before two turns are over" differ one norm
train gpt norm-cut -n 2 --plan "$tmp/two.plan" "${norms[@]}" --steps 14
train gpt norm-cut -n 2 --plan "$tmp/two.plan" "${norms[@]}" --resume "$tmp/norm-cut"
verify "norm: the order outlives a restart" same_run norm norm-cut

job=lora plan_of lora-1 1 0.5
job=lora plan_of lora-2 2 0.5
train lora lora-1 -n 1 --plan "$tmp/lora-1.plan"
train lora lora-2 -n 2 --plan "$tmp/lora-2.plan"
verify "adapters: the same bits at K = 1 and 2" same_run lora-1 lora-2

# Under safe the budget says how much: the same at K = 1 and 2 and over a restart in mid-turn.
safe=(--set freeze.policy=safe --set freeze.min_active=4 --set freeze.warmup=0 --set freeze.max_share=0.9 --set freeze.max_loss=60 --set freeze.probe=16
    --set data.valid=test --set train.epochs=8)
train gpt safe-1 -n 1 --plan "$tmp/one.plan" "${safe[@]}"
train gpt safe-2 -n 2 --plan "$tmp/two.plan" "${safe[@]}"
verify "safe chooses the same shares, to the same bits, at K = 1 and 2" same_run safe-1 safe-2
chosen() { grep -o 'shares up to 0\.[0-9]*' "$tmp/safe-1/evidence.json" | sort -u | grep -q 'to 0\.[1-9]' || { grep reason "$tmp/safe-1/evidence.json"; false; }; }
verify "and says how much it leaves out" chosen
train gpt safe-cut -n 2 --plan "$tmp/two.plan" "${safe[@]}" --steps 22
train gpt safe-cut -n 1 --plan "$tmp/one.plan" "${safe[@]}" --resume "$tmp/safe-cut"
verify "a restart takes the same share" same_run safe-1 safe-cut

# apf: single weights are held. Its state travels with the optimizer's, so bits are equal at any K and over a restart before
# the first check, between two, and in the warm-up; with a threshold that no weight is below they are those of no freezing.
apf=(--set freeze.policy=apf --set freeze.max_share=0 --set freeze.apf_every=2 --set freeze.apf_threshold=0.3)
plan_of single 1 0 --set freeze.policy=apf # the plan counts the memory of apf's state
plan_of pair 2 0 --set freeze.policy=apf
train gpt apf-1 -n 1 --plan "$tmp/single.plan" "${apf[@]}"
train gpt apf-2 -n 2 --plan "$tmp/pair.plan" "${apf[@]}"
verify "apf: the same bits at K = 1 and 2" same_run apf-1 apf-2
verify "apf: the summary says what share of the weights it holds" eval 'grep -o "\"weights_held\":[[:space:]]*0\.[0-9]*" "$tmp/apf-1/summary.json" | grep -q "[1-9]"'
verify "apf: it changes a run, after the warm-up" differ whole apf-1
for at in 1 7 14 19; do
    train gpt apf-$at -n 2 --plan "$tmp/pair.plan" "${apf[@]}" --steps $at
    train gpt apf-$at -n 1 --plan "$tmp/single.plan" "${apf[@]}" --resume "$tmp/apf-$at"
    verify "apf: stopped at K = 2 after $at steps, resumed at K = 1: the same bits" same_run apf-1 apf-$at
done
train gpt apf-none -n 1 --plan "$tmp/single.plan" "${apf[@]}" --set freeze.apf_threshold=1e-30
verify "apf: where no weight is below the threshold, the bits are those without freezing" same_run whole apf-none
expect "apf: a threshold above 1" 2 'freeze.apf_threshold must be in .0, 1., got 1.5' "$elapse" train "$tmp/gpt.json" \
    --out "$tmp/bad" "${apf[@]}" --set freeze.apf_threshold=1.5
expect "apf: a decay of 1" 2 'freeze.apf_decay must be in .0, 1., got 1' "$elapse" train "$tmp/gpt.json" --out "$tmp/bad" \
    "${apf[@]}" --set freeze.apf_decay=1
expect "apf: no checks" 2 'freeze.apf_every must be at least 1, got 0' "$elapse" train "$tmp/gpt.json" --out "$tmp/bad" "${apf[@]}" \
    --set freeze.apf_every=0

# The simulator follows the ramp: whole steps in the warm-up, then shorter ones, in the end the plan's.
"$elapse" sim "$tmp/gpt.json" --set model=uniform:layers=8,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,act=1MiB,params=1000 --set cluster=a100-1x4 \
    --set pipeline.num_stages=4 --json >"$tmp/sim.json"
ramps() {
    python3 - "$tmp/sim.json" <<'PY'
import json, sys
ns = [e["step_ns"] for e in json.load(open(sys.argv[1]))["epochs"]]
assert len(ns) == 6 and ns[0] > ns[1] > ns[2] > ns[3] > ns[4] == ns[5], ns
PY
}
verify "sim: steps shorten with the ramp" ramps
expect "a share above 1" 2 'freeze.max_share must be .* got 1.5' "$elapse" train "$tmp/gpt.json" --out "$tmp/bad" --set freeze.max_share=1.5
expect "timed without a profile" 1 'freeze.max_share 0.5 needs measured times' "$elapse" train "$tmp/gpt.json" --no-measure \
    --out "$tmp/bad" -n 2
timed_gpt='gpt2:layers=4,hidden=32,heads=2,mlp=64,seq=16,vocab=70'
expect "a model by its text: how to measure it" 1 "^hint: elapse profile --model '$timed_gpt'$" "$elapse" train "$tmp/gpt.json" --no-measure \
    --out "$tmp/bad" -n 2 --set model="$timed_gpt"
plan_of bad 2 1.5
expect "a plan with a share above 1" 2 'shares must be 2 arrays of 4 numbers, 0..1' "$elapse" train "$tmp/gpt.json" --plan "$tmp/bad.plan" \
    --out "$tmp/bad" -n 2
finish
