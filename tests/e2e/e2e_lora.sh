#!/bin/bash
# Adapters beside a frozen base: the same bits at any cut, after a resume and with layers frozen on the way; text and
# exports, read back; what is refused. Losses and gradients beside peft: test_parity.c; files beside peft:
# tests/reference/lora_peer.py.
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

# The other families: one rank; two stages, then two replicas; stopped and resumed; layers frozen on the way with a cache.
other() { # NAME TARGETS MODEL: the job of another model and fewer samples
    sed -e "s/\"name\": \"lora\"/\"name\": \"$1\"/" -e "s|^  \"model\".*|  \"model\": {$3},|" -e 's/_samples": 60/_samples": 40/' \
        -e "s/\"alpha\": 6/\"alpha\": 6, \"targets\": [$2]/" "$tmp/lora.json" >"$tmp/$1.json"
}
other gpt2 '"c_attn", "c_proj", "c_fc"' '"preset": "gpt2", "layers": 3, "hidden": 16, "heads": 2, "seq": 8, "vocab": 260'
other bert '"query", "value", "dense"' '"preset": "bert-base", "layers": 3, "hidden": 16, "heads": 2, "mlp": 32, "seq": 8, "vocab": 64, "task": "classify", "classes": 3'
other vit '"query", "value", "fc1"' '"preset": "vit-tiny", "layers": 3, "hidden": 16, "heads": 2, "mlp": 32, "image": 8, "patch": 4, "classes": 10'
for kind in gpt2 bert vit; do
    some=(--threads 1)
    cut=("${some[@]}" --set freeze.policy=table --set 'freeze.table=[0,1,1]')
    train $kind $kind-1 -n 1 "${some[@]}"
    train $kind $kind-2 -n 2 "${some[@]}" --set pipeline.num_stages=2
    verify "$kind: K=1 and K=2" same_run $kind-1 $kind-2
    train $kind $kind-part -n 2 "${some[@]}" --set pipeline.num_replicas=2 --steps 4
    train $kind $kind-part -n 1 --threads 1 --resume "$tmp/$kind-part" --override
    verify "$kind: R=2, stopped, resumed on one rank" same_run $kind-1 $kind-part
    train $kind $kind-once -n 1 "${cut[@]}" --set cache.policy=off
    train $kind $kind-moved -n 2 "${cut[@]}" --set cache.policy=on --set 'elastic.stages=[2,1,1]'
    verify "$kind: frozen on the way, K 2 to 1, R 1 to 2, cached: the bits of one rank" same_run $kind-once $kind-moved
    verify "$kind: and the cache was read" has $kind-moved cache_hits -gt 0
done

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

begins() { [ -n "$(value "$1" weights_sha256)" ] && [ "$(value "$1" weights_sha256)" = "$(value "$2" weights_sha256)" ]; }
# Files of peft are read back: an export continues where it was made, and the base with it is the merged whole.
for kind in lora bert vit; do
    some=(--threads 1 -n 1)
    train $kind $kind-base "${some[@]}" --set train.lora.rank=0 --set train.lora.alpha=0 --set train.lora.targets=all --set train.epochs=0
    "$elapse" export "$tmp/$kind-base" -o "$tmp/$kind-from" >/dev/null
    train $kind $kind-own "${some[@]}" --init "$tmp/$kind-from"
    "$elapse" export "$tmp/$kind-own" -o "$tmp/$kind-adapter" >/dev/null
    "$elapse" export "$tmp/$kind-own" -o "$tmp/$kind-whole" --merged >/dev/null
    sed 's/, "lora": {[^}]*}//' "$tmp/$kind.json" >"$tmp/$kind-plain.json"
    "$elapse" eval "$tmp/$kind-from" "$tmp/$kind-plain.json" --adapter "$tmp/$kind-adapter" --json >"$tmp/beside.json"
    "$elapse" eval "$tmp/$kind-whole" "$tmp/$kind-plain.json" --json >"$tmp/merged.json"
    loss() { grep -o '"eval_loss":[^,]*' "$tmp/$1.json" | cut -d: -f2; }
    verify "$kind: base and adapters have the loss of the whole" calculate "$(loss beside) > 0 && sqrt(($(loss beside) - $(loss merged))^2) < 1e-5"
    train $kind-plain $kind-on --threads 1 -n 1 --init "$tmp/$kind-from" --adapter "$tmp/$kind-adapter" --set train.epochs=0
    verify "$kind: a run begins with the adapters of a folder" begins $kind-own $kind-on
done
text_of() { "$elapse" generate "$@" --prompt abc --temperature 0 --max-tokens 6 --json | grep -o '"tokens":[^]]*'; }
verify "text of base and adapters is that of the merged whole" test "$(text_of "$tmp/lora-from" --adapter "$tmp/lora-adapter")" = "$(text_of "$tmp/lora-whole")"
"$elapse" predict "$tmp/vit-from" --job "$tmp/vit-plain.json" --adapter "$tmp/vit-adapter" --csv >"$tmp/beside.csv" 2>"$tmp/why"
"$elapse" predict "$tmp/vit-own" --csv >"$tmp/own.csv" 2>>"$tmp/why"
classes() { [ -s "$tmp/own.csv" ] && diff <(cut -d, -f1-3 "$tmp/beside.csv") <(cut -d, -f1-3 "$tmp/own.csv"); }
verify "predict with base and adapters: the classes of the run" classes

expect "adapters in place of weights to generate with are refused" 2 "holds adapters, not the weights" "$elapse" generate "$tmp/lora-adapter" --prompt a
expect "adapters in place of weights to begin with are refused" 2 "holds adapters, not the weights" \
    "$elapse" train "$tmp/lora.json" --init "$tmp/lora-adapter" --out "$tmp/no"
bad() { # NAME STATUS PATTERN COMMAND: a copy of the adapter, changed by the command inside it, is refused in one line
    rm -rf "$tmp/bad" && cp -r "$tmp/lora-adapter" "$tmp/bad" && (cd "$tmp/bad" && $4)
    expect "$1 is refused" "$2" "$3" "$elapse" "${with[@]}" --adapter "$tmp/bad"
    verify "$1: one line" test "$(grep -vc '^hint: ' "$tmp/expect.err")" = 1
}
config() { # STATEMENT about the object c
    python3 -c "import json; c = json.load(open('adapter_config.json')); $1; json.dump(c, open('adapter_config.json', 'w'))"
}
with=(generate "$tmp/lora-from" --prompt abc)
bad "another peft_type" 2 'peft_type must be LORA, got IA3' 'config c["peft_type"]="IA3"'
bad "a target that matches nothing" 2 "'foo' names no product of model" 'config c["target_modules"][0]="foo"'
bad "a target without its tensors" 2 "has no tensor 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight'" \
    'sed -i s/q_proj/p_proj/ adapter_model.safetensors'
bad "a tensor without its target" 2 "the model has no place for tensor '.*q_proj" 'config c["target_modules"].remove("q_proj")'
bad "another rank than the tensors'" 2 'has shape \[3,32\], the model wants \[2,32\]' 'config c["r"]=2'
bad "a pattern of targets" 2 'target_modules must be a list' 'config c["target_modules"]=".*q_proj"'
bad "DoRA" 2 'use_dora asks for more' 'config c["use_dora"]=True'
for init in pissa pissa_niter_4 olora corda loftq lora_ga; do
    bad "an adapter that began with $init" 2 "init_lora_weights $init changed the weights of the base" "config c[\"init_lora_weights\"]=\"$init\""
done
bad "a key that is not known" 2 'use_new_way asks for more' 'config c["use_new_way"]={"a":1}'
bad "a rank of its own" 2 "rank_pattern asks for another value of 'q_proj'" 'config c["rank_pattern"]={"q_proj":2}'
bad "an alpha of its own" 2 "alpha_pattern asks for another value of 'q_proj'" 'config c["alpha_pattern"]={"q_proj":2}'
bad "biases" 2 'bias asks for more' 'config c["bias"]="lora_only"'
bad "another module beside them" 2 'modules_to_save may be classifier or qa_outputs, got lm_head' 'config c["modules_to_save"]=["lm_head"]'
rm -rf "$tmp/same" && cp -r "$tmp/lora-adapter" "$tmp/same"
(cd "$tmp/same" && config 'c.update(init_lora_weights="gaussian", use_new_way=None, rank_pattern={"q_proj": c["r"]}, alpha_pattern={"v_proj": c["lora_alpha"]})')
verify "keys that change nothing are read over" test "$(text_of "$tmp/lora-from" --adapter "$tmp/same")" = "$(text_of "$tmp/lora-whole")"
bad "a folder without weights" 3 'adapter_model.safetensors' 'rm adapter_model.safetensors'
with=(train "$tmp/lora.json" --set train.lora.rank=4 --init "$tmp/lora-from" --out "$tmp/no")
bad "a rank that is not the job's" 2 "has adapters of rank 3, the job's train.lora.rank is 4" :
with=(train "$tmp/lora-plain.json" --out "$tmp/no")
bad "an adapter without a base" 2 'adapter needs --init BASE' :
with=(train "$tmp/lora-plain.json" --init "$tmp/lora-own" --out "$tmp/no")
bad "an adapter beside a run" 2 'needs the weights of its base' :

refuse() { expect "$1 is refused" "$2" "$3" "$elapse" train "$tmp/lora.json" --out "$tmp/no" "${@:4}"; }
expect "adapters for one file" 2 'has adapters: -o must be a folder' "$elapse" export "$tmp/tuned" -o "$tmp/x.safetensors"
expect "nothing to merge" 2 'has no adapters to merge' "$elapse" export "$tmp/plain" -o "$tmp/x" --merged
mv "$tmp/plain" "$tmp/plain one"
refuse "a run without adapters, by its folder," 2 'holds another model: model.params .*' --init "$tmp/plain one"
verify "and the remedy is named, for a shell" grep -q "^hint: a base without adapters: elapse export '.*/plain one/.*' -o DIR" "$tmp/expect.err"
refuse "rank 0" 2 'train.lora.rank is 0' --set train.lora.rank=0
refuse "a target that matches nothing" 2 "train.lora.targets: 'foo' names no product" --set train.lora.targets=q_proj,foo
refuse "a target of another family" 2 "'c_attn' names no product" --set train.lora.targets=c_attn
refuse "a family without such layers" 1 'has no such layers' --set model=t5-small
refuse "a head that takes no adapter" 1 "'dense' also names cls.predictions.transform.dense" --set train.lora.targets=dense \
    --set model=bert-base:layers=2,task=mlm
refuse "a narrow base" 1 "train.lora.base must be 'same'" --set train.lora.base=nf4
refuse "dropout" 1 'train.dropout must be 0 with train.lora' --set train.dropout=0.1
finish
