# tests/gpu/budget.sh - sourced by tests/gpu/gpu_check.sh: how long each part may take, and the tables.
#
#   budget LOOKED PART...    ends[PART]: the second of the call in which the part has ended; LOOKED
#                            seconds are gone already
#   print_budget             the table
#   print_results            what the parts said, and their tables
#
# A part's end follows from the table only, never from how long earlier parts took. A part that ends early
# leaves its seconds to those behind it; a part that hangs is killed at its end.
KILL_SECONDS=3 # from the signal to end to the one that nobody survives
LOOK_SECONDS=25
declare -A promised=([tests]=100 [kernels]=50 [bench]=355
    [ranks]=150 [profile]=80 [compare]=150 [change]=90
    [torch]=100 [save]=40 [sanitizer]=150 [step]=150 [nccl]=150)
declare -A ends=()
budget_parts=()

budget() {
    local looked=$1 part sum=0 at
    shift
    budget_parts=("$@")
    for part; do
        sum=$((sum + promised[$part]))
    done
    # A look that took longer than its promise (it may have built the programs) shortens all parts alike.
    at=$LOOK_SECONDS
    [ "$looked" -le "$at" ] || at=$looked
    call_seconds=${GPU_CHECK_SECONDS:-$((LOOK_SECONDS + sum))}
    if [ $((at + sum)) -gt "$call_seconds" ]; then
        for part; do # scaled, to whole seconds
            promised[$part]=$((promised[$part] * (call_seconds - at) / sum))
            [ "${promised[$part]}" -gt 0 ] || promised[$part]=1
        done
    fi
    for part; do
        at=$((at + promised[$part]))
        ends[$part]=$at
    done
}

print_budget() {
    local part
    echo
    printf '%-10s %9s %10s\n' part promised "ends at"
    printf '%-10s %7d s %8d s\n' look "$((ends[${budget_parts[0]}] - promised[${budget_parts[0]}]))" "$((ends[${budget_parts[0]}] - promised[${budget_parts[0]}]))"
    for part in "${budget_parts[@]}"; do
        printf '%-10s %7d s %8d s\n' "$part" "${promised[$part]}" "${ends[$part]}"
    done
    echo
}

print_results() {
    local i name
    for i in "${!names[@]}"; do
        name=${names[i]}
        [ "${states[i]}" = failed ] && [ -s "$out/$name.log" ] || continue
        echo "--- $name"
        grep -E -A4 '^not ok' "$out/$name.log" | grep -v '# *SKIP' | cut -c1-160 | head -24
        tail -4 "$out/$name.log" | cut -c1-160
    done
    for name in compare change kernels step bench; do # the most wanted last
        [[ " ${names[*]} " = *" $name "* ]] && [ -s "$out/$name.txt" ] && { echo; cut -c1-150 "$out/$name.txt" | head -60; }
    done
    echo
    printf '%-10s %-8s %9s %8s %6s\n' part state promised started took
    for i in "${!names[@]}"; do
        printf '%-10s %-8s %7d s %6d s %4d s  %s\n' "${names[i]}" "${states[i]}" "${promised[${names[i]}]}" "${started[i]}" "${spent[i]}" "${notes[i]}"
    done
    echo "call '$call': $((SECONDS - call_began)) s"
}
