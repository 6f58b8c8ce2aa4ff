# tests/e2e/cuda_runs.sh - sourced behind lib.sh and runs.sh by the tests that train on emulated GPUs (tests/cudasim/):
# begins, or finishes where there are none; the jobs vit, bert, gpt, llama and qwen3, $device.
#
#   $sim, $checked                 the backend on emulated GPUs; the same that looks at every access
#   elastic=(...) few=(...)        options of train: an elastic run, and one of few samples
#   ordered RUN YARDSTICK ARGS...  train ARGS, checked: the bits of YARDSTICK
#   decoder_in_bf16 JOB            beside fp32, and on two ranks
#   with_nccl WHAT                 use NCCL's stand-in, or skip WHAT and finish
#   broken NAME STATUS PATTERN FAULT ARGS...
#                                  a run of vit on a device with that fault ends so
begin
sim=$(dirname "$(readlink -f "$elapse")")/../cudasim/elapse-cuda-plain.so
if [ ! -e "$sim" ]; then
    skip "training on emulated GPUs" "no CUDA toolkit with g++ here, or built with SAN"
    finish
fi
export ELAPSE_CUDA_LIB=$sim

cat >"$tmp/vit.json" <<'JOB'
{ "name": "vit",
  "model": {"family": "vit", "preset": "vit-tiny", "image": 16, "patch": 8, "hidden": 32, "heads": 2,
            "mlp": 64, "layers": 4, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 36, "test_samples": 8},
  "train": {"epochs": 1, "batch": {"global": 12}, "clip_norm": 1.0, "dropout": 0.1, "reduction": "canonical",
            "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9}, "seed": 1},
  "pipeline": {"num_microbatches": 4, "schedule": "1f1b"} }
JOB
like vit bert '"family": "bert", "preset": "bert-base", "seq": 16, "hidden": 32, "heads": 2, "mlp": 64, "layers": 2, "vocab": 512, "task": "classify", "classes": 2' \
    '"kind": "synthetic", "train_samples": 24, "test_samples": 8'
sed -i 's/"sgd", "lr": 0.05, "momentum": 0.9/"adamw", "lr": 0.002/' "$tmp/bert.json"
like vit gpt '"family": "gpt", "preset": "gpt2", "seq": 24, "hidden": 32, "heads": 1, "mlp": 64, "layers": 2, "vocab": 301' \
    '"kind": "synthetic", "train_samples": 24, "test_samples": 8'
sed -i 's/"sgd", "lr": 0.05, "momentum": 0.9/"lamb", "lr": 0.01/' "$tmp/gpt.json"
decoder='"layers": 2, "hidden": 32, "heads": 2, "kv_heads": 1, "mlp": 64, "vocab": 301, "seq": 24'
like vit llama "\"preset\": \"llama3.2-1b\", \"window\": 7, $decoder" '"kind": "synthetic", "train_samples": 24, "test_samples": 8'
like vit qwen3 "\"preset\": \"qwen3-0.6b\", \"head_dim\": 32, $decoder" '"kind": "synthetic", "train_samples": 24, "test_samples": 8'
sed -i 's/"sgd", "lr": 0.05, "momentum": 0.9/"adamw", "lr": 0.003/' "$tmp"/{llama,qwen3}.json

device=cuda
checked=${sim%-plain.so}-check.so
elastic=(--set train.epochs=3 --set freeze.policy=table --set 'freeze.table=[0,2,3]')
few=(--set data.train_samples=24 --set pipeline.num_microbatches=6)

# Nothing comes in the right order by luck: with kernels whose every access is looked at, what two lanes
# share with no event between, and pinned memory that nobody has waited for, ends a run with a line.
ordered() { # RUN YARDSTICK train's ARGS...: with the plain kernels' bits
    local run=$1 yardstick=$2
    shift 2
    ELAPSE_CUDASIM_STREAMS=1 ELAPSE_CUDA_LIB=$checked ELAPSE_NCCL_LIB=$checked train "$@"
    verify "$run: all that lanes and host share is waited for" same_run "$yardstick" "$run"
}

# Messages between devices go through NCCL's stand-in; without NCCL's headers the script ends here.
with_nccl() { # what is then skipped
    grep -q ncclCommSplit "$sim" || { skip "$1" "no NCCL headers here"; finish; }
    export ELAPSE_NCCL_LIB=$sim
}

# A decoder in bf16 beside fp32, and on two ranks, where JOB-1 has run.
decoder_in_bf16() { # JOB
    train $1 $1-bf16 -n 1 --set train.dtype=bf16
    verify "$1: losses in bf16 are fp32's within 1 %" near_run $1-1 $1-bf16 1e-2
    ELAPSE_CUDASIM_STREAMS=1 train $1 $1-2 -n 2 --set train.dtype=bf16 --set pipeline.num_stages=2 --set pipeline.schedule=zb-h1
    verify "$1: zb-h1 on two ranks has the bits of one in bf16" same_run $1-bf16 $1-2
}

# A broken device gets one line that names the fault, and the right status.
broken() { # NAME STATUS PATTERN FAULT ARGS...
    local name=$1 status=$2 pattern=$3 fault=$4
    shift 4
    ELAPSE_CUDASIM_FAULT=$fault expect "$name" "$status" "$pattern" "$elapse" train "$tmp/vit.json" \
        --out "$tmp/broken-$fault" --device cuda --json "$@"
}
