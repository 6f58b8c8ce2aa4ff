#!/bin/bash
# tests/e2e/e2e_cuda_train.sh - training on emulated GPUs (tests/cudasim/) at length: schedules on 1 to 4 ranks, bf16,
# memory taken once, the cache's lanes, resume; NCCL: e2e_cuda_nccl.sh. tests/gpu/gpu_ranks.sh asks more of a
# real GPU. On some runs the device's work comes late (STREAMS=1), or threads run in another order: same bits.
# group: emulated, seconds: 60
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/cuda_runs.sh"

for job in vit bert gpt qwen3; do
    train $job $job-1 -n 1
done
for job in bert qwen3; do # the others: e2e_cuda.sh
    device=cpu train $job $job-cpu -n 1
    verify "$job: losses are the cpu backend's within 1e-5" near_run $job-cpu $job-1 1e-5
done
decoder_in_bf16 qwen3
# As many ranks as the names say; late work and other orders of threads change nothing.
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
# Several documents in a sample: each stage masks between them.
mkdir "$tmp/packed" && for n in 3 9 4 12 5 7 2 8 6 11 3 5; do
    printf '{"text": "%s"}\n' "$(seq -s ' ' $n)" | tee -a "$tmp/packed/train.jsonl" >>"$tmp/packed/test.jsonl"
done
sed "s|\"layers\": 2|\"layers\": 4|; s|\"kind\": \"synthetic\".*}|\"kind\": \"text\", \"path\": \"$tmp/packed\"}|" "$tmp/gpt.json" >"$tmp/packed.json"
packed=(--set train.batch.global=4 --set pipeline.num_microbatches=2)
train packed packed-1 -n 1 "${packed[@]}"
train packed packed-2 -n 2 --set pipeline.num_stages=2 "${packed[@]}"
verify "gpt: two ranks mask between documents as one does" same_run packed-1 packed-2
device=cpu train packed packed-cpu -n 1 "${packed[@]}"
verify "gpt: losses with several documents are the cpu backend's within 1e-5" near_run packed-cpu packed-1 1e-5
ELAPSE_CUDASIM_EPILOGUES=0 train gpt gpt-plain -n 1
verify "gpt: where the library has no epilogues losses are the same within 1e-5" near_run gpt-1 gpt-plain 1e-5

# bf16 on tensor cores.
train bert bert-bf16 -n 1 --set train.dtype=bf16
verify "bert: losses in bf16 are fp32's within 1 %" near_run bert-1 bert-bf16 1e-2
train gpt gpt-bf16 -n 1 --set train.dtype=bf16
ELAPSE_CUDASIM_STREAMS=1 ELAPSE_CUDASIM_ORDER=5 train gpt gpt-bf16-2 -n 2 --set pipeline.num_stages=2 --set train.dtype=bf16
verify "gpt: two ranks in bf16 have the bits of one" same_run gpt-bf16 gpt-bf16-2

# Device memory is taken once in a run, before its first step.
mallocs() { grep -o 'mallocs [0-9]*' "$tmp/$1.log" | sort -u | tr '\n' ' '; }
ELAPSE_CUDASIM_LOG=$tmp/vit-once.log train vit vit-once -n 1
verify "vit: one allocation of device memory" test "$(mallocs vit-once)" = "mallocs 1 "
ELAPSE_CUDASIM_LOG=$tmp/bert-once.log train bert bert-once -n 2 --set pipeline.num_stages=2 --set pipeline.recompute=always
verify "bert: one a rank, under recompute" test "$(mallocs bert-once)" = "mallocs 1 "
verify "and the same bits" same_run bert-1 bert-once
ELAPSE_CUDASIM_LOG=$tmp/gpt-once.log train gpt gpt-once -n 1 --set train.dtype=bf16
verify "gpt: one in bf16" test "$(mallocs gpt-once)" = "mallocs 1 "
# More than a slab holds that nobody announced (64 MiB): a table of 24 MiB, its gradient and its state.
sed 's/"vocab": 512/"vocab": 196608/' "$tmp/bert.json" >"$tmp/wide.json"
ELAPSE_CUDASIM_LOG=$tmp/wide-once.log train wide wide-once -n 1 --steps 1
verify "bert: one, where the stages take 100 MiB" test "$(mallocs wide-once)" = "mallocs 1 "

# Reads and writes of the cache have lanes of their own: it is filled, read, raised a level, late or not.
kept=(--set train.epochs=4 --set freeze.policy=table --set 'freeze.table=[0,2,2,3]' --set pipeline.num_microbatches=6)
train vit unkept -n 1 "${kept[@]}" --set cache.policy=off
for late in 0 1 9; do
    ELAPSE_CUDASIM_STREAMS=$late train vit kept-$late -n 1 "${kept[@]}" --set cache.policy=on
    verify "cache: the bits of none, work done late: $late" same_run unkept kept-$late
    verify "cache: each sample missed once, hit once, raised once" \
        test "$(value kept-$late cache_misses) $(value kept-$late cache_hits) $(value kept-$late cache_upgrades)" = "36 36 36"
done

# A library that rounds a row by its place: cached values are of another place than those computed anew.
verify "cache: no word of places where rows have the same bits everywhere" test -z "$(grep 'by its place' "$tmp/kept-0/summary.json")"
ELAPSE_CUDASIM_PLACES=1 train vit placed -n 1 "${kept[@]}" --set cache.policy=on
verify "cache: where they have not, the run says that its bits differ from one without" \
    grep -q 'rounds a row by its place, so a run without the cache has other bits' "$tmp/placed/summary.json"

# Old and new stages live side by side for a moment: a change takes what is missing, in one piece.
ELAPSE_CUDASIM_LOG=$tmp/grown.log train vit grown -n 2 "${elastic[@]}" --set 'elastic.stages=[2,2,1]' --set cache.policy=on
verify "elastic: at most one allocation a change (3 plans, on rank 1 two), two before for a look at rows" \
    test "$(sort -u "$tmp/grown.log" | grep -c .)" -ge 1 -a -z "$(grep -vE 'mallocs [12345] ' "$tmp/grown.log")"

train vit part -n 1 --steps 2
train vit part -n 2 --set pipeline.num_stages=2 --resume "$tmp/part" --override
verify "a checkpoint goes on, at another K, with the same bits" same_run vit-1 part
finish
