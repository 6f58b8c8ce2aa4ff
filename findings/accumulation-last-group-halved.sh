#!/bin/bash
# Gradient accumulation in Lightning and accelerate: the last step of an epoch has too small a gradient.
#
# Guess: 10 batches, accumulated by 4, make steps of 4, 4 and 2 batches; each step has the mean gradient of its
#   batches.
# Seen (lightning 2.6.6, accelerate 1.15.0, torch 2.15.0, CPU, 2026-11-30), a loss whose gradient is 1 for every
#   batch: both divide each loss by 4 and step at the end of the epoch all the same, so the gradients are 1, 1 and
#   0.5. With 9 batches the last one is 0.25. Nothing is said. Trainer of transformers, which uses accelerate, divides
#   by the number of batches that there are.
# Source: ClosureResult.from_training_step_output() in lightning/pytorch/loops/optimization/automatic.py,
#   Accelerator.backward() in accelerate/accelerator.py; current_gradient_accumulation_steps in
#   transformers/trainer.py.
# Why it matters: the last samples of an epoch count half or a quarter as much, if they are not dropped.
. "$(dirname "$0")/lib"
torch
packages lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0 accelerate==1.15.0 psutil==7.2.2 packaging pyyaml tqdm
"$python" -m pip install -q --disable-pip-version-check huggingface-hub safetensors
cat >"$work/steps.py" <<'P'
import logging
import warnings
import lightning
import torch
from accelerate import Accelerator
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight, self.gradients = nn.Parameter(torch.zeros(())), []

    def training_step(self, batch, index):
        return self.weight * 1

    def configure_optimizers(self):
        return SGD(self.parameters(), lr=0.1)

    def on_before_optimizer_step(self, optimizer):
        self.gradients.append(self.weight.grad.item())

for batches in 10, 9:
    data = DataLoader(torch.zeros(batches))
    module = Module()
    lightning.Trainer(max_epochs=1, accumulate_grad_batches=4, accelerator="cpu", logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False).fit(module, data)
    print(batches, "batches: lightning", *module.gradients)

    accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
    layer = nn.Linear(1, 1, bias=False)
    layer, optimizer, data = accelerator.prepare(layer, SGD(layer.parameters(), lr=0.1), data)
    gradients = []
    for _ in data:
        with accelerator.accumulate(layer):
            accelerator.backward(layer.weight.sum())
            if accelerator.sync_gradients:
                gradients.append(layer.weight.grad.item())
            optimizer.step()
            optimizer.zero_grad()
    print(batches, "batches: accelerate", *gradients)
P
"$python" "$work/steps.py" 2>/dev/null | grep batches | expect "10 batches: lightning 1.0 1.0 0.5
10 batches: accelerate 1.0 1.0 0.5
9 batches: lightning 1.0 1.0 0.25
9 batches: accelerate 1.0 1.0 0.25"
