"""Seven published architectures at small sizes, for more_models.sh: torchvision's and transformers' own. Random parts
(dropout, stochastic depth) are off, so that two ranks and the whole model compute alike."""
import os

import torch
from torch import nn

MODEL, VOCAB, CLASSES = os.environ["ELAPSE_MODEL"], 1000, 10
PICTURES = "swin_t", "convnext_tiny", "regnet_y_400mf"


def make_model():
    if MODEL in PICTURES:
        import torchvision
        made = getattr(torchvision.models, MODEL)(num_classes=CLASSES)
        for part in made.modules():
            if isinstance(part, torchvision.ops.StochasticDepth):
                part.p = 0.0
        return made
    import transformers as t
    return {
        "distilbert": lambda: t.DistilBertForSequenceClassification(t.DistilBertConfig(
            dim=64, n_layers=4, n_heads=4, hidden_dim=128, vocab_size=VOCAB, max_position_embeddings=64, dropout=0,
            attention_dropout=0, seq_classif_dropout=0, num_labels=CLASSES)),
        "t5": lambda: t.T5ForConditionalGeneration(t.T5Config(
            d_model=64, d_kv=16, d_ff=128, num_layers=3, num_heads=4, vocab_size=VOCAB, dropout_rate=0,
            decoder_start_token_id=0)),
        "mixtral": lambda: t.MixtralForCausalLM(t.MixtralConfig(
            num_hidden_layers=4, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
            num_local_experts=4, vocab_size=VOCAB)),
        "whisper": lambda: t.WhisperForConditionalGeneration(t.WhisperConfig(
            d_model=64, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=VOCAB, num_mel_bins=16, max_source_positions=50,
            max_target_positions=32, dropout=0, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)),
    }[MODEL]()


def make_batch(samples):
    if MODEL in PICTURES:
        return torch.randn(samples, 3, 64, 64), torch.randint(CLASSES, (samples,))
    ids = torch.randint(3, VOCAB, (samples, 32))
    if MODEL == "distilbert":
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.randint(CLASSES, (samples,))
    if MODEL == "t5":
        return {"input_ids": ids, "decoder_input_ids": ids[:, :16]}, torch.randint(VOCAB, (samples, 16))
    if MODEL == "whisper":
        return ({"input_features": torch.randn(samples, 16, 100), "decoder_input_ids": ids[:, :16]},
                torch.randint(VOCAB, (samples, 16)))
    return {"input_ids": ids}, torch.randint(VOCAB, (samples, 32))


def loss(output, target):
    out = output if isinstance(output, torch.Tensor) else output["logits"]
    return nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))
