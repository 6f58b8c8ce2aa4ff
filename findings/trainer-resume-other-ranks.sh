#!/bin/bash
# Hugging Face's Trainer counts its progress in steps: resumed on twice as many ranks, a half-trained run is "finished".
#
# Guess: a checkpoint after 2 of 4 epochs goes on with the third epoch on any number of ranks, at the learning rate where it
#   stopped, or the change of ranks is refused or told.
# Seen (transformers 5.24.0, accelerate 1.15.0, torch 2.15.0, gloo, CPU, 2026-11-29), 2 ranks, 128 samples, linear decay: on
#   4 ranks the new end is step 32, at which the checkpoint already is, so nothing is trained and the run ends well. On 1
#   rank the new end is step 128, step 32 counts as the end of the first epoch, three epochs follow instead of two, and the
#   learning rate begins at 0.74 where it would have been 0.48. Another batch size of a rank gives a warning, another
#   number of ranks none.
# Source: Trainer.train() in transformers/trainer.py (max_steps, epochs_trained); LambdaLR keeps no lambda in its state.
# Why it matters: elastic restarts with fewer or more GPUs change how long and how fast a model learns.
. "$(dirname "$0")/lib"
torch
"$python" -m pip install -q --disable-pip-version-check transformers==5.24.0
packages accelerate==1.15.0 psutil==7.2.2
cat >"$work/resume.py" <<'P'
import sys
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, x, labels=None):
        out = self.linear(x)
        return {"loss": (out - labels).square().mean(), "logits": out}

class Rates(TrainerCallback):
    seen = []

    def on_step_end(self, args, state, control, lr_scheduler=None, **words):
        self.seen.append(lr_scheduler.get_last_lr()[0])

folder, checkpoint = sys.argv[1:]
args = TrainingArguments(folder, per_device_train_batch_size=4, num_train_epochs=4, save_strategy="epoch", learning_rate=1.0,
                         report_to=[], use_cpu=True, disable_tqdm=True)
data = [{"x": torch.tensor([float(i)]), "labels": torch.zeros(1)} for i in range(128)]
trainer = Trainer(Model(), args, train_dataset=data, callbacks=[Rates])
trainer.train(resume_from_checkpoint=f"{folder}/{checkpoint}" if checkpoint else None)
if args.process_index == 0:
    rates = ", rates %.2f to %.2f" % (Rates.seen[0], Rates.seen[-1]) if Rates.seen else ""
    print(f"ranks {args.world_size}: {len(Rates.seen) * 4 * args.world_size / 128} epochs{rates}, end in {trainer.state.epoch}")
P
run() { # RANKS FOLDER [CHECKPOINT]
    OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo "$python" -m torch.distributed.run --standalone --nproc-per-node "$1" \
        "$work/resume.py" "$work/$2" "${3:-}" 2>/dev/null | grep ^ranks
}
{
    run 2 first
    for ranks in 4 1; do
        cp -r "$work/first" "$work/on-$ranks"
        run $ranks on-$ranks checkpoint-32
    done
} | expect "ranks 2: 4.0 epochs, rates 0.98 to 0.00, end in 4.0
ranks 4: 0.0 epochs, end in 2.0
ranks 1: 3.0 epochs, rates 0.74 to 0.00, end in 4.0"
