#!/bin/bash
# torchinfo counts a linear layer's products for one token, however many there are.
#
# Guess: mult-adds of a Linear are weights x tokens, as those of a Conv1d of width 1 over these tokens.
# Seen (torchinfo 1.8.0, torch 2.15.0, 2026-11-30): a Linear, and with it a TransformerEncoderLayer, has as many
#   mult-adds at 128 tokens as at 1, a Conv1d of width 1 and an LSTM 128 times as many. Sizes of activations, in that
#   table, do grow. An embedding, which multiplies nothing, has all its weights once a sample, so it may be the
#   largest row of a model.
# Source: LayerInfo.calculate_macs() in torchinfo/layer_info.py: weights x the first dimension of the output.
# Why it matters: of a transformer at 2,048 tokens it says 0.05 %, of a ResNet all.
. "$(dirname "$0")/lib"
torch
packages torchinfo==1.8.0
cat >"$work/count.py" <<'P'
import torch
from torch import nn
from torchinfo import summary

def count(layer, shape, kind=torch.float):
    return summary(layer, input_data=torch.zeros(shape, dtype=kind), verbose=0).total_mult_adds

for tokens in 1, 128:
    print(tokens, "tokens: Linear", count(nn.Linear(64, 256), (1, tokens, 64)), "Conv1d",
          count(nn.Conv1d(64, 256, 1), (1, 64, tokens)), "LSTM", count(nn.LSTM(64, 64, batch_first=True), (1, tokens, 64)),
          "encoder layer", count(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), (1, tokens, 64)),
          "Embedding", count(nn.Embedding(1000, 64), (1, tokens), torch.long))
P
"$python" "$work/count.py" 2>/dev/null | expect "1 tokens: Linear 16640 Conv1d 16640 LSTM 33280 encoder layer 16832 Embedding 64000
128 tokens: Linear 16640 Conv1d 2129920 LSTM 4259840 encoder layer 16832 Embedding 64000"
