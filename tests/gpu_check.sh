#!/bin/bash
# tests/gpu_check.sh - everything that wants a GPU, in one go: build, the cuda backend against the cpu
# backend, four ranks on one GPU, profile, simulated against real, changes of plan, and the benchmark
# table beside PyTorch, which comes last. For `make gpu-check`.
#
#   tests/gpu_check.sh [PART...]      build tests ranks profile compare change kernels bench (default: all)
#
# GPU_CHECK_OUT     folder of results (default: build/gpu-check): check.json, bench.json, profile.json,
#                   compare.json, change/*/summary.json, a log of each part
# GPU_CHECK_SECONDS time for all of it (default 540); each part has a limit of its own, and beyond it what
#                   the parts behind it do not need, so that a hang costs a part, not the whole
# GPU_CHECK_DEBS    folder of .deb files to unpack and build with (tests/gpu_debs.sh fills one), for a
#                   machine without the packages of tests/deps.sh and without a network
# GPU_CHECK_DEVICE  cuda (default); cpu tries the script itself on any machine, with small models
# PYTHON            of PyTorch (default: python3)
#
# Exit 0: every part passed; 1: one did not; 77: no GPU here (said in one line).
set -u
cd "$(dirname "$0")/.." || exit 3
device=${GPU_CHECK_DEVICE:-cuda}
out=${GPU_CHECK_OUT:-build/gpu-check}
total=${GPU_CHECK_SECONDS:-540}
python=${PYTHON:-python3}
parts=("$@")
all=(build tests ranks profile compare change kernels bench)
declare -A seconds=([build]=200 [tests]=150 [ranks]=150 [profile]=80 [compare]=150 [change]=90 [kernels]=90 [bench]=260)
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")
elapse=${ELAPSE_BIN:-build/bin}/elapse
cores=$(nproc)
end=$((SECONDS + total))

if [ "$device" = cuda ] && ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    echo "gpu-check: no NVIDIA GPU on this machine: skipped"
    exit 77
fi
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 3
rm -f "$out"/{compare,change,kernels,bench}.txt # of an earlier run
export GPU_CHECK_TABLE="$out/bench.txt"
export LC_ALL=C OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONUNBUFFERED=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export TORCHINDUCTOR_CACHE_DIR="$out/.inductor" ELAPSE_DB="$out/profiles.db" ELAPSE_SKIP_DEPS=1

. tests/gpu_env.sh
if [ -n "${GPU_CHECK_DEBS:-}" ]; then
    gpu_env "$GPU_CHECK_DEBS" "${TMPDIR:-/tmp}/elapse-debs" || {
        echo "gpu-check: GPU_CHECK_DEBS: no packages that could be unpacked in '$GPU_CHECK_DEBS' (tests/gpu_debs.sh fills it)" >&2
        exit 3
    }
fi
[ "$device" != cuda ] || gpu_wheels "$python" "${TMPDIR:-/tmp}/elapse-debs"

names=() states=() notes=() spent=()
# What a part left running (a timeout within a timeout has a process group of its own) keeps no GPU.
running=
end_session() {
    local left
    left=$(sed -n "s/^\([0-9]*\) (.*) . [0-9]* [0-9]* $1 .*/\1/p" /proc/[0-9]*/stat 2>/dev/null)
    [ -z "$left" ] || kill -KILL $left 2>/dev/null
}
trap '[ -z "$running" ] || end_session "$running"; exit 130' INT TERM HUP
# part NAME COMMAND...: run it with its log, within GPU_CHECK_LIMIT seconds.
part() {
    local name=$1 began=$SECONDS left=$((end - SECONDS)) limit rc state note failures skipped
    shift
    limit=$(part_limit "$name" "$left")
    export GPU_CHECK_LIMIT=$limit
    if [ "$limit" -lt 5 ]; then
        names+=("$name") states+=("not run") notes+=("no time left") spent+=(0)
        return
    fi
    setsid timeout --kill-after=5 "$limit" "$@" </dev/null >"$out/$name.log" 2>&1 &
    running=$!
    wait "$running"
    rc=$?
    end_session "$running"
    running=
    case $rc in
    0) state=passed note= ;;
    124 | 137) state=failed note="ran past $limit s" ;;
    *) state=failed note="exit $rc: $(grep -vE '^ok\b|^$' "$out/$name.log" | tail -1 | cut -c1-120)" ;;
    esac
    if grep -qE '^(not )?ok\b' "$out/$name.log"; then
        failures=$(grep -E '^not ok\b' "$out/$name.log" | grep -vc '# *SKIP')
        skipped=$(grep -cE '^(not )?ok\b.*# *SKIP' "$out/$name.log")
        [ "$skipped" -eq 0 ] || note="$skipped skipped${note:+; $note}"
        note="$(grep -E '^ok\b' "$out/$name.log" | grep -vc '# *SKIP') passed, $failures failed${note:+, $note}"
        [ "$failures" -eq 0 ] || state=failed
    fi
    names+=("$name") states+=("$state") notes+=("$note") spent+=($((SECONDS - began)))
    printf '%-8s %-7s %4d s  %s\n' "$name" "$state" $((SECONDS - began)) "$note" >&2
    write_results
}
# part_limit NAME LEFT
part_limit() {
    local limit=${seconds[$1]} left=$2 behind=0 other
    for other in "${all[@]}"; do
        [ "$other" = "$1" ] && behind=0 && continue
        wants "$other" && behind=$((behind + seconds[$other]))
    done
    [ $((left - behind)) -le "$limit" ] || limit=$((left - behind))
    [ "$limit" -le "$left" ] || limit=$left
    echo "$limit"
}
# The parts so far as one object.
write_results() {
    local i
    {
        printf '{"schema": 1, "version": "%s", "commit": "%s", "at": "%s", "host": "%s", "seconds": %d,\n "gpu": "%s",\n "parts": [' \
            "$("$elapse" --version 2>/dev/null | head -1)" "$(git rev-parse --short HEAD 2>/dev/null)" "$(date -u +%FT%TZ)" "$(hostname)" $((SECONDS + total - end)) \
            "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -1)"
        for i in "${!names[@]}"; do
            printf '%s\n  {"part": "%s", "state": "%s", "seconds": %d, "note": "%s"}' "$([ "$i" -gt 0 ] && echo ,)" "${names[i]}" "${states[i]}" "${spent[i]}" \
                "$(printf %s "${notes[i]}" | tr -d '"\\' | tr '\n\t' '  ')"
        done
        printf ']}\n'
    } >"$out/check.json"
}
wants() { [[ " ${parts[*]} " == *" $1 "* ]]; }

make_all() {
    local arch list
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '. ')
    export CUDA_ARCH=${CUDA_ARCH:-${arch:-90}}
    list=$(make -s list-tests CUDA_ARCH="$CUDA_ARCH" | grep -E '/test_(backend_cuda|cudnn|parity)$')
    [ -n "$list" ] || { echo "no test to build: MPI, OpenBLAS or cmocka is missing (see make's first line)"; make found; return 1; }
    make -j"$cores" all $list "$(dirname "${list%%[[:space:]]*}")/bench_device" CUDA_ARCH="$CUDA_ARCH"
}
export cores
export -f make_all
binaries() { # those tests that take a device
    find -L "$(dirname "$(readlink -f build/bin)")/tests" -maxdepth 1 -type f -perm -u+x -name "$1" 2>/dev/null | sort
}
run_tests() {
    local rc=0 binary
    export ELAPSE_TEST_DEVICE=$1 CMOCKA_MESSAGE_OUTPUT=TAP
    shift
    [ $# -gt 0 ] || { echo "not ok - no such test was built"; return 1; }
    for binary in "$@"; do
        timeout -k 5 120 "$binary" || { rc=1; echo "not ok - $(basename "$binary") as a whole"; }
    done
    return $rc
}
export -f run_tests

# PyTorch 2, whose attention is fused: an older one is no peer.
has_torch() { "$python" -c 'import torch.nn.functional as f; f.scaled_dot_product_attention' 2>/dev/null; }
wants build && part build bash -c make_all
# PyTorch compiles its models meanwhile, for the batches of the timed runs: what it compiles is kept.
if wants bench && [ "$device" = cuda ] && has_torch; then
    warm_end=$((SECONDS + total / 2))
    for model in gpt2 bert-base vit-b16 bert-large; do
        [ $((warm_end - SECONDS)) -gt 5 ] || break
        timeout -k 5 $((warm_end - SECONDS)) "$python" tests/bench/bench_torch_gpu.py "$model" --steps 1 --warm-up 1 >"$out/warm-$model.log" 2>&1
    done &
    warming=$!
fi
wants tests && part tests bash -c 'run_tests "$@"' - "$device" $(binaries test_backend_cuda) $(binaries test_cudnn) $(binaries test_parity)
wants ranks && part ranks tests/gpu_ranks.sh "$device"

case $device in
cuda) model=bert-base:task=classify,seq=128,classes=2,dtype=bf16 dtype=bf16 sizes=16,32,64 batch=64 frozen=6 ;;
*) model=vit-tiny:image=16,patch=8,hidden=64,heads=2,mlp=128,layers=2,classes=10 dtype=fp32 sizes=2,4,8 batch=8 frozen=1 ;;
esac
[ -n "${warming:-}" ] && wait "$warming"
wants profile && part profile bash -c '"$0" profile --device "$1" --model "$2" --microbatches "$3" --quick -n 1 --name "gpu-check-$1" --json >"$4/profile-run.json" &&
    "$0" profiles export "gpu-check-$1" >"$4/profile.json"' "$elapse" "$device" "$model" "$sizes" "$out"
# One rank, K = 1: micro-batch sizes, recompute, a frozen prefix, the cache; simulated from the profile
# just measured.
cat >"$out/compare-job.json" <<JOB
{ "name": "gpu-compare", "model": "${model%,dtype=*}",
  "data": {"kind": "synthetic", "train_samples": $((batch * 4)), "test_samples": $batch},
  "train": {"epochs": 100, "batch": {"per_pipeline": $batch}, "dtype": "$dtype", "device": "$device",
            "optimizer": {"kind": "adamw", "lr": 1e-4}, "seed": 1},
  "freeze": {"policy": "none"} }
JOB
wants compare && part compare bash -c '"$0" compare --matrix "$1/compare-job.json" -n 1 --stages 1 --replicas 1 --microbatches 1,2,4 --schedules gpipe \
    --recompute never,always --frozen 0,$3 --cache off,on --steps 12 --repeats 1 --json >"$1/compare.json" && "$2" tests/bench/compare_table.py "$1/compare.json" >"$1/compare.txt"' \
    "$elapse" "$out" "$python" "$frozen"
# What a change of plan takes: AdamW, four ranks, K 4-4-2-1, through the host and, where it serves ranks
# that share a device, by NCCL.
case $device in
cuda) model=vit-s16:classes=10 batch=64 pieces=8 transports=(mpi nccl) ;;
*) pieces=2 transports=(mpi) ;;
esac
cat >"$out/change-job.json" <<JOB
{ "name": "gpu-change", "model": "$model",
  "data": {"kind": "synthetic", "train_samples": $((batch * 24)), "test_samples": $batch},
  "train": {"epochs": 4, "batch": {"global": $batch}, "dtype": "$dtype", "device": "$device", "eval_every_epochs": 0,
            "optimizer": {"kind": "adamw", "lr": 1e-4}, "seed": 1},
  "pipeline": {"num_microbatches": $pieces},
  "freeze": {"policy": "table", "table": [0, 1, 1, 2]}, "elastic": {"stages": [4, 4, 2, 1]}, "cache": {"policy": "off"} }
JOB
change() { # OUT ELAPSE PYTHON TRANSPORT...
    local out=$1 elapse=$2 python=$3 transport failed=0 done=()
    shift 3
    for transport; do
        rm -rf "$out/change/$transport"
        if timeout -k 5 40 "$elapse" train "$out/change-job.json" -n 4 --set train.transport="$transport" --out "$out/change/$transport" --json >/dev/null 2>"$out/change/$transport.err"; then
            done+=("$out/change/$transport/summary.json")
        elif [ "$transport" != mpi ] && grep -Ei 'no such backend|duplicate gpu' "$out/change/$transport.err"; then
            echo "$transport: not between ranks of one device here"
        else
            cat "$out/change/$transport.err"
            echo "$transport: failed, or ran past 40 s"
            failed=1
        fi
    done
    [ ${#done[@]} -gt 0 ] && "$python" tests/bench/change_table.py "${done[@]}" >"$out/change.txt" && return $failed
    return 1
}
export -f change
mkdir -p "$out/change"
wants change && part change bash -c 'change "$@"' - "$out" "$elapse" "$python" "${transports[@]}"
# The kernels by themselves, against the device's own copy and matrix product; attention by cuDNN too.
[ "$device" = cuda ] && shrink=1 || shrink=256
wants kernels && part kernels bash -c '"$1" "$2" "$3" "$4" >"$5/kernels.txt" && ! grep skipped "$5/kernels.txt"' - "$(binaries bench_device)" "$device" "$dtype" "$shrink" "$out"
if wants bench; then
    case $device in
    cuda) bench=() ;;
    *) bench=(--only tiny --no-compile --dtype fp32) ;;
    esac
    has_torch || bench+=(--no-torch)
    part bench bash -c '"$0" "$@" --budget $((GPU_CHECK_LIMIT - 10)) >"$GPU_CHECK_TABLE"' "$python" tests/bench/bench_gpu.py --elapse "$elapse" --out "$out" --device "$device" "${bench[@]}"
fi

write_results
rm -rf "$out/.inductor"
bad=0
for i in "${!names[@]}"; do
    [ "${states[i]}" = passed ] && continue
    bad=1
    [ -s "$out/${names[i]}.log" ] && { echo "--- ${names[i]}"; grep -E -A6 '^not ok' "$out/${names[i]}.log" | grep -v '# *SKIP' | head -30; tail -5 "$out/${names[i]}.log"; }
done
echo
for i in "${!names[@]}"; do
    printf '%-8s %-8s %4d s  %s\n' "${names[i]}" "${states[i]}" "${spent[i]}" "${notes[i]}"
done
[ -s "$out/compare.txt" ] && { echo; cat "$out/compare.txt"; }
[ -s "$out/change.txt" ] && { echo; cat "$out/change.txt"; }
[ -s "$out/kernels.txt" ] && { echo; cat "$out/kernels.txt"; }
[ -s "$out/bench.txt" ] && { echo; cat "$out/bench.txt"; }
exit $bad
