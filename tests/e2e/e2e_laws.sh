#!/bin/bash
# The metamorphic laws of tests/reference/properties.py on 200 random jobs; make test tries four.
# group: slow, seconds: 15
. "$(dirname "$0")/lib.sh"
begin
if command -v python3 >/dev/null; then
    check "laws hold" python3 tests/reference/properties.py "$elapse" "$tmp" 1 2 200
else
    skip "laws hold" "no python3"
fi
finish
