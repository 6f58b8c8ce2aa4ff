#!/bin/bash
# tests/e2e_cuda.sh - `elapse train --device cuda` end to end on emulated GPUs (tests/cudasim/): ViT,
# BERT and GPT on 1 to 4 ranks, schedules, an elastic run, resume, NCCL, and what a broken device gets.
# tests/gpu_ranks.sh asks more of a real one. Work of the device comes late (STREAMS=1) and threads
# in another order on some runs: same bits.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin
sim=$(dirname "$(readlink -f "$elapse")")/../cudasim/elapse-cuda-plain.so
if [ ! -e "$sim" ]; then
    skip "training on emulated GPUs" "no CUDA toolkit with g++ here, or built with SAN"
    finish
fi
export ELAPSE_CUDA_LIB=$sim ELAPSE_DB="$tmp/profiles.db" # no store: plans come from the shipped profiles
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

cat >"$tmp/vit.json" <<'JOB'
{ "name": "vit",
  "model": {"family": "vit", "preset": "vit-tiny", "image": 16, "patch": 8, "hidden": 32, "heads": 2,
            "mlp": 64, "layers": 4, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 48, "test_samples": 8},
  "train": {"epochs": 1, "batch": {"global": 16}, "clip_norm": 1.0, "dropout": 0.1, "reduction": "canonical",
            "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9}, "seed": 1},
  "pipeline": {"num_microbatches": 4, "schedule": "1f1b"} }
JOB
like vit bert '"family": "bert", "preset": "bert-base", "seq": 16, "hidden": 32, "heads": 2, "mlp": 64, "layers": 2, "vocab": 512, "task": "classify", "classes": 2' \
    '"kind": "synthetic", "train_samples": 32, "test_samples": 8'
sed -i 's/"sgd", "lr": 0.05, "momentum": 0.9/"adamw", "lr": 0.002/' "$tmp/bert.json"
like vit gpt '"family": "gpt", "preset": "gpt2", "seq": 24, "hidden": 32, "heads": 1, "mlp": 64, "layers": 2, "vocab": 301' \
    '"kind": "synthetic", "train_samples": 32, "test_samples": 8'
sed -i 's/"sgd", "lr": 0.05, "momentum": 0.9/"lamb", "lr": 0.01/' "$tmp/gpt.json"

device=cuda

# in_turn FILE: compute ops of a Chrome trace, a rank's and step's in turn, within 2 us
in_turn() {
    sed -n '/"cat":"compute"/s/.*"tid":\([0-9]*\),"ts":\([-0-9.]*\),"dur":\([-0-9.]*\).*"step":\([0-9]*\).*/\1 \2 \3 \4/p' "$1" >"$tmp/ops"
    awk '{lane = $1 " " $4; if ($3 <= 0 || (lane in end && $2 < end[lane] - 2)) bad = 1; end[lane] = $2 + $3; n++}
        END {print n " ops"; exit !(n >= 16 && !bad)}' "$tmp/ops" || { head -60 "$tmp/ops"; false; }
}

# Messages and sums from device to device, by a stand-in for NCCL in the same object.
for job in vit gpt; do train $job $job-1 -n 1; done
elastic=(--set train.epochs=3 --set freeze.policy=table --set "freeze.table=[0,2,3]")
train vit static -n 1 "${elastic[@]}" --set cache.policy=off
broken() { local name=$1 status=$2 pattern=$3 fault=$4; shift 4; ELAPSE_CUDASIM_FAULT=$fault expect "$name" "$status" "$pattern" "$elapse" train "$tmp/vit.json" --out "$tmp/broken-$fault" --device cuda --json "$@"; }
if grep -q ncclCommSplit "$sim"; then
    export ELAPSE_NCCL_LIB=$sim
    nccl=(--set train.transport=nccl)
    two=("${nccl[@]}" --set pipeline.num_stages=2)
    for kind in gpipe zb-h2 zb-v dualpipe-v; do
        train vit nccl-$kind -n 2 "${two[@]}" --set pipeline.schedule=$kind
        verify "nccl: $kind on two ranks has the bits of one" same_run vit-1 nccl-$kind
    done
    verify "nccl: a log of each rank beside the run's files" test -s "$tmp/nccl-gpipe/nccl-0.log" -a -s "$tmp/nccl-gpipe/nccl-1.log"
    ELAPSE_CUDASIM_STREAMS=1 train vit nccl-zb-h1 -n 4 "${nccl[@]}" --set pipeline.num_stages=4 --set pipeline.schedule=zb-h1
    verify "nccl: zb-h1 on four ranks has the bits of one, work done late" same_run vit-1 nccl-zb-h1
    ELAPSE_CUDASIM_STREAMS=7 train vit nccl-interleaved -n 2 "${two[@]}" --set pipeline.schedule=interleaved --set pipeline.chunks=2 --set pipeline.recompute=always
    verify "nccl: interleaved with recompute has the bits of one, work done at random times" same_run vit-1 nccl-interleaved
    train gpt nccl-gpt -n 3 "${nccl[@]}" --set pipeline.num_stages=3
    verify "nccl: gpt on three ranks, its table exchanged, has the bits of one" same_run gpt-1 nccl-gpt
    train vit nccl-2x2 -n 4 "${two[@]}" --set pipeline.num_replicas=2
    verify "nccl: two pipelines of two ranks, canonical sums, have the bits of one rank" same_run vit-1 nccl-2x2
    fast=(--set pipeline.num_stages=1 --set pipeline.num_replicas=2 --set train.reduction=fast)
    train vit fast-mpi -n 2 "${fast[@]}"
    ELAPSE_CUDASIM_STREAMS=1 train vit fast-nccl -n 2 "${nccl[@]}" "${fast[@]}"
    verify "nccl: sums over two replicas are those of mpi" same_run fast-mpi fast-nccl
    ELAPSE_NCCL_AHEAD=off train vit nccl-elastic -n 2 "${nccl[@]}" "${elastic[@]}" --set 'elastic.stages=[2,2,1]' --set cache.policy=on
    verify "nccl: an elastic run has the bits of one rank" same_run static nccl-elastic
    # What a change will need is made beside the steps in front of it, on ranks without a place too.
    long=("${elastic[@]}" --set data.train_samples=128 --set train.batch.global=8)
    train vit static-long -n 1 "${long[@]}" --set cache.policy=off
    ELAPSE_CUDASIM_STREAMS=5 train vit nccl-ahead -n 3 "${nccl[@]}" "${long[@]}" --set 'elastic.stages=[3,2,3]'
    verify "nccl: communicators made ahead, one rank idle for a while: the bits of one rank" same_run static-long nccl-ahead
    links() { tr -d ' \t\n' <"$tmp/nccl-ahead/summary.json" | grep -o "\"communicators_$1\":[0-9]*" | sed -n "$2s/.*://p"; }
    verify "nccl: the change to two ranks finds all that it needs" test "$(links ready 1)" -ge 2 -a "$(links made 1)" = 0
    verify "nccl: the one back finds the link of two ranks, and some that the idle rank helped to make" test "$(links ready 2)" -gt 1
    ELAPSE_NCCL_AHEAD=maybe expect "nccl: ELAPSE_NCCL_AHEAD is on or off" 2 'must be on or off' "$elapse" train "$tmp/vit.json" --device cuda -n 2 "${two[@]}" --out "$tmp/maybe"
    train vit nccl-short -n 2 "${nccl[@]}" "${elastic[@]}" --set 'elastic.stages=[2,1]' --steps 2
    verify "nccl: a run that ends while some are being made" same_run nccl-short nccl-short
    train vit nccl-part -n 3 "${nccl[@]}" --set pipeline.num_stages=3 --steps 2
    train vit nccl-part -n 2 "${two[@]}" --resume "$tmp/nccl-part"
    verify "nccl: a checkpoint goes on at another K with the same bits" same_run vit-1 nccl-part
    # A link that fails, and a rank that is gone: all end within 10 s, and say why.
    began=$SECONDS
    ELAPSE_CUDASIM_FAULT_RANK=0 broken "nccl: a launch that fails on one rank, while the others wait for its messages" 3 'unspecified launch failure' \
        launch@100 -n 3 "${nccl[@]}" --set pipeline.num_stages=3
    verify "nccl: ends all within 10 s" test $((SECONDS - began)) -le 10
    ELAPSE_CUDASIM_FAULT_RANK=1 broken "nccl: a message that fails on one rank ends both" 3 'nccl|NCCL' nccl@30 -n 2 "${two[@]}"
    # What fails on one rank before all go on to wait for it in NCCL: the lane of all ranks, of a group.
    for n in 2 3; do
        ELAPSE_CUDASIM_FAULT_RANK=1 broken "nccl: no lane $n on one rank ends both" 1 'cudaStreamCreateWithPriority.* failed: out of memory' stream@$n -n 2 "${two[@]}"
    done
    timeout 100 "$elapse" train "$tmp/vit.json" --out "$tmp/killed" --device cuda -n 2 "${two[@]}" --set train.epochs=400 >"$tmp/killed.err" 2>&1 </dev/null &
    job=$!
    for _ in $(seq 200); do
        [ -e "$tmp/killed/metrics.jsonl" ] && [ "$(wc -l <"$tmp/killed/metrics.jsonl")" -ge 2 ] && break
        sleep 0.1
    done
    victim=
    for process in /proc/[0-9]*; do
        tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -q "elapse-exec.*$tmp/killed" &&
            tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx 'OMPI_COMM_WORLD_RANK=1' && victim=${process#/proc/} && break
    done 2>/dev/null
    began=$SECONDS
    [ -z "$victim" ] || kill -KILL "$victim"
    wait $job
    killed=$?
    verify "nccl: a killed rank ends the others" test $killed -ne 0 -a $killed -ne 124
    verify "nccl: within 10 s" test $((SECONDS - began)) -le 10
    verify "nccl: with the cause" grep -Eiq 'killed|signal 9|remote process exited' "$tmp/killed.err"
else
    skip "nccl between emulated GPUs" "no NCCL headers here"
fi

broken "no device" 3 'cuda: (this machine has no NVIDIA driver|no device)' no-device -n 1
CUDA_VISIBLE_DEVICES= broken "no visible device" 3 "cuda: no device .CUDA_VISIBLE_DEVICES=''." none -n 1
broken "a driver that is too old" 3 'cuda: the driver is for CUDA 11.8' old-driver -n 1
broken "no memory left: what was asked for and what was free" 1 'cuda: out of device memory: .* asked for, .* free' malloc -n 1
ELAPSE_CUDASIM_FAULT_RANK=1 broken "no memory left on one of two ranks: before the first step" 1 'cuda: out of device memory: .* asked for' malloc@1 -n 2
verify "no step was made" test ! -s "$tmp/broken-malloc@1/metrics.jsonl"
verify "the hint names what takes less" grep -q 'num_microbatches or pipeline.recompute' "$tmp/expect.err"
ELAPSE_CUDASIM_FAULT=malloc@2 expect "no memory left for a change of plan" 1 'cuda: out of device memory: .* asked for' \
    "$elapse" train "$tmp/vit.json" --out "$tmp/no-growth" --device cuda -n 2 "${elastic[@]}" --set 'elastic.stages=[2,2,1]' --json
broken "a launch that fails names the kernel" 3 'cuda: .* failed: unspecified launch failure' launch@40 -n 1
broken "an ECC error" 3 'uncorrectable ECC error' ecc@3 -n 1
ELAPSE_CUDASIM_FAULT_RANK=1 broken "a launch that fails on one of two ranks ends both" 3 'unspecified launch failure' launch@41 -n 2
ELAPSE_CUDASIM_MEMORY=$((8 << 20)) expect "a device that is too small" 1 'cuda: out of device memory' \
    "$elapse" train "$tmp/vit.json" --out "$tmp/small" --device cuda -n 1
ELAPSE_CUDA_LIB=$tmp/none.so expect "a build without the backend" 1 "this build has no (cuda|such) backend" \
    "$elapse" train "$tmp/vit.json" --out "$tmp/none" --device cuda -n 1
finish
