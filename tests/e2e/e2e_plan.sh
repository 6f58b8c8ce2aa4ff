#!/bin/bash
# `elapse plan`: the keys of the contract, the release beside our plan, and clear errors.
source "$(dirname "$0")/lib.sh"
begin

job=examples/paper/vit.json
ours="--set pipeline.balancer=optimal --set pipeline.schedule=auto --set pipeline.frozen=auto"
export elapse tmp job ours
# shellcheck disable=SC2086 # $ours is several words

json_has_keys() {
    "$elapse" plan $job --json $ours --explain >"$tmp/plan.json" || return 1
    for key in schema version job pipeline_length replicas microbatches microbatch_size schedule cut devices \
        stage_ns memory_bytes memory memory_rank step_ns samples_per_s cost_source cache frozen_layers candidates \
        solve_ns lower_bound_ns gap released best lengths; do
        grep -q "\"$key\":" "$tmp/plan.json" || { echo "no key $key"; return 1; }
    done
}
export -f json_has_keys
expect "plan: counts need no plural" 0 "M 1 micro-batch of 64 " "$elapse" plan examples/demo.json --set pipeline.num_microbatches=1
check "plan: JSON has every key of the contract" bash -c json_has_keys

# A command line of Megatron-LM: its layout as it is, with equally many layers a stage, and a better one.
megatron="--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --vocab-size 32000 --swiglu
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 16 --bf16 --tp-comm-overlap-cfg x"
export megatron
from_megatron() {
    local out
    out=$("$elapse" plan --from megatron "$megatron" --cluster h100-1x8 --work 20000 --quiet) || return 1
    echo "$out"
    grep -q '^today  PP 2, TP 4, DP 1, ' <<<"$out" && grep -q '^best   PP ' <<<"$out" &&
        grep -q '^not counted: --tp-comm-overlap-cfg x: all of the overlap is counted (today is slower)$' <<<"$out" || return 1
    "$elapse" plan --from megatron "$megatron" --cluster h100-1x8 --work 20000 --quiet --json >"$tmp/from.json" || return 1
    python3 -c 'import json, sys
a = json.load(open(sys.argv[1]))
assert a["faster"] > 1 and a["not_counted"][0].startswith("--tp-comm-overlap-cfg x: "), a
# embedding and 8 layers of 2 items, norm and head: the cut lies behind layer 4
assert a["today"]["cut"][0] == 9, a["today"]["cut"]
assert a["best"]["shard"] in ("none", "optimizer"), a["best"]["shard"]' "$tmp/from.json"
}
export -f from_megatron
check "plan: --from megatron predicts the command and finds better" bash -c from_megatron
expect "plan: --from reads context parallelism" 0 'PP 1, TP 4, DP 1, .*CP 2, ' \
    "$elapse" plan --from megatron "$megatron --pipeline-model-parallel-size 1 --context-parallel-size 2" --cluster h100-1x8 --work 3000
expect "plan: context parallelism beyond the sequence is refused" 1 'context 4096: two chunks a device do not divide' \
    "$elapse" plan examples/what-if/llama3-8b.json --set cp=4096
expect "plan: context parallelism needs a causal model" 1 'is not a causal language model' \
    "$elapse" plan examples/what-if/llama3-8b.json --set model=vit-b16 --set cp=2
expect "plan: groups of shards need copies" 1 'leaves no whole copies' \
    "$elapse" plan examples/what-if/llama3-8b.json --set dp=8 --set pipeline.shard=weights --set pipeline.shard_group=8
expect "plan: adapters of layers that are not there are refused" 1 'train.lora: model .* has no such layers' \
    "$elapse" plan examples/what-if/llama3-8b.json --set model=uniform:layers=8,fwd=1ms --set train.lora.rank=16
expect "plan: --from explains nothing" 2 'from excludes .*explain' \
    "$elapse" plan --from megatron "$megatron" --cluster h100-1x8 --explain
expect "plan: --from needs a cluster" 2 'needs --cluster' "$elapse" plan --from megatron "$megatron"

# A law of every auto: no slower than a given value. Here a divisor of the group between 1 and all of it is fastest.
cat >"$tmp/experts.json" <<'E'
{"model": {"family": "llama", "layers": 2, "hidden": 1024, "heads": 8, "kv_heads": 2, "mlp": 2048, "vocab": 8000, "seq": 2048,
           "experts": 4, "experts_active": 2, "expert_mlp": 1024},
 "data": {"kind": "synthetic", "train_samples": 1000},
 "train": {"batch": {"global": 8}, "dtype": "fp16", "optimizer": {"kind": "sgd"}},
 "cluster": {"nodes": 4, "devices_per_node": 2, "kind": "mi300x", "link": "32GB/s", "uplink": "100GB/s", "latency": "5us",
             "pod": 1, "oversubscription": 7},
 "pipeline": {"tensor": 4, "expert": 2, "num_stages": 1, "num_replicas": 2, "sequence_parallel": true}}
E
expert_step() { "$elapse" plan "$tmp/experts.json" --set pipeline.expert_tensor="$1" --json --quiet | grep -o '"step_ns":[0-9]*' | head -1 | cut -d: -f2; }
expert_tensor_auto() {
    local all two auto
    all=$(expert_step 4) two=$(expert_step 2) auto=$(expert_step auto)
    echo "4: $all ns, 2: $two ns, auto: $auto ns"
    [ "$two" -lt "$all" ] && [ "$auto" -eq "$two" ]
}
verify "plan: expert_tensor auto is the fastest divisor of the group" expert_tensor_auto

# The goldens of the specification: K, and the cut at F = 5.
released_lengths() {
    local got
    got=$("$elapse" plan $job --all-frozen --no-simulate --set pipeline.num_microbatches=auto |
        awk '/^ *[0-9]+ \|/ { printf "%s ", $12 }')
    echo "$got"
    [ "$got" = "8 8 8 8 8 4 4 4 4 2 2 1 1 " ]
}
export -f released_lengths
check "plan: the released rule halves K as specified" bash -c released_lengths
expect "plan: the released cut at F = 5" 0 ' 3,4,4,5$' "$elapse" plan $job --frozen 5
expect "plan: --explain tells every length's fate" 0 '^ *16 (slower|not searched further: cannot exceed)' \
    "$elapse" plan $job $ours --explain

# Replicas of a stage side by side, so that its all-reduce stays inside a node.
echo '{"name":"a","model":"bert-base","data":{"kind":"synthetic"},"train":{"epochs":1,"batch":{"per_pipeline":1}},
    "cluster":"rtx5000-2x8","pipeline":{"num_stages":2,"num_replicas":8,"num_microbatches":1,"schedule":"1f1b"}}' >"$tmp/across.json"
where_it_runs() {
    local planned simulated
    planned=$("$elapse" plan "$tmp/across.json" --json | sed 's/,"released":.*//; s/.*"devices":\(\[\[.*\]\]\).*/\1/' | tr -d '[]')
    simulated=$("$elapse" sim "$tmp/across.json" --step --json | grep -o '"device":[0-9]*' | cut -d: -f2 | paste -sd,)
    echo "plan $planned, sim $simulated"
    [ "$planned" = "$simulated" ] && [ "${planned%%,1,*}" = 0,8 ]
}
verify "plan: the devices of each pipeline are those that the step is simulated on" where_it_runs
expect "plan: pipelines that cross nodes say so" 0 'first pipeline on 0,8$' "$elapse" plan "$tmp/across.json"

same_twice() {
    "$elapse" plan $job $ours --json | sed -E 's/"(solve|processor)_ns":[0-9]*//g' >"$tmp/a"
    "$elapse" plan $job $ours --json | sed -E 's/"(solve|processor)_ns":[0-9]*//g' >"$tmp/b"
    cmp "$tmp/a" "$tmp/b"
}
export -f same_twice
check "plan: the same question gets the same answer" bash -c same_twice

# Plans are judged with shared links: two nodes at 10 Gb/s, where the ranking without sharing misleads.
echo '{"model":"gpt2:seq=1024","data":{"kind":"synthetic","train_samples":1024},"train":{"batch":{"global":32},
    "dtype":"bf16","optimizer":{"kind":"adamw"}},"cluster":{"preset":"a100-pcie-2x2","uplink":"10Gb/s"}}' >"$tmp/shared.json"
step_of() { grep -o '"step_ns":[[:space:]]*[0-9]*' | head -1 | grep -o '[0-9]*$'; }
judged_by_default() {
    local ours simulated unshared
    "$elapse" plan "$tmp/shared.json" --budget 0 -o "$tmp/ours.json" >"$tmp/ours.txt"
    "$elapse" plan "$tmp/shared.json" --budget 0 --no-simulate -o "$tmp/unshared.json" >/dev/null
    ours=$(step_of <"$tmp/ours.json")
    simulated=$("$elapse" sim "$tmp/shared.json" --step --plan "$tmp/ours.json" --json | step_of)
    unshared=$("$elapse" sim "$tmp/shared.json" --step --plan "$tmp/unshared.json" --json | step_of)
    echo "ours $ours, simulated $simulated; chosen without sharing $unshared"
    [ "$ours" = "$simulated" ] && [ $((ours * 10)) -lt $((unshared * 9)) ]
}
verify "plan: the event engine chooses, and its time is the step's" judged_by_default

# Among equally fast plans the one that leaves 8 % of the memory wins; without one, the answer says how full it is.
leaves_room() {
    local peak
    peak=$("$elapse" plan "$tmp/shared.json" --budget 0 --set cluster.uplink=100Gb/s --set train.batch.global=64 \
        --set cluster.mem=8600MiB --json | grep -o '"memory_bytes":\[[0-9]*' | head -1 | cut -d'[' -f2)
    echo "peak $peak of $((8600 << 20))"
    [ "$((peak * 100))" -le $(((8600 << 20) * 92)) ] || return 1
    # the fastest plan of this one fills 94 %, and one that leaves more takes 1.6 % longer
    local how more=(--set model=qwen2.5-7b:seq=2048 --set cluster=a100-1x4 --set train.dtype=bf16
        --set train.optimizer.kind=adamw --set train.batch.global=128 --set pipeline.tensor=auto
        --set pipeline.sequence_parallel=auto --set pipeline.shard=auto --set pipeline.recompute=auto)
    for how in "" --no-simulate; do
        "$elapse" plan "$tmp/shared.json" --budget 0 "${more[@]}" $how >"$tmp/room.txt"
        grep 'a plan that leaves 8 % of every memory is preferred' "$tmp/room.txt" && ! grep '^tight:' "$tmp/room.txt" || return 1
    done
}
verify "plan: a plan that leaves memory is preferred" leaves_room
expect "plan: that of a framework's leaves more" 0 'tight: 6.[0-9]* GiB of 64.0 GiB are left, .*: plans .* slower by more than 5 %' \
    "$elapse" plan --model llama2-13b --cluster a100-1x8 --batch 64 --set train.dtype=bf16 --set train.optimizer.kind=adamw \
    --set train.framework=megatron-te --set cluster.mem=64GiB --set pipeline.num_stages=1 --set pipeline.tensor=1 \
    --set pipeline.shard=weights --set pipeline.recompute=never
expect "plan: a full memory is said" 0 '^tight: [0-9.]* MiB of 1.95 GiB are left' "$elapse" plan "$tmp/shared.json" \
    --set cluster.uplink=100Gb/s --set train.batch.global=64 --set cluster.mem=2000MiB --set pipeline.offload=none

# A search of minutes ends when its budget does, or by Ctrl-C, with a plan and its bound.
long="examples/what-if/gpt2-xl.json --set cluster.nodes=32"
part_of_search() { grep -q 'proven lower bound' "$1" && grep -q '^search stopped by its budget' "$1"; }
within_budget() {
    local begin=$SECONDS
    "$elapse" plan $long --budget 500ms >"$tmp/budget.txt" || return 1
    echo "$((SECONDS - begin)) s"
    part_of_search "$tmp/budget.txt" && ! part_of_search "$tmp/ours.txt"
}
verify "plan: --budget ends a search with a plan and its bound" within_budget
# Shares are solved without shared links; the plan's step has them.
with_shares() {
    local words=(--model vit-b16 --frozen 3 --cluster l4-2x2 --batch 8 --quiet)
    for key in freeze.max_share=0.5 train.dtype=fp16 pipeline.num_stages=2 pipeline.schedule=zb-h1; do words+=(--set $key); done
    "$elapse" plan "${words[@]}" -o "$tmp/shares.plan" --json >"$tmp/shares.json" &&
        python3 -c 'import json, sys; json.dump(json.load(open(sys.argv[1]))["job"], open(sys.argv[2], "w"))' "$tmp/shares.json" "$tmp/shares.job" &&
        [ "$(step_of <"$tmp/shares.json")" = "$("$elapse" sim "$tmp/shares.job" --step --plan "$tmp/shares.plan" --no-wall --json | step_of)" ]
}
verify "plan: what a plan with shares of gradients takes is what sim says" with_shares
# A budget of looks ends at one plan, however fast the machine is: valgrind's is many times slower.
same_work() {
    local with
    for with in "" "valgrind -q --tool=none"; do
        $with "$elapse" plan examples/what-if/llama3-8b.json --work 3000 --json --quiet |
            sed -E 's/"(solve|processor)_ns":[0-9]*//g' >"$tmp/work.${with:0:1}" || return 1
    done
    grep -q '"complete":false' "$tmp/work." && cmp "$tmp/work." "$tmp/work.v"
}
if command -v valgrind >/dev/null; then
    verify "plan: --work ends a search at one plan on fast and slow machines" same_work
else
    skip "plan: --work ends a search at one plan on fast and slow machines" "valgrind is missing"
fi
expect "plan: a kind without a peak for the data type says so" 1 "no peak of device kind 'gaudi3' is published for this dtype" \
    "$elapse" plan --model gpt2 --batch 8 --cluster '{"nodes":1,"devices_per_node":2,"kind":"gaudi3"}' --dtype fp32
# Where not even a first plan was found there is another exit code than where none exists.
expect "plan: no plan yet is exit 4" 4 'no plan for model .* yet: [0-9]+ of [0-9]+ candidates' \
    "$elapse" plan $job --set pipeline.balancer=optimal --set pipeline.schedule=auto --set cache.policy=on --cached --frozen 6 --budget 1us
cut_short() {
    "$elapse" plan $long --quiet --sweep train.batch.global=32,64 --budget 200ms "$@" >"$tmp/cut.txt" || return 1
    cat "$tmp/cut.txt"
}
json_cut_short() { cut_short && [ "$(grep -c '"searched":{"complete":false,"judged":[1-9]' "$tmp/cut.txt")" -eq 2 ]; }
verify "plan: rows of a sweep whose search was cut short are marked" json_cut_short
csv_cut_short() { cut_short --csv && head -1 "$tmp/cut.txt" | grep -q ',complete,' && [ "$(grep -c ',false,false,$' "$tmp/cut.txt")" -eq 2 ]; }
verify "plan: so in CSV" csv_cut_short
table_cut_short() { cut_short --table && [ "$(grep -c 'search stopped$' "$tmp/cut.txt")" -eq 2 ]; }
verify "plan: and in a table" table_cut_short
by_deadline() { "$elapse" plan $long --budget 0 --deadline 500ms >"$tmp/deadline.txt" && part_of_search "$tmp/deadline.txt"; }
verify "plan: --deadline ends a search with a plan and its bound" by_deadline
by_ctrl_c() {
    local pid
    set -m # its own process group, where SIGINT is not ignored
    "$elapse" plan $long --budget 0 >"$tmp/stopped.txt" 2>"$tmp/stopped.err" &
    pid=$!
    set +m
    works $pid 2 # it is in the search of our plan; the release's takes no time
    kill -INT $pid
    wait $pid || { cat "$tmp/stopped.err"; return 1; }
    part_of_search "$tmp/stopped.txt"
}
verify "plan: Ctrl-C ends a search with the best plan so far" by_ctrl_c

# A plan that fits without recomputing is not taken if it is slower.
echo '{"model":"gpt2-xl","data":{"kind":"synthetic","train_samples":1024},"train":{"batch":{"global":64},
    "optimizer":{"kind":"adamw"},"dtype":"bf16"},"cluster":{"nodes":1,"devices_per_node":8,"kind":"h100","context":0},
    "pipeline":{"schedule":"auto"}}' >"$tmp/memory.json"
rate() {
    "$elapse" plan "$tmp/memory.json" --no-simulate --json --quiet "$@" | grep -o '"samples_per_s":[0-9.]*' | head -1 | cut -d: -f2
}
more_memory_is_no_slower() {
    local small large auto
    small=$(rate --set cluster.mem=5000MiB) large=$(rate --set cluster.mem=6000MiB)
    auto=$(rate --set cluster.mem=6000MiB --set pipeline.recompute=auto)
    echo "5000 MiB $small, 6000 MiB $large, with recompute auto $auto samples/s"
    awk -v a="$small" -v b="$large" -v c="$auto" 'BEGIN {exit !(b >= a && b >= c)}'
}
verify "plan: more memory makes no plan slower, and fit is as fast as auto" more_memory_is_no_slower

# A job that says nothing of its layout gets every layout searched on GPUs; one that names a schedule does not.
expect "plan: an open job on GPUs may divide what replicas hold" 0 '^  TP 8.*, ZeRO-' \
    "$elapse" plan "$tmp/memory.json" --explain --set cluster.mem=20GiB --set model=llama2-7b --set pipeline='{}'

# The change 7 -> 10 by the release's rule (K 4 -> 2): every trainable item reaches the new
# pipelines once, the transfers add up, and rank 0 of pipeline 0 keeps what it has.
transfers_add_up() {
    "$elapse" plan $job --frozen 10 --from-frozen 7 --json >"$tmp/move.json" || return 1
    sed 's/.*"transition"://' "$tmp/move.json" >"$tmp/move"
    total=$(sed 's/.*"total_bytes":\([0-9]*\).*/\1/' "$tmp/move")
    sum=$(tr '{' '\n' <"$tmp/move" | sed -n 's/.*"to":[0-9]*,"bytes":\([0-9]*\).*/\1/p' |
        awk '{ sum += $1 } END { printf "%d", sum }')
    echo "total $total, sum $sum"
    [ "$total" -gt 0 ] && [ "$total" = "$sum" ]
}
export -f transfers_add_up
check "plan: the transfers of a change add up" bash -c transfers_add_up
expect "plan: the same plan moves nothing" 0 ' 0 B to 0 devices' \
    "$elapse" plan $job --frozen 7 --from-frozen 7
expect "plan: layers never thaw" 2 'must be 0..4' "$elapse" plan $job --frozen 4 --from-frozen 5
all_frozen() {
    echo '{"name":"u","model":{"family":"uniform","layers":4,"fwd":"1ms","bwd_input":"1ms",
        "bwd_weight":"1ms"},"data":{"kind":"synthetic"},"train":{"epochs":1,"batch":
        {"per_pipeline":8}},"cluster":"1x2"}' >"$tmp/uniform.json"
    "$elapse" plan "$tmp/uniform.json" --frozen 4
}
export -f all_frozen
expect "plan: nothing left to train" 1 'leave nothing of model .uniform. to train' \
    bash -c all_frozen
expect "plan: the table over F has a row for it" 0 '^ 4 \| 4 frozen layers leave nothing' \
    "$elapse" plan "$tmp/uniform.json" --all-frozen
expect "plan: the table is of every F" 2 '--all-frozen excludes' \
    "$elapse" plan "$tmp/uniform.json" --all-frozen --frozen 2
expect "plan: a table of extrapolated costs says so" 0 'extrapolated' "$elapse" plan examples/demo.json \
    --all-frozen --set train.batch.global=4096 --set pipeline.num_microbatches=1
expect "plan: a job keeps a layer where no head is left to train" 0 '^ *4 +3 ' \
    "$elapse" sim "$tmp/uniform.json" --set train.epochs=5 --set freeze.policy=closed-form \
    --set freeze.alpha=1/2 --set data.train_samples=64
expect "plan: a missing job" 3 "cannot read 'nosuch.json'" "$elapse" plan nosuch.json
expect "plan: no job" 2 'JOB is missing' "$elapse" plan
expect "plan: a model without a cluster is no job" 2 'JOB is missing' "$elapse" plan --model gpt2
same_without_file() { # MODEL CLUSTER, TRAIN of a job file that says what is assumed without one
    echo '{"model": "'$1'", "cluster": "'$2'", "train": {'$3'"batch": {"global": 16}}}' >"$tmp/short.json"
    cmp <("$elapse" plan "$tmp/short.json" --stages | grep -v judged) \
        <("$elapse" plan --model $1 --cluster $2 --batch 16 --stages | grep -v judged | sed 's/: assumed for a text model .*//')
}
verify "plan: model, cluster and batch need no file" same_without_file gpt2 h100-1x2 '"dtype":"bf16","optimizer":{"kind":"adamw"},'
verify "plan: without bf16 units fp16 is assumed" same_without_file gpt2 t4-1x2 '"dtype":"fp16","optimizer":{"kind":"adamw"},'
verify "plan: of images nothing is assumed" same_without_file vit-tiny h100-1x2 ''
verify "plan: on processors neither" same_without_file gpt2 cpu-1x2 ''
trains() { # LINE ARGS...: what the answer says of dtype and optimizer
    local line=$1
    shift
    "$elapse" plan "$@" --quiet | grep -Fx "$line"
}
echo '{"model": "gpt2", "cluster": "h100-1x2"}' >"$tmp/short.json"
verify "plan: a job file has its own defaults" trains 'dtype fp32, optimizer sgd-momentum' "$tmp/short.json"
short=(--model gpt2 --cluster h100-1x2 --batch 16)
verify "plan: what is assumed, and the options that change it" \
    trains 'dtype bf16, optimizer adamw: assumed for a text model (--dtype, --optimizer)' "${short[@]}"
expect "plan: samples that nobody gave limit no batch" 0 '^PP 1 .*, 20000 in all' "$elapse" plan --model gpt2 --cluster h100-1x2 --batch 20000 \
    --set pipeline.num_stages=1 --quiet
expect "plan: those of an option do" 2 'train.batch of 20000 exceeds the 100 training samples' "$elapse" plan --model gpt2 --cluster h100-1x2 --batch 20000 \
    --set data.train_samples=100
verify "plan: one of them" trains 'dtype fp32, optimizer adamw: the optimizer is assumed for a text model (--optimizer)' \
    "${short[@]}" --dtype fp32
verify "plan: the other" trains 'dtype bf16, optimizer sgd-momentum: the dtype is assumed for a text model (--dtype)' \
    "${short[@]}" --optimizer sgd
verify "plan: none" trains 'dtype fp32, optimizer sgd-momentum' "${short[@]}" --dtype fp32 --optimizer sgd
verify "plan: the model's text has a dtype" trains 'dtype fp16, optimizer adamw: the optimizer is assumed for a text model (--optimizer)' \
    --model gpt2:dtype=fp16 --cluster h100-1x2
verify "plan: a framework does not change that" \
    trains 'dtype bf16, optimizer adamw: assumed for a text model (--dtype, --optimizer)' "${short[@]}" --for torchtitan
assumed() { "$elapse" plan "$@" --json --quiet | python3 -c 'import json, sys; print(*json.load(sys.stdin)["assumed"])'; }
verify "plan: JSON names the keys" eval '[ "$(assumed "${short[@]}")" = "train.dtype train.optimizer.kind" ] && [ -z "$(assumed "$tmp/short.json")" ]'
expect "plan: a sweep says it once" 0 '^elapse: note: dtype bf16, optimizer adamw: assumed' "$elapse" plan "${short[@]}" \
    --sweep train.batch.global=16,32 --csv
expect "plan: a line of JSON has it" 0 '"assumed":\["train.dtype","train.optimizer.kind"\]' "$elapse" plan "${short[@]}" \
    --sweep train.batch.global=16,32 --json
# K = 4 equal stages of f = i = w = 2 ms, M = 8: (M + K - 1)(f + i + w) is 66 ms, (K - 1)(f + i) + M(f + i + w / 2) 52 ms,
# and three messages each way of 5 us 30 us more.
timed=(plan --model uniform:layers=8,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,act=1,params=1 --cluster h100-1x4 --batch 8
    --set pipeline.num_stages=4 --set pipeline.num_microbatches=8 --set pipeline.num_replicas=1 --set pipeline.schedule=gpipe)
expect "plan: timed freezing is said beside the whole step" 0 \
    '^timed freezing: step 21.2 % below 66.0 ms, without 50 % of the weight gradients; by stage 50 50 50 50 %$' \
    "$elapse" "${timed[@]}" --set freeze.max_share=0.5
verify "plan: shares in JSON are those of the plan" eval '"$elapse" "${timed[@]}" --set freeze.max_share=0.5 --json |
    python3 -c "import json, sys; p = json.load(sys.stdin); s = p[\"shares\"]; t = p[\"timed\"]
assert abs(p[\"step_ns\"] - 52.03e6) < 100 and abs(t[\"mean_share\"] - .5) < 1e-5 and p[\"lower_bound_ns\"] == 0 and len(t[\"stages\"]) == 4 and len(s), p"'
explained() { # the first share of each stage
    paste <("$elapse" "${timed[@]}" --set freeze.max_share=0.5 --explain | grep '^stage  *[0-9]*  [0-9]' |
        sed 's/^stage *[0-9]* *//; s/ (x\([0-9]*\))/ \1/g' | head -4) <("$elapse" "${timed[@]}" --set freeze.max_share=0.5 --json |
        python3 -c "import json, sys
for row in json.load(sys.stdin)['shares']: print(round(100 * row[0]))") | awk '{ if ($1 != $NF) exit 1 }'
}
verify "plan: --explain says the shares of JSON" explained
# Weight gradients take 4 of 6 ms in each of the first two items and none of 2 ms in the other six: cut after two, both stages
# take 12 ms. Without any of them they do so after four: (M + K - 1)(f + i) is 72 ms.
python3 - "$tmp/heavy.json" <<'PY'
import json, sys
items = [{"name": "i%d" % i, "layer": i, "params": 1, "act_bytes": 1, "stash_bytes": 1, "fwd_ns": "1ms", "bwd_input_ns": "1ms",
          "bwd_weight_ns": "4ms" if i < 2 else "0ms"} for i in range(8)]
json.dump({"name": "heavy", "per_microbatch": True, "items": items}, open(sys.argv[1], "w"))
PY
heavy=(plan --model "$tmp/heavy.json" --cluster h100-1x2 --batch 8 --set pipeline.num_stages=2 --set pipeline.num_microbatches=8
    --set pipeline.num_replicas=1 --set pipeline.schedule=gpipe)
cut_is() { # CUT ARGS...
    local cut=$1
    shift
    "$elapse" "${heavy[@]}" "$@" --json | python3 -c "import json, sys; p = json.load(sys.stdin); assert p['cut'] == $cut, p['cut']"
}
verify "plan: the cut without shares" cut_is '[2, 6]'
verify "plan: shares move it" cut_is '[4, 4]' --set freeze.max_share=1
expect "plan: to equal stages" 0 '^step 72.0 ms' "$elapse" "${heavy[@]}" --set freeze.max_share=1
expect "plan: no weight gradients, no shares" 2 "freeze.max_share 0.5: the backwards of model 'uniform' have no weight gradients" \
    "$elapse" plan --model uniform:layers=4,fwd=1ms,bwd_input=1ms,bwd_weight=0ms,act=1,params=1 --cluster h100-1x4 --batch 8 \
    --set pipeline.num_stages=4 --set freeze.max_share=0.5
expect "plan: shares settle on the costs of kernels" 0 '^timed freezing: step 1[0-9.]* % below' "$elapse" plan --model llama3-8b \
    --cluster h100-1x4 --batch 32 --set pipeline.num_stages=4 --set pipeline.schedule=1f1b --set freeze.max_share=0.5
short_options_are_keys() {
    local short=(plan --model gpt2 --cluster h100-1x2 --batch 16)
    cmp <("$elapse" "${short[@]}" --seq 512 --tokens 1000000 --dtype bf16 --optimizer adamw --price 2.5 --framework fsdp | grep -v judged) \
        <("$elapse" "${short[@]}" --set model.seq=512 --set train.tokens=1000000 --set train.dtype=bf16 --set train.optimizer.kind=adamw \
            --set cluster.price=2.5 --set train.framework=fsdp | grep -v judged) && echo same
}
export -f short_options_are_keys
expect "plan: short options are their keys" 0 same bash -c short_options_are_keys
expect "plan: --set has the last word over --batch" 0 '16 in all \(GBS\)' "$elapse" plan --model gpt2 \
    --cluster t4-1x2 --batch 8 --set train.batch.global=16
expect "plan: a sweep needs no file" 0 '^ *t4-1x1 ' "$elapse" plan --model gpt2 --cluster t4-1x2 --batch 16 --dtype fp32 --optimizer sgd \
    --sweep cluster=t4-1x2,t4-1x1 --table
expect "plan: an unknown key" 2 "nearest is 'pipeline.num_stages'" \
    "$elapse" plan $job --set pipeline.numstages=3
expect "plan: more stages than items" 1 'must be 1..27' "$elapse" plan $job \
    --set pipeline.num_stages=30
expect "plan: more frozen layers than there are" 1 'must be 0..12' "$elapse" plan $job --frozen 13
expect "plan: too many replicas" 1 '3 replicas of 8 devices' "$elapse" plan $job \
    --set pipeline.num_stages=8 --set pipeline.num_replicas=3
expect "plan: a schedule that wants more micro-batches" 1 "schedule 'dualpipe-v' on 2 ranks needs at least 4 microbatches, got 2" \
    "$elapse" plan examples/demo.json --set pipeline.schedule=dualpipe-v --set pipeline.num_microbatches=2
expect "plan: too little memory for any F keeps its hint" 1 '^hint: use more devices' "$elapse" plan $job $ours --all-frozen \
    --set 'cluster={"nodes":1,"devices_per_node":2,"mem":"1MiB"}'
expect "plan: too little memory" 1 'does not fit' "$elapse" plan $job $ours \
    --set 'cluster={"preset":"rtx5000-1x1","mem":"1GiB"}'
echo '{"data": {"kind": "synthetic", "train_samples": 4096}, "cost": {"source": "kernels"},
 "train": {"batch": {"global": 64}}}' >"$tmp/bare.json"
expect "plan: how many devices are enough" 1 '^hint: 16 such devices are enough$' "$elapse" plan "$tmp/bare.json" \
    --set model=llama3-70b --set cluster=a100-1x8 --set train.dtype=bf16 --set train.optimizer.kind=adamw --set pipeline.offload=none
expect "plan: why devices are idle: links" 0 'idle: 4 of 8 .*: plans that send over the uplinks of 1 Gb/s are slower' \
    "$elapse" plan "$tmp/bare.json" --set model=gpt2 --set cluster=a100-2x4 --set cluster.uplink=1Gbps \
    --set train.batch.global=8
expect "plan: why devices are idle: batch" 0 'idle: .* divides the batch of 9$' "$elapse" plan "$tmp/bare.json" \
    --set model=gpt2 --set cluster=a100-1x8 --set train.batch.global=9 --set pipeline.num_stages=1
expect "plan: fp32 says what bf16 would give" 0 'with train.dtype bf16 this plan reaches [0-9.]+ samples/s, 1[0-9] times' \
    "$elapse" plan "$tmp/bare.json" --set model=gpt2 --set cluster=a100-1x4
expect "plan: listed devices are named, and every note is whole" 0 \
    'on 1 a100, 1 h100, 1 b200 .*device 2 has 300 GiB of memory, a published b200 has [0-9.]+ GiB' \
    sh -c "'$elapse' plan '$tmp/bare.json' --set model=gpt2 --set 'cluster={\"mem\": \"300GiB\", \"devices\":
        [{\"kind\":\"a100\"}, {\"kind\":\"h100\"}, {\"kind\":\"b200\"}]}' | tr '\n' ' '"
expect "plan: an empty stage of the greedy balancer" 1 'leaves stage 1 of 8 empty' \
    "$elapse" plan $job --frozen 8 --set pipeline.num_stages=8
cat >"$tmp/tokens.json" <<'END'
{"model": "gpt2", "train": {"tokens": 1000000000, "dtype": "bf16", "batch": {"global": 64}},
 "cluster": {"preset": "a100-1x8", "price": 2, "power": 500}}
END
expect "plan: the answer comes first, in tokens and shares of the peak" 0 \
    '^step .* samples/s, [0-9]+ tokens/s, [0-9]+ tokens/s a device, [0-9.]+ TFLOP/s a device, [0-9.]+ % MFU$' \
    "$elapse" plan "$tmp/tokens.json"
expect "plan: the whole run has hours, a cost and an energy" 0 '^whole run [0-9.]+ (min|h), [0-9.]+ device hours, cost [0-9.]+, [0-9.]+ kWh$' \
    "$elapse" plan "$tmp/tokens.json"
money() {
    "$elapse" plan "$tmp/tokens.json" --json | sed 's/"released".*//' | tr ',' '\n' >"$tmp/keys"
    awk -F: '{ v[$1] = $2 }
        END { hours = v["\"run_ns\""] / 3.6e12 * 8
              exit !(v["\"tokens_per_s\""] > 0 && v["\"mfu\""] > 0 && v["\"hfu\""] > 0 && hours > 0 &&
                     v["\"cost\""] / hours / 2 - 1 < 1e-9 && v["\"energy_kwh\""] / hours / 0.5 - 1 < 1e-9) }' "$tmp/keys"
}
verify "plan: JSON has rates, cost and energy" money
expect "plan: the release is compared only where layers freeze" 0 '^proven lower bound' "$elapse" plan "$tmp/tokens.json"
check "and not here" bash -c '! grep -q ^released "$tmp/expect.out"'
expect "plan: short words of the field are keys" 0 '^PP 2 x DP 2 x TP 2' \
    "$elapse" plan "$tmp/tokens.json" --set pp=2 --set dp=2 --set tp=2
expect "plan: long pipelines show a few stages" 0 '^  ... 5 more: --stages' "$elapse" plan "$tmp/tokens.json" --set pp=6 --set vp=2 --set dp=1 \
    --set pipeline.schedule=interleaved --set gbs=12 --set pipeline.num_microbatches=12
expect "plan: or all of them" 0 '^   11 ' "$elapse" plan "$tmp/tokens.json" --stages --set pp=6 --set vp=2 --set dp=1 \
    --set pipeline.schedule=interleaved --set gbs=12 --set pipeline.num_microbatches=12
expect "plan: the size of a micro-batch fixes their number for every R" 0 'M 32 micro-batches of 1 .MBS., batch 32 a pipeline, 64 in all' \
    "$elapse" plan "$tmp/tokens.json" --set mbs=1 --set dp=2 --set pp=1 --no-simulate
expect "plan: and leaves R open" 0 'micro-batch(es)? of 8 .MBS.' "$elapse" plan "$tmp/tokens.json" --set mbs=8 --no-simulate
expect "plan: it divides the batch" 2 'train.batch.micro must divide the batch of 64, got 5' "$elapse" plan "$tmp/tokens.json" --set mbs=5
expect "plan: and goes without a number" 2 'got both' "$elapse" plan "$tmp/tokens.json" --set mbs=4 --set pipeline.num_microbatches=4
expect "plan: whose micro-batches a number counts is said" 0 'num_microbatches 8 counts those of all 2 pipelines' \
    "$elapse" plan "$tmp/tokens.json" --set pipeline.num_microbatches=8 --set dp=2 --no-simulate
expect "plan: a list of schedules is all that is tried" 0 '^schedule (zb-h1|gpipe),' "$elapse" plan "$tmp/tokens.json" --no-simulate \
    --set 'pipeline.schedule=["zb-h1","gpipe"]' --set pp=4
expect "plan: no tokens in images" 2 "train.tokens: samples of model 'vit-b16' are not tokens" "$elapse" plan "$tmp/tokens.json" --set model=vit-b16
expect "plan: no negative price" 2 'cluster.price must be' "$elapse" plan "$tmp/tokens.json" --set cluster.price=-1

# A cluster in a file: what it does not say is the usual machine of its kind, and is named.
named() { expect "cluster: $1" 0 "$2" "$elapse" cluster "$tmp/cluster.json"; }
echo '{"kind":"h100","nodes":8,"devices_per_node":8}' >"$tmp/cluster.json"
named "a kind has its usual machine" '^h100-8x8$'
named "its uplink is where it came from" '^  uplink of a node, each direction  *400 GB/s .*DGX H100 data sheet'
echo '{"preset":"a100-2x8","mem":"40GiB"}' >"$tmp/cluster.json"
named "a preset in a file keeps its sources" '^  uplink of a node, each direction  *200 GB/s .*DGX A100 data sheet'
named "and what the file says is the file's" '^  memory  *40(\.0*)? GiB .*cluster.json'
echo '{"devices":[{"kind":"v100","mem":"222GiB"},{"kind":"a100","node":1}]}' >"$tmp/cluster.json"
named "a device's own key is the file's" '^  memory  *222(\.0*)? GiB .*cluster.json'
named "a list has the ports of its kinds" '^  port, each direction  *150 GB/s .*V100 data sheet'
expect "more memory than a kind has is said" 0 'device 0 has 222(\.0*)? GiB of memory, a published v100 has 32(\.0*)? GiB' \
    "$elapse" plan examples/what-if/gpt2-xl.json --quiet --no-simulate --set "cluster=$tmp/cluster.json" --set train.batch.global=4
check "and bf16 where there is none" grep -q 'v100 has no bf16 units' "$tmp/expect.out"
one=("$elapse" plan "$tmp/tokens.json" --no-simulate --set dp=1 --set pp=1 --set tp=1 --set train.dtype=bf16 --set "cluster=$tmp/cluster.json")
echo '{"kind":{"name":"mine","mem":"128GiB","mem_bandwidth":"3670GB/s","link":"525GB/s","peak_bf16":"1835TFLOPS"},"nodes":1,"devices_per_node":1}' >"$tmp/cluster.json"
expect "plan: an MFU that nothing real reaches is of ideal costs" 0 ' (7[5-9]|[89][0-9]).* % MFU [(]ideal costs[)]' "${one[@]}" --set model=llama3-8b
echo '{"kind":"h100","nodes":1,"devices_per_node":1}' >"$tmp/cluster.json"
expect "plan: an MFU of kernels is not" 0 ' % MFU$' "${one[@]}" --set cost.source=kernels
expect "plan: products in fp8" 0 '^dtype fp8,' "${one[@]}" --set train.dtype=fp8
expect "plan: no mxfp8 on an H100" 1 "device kind 'h100' has no mxfp8 units" "${one[@]}" --set train.dtype=mxfp8
expect "train: narrow formats are refused by name" 2 'train.dtype nvfp4 is for plan and sim' "$elapse" train "$tmp/tokens.json" \
    --set train.dtype=nvfp4 --set pp=1 --set dp=1 --set cluster.kind=cpu
host=("$elapse" plan --model llama2-7b --batch 64 --quiet --no-simulate --set train.dtype=bf16 --set train.optimizer.kind=adamw)
expect "plan: where nothing else fits the optimizer is on the host, with its cost" 0 \
    'optimizer in host memory: 75.3 GiB of rank 0; an update takes [0-9.]+ m?s of a step, on the device [0-9.]+ ms' "${host[@]}" --cluster a100-1x1
expect "plan: not where the job says so" 1 'does not fit 1 devices' "${host[@]}" --cluster a100-1x1 --set pipeline.offload=none
expect "plan: nor in a layout that it names" 1 'does not fit 1 devices' "${host[@]}" --cluster a100-1x1 --set pipeline.tensor=1
expect "plan: where a plan fits, no host" 0 '"host":0' bash -c 'printf "\"host\":%s\n" "$("$@" | grep -c host)"' - "${host[@]}" --cluster a100-1x2
expect "plan: torchtitan has no optimizer on the host" 2 'torchtitan does not run pipeline.offload' \
    "${host[@]}" --cluster a100-1x1 --for torchtitan --set pipeline.offload=optimizer
expect "train: offload auto is refused by name" 1 'pipeline.offload is auto: train has no such layouts' \
    "$elapse" train "$tmp/tokens.json" --set pp=1 --set dp=1 --set cluster.kind=cpu --set pipeline.offload=auto
expect "devices: figures that nobody looked up say so" 0 'peak bf16 .*not checked here' "$elapse" devices a30
expect "plan: fixed keys that exclude each other are an answer" 1 'runs no layout that the job allows' \
    "$elapse" plan --model vit-tiny --cluster l4-2x4 --batch 16 --set pipeline.num_stages=1 --set pipeline.tensor=2 \
    --set pipeline.num_microbatches=8 --set pipeline.sequence_parallel=auto --set pipeline.expert=auto
expect "plan: help" 0 'usage: elapse plan' "$elapse" plan --help
finish
