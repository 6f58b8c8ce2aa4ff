#!/bin/bash
# tests/gpu/gpu_ranks.sh - several ranks on one device, end to end: every schedule and elastic changes give
# the bits of one rank; bf16 stays near fp32; a checkpoint goes on; the cpu backend agrees.
#
#   tests/gpu/gpu_ranks.sh [DEVICE [quick] [nccl]]     cuda (default), or cpu to try the script itself
#
# The messages are staged through the host (mpi). quick: a part of it with smaller models, to try the script.
# nccl: instead of all that, messages from device to device by NCCL, where it takes several ranks of one device,
# which NVIDIA does not support. TAP, for tests/gpu/gpu_check.sh.
. "$(dirname "$0")/../e2e/lib.sh"
. "$(dirname "$0")/../e2e/runs.sh"
begin
device=${1:-cuda}
quick= nccl_only=
[[ " $* " != *" quick "* ]] || quick=yes
[[ " $* " != *" nccl "* ]] || nccl_only=yes
export TEST_TIMEOUT=${TEST_TIMEOUT:-100} # what hangs may not take the time of the rest

cat >"$tmp/vit.json" <<'JOB'
{ "name": "vit",
  "model": {"family": "vit", "preset": "vit-tiny", "image": 16, "patch": 8, "hidden": 64, "heads": 2,
            "mlp": 128, "layers": 8, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 128, "test_samples": 32},
  "train": {"epochs": 4, "batch": {"global": 32}, "clip_norm": 1.0, "dropout": 0.1, "reduction": "canonical",
            "optimizer": {"kind": "adamw", "lr": 0.002, "weight_decay": 0.01},
            "lr_schedule": {"kind": "cosine", "warmup_steps": 3}, "seed": 1},
  "pipeline": {"num_microbatches": 8, "schedule": "1f1b"},
  "freeze": {"policy": "table", "table": [0, 2, 4, 8]} }
JOB
like vit bert '"family": "bert", "preset": "bert-base", "seq": 16, "hidden": 64, "heads": 2, "mlp": 128, "layers": 8, "vocab": 512, "task": "classify", "classes": 2' \
    '"kind": "synthetic", "train_samples": 128, "test_samples": 32'
like vit gpt '"family": "gpt", "preset": "gpt2", "seq": 32, "hidden": 64, "heads": 2, "mlp": 128, "layers": 8, "vocab": 509' \
    '"kind": "synthetic", "train_samples": 128, "test_samples": 32'

ran() { [ -n "$(value "$1" weights_sha256)" ] || { cat "$tmp/$1.err"; tail -n 8 "$tmp/$1"/nccl-*.log 2>/dev/null; false; }; }

short=(--set freeze.policy=none --set train.epochs=1)
jobs=(vit gpt)
kinds=(gpipe 1f1b eager-1f1b zb-h1 zb-h2 interleaved breadth-first looped-bfs zb-v v-half v-min dualpipe-v)
if [ -n "$quick" ]; then
    kinds=(1f1b zb-v)
    jobs=(gpt)
    sed -i 's/"hidden": 64/"hidden": 32/; s/"mlp": 128/"mlp": 64/; s/"layers": 8/"layers": 4/; s/"seq": 32/"seq": 16/; s/509/61/
        s/"train_samples": 128/"train_samples": 64/; s/\[0, 2, 4, 8\]/[0, 1, 2, 4]/' "$tmp"/{vit,bert,gpt}.json
fi

# Each rank says that it is a host of its own. A first run that does not end well stands for all.
nccl_alone() {
    train gpt gpt-1 -n 1 "${short[@]}"
    verify "gpt: one rank trains" ran gpt-1
    nccl=(--set train.transport=nccl)
    NCCL_DEBUG=INFO TEST_TIMEOUT=60 train gpt gpt-nccl -n 4 "${short[@]}" "${nccl[@]}" --set pipeline.num_stages=4
    refused=$(grep -Eio 'no such backend|duplicate gpu[^:]*' "$tmp/gpt-nccl.err" | head -1)
    if [ -n "$refused" ]; then
        skip "nccl: pipelines from device to device" "this machine's NCCL or this build: $refused"
    elif ! ran gpt-nccl >/dev/null 2>&1; then
        verify "nccl: four ranks train" ran gpt-nccl
    else
        verify "nccl: four ranks have the bits of one" same_run gpt-1 gpt-nccl
        kinds=(interleaved zb-v)
        [ -z "$quick" ] || kinds=()
        for kind in "${kinds[@]}"; do
            chunks=()
            [ $kind != interleaved ] || chunks=(--set pipeline.chunks=2)
            train gpt "gpt-nccl-$kind" -n 4 "${short[@]}" "${nccl[@]}" --set pipeline.num_stages=4 --set pipeline.schedule=$kind "${chunks[@]}"
            verify "nccl: $kind on four ranks has the bits of one" same_run gpt-1 "gpt-nccl-$kind"
        done
        train gpt gpt-nccl-sums -n 4 "${short[@]}" "${nccl[@]}" --set pipeline.num_stages=2 --set pipeline.num_replicas=2 --set train.reduction=fast
        verify "nccl: sums over replicas, losses within 1e-4 of one rank's" near_run gpt-1 gpt-nccl-sums 1e-4
        train vit vit-static -n 1 --set cache.policy=off
        train vit vit-nccl-elastic -n 4 "${nccl[@]}" --set 'elastic.stages=[4,4,2,1]' --set cache.policy=on
        verify "nccl: an elastic run has the bits of one rank without elasticity" same_run vit-static vit-nccl-elastic
        [ -z "$quick" ] || return
        ELAPSE_NCCL_AHEAD=off train vit vit-nccl-late -n 4 "${nccl[@]}" --set 'elastic.stages=[4,4,2,1]' --set cache.policy=on
        verify "nccl: so has one whose communicators are made in the change" same_run vit-static vit-nccl-late
    fi
}
if [ -n "$nccl_only" ]; then
    nccl_alone
    finish
fi

# The yardstick, and the cpu backend beside it: fp32 differs by rounding only.
for job in "${jobs[@]}"; do
    train "$job" "$job-1" -n 1 "${short[@]}"
    verify "$job: one rank trains" ran "$job-1"
    [ "$device" = cpu ] || { device=cpu train "$job" "$job-cpu" -n 1 "${short[@]}"; verify "$job: losses are the cpu backend's within 2e-3" near_run "$job-cpu" "$job-1" 2e-3; }
    train "$job" "$job-again" -n 1 "${short[@]}"
    verify "$job: a second run has the same bits" same_run "$job-1" "$job-again"
done

# Pipelines of every schedule, and replicas.
for kind in "${kinds[@]}"; do
    stages=4
    chunks=()
    case $kind in
    interleaved) chunks=(--set pipeline.chunks=2) ;;
    esac
    train gpt "gpt-$kind" -n 4 "${short[@]}" --set pipeline.num_stages=$stages --set pipeline.schedule="$kind" "${chunks[@]}"
    verify "$kind: four ranks have the bits of one" same_run gpt-1 "gpt-$kind"
done
if [ -z "$quick" ]; then
    train gpt gpt-2x2 -n 4 "${short[@]}" --set pipeline.num_stages=2 --set pipeline.num_replicas=2
    verify "two pipelines of two ranks have the bits of one rank" same_run gpt-1 gpt-2x2
    train gpt gpt-recompute -n 2 "${short[@]}" --set pipeline.num_stages=2 --set pipeline.recompute=always
    verify "recompute gives the same bits" same_run gpt-1 gpt-recompute
fi

# Elastic: pipelines shrink, replicas grow, the cache serves what is frozen.
elastic=(vit bert)
[ -n "$quick" ] && elastic=(vit)
for job in "${elastic[@]}"; do
    train "$job" "$job-static" -n 1 --set cache.policy=off
    train "$job" "$job-elastic" -n 4 --set 'elastic.stages=[4,4,2,1]' --set cache.policy=on
    verify "$job: an elastic run has the bits of one rank without elasticity" same_run "$job-static" "$job-elastic"
    verify "$job: it changed its plan three times" \
        test "$(grep -o '"frozen_layers":[0-9]*,"pipeline_length":[0-9]*,"replicas":[0-9]*' "$tmp/$job-elastic/metrics.jsonl" | uniq | wc -l)" -ge 4
    verify "$job: frozen activations came from the cache" test "$(value "$job-elastic" cache_upgrades)" -gt 0
done

# bf16, and tf32 where there are tensor cores.
train gpt gpt-bf16 -n 1 "${short[@]}" --set train.dtype=bf16
verify "bf16: losses are fp32's within 2 %" near_run gpt-1 gpt-bf16 2e-2
train gpt gpt-bf16-4 -n 4 "${short[@]}" --set train.dtype=bf16 --set pipeline.num_stages=4
verify "bf16: four ranks have the bits of one" same_run gpt-bf16 gpt-bf16-4
if [ "$device" = cuda ] && [ -z "$quick" ]; then
    train gpt gpt-tf32 -n 1 "${short[@]}" --set train.dtype=tf32
    verify "tf32: losses are fp32's within 5e-3" near_run gpt-1 gpt-tf32 5e-3
fi

# A checkpoint goes on with the same bits, and on the other device.
train gpt part -n 1 "${short[@]}" --steps 2
train gpt part -n 1 "${short[@]}" --resume "$tmp/part"
verify "a resumed run has the same bits" same_run gpt-1 part

# Faults.
if [ "$device" = cuda ]; then
    expect "too large a batch says what was asked for and what was free" 1 'out of device memory: .* asked for, .* free' \
        "$elapse" train "$tmp/gpt.json" --device cuda -n 1 --out "$tmp/big" "${short[@]}" \
        --set train.batch.global=400000 --set data.train_samples=400000 --set pipeline.num_microbatches=1
    expect "no visible device: one clear line" 3 'cuda: no device' \
        env CUDA_VISIBLE_DEVICES= "$elapse" train "$tmp/gpt.json" --device cuda -n 1 --out "$tmp/none"
fi

finish
