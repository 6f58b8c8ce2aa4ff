#!/bin/bash
# tests/e2e/e2e_cuda_faults.sh - emulated GPUs (tests/cudasim/) and the links between them that fail while other ranks
# wait for them: all end within 10 s, and say why. What else a broken device gets: e2e_cuda.sh, e2e_cuda_nccl.sh.
# alone: ends of runs are timed
# group: emulated
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/cuda_runs.sh"
as_users_wait

train vit static -n 1 "${elastic[@]}" --set cache.policy=off
# A newcomer of a change: what fails there while the others wait for it to take its weights, or to say that it can.
newcomer=("${elastic[@]}" --set 'elastic.stages=[1,2]' --set elastic.auto_dp=false --set cache.policy=off)
ends_in_change() { # FAULT STATUS PATTERN: rank 1 says so, once, and the run goes on from its last checkpoint
    local run=change-$1 begin=$SECONDS
    ELAPSE_CUDASIM_FAULT_RANK=1 ELAPSE_CUDASIM_FAULT=$1 train vit $run -n 2 "${newcomer[@]}" --set train.checkpoint_every_steps=2
    [ $? -eq "$2" ] && [ $((SECONDS - begin)) -le 10 ] && [ "$(grep -Evc '^(hint|note): ' "$tmp/$run.err")" = 1 ] && says $run "^elapse: $3" &&
        train vit $run -n 2 "${newcomer[@]}" --override --resume "$tmp/$run" && same_run static $run || { cat "$tmp/$run.err"; false; }
}
verify "a change for which one rank has no memory ends both" ends_in_change malloc@1 1 'cuda: out of device memory: .* asked for'
verify "so does a device that fails at the first weights that it gets" ends_in_change copy@1 3 'cuda: cudaMemcpyAsync.* uncorrectable ECC error'

with_nccl "links between emulated GPUs that fail"
nccl=(--set train.transport=nccl --set train.epochs=2) # the first steps of a runtime are staged (NEW_PASSES in exec/step/runtime_state.h)
two=("${nccl[@]}" --set pipeline.num_stages=2)
began=$SECONDS
ELAPSE_CUDASIM_FAULT_RANK=0 broken "a launch that fails on one rank, while the others wait for its messages" 3 'unspecified launch failure' \
    launch@450 -n 3 "${nccl[@]}" --set pipeline.num_stages=3
verify "ends all within 10 s" test $((SECONDS - began)) -le 10
timeout 100 "$elapse" train "$tmp/vit.json" --out "$tmp/killed" --device cuda -n 2 "${two[@]}" --set train.epochs=400 >"$tmp/killed.err" 2>&1 </dev/null &
job=$!
for _ in $(seq 200); do
    [ -e "$tmp/killed/metrics.jsonl" ] && [ "$(wc -l <"$tmp/killed/metrics.jsonl")" -ge 2 ] && break
    sleep 0.1
done
victim=
for process in /proc/[0-9]*; do
    tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -q "elapse-exec.*$tmp/killed" &&
        tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -Eqx '(OMPI_COMM_WORLD|PMI)_RANK=1' && victim=${process#/proc/} && break
done 2>/dev/null
began=$SECONDS
[ -z "$victim" ] || kill -KILL "$victim"
wait $job
killed=$?
verify "a killed rank ends the others" test $killed -ne 0 -a $killed -ne 124
verify "within 10 s" test $((SECONDS - began)) -le 10
verify "with the cause" grep -Eiq 'killed|signal 9|remote process exited' "$tmp/killed.err"
finish
