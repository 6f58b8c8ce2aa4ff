#!/bin/bash
# tests/e2e/e2e_models.sh - `elapse model`, `balance` and `freeze` from outside: the published goldens
# in the keys that scripts rely on, and what bad input gets.
. "$(dirname "$0")/lib.sh"
begin

has() { # NAME FIXED_TEXT COMMAND...: the answer contains the text
    local name=$1 text=$2
    shift 2
    timeout 60 "$@" >"$tmp/has.out" 2>&1
    local rc=$?
    { [ $rc -eq 0 ] && grep -Fq -- "$text" "$tmp/has.out"; }
    report $? "$name" < <(echo "exit $rc, wanted '$text': $*"; cat "$tmp/has.out")
}

# --- model ------------------------------------------------------------------------------------------
has "vit-b16 has 86,567,656 parameters" '"total_params":86567656' "$elapse" model vit-b16 --json
has "an attention item" \
    '{"name":"attn0","kind":"attention","layer":0,"params":2363904,"fwd_flops":1048783872,"act_bytes":605184,' \
    "$elapse" model vit-b16 --json
has "the table reads well" "27 items, 12 layers, 86567656 parameters" "$elapse" model vit-b16
expect "an unknown model names the nearest" 2 "unknown model 'vit-b61'; did you mean 'vit-b16'" \
    "$elapse" model vit-b61
expect "an unknown key lists the valid ones" 2 "keys of a vit: layers hidden" \
    "$elapse" model vit-b16:clases=3
expect "a missing MODEL" 2 "MODEL is missing" "$elapse" model
expect "overflowing sizes" 2 "overflows" "$elapse" model uniform:layers=4,params=9223372036854775807

# --- ids of the Hugging Face hub, from its local cache ----------------------------------------------
export HF_HOME="$tmp/hf"
unset HF_HUB_CACHE
snapshot=$HF_HOME/hub/models--some-org--Tiny_1.5/snapshots/0123abc
mkdir -p "$snapshot" "${snapshot%/snapshots*}/refs"
printf 0123abc >"${snapshot%/snapshots*}/refs/main"
cat >"$snapshot/config.json" <<'EOF'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
 "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 256}
EOF
by_id() { # as the model's config.json, with and without seq, in a job too
    local seq
    for seq in "" ":seq=64"; do
        "$elapse" model "$snapshot/config.json$seq" --json >"$tmp/by_path" && "$elapse" model "some-org/Tiny_1.5$seq" --json >"$tmp/by_id" &&
            cmp "$tmp/by_path" "$tmp/by_id" || return 1
    done
    printf '{"model": "some-org/Tiny_1.5", "cluster": "a100-1x2", "train": {"batch": {"global": 4}}}' >"$tmp/hub.json"
    "$elapse" plan "$tmp/hub.json" --set model.seq=64 --json --quiet | grep -q '"preset":"some-org/Tiny_1.5"'
}
verify "an id of the hub is its config.json in the cache" by_id
expect "an id that is not in the cache: how to fetch it" 2 "hint: hf download some-org/Other config.json" "$elapse" model some-org/Other
has "an id that is a preset needs no cache" '"num_layers":32' "$elapse" model meta-llama/Meta-Llama-3-8B --json

# --- balance ----------------------------------------------------------------------------------------
has "released cut of vit-b16 at 8" '"cut":[4,2,3,3,3,3,4,5]' \
    "$elapse" balance vit-b16 --stages 8 --balancer released --json
has "its budget" '"max":14175744,"budget":14175744' \
    "$elapse" balance vit-b16 --stages 8 --balancer released --json
has "optimal is 12.582 M" '"max":12582376' "$elapse" balance vit-b16 --stages 8 --json
has "paper leaves stages empty" '"cut":[0,0,0,1,6,6,6,8]' \
    "$elapse" balance bert-base --stages 8 --balancer paper --json
want=(8 8 8 8 4 4 4 4 2 2 1 1)
paper=(8 8 8 8 8 4 4 4 4 4 2 2)
for f in {1..12}; do
    has "released ends at ${want[f - 1]} stages with F = $f" "\"stages\":${want[f - 1]},\"first_item\":$((2 * f + 1))" \
        "$elapse" balance vit-b16 --stages 8 --balancer released --compress --frozen "$f" --json
    has "paper ends at ${paper[f - 1]} stages with F = $f" "\"stages\":${paper[f - 1]},\"first_item\":0" \
        "$elapse" balance vit-b16 --stages 8 --balancer paper --compress --frozen "$f" --json
done
has "sizes are cut as given" '"cut":[1,2],"sizes":[3,3],"max":3' \
    "$elapse" balance --sizes 3,1,2 --stages 2 --json
has "constants make the time of a uniform model" '"sizes":[2000000,3000000,3000000]' \
    "$elapse" balance uniform:layers=4 --by time --frozen 1 --stages 3 --json
cat >"$tmp/net.json" <<'JSON'
{"family": "explicit", "name": "net", "per_microbatch": true,
 "items": [{"name": "a", "fwd_ns": 100}, {"name": "b", "fwd_ns": 100},
           {"name": "c", "fwd_ns": 100}, {"name": "d", "fwd_ns": 100}],
 "skips": [{"from": 1, "to": 2, "bytes": 1000}]}
JSON
sed 's/"from": 1, "to": 2/"from": 2, "to": 1/' "$tmp/net.json" >"$tmp/back.json"
expect "a backward skip edge" 2 "skip edge 2 -> 1 must go forward" \
    "$elapse" balance "$tmp/back.json" --stages 2
expect "--microbatch without time" 2 "^elapse: balance: --microbatch goes with --by time$" "$elapse" balance vit-b16 --stages 8 --microbatch 4
expect "K = 0" 2 "--stages must be 1.." "$elapse" balance vit-b16 --stages 0
expect "K > items" 1 "^elapse: cannot cut 27 items into 28 stages$" "$elapse" balance vit-b16 --stages 28
expect "an absurd K" 1 "cannot cut 27 items" "$elapse" balance vit-b16 --stages 1000000000
expect "too little left to cut" 1 "cannot cut 2 items into 8 stages" \
    "$elapse" balance vit-b16 --stages 8 --frozen 12
expect "a key twice" 2 'layers given twice' "$elapse" model vit-b16:layers=3,classes=4,layers=5
expect "F > L" 1 "--frozen must be 0..12" "$elapse" balance vit-b16 --stages 8 --frozen 13
expect "a negative size" 2 "--sizes: value 2" "$elapse" balance --sizes 3,-1 --stages 1
expect "sizes that overflow" 2 "overflows at item 1" \
    "$elapse" balance --sizes 9223372036854775807,1 --stages 1
expect "an unknown balancer" 2 "did you mean 'optimal'" \
    "$elapse" balance vit-b16 --stages 2 --balancer optimum

# --- freeze -----------------------------------------------------------------------------------------
has "closed form of 12 layers" '"frozen":[0,4,7,9,10,11,11,12,12,12]' \
    "$elapse" freeze --layers 12 --alpha 1/3 --epochs 10 --json
has "closed form of 24 layers" '"frozen":[0,8,14,17,20,21,22,23,24,24]' \
    "$elapse" freeze --layers 24 --alpha 1/3 --epochs 10 --json
has "closed form at one half" '"frozen":[0,6,9,11,12,12,12,12,12,12]' \
    "$elapse" freeze --layers 12 --alpha 1/2 --epochs 10 --json
has "a named table" '"frozen":[0,0,6,8,8,8,10,10,12,12]' \
    "$elapse" freeze --layers 12 --epochs 10 --table mild --json
echo '[0, 3, 2]' >"$tmp/table.json"
has "a table from a file may go down" '"frozen":[0,3,2,2]' \
    "$elapse" freeze --layers 12 --epochs 4 --policy table --table "$tmp/table.json" --json
echo '[[4, 1, 3, 4], [1, 2, 3, 0.5]]' >"$tmp/norms.json"
has "gradient norms from a file" '"frozen":[0,1,2]' \
    "$elapse" freeze --layers 4 --epochs 3 --policy gradient-norm --norms "$tmp/norms.json" --json
has "a minimum of active layers" '"frozen":[0,4,7,9,9]' \
    "$elapse" freeze --layers 12 --epochs 5 --min-active 3 --json
# Recorded norms of one small ViT under four learning-rate schedules (tests/reference/freeze_norms.py):
# the median test freezes sooner when the rate is a tenth; plateau later, and not at a drop of the rate.
frozen() { # SCHEDULE POLICY ANSWER
    has "$2 on the recorded run '$1'" "\"frozen\":[$3]" "$elapse" freeze --layers 6 --epochs 15 \
        --policy "$2" --norms "tests/golden/norms-$1.json" --json
}
frozen constant gradient-norm 0,2,4,5,5,5,5,5,5,5,5,5,5,5,5
frozen constant relative-change 0,0,1,3,4,5,6,6,6,6,6,6,6,6,6
frozen tenth relative-change 0,0,3,4,6,6,6,6,6,6,6,6,6,6,6
frozen constant plateau 0,0,0,0,0,0,0,0,1,1,3,4,4,5,6
frozen tenth plateau 0,0,0,0,0,0,0,0,0,0,0,0,0,0,1
frozen step plateau 0,0,0,0,0,0,0,0,1,1,1,1,1,1,1
frozen cosine plateau 0,0,0,0,0,0,0,0,1,1,1,3,4,5,5
for alpha in 0 1 -0.5 1.5 nan; do
    expect "alpha $alpha" 2 "alpha" "$elapse" freeze --layers 12 --alpha "$alpha" --epochs 3
done
echo '[[1, 2, NaN, 4]]' >"$tmp/nan.json"
expect "NaN norms" 2 "nan.json" "$elapse" freeze --layers 4 --epochs 2 --norms "$tmp/nan.json"
echo '[[1, 2, -3, 4]]' >"$tmp/negative.json"
expect "negative norms" 2 "norms.0..2. must be a number at least 0, got -3" \
    "$elapse" freeze --layers 4 --epochs 2 --norms "$tmp/negative.json"
expect "too few epochs of norms" 2 "5 epochs need 4" \
    "$elapse" freeze --layers 4 --epochs 5 --norms "$tmp/norms.json"
expect "norms for a table" 2 "policy 'table' does not use --norms" \
    "$elapse" freeze --layers 4 --epochs 3 --table mild --norms "$tmp/norms.json"
expect "a missing file" 3 "No such file" "$elapse" freeze --layers 4 --norms "$tmp/absent.json"
finish
