#!/bin/bash
# tests/e2e/e2e_properties.sh - what must hold whatever is asked (tests/reference/properties.py): random steps,
# plans, whole runs and absurd figures, each answered in several ways that must agree.
# seconds: 9
. "$(dirname "$0")/lib.sh"
begin

# A schedule that is slower than others at a plain cut, and faster at its best one.
step_ns() {
    "$elapse" plan --model gpt2-large --cluster a100-pcie-2x8 --batch 256 --dtype bf16 --optimizer adamw --json --quiet \
        --set cluster.uplink=10.78GBps --set pipeline.shard=none --set pipeline.tensor=1 --set pipeline.num_stages=8 \
        --set pipeline.recompute=never "$@" | grep -o '"step_ns":[0-9]*' | head -1 | cut -d: -f2
}
auto_ns=$(step_ns) zb_v_ns=$(step_ns --set pipeline.schedule=zb-v)
check "each schedule is judged at a cut of its own" test "$auto_ns" -le "$zb_v_ns"
if command -v python3 >/dev/null; then
    check "properties hold" python3 tests/reference/properties.py "$elapse" "$tmp" 12 1 3
    check "laws over all keys hold" python3 tests/reference/key_laws.py "$elapse" "$tmp" 3 1
else
    skip "properties hold" "no python3"
fi
finish
