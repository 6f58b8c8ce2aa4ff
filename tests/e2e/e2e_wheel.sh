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
# In a folder of its own, because the facts of a build without CUDA are others.
out=$(realpath "$(dirname "$elapse")/..")
apart=build/wheel-objects
rm -rf "$apart" && cp -al "$out" "$apart" && rm -rf "$apart"/{bin,lib,exec,cuda-*,cudasim,tests,build_facts*}
export MAKEFLAGS="OUT=$apart"
build() { PYTHONPATH=packaging/python python3 -B -c "import elapse_build, sys; print(elapse_build.build_$1(sys.argv[1]))" "$2"; }
mkdir -p "$tmp/one" "$tmp/two"
verify "wheel: it is built" build wheel "$tmp/one"
verify "wheel: the next build has the same bytes" build wheel "$tmp/two"
verify "wheel: byte for byte" cmp "$tmp"/one/*.whl "$tmp"/two/*.whl
verify "wheel: a source distribution is made" build sdist "$tmp"
has_source() { tar tzf "$tmp"/elapse-*.tar.gz | grep -q '/partition/search/planner.c$'; }
verify "wheel: it has the sources" has_source
# In a folder of its own, by pip: all that the build needs is in the archive.
from_sdist() {
    local wheel
    (mkdir "$tmp/empty" && cd "$tmp/empty" && python3 -m venv env &&
        ELAPSE_SKIP_DEPS=1 OPT=-O0 env/bin/pip wheel -q --no-index --no-deps --disable-pip-version-check -w . ../elapse-*.tar.gz) || return 1
    wheel=$(echo "$tmp"/empty/*.whl)
    [ "${wheel##*/}" = "$(basename "$tmp"/one/*.whl)" ] && unzip_names "$wheel" >"$tmp/names" &&
        unzip_names "$tmp"/one/*.whl | cmp - "$tmp/names" && env_of_sdist "$wheel"
}
unzip_names() { python3 -c 'import sys, zipfile; print("\n".join(sorted(zipfile.ZipFile(sys.argv[1]).namelist())))' "$1"; }
env_of_sdist() { # the wheel works
    "$tmp/empty/env/bin/pip" install -q --no-index --disable-pip-version-check "$1" && "$tmp/empty/env/bin/elapse" model gpt2 | grep -q '124439808'
}
verify "wheel: pip builds one from the source distribution alone" from_sdist
auditwheel=${AUDITWHEEL:-auditwheel} # PyPI's, which is asked where it is installed
if command -v "$auditwheel" >/dev/null; then
    agrees() { "$auditwheel" show "$tmp"/one/*.whl | tr -s ' \n' ' ' | grep -q "consistent with the following platform tag: \"$(basename "$tmp"/one/*.whl .whl | sed 's/.*-//')\""; }
    verify "wheel: auditwheel finds its tag" agrees
else
    skip "wheel: auditwheel finds its tag" "auditwheel is missing"
fi
for python in python3 ${WHEEL_PYTHONS:-}; do
    env=$tmp/env-$(basename "$(dirname "$(dirname "$(command -v "$python")")")")
    "$python" -m venv "$env" &&
        "$env/bin/pip" install -q --no-index --disable-pip-version-check "$tmp"/one/*.whl || report 1 "wheel: pip installs it" </dev/null
    verify "wheel: the command elapse of $python" "$env/bin/elapse" --version
    "$env/bin/python" tests/e2e/wheel_calls.py "$elapse" >"$tmp/tap" 2>&1 || : >"$tmp/.checks_failed"
    sed "s|wheel:|wheel, $("$env/bin/python" -V | cut -d' ' -f2):|" "$tmp/tap"
done
finish
