#!/bin/bash
# tests/e2e/e2e_cuda_ptx.sh - the kernels as nvcc compiled them, interpreted (tests/cudasim/cudasim_ptx.h):
# against the cpu backend one by one, in training, and by what they would cost a GPU.
# group: emulated, seconds: 80
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin
build=$(dirname "$(readlink -f "$elapse")")/..
export ELAPSE_CUDA_LIB=$build/cudasim/elapse-cuda-ptx.so
if [ ! -e "$ELAPSE_CUDA_LIB" ]; then
    skip "kernels as nvcc compiled them" "no CUDA toolkit with g++ here, or built with SAN"
    finish
fi

all_kernels() {
    ELAPSE_CUDASIM_COUNTS=$tmp/counts ELAPSE_CUDASIM_LOG=/dev/null CMOCKA_MESSAGE_OUTPUT=STDOUT "$build/tests/test_backend_cuda"
}
verify "every operation of the backend is the cpu backend's, as with the C++ of the kernels" all_kernels

# known_kernels: the whole of a kernel was understood, and nearly all kernels ran
known_kernels() {
    awk '/: launches/ {n++} END {print n + 0 " kernels"; exit !(n >= 165)}' "$tmp/counts"
}
verify "which takes nearly all of the kernels there are" known_kernels

# costs PATTERN SECTORS PASSES: kernels of that name read and write device memory in at most SECTORS
# times the sectors that hold their bytes, and go through shared memory in at most PASSES times the
# passes without a conflict of banks
costs() {
    awk -v pattern="$1" -v sectors="$2" -v passes="$3" '
        /: launches/ && $0 ~ pattern {
            n++
            at = match($0, /device [0-9]+ bytes in [0-9]+/)
            if (at) {split(substr($0, at, RLENGTH), d, " "); if (32 * d[5] > sectors * d[2]) {print; bad = 1}}
            at = match($0, /passes [0-9]+ of [0-9]+/)
            if (at) {split(substr($0, at, RLENGTH), p, " "); if (p[2] > passes * p[4]) {print; bad = 1}}
        }
        END {print n + 0 " kernels"; exit !(n > 0 && !bad)}' "$tmp/counts"
}
verify "activations, 16 bytes a lane: no access comes apart, no lanes meet in a bank" costs 'finish_[a-z_]*<[48],' 1.25 1
verify "fp32 of 8 columns a lane: two accesses of 16 bytes, not eight of 4" costs '(add_runs|sum_samples|norm_[a-z]*ward)<__nv_bfloat16, [2-8]' 2 1.15
verify "sums of columns: no lanes meet in a bank" costs 'column_parts<[48],' 1.25 1
verify "ids sorted: digits lie in different banks" costs '^sort_ids' 4.5 1.6
verify "attention on tensor cores: tiles lie so that lanes do not meet in a bank" costs 'flash_' 1.6 1.2
verify "cross-entropy: whole packs" costs 'xent_rows<(__nv_bfloat16, 8|float, 4)' 1.25 1.1

freezing_vit
sed -i 's/"global": 32/"global": 16/' "$tmp/vit.json"
# small_sums NUM: launches that add a micro-batch's sums to gradients, of a second micro-batch
small_sums() {
    awk -v num="$1" '/^void add_elements<float, 4>.*: launches/ {split($0, w, "launches "); n = w[2] + 0} END {print n + 0 " launches"; exit n != num}' "$tmp/sums"
}
ELAPSE_CUDASIM_COUNTS=$tmp/sums device=cuda train vit vit-sums -n 1 --steps 1 --no-eval \
    --set train.dtype=bf16 --set train.dropout=0 --set train.reduction=fast --set pipeline.num_microbatches=2
verify "gradients of norms and biases: one launch for each of 8 items and the last norm" small_sums 9
like vit gpt '"family": "gpt", "preset": "gpt2", "seq": 40, "hidden": 64, "heads": 2, "mlp": 128, "layers": 2, "vocab": 301' \
    '"kind": "synthetic", "train_samples": 48, "test_samples": 8'
sed -i -e 's/"sgd", "lr": 0.05, "momentum": 0.9/"adamw", "lr": 0.01/' -e '/"freeze"/d' -e 's/"1f1b"},/"1f1b"} }/' "$tmp/gpt.json"
plain=${ELAPSE_CUDA_LIB%-ptx.so}-plain.so
for job in vit gpt; do
    device=cpu train $job $job-cpu -n 1 --steps 2 --no-eval
    device=cuda train $job $job-1 -n 1 --steps 2 --no-eval
    verify "$job: losses are the cpu backend's within 1e-5" near_run $job-cpu $job-1 1e-5
    device=cuda train $job $job-2 -n 2 --steps 2 --no-eval --set pipeline.num_stages=2
    verify "$job: two ranks have the bits of one" same_run $job-1 $job-2
    ELAPSE_CUDA_LIB=$plain device=cuda train $job $job-plain -n 1 --steps 2 --no-eval --set train.dtype=bf16
    device=cuda train $job $job-low -n 1 --steps 2 --no-eval --set train.dtype=bf16
    verify "$job: bf16's losses are within 0.2 % of those of the C++ of the kernels" near_run $job-plain $job-low 2e-3
done
finish
