#!/bin/bash
# The frameworks' own parsers read what `elapse plan --for` writes (PyPI, in the folder ELAPSE_FRAMEWORKS, which is made and takes
# some 100 s, beside the torch of ELAPSE_TORCH_VENV); names without a package there are looked up in tests/reference/framework_names.txt.
# group: slow
. "$(dirname "$0")/lib.sh"
begin
base=${ELAPSE_TORCH_VENV:-$HOME/.cache/elapse-torch-venv}
venv=${ELAPSE_FRAMEWORKS:-}
judge=tests/reference/framework_peer.py
cat >"$tmp/job.json" <<'END'
{"model": "llama3-8b", "cluster": "h100-2x8", "data": {"kind": "synthetic"},
 "train": {"batch": {"global": 64}, "dtype": "bf16", "clip_norm": 1, "optimizer": {"kind": "adamw"}}}
END
plan() { # FRAMEWORK FILE key=value...
    local to=$1 file=$2 sets=()
    shift 2
    for s in "$@"; do sets+=(--set "$s"); done
    "$elapse" plan "$tmp/job.json" --for "$to" -o "$file" --budget 2s --quiet --json "${sets[@]}" >"$file.json"
}
two="pipeline.num_stages=2 pipeline.num_replicas=4 pipeline.tensor=2 pipeline.sequence_parallel=true"
# shellcheck disable=SC2086 # $two is several words
{
    plan torchtitan "$tmp/torchtitan" $two pipeline.schedule=zb-v pipeline.shard=weights
    plan torchtitan "$tmp/torchtitan.1" pipeline.num_stages=1 pipeline.shard=gradients pipeline.recompute=layer
    plan automodel "$tmp/automodel" $two pipeline.schedule=interleaved pipeline.shard=weights
    plan megatron "$tmp/megatron" $two pipeline.schedule=interleaved pipeline.shard=optimizer
    plan deepspeed "$tmp/deepspeed" pipeline.num_stages=2 pipeline.num_replicas=8
    plan deepspeed "$tmp/deepspeed.1" pipeline.num_stages=1 pipeline.shard=weights
    plan nanotron "$tmp/nanotron" $two
}
for f in megatron nanotron; do
    verify "targets: the names of $f are its own" python3 $judge names $f "$tmp/$f"
done
ready() { PYTHONPATH=$tmp "$venv/bin/python" -c 'import torchtitan.models.llama3.config_registry, deepspeed, yaml, nemo_automodel' 2>/dev/null; }
if [ -z "$venv" ]; then
    skip "targets: real parsers" "ELAPSE_FRAMEWORKS names no folder for them"
    finish
fi
if ! ready; then
    if ! "$base/bin/python" -c 'import torch' 2>/dev/null; then
        skip "targets: real parsers" "no torch in $base"
        finish
    fi
    rm -rf "$venv"
    "$base/bin/python" -m venv "$venv"
    for site in "$venv"/lib/python3*/site-packages; do
        "$base/bin/python" -c 'import site; print(site.getsitepackages()[0])' >"$site/base.pth"
    done
    if ! { timeout 200 "$venv/bin/pip" install -q --disable-pip-version-check --retries 0 --no-deps torchtitan==0.3.0 \
        nemo_automodel==0.7.0 megatron-core==0.16.1 spmd_types==0.2.3 torchdata torch_checkpointing &&
        timeout 200 "$venv/bin/pip" install -q --disable-pip-version-check tyro tokenizers safetensors einops 'datasets<4.8' setuptools \
            tensorboard pillow numpy pyyaml hjson msgpack ninja py-cpuinfo psutil pydantic tqdm &&
        DS_BUILD_OPS=0 timeout 100 "$venv/bin/pip" install -q --disable-pip-version-check --no-deps deepspeed==0.19.8; } >"$tmp/pip.log" 2>&1 || ! ready; then
        skip "targets: real parsers" "pip cannot install them: $(tail -1 "$tmp/pip.log" | cut -c1-100)"
        finish
    fi
fi
for f in torchtitan torchtitan.1 automodel megatron deepspeed deepspeed.1; do
    verify "targets: ${f%.*} reads $f" "$venv/bin/python" $judge parse "${f%.*}" "$tmp/$f"
done
# Three plans run: torchtitan's pipeline code on two CPU ranks has the whole model's loss and gradients.
cat >"$tmp/job.json" <<'END'
{"model": "llama:layers=8,hidden=1024,heads=16,seq=2048,vocab=32000", "cluster": "h100-1x2", "data": {"kind": "synthetic"},
 "train": {"batch": {"global": 8}, "dtype": "bf16", "optimizer": {"kind": "adamw"}}}
END
for kind in 1f1b interleaved zb-v; do
    plan torchtitan "$tmp/run" pipeline.num_stages=2 pipeline.tensor=1 pipeline.schedule=$kind
    verify "targets: torchtitan runs a plan of $kind" env OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout -k 5 100 \
        "$venv/bin/python" -m torch.distributed.run --standalone --nproc-per-node 2 tests/reference/torchtitan_run.py "$tmp/run"
done
finish
