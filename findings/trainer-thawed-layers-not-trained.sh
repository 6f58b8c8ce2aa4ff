#!/bin/bash
# Layers that a callback of Hugging Face's Trainer unfreezes get gradients and never move.
#
# Guess: requires_grad_(True) on the lower layers after 10 of 50 steps, as gradual unfreezing does: they train from
#   then on, or Trainer says that they will not.
# Seen (transformers 5.24.0, accelerate 1.15.0, torch 2.15.0, CPU, 2026-11-30): the optimizer is made once, of the
#   weights that want a gradient then. The two lower layers have moved by 0 after step 50. From step 11 on the
#   gradient that is logged and clipped has them in it too, so with clipping the layers that do train get smaller
#   ones. Nothing is said.
# Source: Trainer.create_optimizer() in transformers/trainer.py (p.requires_grad); clip_grad_norm_ over all of
#   model.parameters().
# Why it matters: the backward becomes as long as a full one, and what it adds is thrown away.
. "$(dirname "$0")/lib"
torch
packages accelerate==1.15.0 psutil==7.2.2
"$python" -m pip install -q --disable-pip-version-check transformers==5.24.0
cat >"$work/thaw.py" <<'P'
import torch
from torch.utils.data import TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

class Thaw(TrainerCallback):
    def on_step_begin(self, args, state, control, model=None, **rest):
        if state.global_step == 10:
            model.requires_grad_(True)

    def on_pre_optimizer_step(self, args, state, control, model=None, **rest):
        grads.append([layer.mlp.c_fc.weight.grad is not None for layer in model.transformer.h])

def collate(samples):
    tokens = torch.stack([sample[0] for sample in samples])
    return {"input_ids": tokens, "labels": tokens}

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=4, n_head=2))
model.transformer.h[:2].requires_grad_(False)
before = [layer.mlp.c_fc.weight.clone() for layer in model.transformer.h]
grads = []
args = TrainingArguments("out", per_device_train_batch_size=4, max_steps=50, use_cpu=True, report_to=[], save_strategy="no",
                         logging_strategy="no", disable_tqdm=True)
Trainer(model, args, train_dataset=TensorDataset(torch.randint(0, 64, (200, 16))), data_collator=collate,
        callbacks=[Thaw()]).train()
print("seen gradients at step 10:", *grads[9])
print("seen gradients at step 11:", *grads[10])
print("seen moved:", *(not torch.equal(layer.mlp.c_fc.weight, old) for layer, old in zip(model.transformer.h, before)))
P
cd "$work"
"$python" "$work/thaw.py" 2>/dev/null | grep ^seen | expect "seen gradients at step 10: False False True True
seen gradients at step 11: True True True True
seen moved: False False True True"
