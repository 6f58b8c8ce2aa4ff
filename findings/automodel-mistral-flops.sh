#!/bin/bash
# NeMo AutoModel gives a Mistral a quarter fewer FLOPs than a Llama of equal shape.
#
# Guess: one formula for both; their layers are the same products.
# Seen (nemo-automodel 0.7.0, transformers 5.24.0, 2026-11-28): Mistral and Phi-3 configurations fall to the general formula,
#   which counts two products in the MLP where a gated one has three, so a step of 1,024 tokens of a 7B has 35.4 TFLOP in
#   place of 46.9, and the MFU that is logged is lower by a quarter. A sliding window changes nothing.
# Source: nemo_automodel/components/utils/flops_utils.py (get_flops_formula_for_hf_config, transformer_flops, llama2_flops).
. "$(dirname "$0")/lib"
"$python" -m pip install -q --disable-pip-version-check transformers==5.24.0
"$python" -m pip download -q --disable-pip-version-check --no-deps --ignore-requires-python -d "$work" nemo-automodel==0.7.0
(cd "$work" && python3 -m zipfile -e nemo_automodel-*.whl wheel)
cat >"$work/count.py" <<'P'
import importlib.util, sys
spec = importlib.util.spec_from_file_location("flops", sys.argv[1])
flops = importlib.util.module_from_spec(spec)
spec.loader.exec_module(flops)
from transformers import LlamaConfig, MistralConfig, Phi3Config
shape = dict(num_hidden_layers=32, hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
             num_key_value_heads=8, vocab_size=128256)
for kind, more in (LlamaConfig, {}), (MistralConfig, {"sliding_window": None}), (MistralConfig, {"sliding_window": 256}), \
        (Phi3Config, {"pad_token_id": 0}):
    config = kind(**shape, **more)
    formula = flops.get_flops_formula_for_hf_config(config)
    print(kind.__name__, formula.__name__, "%.1f TFLOP" % (formula(config, gbs=1, seq_len=1024) / 1e12))
P
"$python" "$work/count.py" "$work/wheel/nemo_automodel/components/utils/flops_utils.py" 2>/dev/null | expect "LlamaConfig llama2_flops 46.9 TFLOP
MistralConfig transformer_flops 35.4 TFLOP
MistralConfig transformer_flops 35.4 TFLOP
Phi3Config transformer_flops 35.4 TFLOP"
