#!/bin/bash
# tests/e2e/e2e_properties.sh - what must hold whatever is asked (tests/reference/properties.py): random steps,
# plans, whole runs and absurd figures, each answered in several ways that must agree.
# seconds: 14
. "$(dirname "$0")/lib.sh"
begin

# A schedule that is slower than others at a plain cut, and faster at its best one.
step_ns() {
    "$elapse" plan --model gpt2-large --cluster a100-pcie-2x8 --batch 256 --dtype bf16 --optimizer adamw --json --quiet \
        --set cluster.uplink=10.78GBps "$@" | grep -o '"step_ns":[0-9]*' | head -1 | cut -d: -f2
}
auto_ns=$(step_ns)
zb_v_ns=$(step_ns --set pipeline.shard=none --set pipeline.tensor=1 --set pipeline.num_stages=8 \
    --set pipeline.recompute=auto --set pipeline.schedule=zb-v)
check "each schedule is judged at a cut of its own" test "$auto_ns" -le "$zb_v_ns"

# A schedule whose first cut that fits the memory is longer than the best plan of another.
tight_ns() {
    "$elapse" plan --model qwen2.5-14b:seq=4096 --cluster v100-4x4 --batch 128 --dtype fp32 --optimizer adamw \
        --headroom 0 --set cluster.uplink=7.08GBps --set pipeline.num_stages=4 --set pipeline.tensor=4 \
        --set pipeline.sequence_parallel=true --set pipeline.shard=none --set pipeline.recompute=auto --json --quiet "$@" |
        grep -o '"step_ns":[0-9]*' | head -1 | cut -d: -f2
}
auto_ns=$(tight_ns) zb_v_ns=$(tight_ns --set pipeline.schedule=zb-v)
check "a schedule that fits at its second cut" test "$auto_ns" -le "$zb_v_ns"

# A layout that seems slow beside others until their links are shared.
shared_ns() {
    "$elapse" plan --model llama3.2-1b:seq=4096 --cluster dgx-h100-4 --batch 256 --dtype bf16 --optimizer adamw \
        --set cluster.uplink=8.59GBps --json --quiet "$@" | grep -o '"step_ns":[0-9]*' | head -1 | cut -d: -f2
}
auto_ns=$(shared_ns --work 40000)
fixed_ns=$(shared_ns --set pipeline.num_stages=4 --set pipeline.tensor=4 --set pipeline.sequence_parallel=true \
    --set pipeline.shard=optimizer --set pipeline.schedule=zb-v --set pipeline.recompute=auto)
check "a layout that shared links spare" test "$auto_ns" -le "$fixed_ns"
# Cuts for shared links are found by climbing, which ends elsewhere where other layouts were searched before.
climbed_ns() {
    "$elapse" plan --model gpt2-xl --cluster mi300x-2x8 --batch 32 --dtype fp32 --optimizer adamw --set cluster.uplink=4.61GBps \
        --json --quiet "$@" | grep -o '"step_ns":[0-9]*' | head -1 | cut -d: -f2
}
auto_ns=$(climbed_ns)
fixed_ns=$(climbed_ns --set pipeline.num_stages=4 --set pipeline.tensor=1 --set pipeline.shard=none \
    --set pipeline.schedule=zb-v --set pipeline.recompute=auto)
check "the best layout is also searched alone" test "$auto_ns" -le "$fixed_ns"

if command -v python3 >/dev/null; then
    check "properties hold" python3 tests/reference/properties.py "$elapse" "$tmp" 12 1 3
    check "laws over all keys hold" python3 tests/reference/key_laws.py "$elapse" "$tmp" 3 1
else
    skip "properties hold" "no python3"
fi
finish
