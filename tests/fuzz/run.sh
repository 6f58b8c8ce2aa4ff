#!/bin/bash
# tests/fuzz/run.sh - fuzz the parsers of foreign input; for `make fuzz`.
#
#   tests/fuzz/run.sh PROGRAM SECONDS [PARSER...]      all parsers, if none is named
#
# Each parser runs for SECONDS on the inputs of tests/fuzz/corpus/PARSER and tests/fuzz/found/PARSER, FUZZ_JOBS
# parsers side by side (as many as there are cores). SECONDS 0: these inputs only. Inputs that reach new code go
# to build/fuzz/PARSER and are used again by the next run. Words of the inputs are the dictionary. A finding is
# kept as build/fuzz/PARSER-KIND-HASH: mend the cause, and move it to tests/fuzz/found/PARSER/, which
# tests/fuzz/test_fuzz.c replays. build/fuzz/log.tsv gets a line for each run: date, parser, seconds by the clock,
# executions, seconds of the processor.
# One TAP line for each parser.
set -u
cd "$(dirname "$0")/../.." || exit 3
program=$PWD/$1 seconds=$2
shift 2
[ $# -gt 0 ] || mapfile -t all < <("$program" -names=1)
[ $# -gt 0 ] || set -- "${all[@]}"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:max_allocation_size_mb=4096
export ASAN_SYMBOLIZER_PATH=${ASAN_SYMBOLIZER_PATH:-$(command -v llvm-symbolizer llvm-symbolizer-14 | head -1)}
jobs=${FUZZ_JOBS:-$(nproc)} found=build/fuzz/.found
mkdir -p build/fuzz
rm -f "$found"
# libFuzzer ends a program that has a finding, or that is interrupted, without calling its exit handlers.
# Their scratch folders lie in this one, which is in memory where that is possible.
[ -n "${TMPDIR:-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/elapse-fuzz.XXXXXX") || exit 3
export TMPDIR
trap 'for job in $(jobs -p); do pkill -P "$job"; done; wait; rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT TERM

# dictionary PARSER: every word of its inputs that is text
dictionary() {
    grep -ohaE '"[A-Za-z_][A-Za-z0-9_.-]{1,40}"|[A-Za-z_]{3,40}' tests/fuzz/corpus/"$1"/* |
        sed -E 's/^"(.*)"$/"\\"\1\\""/; t; s/.*/"&"/' | sort -u
}

one() {
    local name=$1 kept=build/fuzz/$1 log=build/fuzz/$1.log begin=$SECONDS rc runs TIMEFORMAT='%U %S'
    local options=(-max_len=8192 -timeout=25 -rss_limit_mb=3072 -malloc_limit_mb=2048 -print_final_stats=1
        -artifact_prefix="build/fuzz/$name-")
    mkdir -p "$kept" tests/fuzz/found/"$name"
    dictionary "$name" >"$kept.dict"
    [ ! -s "$kept.dict" ] || options+=(-dict="$kept.dict")
    if [ "$seconds" -eq 0 ]; then options+=(-runs=0); else options+=(-max_total_time="$seconds"); fi
    options+=("$kept" tests/fuzz/corpus/"$name" tests/fuzz/found/"$name")
    { time ELAPSE_FUZZ=$name "$program" "${options[@]}" >"$log" 2>&1; } 2>"$kept.time"
    rc=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf '%s\t%s\t%s\t%s\t%s\n' "$(date -u +%FT%T)" "$name" $((SECONDS - begin)) "${runs:-?}" \
        "$(awk '{print $1 + $2}' "$kept.time")" >>build/fuzz/log.tsv
    rmdir --ignore-fail-on-non-empty tests/fuzz/found/"$name"
    if [ $rc -eq 0 ]; then
        echo "ok - fuzz $name: ${runs:-?} executions"
    else
        echo "not ok - fuzz $name (exit $rc, log $log)"
        grep -aE -A 12 'ERROR|runtime error|SUMMARY|deadly|^fuzz:' "$log" | head -40 | sed 's/^/# /'
        touch "$found"
    fi
}
for name; do
    [ -d tests/fuzz/corpus/"$name" ] || { echo "fuzz: no parser '$name'; there are: $("$program" -names=1 | xargs)" >&2; exit 2; }
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    one "$name" &
done
wait
[ ! -e "$found" ]
