#!/bin/bash
# tests/gpu/part.sh NAME - one part of tests/gpu/gpu_check.sh, which sets the environment: device, size, out, elapse,
# programs, python, and seconds, after which it kills this script. Answers go to $out, a table of some lines to
# $out/NAME.txt. Exit 77: this machine has not what the part needs; the last line says what.
set -u
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
began=$SECONDS
left() { echo $((seconds - (SECONDS - began))); }
# libraries COMMAND...: a program of ours that is not `elapse`, which finds the bundle's libraries by itself.
libraries() { if [ -e run ]; then ./run "$@"; else "$@"; fi; }

quick=
[ "$size" = full ] || quick=quick
case $device-$size in
cuda-full) model=bert-base:task=classify,seq=128,classes=2 dtype=bf16 sizes=16,32,64 batch=64 frozen=6 kernels=(1)
    decoder=llama3.2-1b:seq=512,layers=12,hidden=768,heads=12,kv_heads=4,mlp=2048,vocab=32000 ;;
*-small) model=vit-tiny:image=8,patch=4,hidden=16,heads=1,mlp=16,layers=2,classes=10 dtype=fp32 sizes=4 batch=8 frozen=1 kernels=(4096 1)
    decoder=llama3.2-1b:seq=8,layers=1,hidden=16,heads=2,kv_heads=1,mlp=16,vocab=16 ;;
esac

# A third of the time for each program at most, but the last may take what is left.
part_tests() {
    local name rc=0 behind=3 share
    export ELAPSE_TEST_DEVICE=${GPU_CHECK_TEST_DEVICE-$device} CMOCKA_MESSAGE_OUTPUT=TAP
    [ -n "$ELAPSE_TEST_DEVICE" ] || unset ELAPSE_TEST_DEVICE
    rm -f "$out/failed-tests.txt"
    for name in test_parity test_cudnn test_backend_cuda; do
        share=$(($(left) / behind--))
        [ -x "$programs/tests/$name" ] || { echo "not ok - $name was not built"; rc=1; continue; }
        libraries timeout -k 2 "$share" "$programs/tests/$name" >"$out/$name.tap" 2>&1
        case $? in
        0) ;;
        124 | 137) rc=1; echo "not ok - $name ran past $share s" ;;
        *) rc=1; grep -q '^not ok' "$out/$name.tap" || echo "not ok - $name as a whole" ;;
        esac
        cat "$out/$name.tap"
        sed -n "s/^not ok [0-9]* - \([a-z0-9_]*\).*/$name \1/p" "$out/$name.tap" >>"$out/failed-tests.txt"
    done
    return $rc
}

part_kernels() {
    libraries "$programs/tests/bench_device" "$device" "$([ "$device" = cuda ] && echo bf16 || echo fp32)" "${kernels[@]}" >"$out/kernels.txt" || return 1
    ! grep skipped "$out/kernels.txt"
}

part_bench() {
    local options
    read -ra options <<<"${GPU_CHECK_BENCH:-}"
    [ "$size" = full ] || options=(--only tiny --only tiny-llama --no-compile)
    [ "$device" = cuda ] || options+=(--dtype fp32)
    "$python" -c 'import torch.nn.functional as f; f.scaled_dot_product_attention' 2>/dev/null || options+=(--no-torch)
    "$python" tests/bench/bench_gpu.py --elapse "$elapse" --out "$out" --device "$device" --budget $(($(left) - 3)) "${options[@]}" >"$out/bench.txt"
}

part_ranks() {
    TEST_TIMEOUT=60 ELAPSE_BIN=$(dirname "$elapse") tests/gpu/gpu_ranks.sh "$device" $quick
}

# BERT and a Llama. Layers are alike, so a small model is measured with one.
part_profile() {
    "$elapse" profile --device "$device" --model "${model/layers=2/layers=1},dtype=$dtype" --microbatches "$sizes" --quick -n 1 --name "gpu-check-$device" --json >"$out/profile-run.json" &&
        "$elapse" profiles export "gpu-check-$device" >"$out/profile.json" &&
        "$elapse" profile --device "$device" --model "$decoder,dtype=$dtype" --microbatches "$sizes" --quick -n 1 --name "gpu-check-$device-llama" --json >"$out/profile-llama-run.json" &&
        "$elapse" profiles export "gpu-check-$device-llama" >"$out/profile-llama.json"
}

# One rank, K = 1: micro-batch sizes, recompute, a frozen prefix, the cache, simulated from the profile of the part above.
part_compare() {
    cat >"$out/compare-job.json" <<JOB
{ "name": "gpu-compare", "model": "$model",
  "data": {"kind": "synthetic", "train_samples": $((batch * 4)), "test_samples": $batch},
  "train": {"epochs": 100, "batch": {"per_pipeline": $batch}, "dtype": "$dtype", "device": "$device",
            "optimizer": {"kind": "adamw", "lr": 1e-4}, "seed": 1},
  "freeze": {"policy": "none"} }
JOB
    "$elapse" compare --matrix "$out/compare-job.json" -n 1 --stages 1 --replicas 1 --microbatches 1,2,4 --schedules gpipe \
        --recompute never,always --frozen 0,$frozen --cache off,on --steps 12 --repeats 1 --json >"$out/compare.json" || return 1
    "$python" tests/bench/compare_table.py "$out/compare.json" >"$out/compare.txt"
}

# The time of a change of plan: AdamW, four ranks, K 4-4-2-1.
change_by() { # TRANSPORT
    local vit=$model pieces=2
    [ "$size" = full ] && vit=vit-s16:classes=10 pieces=8
    mkdir -p "$out/change"
    cat >"$out/change-job.json" <<JOB
{ "name": "gpu-change", "model": "$vit",
  "data": {"kind": "synthetic", "train_samples": $((batch * 24)), "test_samples": $batch},
  "train": {"epochs": 4, "batch": {"global": $batch}, "dtype": "$dtype", "device": "$device", "eval_every_epochs": 0,
            "optimizer": {"kind": "adamw", "lr": 1e-4}, "seed": 1},
  "pipeline": {"num_microbatches": $pieces},
  "freeze": {"policy": "table", "table": [0, 1, 1, 2]}, "elastic": {"stages": [4, 4, 2, 1]}, "cache": {"policy": "off"} }
JOB
    rm -rf "$out/change/$1"
    "$elapse" train "$out/change-job.json" -n 4 --set train.transport="$1" --out "$out/change/$1" --json >/dev/null 2>"$out/change/$1.err" ||
        { cat "$out/change/$1.err"; return 1; }
}
part_change() {
    change_by mpi && "$python" tests/bench/change_table.py "$out/change/mpi/summary.json" >"$out/change.txt"
}

# The time that checkpoints take from the steps beside them: GPT-2 with AdamW, one rank; the next one is due when the last is on disk.
part_save() {
    local model=gpt2:seq=1024 batch=16 every=160
    [ "$size" = full ] || every=10 model=gpt2:seq=8,layers=1,hidden=16,heads=1,mlp=16,vocab=16 batch=4
    cat >"$out/save-job.json" <<JOB
{ "name": "gpu-save", "model": "$model",
  "data": {"kind": "synthetic", "train_samples": $((batch * every * 3)), "test_samples": $batch},
  "train": {"epochs": 1, "batch": {"per_pipeline": $batch}, "dtype": "$dtype", "device": "$device", "checkpoint_every_steps": $every, "eval_every_epochs": 0,
            "optimizer": {"kind": "adamw", "lr": 1e-4}, "seed": 1},
  "pipeline": {"num_stages": 1, "num_replicas": 1, "num_microbatches": 1, "schedule": "gpipe"} }
JOB
    rm -rf "$out/save-run"
    "$elapse" train "$out/save-job.json" -n 1 --out "$out/save-run" --json >"$out/save.json" || return 1
    "$python" -c 'import json, sys
summary = json.load(open(sys.argv[1]))
saves, steps = summary["checkpoints"], sorted(row["step_ns"] for row in map(json.loads, open(sys.argv[2])) if "step_ns" in row)
print("%d checkpoints of %.0f MiB: on disk after %.2f s, the steps waited %.1f ms each (%.1f at most); a step takes %.1f ms, median" % (
    saves["count"], saves["copy_bytes"] / 2**20, saves["write_ns"] / 1e9 / saves["count"], saves["stall_ns"] / 1e6 / saves["count"],
    saves["longest_stall_ns"] / 1e6, steps[len(steps) // 2] / 1e6))' "$out/save.json" "$out/save-run/metrics.jsonl" >"$out/save.txt" || return 1
    rm -rf "$out/save-run"
}

# PyTorch's own steps beside predictions from a profile that the bridge makes: K = 1, M = 1, 2, 4.
part_torch() {
    local ran=0 m plan=$out/torch/plan.json
    export PYTHONPATH=$PWD/bridge/torch ELAPSE_BIN=$(dirname "$elapse") PYTHONDONTWRITEBYTECODE=1 ELAPSE_TORCH_SIZE=$size
    "$python" -c 'import sys, torch; sys.exit(torch.__version__ < "2.4")' 2>/dev/null || { echo "no PyTorch of 2.4 or later here"; return 77; }
    mkdir -p "$out/torch"
    "$python" -m elapse_torch profile tests/gpu/torch_model.py --device "$device" --microbatches 4,8,16 --ranks 1 --batch 16 -o "$out/torch" >"$out/torch.txt" || return 1
    for m in 1 2 4; do
        "$elapse" plan "$out/torch/job.json" --set pipeline.num_stages=1 --set pipeline.num_microbatches=$m -o "$plan" >/dev/null || return 1
        timeout -k 2 "$(left)" "$python" -m torch.distributed.run --standalone --nproc-per-node 1 -m elapse_torch run tests/gpu/torch_model.py "$plan" \
            --device "$device" --check --out "$out/torch/run-$m.json" >>"$out/torch.txt" && ran=$((ran + 1))
    done
    [ $ran -eq 3 ]
}

# sanitize LOG COMMAND...
sanitize() {
    local log=$1 rc
    shift
    libraries timeout -k 2 "$(($(left) / behind--))" "$sanitizer" --tool memcheck --error-exitcode 9 "$@" >"$out/$log" 2>&1
    rc=$?
    case $rc in
    0) echo "ok - $log: nothing found" ;;
    9) echo "not ok - $log: compute-sanitizer found errors"; grep -m 12 -E '^=========' "$out/$log" ;;
    124 | 137) echo "ok - $log # SKIP ran out of time" ;;
    *) echo "not ok - $log: exit $rc"; tail -5 "$out/$log" ;;
    esac
}
# The programs that failed in the part tests, or that GPU_CHECK_TESTS names, run once more under compute-sanitizer; else a training step does.
part_sanitizer() {
    local program test behind
    sanitizer=$(find_tool compute-sanitizer) || { echo "no compute-sanitizer on this machine"; return 77; }
    if [ -n "${GPU_CHECK_TESTS:-}" ]; then
        printf '%s\n' "test_backend_cuda $GPU_CHECK_TESTS" "test_cudnn $GPU_CHECK_TESTS" >"$out/sanitized.txt"
    else
        head -4 "$out/failed-tests.txt" >"$out/sanitized.txt" 2>/dev/null
    fi
    behind=$(wc -l <"$out/sanitized.txt")
    export ELAPSE_TEST_DEVICE=${GPU_CHECK_TEST_DEVICE-$device} CMOCKA_MESSAGE_OUTPUT=TAP
    [ -n "$ELAPSE_TEST_DEVICE" ] || unset ELAPSE_TEST_DEVICE
    if [ "$behind" -eq 0 ]; then
        behind=1
        step_job
        rm -rf "$out/step-run"
        sanitize sanitizer-step.log --target-processes all "$elapse" train "$out/step-job.json" -n 1 --steps 2 \
            --set train.batch.per_pipeline=2 --no-eval --out "$out/step-run"
    fi
    while read -r program test; do
        ELAPSE_TEST_FILTER=$test sanitize "sanitizer-$program-${test//[^a-zA-Z0-9_]/}.log" "$programs/tests/$program"
    done <"$out/sanitized.txt"
    rm -rf "$out/step-run"
}

find_tool() {
    local at
    for at in "$(command -v "$1" 2>/dev/null)" /usr/local/cuda/bin/"$1" /opt/nvidia/nsight-*/*/"$1" /opt/nvidia/nsight-*/*/bin/"$1"; do
        [ -n "$at" ] && [ -x "$at" ] && { echo "$at"; return; }
    done
    return 1
}

# Two layers have every kernel of the whole model, at its size, in a tenth of the launches.
step_job() {
    local model=gpt2:seq=1024,layers=2 batch=16
    [ "$size" = full ] || model=gpt2:seq=8,layers=1,hidden=16,heads=1,mlp=16,vocab=16 batch=4
    cat >"$out/step-job.json" <<JOB
{ "name": "gpu-step", "model": "$model",
  "data": {"kind": "synthetic", "train_samples": $((batch * 8)), "test_samples": $batch},
  "train": {"epochs": 1, "batch": {"per_pipeline": $batch}, "dtype": "bf16", "device": "$device",
            "optimizer": {"kind": "adamw", "lr": 1e-4}, "seed": 1},
  "pipeline": {"num_stages": 1, "num_replicas": 1, "num_microbatches": 1, "schedule": "gpipe"} }
JOB
}
# One training step by kernel: our own trace, Nsight Systems' sums, Nsight Compute's rates of each kernel.
part_step() {
    local train ncu nsys rc=0 tools=0
    rm -rf "$out/step-run"
    step_job
    train=("$elapse" train "$out/step-job.json" -n 1 --no-eval --out "$out/step-run")
    "${train[@]}" --steps 8 --trace-steps 2 --trace "$out/step-trace.json" --json >"$out/step-summary.json" || return 1
    rm -rf "$out/step-run" # a run folder is used once
    if nsys=$(find_tool nsys); then
        tools=$((tools + 1))
        timeout -k 2 $(($(left) / 3)) "$nsys" profile -t cuda -s none --force-overwrite true -o "$out/step" "${train[@]}" --steps 4 &&
            timeout -k 2 20 "$nsys" stats --report cuda_gpu_kern_sum --format csv "$out/step.nsys-rep" >"$out/step-nsys.csv" || rc=1
        rm -rf "$out/step-run"
    fi
    if ncu=$(find_tool ncu); then # the clocks stay as they are, and the first step is left out by its launches
        tools=$((tools + 1))
        timeout -k 5 $(($(left) - 10)) "$ncu" --target-processes all --clock-control none --section SpeedOfLight --section LaunchStats \
            --section Occupancy --launch-skip 120 --launch-count 160 --force-overwrite -o "$out/step" "${train[@]}" --steps 4 &&
            "$ncu" --import "$out/step.ncu-rep" --page raw --csv >"$out/step-ncu.csv" &&
            "$python" tests/gpu/ncu_table.py "$out/step-ncu.csv" >"$out/step.txt" || rc=1
    fi
    rm -rf "$out/step-run"
    [ $tools -gt 0 ] || echo "no ncu and no nsys here: step-trace.json is all there is"
    return $rc
}

# NVIDIA does not support several ranks of one GPU in one communicator.
part_nccl() {
    local rc=0
    export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
    TEST_TIMEOUT=60 ELAPSE_BIN=$(dirname "$elapse") timeout -k 2 $(($(left) - 30)) tests/gpu/gpu_ranks.sh "$device" nccl $quick || rc=1
    if change_by nccl; then
        "$python" tests/bench/change_table.py "$out/change/"{mpi,nccl}/summary.json >"$out/change.txt" 2>/dev/null ||
            "$python" tests/bench/change_table.py "$out/change/nccl/summary.json" >"$out/change.txt"
    elif grep -qEi 'no such backend|duplicate gpu' "$out/change/nccl.err"; then
        echo "nccl: not between ranks of one device here"
    else
        rc=1
    fi
    return $rc
}

part_"$1"
