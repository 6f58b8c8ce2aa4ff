#!/bin/bash
# tests/e2e/e2e_mutants.sh - the edits of tests/mutants.txt can be done. `make mutate` does them. seconds: 3
. "$(dirname "$0")/lib.sh"
begin

# rotten NAME SED PATTERN: a list that was changed like this is refused, and the line says why.
rotten() {
    sed "$2" tests/mutants.txt >"$tmp/list"
    expect "$1" 1 "$3" env MUTATE_ONLY='1f1b warms up' tests/mutate.sh --look "$tmp/list"
}
check "each mutant's old text is in its file exactly once, and its tests are there" tests/mutate.sh --look
rotten "an old text that is gone is refused" 's/^- write_in_turn(to, to->K - 1 - to->r, WHOLE);$/- write_gone(to);/' "1f1b warms up.*exactly once"
rotten "an old text that is there twice is refused" 's/^- write_in_turn(to, to->K - 1 - to->r, WHOLE);$/- write_in_turn(to, /' "1f1b warms up.*exactly once"
rotten "a test that is gone is refused" 's/^test: test_schedule$/test: test_gone/' "1f1b warms up.*no test 'test_gone'"
finish
