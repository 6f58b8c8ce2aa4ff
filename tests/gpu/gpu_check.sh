#!/bin/bash
# tests/gpu/gpu_check.sh - everything that only a GPU can show, in three calls of nine minutes (docs/gpu.md
# says how to spend them). For `make gpu-check`, and for the scripts of `make gpu-bundle`.
#
#   tests/gpu/gpu_check.sh [first|second|third|PART...]      default: all parts in order
#
#   first    tests (the cuda backend beside the cpu backend), kernels, bench (the table beside PyTorch)
#   second   ranks (several on one GPU), profile, compare (simulated and real), change (of plan)
#   third    sanitizer (tests that failed, once more), step (one training step by kernel), nccl
#   Alone: torch (the bridge's predictions beside PyTorch's own steps)
#
# A part ends when the budget table says so, whatever ran before it: no part starts late. What one part
# does not use, the next ones may. The table comes first, the results come last, on stdout and in one archive.
#
# GPU_CHECK_OUT      folder of results (default: build/gpu-check), kept from call to call
# OUT                folder that results.tar.gz goes to (default: GPU_CHECK_OUT); below 16 MiB
# GPU_CHECK_SECONDS  time of the whole call (default: the table's sum); the parts are scaled to it
# GPU_CHECK_DEVICE   cuda (default), or cpu to try the scripts on any machine
# GPU_CHECK_SIZE     full (default on cuda) or small
# GPU_CHECK_TESTS    pattern of the tests for the part sanitizer, such as 'attention*'
# GPU_CHECK_BENCH    options of tests/bench/bench_gpu.py for the part bench, such as '--only gpt2 --no-torch'
# PYTHON             that has PyTorch (default: python3)
#
# Exit 0: every part passed; 1: one did not; 3: nothing here can run; 77: no GPU (one line says so).
set -u
cd "$(dirname "$0")/../.." || exit 3
root=$PWD
call_began=$SECONDS
. tests/gpu/look.sh
. tests/gpu/budget.sh

export LC_ALL=C PYTHONUNBUFFERED=1 ELAPSE_SKIP_DEPS=1
export device=${GPU_CHECK_DEVICE:-cuda} python=${PYTHON:-python3}
case $device in cuda) size=${GPU_CHECK_SIZE:-full} ;; *) size=${GPU_CHECK_SIZE:-small} ;; esac
export size out=${GPU_CHECK_OUT:-$root/build/gpu-check}
call=${1:-all}
case $call in
first) parts=(tests kernels bench) ;;
second) parts=(ranks profile compare change) ;;
third) parts=(sanitizer step nccl) ;;
all) parts=(tests kernels bench ranks profile compare change torch sanitizer step nccl) ;;
*) parts=("$@") call=parts ;;
esac
for part in "${parts[@]}"; do
    [ -n "${promised[$part]:-}" ] || {
        echo "gpu-check: no call or part '$part': first second third ${!promised[*]}" >&2
        exit 2
    }
done

if [ "$device" = cuda ] && ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    echo "gpu-check: no NVIDIA GPU on this machine: skipped"
    exit 77
fi
mkdir -p "$out" "${OUT:=$out}" && out=$(cd "$out" && pwd) && OUT=$(cd "$OUT" && pwd) || exit 3
export ELAPSE_DB="$out/profiles.db" TORCHINDUCTOR_CACHE_DIR=${TMPDIR:-/tmp}/elapse-inductor
names=() states=() notes=() spent=() started=()
running=

# A process that a part left running keeps the GPU: a timeout within a timeout has a process group of its own, so
# the part's session is ended as a whole.
end_session() {
    local left
    left=$(sed -n "s/^\([0-9]*\) (.*) . [0-9]* [0-9]* $1 .*/\1/p" /proc/[0-9]*/stat 2>/dev/null)
    [ -z "$left" ] || kill -KILL $left 2>/dev/null
}
trap '[ -z "$running" ] || end_session "$running"; [ -z "${warming:-}" ] || end_session "$warming"; exit 130' INT TERM HUP

# run_part NAME DEADLINE COMMAND...: its log into $out/NAME.log, its answer into names, states, notes, spent.
run_part() {
    local name=$1 deadline=$2 began=$SECONDS limit rc state note failures skipped
    shift 2
    limit=$((deadline - SECONDS - KILL_SECONDS))
    if [ "$limit" -lt 1 ]; then
        names+=("$name") states+=("not run") notes+=("no time left") spent+=(0) started+=($((began - call_began)))
        return
    fi
    rm -f "$out/$name.txt"
    seconds=$limit setsid timeout --kill-after=$KILL_SECONDS "$limit" "$@" </dev/null >"$out/$name.log" 2>&1 &
    running=$!
    wait "$running"
    rc=$?
    end_session "$running"
    running=
    case $rc in
    0) state=passed note= ;;
    77) state=skipped note=$(tail -1 "$out/$name.log" | cut -c1-120) ;;
    124 | 137) state=failed note="ran past $limit s" ;;
    *) state=failed note="exit $rc: $(grep -vE '^ok\b|^#|^$' "$out/$name.log" | tail -1 | tr -s ' ' | cut -c1-120)" ;;
    esac
    if grep -qE '^(not )?ok\b' "$out/$name.log"; then
        failures=$(grep -E '^not ok\b' "$out/$name.log" | grep -vc '# *SKIP')
        skipped=$(grep -cE '^(not )?ok\b.*# *SKIP' "$out/$name.log")
        [ "$skipped" -eq 0 ] || note="$skipped skipped${note:+; $note}"
        note="$(grep -E '^ok\b' "$out/$name.log" | grep -vc '# *SKIP') passed, $failures failed${note:+, $note}"
        [ "$failures" -eq 0 ] || state=failed
    fi
    names+=("$name") states+=("$state") notes+=("$note")
    spent+=($((SECONDS - began))) started+=($((began - call_began)))
    printf '%-10s %-7s %4d s  %s\n' "$name" "$state" $((SECONDS - began)) "$note" >&2
    write_results
}

# The parts so far as one object.
write_results() {
    local i
    {
        printf '{"schema": 1, "call": "%s", "version": "%s", "commit": "%s", "at": "%s", "host": "%s", "seconds": %d,\n "gpu": "%s",\n "parts": [' \
            "$call" "$("$elapse" --version 2>/dev/null | head -1)" "$(commit_of_tree)" "$(date -u +%FT%TZ)" "$(hostname)" $((SECONDS - call_began)) \
            "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -1)"
        for i in "${!names[@]}"; do
            printf '%s\n  {"part": "%s", "state": "%s", "promised_s": %d, "started_s": %d, "seconds": %d, "note": "%s"}' "$([ "$i" -gt 0 ] && echo ,)" \
                "${names[i]}" "${states[i]}" "${promised[${names[i]}]}" "${started[i]}" "${spent[i]}" \
                "$(printf %s "${notes[i]}" | tr -d '"\\' | tr '\n\t' '  ')"
        done
        printf ']}\n'
    } >"$out/check-$call.json"
}

# PyTorch compiles its models while the tests run, for the batches of the timed runs, and keeps what it compiled.
warm_torch() {
    local model
    for model in "$@"; do
        "$python" tests/bench/bench_torch_gpu.py ${model/@/ --batch } --steps 1 --warm-up 1 >"$out/warm-${model%@*}.log" 2>&1
    done
}
export -f warm_torch

look "$call" || exit 3
budget "$((SECONDS - call_began))" "${parts[@]}"
print_budget
for part in "${parts[@]}"; do
    if [ "$part" = tests ] && [[ " ${parts[*]} " = *" bench "* ]] && [ "$size" = full ] && has_torch; then
        setsid bash -c 'warm_torch "$@"' - llama-1b llama gpt2@64 bert-base vit-b16 bert-large gpt2@16 &
        warming=$!
    fi
    run_part "$part" $((call_began + ends[$part])) tests/gpu/part.sh "$part"
    # Kernels are timed on a card of their own.
    [ -z "${warming:-}" ] || { end_session "$warming"; warming=; }
done
write_results
print_results
"$python" tests/gpu/pack.py "$out" "$OUT/results.tar.gz"
for state in "${states[@]}"; do
    case $state in passed | skipped) ;; *) exit 1 ;; esac
done
