#!/bin/bash
# Elastic training end to end: same bits as without elasticity, idle ranks, resume, bad input. Ranks that fail in a
# change of plan: e2e_elastic_faults.sh.
# seconds: 45
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin

freezing_vit
like vit bert '"family": "bert", "preset": "bert-base", "seq": 16, "hidden": 32, "heads": 2, "mlp": 64, "layers": 4, "vocab": 512, "task": "classify", "classes": 2' \
    '"kind": "synthetic", "train_samples": 200, "test_samples": 50'

adamw=(--set train.optimizer.kind=adamw --set train.optimizer.lr=0.002 --set train.optimizer.weight_decay=0.01)
for job in vit bert; do
    for kind in $([ $job = bert ] || echo sgd) adamw; do
        args=()
        [ $kind = adamw ] && args=("${adamw[@]}")
        train $job $job-$kind-1 -n 1 --set cache.policy=off "${args[@]}"
        train $job $job-$kind-4 -n 4 --set 'elastic.stages=[4,4,2,1]' --set cache.policy=on "${args[@]}"
        verify "$job, $kind: an elastic run shrinks its pipelines and grows replicas" \
            has_shapes $job-$kind-4 "0=0:4:1 1=1:4:1 2=2:2:2 3=4:1:4 "
        verify "$job, $kind: the elastic run has the bits of one rank without elasticity" \
            same_run $job-$kind-1 $job-$kind-4
        verify "$job, $kind: frozen activations came from the cache" test "$(value $job-$kind-4 cache_upgrades)" -gt 0
    done
done

# Without elasticity: the canonical reduction alone; where the frozen forward runs.
train vit canonical-1 -n 1 --set freeze.policy=none
for r in 4 2; do
    train vit canonical-$r -n 4 --set freeze.policy=none --set pipeline.num_replicas=$r
    verify "canonical: R = 1 and $r give the same bits" same_run canonical-1 canonical-$r
done
for r in 1 4; do
    train vit canonical-of-16-$r -n $r --set freeze.policy=none --set pipeline.num_replicas=$r --set train.batch.global=16
done
verify "so where a pipeline's batch has fewer samples than all have micro-batches" same_run canonical-of-16-1 canonical-of-16-4
expect "plans count micro-batches as the run does" 0 'DP 4 .*; M 2 micro-batches of 4 ' "$elapse" plan "$tmp/vit.json" \
    --set cluster=a100-1x4 --set pipeline.num_stages=1 --set pipeline.num_replicas=4
for where in first spread; do
    train vit frozen-$where -n 2 --set cache.policy=off --set pipeline.frozen=$where --set 'elastic.stages=[2]'
    verify "a frozen forward that runs $where gives the same bits" same_run vit-sgd-1 frozen-$where
done
train vit zb -n 2 --set pipeline.schedule=zb-h1 --set 'elastic.stages=[2]'
verify "zb-h1 gives the same bits" same_run vit-sgd-1 zb

# Idle ranks: three of four, then a newcomer, then none; and without new pipelines.
train vit newcomer -n 4 --set 'elastic.stages=[3,2,2,1]' --set pipeline.schedule=search --set cost.source=roofline
verify "an idle rank joins when pipelines shrink" has_shapes newcomer "0=0:3:1 1=1:2:2 2=2:2:2 3=4:1:4 "
verify "a run with a newcomer and op lists of its own gives the same bits" same_run vit-sgd-1 newcomer
train vit idle -n 4 --set 'elastic.stages=[4,2,1]' --set elastic.auto_dp=false --set train.checkpoint_every_steps=5
verify "without auto_dp freed ranks stay idle" has_shapes idle "0=0:4:1 1=1:2:1 2=2:1:1 3=4:1:1 "
verify "a run with idle ranks gives the same bits" same_run vit-sgd-1 idle

# Per-pipeline batch: the global batch grows with R, an epoch has fewer steps, the learning rate
# follows epochs and is not scaled.
sed 's/"batch": {"global": 32}/"batch": {"per_pipeline": 16}/; s/"num_microbatches": 8/"num_microbatches": 4/' "$tmp/vit.json" >"$tmp/per.json"
train per grows -n 4 --set 'elastic.stages=[4,4,2,1]'
train per grows-not -n 1 --set cache.policy=off
epochs_of() { grep -o '"epoch":[0-9]*' "$tmp/$1/metrics.jsonl" | uniq -c | awk '{printf "%s ", $1}'; }
first_lrs() { sed -n 's/.*"epoch":\([0-9]*\),.*"lr":\([^,]*\),.*/\1 \2/p' "$tmp/$1/metrics.jsonl" | awk '$1 != e {e = $1; print}' e=-1; }
has_steps() { [ "$(epochs_of "$1")" = "$2" ] || { epochs_of "$1"; tail -3 "$tmp/$1.err"; false; }; }
verify "per-pipeline batch: an epoch takes fewer steps as replicas come" has_steps grows "13 13 7 4 "
verify "per-pipeline batch: without new replicas it does not" has_steps grows-not "13 13 13 13 "
same_lrs() { [ "$(first_lrs grows | wc -l)" = 4 ] && [ "$(first_lrs grows)" = "$(first_lrs grows-not)" ] ||
    { paste <(first_lrs grows) <(first_lrs grows-not); false; }; }
verify "per-pipeline batch: epochs begin at the learning rates of a run that does not grow" same_lrs
once() {
    sed -n 's/.*"epoch":\([0-9]*\),.*"step_ns":\([0-9]*\),"samples_per_s":\([^,]*\),.*/\1 \2 \3/p' "$tmp/grows/metrics.jsonl" |
        awk '{n[$1] += $2 * $3 / 1e9} END {for (e = 0; e < 4; e++) printf "%.0f ", n[e]}' >"$tmp/once.txt"
    [ "$(cat "$tmp/once.txt")" = "200 200 200 200 " ] || { cat "$tmp/once.txt"; false; }
}
verify "per-pipeline batch: each sample is seen once an epoch" once

# More replicas than samples: fewer are made, and the run says why.
train per few -n 4 --set 'elastic.stages=[2,2,1]' --set data.train_samples=40 --set train.reduction=fast
verify "replicas that would find no samples are not made" has_shapes few "0=0:2:2 1=1:2:2 2=2:1:2 3=4:1:2 "
verify "a run with fewer replicas says why" \
    grep -q '"reason":"table: 2; 3 replicas of 16 samples exceed the 40 of an epoch"' "$tmp/few.json"

# A canonical sum counts its micro-batches once: where the first plan's are odd, no rank becomes a replica, and the run
# says why.
train vit odd -n 4 --set train.batch.global=45 --set 'pipeline.num_microbatches="auto"' --set 'elastic.stages=[4,2]'
verify "micro-batches that replicas cannot share keep R at 1" has_shapes odd "0=0:4:1 1=1:2:1 2=2:2:1 3=4:2:1 "
verify "and a line says so" says odd '^note: replicas: before epoch 3: 2 replicas cannot share [0-9]*[13579] micro-batches evenly$'
verify "which runs that can share them do not have" test -z "$(grep replicas: "$tmp/vit-sgd-4.err")"

# A decision below the minimum of active layers is held there; all layers frozen is legal.
train vit held -n 4 --set 'elastic.stages=[4,4,2,1]' --set freeze.min_active=2
train vit table -n 1 --set 'freeze.table=[0,1,2,2]' --set cache.policy=off
verify "a decision below the minimum of active layers is held" has_shapes held "0=0:4:1 1=1:4:1 2=2:2:2 3=2:1:4 "
verify "a run with a held decision says so" grep -q 'table: 4; held at 2, 2 must stay active' "$tmp/held.json"
verify "and in a line of its own" says held '^note: freeze: before epoch 3: table: 4; held at 2, 2 must stay active$'
verify "a held decision is the run that decided so" same_run held table
train vit kept -n 1 --set freeze.min_active=4 --set cache.policy=off
verify "a decision held where it was changes no plan, and says so too" says kept '^note: freeze: before epoch 3: table: 4; held at 0, 4 must stay active$'
train vit none -n 1 --set freeze.policy=none --set cache.policy=off
verify "it is the run in which nothing freezes" same_run kept none
verify "which has nothing to say" test -z "$(grep freeze "$tmp/none.err")"

# Resumed in mid-epoch, with other ranks, behind two changes.
train vit part -n 4 --set 'elastic.stages=[4,4,2,1]' --steps 17
train vit part -n 2 --set 'elastic.stages=[2,2,2,1]' --resume "$tmp/part" --override
verify "a run resumed behind a change is the same run" same_run vit-sgd-1 part

# Resumed within a turn, and once more in another folder: what the policy has seen, the plan and the learning rate are
# those of the whole run.
goes_on_as() { # JOB RUN STEPS ARGS...: the whole run is RUN
    local job=$1 run=$2 steps=$3 done=$(($3 + 2))
    shift 3
    train "$job" "$run" "$@" && train "$job" "$run-a" "$@" --steps "$steps" &&
        train "$job" "$run-b" "$@" --resume "$tmp/$run-a" --steps 2 && cp -r "$tmp/$run-b" "$tmp/$run-c" &&
        train "$job" "$run-c" "$@" --resume "$tmp/$run-c/checkpoint-$done/" && [ "$(value "$run" weights_sha256)" = "$(value "$run-c" weights_sha256)" ] &&
        [ "$(losses "$run" | tail -n +$((steps + 1)))" = "$(losses "$run-c")" ] || { shapes "$run"; shapes "$run-c"; cat "$tmp/$run-"?.err; false; }
}
for policy in gradient-norm relative-change; do
    verify "$policy: resumed within epochs it freezes as the whole run does" goes_on_as vit "$policy" 16 -n 1 --set cache.policy=off \
        --set train.epochs=6 --set freeze.policy=$policy --set freeze.alpha=1/2
    verify "$policy: it has frozen something" test "$(shapes $policy | wc -w)" -gt 1
done
shifts=(-n 2 --set pipeline.num_stages=2 --set cache.policy=off --set 'freeze.table=[0,2]')
verify "per-pipeline batch: resumed behind a change the plan and the learning rate go on" goes_on_as per shifts 17 "${shifts[@]}"
verify "as two pipelines of one rank" has_shapes shifts-c "1=2:1:2 2=2:1:2 3=2:1:2 "

# In a replica without samples, ranks whose layers are all frozen do nothing, which takes no time.
train vit resting -n 4 --set cache.policy=off --set train.clip_norm=0 --set pipeline.num_stages=2 --set pipeline.num_replicas=2 \
    --set pipeline.frozen=spread --set elastic.auto_pipe=false --set elastic.auto_dp=false --set 'freeze.table=[0,3]'
rests() {
    grep -q '"cut":\[7,4\]' <(tr -d ' \t\n' <"$tmp/resting/summary.json") &&
        ! grep -E '"step_ns":[0-9]{12}' "$tmp/resting/metrics.jsonl"
}
verify "a step in which a replica has no samples lasts as long as others" rests
sampled() { # samples of an epoch, by its row in the record
    "$elapse" runs show --db "$tmp/resting/run.db" --json | tr -d ' \n' | grep -o '"steps":[0-9]*,"step_ns":[0-9]*,[^}]*"samples_per_s":[0-9.e+]*' |
        sed 's/[^0-9.]*\([0-9]*\)[^0-9]*\([0-9]*\).*:/\1 \2 /' | awk '{printf "%.0f ", $1 * $2 * $3 / 1e9}' >"$tmp/sampled.txt"
    [ "$(cat "$tmp/sampled.txt")" = "200 200 200 200 " ] || { cat "$tmp/sampled.txt"; false; }
}
verify "an epoch's samples per second count each sample once" sampled

# The last step's ops are recorded in whatever plan it ends: here of stage 0 alone.
train vit traced -n 2 --set 'elastic.stages=[2,1]' --trace-steps 0 --trace "$tmp/traced.trace"
traced() {
    grep -o '"args":{"op":"[A-Z]*","stage":[0-9]*' "$tmp/traced.trace" | sort | uniq -c | tr -s ' ' >"$tmp/traced.txt"
    grep -q '"op":"F","stage":0' "$tmp/traced.txt" && ! grep -q '"stage":1' "$tmp/traced.txt" || { cat "$tmp/traced.txt"; false; }
}
verify "the last step of an elastic run is recorded" traced

# The planner's own choice; norms that freeze --norms and sim can replay.
train vit planned -n 4 --set freeze.policy=gradient-norm --set freeze.alpha=1/2
train vit planned-1 -n 1 --set freeze.policy=gradient-norm --set freeze.alpha=1/2
verify "gradient norms freeze the same layers on 1 and 4 ranks" same_run planned planned-1
replayed() {
    "$elapse" freeze --layers 4 --alpha 1/2 --epochs 4 --policy gradient-norm --norms "$tmp/planned/norms.json" --json >"$tmp/freeze.json" || return
    [ "$(grep -o '"frozen":\[[^]]*' "$tmp/freeze.json" | tr -d ' \n' | cut -d'[' -f2 | tr ',' ' ')" = \
        "$(sed -n 's/.*"epoch":\([0-9]*\),.*"frozen_layers":\([0-9]*\).*/\1 \2/p' "$tmp/planned/metrics.jsonl" | uniq | cut -d' ' -f2 | tr '\n' ' ' | sed 's/ $//')" ] ||
        { cat "$tmp/freeze.json"; shapes planned; false; }
}
verify "norms.json replays the decisions" replayed
timed() { grep -o '"total_ns":[0-9]*' "$tmp/vit-sgd-4/summary.json" | wc -l | grep -qx 3 && [ "$(value vit-sgd-4 transition_ns)" -gt 0 ]; }
verify "three changes are timed in the summary" timed
filled() { [ "$(grep -o '"cache_ns":[0-9]*' "$tmp/vit-sgd-4/summary.json" | grep -vc ':0$')" = 3 ] || { grep -o '"cache_ns":[0-9]*' "$tmp/vit-sgd-4/summary.json"; false; }; }
verify "filling the cache is put down to the changes behind which it happens" filled

# The whole run beside the same job simulated. (There is no profile: the times of a roofline.)
compared() {
    "$elapse" compare "$tmp/$1" --json >"$tmp/compare.json" || return
    grep -o '"epoch":[0-9]*,"real":{"frozen_layers":[0-9]*,"pipeline_length":[0-9]*,"replicas":[0-9]*\|"sim":{"frozen_layers":[0-9]*,"pipeline_length":[0-9]*,"replicas":[0-9]*' "$tmp/compare.json" |
        sed 's/.*"frozen_layers":\([0-9]*\),"pipeline_length":\([0-9]*\),"replicas":\([0-9]*\)/\1:\2:\3/' | tr '\n' ' ' >"$tmp/compare.txt"
    [ "$(cat "$tmp/compare.txt")" = "$2" ] && grep -q '"real_total_ns":[1-9].*"sim_total_ns":[1-9]' "$tmp/compare.json" || { cat "$tmp/compare.txt" "$tmp/compare.json"; false; }
}
verify "compare simulates the run's changes" compared vit-sgd-4 "0:4:1 0:4:1 1:4:1 1:4:1 2:2:2 2:2:2 4:1:4 4:1:4 "
frozen_alike() {
    "$elapse" compare "$tmp/planned" --json >"$tmp/compare.json" || return
    [ "$(sed 's/"transitions".*//' "$tmp/compare.json" | grep -o '"real":{"frozen_layers":[0-9]*' | cut -d: -f3)" = \
        "$(sed 's/"transitions".*//' "$tmp/compare.json" | grep -o '"sim":{"frozen_layers":[0-9]*' | cut -d: -f3)" ] &&
        [ "$(grep -o '"real":{"frozen_layers":[0-9]*' "$tmp/compare.json" | sort -u | wc -l)" -gt 1 ] || { cat "$tmp/compare.json"; false; }
}
verify "compare freezes by the norms that the run recorded" frozen_alike
simulated() {
    "$elapse" sim "$tmp/vit.json" --set freeze.policy=gradient-norm --set freeze.alpha=1/2 --set data.train_samples=200 \
        --set "freeze.norms=$tmp/planned/norms.json" --json >"$tmp/sim.json" || return
    [ "$(sed 's/"epochs":/\n&/' "$tmp/sim.json" | tail -1 | grep -o '"frozen_layers":[0-9]*' | cut -d: -f2 | tr '\n' ' ')" = \
        "$(shapes planned | grep -o '=[0-9]*' | tr -d = | tr '\n' ' ')" ] || { cat "$tmp/sim.json"; shapes planned; false; }
}
verify "sim replays the norms of a real run" simulated
expect "compare refuses a part of a run" 1 "2 of its 4 epochs" "$elapse" compare "$tmp/part"

# Idle ranks learn what the others saw: a loss that is not a number, in the first evaluation.
"$elapse" export "$tmp/vit-sgd-1" -o "$tmp/nan.safetensors" >/dev/null
# Weights of the head that are finite, and whose products are not.
python3 - "$tmp/nan.safetensors" <<'E'
import json, struct, sys
with open(sys.argv[1], "r+b") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    begin, end = json.loads(file.read(size))["classifier.weight"]["data_offsets"]
    file.seek(8 + size + begin)
    file.write(struct.pack("<f", 3e38) * ((end - begin) // 4))
E
expect "a loss that is not finite ends idle ranks too" 1 'the loss of micro-batch 0 of replica 0 is -?(nan|inf)' \
    "$elapse" train "$tmp/vit.json" -n 3 --out "$tmp/nan" --init "$tmp/nan.safetensors" --set 'elastic.stages=[2]' --set elastic.auto_dp=false

# examples/elastic: the report of one part alone.
mkdir "$tmp/report"
cp -r "$tmp/newcomer" "$tmp/report/vit-all-1"
cp "$tmp/newcomer.json" "$tmp/report/vit-all-1.json"
report_alone() { ELAPSE=$elapse examples/elastic/report.sh "$tmp/report" >/dev/null && grep -q '"part":"vit","variant":"all","seed":1' "$tmp/report/results.json"; }
verify "a report of one part has its results" report_alone

expect "more stages than ranks" 2 "elastic.stages 4 needs 4 ranks, got 2" "$elapse" train "$tmp/vit.json" -n 2 --out "$tmp/bad" --set 'elastic.stages=[2,4]'
expect "micro-batches that do not divide" 1 "canonical" "$elapse" train "$tmp/vit.json" -n 2 --out "$tmp/bad" --set pipeline.num_microbatches=5
finish
