#!/bin/bash
# Hugging Face's Trainer counts every number of a picture as a token.
#
# Guess: total_flos of a ViT is 6 x parameters x patches, as it is 6 x parameters x tokens of a decoder.
# Seen (transformers 5.24.0, torch 2.15.0, 2026-11-28): it is 6 x parameters x the elements of pixel_values. A picture of
#   3 x 224 x 224 has 197 positions and 150,528 elements, so the logged total_flos is some 700 times what forward and
#   backward compute. A Llama's reads 5 % low (attention's scores are left
#   out). An encoder-decoder counts the encoder's tokens alone, with all parameters: 0.08 to 1.45 times.
# Source: Trainer.floating_point_ops() in transformers/trainer.py; main_input_name of the model.
. "$(dirname "$0")/lib"
torch
"$python" -m pip install -q --disable-pip-version-check transformers==5.24.0
cat >"$work/flos.py" <<'P'
from types import SimpleNamespace
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration, Trainer, ViTConfig,
                          ViTForImageClassification)

def show(name, model, batch):
    with FlopCounterMode(display=False) as counter:
        model(**batch).loss.backward()
    said = Trainer.floating_point_ops(SimpleNamespace(model=model), batch)
    print(name, "%.2f times what was computed" % (said / counter.get_total_flops()))

def ids(n):
    return torch.randint(0, 1000, (1, n))
show("vit", ViTForImageClassification(ViTConfig(hidden_size=192, num_hidden_layers=2, num_attention_heads=3,
     intermediate_size=768)), {"pixel_values": torch.randn(2, 3, 224, 224), "labels": torch.tensor([0, 1])})
t5 = T5ForConditionalGeneration(T5Config(d_model=128, d_kv=32, d_ff=512, num_layers=2, num_heads=4, vocab_size=1000,
                                         decoder_start_token_id=0))
show("t5, 16 to 256 tokens", t5, {"input_ids": ids(16), "labels": ids(256)})
show("t5, 256 to 16 tokens", t5, {"input_ids": ids(256), "labels": ids(16)})
show("llama", LlamaForCausalLM(LlamaConfig(hidden_size=256, num_hidden_layers=2, num_attention_heads=4,
     intermediate_size=512, vocab_size=1000)), {"input_ids": ids(64), "labels": ids(64)})
P
"$python" "$work/flos.py" 2>/dev/null | grep times | expect "vit 709.45 times what was computed
t5, 16 to 256 tokens 0.08 times what was computed
t5, 256 to 16 tokens 1.45 times what was computed
llama 0.95 times what was computed"
