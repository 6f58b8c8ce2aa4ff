#!/bin/bash
# tests/e2e/e2e_oracle.sh - `elapse sim --step` against tests/reference/step_oracle.py, which shares no code
# with it: 150 random steps, a third of them with shared links.
. "$(dirname "$0")/lib.sh"
begin
if command -v python3 >/dev/null; then
    check "steps agree with the oracle" python3 tests/reference/step_oracle.py "$elapse" 150 5
else
    skip "steps agree with the oracle" "no python3"
fi
finish
