#!/bin/bash
# Every flag of the real parsers stands in one of the four lists of profiles/frameworks: packages of PyPI, unpacked and read.
# group: slow
. "$(dirname "$0")/lib.sh"
begin
wheels() {
    timeout 200 python3 -m pip download -q --disable-pip-version-check --retries 0 --no-deps -d "$tmp/wheels" --python-version 3.12 \
        --only-binary=:all: megatron-core==0.19.2 torchtitan==0.3.0 transformers==5.24.0 &&
        timeout 100 python3 -m pip download -q --disable-pip-version-check --retries 0 --no-deps --no-build-isolation -d "$tmp/wheels" deepspeed==0.19.8
}
mkdir "$tmp/packages"
if ! wheels >"$tmp/pip.log" 2>&1; then
    skip "flags: four lists" "PyPI: $(tail -1 "$tmp/pip.log" | cut -c1-100)"
    finish
fi
for f in "$tmp"/wheels/*.whl; do python3 -m zipfile -e "$f" "$tmp/packages"; done
tar -xzf "$tmp"/wheels/deepspeed*.tar.gz -C "$tmp/packages"
check "flags: each stands in a list" python3 tests/reference/framework_flags.py . "$tmp/packages"
finish
