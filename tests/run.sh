#!/bin/bash
# tests/run.sh - run every test and end with one line: "N passed, N failed[, N skipped]".
#
#   tests/run.sh BINARY...       cmocka programs, then golden.sh, e2e_*.sh, check-layers.sh, docs.sh
#
# Everything speaks TAP ("ok ...", "not ok ...", "... # SKIP why"), is counted test by test, and has
# TEST_TIMEOUT seconds (480). Output is shown in full where something failed. A program that dies,
# hangs or runs no test counts as one failure. "ranks: N" in the first comment of a test's source runs
# the binary under $ELAPSE_MPIRUN (mpirun) -n N. Exit 1 on any failure.
set -u
cd "$(dirname "$0")/.." || exit 3
limit=${TEST_TIMEOUT:-480}
. tests/env.sh
log=$(mktemp -d "${TMPDIR:-/tmp}/elapse-test.XXXXXX") || exit 3
trap 'rm -rf "$log"' EXIT
export CMOCKA_MESSAGE_OUTPUT=TAP LC_ALL=C ELAPSE_BIN="${ELAPSE_OUT:+$PWD/$ELAPSE_OUT/bin}"
ELAPSE_BIN=${ELAPSE_BIN:-$PWD/build/bin}
passed=0 failed=0 skipped=0
failures=()

# run NAME COMMAND...: run it, count its TAP lines, show what failed.
run() {
    local name=$1 out="$log/out" rc start=$SECONDS
    shift
    { timeout --kill-after=10 "$limit" "$@" </dev/null >"$out" 2>&1; } 2>/dev/null
    rc=$?
    local ok not skip why=""
    skip=$(grep -Ec '^(not )?ok\b.*# *SKIP' "$out")
    not=$(grep -E '^not ok\b' "$out" | grep -Evc '# *SKIP')
    ok=$(grep -E '^ok\b' "$out" | grep -Evc '# *SKIP')
    if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then
        why="ran past $limit s"
    elif [ $rc -ne 0 ] && [ "$not" -eq 0 ]; then
        why="exit $rc"
    elif [ $((ok + not + skip)) -eq 0 ]; then
        why="no test in it"
    fi
    [ -n "$why" ] && not=$((not + 1))
    passed=$((passed + ok)) failed=$((failed + not)) skipped=$((skipped + skip))
    printf '%-28s %4d passed %s%s(%d s)\n' "$name" "$ok" \
        "$([ "$not" -gt 0 ] && echo "$not FAILED ")" \
        "$([ "$skip" -gt 0 ] && echo "$skip skipped ")" $((SECONDS - start))
    grep -Eh '^(not )?ok\b.*# *SKIP' "$out" | sed 's/^/    /'
    if [ "$not" -gt 0 ]; then
        failures+=("$name${why:+: $why}")
        sed 's/^/    /' "$out"
        [ -n "$why" ] && echo "    $name: $why"
    fi
}

for binary in "$@"; do
    name=$(basename "$binary")
    ranks=$(sed -n '1,/\*\//s/.*ranks: *\([0-9][0-9]*\).*/\1/p' "tests/$name.c" 2>/dev/null | head -1)
    if [ -n "$ranks" ]; then
        run "$name (-n $ranks)" ${ELAPSE_MPIRUN:-mpirun} -n "$ranks" "$binary"
    else
        run "$name" "$binary"
    fi
done
# ELAPSE_ONLY_BINARIES=1: the runner's own test stops here.
for script in $([ -n "${ELAPSE_ONLY_BINARIES:-}" ] || echo tests/check-layers.sh tests/golden.sh tests/e2e_*.sh tests/docs.sh); do
    [ -x "$script" ] && run "$(basename "$script")" "$script"
done

for failure in "${failures[@]:-}"; do
    [ -n "$failure" ] && echo "failed: $failure"
done
[ $((passed + failed)) -eq 0 ] && failed=1 && echo "failed: no test was run"
echo "$passed passed, $failed failed$([ $skipped -gt 0 ] && echo ", $skipped skipped")"
[ $failed -eq 0 ]
