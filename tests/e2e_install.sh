#!/bin/bash
# tests/e2e_install.sh - libelapse shows elapse_* and nothing else, and its example prints what `elapse` answers.
# seconds: 8
. "$(dirname "$0")/lib.sh"
begin
out=$(realpath "$(dirname "$elapse")/..")
lib=$out/lib
sanitized=$([ -e "$lib/libelapse.so" ] || echo yes) # a shared library is not built then

# --- symbols ----------------------------------------------------------------------------------------
declared() { grep -o 'elapse_[a-z_]*(' library/elapse.h | tr -d '(' | grep -v '_$' | sort -u; }
same_lists() { # declared functions, and those of a list on stdin
    declared >"$tmp/declared"
    sort -u >"$tmp/found"
    [ "$(wc -l <"$tmp/declared")" -gt 20 ] && diff "$tmp/declared" "$tmp/found"
}
map_has_all() { sed -n 's/^    \(elapse_[a-z_]*\);$/\1/p' library/elapse.map | same_lists; }
archive_has_all() { nm -g --defined-only "$lib/libelapse.a" | sed -n 's/^[0-9a-f]* . //p' | same_lists; }
shared_has_all() { nm -D --defined-only "$lib/libelapse.so" | sed -n 's/^[0-9a-f]* T \(.*\)@@ELAPSE_.*/\1/p' | same_lists; }
shared_has_no_more() {
    nm -D --defined-only "$lib/libelapse.so" | grep -vE ' T elapse_[a-z_]+@@ELAPSE_[0-9.]+$| A ELAPSE_[0-9.]+$' && return 1
    [ "libelapse.so.$(sed -n 's/^#define ELAPSE_ABI_VERSION //p' library/elapse.h)" = \
        "$(objdump -p "$lib/libelapse.so" | awk '/SONAME/ {print $2}')" ]
}
never_prints() { ! nm -u "$lib/libelapse.a" | grep -E ' (puts|printf|putchar|perror|exit|_exit|abort)$'; }
verify "elapse.map lists every function of elapse.h" map_has_all
verify "libelapse.a has the functions of elapse.h and no other symbol" archive_has_all
verify "libelapse.a neither prints nor exits" never_prints
if [ -n "$sanitized" ]; then
    skip "libelapse.so has the functions of elapse.h" "not built under a sanitizer"
else
    verify "libelapse.so has the functions of elapse.h" shared_has_all
    verify "libelapse.so has no other symbol, and its soname has the ABI's number" shared_has_no_more
fi

# --- the example beside `elapse` --------------------------------------------------------------------
# answers JOB: what the example prints of it, worked out from `elapse plan` and `elapse sim`
answers() {
    "$elapse" plan "$1" --json >"$tmp/plan.json" &&
        "$elapse" plan "$1" -o "$tmp/p.json" >/dev/null &&
        "$elapse" sim "$1" --step --plan "$tmp/p.json" --json >"$tmp/step.json" &&
        "$elapse" sim "$1" --json >"$tmp/run.json" &&
        python3 - "$tmp" <<'PY'
import json, sys
plan, step, run = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("plan", "step", "run"))
print(f"plan: K={plan['pipeline_length']} R={plan['replicas']} M={plan['microbatches']} {plan['schedule']}, "
      f"{plan['step_ns']} ns a step, {plan['samples_per_s']:.1f} samples/s")
print(f"step: {step['step_ns']} ns, bubble {100 * step['bubble_fraction']:.2f} %")
print(f"run: {len(run['epochs'])} epochs in {run['total_ns']} ns")
PY
}
example_answers() { # PROGRAM JOB
    "$1" "$2" >"$tmp/example" && answers "$2" >"$tmp/answers" && diff "$tmp/example" "$tmp/answers"
}
if [ -z "$sanitized" ]; then
    check "the example builds" cc -std=c11 -Wall -Wextra -Werror -Ilibrary examples/library/plan.c -o "$tmp/plan" \
        -L"$lib" -lelapse -Wl,-rpath,"$lib"
    for job in examples/demo.json examples/paper/vit.json; do
        verify "the example answers $job as elapse does" example_answers "$tmp/plan" "$job"
    done
    expect "the example says what is wrong" 1 "^plan: cannot .*/no/job.json" "$tmp/plan" /no/job.json
fi
finish
