#!/bin/bash
# tests/e2e/e2e_cuda_nccl.sh - messages and sums from device to device (train.transport: nccl), between emulated
# GPUs (tests/cudasim/) and by a stand-in for NCCL in the same object: schedules, sums, and links that fail.
# Communicators made ahead of a change of plan: e2e_cuda_ahead.sh.
# group: emulated, seconds: 65
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/cuda_runs.sh"
with_nccl "nccl between emulated GPUs"
twice=(--set train.epochs=2) # the first steps of a runtime are staged (NEW_PASSES in exec/step/runtime_state.h)
nccl=(--set train.transport=nccl "${twice[@]}")
train vit vit-twice -n 1 "${twice[@]}"
train gpt gpt-twice -n 1 "${twice[@]}"
two=("${nccl[@]}" --set pipeline.num_stages=2)
for kind in gpipe zb-h2 zb-v dualpipe-v; do
    train vit nccl-$kind -n 2 "${two[@]}" --set pipeline.schedule=$kind
    verify "$kind on two ranks has the bits of one" same_run vit-twice nccl-$kind
done
# A kernel's first launch waits for the device's work, which may wait for peers: no ranks may wait in a ring.
for kind in 1f1b interleaved; do
    chunks=1
    [ $kind = interleaved ] && chunks=2
    ELAPSE_CUDASIM_LOADS=1 train vit nccl-loads-$kind -n 2 "${two[@]}" --set pipeline.schedule=$kind --set pipeline.chunks=$chunks
    verify "$kind with kernels loaded when they come has the bits of one" same_run vit-twice nccl-loads-$kind
done
# The third batch of an epoch has 2 samples, half a micro-batch: products of new shapes behind the first steps.
rest=(--set data.train_samples=26)
train vit vit-rest -n 1 "${rest[@]}" "${twice[@]}"
ELAPSE_CUDASIM_LOADS=1 train vit nccl-rest -n 2 "${two[@]}" "${rest[@]}"
verify "so has a batch of other sizes than the plan's" same_run vit-rest nccl-rest
verify "a log of each rank beside the run's files" test -s "$tmp/nccl-gpipe/nccl-0.log" -a -s "$tmp/nccl-gpipe/nccl-1.log"
ELAPSE_CUDASIM_STREAMS=1 train vit nccl-zb-h1 -n 4 "${nccl[@]}" --set pipeline.num_stages=4 --set pipeline.schedule=zb-h1
verify "zb-h1 on four ranks has the bits of one, work done late" same_run vit-twice nccl-zb-h1
ELAPSE_CUDASIM_STREAMS=7 train vit nccl-interleaved -n 2 "${two[@]}" --set pipeline.schedule=interleaved --set pipeline.chunks=2 --set pipeline.recompute=always
verify "interleaved with recompute has the bits of one, work done at random times" same_run vit-twice nccl-interleaved
train gpt nccl-gpt -n 3 "${nccl[@]}" --set pipeline.num_stages=3
verify "gpt on three ranks, its table exchanged, has the bits of one" same_run gpt-twice nccl-gpt
train vit nccl-2x2 -n 4 "${two[@]}" --set pipeline.num_replicas=2
verify "two pipelines of two ranks, canonical sums, have the bits of one rank" same_run vit-twice nccl-2x2
fast=(--set pipeline.num_stages=1 --set pipeline.num_replicas=2 --set train.reduction=fast)
train vit fast-mpi -n 2 "${fast[@]}" "${twice[@]}"
ELAPSE_CUDASIM_STREAMS=1 train vit fast-nccl -n 2 "${nccl[@]}" "${fast[@]}"
verify "sums over two replicas are those of mpi" same_run fast-mpi fast-nccl
train vit static -n 1 "${elastic[@]}" --set cache.policy=off
ELAPSE_NCCL_AHEAD=off train vit nccl-elastic -n 2 "${nccl[@]}" "${elastic[@]}" --set 'elastic.stages=[2,2,1]' --set cache.policy=on
verify "an elastic run has the bits of one rank" same_run static nccl-elastic
train vit few-twice -n 1 "${few[@]}" "${twice[@]}"
ordered few-links few-twice vit few-links -n 2 "${few[@]}" "${two[@]}"
train gpt few-gpt -n 1 --set data.train_samples=12 --set train.epochs=3
ordered few-tied few-gpt gpt few-tied -n 2 --set data.train_samples=12 "${two[@]}" --set train.epochs=3
train vit few-fast -n 2 "${few[@]}" "${twice[@]}" "${fast[@]}"
ordered few-sums few-fast vit few-sums -n 2 "${few[@]}" "${nccl[@]}" "${fast[@]}"
ELAPSE_NCCL_AHEAD=maybe expect "ELAPSE_NCCL_AHEAD is on or off" 2 'must be on or off' "$elapse" train "$tmp/vit.json" --device cuda -n 2 "${two[@]}" --out "$tmp/maybe"
train vit nccl-part -n 3 "${nccl[@]}" --set pipeline.num_stages=3 --steps 2
train vit nccl-part -n 2 "${two[@]}" --resume "$tmp/nccl-part" --override
verify "a checkpoint goes on at another K with the same bits" same_run vit-twice nccl-part
ELAPSE_CUDASIM_FAULT_RANK=1 broken "a message that fails on one rank ends both" 3 'nccl|NCCL' nccl@30 -n 2 "${two[@]}"
# One rank fails before the others wait for it in NCCL: in the lane of all ranks, and of a group.
for n in 2 3; do
    ELAPSE_CUDASIM_FAULT_RANK=1 broken "no lane $n on one rank ends both" 1 'cudaStreamCreateWithPriority.* failed: out of memory' stream@$n -n 2 "${two[@]}"
done
finish
