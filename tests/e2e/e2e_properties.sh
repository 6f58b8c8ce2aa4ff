#!/bin/bash
# tests/e2e/e2e_properties.sh - what must hold whatever is asked (tests/reference/properties.py): random steps,
# plans, whole runs and absurd figures, each answered in several ways that must agree.
# seconds: 9
. "$(dirname "$0")/lib.sh"
begin
if command -v python3 >/dev/null; then
    check "properties hold" python3 tests/reference/properties.py "$elapse" "$tmp" 12 1 3
    check "laws over all keys hold" python3 tests/reference/key_laws.py "$elapse" "$tmp" 3 1
else
    skip "properties hold" "no python3"
fi
finish
