#!/bin/bash
# tests/e2e/e2e_extremes.sh - every documented key with extreme and wrong values (tests/reference/extremes.py): an
# error that names the key, or a sane answer. An eighth of the cases; EXTREMES=0/1 takes all.
# group: slow, seconds: 18
. "$(dirname "$0")/lib.sh"
begin
if command -v python3 >/dev/null; then
    check "each key takes its extremes" python3 tests/reference/extremes.py "$elapse" "$tmp" --part "${EXTREMES:-0/8}"
else
    skip "each key takes its extremes" "no python3"
fi
finish
