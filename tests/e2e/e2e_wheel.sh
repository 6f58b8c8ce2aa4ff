#!/bin/bash
# tests/e2e/e2e_wheel.sh - the Python wheel in bare environments, its answers beside the program's
# (wheel_calls.py): the first python3, and each of WHEEL_PYTHONS.
# group: slow
# seconds: 60
. "$(dirname "$0")/lib.sh"
begin

if ! python3 -c 'import venv, ensurepip' 2>/dev/null || ! command -v objdump >/dev/null; then
    skip "wheel: in a bare environment" "python3-venv or objdump is missing"
    finish
    exit
fi
build() { PYTHONPATH=packaging/python python3 -B -c "import elapse_build, sys; print(elapse_build.build_$1(sys.argv[1]))" "$2"; }
mkdir -p "$tmp/one" "$tmp/two"
verify "wheel: it is built" build wheel "$tmp/one"
verify "wheel: the next build has the same bytes" build wheel "$tmp/two"
verify "wheel: byte for byte" cmp "$tmp"/one/*.whl "$tmp"/two/*.whl
verify "wheel: a source distribution is made" build sdist "$tmp"
has_source() { tar tzf "$tmp"/elapse-*.tar.gz | grep -q '/partition/search/planner.c$'; }
verify "wheel: it has the sources" has_source
for python in python3 ${WHEEL_PYTHONS:-}; do
    env=$tmp/env-$(basename "$(dirname "$(dirname "$(command -v "$python")")")")
    "$python" -m venv "$env" &&
        "$env/bin/pip" install -q --no-index --disable-pip-version-check "$tmp"/one/*.whl || report 1 "wheel: pip installs it" </dev/null
    verify "wheel: the command elapse of $python" "$env/bin/elapse" --version
    "$env/bin/python" tests/e2e/wheel_calls.py "$elapse" >"$tmp/tap" 2>&1 || : >"$tmp/.checks_failed"
    sed "s|wheel:|wheel, $("$env/bin/python" -V | cut -d' ' -f2):|" "$tmp/tap"
done
finish
