#!/bin/bash
# tests/e2e/e2e_cuda_ahead.sh - communicators of NCCL's stand-in (tests/cudasim/) that are made beside the steps in front of a
# change of plan.
# alone: links made beside the steps of a run want cores
# group: emulated
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/cuda_runs.sh"
with_nccl "nccl between emulated GPUs"
nccl=(--set train.transport=nccl)
# Communicators of a change are made beside the steps before it, on ranks without a place too.
long=("${elastic[@]}" --set data.train_samples=128 --set train.batch.global=8)
train vit static-long -n 1 "${long[@]}" --set cache.policy=off
ELAPSE_CUDASIM_STREAMS=5 train vit nccl-ahead -n 3 "${nccl[@]}" "${long[@]}" --set 'elastic.stages=[3,2,3]'
verify "communicators made ahead, one rank idle for a while: the bits of one rank" same_run static-long nccl-ahead
links() { tr -d ' \t\n' <"$tmp/nccl-ahead/summary.json" | grep -o "\"communicators_$1\":[0-9]*" | sed -n "$2s/.*://p"; }
verify "the change to two ranks finds all that it needs" test "$(links ready 1)" -ge 2 -a "$(links made 1)" = 0
verify "the one back finds the link of two ranks, and some that the idle rank helped to make" test "$(links ready 2)" -gt 1
train vit static-short -n 1 "${elastic[@]}" --set cache.policy=off --steps 2
train vit nccl-short -n 2 "${nccl[@]}" "${elastic[@]}" --set 'elastic.stages=[2,1]' --steps 2
verify "a run that ends while some are being made has the bits of one rank" same_run static-short nccl-short
finish
