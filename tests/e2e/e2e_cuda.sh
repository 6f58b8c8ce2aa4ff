#!/bin/bash
# tests/e2e/e2e_cuda.sh - a smoke of training on emulated GPUs (tests/cudasim/): ViT, GPT, a Llama with windows, two ranks, NCCL,
# bf16, an elastic run with a cache, a run whose every access is checked, and devices that fail.
# The rest: test_backend_cuda, e2e_cuda_train.sh, e2e_cuda_found.sh, e2e_cuda_nccl.sh, e2e_cuda_ahead.sh, e2e_cuda_faults.sh.
# seconds: 24
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/cuda_runs.sh"

# in_turn FILE: compute ops of a Chrome trace, a rank's and step's in turn, within 2 us
in_turn() {
    sed -n '/"cat":"compute"/s/.*"tid":\([0-9]*\),"ts":\([-0-9.]*\),"dur":\([-0-9.]*\).*"step":\([0-9]*\).*/\1 \2 \3 \4/p' "$1" >"$tmp/ops"
    awk '{lane = $1 " " $4; if ($3 <= 0 || (lane in end && $2 < end[lane] - 2)) bad = 1; end[lane] = $2 + $3; n++}
        END {print n " ops"; exit !(n >= 16 && !bad)}' "$tmp/ops" || { head -60 "$tmp/ops"; false; }
}

for job in vit gpt llama; do
    device=cpu train $job $job-cpu -n 1
    train $job $job-1 -n 1
    verify "$job: losses are the cpu backend's within 1e-5" near_run $job-cpu $job-1 1e-5
done
train gpt gpt-bf16 -n 1 --set train.dtype=bf16
verify "gpt: losses in bf16 are fp32's within 1 %" near_run gpt-1 gpt-bf16 1e-2
decoder_in_bf16 llama
# Work of the device that comes late changes nothing.
ELAPSE_CUDASIM_STREAMS=1 train vit vit-gpipe -n 2 --set pipeline.num_stages=2 --set pipeline.schedule=gpipe --trace "$tmp/trace.json"
verify "vit: gpipe on two ranks has the bits of one, work done late" same_run vit-1 vit-gpipe
verify "vit: a trace of its ops has each after the other on the device" in_turn "$tmp/trace.json"
# Elastic: pipelines shrink, a replica joins, the cache serves what is frozen.
train vit static -n 1 "${elastic[@]}" --set cache.policy=off
train vit elastic -n 2 "${elastic[@]}" --set 'elastic.stages=[2,2,1]' --set cache.policy=on
verify "elastic: the bits of one rank without elasticity and cache" same_run static elastic
verify "elastic: frozen activations came from the cache" test "$(value elastic cache_upgrades)" -gt 0

# Messages between devices, and every access looked at: what two lanes or the host share with no wait between.
if grep -q ncclCommSplit "$sim"; then
    train vit few-twice -n 1 "${few[@]}" --set train.epochs=2 # the first steps of a runtime are staged (lane-4)
    ELAPSE_NCCL_LIB=$sim train vit nccl-2 -n 2 "${few[@]}" --set train.transport=nccl --set train.epochs=2 --set pipeline.num_stages=2
    verify "nccl: two ranks have the bits of one" same_run few-twice nccl-2
else
    skip "nccl between emulated GPUs" "no NCCL headers here"
fi
train vit few -n 1 "${few[@]}"
ordered few-staged few vit few-staged -n 2 "${few[@]}" --set pipeline.num_stages=2

broken "no device" 3 'cuda: (this machine has no NVIDIA driver|no device)' no-device -n 1
broken "no memory left: what was asked for and what was free" 1 'cuda: out of device memory: .* asked for, .* free' malloc -n 1
broken "a launch that fails names the kernel" 3 'cuda: .* failed: unspecified launch failure' launch@40 -n 1
finish
