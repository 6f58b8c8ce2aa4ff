#!/bin/bash
# tests/golden.sh - a command and its exact output, simulated timestamps included.
#
#   tests/golden.sh            compare every tests/golden/sim/NAME.golden with what its command says
#   tests/golden.sh --write    rewrite them from the present program (then review the diff)
#
# The first line of a golden is "$ arguments of elapse"; lines that start with "> " are what follows
# it: stdout, then stderr, then what was written to the file FILE (where the arguments name one),
# then "exit N". Speaks TAP.
set -u
cd "$(dirname "$0")/.." || exit 3
export LC_ALL=C
bin=${ELAPSE_BIN:-$PWD/build/bin}/elapse
write=${1:-}
n=0 failed=0
work=$(mktemp -d "${TMPDIR:-/tmp}/elapse-golden.XXXXXX") || exit 3
export ELAPSE_DB="$work/profiles.db" # the user's own store is none
trap 'rm -rf "$work"' EXIT

for golden in tests/golden/sim/*.golden; do
    [ -e "$golden" ] || continue
    n=$((n + 1))
    head -1 "$golden" >"$work/new"
    args=$(sed -n '1s/^\$ //p' "$golden")
    # The arguments are words of our own files: splitting and globbing them is wanted.
    # shellcheck disable=SC2086
    timeout 60 "$bin" ${args//FILE/$work/file} >"$work/out" 2>"$work/err"
    echo "exit $?" >"$work/exit"
    [ -e "$work/file" ] || : >"$work/file"
    sed 's/^/> /' "$work/out" "$work/err" "$work/file" "$work/exit" >>"$work/new"
    rm "$work/file"
    if [ "$write" = --write ]; then
        cp "$work/new" "$golden"
        echo "wrote $golden"
    elif cmp -s "$golden" "$work/new"; then
        echo "ok $n - $(basename "$golden" .golden)"
    else
        failed=$((failed + 1))
        echo "not ok $n - $(basename "$golden" .golden)"
        diff -u "$golden" "$work/new" | head -40 | sed 's/^/# /'
    fi
done
[ "$write" = --write ] || echo "1..$n"
[ $failed -eq 0 ]
