#!/bin/bash
# tests/e2e/e2e_explain.sh - 33 lines of `plan --explain` beside plans in which what they speak of is fixed: none is false
# (tests/reference/explain.py). EXPLAIN_LINES=60 is another number.
# group: slow, seconds: 25
. "$(dirname "$0")/lib.sh"

begin
if command -v python3 >/dev/null; then
    check "what --explain says of layouts and lengths is true" python3 tests/reference/explain.py "$elapse" "$tmp" "${EXPLAIN_LINES:-33}"
else
    skip "what --explain says of layouts and lengths is true" "no python3"
fi
finish
