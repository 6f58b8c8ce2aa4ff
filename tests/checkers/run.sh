#!/bin/bash
# tests/checkers/run.sh - run tests of a sanitized build, and short runs of its programs.
#
#   tests/checkers/run.sh SAN BINARY...      SAN as in the Makefile; for `make asan` and `make tsan`
#
# A finding ends its program with a failure, so tests/run.sh counts it. suppressions.txt beside this file names
# what is not ours. SHORT_RUNS=0 leaves out the runs of short_runs.sh. ELAPSE_OUT: the build folder.
set -u
cd "$(dirname "$0")/../.." || exit 3
kind=$1
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/elapse-san.XXXXXX") || exit 3
# A program that is killed leaves a mark of LLVM's OpenMP in memory: __KMP_REGISTERED_LIB_PROCESS_USER.
tidy() {
    local mark
    rm -rf "$work"
    for mark in /dev/shm/__KMP_REGISTERED_LIB_*_"$(id -u)"; do
        [[ ! $mark =~ LIB_([0-9]+)_ ]] || kill -0 "${BASH_REMATCH[1]}" 2>/dev/null || rm -f "$mark"
    done
}
trap tidy EXIT
for type in leak race; do # each sanitizer refuses the lines of another one
    grep "^$type:" tests/checkers/suppressions.txt >"$work/$type"
done
symbolizer=$(command -v llvm-symbolizer llvm-symbolizer-14 | head -1)
common=symbolize=1:${symbolizer:+external_symbolizer_path=$symbolizer}
# Tests run out of memory on purpose; then malloc() returns NULL, as without sanitizers.
export ASAN_OPTIONS=$common:detect_leaks=1:allocator_may_return_null=1:detect_stack_use_after_return=0
export LSAN_OPTIONS=suppressions=$work/leak:print_suppressions=0
export UBSAN_OPTIONS=$common:halt_on_error=1:print_stacktrace=1
# Libraries that were compiled without the sanitizer look like races to it: OpenBLAS, Open MPI, SQLite. What
# they call inside is not looked at. libarcher tells it when OpenMP's threads meet.
export TSAN_OPTIONS=$common:suppressions=$work/race:ignore_noninstrumented_modules=1:exitcode=66:allocator_may_return_null=1
archer=$(find /usr/lib/llvm-* /usr/lib/x86_64-linux-gnu -name libarcher.so 2>/dev/null | head -1)
[ "$kind" != thread ] || export OMP_TOOL_LIBRARIES=$archer
# Ten times as long as without a sanitizer.
export TEST_TIMEOUT=${TEST_TIMEOUT:-9000} CHECK_SECONDS=${CHECK_SECONDS:-3000}
plain=() ranked=()
for test; do
    if sed '/\*\//q' "$(find tests -name "$(basename "$test").c")" | grep -q 'ranks: *[0-9]'; then ranked+=("$test"); else plain+=("$test"); fi
done
rc=0
run() { [ $# -eq 0 ] || ELAPSE_ONLY_BINARIES=1 TEST_GROUPS=all tests/run.sh "$@" || rc=1; }
run "${plain[@]}"
# Open MPI frees little at its end. A leak is told to be its own by the calls that led to it, across functions
# without a frame pointer, and by its libraries, which must still be there. Many allocations become slow by that.
export LD_PRELOAD=$PWD/$ELAPSE_OUT/tests/keep_loaded.so ASAN_OPTIONS=$ASAN_OPTIONS:fast_unwind_on_malloc=0
run "${ranked[@]}"
[ "${SHORT_RUNS:-1}" = 0 ] || tests/checkers/short_runs.sh || rc=1
exit $rc
