#!/bin/bash
# The same bits at any pipeline length, under any schedule and after a resume: BERT, masked BERT, GPT with dropout and
# Qwen3, K = 1 to 4; a Llama that is frozen on the way, with the cache; any size of a bucket. ViT: e2e_train.sh; two ranks and every schedule: test_runtime.c.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin

small='"layers": 4, "hidden": 32, "heads": 2, "mlp": 64, "seq": 16, "vocab": 70'
for family in bert mlm gpt qwen3; do
    case $family in
    bert) model='"preset": "bert-base", "task": "classify", "classes": 3' schedule=gpipe ;;
    mlm) model='"preset": "bert-base", "task": "mlm"' schedule=zb-h1 ;;
    gpt) model='"preset": "gpt2"' schedule=1f1b ;;
    qwen3) model='"preset": "qwen3-0.6b", "kv_heads": 1, "head_dim": 16' schedule=zb-h1 ;;
    esac
    cat >"$tmp/$family.json" <<JOB
{ "name": "$family", "model": {$model, $small},
  "data": {"kind": "synthetic", "train_samples": 60, "test_samples": 16},
  "train": {"epochs": 2, "batch": {"global": 16}, "clip_norm": 1.0, "dropout": 0.1,
            "optimizer": {"kind": "adamw", "lr": 0.003}, "seed": 1},
  "pipeline": {"num_stages": "auto", "num_replicas": 1, "num_microbatches": 4, "schedule": "1f1b"} }
JOB
    train $family $family-k1 --threads 1 -n 1
    train $family $family-k4 --threads 1 -n 4 --set "pipeline.schedule=$schedule"
    verify "$family: K=1 and K=4, $schedule" same_run $family-k1 $family-k4
    train $family $family-part --threads 1 -n 2 --steps 6
    train $family $family-part --threads 1 -n 3 --resume "$tmp/$family-part"
    verify "$family: stopped at K=2 in the second epoch, resumed at K=3" same_run $family-k1 $family-part
done

sed 's/"model": {[^}]*}/"model": {"preset": "llama3-8b", "layers": 4, "hidden": 32, "heads": 2, "kv_heads": 1, "mlp": 64, "seq": 16, "vocab": 70}/
    s/"freeze": {[^}]*}/&/; s/"epochs": 2/"epochs": 3, "reduction": "canonical"/; s/"dropout": 0.1/"dropout": 0/' "$tmp/qwen3.json" >"$tmp/llama.json"
frozen=(--threads 1 --set freeze.policy=table --set 'freeze.table=[0,2,2]')
train llama llama-1 -n 1 "${frozen[@]}" --set cache.policy=off
train llama llama-2 -n 2 "${frozen[@]}" --set cache.policy=on --set pipeline.num_replicas=auto --set 'elastic.stages=[2,2,1]'
verify "llama: frozen on the way, K 2 to 1, R 1 to 2, cached: the bits of one rank" same_run llama-1 llama-2
verify "and the cache was read" has llama-2 cache_hits -gt 0

# MPI's own sums would add 3 or 4 ranks' gradients in an order that depends on the size of a bucket.
freezing_vit
sed -i 's/"hidden": 32/"hidden": 96/; s/"train_samples": 200/"train_samples": 48/; s/"global": 32/"global": 12/; s/, "reduction": "canonical"//; s/"policy": "table", "table": [^}]*/"policy": "none"/; s/"num_microbatches": 8/"num_microbatches": 1/; s/"epochs": 4/"epochs": 2/' "$tmp/vit.json"
for ranks in 3 4; do
    for bucket in 1KiB 16KiB 256KiB 16MiB; do
        train vit $ranks-$bucket -n $ranks --threads 1 --set pipeline.num_stages=1 --set pipeline.num_replicas=$ranks --set pipeline.bucket_bytes=$bucket
        verify "$ranks replicas, buckets of $bucket: the bits of any bucket" same_run $ranks-1KiB $ranks-$bucket
    done
done
finish
