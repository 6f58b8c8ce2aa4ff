#!/bin/bash
# The metamorphic laws of tests/reference/properties.py on ELAPSE_LAWS random jobs (200), of which make test tries three,
# and those of key_laws.py, over all keys, on a seventh as many, of which it tries three. More steps and plans of
# e2e_properties.sh, too, which tries twelve.
# group: slow, seconds: 110
. "$(dirname "$0")/lib.sh"
begin
laws=${ELAPSE_LAWS:-200}
if command -v python3 >/dev/null; then
    check "properties hold" python3 tests/reference/properties.py "$elapse" "$tmp" 20 1 3
    check "laws hold" python3 tests/reference/properties.py "$elapse" "$tmp" 1 2 "$laws"
    check "laws over all keys hold: those of make test and two more" python3 tests/reference/key_laws.py "$elapse" "$tmp" 4 1
    check "laws over all keys hold" python3 tests/reference/key_laws.py "$elapse" "$tmp" $(((laws + 6) / 7)) 5 "${elapse%/bin/*}/lib/libelapse.so"
else
    skip "laws hold" "no python3"
fi
finish
