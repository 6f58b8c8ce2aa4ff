#!/bin/bash
# tests/run.sh - run every test and end with one line: "N passed, N failed[, N skipped]".
#
#   tests/run.sh BINARY...       cmocka programs, then check-layers.sh, golden.sh, e2e_*.sh, docs.sh
#
# Everything speaks TAP ("ok ...", "not ok ...", "... # SKIP why"), is counted test by test, and has
# TEST_TIMEOUT seconds (900). Output is shown in full where something failed, and again, in short, above
# the last line. A program that dies, hangs or runs no test counts as one failure. The first comment of a
# test's source may say:
#
#   ranks: N         run the binary under $ELAPSE_MPIRUN (mpirun) -n N, while nothing else runs
#   alone: WHY       (scripts) nothing else may run meanwhile
#   group: NAME      quick where nothing is said. TEST_GROUPS (quick) lists the groups that run, or is all
#   repeated: yes    it makes more trials where ELAPSE_TEST_ALL is set: in all; in the group repeated, behind a run of
#                    the quick group, ELAPSE_TEST_ALL is rest, and those that were made are left out
#   seconds: N       how long it takes, roughly: the longest are started first
#
# TEST_JOBS (one more than there are cores, because tests wait too) run side by side; behind them, one by one, those
# with ranks and those that are to be alone. Tests are shown in the order of their start, with their seconds and the processor's.
# Above the last line: the processor time of all tests of each group, and the six that needed most of it. TEST_TIMES
# is a file for a line of each test: processor seconds, seconds, group, name. Above TEST_CPU_LIMIT seconds of the
# processor, all tests together, the run fails.
# TEST_UNTIL: no test begins after this second since 1970; those left out count as skipped.
# TEST_RETRIES=1 (0): what failed runs once more, alone, also after TEST_UNTIL, and counts as it does then; that it did
# is said.
# Exit 1 on any failure.
set -u
cd "$(dirname "$0")/.." || exit 3
times=${TEST_TIMES:-} cpu_limit=${TEST_CPU_LIMIT:-}
until=${TEST_UNTIL:-} limit=${TEST_TIMEOUT:-900} jobs=${TEST_JOBS:-$(($(nproc) + 1))} retries=${TEST_RETRIES:-0} groups=${TEST_GROUPS:-quick}
unset TEST_UNTIL TEST_TIMEOUT TEST_JOBS TEST_RETRIES TEST_GROUPS TEST_TIMES TEST_CPU_LIMIT # of this run, not of those that a test starts
case " $groups " in
" all ") export ELAPSE_TEST_ALL=1 ;;
*" repeated "*) export ELAPSE_TEST_ALL=rest ;;
esac
. tests/env.sh
log=$(mktemp -d "${TMPDIR:-/tmp}/elapse-test.XXXXXX") || exit 3
trap 'for job in $(jobs -p); do pkill -P "$job"; done; rm -rf "$log"' EXIT
export CMOCKA_MESSAGE_OUTPUT=TAP LC_ALL=C ELAPSE_BIN="${ELAPSE_OUT:+$PWD/$ELAPSE_OUT/bin}"
ELAPSE_BIN=${ELAPSE_BIN:-$PWD/build/bin}
passed=0 failed=0 skipped=0

declare -A source_of=() # a C test program's, by its name
while read -r file; do source_of[$(basename "${file%.*}")]=$file; done < <(find tests -name 'test_*.c' -o -name 'test_*.cpp')
# says TEST KEY: the word behind "KEY:" in the first comment of its source
says() {
    if [[ $1 = *.sh ]]; then
        sed '/^[^#]/q' "$1"
    else
        cat "${source_of[$(basename "$1")]:-/dev/null}" | sed '/\*\//q'
    fi | sed -n "s/^\(.*[^a-z]\)\?$2: *\([A-Za-z0-9]*\).*/\2/p" | head -1
}
declare -A num_ranks=() seconds_of=() is_alone=() group_of=()
# know TEST: fills these; false where its group does not run
know() {
    local group
    group=$(says "$1" group)
    [[ " $groups " = *" ${group:=quick} "* || $groups = all ]] ||
        { [[ " $groups " = *" repeated "* ]] && [ -n "$(says "$1" repeated)" ] && group=repeated; } || return
    group_of[$1]=$group
    num_ranks[$1]=$(says "$1" ranks)
    seconds_of[$1]=$(says "$1" seconds)
    is_alone[$1]=${num_ranks[$1]}$([[ $1 != *.sh ]] || says "$1" alone)
}

# run TEST: its output into $log/NAME; then, into $log/NAME.end, exit status, seconds and the processor's seconds.
run() {
    local TIMEFORMAT='%3R %3U %3S' n=${num_ranks[$1]} at
    at=$log/$(basename "$1")
    if [ -n "$until" ] && [ "$(date +%s)" -ge "$until" ]; then
        echo "ok - all of it # SKIP there was no time left" >"$at"
        echo 0 0 0 >"$at.end"
        return
    fi
    { time {
        timeout --kill-after=10 "$limit" ${n:+${ELAPSE_MPIRUN:-mpirun} -n "$n"} "$1" </dev/null >"$at" 2>&1
        echo $? >"$at.rc"
    } 2>/dev/null; } 2>"$at.time"
    awk -v rc="$(cat "$at.rc")" '{print rc, $1, $2 + $3}' "$at.time" >"$at.end"
}

# count TEST: the TAP lines of one that has ended, into ok, not and skip; why: what is wrong beside them.
count() {
    local out
    out=$log/$(basename "$1")
    read -r rc seconds cpu <"$out.end"
    skip=$(grep -Ec '^(not )?ok\b.*# *SKIP' "$out")
    not=$(grep -E '^not ok\b' "$out" | grep -Evc '# *SKIP')
    ok=$(grep -E '^ok\b' "$out" | grep -Evc '# *SKIP')
    why=""
    if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then
        why="ran past $limit s"
    elif [ $rc -ne 0 ] && [ "$not" -eq 0 ]; then
        why="exit $rc"
    elif [ $((ok + not + skip)) -eq 0 ]; then
        why="no test in it"
    fi
    [ -z "$why" ] || not=$((not + 1))
}

# summary TEST: its line, and what it left out.
summary() {
    local n=${num_ranks[$1]}
    printf '%-28s %4d passed %s%s(%.0f s, processor %.1f s)\n' "$(basename "$1")${n:+ (-n $n)}" "$ok" \
        "$([ "$not" -gt 0 ] && echo "$not FAILED ")" \
        "$([ "$skip" -gt 0 ] && echo "$skip skipped ")" "$seconds" "$cpu"
    sed -En 's/^(not )?ok\b( [0-9]+)?( -)?(.*)# *SKIP */    skipped:\4/p' "$log/$(basename "$1")"
}

# failure TEST: what it said from its first failure on, or at its end.
failure() {
    grep -v '# *SKIP' "$log/$(basename "$1")" >"$log/.said"
    if [ "$(grep -Ec '^not ok\b' "$log/.said")" -gt 0 ]; then
        grep -E -A 10 '^not ok\b' "$log/.said" | head -30
    else
        tail -20 "$log/.said"
    fi | sed 's/^/    /'
    [ -z "$why" ] || echo "    $why"
}

# show TEST: one that has ended; what failed in it, and again where there is another try.
show() {
    local ok not skip rc seconds cpu why
    count "$1"
    summary "$1"
    echo "$cpu $seconds ${group_of[$1]} $(basename "$1")" >>"$log/.cpu"
    if [ "$not" -gt 0 ]; then
        sed 's/^/    /' "$log/$(basename "$1")"
        [ -z "$why" ] || echo "    $why"
        { echo "failed$([ "$retries" -eq 0 ] || echo ' at first'): $(basename "$1")"; failure "$1"; } >>"$log/.failed"
        [ "$retries" -eq 0 ] || { again+=("$1"); return; }
    fi
    passed=$((passed + ok)) failed=$((failed + not)) skipped=$((skipped + skip))
}

# ELAPSE_ONLY_BINARIES=1: the runner's own test stops behind the binaries.
[ -n "${ELAPSE_ONLY_BINARIES:-}" ] || set -- "$@" tests/check-layers.sh tests/golden.sh tests/e2e/e2e_*.sh tests/docs.sh
single=() again=()
for test in "$@"; do
    know "$test" || continue
    if [ "$jobs" -eq 1 ] || [ -n "${is_alone[$test]}" ]; then
        single+=("$test")
    else
        echo "${seconds_of[$test]:-0} $test" >>"$log/.shared"
    fi
done
touch "$log/.shared"
mapfile -t shared < <(sort -s -k 1,1nr "$log/.shared" | cut -d' ' -f2-)

started=0 shown=0
show_ended() {
    while [ $shown -lt ${#shared[@]} ] && [ -s "$log/$(basename "${shared[shown]}").end" ]; do
        show "${shared[shown++]}"
    done
}
for test in "${shared[@]}"; do
    [ $((started++)) -lt "$jobs" ] || wait -n
    show_ended
    run "$test" &
done
wait
show_ended
for test in "${single[@]}"; do
    run "$test"
    show "$test"
done

retries=0 until=
for test in "${again[@]}"; do
    echo "once more, alone:"
    run "$test"
    show "$test"
done

if [ -e "$log/.cpu" ]; then
    awk '{sum[$3] += $1} END {for (g in sum) printf "%s group: processor %.0f s\n", g, sum[g]}' "$log/.cpu" | sort
    echo "most: $(sort -nr "$log/.cpu" | head -6 | awk '{printf "%s%s %.0f s", (NR > 1 ? ", " : ""), $4, $1}')"
    [ -z "$times" ] || sort -nr "$log/.cpu" >"$times"
    awk -v limit="$cpu_limit" '{sum += $1} END {
        if (limit != "" && sum > limit) printf "failed: the tests took %.1f s of processor time, more than %s s\n", sum, limit
    }' "$log/.cpu" >"$log/.limit"
    [ ! -s "$log/.limit" ] || { failed=$((failed + 1)); cat "$log/.limit" >>"$log/.failed"; }
fi
[ -e "$log/.failed" ] && cat "$log/.failed"
[ $((passed + failed)) -eq 0 ] && failed=1 && echo "failed: no test was run"
echo "$passed passed, $failed failed$([ $skipped -gt 0 ] && echo ", $skipped skipped")"
[ $failed -eq 0 ]
