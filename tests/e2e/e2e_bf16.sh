#!/bin/bash
# Training in bf16: same bits at any K and R, resume, fp32 masters, the loss of fp32, bytes.
# seconds: 14
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin

# job NAME MODEL DATA TRAIN
job() {
    cat >"$tmp/$1.json" <<JOB
{ "name": "$1", "model": {$2}, "data": {$3},
  "train": {"epochs": 2, "batch": {"global": 32}, "clip_norm": 1.0, "dropout": 0.1, "dtype": "bf16",
            "optimizer": {"kind": "adamw", "lr": 0.003, "weight_decay": 0.01}, "seed": 1,
            "checkpoint_every_steps": 4, "lr_schedule": {"kind": "cosine", "warmup_steps": 3}$4},
  "pipeline": {"num_stages": "auto", "num_replicas": 1, "num_microbatches": 4, "schedule": "1f1b"} }
JOB
}

small='"hidden": 32, "heads": 2, "mlp": 64, "layers": 4'
few='"kind": "synthetic", "train_samples": 200, "test_samples": 50'
job vit "\"family\": \"vit\", \"preset\": \"vit-tiny\", \"image\": 16, \"patch\": 8, $small, \"classes\": 10" "$few" ', "reduction": "canonical"'
job bert "\"family\": \"bert\", \"preset\": \"bert-base\", \"seq\": 16, $small, \"vocab\": 512, \"task\": \"classify\", \"classes\": 2" "$few" ''
for i in $(seq 1200); do echo "line $i of a text"; done | head -c 8000 >"$tmp/input.txt"
job gpt "\"preset\": \"gpt2\", $small, \"seq\": 32, \"vocab\": 256" '"kind": "text", "path": "input.txt"' ''

nearly() {
    [ "$(value "$1" weights_sha256)" != "$(value "$2" weights_sha256)" ] &&
        calculate "$(value "$1" eval_loss) < 1.02 * $(value "$2" eval_loss) && $(value "$1" eval_loss) > 0.98 * $(value "$2" eval_loss)"
}
for name in vit bert gpt; do
    train $name $name-1 -n 1
    train $name $name-fp32 -n 1 --set train.dtype=fp32
    verify "$name: bf16 reaches nearly the loss of fp32, with other weights" nearly $name-1 $name-fp32
done
for k in 2 3 4; do
    train vit vit-$k -n $k
    verify "vit: K=1 and K=$k give the same losses and weights" same_run vit-1 vit-$k
done
train bert bert-2 -n 2 --set pipeline.schedule=zb-h1
verify "bert: K=1 and K=2 (zb-h1) give the same losses and weights" same_run bert-1 bert-2
train gpt gpt-2 -n 2 --set pipeline.schedule=gpipe
verify "gpt: a tied table on two stages gives the same losses and weights" same_run gpt-1 gpt-2
for r in 2 4; do
    train vit vit-r$r -n $r --set pipeline.num_replicas=$r
    verify "canonical: R=1 and R=$r give the same losses and weights" same_run vit-1 vit-r$r
done

train vit part -n 2 --steps 6
train vit part -n 1 --resume "$tmp/part"
verify "a run resumed in mid-epoch at another K is the same run" same_run vit-1 part

# Checkpoints hold the fp32 masters: a run goes on in either dtype, and evaluates alike.
masters() { head -c 4000 "$(find "$tmp/vit-1" -name '*.safetensors' | head -1)" | grep -a '"F32"' | grep -avq BF16; }
verify "a checkpoint of a bf16 run holds fp32" masters
train vit wider -n 1 --steps 6
train vit wider -n 1 --resume "$tmp/wider" --set train.dtype=fp32 --override
verify "a bf16 run goes on in fp32" \
    calculate "$(value wider steps) == $(value vit-1 steps) && $(value wider eval_loss) < 1.02 * $(value vit-fp32 eval_loss)"
train vit narrower -n 1 --steps 6 --set train.dtype=fp32
train vit narrower -n 1 --resume "$tmp/narrower" --override
verify "an fp32 run goes on in bf16" \
    calculate "$(value narrower steps) == $(value vit-1 steps) && $(value narrower eval_loss) < 1.02 * $(value vit-fp32 eval_loss)"

# Freezing under elasticity: compute copies move with the weights, a cache holds what was computed.
frozen=(--set freeze.policy=table --set 'freeze.table=[0,2]' --set train.epochs=2)
train vit still-1 -n 1 "${frozen[@]}" --set cache.policy=off
train vit still-2 -n 2 "${frozen[@]}" --set cache.policy=on --set 'elastic.stages=[2,1]'
verify "an elastic run with a cache gives the same losses and weights" same_run still-1 still-2

expect "tf32 is refused with the reason" 1 'train.dtype must be fp32 or bf16 on the cpu backend, got tf32' \
    "$elapse" train "$tmp/vit.json" -n 1 --out "$tmp/bad" --set train.dtype=tf32
check "nothing is left behind" test ! -e "$tmp/bad"
finish
