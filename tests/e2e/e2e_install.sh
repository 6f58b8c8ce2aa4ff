#!/bin/bash
# tests/e2e/e2e_install.sh - libelapse shows elapse_* and nothing else; `make install` makes a tree that can be moved,
# whose programs and library work in an empty environment; `make uninstall` leaves nothing.
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
if [ -n "$sanitized" ]; then
    skip "symbols of libelapse" "a sanitizer adds its own, and there is no libelapse.so"
else
    verify "libelapse.a has the functions of elapse.h and no other symbol" archive_has_all
    verify "libelapse.a neither prints nor exits" never_prints
    verify "libelapse.so has the functions of elapse.h" shared_has_all
    verify "libelapse.so has no other symbol, and its soname has the ABI's number" shared_has_no_more
fi

# --- the installed tree, moved ----------------------------------------------------------------------
prefix=/opt/elapse
check "make install" make --no-print-directory install DESTDIR="$tmp/root" PREFIX=$prefix STRIP=1
cp -a "$tmp/root$prefix" "$tmp/moved"
moved=$tmp/moved
mkdir "$tmp/work" "$tmp/home"
# in an environment with nothing but a path, a home and a place for temporary files, outside of the tree
alone() { (cd "$tmp/work" && env -i PATH="$moved/bin:/usr/bin:/bin" HOME="$tmp/home" TMPDIR="${TMPDIR:-/tmp}" "$@"); }
verify "nothing installed names the tree that it was built in" bash -c "! grep -rlF '$PWD/' '$moved'"
verify "man pages and completion are there" test -s "$moved/share/man/man1/elapse.1" -a \
    -s "$moved/share/bash-completion/completions/elapse" -a -s "$moved/share/zsh/site-functions/_elapse"

examples=$moved/share/doc/elapse/examples
job=$examples/demo.json
pc() { PKG_CONFIG_PATH=$moved/lib/pkgconfig pkg-config "$@"; }
compile() { # OUT LIBRARY...: the example against the installed tree
    local program=$1
    shift
    cc -std=c11 -Wall -Wextra -Werror "$examples/library/plan.c" -o "$program" $(pc --cflags elapse) "$@"
}
# The example's output, worked out from `elapse plan` and `elapse sim`.
cat >"$tmp/answers.py" <<'PY'
import json, sys
plan, step, run = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("plan", "step", "run"))
print(f"plan: K={plan['pipeline_length']} R={plan['replicas']} M={plan['microbatches']} {plan['schedule']}, "
      f"{plan['step_ns']} ns a step, {plan['samples_per_s']:.1f} samples/s")
print(f"step: {step['step_ns']} ns, bubble {100 * step['bubble_fraction']:.2f} %")
print(f"run: {len(run['epochs'])} epochs in {run['total_ns']} ns")
PY
answers() { # JOB
    alone elapse plan "$1" --json -o p.json >"$tmp/plan.json" &&
        alone elapse sim "$1" --step --plan p.json --json >"$tmp/step.json" &&
        alone elapse sim "$1" --json >"$tmp/run.json" && python3 "$tmp/answers.py" "$tmp"
}
example_answers() { # PROGRAM JOB
    alone "$1" "$2" >"$tmp/example" && answers "$2" >"$tmp/answers" && diff "$tmp/example" "$tmp/answers"
}
if [ -z "$sanitized" ]; then
    verify "the example builds with the shared library" compile "$tmp/shared" $(pc --libs elapse) -Wl,-rpath,"$moved/lib"
    verify "and with the static one" compile "$tmp/static" "$(pc --variable=libdir elapse)/libelapse.a" -lsqlite3 -lcjson -lm
    verify "it says what the installed elapse says, shared" example_answers "$tmp/shared" "$job"
    verify "and static, of another job" example_answers "$tmp/static" "$examples/paper/vit.json"
    verify "the static one needs no libelapse.so" bash -c "! ldd '$tmp/static' | grep elapse"
    expect "it says what is wrong" 1 "^plan: cannot .*/no/job.json" "$tmp/shared" /no/job.json
fi
verify "elapse plot, installed" alone elapse plot timeline "$job" -o plan.svg
verify "elapse report, installed" alone elapse report "$job" -o report.html
if [ -e "$moved/lib/elapse/elapse-exec" ]; then
    verify "elapse train, installed" alone elapse train "$job" -n 2 --quiet --out run --set train.max_steps=2 \
        --set data.train_samples=128 --set data.test_samples=16
    verify "elapse eval, installed" alone bash -c 'elapse eval run/checkpoint-* "$0" -n 1 --set data.test_samples=16' "$job"
fi

# --- and away ---------------------------------------------------------------------------------------
touch "$tmp/root$prefix/bin/another"
gone() {
    make --no-print-directory uninstall DESTDIR="$tmp/root" PREFIX=$prefix &&
        [ "$(cd "$tmp/root" && find . | sort | tr '\n' ' ')" = ". ./opt ./opt/elapse ./opt/elapse/bin ./opt/elapse/bin/another " ]
}
verify "make uninstall leaves what is not ours and nothing else" gone
expect "there is nothing to uninstall twice" 3 "nothing is installed: no '.*/share/elapse/installed'" \
    env DESTDIR="$tmp/root" PREFIX=$prefix packaging/install.sh uninstall build
expect "a relative PREFIX is refused" 2 "PREFIX and LIBDIR must start with /, got 'usr'" \
    env PREFIX=usr packaging/install.sh install build
finish
