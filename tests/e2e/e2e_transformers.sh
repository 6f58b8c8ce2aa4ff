#!/bin/bash
# Exports and imports beside transformers itself (PyPI, in build/transformers, beside the system's torch): an exported
# folder is read by from_pretrained(), what save_pretrained() writes is read by `elapse eval`, and the losses are equal.
# group: slow
. "$(dirname "$0")/lib.sh"
begin
name="transformers: exports and imports compute the same"
venv=${ELAPSE_TRANSFORMERS:-build/transformers}
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
judge() { "$venv/bin/python" tests/reference/transformers_peer.py "$1" "$tmp" "${@:2}"; }

verify "data and tokenizers are made" judge data

# A tiny model of each kind, trained for some steps, as transformers reads it.
decoders="llama mistral qwen2 gemma"
"$venv/bin/python" -c 'from transformers import Qwen3Config' 2>/dev/null && decoders+=" qwen3"
for kind in vit bert gpt2 $decoders; do
    check "$kind: a run to export" "$elapse" train "$tmp/$kind.json" --out "$tmp/run-$kind" --quiet
    check "$kind: export into a folder" "$elapse" export "$tmp/run-$kind" -o "$tmp/exported-$kind"
    check "$kind: a second export into the folder" "$elapse" export "$tmp/run-$kind" -o "$tmp/exported-$kind"
    "$elapse" eval "$tmp/run-$kind" "$tmp/$kind.json" --json >"$tmp/ours-$kind.json" 2>/dev/null
    verify "$kind: from_pretrained() has our loss" judge exported "$kind"
done

# Models of transformers, in shards, with an epsilon of their own.
for kind in vit bert gpt2 gpt2-tied-head $decoders; do
    verify "$kind: save_pretrained() in shards" judge save "$kind"
    "$elapse" eval "$tmp/saved-$kind" "$tmp/saved-$kind.json" --json >"$tmp/theirs-$kind.json" 2>"$tmp/why"
    report $? "$kind: eval reads the folder" <"$tmp/why"
    verify "$kind: eval has their loss" judge saved "$kind"
done

# Text by both, from the same folder.
for kind in gpt2 $decoders; do
    "$elapse" generate "$tmp/saved-$kind" --prompt 'the other winter' --vocab "$tmp/vocab.json" --temperature 0 --max-tokens 9 \
        --json >"$tmp/generated-$kind.json" 2>"$tmp/why"
    report $? "$kind: generate reads the folder" <"$tmp/why"
    verify "$kind: its tokens and log-probabilities are theirs" judge generated "$kind"
done
finish
