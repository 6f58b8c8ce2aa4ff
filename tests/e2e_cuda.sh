#!/bin/bash
# tests/e2e_cuda.sh - `elapse train --device cuda` end to end on emulated GPUs (tests/cudasim/): ViT,
# BERT and GPT on 1 to 4 ranks, schedules, an elastic run, resume, cuDNN, and what a broken device gets;
# NCCL: e2e_cuda_nccl.sh. tests/gpu_ranks.sh asks more of a real one. Work of the device comes late
# (STREAMS=1) and threads in another order on some runs: same bits.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/cuda_runs.sh"

# in_turn FILE: compute ops of a Chrome trace, a rank's and step's in turn, within 2 us
in_turn() {
    sed -n '/"cat":"compute"/s/.*"tid":\([0-9]*\),"ts":\([-0-9.]*\),"dur":\([-0-9.]*\).*"step":\([0-9]*\).*/\1 \2 \3 \4/p' "$1" >"$tmp/ops"
    awk '{lane = $1 " " $4; if ($3 <= 0 || (lane in end && $2 < end[lane] - 2)) bad = 1; end[lane] = $2 + $3; n++}
        END {print n " ops"; exit !(n >= 16 && !bad)}' "$tmp/ops" || { head -60 "$tmp/ops"; false; }
}

for job in vit bert gpt; do
    device=cpu train $job $job-cpu -n 1
    train $job $job-1 -n 1
    verify "$job: losses are the cpu backend's within 1e-5" near_run $job-cpu $job-1 1e-5
done
# As many ranks as the names say; late work and other orders of threads change nothing.
ELAPSE_CUDASIM_STREAMS=1 train vit vit-gpipe -n 2 --set pipeline.num_stages=2 --set pipeline.schedule=gpipe --trace "$tmp/trace.json"
verify "vit: gpipe on two ranks has the bits of one, work done late" same_run vit-1 vit-gpipe
verify "vit: a trace of its ops has each after the other on the device" in_turn "$tmp/trace.json"
ELAPSE_CUDASIM_ORDER=3 train vit vit-zb-h1 -n 3 --set pipeline.num_stages=3 --set pipeline.schedule=zb-h1
verify "vit: zb-h1 on three ranks has the bits of one, threads in another order" same_run vit-1 vit-zb-h1
train vit vit-interleaved -n 2 --set pipeline.num_stages=2 --set pipeline.schedule=interleaved --set pipeline.chunks=2 --set pipeline.recompute=always
verify "vit: interleaved with recompute has the bits of one rank" same_run vit-1 vit-interleaved
ELAPSE_CUDASIM_STREAMS=9 train vit vit-late -n 1 --set pipeline.recompute=always
verify "vit: recompute on one rank, images uploaded at random times, has the same bits" same_run vit-1 vit-late
train vit vit-2x2 -n 4 --set pipeline.num_stages=2 --set pipeline.num_replicas=2
verify "vit: two pipelines of two ranks have the bits of one rank" same_run vit-1 vit-2x2
ELAPSE_CUDASIM_STREAMS=9 train bert bert-auto -n 2 --set pipeline.num_stages=2 --set pipeline.schedule=auto
verify "bert: the schedule auto has the bits of one rank" same_run bert-1 bert-auto
train gpt gpt-2 -n 2 --set pipeline.num_stages=2
verify "gpt: 1f1b on two ranks, tied table and all, has the bits of one" same_run gpt-1 gpt-2
ELAPSE_CUDASIM_EPILOGUES=0 train gpt gpt-plain -n 1
verify "gpt: where the library has no epilogues losses are the same within 1e-5" near_run gpt-1 gpt-plain 1e-5

# bf16 on tensor cores.
for job in bert gpt; do
    train $job $job-bf16 -n 1 --set train.dtype=bf16
    verify "$job: losses in bf16 are fp32's within 1 %" near_run $job-1 $job-bf16 1e-2
done
ELAPSE_CUDASIM_STREAMS=1 ELAPSE_CUDASIM_ORDER=5 train gpt gpt-bf16-2 -n 2 --set pipeline.num_stages=2 --set train.dtype=bf16
verify "gpt: two ranks in bf16 have the bits of one" same_run gpt-bf16 gpt-bf16-2

# Device memory is taken once in a run, before its first step.
mallocs() { grep -o 'mallocs [0-9]*' "$tmp/$1.log" | sort -u | tr '\n' ' '; }
ELAPSE_CUDASIM_LOG=$tmp/vit-once.log train vit vit-once -n 1
verify "vit: one allocation of device memory" test "$(mallocs vit-once)" = "mallocs 1 "
ELAPSE_CUDASIM_LOG=$tmp/bert-once.log train bert bert-once -n 2 --set pipeline.recompute=always
verify "bert: one a rank, under recompute" test "$(mallocs bert-once)" = "mallocs 1 "
verify "and the same bits" same_run bert-1 bert-once
ELAPSE_CUDASIM_LOG=$tmp/gpt-once.log train gpt gpt-once -n 1 --set train.dtype=bf16
verify "gpt: one in bf16" test "$(mallocs gpt-once)" = "mallocs 1 "
# More than a slab holds that nobody announced (64 MiB): a table of 24 MiB, its gradient and its state.
sed 's/"vocab": 512/"vocab": 196608/' "$tmp/bert.json" >"$tmp/wide.json"
ELAPSE_CUDASIM_LOG=$tmp/wide-once.log train wide wide-once -n 1 --steps 1
verify "bert: one, where the stages take 100 MiB" test "$(mallocs wide-once)" = "mallocs 1 "

# Elastic: pipelines shrink, a replica joins, the cache serves what is frozen.
train vit static -n 1 "${elastic[@]}" --set cache.policy=off
train vit elastic -n 2 "${elastic[@]}" --set 'elastic.stages=[2,2,1]' --set cache.policy=on
verify "elastic: the bits of one rank without elasticity and cache" same_run static elastic
verify "elastic: frozen activations came from the cache" test "$(value elastic cache_upgrades)" -gt 0

# What the cache gives and gets crosses lanes of its own: filled, read, raised a level, late or not.
kept=(--set train.epochs=4 --set freeze.policy=table --set 'freeze.table=[0,2,2,3]' --set pipeline.num_microbatches=8)
train vit unkept -n 1 "${kept[@]}" --set cache.policy=off
for late in 0 1 9; do
    ELAPSE_CUDASIM_STREAMS=$late train vit kept-$late -n 1 "${kept[@]}" --set cache.policy=on
    verify "cache: the bits of none, work done late: $late" same_run unkept kept-$late
    verify "cache: each sample missed once, hit once, raised once" \
        test "$(value kept-$late cache_misses) $(value kept-$late cache_hits) $(value kept-$late cache_upgrades)" = "48 48 48"
done

# Passes as CUDA graphs, through changes of plan too.
graphs() { sed -n 's/.*graphs //p' "$tmp/$1.log" | sort -n | head -1; } # launched, of the rank with fewest
still=(--set train.dropout=0)
ELAPSE_GRAPHS=off train vit calls -n 1 "${kept[@]}" "${still[@]}" --set cache.policy=off
ELAPSE_GRAPHS=on ELAPSE_CUDASIM_STREAMS=9 ELAPSE_CUDASIM_LOG=$tmp/whole.log train vit whole -n 2 "${kept[@]}" "${still[@]}" \
    --set 'elastic.stages=[2,2,1,1]' --set cache.policy=on
verify "graphs: an elastic run has the bits of calls one by one" same_run calls whole
verify "graphs: both ranks launched some" test "$(graphs whole)" -gt 20
ELAPSE_GRAPHS=on ELAPSE_CUDASIM_LOG=$tmp/again.log train vit again -n 2 "${kept[@]}" "${still[@]}" --set cache.policy=off \
    --set pipeline.recompute=always --set 'elastic.stages=[2,1,1,1]' --set pipeline.schedule=gpipe
verify "graphs: under recompute too" same_run calls again
verify "graphs: both ranks launched some there" test "$(graphs again)" -gt 20

# Old and new stages live side by side for a moment: a change takes what is missing, in one piece.
ELAPSE_CUDASIM_LOG=$tmp/grown.log train vit grown -n 2 "${elastic[@]}" --set 'elastic.stages=[2,2,1]' --set cache.policy=on
verify "elastic: at most one allocation a change (3 plans, on rank 1 two)" \
    test "$(sort -u "$tmp/grown.log" | grep -c .)" -ge 1 -a -z "$(grep -vE 'mallocs [123] ' "$tmp/grown.log")"

train vit part -n 1 --steps 2
train vit part -n 2 --set pipeline.num_stages=2 --resume "$tmp/part"
verify "a checkpoint goes on, at another K, with the same bits" same_run vit-1 part

# Products may be done in several ways, whose bits differ. Where a profile found the fastest, every
# rank and every run does it so; where none did, nobody looks for it.
cat >"$tmp/tiny.json" <<'JOB'
{ "family": "vit", "preset": "vit-tiny", "image": 16, "patch": 8, "hidden": 32, "heads": 2, "mlp": 64, "layers": 1, "classes": 10 }
JOB
ELAPSE_CUDASIM_SLOW=01 expect "elapse profile --device cuda" 0 '"rows":|too noisy' \
    "$elapse" profile --device cuda --model "$tmp/tiny.json" --microbatches 4 --quick --name sim --db "$tmp/found.db" --json -n 1
rows() { "$elapse" profiles export sim --db "$tmp/found.db" --csv | grep -c "^host_cost,$1,cuda"; }
verify "it has copies to, from and within the device, and launches" \
    test "$(rows copy_in) $(rows copy_out) $(rows copy) $(rows launch)" = "3 3 3 1"
train vit found-1 -n 1 --db "$tmp/found.db"
verify "products as a profile found them: other bits, the same losses" near_run vit-1 found-1 1e-5
verify "and the bits are others" test "$(value vit-1 weights_sha256)" != "$(value found-1 weights_sha256)"
verify "the run names the device that the profile does" test -n "$(value found-1 device_name)" -a \
    "$(value found-1 device_name)" = "$("$elapse" profiles show sim --db "$tmp/found.db" --json | grep -o '"device_name":[^,}]*' | head -1 | tr -d ' \t' | cut -d: -f2-)"
foreseen() { # what the device was told, and what was predicted
    "$elapse" compare "$tmp/$1" --db "$tmp/found.db" --json >"$tmp/compare.json" 2>"$tmp/compare.err" || { cat "$tmp/compare.err"; return 1; }
    local real sim
    real=$(grep -o '"real_peak_bytes":[0-9]*' "$tmp/compare.json" | cut -d: -f2)
    sim=$(grep -o '"sim_peak_bytes":[0-9]*' "$tmp/compare.json" | cut -d: -f2)
    echo "real $real, predicted $sim"
    calculate "$real > 0 && $sim > 0.999 * $real && $sim < 1.001 * $real" && grep -q '"cost_source":"profile sim (measured)"' "$tmp/compare.json"
}
train vit found-2 -n 2 --db "$tmp/found.db" --set pipeline.schedule=gpipe
for run in found-1 found-2; do
    verify "$run takes the device memory that was predicted" foreseen $run
done
verify "two ranks do them as one does" same_run found-1 found-2
"$elapse" profile --device cuda --model "$tmp/tiny.json" --microbatches 4 --quick --db "$tmp/found.db" -n 1 >/dev/null 2>&1
train vit found-part -n 1 --steps 2 --db "$tmp/found.db"
train vit found-part -n 2 --resume "$tmp/found-part" --db "$tmp/found.db"
verify "so does a resumed run, and another profile changes nothing" same_run found-1 found-part

# Attention and GELU go to cuDNN where a profile found it faster. Here time says nothing but where cuDNN is slowed
# down; that an answer is followed, test_cudnn shows.
if grep -q cudnnCreate "$sim"; then
    still=(--set train.dtype=bf16 --set train.dropout=0)
    timed() { # NAME MODE: profiled with cuDNN in this mode, into a store of its own
        ELAPSE_CUDASIM_CUDNN=$2 expect "elapse profile in bf16 with cuDNN ${2:-as it is}" 0 '"rows":|too noisy' "$elapse" profile --device cuda \
            --model "$tmp/tiny-gpt.json" --microbatches 4 --quick --name "$1" --db "$tmp/$1.db" --json -n 1
    }
    cat >"$tmp/tiny-gpt.json" <<'JOB'
{ "family": "gpt", "preset": "gpt2", "seq": 24, "hidden": 32, "heads": 1, "mlp": 64, "layers": 1, "vocab": 301, "dtype": "bf16" }
JOB
    export ELAPSE_CUDNN_LIB=$sim
    train gpt own-1 -n 1 "${still[@]}"
    ELAPSE_ATTENTION=cudnn train gpt cudnn-1 -n 1 "${still[@]}"
    verify "attention by cuDNN: losses are our kernels' within 1 %" near_run own-1 cudnn-1 1e-2
    verify "and the bits are others" test "$(value own-1 weights_sha256)" != "$(value cudnn-1 weights_sha256)"
    train vit pieces-1 -n 1 "${still[@]}"
    ELAPSE_GELU=cudnn train vit gelu-1 -n 1 "${still[@]}"
    verify "GELU by cuDNN: losses are within 1 % of its kernels of our own" near_run pieces-1 gelu-1 1e-2
    verify "and the bits are others" test "$(value pieces-1 weights_sha256)" != "$(value gelu-1 weights_sha256)"
    ELAPSE_GELU=cudnn ELAPSE_CUDASIM_STREAMS=9 train vit gelu-2 -n 2 "${still[@]}" --set pipeline.num_stages=2
    verify "and two ranks have the bits of one, work done late" same_run gelu-1 gelu-2
    timed fast ""
    timed slow slow
    for found in fast slow; do
        train gpt $found-1 -n 1 "${still[@]}" --db "$tmp/$found.db"
        ELAPSE_ATTENTION=own train gpt $found-own -n 1 "${still[@]}" --db "$tmp/$found.db"
    done
    train gpt fast-2 -n 2 "${still[@]}" --db "$tmp/fast.db" --set pipeline.num_stages=2
    verify "whoever a profile found faster: losses are our kernels' within 1 %" near_run fast-own fast-1 1e-2
    verify "and two ranks have the bits of one" same_run fast-1 fast-2
    verify "found slower, our kernels do" same_run slow-own slow-1
    unset ELAPSE_CUDNN_LIB
else
    skip "attention and GELU by an emulated cuDNN" "built without cuDNN's headers"
fi

# Every access looked at.
train vit few -n 1 "${few[@]}"
ordered few-staged few vit few-staged -n 2 "${few[@]}" --set pipeline.num_stages=2
low=(--set data.train_samples=16 --set pipeline.num_microbatches=8 --set train.epochs=3 --set freeze.policy=table --set 'freeze.table=[0,2,3]')
train vit low -n 1 "${low[@]}" --set cache.policy=off
ordered low-kept low vit low-kept -n 1 "${low[@]}" --set cache.policy=on

broken "no device" 3 'cuda: (this machine has no NVIDIA driver|no device)' no-device -n 1
CUDA_VISIBLE_DEVICES= broken "no visible device" 3 "cuda: no device .CUDA_VISIBLE_DEVICES=''." none -n 1
broken "a driver that is too old" 3 'cuda: the driver is for CUDA 11.8' old-driver -n 1
broken "no memory left: what was asked for and what was free" 1 'cuda: out of device memory: .* asked for, .* free' malloc -n 1
ELAPSE_CUDASIM_FAULT_RANK=1 broken "no memory left on one of two ranks: before the first step" 1 'cuda: out of device memory: .* asked for' malloc@1 -n 2
verify "no step was made" test ! -s "$tmp/broken-malloc@1/metrics.jsonl"
verify "the hint names what takes less" grep -q 'num_microbatches or pipeline.recompute' "$tmp/expect.err"
ELAPSE_CUDASIM_FAULT=malloc@2 expect "no memory left for a change of plan" 1 'cuda: out of device memory: .* asked for' \
    "$elapse" train "$tmp/vit.json" --out "$tmp/no-growth" --device cuda -n 2 "${elastic[@]}" --set 'elastic.stages=[2,2,1]' --json
ELAPSE_CUDASIM_FAULT_RANK=1 broken "no memory left in a step of one of two ranks ends both" 1 'cuda: .* failed: out of memory' room@100 -n 2
verify "and is no loss" test -z "$(grep -E 'step|optimizer' "$tmp/expect.err")"
broken "a launch that fails names the kernel" 3 'cuda: .* failed: unspecified launch failure' launch@40 -n 1
broken "an ECC error" 3 'uncorrectable ECC error' ecc@3 -n 1
ELAPSE_CUDASIM_FAULT_RANK=1 broken "a launch that fails on one of two ranks ends both" 3 'unspecified launch failure' launch@41 -n 2
ELAPSE_CUDASIM_MEMORY=$((8 << 20)) expect "a device that is too small" 1 'cuda: out of device memory' \
    "$elapse" train "$tmp/vit.json" --out "$tmp/small" --device cuda -n 1
ELAPSE_CUDA_LIB=$tmp/none.so expect "a build without the backend" 1 "this build has no (cuda|such) backend" \
    "$elapse" train "$tmp/vit.json" --out "$tmp/none" --device cuda -n 1
finish
