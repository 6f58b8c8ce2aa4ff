#!/bin/bash
# Training on JSON lines: packed documents do not see each other, and the weights are those of one rank at any cut.
. "$(dirname "$0")/lib.sh"
begin
python3 - "$tmp" <<'PY'
import json, random, sys
draw = random.Random(2)
rows = [{"prompt": "".join(draw.choice("abc ") for _ in range(3)), "completion": "".join(draw.choice("xyz") for _ in range(5))}
        for _ in range(60)]
open(sys.argv[1] + "/d.jsonl", "w").write("".join(json.dumps(r) + "\n" for r in rows))
model = {"family": "llama", "layers": 2, "hidden": 16, "heads": 2, "kv_heads": 1, "mlp": 24, "vocab": 256, "seq": 32}
job = {"name": "lines", "model": model, "data": {"kind": "text", "path": "d.jsonl"},
       "train": {"batch": {"global": 4}, "max_steps": 20, "seed": 3, "optimizer": {"kind": "adamw", "lr": 0.05}},
       "pipeline": {"num_stages": 1, "num_replicas": 1, "num_microbatches": 2, "schedule": "1f1b"}}
json.dump(job, open(sys.argv[1] + "/job.json", "w"))
PY
value() { sed "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/" "$2"; }
check "one rank" "$elapse" train "$tmp/job.json" --out "$tmp/one" --quiet --set data.length=8
# 54 documents of the bytes of prompt and completion, four a row.
said() { "$elapse" train "$tmp/job.json" --out "$tmp/said" --set train.max_steps=1 2>&1 | grep -q 'd.jsonl.: 54 documents in 14 rows of 32 tokens, 3.6 % padding; for plan and sim data.length=8, data.length_deviation=0$'; }
verify "train says how its rows are filled" said
rows() { # the same file by the prediction: 54 documents in rows of four
    "$elapse" plan "$tmp/job.json" --cluster a100-1x1 --set data.length=8 --set data.documents=54 --set train.max_steps=0 --json --quiet |
        python3 -c 'import json, sys; a = json.load(sys.stdin); r = a["samples_per_s"]; n = a["run_ns"] * r / 1e9; assert abs(n - 14) < 0.01 and abs(a["documents_per_s"] / r - 4) < 1e-6, (n, a["documents_per_s"] / r)'
}
verify "plan fills rows as train does" rows
expect "train packs all documents" 2 'data.documents is for plan and sim; train packs all documents' \
    "$elapse" train "$tmp/job.json" --set data.length=8 --set data.documents=54
expect "train knows no lengths of other data" 2 'data.length: samples of data.kind synthetic are no rows of documents' \
    "$elapse" train "$tmp/job.json" --set data.length=8 --set data.kind=synthetic --set data.path=null
check "two stages" "$elapse" train "$tmp/job.json" -n 2 --set pipeline.num_stages=2 --out "$tmp/two" --quiet
sums() { tr -d ' \n' <"$tmp/$1/summary.json" | value weights_sha256 /dev/stdin; }
verify "two stages have the bits of one" test "$(sums one)" = "$(sums two)"
# Windows of one document each, of four, and of three with padding: the same loss.
for seq in 8 32 30; do
    "$elapse" eval "$tmp/one" --set model.seq=$seq --json >"$tmp/eval-$seq.json" 2>"$tmp/why"
    report $? "eval with windows of $seq tokens" <"$tmp/why"
done
close() { awk -v a="$(value eval_loss "$1")" -v b="$(value eval_loss "$2")" 'BEGIN {exit !(a > 0 && (a - b) ^ 2 < (1e-6 * a) ^ 2)}'; }
verify "a document's loss does not depend on those beside it" close "$tmp/eval-8.json" "$tmp/eval-32.json"
verify "nor on padding" close "$tmp/eval-8.json" "$tmp/eval-30.json"

# Chats by the template beside the tokenizer, which an export takes along.
cp tests/golden/chats/tokenizer.json "$tmp/"
cat >"$tmp/tokenizer_config.json" <<'JSON'
{"chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}", "eos_token": "</s>"}
JSON
for i in $(seq 40); do echo '{"messages": [{"role": "user", "content": "what is it"}, {"role": "assistant", "content": "a cat"}]}'; done >"$tmp/chats.jsonl"
chats=(--set data.path=chats.jsonl --set data.vocab=tokenizer.json --set model.vocab=300 --set model.seq=64 --set train.max_steps=1)
"$elapse" train "$tmp/job.json" --out "$tmp/chats" "${chats[@]}" 2>"$tmp/why"
report $? "chats train" <"$tmp/why"
verify "34 tokens of a chat, by the template that is named" grep -q "written by the chat template of '.*tokenizer_config.json'" "$tmp/why"
verify "its length is said" grep -q 'data.length=34,' "$tmp/why"
check "and export" "$elapse" export "$tmp/chats" -o "$tmp/hf"
kept() { python3 -c "import json, sys; a, b = (json.load(open(p + '/tokenizer_config.json')) for p in sys.argv[1:]); assert all(a[k] == b[k] for k in a)" "$tmp" "$tmp/hf"; }
verify "the export has the template" kept
for i in $(seq 40); do echo '{"prompt": "a prompt that is longer than the window", "completion": "yes"}'; done >"$tmp/long.jsonl"
expect "prompts that fill the window" 2 'has no token that counts in the loss' "$elapse" train "$tmp/job.json" --set data.path=long.jsonl --out "$tmp/no"
finish
