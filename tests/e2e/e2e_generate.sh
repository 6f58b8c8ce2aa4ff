#!/bin/bash
# `elapse generate` from a folder of Hugging Face's form, and what it refuses. e2e_transformers.sh compares tokens with
# those of transformers.
. "$(dirname "$0")/lib.sh"
begin
python3 - "$tmp" <<'PY'
import json, os, random, struct, sys
draw = random.Random(1)
def write(path, tensors):
    head, data = {}, b""
    for name, shape in tensors.items():
        n = 1
        for d in shape:
            n *= d
        body = struct.pack("<%df" % n, *(draw.uniform(-1, 1) for _ in range(n)))
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(body)]}
        data += body
    text = json.dumps(head).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)
layer = {"input_layernorm": [8], "self_attn.q_proj": [8, 8], "self_attn.k_proj": [4, 8], "self_attn.v_proj": [4, 8],
         "self_attn.o_proj": [8, 8], "post_attention_layernorm": [8], "mlp.gate_proj": [12, 8], "mlp.up_proj": [12, 8],
         "mlp.down_proj": [8, 12]}
one = {"model.embed_tokens.weight": [256, 8], "model.norm.weight": [8], "lm_head.weight": [256, 8]}
two = {"model.layers.0.%s.weight" % k: v for k, v in layer.items()}
config = {"model_type": "llama", "vocab_size": 256, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
          "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 24}
for name in ("good", "short", "absent", "heads", "unigram"):
    folder = os.path.join(sys.argv[1], name)
    os.mkdir(folder)
    write(folder + "/model-00001-of-00002.safetensors", one)
    write(folder + "/model-00002-of-00002.safetensors", two)
    files = {k: "model-00001-of-00002.safetensors" for k in one}
    files.update({k: "model-00002-of-00002.safetensors" for k in two})
    if name == "absent":
        files["model.layers.7.mlp.up_proj.weight"] = "model-00002-of-00002.safetensors"
    json.dump({"weight_map": files}, open(folder + "/model.safetensors.index.json", "w"))
    heads = {"num_attention_heads": 3, "num_key_value_heads": 2} if name == "heads" else {}
    json.dump({**config, **heads}, open(folder + "/config.json", "w"))
os.remove(os.path.join(sys.argv[1], "short/model-00002-of-00002.safetensors"))
json.dump({"model": {"type": "Unigram", "vocab": []}}, open(os.path.join(sys.argv[1], "unigram/tokenizer.json"), "w"))
PY
say() { "$elapse" generate "$tmp/good" --prompt abc --json "$@" 2>/dev/null | sed 's/.*"text":\("[^,]*"\),.*"ended_by":"\([a-z_]*\)".*/\2 \1/'; }
same() { [ -n "$1" ] && [ "$1" = "$2" ]; }
text="$(say --max-tokens 12 --seed 4)"
verify "the same seed gives the same text" same "$text" "$(say --max-tokens 12 --seed 4 --threads 1)"
verify "another seed gives another" test "$text" != "$(say --max-tokens 12 --seed 5)"
verify "the text ends where the context is full" same "$(say --max-tokens 99 | cut -d' ' -f1)" context
likeliest=$("$elapse" generate "$tmp/good" --prompt abc --temperature 0 --max-tokens 6 | od -An -tx1 | tr -d ' \n')
verify "without --json the text is written as it comes" test "${#likeliest}" -ge 8
expect "no prompt" 2 'prompt TEXT is missing' "$elapse" generate "$tmp/good"
expect "an empty prompt" 2 'the prompt has no tokens' "$elapse" generate "$tmp/good" --prompt ''
expect "a prompt longer than the context" 2 "prompt has 30 tokens, the context of model 'llama' is 24" \
    "$elapse" generate "$tmp/good" --prompt 012345678901234567890123456789
expect "a missing shard" 3 "cannot .*short/model-00002-of-00002.safetensors" "$elapse" generate "$tmp/short" --prompt a
expect "an index that names an absent tensor" 2 "holds tensor 'model.layers.7.mlp.up_proj.weight', but it does not" \
    "$elapse" generate "$tmp/absent" --prompt a
expect "heads that do not divide" 2 "heads" "$elapse" generate "$tmp/heads" --prompt a
expect "a tokenizer that is not supported" 2 "model 'Unigram' is not supported" "$elapse" generate "$tmp/unigram" --prompt a
expect "no such folder" 3 "cannot open" "$elapse" generate "$tmp/none" --prompt a
expect "a share that is none" 2 "top-p must be above 0" "$elapse" generate "$tmp/good" --prompt a --top-p 1.5
finish
