#!/bin/bash
# AutoCache and decisions in mid-epoch end to end: whatever happens to the cache, the run has the bits
# of one rank without it.
# alone: it reaches into runs under way
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin

cat >"$tmp/vit.json" <<'JOB'
{ "name": "vit",
  "model": {"family": "vit", "preset": "vit-tiny", "image": 16, "patch": 8, "hidden": 32, "heads": 2,
            "mlp": 64, "layers": 4, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 160, "test_samples": 20},
  "train": {"epochs": 4, "batch": {"global": 32}, "clip_norm": 1.0, "dropout": 0.1, "reduction": "canonical",
            "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9}, "seed": 1},
  "pipeline": {"num_microbatches": 8, "schedule": "1f1b"},
  "freeze": {"policy": "table", "table": [0, 2]},
  "cache": {"policy": "on"} }
JOB

# Every sample is read three times: 160 are written in epoch 1, 320 read in the others.
train vit plain -n 1 --set cache.policy=off
train vit all -n 2 --set 'elastic.stages=[2,1]'
verify "a cached run has the bits of one without" same_run all plain
verify "all samples are read in every later epoch" has all cache_hits -eq 320
verify "and none is damaged" has all cache_corrupt -eq 0
verify "evaluation meets no cache" calculate "($(value all eval_loss) - $(value plain eval_loss)) ^ 2 < 1e-18"
train vit spread -n 2 --set 'elastic.stages=[2]'
verify "a pipeline that reads the cache has the same bits" same_run spread plain

# The last micro-batch of an epoch is short: where bits depend on the number of rows (BLAS), it meets no cache.
short=(--set data.train_samples=131 --set pipeline.num_microbatches=2)
for gemm in blas own; do
    [ $gemm = blas ] || gemm=
    export ELAPSE_GEMM=$gemm
    train vit "short$gemm-1" -n 1 --set cache.policy=off "${short[@]}"
    train vit "short$gemm-2" -n 2 --set 'elastic.stages=[2]' "${short[@]}"
    if grep -q 'rounds a row by its place' "$tmp/short$gemm-2/summary.json"; then
        verify "short micro-batches leave the losses nearly alone ($gemm)" near_run "short$gemm-2" "short$gemm-1" 1e-4
    else
        verify "short micro-batches leave the bits alone (${gemm:-own products})" same_run "short$gemm-2" "short$gemm-1"
    fi
    [ -z "$gemm" ] || verify "and are not looked up" has "short$gemm-2" cache_hits -lt 262
done
unset ELAPSE_GEMM
expect "a kernel for products that is none" 2 "ELAPSE_GEMM must be one of .*blas, got 'abacus'" env ELAPSE_GEMM=abacus \
    "$elapse" train "$tmp/vit.json" -n 1 --out "$tmp/no"

# In bf16 what lacks is computed alone, where the processor's products allow it.
train vit low-1 -n 1 --set cache.policy=off --set train.dtype=bf16
train vit low-2 -n 2 --set 'elastic.stages=[2,1]' --set train.dtype=bf16 --set cache.limit_bytes=32KB
verify "bf16: half of the samples from the cache, the same bits" same_run low-2 low-1
verify "they were read" has low-2 cache_hits -gt 0
verify "the others were not" has low-2 cache_hits -lt 320

# Less room than samples.
train vit little -n 2 --set 'elastic.stages=[2,1]' --set cache.limit_bytes=90KB
verify "an arena too small for all samples changes no bits" same_run little plain
verify "it says so" says little 'for [0-9]* of 160 samples'
verify "what has room is read" has little cache_hits -gt 0
verify "what has none is computed again" has little cache_hits -lt 320
mkdir "$tmp/disk"
train vit spill -n 2 --set 'elastic.stages=[2,1]' --set cache.limit_bytes=40KB --set cache.spill_dir="$tmp/disk"
verify "samples that spill to a disk change no bits" same_run spill plain
verify "the disk takes what memory does not" has spill cache_hits -eq 320
verify "no file is left on it" test -z "$(ls -A "$tmp/disk")"
train vit bounded -n 2 --set 'elastic.stages=[2,1]' --set cache.limit_bytes=40KB --set cache.spill_dir="$tmp/disk" \
    --set cache.spill_bytes=30KB
verify "a limit on the disk holds" has bounded cache_hits -lt 320
verify "and changes no bits" same_run bounded plain
train vit nodisk -n 2 --set 'elastic.stages=[2,1]' --set cache.limit_bytes=40KB --set cache.spill_dir="$tmp/nowhere"
verify "a disk that is not there is done without, with a note" says nodisk 'nowhere'
verify "and changes no bits" same_run nodisk plain
train vit nodir -n 2 --set 'elastic.stages=[2,1]' --set cache.dir="$tmp/nowhere"
verify "a folder that is not there turns the cache off, with a note" says nodir 'cache off: .*nowhere'
verify "and changes no bits" same_run nodir plain
no_cache() { "$elapse" compare "$tmp/nodir" --json >"$tmp/compare.json" && ! grep -q '"cached":true' "$tmp/compare.json" || { cat "$tmp/compare.json"; false; }; }
verify "compare simulates it without a cache" no_cache
if unshare -rm mount -t tmpfs -o size=1m none "$tmp/disk" 2>/dev/null; then
    unshare -rm bash -c 'mount -t tmpfs -o size=100k none "$1/disk"; shift; exec timeout 100 "$@"' - "$tmp" \
        "$elapse" train "$tmp/vit.json" --out "$tmp/full" --json -n 1 --set cache.dir="$tmp/disk" \
        >"$tmp/full.json" 2>"$tmp/full.err" </dev/null
    verify "a full memory file system is used as far as it goes" says full 'for [0-9]* of 160 samples'
    verify "and changes no bits" same_run full plain
else
    skip "a full memory file system" "this machine lets nobody mount one"
fi

# A run long enough to reach into. wait_steps OUT N: until it has made N steps.
wait_steps() {
    for _ in $(seq 400); do
        [ "$(wc -l 2>/dev/null <"$tmp/$1/metrics.jsonl" || echo 0)" -ge "$2" ] && return 0
        sleep 0.05
    done
    false
}
long=(--set train.epochs=40)
train vit plain40 -n 1 --set cache.policy=off "${long[@]}"
spilled=(--set 'elastic.stages=[2,1]' --set cache.limit_bytes=40KB --set cache.spill_dir="$tmp/disk")
mkdir -p "$tmp/disk"
train vit gone -n 2 "${long[@]}" "${spilled[@]}" &
wait_steps gone 25
rm -rf "$tmp/disk"
wait
verify "the spill's folder removed under way changes no bits" same_run gone plain40
verify "nor does it take the samples" has gone cache_hits -eq 6080
mkdir -p "$tmp/disk"
train vit damaged -n 2 "${long[@]}" "${spilled[@]}" &
wait_steps damaged 25
# The file has no name any more; whoever runs as the same user can still reach its descriptor.
hit=0
link=$(find /proc/[0-9]*/fd -lname "$tmp/disk/elapse-cache-*" 2>/dev/null | head -1)
[ -n "$link" ] && head -c 60000 /dev/urandom | dd of="$link" bs=4096 seek=2 conv=notrunc 2>/dev/null && hit=1
wait
if [ $hit = 1 ]; then
    verify "slots damaged under way change no bits" same_run damaged plain40
    verify "they are counted and computed again" has damaged cache_corrupt -gt 0
    verify "one line says so" test "$(grep -c 'note: cache: [0-9]* damaged samples' "$tmp/damaged.err")" -eq 1
else
    skip "slots damaged under way" "the run's files cannot be reached from outside"
fi

# Views of augmented samples.
augment=(--set data.augment=crop-flip --set cache.policy=auto)
expect "a cache for endless views is refused with the key" 2 "cache.views N" "$elapse" train "$tmp/vit.json" -n 1 \
    --set data.augment=crop-flip --out "$tmp/no"
train vit endless -n 2 "${augment[@]}" --set 'elastic.stages=[2,1]'
verify "auto leaves it off and says why" says endless 'cache off: data.augment .* cache.views'
train vit views-off -n 1 "${augment[@]}" --set cache.policy=off --set cache.views=2 --set train.epochs=6
train vit views-on -n 2 "${augment[@]}" --set cache.policy=on --set cache.views=2 --set train.epochs=6 --set 'elastic.stages=[2,1]'
verify "two views a sample: cached or not, the same bits" same_run views-on views-off
verify "each view is written once and read afterwards" has views-on cache_hits -eq 480
verify "views differ from no augmentation" test "$(value views-off weights_sha256)" != "$(value plain weights_sha256)"

# Decisions every n steps: 5 steps an epoch, so most of them fall into one.
turns=(--set freeze.every_steps=3 --set 'freeze.table=[0,1,1,2,4]')
train vit turns-1 -n 1 --set cache.policy=off "${turns[@]}"
train vit turns-4 -n 4 "${turns[@]}" --set 'elastic.stages=[4,4,2,2,1]'
verify "plans change in mid-epoch" has_shapes turns-4 "0=0:4:1 0=1:4:1 1=1:4:1 1=1:2:2 1=2:2:2 2=2:2:2 2=4:1:4 3=4:1:4 "
verify "changes in mid-epoch keep the bits" same_run turns-4 turns-1
train vit turns-low -n 1 --set cache.policy=off --set train.dtype=bf16 "${turns[@]}"
train vit turns-low-2 -n 2 --set train.dtype=bf16 "${turns[@]}" --set 'elastic.stages=[2,2,2,2,1]'
verify "bf16: samples of a micro-batch at several levels keep the bits" same_run turns-low-2 turns-low
train vit turns-cut -n 4 "${turns[@]}" --set 'elastic.stages=[4,4,2,2,1]' --set train.max_steps=8
timeout 100 "$elapse" train "$tmp/vit.json" -n 2 "${turns[@]}" --set 'elastic.stages=[2,2,2,2,1]' --resume "$tmp/turns-cut" --override \
    --json >"$tmp/resumed.json" 2>"$tmp/resumed.err" </dev/null
verify "a run resumed in mid-turn on fewer ranks has the same bits" test "$(value turns-cut weights_sha256)" = "$(value turns-1 weights_sha256)"
# The same runs simulated: decisions, plans and steps alike, epoch by epoch.
sides() {
    sed 's/"transitions".*//' "$tmp/compare.json" |
        grep -o "\"$1\":{\"frozen_layers\":[0-9]*,\"pipeline_length\":[0-9]*,\"replicas\":[0-9]*,\"microbatches\":[0-9]*,\"steps\":[0-9]*" |
        sed 's/"[a-z_]*"://g; s/[{,]/:/g' | tr '\n' ' '
}
compared() {
    "$elapse" compare "$tmp/$1" --json >"$tmp/compare.json" || return
    [ -n "$(sides real)" ] && [ "$(sides real)" = "$(sides sim)" ] && [ "$(sides real | tr ' ' '\n' | sort -u | sed /^$/d | wc -l)" -gt 1 ] ||
        { sides real; sides sim; false; }
}
verify "compare simulates decisions within an epoch" compared turns-4
train vit turns-most -n 4 "${turns[@]}" --set 'elastic.stages=[4,4,2,2,1]' --set train.max_steps=8
verify "and a run that max_steps ends in one" compared turns-most
train vit free -n 4 --set freeze.policy=gradient-norm --set freeze.alpha=1/2 --set freeze.every_steps=4 --set cache.policy=auto
verify "decisions by norms, every few steps: plans as simulated" compared free
# A turn goes on with the norms that it had, and ends with them where the run stopped at its end.
norms=(--set freeze.policy=gradient-norm --set freeze.alpha=1/2 --set freeze.every_steps=4 --set cache.policy=off)
train vit by-norms -n 1 "${norms[@]}"
for steps in 6 8; do
    train vit stop-$steps -n 1 "${norms[@]}" --steps $steps
    train vit stop-$steps -n 1 "${norms[@]}" --resume "$tmp/stop-$steps"
    verify "a run resumed $((steps % 4)) steps into a turn has the norms of one without a stop" \
        cmp "$tmp/by-norms/norms.json" "$tmp/stop-$steps/norms.json"
    verify "and its bits" same_run by-norms stop-$steps
done
turned() {
    "$elapse" sim "$tmp/vit.json" "${turns[@]}" --set 'elastic.stages=[4,4,2,2,1]' --set cluster=a100-1x8 --json >"$tmp/sim.json" || return
    [ "$(sed 's/"epochs":/\n&/' "$tmp/sim.json" | tail -1 | grep -o '"frozen_layers":[0-9]*,"pipeline_length":[0-9]*,"replicas":[0-9]*' |
        sed 's/"[a-z_]*"://g; s/,/:/g' | tr '\n' ' ')" = "1:4:2 2:2:4 4:1:8 4:1:8 " ] || { cat "$tmp/sim.json"; false; }
}
verify "sim runs a job that decides within epochs" turned
# Per-pipeline batches: the global batch grows in mid-epoch, and still each sample is seen once an epoch.
train vit grow -n 4 "${turns[@]}" --set train.reduction=fast --set 'train.batch={"per_pipeline":12}' --set pipeline.num_microbatches=2 \
    --set 'elastic.stages=[4,2,2,2,1]' --set cache.policy=auto
verify "a global batch that grows in mid-epoch" has_shapes grow \
    "0=0:4:1 0=1:2:2 1=2:2:2 1=4:1:4 2=4:1:4 3=4:1:4 "
verify "and is simulated so" compared grow

# More ranks than an epoch has samples for: 4 pipelines of 60 exceed 160 samples.
train vit many -n 4 --set 'elastic.stages=[4,1]' --set train.reduction=fast --set 'train.batch={"per_pipeline":60}' \
    --set pipeline.num_microbatches=2
verify "replicas stop where samples end" has_shapes many "0=0:4:1 1=2:1:2 2=2:1:2 3=2:1:2 "
verify "a line says why" says many '^note: replicas: before epoch 1: 3 replicas of 60 samples exceed the 160 of an epoch$'
verify "and so does the change" grep -q '3 replicas of 60 samples exceed the 160 of an epoch' "$tmp/many/summary.json"

# All layers frozen: the head alone trains.
head=(--set 'freeze.table=[0,4]')
train vit head-1 -n 1 --set cache.policy=off "${head[@]}"
train vit head-2 -n 2 "${head[@]}" --set 'elastic.stages=[2,1]'
verify "F = L: only the head trains, from the cache, same bits" same_run head-2 head-1
verify "F = L: all samples come from the cache" has head-2 cache_hits -eq 320
train vit head-3 -n 2 "${head[@]}" --set 'elastic.stages=[2]'
verify "F = L: norm and head in two stages" same_run head-3 head-1
finish
