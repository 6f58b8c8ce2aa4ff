#!/bin/bash
# tests/bench/run.sh - run the benchmarks given, one after the other.
# Each prints its own table; a figure is a ratio taken side by side in one run, or says what it is.
# Exit 1 when one fails.
set -u
cd "$(dirname "$0")/../.." || exit 3
export LC_ALL=C OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ELAPSE_BIN="$PWD/${ELAPSE_OUT:-build}/bin"
echo "$(uname -m), $(nproc) cores, $(sed -nE 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), load $(cut -d' ' -f1 /proc/loadavg)"
ran=0 failed=0
for bench in "$@"; do
    [ -x "$bench" ] || continue
    ran=$((ran + 1))
    echo "=== $(basename "$bench")"
    # "ranks: N" in the first comment of its source, as for tests
    ranks=$(sed -n '1,/\*\//s/.*ranks: *\([0-9][0-9]*\).*/\1/p' "tests/bench/$(basename "$bench").c" 2>/dev/null | head -1)
    timeout --kill-after=10 1800 ${ranks:+${ELAPSE_MPIRUN:-mpirun} -n "$ranks"} "$bench" || { failed=$((failed + 1)); echo "failed: $bench ($?)"; }
done
[ $ran -gt 0 ] || echo "no benchmark here"
[ $failed -eq 0 ]
