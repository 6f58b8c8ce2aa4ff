"""Small models for the tests and the figures of docs/torch.md: torchvision's and transformers' own,
and a U-Net. ELAPSE_WIDTH scales the dims."""
import os

import torch
from torch import nn

WIDTH = int(os.environ.get("ELAPSE_WIDTH", "1"))
MODEL = os.environ.get("ELAPSE_MODEL", "mlp")
VOCAB, SEQ, IMAGE, CLASSES = 1000, 32 * WIDTH, 32 * WIDTH, 10


class UNet(nn.Module):
    """Ronneberger et al., 2015: each level's output goes to the other side as well."""

    def __init__(self, width, depth=3):
        super().__init__()
        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                                 nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        dims = [width << d for d in range(depth + 1)]
        self.down = nn.ModuleList(nn.ModuleDict({"conv": block(([3] + dims)[d], dims[d])})["conv"]
                                  for d in range(depth))
        self.middle = block(dims[-2], dims[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(dims[d + 1], dims[d], 2, stride=2)
                                for d in reversed(range(depth)))
        self.join = nn.ModuleList(block(2 * dims[d], dims[d]) for d in reversed(range(depth)))
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.head(x)


def _transformers():
    import transformers as t
    dims = {"hidden_size": 64 * WIDTH, "num_hidden_layers": 4, "num_attention_heads": 4,
            "intermediate_size": 256 * WIDTH, "vocab_size": VOCAB}
    rope = dict(dims, num_key_value_heads=2)
    return {
        "bert": lambda: t.BertForSequenceClassification(t.BertConfig(
            **dims, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=CLASSES)),
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(
            vocab_size=VOCAB, n_embd=64 * WIDTH, n_layer=4, n_head=4, n_positions=SEQ,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**rope)),
        "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**rope, head_dim=16 * WIDTH)),
    }


def make_model():
    if MODEL == "mlp":
        d = 64 * WIDTH
        layers = [nn.Sequential(nn.Linear(d, d), nn.ReLU()) for _ in range(4)]
        return nn.Sequential(nn.Linear(16, d), *[m for pair in layers for m in pair],
                             nn.Linear(d, CLASSES))
    if MODEL == "unet":
        return UNet(8 * WIDTH)
    if MODEL in ("resnet50", "vit"):
        import torchvision
        if MODEL == "resnet50":
            return torchvision.models.resnet50(num_classes=CLASSES)
        return torchvision.models.VisionTransformer(
            image_size=IMAGE, patch_size=8, num_layers=4, num_heads=4, hidden_dim=64 * WIDTH,
            mlp_dim=256 * WIDTH, num_classes=CLASSES)
    return _transformers()[MODEL]()


def make_batch(samples):
    if MODEL == "mlp":
        return torch.randn(samples, 16), torch.randint(CLASSES, (samples,))
    if MODEL == "unet":
        return torch.randn(samples, 3, IMAGE, IMAGE), torch.randint(CLASSES, (samples, IMAGE, IMAGE))
    if MODEL in ("resnet50", "vit"):
        return torch.randn(samples, 3, IMAGE, IMAGE), torch.randint(CLASSES, (samples,))
    ids = torch.randint(VOCAB, (samples, SEQ))
    if MODEL == "bert":
        return ({"input_ids": ids, "attention_mask": torch.ones_like(ids)},
                torch.randint(CLASSES, (samples,)))
    return {"input_ids": ids}, torch.randint(VOCAB, (samples, SEQ))


def loss(output, target):
    out = output if isinstance(output, torch.Tensor) else output["logits"]
    if MODEL != "unet":
        out, target = out.reshape(-1, out.shape[-1]), target.reshape(-1)
    return nn.functional.cross_entropy(out, target)
