#!/bin/bash
# Tokens of tokenizer.json beside PyPI's `tokenizers` (in build/tokenizers) on 15,000 strings of many scripts, and chats
# beside transformers. The golden file of tests/unit/exec/test_tokenizer.c has some of the strings.
# group: slow
. "$(dirname "$0")/lib.sh"
begin
name="tokenizers: ids and texts of 15,000 strings are equal"
venv=${ELAPSE_TOKENIZERS:-build/tokenizers}
test=${ELAPSE_OUT:-build}/tests/test_tokenizer

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import tokenizers, transformers, jinja2' 2>/dev/null; then
    rm -rf "$venv"
    if ! { "${PYTHON:-/usr/bin/python3}" -m venv "$venv" &&
        timeout 240 "$venv/bin/pip" install -q --disable-pip-version-check --retries 0 tokenizers==0.23.3 transformers==5.24.0 jinja2; } >"$tmp/pip.log" 2>&1; then
        rm -rf "$venv"
        skip "$name" "pip cannot install tokenizers: $(tail -1 "$tmp/pip.log" | cut -c1-100)"
        finish
    fi
fi
check "strings are made" "$venv/bin/python" tests/reference/tokenizers_peer.py "$tmp/cases" 2000 "${ELAPSE_SEED:-1}"
export ELAPSE_TOKENIZER_CASES=$tmp/cases ELAPSE_TEST_FILTER='tokenizer_encode__equals*'
check "$name" "$test"
check "chats are made" "$venv/bin/python" tests/reference/chats_peer.py "$tmp/chats"
export ELAPSE_CHAT_CASES=$tmp/chats ELAPSE_TEST_FILTER='*transformers_writes'
check "chats: texts are those of transformers" "${test%tokenizer}chat"
finish
