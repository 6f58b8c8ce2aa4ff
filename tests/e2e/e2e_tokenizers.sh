#!/bin/bash
# Tokens of tokenizer.json beside PyPI's `tokenizers` (in build/tokenizers) on 14,000 strings of many scripts. The
# golden file of tests/unit/exec/test_tokenizer.c has 168 of them.
# group: slow
. "$(dirname "$0")/lib.sh"
begin
name="tokenizers: ids and texts of 14,000 strings are equal"
venv=${ELAPSE_TOKENIZERS:-build/tokenizers}
test=${ELAPSE_OUT:-build}/tests/test_tokenizer

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import tokenizers' 2>/dev/null; then
    rm -rf "$venv"
    if ! { "${PYTHON:-/usr/bin/python3}" -m venv "$venv" &&
        timeout 120 "$venv/bin/pip" install -q --disable-pip-version-check --retries 0 tokenizers==0.23.3; } >"$tmp/pip.log" 2>&1; then
        rm -rf "$venv"
        skip "$name" "pip cannot install tokenizers: $(tail -1 "$tmp/pip.log" | cut -c1-100)"
        finish
    fi
fi
check "strings are made" "$venv/bin/python" tests/reference/tokenizers_peer.py "$tmp/cases" 2000 "${ELAPSE_SEED:-1}"
export ELAPSE_TOKENIZER_CASES=$tmp/cases ELAPSE_TEST_FILTER='tokenizer_encode__equals*'
check "$name" "$test"
finish
