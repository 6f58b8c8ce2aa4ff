#!/bin/bash
# Exports and imports beside transformers itself (PyPI, kept in ~/.cache/elapse-transformers, beside the system's torch): an exported
# folder is read by from_pretrained(), what save_pretrained() writes is read by `elapse eval`, and the losses are equal.
# group: slow, seconds: 30
. "$(dirname "$0")/lib.sh"
begin
name="transformers: exports and imports compute the same"
venv=${ELAPSE_TRANSFORMERS:-${XDG_CACHE_HOME:-$HOME/.cache}/elapse-transformers}
python=${PYTHON:-/usr/bin/python3}

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import torch, transformers, PIL' 2>/dev/null; then
    if ! "$python" -c 'import torch' 2>/dev/null; then
        skip "$name" "$python has no torch"
        finish
    fi
    rm -rf "$venv"
    if ! { "$python" -m venv --system-site-packages "$venv" &&
        timeout 300 "$venv/bin/pip" install -q --disable-pip-version-check --retries 0 \
            'transformers==4.46.3' 'numpy<2' pillow; } >"$tmp/pip.log" 2>&1; then
        rm -rf "$venv"
        skip "$name" "pip cannot install transformers: $(tail -1 "$tmp/pip.log" | cut -c1-100)"
        finish
    fi
fi
judge() { # STEP[:KIND]...: a TAP line each
    "$venv/bin/python" tests/reference/transformers_peer.py "$tmp" "$@" >"$tmp/judged" 2>"$tmp/why"
    [ "$(grep -c '^ok - ' "$tmp/judged")" = $# ] || : >"$tmp/.checks_failed"
    cat "$tmp/judged"
    [ "$(grep -cE '^(not )?ok - ' "$tmp/judged")" = $# ] || report 1 "$* have ended" <"$tmp/why"
}

# A tiny model of each kind, trained for some steps, as transformers reads it.
decoders="llama mistral qwen2 gemma"
"$venv/bin/python" -c 'from transformers import Qwen3Config' 2>/dev/null && decoders+=" qwen3"
kinds="vit bert gpt2 $decoders"
judge data $(printf 'save:%s ' $kinds gpt2-tied-head)
for kind in $kinds; do
    check "$kind: a run to export" "$elapse" train "$tmp/$kind.json" --out "$tmp/run-$kind" --quiet
    check "$kind: export into a folder" "$elapse" export "$tmp/run-$kind" -o "$tmp/exported-$kind"
    check "$kind: a second export into the folder" "$elapse" export "$tmp/run-$kind" -o "$tmp/exported-$kind"
    "$elapse" eval "$tmp/run-$kind" "$tmp/$kind.json" --json >"$tmp/ours-$kind.json" 2>/dev/null
done

# Models of transformers, in shards, with an epsilon of their own.
for kind in $kinds gpt2-tied-head; do
    "$elapse" eval "$tmp/saved-$kind" "$tmp/saved-$kind.json" --json >"$tmp/theirs-$kind.json" 2>"$tmp/why"
    report $? "$kind: eval reads the folder" <"$tmp/why"
done

# Text by both, from the same folder.
for kind in gpt2 $decoders; do
    "$elapse" generate "$tmp/saved-$kind" --prompt 'the other winter' --vocab "$tmp/vocab.json" --temperature 0 --max-tokens 9 \
        --json >"$tmp/generated-$kind.json" 2>"$tmp/why"
    report $? "$kind: generate reads the folder" <"$tmp/why"
done
judge $(printf 'exported:%s ' $kinds) $(printf 'saved:%s ' $kinds gpt2-tied-head) $(printf 'generated:%s ' gpt2 $decoders)
finish
