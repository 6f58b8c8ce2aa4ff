#!/bin/bash
# tests/run.sh - run every test and end with one line: "N passed, N failed[, N skipped]".
#
#   tests/run.sh BINARY...       cmocka programs, then check-layers.sh, golden.sh, e2e_*.sh, docs.sh
#
# Everything speaks TAP ("ok ...", "not ok ...", "... # SKIP why"), is counted test by test, and has
# TEST_TIMEOUT seconds (900). Output is shown in full where something failed. A program that dies,
# hangs or runs no test counts as one failure. "ranks: N" in the first comment of a test's source runs
# the binary under $ELAPSE_MPIRUN (mpirun) -n N. As many run side by side as there are cores; behind
# them, one by one, those with ranks and the scripts whose first comment says "alone: WHY". Each group is
# shown in the order given. Exit 1 on any failure.
set -u
cd "$(dirname "$0")/.." || exit 3
limit=${TEST_TIMEOUT:-900}
. tests/env.sh
log=$(mktemp -d "${TMPDIR:-/tmp}/elapse-test.XXXXXX") || exit 3
trap 'for job in $(jobs -p); do pkill -P "$job"; done; rm -rf "$log"' EXIT
export CMOCKA_MESSAGE_OUTPUT=TAP LC_ALL=C ELAPSE_BIN="${ELAPSE_OUT:+$PWD/$ELAPSE_OUT/bin}"
ELAPSE_BIN=${ELAPSE_BIN:-$PWD/build/bin}
passed=0 failed=0 skipped=0
failures=()

ranks() { sed -n '1,/\*\//s/.*ranks: *\([0-9][0-9]*\).*/\1/p' "tests/$(basename "$1").c" 2>/dev/null | head -1; }
alone() { [ -n "$(ranks "$1")" ] || { [[ $1 = *.sh ]] && sed '/^[^#]/q' "$1" | grep -q '^# alone: '; }; }

# run TEST: its output into $log/NAME; then, into $log/NAME.end, exit status and seconds.
run() {
    local start=$SECONDS n
    n=$(ranks "$1")
    { timeout --kill-after=10 "$limit" ${n:+${ELAPSE_MPIRUN:-mpirun} -n "$n"} "$1" </dev/null >"$log/$(basename "$1")" 2>&1; } 2>/dev/null
    echo "$? $((SECONDS - start))" >"$log/$(basename "$1").end"
}

# show TEST: count the TAP lines of one that has ended, show what failed.
show() {
    local name out rc seconds ok not skip why=""
    name=$(basename "$1")
    out=$log/$name
    read -r rc seconds <"$out.end"
    name+=$(ranks "$1" | sed 's/.*/ (-n &)/')
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
        "$([ "$skip" -gt 0 ] && echo "$skip skipped ")" "$seconds"
    grep -Eh '^(not )?ok\b.*# *SKIP' "$out" | sed 's/^/    /'
    if [ "$not" -gt 0 ]; then
        failures+=("$name${why:+: $why}")
        sed 's/^/    /' "$out"
        [ -n "$why" ] && echo "    $name: $why"
    fi
}

# ELAPSE_ONLY_BINARIES=1: the runner's own test stops behind the binaries.
[ -n "${ELAPSE_ONLY_BINARIES:-}" ] || set -- "$@" tests/check-layers.sh tests/golden.sh tests/e2e_*.sh tests/docs.sh
shared=() single=()
for test in "$@"; do
    if alone "$test"; then single+=("$test"); else shared+=("$test"); fi
done

started=0 shown=0
show_ended() {
    while [ $shown -lt ${#shared[@]} ] && [ -s "$log/$(basename "${shared[shown]}").end" ]; do
        show "${shared[shown++]}"
    done
}
for test in "${shared[@]}"; do
    [ $((started++)) -lt "$(nproc)" ] || wait -n
    show_ended
    run "$test" &
done
wait
show_ended
for test in "${single[@]}"; do
    run "$test"
    show "$test"
done

for failure in "${failures[@]:-}"; do
    [ -n "$failure" ] && echo "failed: $failure"
done
[ $((passed + failed)) -eq 0 ] && failed=1 && echo "failed: no test was run"
echo "$passed passed, $failed failed$([ $skipped -gt 0 ] && echo ", $skipped skipped")"
[ $failed -eq 0 ]
