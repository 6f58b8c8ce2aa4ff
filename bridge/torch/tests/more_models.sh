#!/bin/bash
# bridge/torch/tests/more_models.sh - models of more_models.py on two ranks, two stages: profiled, planned, run, with the
# loss and the gradients of the whole model. A TAP line a model. PYTHON has torch, torchvision and transformers
# (docs/torch-cuts.md says which were tried); minutes of a processor, so no part of make test.
#
#   PYTHON=venv/bin/python bridge/torch/tests/more_models.sh [MODEL ...]
set -u
cd "$(dirname "$0")/../../.." || exit 3
tmp=$(mktemp -d "${TMPDIR:-/tmp}/elapse-models.XXXXXX") || exit 3
trap 'rm -rf "$tmp"' EXIT
python=${PYTHON:-python3} failed=0 models=bridge/torch/tests/more_models.py
export PYTHONPATH=$PWD/bridge/torch ELAPSE_BIN=${ELAPSE_BIN:-$PWD/build/bin} ELAPSE_DB=$tmp/store.db
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo PYTHONDONTWRITEBYTECODE=1 TRANSFORMERS_VERBOSITY=error
[ $# -gt 0 ] || set -- swin_t convnext_tiny regnet_y_400mf distilbert t5 mixtral whisper
for ELAPSE_MODEL; do
    export ELAPSE_MODEL
    at=$tmp/$ELAPSE_MODEL
    "$python" -m elapse_torch profile $models --microbatches 2 --budget 0.01 -o "$at" >"$tmp/out" 2>&1 &&
        "$ELAPSE_BIN/elapse" plan "$at/job.json" --set pipeline.num_stages=2 --set pipeline.num_replicas=1 \
            --set pipeline.num_microbatches=2 --set pipeline.schedule=1f1b -o "$at/plan.json" >>"$tmp/out" 2>&1 &&
        "$python" -m torch.distributed.run --standalone --nproc-per-node 2 -m elapse_torch run $models "$at/plan.json" \
            --check --steps 2 --out "$at/out.json" >>"$tmp/out" 2>&1 &&
        "$python" -c 'import json, sys; r = json.load(open(sys.argv[1]))
print("loss differs by %.1e, gradients by %.1e" % (abs(r["loss_difference"]), r["gradient_difference"]))
sys.exit(not (abs(r["loss_difference"]) < 1e-5 and r["gradient_difference"] < 1e-4))' "$at/out.json" >"$tmp/said"
    if [ $? -eq 0 ]; then
        echo "ok - $ELAPSE_MODEL: $(cat "$tmp/said")"
    else
        echo "not ok - $ELAPSE_MODEL: $(grep -m1 '^elapse-torch: ' "$tmp/out" || tail -1 "$tmp/out")"
        failed=1
    fi
done
exit $failed
