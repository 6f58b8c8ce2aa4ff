"""What transformers says of our exports, and models of its own for our imports (tests/e2e/e2e_transformers.sh).

Usage: transformers_peer.py FOLDER STEP[:KIND]...: data makes data and jobs, save a model in shards; exported, saved and
generated compare. Several steps share the start of the process, which takes longer than they do. Prints a TAP line a step."""
import json
import os
import random
import sys
import traceback

import tokenizers
import torch
import transformers
from PIL import Image

SIDE, SEQ = 16, 24
DECODER = dict(vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=SEQ, rms_norm_eps=1e-3)
ROPE = {"type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": SEQ // 4}
DECODERS = {
    "llama": dict(DECODER, rope_scaling={**ROPE, "rope_type": ROPE["type"]}),
    "mistral": dict(DECODER, sliding_window=5),
    "qwen2": dict(DECODER, tie_word_embeddings=True),
    "qwen3": dict(DECODER, head_dim=12),
    "gemma": dict(DECODER, head_dim=16, num_key_value_heads=1, hidden_act="gelu_pytorch_tanh"),
}
CLASSES = ["ant", "bee", "cow"]
transformers.logging.set_verbosity_error()
folder = sys.argv[1]
kind = ""


def at(*parts):
    return os.path.join(folder, *parts)


def dump(value, *parts):
    with open(at(*parts), "w") as f:
        json.dump(value, f)


JOBS = {
    "vit": {"model": {"family": "vit", "layers": 2, "hidden": 32, "heads": 2, "mlp": 64, "image": SIDE, "patch": 8,
                      "classes": 3},
            "data": {"kind": "images", "path": "pictures"}},
    "bert": {"model": {"family": "bert", "task": "classify", "layers": 2, "hidden": 32, "heads": 2, "mlp": 64,
                       "vocab": 64, "seq": SEQ, "max_seq": SEQ, "classes": 2},
             "data": {"kind": "sst2", "path": "tsv", "vocab": "vocab.txt"}},
    "gpt2": {"model": {"family": "gpt", "layers": 2, "hidden": 32, "heads": 2, "mlp": 64, "vocab": 300, "seq": SEQ,
                       "max_seq": SEQ},
             "data": {"kind": "text", "path": "text", "vocab": "vocab.json"}},
}
for decoder, keys in DECODERS.items():
    JOBS[decoder] = {"model": {"model_type": decoder, **keys}, "data": JOBS["gpt2"]["data"]}


def job(name, model, data):
    return {"name": name, "model": model, "data": data,
            "train": {"epochs": 1, "batch": {"global": 4}, "max_steps": 4, "optimizer": {"kind": "adamw", "lr": 0.01}},
            "pipeline": {"num_stages": 1, "num_replicas": 1, "num_microbatches": 2, "schedule": "1f1b"}}


def make_data():
    draw = random.Random(1)
    for split, n in (("train", 8), ("val", 5)):
        for c, name in enumerate(CLASSES):
            os.makedirs(at("pictures", split, name), exist_ok=True)
            for i in range(n):
                picture = Image.new("RGB", (SIDE, SIDE))
                picture.putdata([tuple(draw.randrange(40 * c, 256) for _ in range(3)) for _ in range(SIDE * SIDE)])
                picture.save(at("pictures", split, name, "%d.png" % i))
    words = ["a", "fine", "film", "bore", "what", "the", "plot", "##s", "thin", "good", "bad", "!", ","]
    with open(at("vocab.txt"), "w") as f:
        f.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words) + "\n")
    os.makedirs(at("tsv"))
    for name, n in (("train.tsv", 16), ("dev.tsv", 9)):
        with open(at("tsv", name), "w") as f:
            f.write("sentence\tlabel\n")
            for i in range(n):
                f.write(" ".join(draw.choice(["A fine film", "plots", "What", "bad,", "good!", "unknown"])
                                 for _ in range(draw.randrange(2, 8))) + "\t%d\n" % (i % 2))
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    rest = [b for b in range(256) if b not in plain]
    vocab = {chr(b) if b in plain else chr(256 + rest.index(b)): b for b in range(256)}
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("i", "n"), ("e", "r")]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    vocab["<|endoftext|>"] = len(vocab)
    dump(vocab, "vocab.json")
    with open(at("merges.txt"), "w") as f:
        f.write("#version: 0.2\n" + "\n".join("%s %s" % m for m in merges) + "\n")
    os.makedirs(at("text"))
    for name in ("train.txt", "test.txt"):
        with open(at("text", name), "w") as f:
            f.write(" ".join(draw.choice(["the", "winter", "sing", "other", "thin", "there"]) for _ in range(400)))
    for name, parts in JOBS.items():
        dump(job(name, **parts), name + ".json")


def loss_of(name, model, source):
    """Mean loss and accuracy of a model over the test data, with the processor or tokenizer in a folder."""
    model.eval()
    logits, labels = [], []
    with torch.no_grad():
        if name.startswith("vit"):
            processor = transformers.AutoImageProcessor.from_pretrained(source)
            for label, c in enumerate(CLASSES):
                for file in sorted(os.listdir(at("pictures", "val", c))):
                    image = Image.open(at("pictures", "val", c, file)).convert("RGB")
                    logits.append(model(**processor(image, return_tensors="pt")).logits)
                    labels.append(label)
        elif name.startswith("bert"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            with open(at("tsv", "dev.tsv")) as f:
                for line in f.read().splitlines()[1:]:
                    text, label = line.split("\t")
                    tokens = tokenizer(text, truncation=True, max_length=SEQ, return_tensors="pt")
                    logits.append(model(**tokens).logits)
                    labels.append(int(label))
        else:
            tokenizer = tokenizers.ByteLevelBPETokenizer(at("vocab.json"), at("merges.txt"))
            with open(at("text", "test.txt")) as f:
                ids = tokenizer.encode(f.read()).ids
            for i in range((len(ids) - 1) // SEQ):
                window = torch.tensor([ids[i * SEQ:i * SEQ + SEQ + 1]])
                logits.append(model(window[:, :-1]).logits[0])
                labels += window[0, 1:].tolist()
    logits, labels = torch.cat(logits), torch.tensor(labels)
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    return loss, (logits.argmax(-1) == labels).float().mean().item()


def compare(name, model, source, answer):
    with open(at(answer)) as f:
        ours = json.load(f)
    loss, accuracy = loss_of(name, model, source)
    print("# loss %.7f, ours %.7f; accuracy %.6f, ours %.6f" % (loss, ours["eval_loss"], accuracy, ours["eval_accuracy"]))
    assert abs(loss - ours["eval_loss"]) <= 1e-5 * loss
    assert abs(accuracy - ours["eval_accuracy"]) < 1e-6


AUTO = {"vit": transformers.AutoModelForImageClassification, "bert": transformers.AutoModelForSequenceClassification,
        **{name: transformers.AutoModelForCausalLM for name in ["gpt2", *DECODERS]}}


def exported():
    source = at("exported-" + kind)
    model, info = AUTO[kind].from_pretrained(source, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    if kind == "vit":
        assert [model.config.id2label[i] for i in range(len(CLASSES))] == CLASSES, model.config.id2label
    compare(kind, model, source, "ours-%s.json" % kind)


def made(name):
    torch.manual_seed(7)
    if name == "vit":
        config = transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                        image_size=SIDE, patch_size=8, num_labels=3, layer_norm_eps=1e-2)
        return transformers.ViTForImageClassification(config)
    if name == "bert":
        config = transformers.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=64,
                                         intermediate_size=64, max_position_embeddings=SEQ, layer_norm_eps=1e-2)
        return transformers.BertForSequenceClassification(config)
    if name in DECODERS:
        config = transformers.AutoConfig.for_model(name, **DECODERS[name], bos_token_id=None, eos_token_id=None,
                                                   pad_token_id=None)
        return transformers.AutoModelForCausalLM.from_config(config)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=SEQ, vocab_size=300,
                                     layer_norm_epsilon=1e-2, bos_token_id=None, eos_token_id=None)
    return transformers.GPT2LMHeadModel(config)


def save():
    model = made(kind)
    with torch.no_grad():  # far from zero, so that every tensor counts
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    source, base = at("saved-" + kind), kind.split("-")[0]
    model.save_pretrained(source, max_shard_size="20KB", safe_serialization=True)
    assert os.path.exists(os.path.join(source, "model.safetensors.index.json"))
    if kind == "gpt2-tied-head":  # the table under its other name
        from safetensors.torch import load_file, save_file
        whole = {}
        for file in list(os.listdir(source)):
            if "safetensors" in file:
                if file.endswith(".safetensors"):
                    whole.update(load_file(os.path.join(source, file)))
                os.remove(os.path.join(source, file))
        whole["module.lm_head.weight"] = whole.pop("transformer.wte.weight")
        whole["step"] = torch.zeros((1,) * 9, dtype=torch.int8)
        save_file(whole, os.path.join(source, "model.safetensors"))
    data = dict(JOBS[base]["data"])
    dump(job(kind, "saved-%s/config.json" % kind, data), "saved-%s.json" % kind)


def saved():
    model = made(kind)
    torch.manual_seed(7)
    source, base = at("saved-" + kind), kind.split("-")[0]
    if kind == "gpt2-tied-head":
        from safetensors.torch import load_file
        state = load_file(os.path.join(source, "model.safetensors"))
        state = {k.replace("module.", ""): v for k, v in state.items() if k != "step"}
        state["transformer.wte.weight"] = state["lm_head.weight"]
        model.load_state_dict(state)
    else:
        model = AUTO[base].from_pretrained(source)
    compare(base, model, at("exported-" + base), "theirs-%s.json" % kind)


def generated():
    """The likeliest tokens behind a prompt, and their log-probabilities, against ours."""
    source = at("saved-" + kind)
    with open(at("generated-%s.json" % kind)) as f:
        ours = json.load(f)
    model = transformers.AutoModelForCausalLM.from_pretrained(source).eval()
    ids = torch.tensor([tokenizers.ByteLevelBPETokenizer(at("vocab.json"), at("merges.txt")).encode(ours["prompt"]).ids])
    out = ids
    with torch.no_grad():  # without a cache of theirs; generate() of 4.46 needs torch 2
        for _ in ours["tokens"]:
            out = torch.cat([out, model(out).logits[:, -1:].argmax(-1)], 1)
        logs = torch.log_softmax(model(out).logits[0], -1)[ids.shape[1] - 1:-1]
    theirs = out[0, ids.shape[1]:]
    worst = (logs.gather(1, theirs[:, None])[:, 0] - torch.tensor(ours["logprobs"])).abs().max().item()
    print("# tokens %s, ours %s; log-probabilities differ by %g" % (theirs.tolist(), ours["tokens"], worst))
    assert theirs.tolist() == ours["tokens"] and worst < 1e-5


STEPS = {
    "data": (make_data, "data and tokenizers are made"),
    "save": (save, "save_pretrained() in shards"),
    "exported": (exported, "from_pretrained() has our loss"),
    "saved": (saved, "eval has their loss"),
    "generated": (generated, "its tokens and log-probabilities are theirs"),
}
for word in sys.argv[2:]:
    step, _, kind = word.partition(":")
    run, name = STEPS[step]
    try:
        run()
        verdict = "ok"
    except Exception:
        print("# " + traceback.format_exc().replace("\n", "\n# "))
        verdict = "not ok"
    print("%s - %s" % (verdict, kind + ": " + name if kind else name), flush=True)
