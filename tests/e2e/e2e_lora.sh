#!/bin/bash
# Adapters beside a frozen base: the same bits at any cut, after a resume and with layers frozen on the way; text and
# exports; what is refused. Losses and gradients beside peft: test_parity.c; files beside peft: tests/reference/lora_peer.py.
# group: slow
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin

cat >"$tmp/lora.json" <<'JOB'
{ "name": "lora",
  "model": {"preset": "llama3-8b", "layers": 4, "hidden": 32, "heads": 2, "kv_heads": 1, "mlp": 64, "seq": 16, "vocab": 256},
  "data": {"kind": "synthetic", "train_samples": 60, "test_samples": 16},
  "train": {"epochs": 3, "batch": {"global": 16}, "clip_norm": 1.0, "reduction": "canonical",
            "optimizer": {"kind": "adamw", "lr": 0.003}, "lora": {"rank": 3, "alpha": 6}},
  "pipeline": {"num_stages": "auto", "num_replicas": "auto", "num_microbatches": 4, "schedule": "1f1b"} }
JOB
train lora k1 --threads 1 -n 1
train lora k4 --threads 1 -n 4 --set pipeline.num_stages=4 --set pipeline.schedule=zb-h1
verify "K=1 and K=4, zb-h1" same_run k1 k4
train lora part --threads 1 -n 2 --steps 6
train lora part --threads 1 -n 1 --resume "$tmp/part"
verify "stopped on two ranks, resumed on one" same_run k1 part
frozen=(--threads 1 --set freeze.policy=table --set 'freeze.table=[0,2,2]' --set train.dtype=bf16)
train lora once -n 1 "${frozen[@]}" --set cache.policy=off
train lora moved -n 2 "${frozen[@]}" --set cache.policy=on --set 'elastic.stages=[2,2,1]'
verify "bf16, frozen on the way, K 2 to 1, R 1 to 2, cached: the bits of one rank" same_run once moved
verify "and the cache was read" has moved cache_hits -gt 0
train lora last --threads 1 -n 1 --set freeze.policy=closed-form --set train.epochs=6
verify "the last layer with adapters stays active" says last 'held at 3, 1 must stay active'

weights() { python3 - "$1" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
for name, t in sorted(json.loads(data[8:8 + size]).items()):
    if name != "__metadata__":
        print(name, t["shape"], data[8 + size:][slice(*t["data_offsets"])].hex())
PY
}
expect "a base for adapters" 0 '' "$elapse" train "$tmp/lora.json" --set train.lora.rank=0 --set train.lora.alpha=0 \
    --set train.epochs=0 --out "$tmp/plain" --quiet
"$elapse" export "$tmp/plain" -o "$tmp/base" >/dev/null
train lora tuned --threads 1 -n 1 --init "$tmp/base"
"$elapse" export "$tmp/tuned" -o "$tmp/adapters" >/dev/null
"$elapse" export "$tmp/tuned" -o "$tmp/merged" --merged >/dev/null
verify "adapters have peft's files" test "$(ls "$tmp/adapters" | tr '\n' ' ')" = "adapter_config.json adapter_model.safetensors "
weights "$tmp/adapters/adapter_model.safetensors" >"$tmp/adapters.txt"
verify "and names" grep -q '^base_model.model.model.layers.3.mlp.down_proj.lora_B.weight \[32, 3\]' "$tmp/adapters.txt"
unchanged() { diff <(weights "$tmp/base/model.safetensors" | grep -v _proj) <(weights "$tmp/merged/model.safetensors" | grep -v _proj); }
verify "the base is as it was, but where adapters were added" unchanged
moved_by_adapters() { ! diff -q <(weights "$tmp/base/model.safetensors") <(weights "$tmp/merged/model.safetensors"); }
verify "and there it is not" moved_by_adapters
text() { "$elapse" generate "$1" --prompt abc --temperature 0 --max-tokens 6 --json | grep -o '"tokens":.*"logprobs":[^]]*'; }
verify "the run and the merged folder write the same text" test "$(text "$tmp/tuned")" = "$(text "$tmp/merged")"
verify "which is not the base's" test "$(text "$tmp/tuned")" != "$(text "$tmp/base")"

refuse() { expect "$1 is refused" "$2" "$3" "$elapse" train "$tmp/lora.json" --out "$tmp/no" "${@:4}"; }
expect "adapters for one file" 2 'has adapters: -o must be a folder' "$elapse" export "$tmp/tuned" -o "$tmp/x.safetensors"
expect "nothing to merge" 2 'has no adapters to merge' "$elapse" export "$tmp/plain" -o "$tmp/x" --merged
mv "$tmp/plain" "$tmp/plain one"
refuse "a run without adapters, by its folder," 2 'holds another model: model.params .*' --init "$tmp/plain one"
verify "and the remedy is named, for a shell" grep -q "^hint: a base without adapters: elapse export '.*/plain one/.*' -o DIR" "$tmp/expect.err"
refuse "rank 0" 2 'train.lora.rank is 0' --set train.lora.rank=0
refuse "a target that matches nothing" 2 'train.lora.targets must be all' --set train.lora.targets=foo
refuse "a family without adapters" 1 "model 'gpt2' is of family gpt" --set model=gpt2:layers=2,hidden=32,heads=2
refuse "a narrow base" 1 "train.lora.base must be 'same'" --set train.lora.base=nf4
refuse "dropout" 1 'train.dropout must be 0 with train.lora' --set train.dropout=0.1
finish
