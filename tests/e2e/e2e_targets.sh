#!/bin/bash
# `elapse plan --for`: the search keeps to what a framework runs, and -o writes its configuration.
. "$(dirname "$0")/lib.sh"
begin
cat >"$tmp/job.json" <<'END'
{"model": "llama:layers=8,hidden=1024,heads=16,seq=2048,vocab=32000", "cluster": "h100-2x2", "data": {"kind": "synthetic"},
 "train": {"batch": {"global": 16}, "dtype": "bf16", "optimizer": {"kind": "adamw"}}}
END
plan() { # FRAMEWORK key=value...: write $tmp/FRAMEWORK, print the JSON
    local to=$1 sets=()
    shift
    for s in "$@"; do sets+=(--set "$s"); done
    "$elapse" plan "$tmp/job.json" --for "$to" -o "$tmp/$to" --budget 1s --quiet --json "${sets[@]}"
}
two="pipeline.num_stages=2 pipeline.num_replicas=2 pipeline.tensor=1"
export -f plan
export elapse tmp two
# shellcheck disable=SC2086 # $two is several words
torchtitan() {
    plan torchtitan $two pipeline.schedule=zb-v >"$tmp/t.json" || return 1
    "$elapse" schedule --check "$tmp/torchtitan.csv" || return 1
    python3 - "$tmp" <<'END'
import json, sys
a = json.load(open(sys.argv[1] + "/t.json"))
text = open(sys.argv[1] + "/torchtitan").read()
words = text.split()
assert a["devices"] == [[0, 2], [1, 3]], a["devices"]
parts = [p.split(",") for p in words[words.index("--parallelism.module_fqns_per_model_part") + 1:-1]]
assert sum(parts, []) == ["tok_embeddings"] + [f"layers.{i}" for i in range(8)] + ["norm", "lm_head"], parts
assert len(parts) == 4 and words[-1] == "activation-checkpoint:none", text
assert words[words.index("--parallelism.pipeline_parallel_schedule") + 1] == "ZBVZeroBubble"
assert words[words.index("--parallelism.pipeline_parallel_schedule_csv") + 1] == sys.argv[1] + "/torchtitan.csv"
assert a["for"]["text"] == text and a["not_expressible"], a["for"]
END
}
export -f torchtitan
check "plan: --for torchtitan writes flags and an op list" bash -c torchtitan
kernels() { # of --for, unless the job names others
    one() { "$elapse" plan --model llama3.2-1b --cluster h100-1x2 --batch 8 --dtype bf16 --for torchtitan --work 20000 --quiet "$@" | grep -v judged; }
    one >"$tmp/of" && one --framework fsdp >"$tmp/fsdp" && one --framework megatron-te >"$tmp/te" && cmp "$tmp/of" "$tmp/fsdp" && ! cmp -s "$tmp/of" "$tmp/te"
}
verify "plan: --for sets the framework's kernels" kernels
lists() {
    plan torchtitan $two pipeline.schedule=search train.framework=megatron-te >"$tmp/l.json" || return 1
    "$elapse" schedule --check "$tmp/torchtitan.csv" || return 1
    python3 -c 'import json, sys; a = json.load(open(sys.argv[1])); assert a["order"] == open(sys.argv[2]).read(), a["schedule"]' \
        "$tmp/l.json" "$tmp/torchtitan.csv"
}
export -f lists
check "plan: --for torchtitan writes op lists that were found" bash -c lists
expect "plan: --for megatron takes none" 2 'megatron does not run pipeline.schedule search' "$elapse" plan "$tmp/job.json" --for megatron \
    --set pipeline.schedule=search
megatron() {
    plan megatron $two pipeline.schedule=1f1b pipeline.num_microbatches=16 >"$tmp/m.json" || return 1
    python3 - "$tmp" <<'END'
import json, sys
a = json.load(open(sys.argv[1] + "/m.json"))
words = open(sys.argv[1] + "/megatron").read().split()
flags = {w: (words + [""])[i + 1] for i, w in enumerate(words) if w.startswith("--")}
assert a["cut"][0] % 2 == 1, a["cut"]  # the embedding and whole layers
first = (a["cut"][0] - 1) // 2
want = f"Et*{first}|t*{8 - first}L"
assert first == 4 or flags["--pipeline-model-parallel-layout"] == want, (want, flags)
assert flags["--num-layers"] == "8" and flags["--hidden-size"] == "1024" and "--swiglu" in flags, flags
assert flags["--pipeline-model-parallel-size"] == "2" and flags["--global-batch-size"] == "16", flags
END
}
export -f megatron
check "plan: --for megatron writes flags" bash -c megatron
# --from reads the configuration that --for writes: the same layout and step.
back() { # FRAMEWORK FILE.json FLAGS
    "$elapse" plan --from "$1" "$3" --cluster "$4" --budget 1s --quiet --json >"$tmp/back.json" || return 1
    python3 - "$2" "$tmp/back.json" <<'END'
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
b = b["today"]
for key in ("cut", "recompute_layers", "pipeline_length", "replicas", "microbatches", "schedule", "recompute", "devices"):
    assert a.get(key) == b.get(key), (key, a.get(key), b.get(key))
assert a.get("shard", "none") == b.get("shard", "none")
assert abs(a["step_ns"] / b["step_ns"] - 1) < 0.002, (a["step_ns"], b["step_ns"])
END
}
export -f back
megatron_back() {
    for more in pipeline.schedule=1f1b "pipeline.schedule=interleaved pipeline.chunks=2 pipeline.recompute=layer pipeline.recompute_layers=2 pipeline.shard=optimizer"; do
        plan megatron $two pipeline.num_microbatches=16 pipeline.bucket_bytes=0 train.framework=megatron-te $more >"$tmp/m.json" || return 1
        back megatron "$tmp/m.json" "$(cat "$tmp/megatron")" h100-2x2 || return 1
    done
}
export -f megatron_back
check "plan: --from megatron reads what --for megatron writes" bash -c megatron_back
torchtitan_back() {
    "$elapse" plan "$tmp/job.json" --for torchtitan -o "$tmp/tt" --budget 1s --quiet --json --set model=llama3.1-8b \
        --set cluster=h100-2x4 --set train.framework=fsdp --set pipeline.num_stages=2 --set pipeline.num_replicas=4 \
        --set pipeline.tensor=1 --set pipeline.schedule=1f1b --set pipeline.shard=gradients --set pipeline.recompute=layer >"$tmp/tt.json" || return 1
    back torchtitan "$tmp/tt.json" "$(cat "$tmp/tt")" h100-2x4
}
export -f torchtitan_back
check "plan: --from torchtitan reads what --for torchtitan writes" bash -c torchtitan_back
expect "plan: --from torchtitan cuts by torchtitan's rule" 0 '"cut":\[17,18,16,16\]' \
    "$elapse" plan --from torchtitan "--module llama3 --config llama3_8b --parallelism.pipeline_parallel_degree 4
        --training.local_batch_size=8 activation-checkpoint:full" --cluster h100-1x8 --budget 1s --quiet --json
expect "plan: --from torchtitan names configs" 2 'config must be one of llama3_8b' \
    "$elapse" plan --from torchtitan "--config llama9" --cluster h100-1x8
expect "plan: a layout of other layers" 2 'pipeline-model-parallel-layout must have E, 8 t' \
    "$elapse" plan --from megatron "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 100
        --micro-batch-size 1 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ettt|(t)*4L" --cluster h100-1x8
deepspeed() {
    plan deepspeed $two >"$tmp/d.json" || return 1
    python3 - "$tmp" <<'END'
import json, sys
a = json.load(open(sys.argv[1] + "/d.json"))
c = json.load(open(sys.argv[1] + "/deepspeed"))
assert a["cut"] == [9, 10], a["cut"]  # ten modules, five a stage: E and four layers, four layers and norm and head
assert c["train_batch_size"] == 16 == 2 * c["train_micro_batch_size_per_gpu"] * c["gradient_accumulation_steps"], c
assert any("num_stages=2" in m for m in a["not_expressible"]), a["not_expressible"]
END
}
export -f deepspeed
check "plan: --for deepspeed has its cut and its batch" bash -c deepspeed
automodel() {
    plan automodel $two pipeline.schedule=interleaved pipeline.shard=weights >/dev/null || return 1
    grep -q '^      - \[model.embed_tokens, model.layers.0, .*model.rotary_emb\]$' "$tmp/automodel" &&
        grep -q '^    pp_schedule: Interleaved1F1B$' "$tmp/automodel" && [ -s "$tmp/automodel.csv" ]
}
export -f automodel
check "plan: --for automodel writes its section" bash -c automodel
packed() { # rows of documents: AutoModel's packer makes them, elsewhere the data loader
    plan automodel $two pipeline.shard=weights data.length=300 >"$tmp/a.json" &&
        grep -A1 '^packed_sequence:$' "$tmp/automodel" | grep -q '^  packed_sequence_size: 2048$' && ! grep -q train.rows "$tmp/a.json" &&
        plan megatron $two data.length=300 >"$tmp/m.json" && grep -q 'train.rows: the data loader packs or pads documents' "$tmp/m.json"
}
export -f packed
check "plan: --for automodel packs rows, megatron names them" bash -c packed
check "plan: --for nanotron" bash -c "plan nanotron $two"
check "plan: --for nanotron writes its parallelism" grep -q '^  pp_engine: ' "$tmp/nanotron"
on_host() { # the optimizer on the host there, and back
    plan megatron $two pipeline.num_microbatches=16 pipeline.bucket_bytes=0 train.framework=megatron-te pipeline.schedule=1f1b pipeline.shard=optimizer \
        pipeline.offload=optimizer >"$tmp/m.json" && grep -q '^--optimizer-cpu-offload$' "$tmp/megatron" &&
        back megatron "$tmp/m.json" "$(cat "$tmp/megatron")" h100-2x2 &&
        plan deepspeed $two pipeline.offload=optimizer >"$tmp/d.json" &&
        python3 -c 'import json, sys; z = json.load(open(sys.argv[1]))["zero_optimization"]; assert z["stage"] > 0 and z["offload_optimizer"] == {"device": "cpu"}, z' "$tmp/deepspeed"
}
export -f on_host
check "plan: --for megatron and deepspeed puts the optimizer on the host" bash -c on_host
expect "plan: --for torchtitan refuses another bucket" 2 'torchtitan reduces the gradients of each layer at once' \
    "$elapse" plan "$tmp/job.json" --for torchtitan --set pipeline.shard=none --set pipeline.bucket_bytes=0
expect "plan: --for refuses what the framework lacks" 2 'megatron does not run pipeline.schedule zb-v' \
    "$elapse" plan "$tmp/job.json" --for megatron --set pipeline.schedule=zb-v
expect "plan: --for names what replicas must divide" 2 'automodel does not run pipeline.shard none with several replicas' \
    "$elapse" plan "$tmp/job.json" --for automodel --set pipeline.num_replicas=2 --set pipeline.shard=none
expect "plan: --for a framework that is not there" 2 "unknown framework 'jax'" \
    "$elapse" plan "$tmp/job.json" --for jax
expect "plan: --for excludes frozen layers" 2 '--for excludes' "$elapse" plan "$tmp/job.json" --for megatron --frozen 2
finish
