"""What all-MiniLM-L6-v2 makes of some texts, by PyTorch and a WordPiece of its own.

    python3 tests/reference/minilm.py MODEL_DIR TEXTS OUT_DIR

MODEL_DIR holds vocab.txt and model.safetensors; TEXTS has a text a line. Writes OUT_DIR/tokens.txt
(the ids of each line, no special tokens added) and OUT_DIR/reference.safetensors: tokens [n, seq] and
lengths [n] of the first lines that fit, and hidden.LAYER [n, seq, hidden] behind every layer."""

import json
import math
import re
import struct
import sys
import unicodedata as u

import torch

SEQ, SAMPLES, HEADS = 32, 12, 12


def is_cjk(c):
    blocks = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
              (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]
    return any(a <= ord(c) <= b for a, b in blocks)


def is_punctuation(c):
    ascii_sign = 33 <= ord(c) < 127 and not c.isalnum()
    return ascii_sign or u.category(c).startswith("P")


def words(text):
    clean = ""
    for c in text:
        if c in "\t\n\r" or u.category(c) in ("Zs", "Zl", "Zp"):
            clean += " "
        elif c != "\ufffd" and not u.category(c).startswith("C"):
            clean += " " + c + " " if is_cjk(c) else c
    for word in clean.split():
        word = "".join(c for c in u.normalize("NFD", "".join(c.lower() for c in word)) if u.category(c) != "Mn")
        part = ""
        for c in word:
            if is_punctuation(c):
                if part:
                    yield part
                yield c
                part = ""
            else:
                part += c
        if part:
            yield part


SPECIAL = ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")


def spelled(text):
    """Words, and special tokens that the text spells out, as transformers' BertTokenizer finds them."""
    for part in re.split("(" + "|".join(map(re.escape, SPECIAL)) + ")", text):
        if part in SPECIAL:
            yield part
        else:
            yield from words(part)


def wordpiece(text, vocab):
    ids = []
    for word in spelled(text):
        if word in SPECIAL:
            ids.append(vocab[word])
            continue
        found, at = [], 0
        while at < len(word) and len(word) <= 100:
            for end in range(len(word), at, -1):
                piece = ("##" if at else "") + word[at:end]
                if piece in vocab:
                    found.append(vocab[piece])
                    at = end
                    break
            else:
                break
        ids += found if at == len(word) else [vocab["[UNK]"]]
    return ids


def load(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    out = {}
    for name, info in header.items():
        if name != "__metadata__" and info["dtype"] == "F32":
            a, b = info["data_offsets"]
            out[name] = torch.frombuffer(bytearray(data[a:b]), dtype=torch.float32).reshape(info["shape"])
    return out


def save(path, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        raw = t.contiguous().float().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def forward(w, tokens, lengths):
    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-12)

    n, seq = tokens.shape
    e = "embeddings."
    x = w[e + "word_embeddings.weight"][tokens] + w[e + "position_embeddings.weight"][:seq]
    x = norm(x + w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
    mask = (torch.arange(seq)[None, :] >= lengths[:, None]).float()[:, None, None, :] * -1e9
    hidden, layer = [], 0
    while "encoder.layer.%d.attention.self.query.weight" % layer in w:
        p = "encoder.layer.%d." % layer
        q, k, v = (
            linear(x, p + "attention.self." + s).reshape(n, seq, HEADS, -1).transpose(1, 2)
            for s in ("query", "key", "value")
        )
        prob = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask, -1)
        context = (prob @ v).transpose(1, 2).reshape(n, seq, -1)
        x = norm(x + linear(context, p + "attention.output.dense"), p + "attention.output.LayerNorm")
        middle = torch.nn.functional.gelu(linear(x, p + "intermediate.dense"))
        x = norm(x + linear(middle, p + "output.dense"), p + "output.LayerNorm")
        hidden.append(x)
        layer += 1
    return hidden


def main():
    model_dir, texts, out_dir = sys.argv[1:]
    with open(model_dir + "/vocab.txt", encoding="utf-8", newline="\n") as f:
        vocab = {line.rstrip("\n"): i for i, line in enumerate(f)}
    with open(texts, encoding="utf-8", errors="replace", newline="\n") as f:
        ids = [wordpiece(line.rstrip("\n"), vocab) for line in f]
    with open(out_dir + "/tokens.txt", "w") as f:
        f.writelines(" ".join(map(str, line)) + "\n" for line in ids)
    short = [line for line in ids if 0 < len(line) <= SEQ - 2][:SAMPLES]
    tokens = torch.zeros(len(short), SEQ, dtype=torch.long)
    lengths = torch.tensor([len(line) + 2 for line in short])
    for i, line in enumerate(short):
        line = [vocab["[CLS]"]] + line + [vocab["[SEP]"]]
        tokens[i, : len(line)] = torch.tensor(line)
    with torch.no_grad():
        hidden = forward(load(model_dir + "/model.safetensors"), tokens, lengths)
    out = {"hidden.%d" % i: h for i, h in enumerate(hidden)}
    save(out_dir + "/reference.safetensors", dict(out, tokens=tokens, lengths=lengths))


if __name__ == "__main__":
    main()
