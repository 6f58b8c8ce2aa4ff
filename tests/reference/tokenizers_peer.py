#!/usr/bin/env python3
"""Ids and texts that PyPI's `tokenizers` gives, for tests/unit/exec/test_tokenizer.c.

    python3 tests/reference/tokenizers_peer.py                       rewrites tests/golden/tokenizers
    python3 tests/reference/tokenizers_peer.py FOLDER NUMBER SEED    NUMBER other strings, into FOLDER

Each FOLDER/NAME.json is a tokenizer in the form of a released one with a small vocabulary, trained here;
FOLDER/cases.json has per tokenizer [text, ids, text of the ids]. Strings are drawn from many scripts, kinds of
white space, contractions, spelled special tokens. No code point is younger than Unicode 14, which PCRE2 10.42 knows.
"""
import json
import os
import random
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEXT = ("The king of the winter, and the queen's men that they'll sing of there: 1999 was the year when it's there. "
        "def main(args):\n    return args\n\n\n\tprint('the end')\r\n Der Winter über den Bergen; où est l'été? Ещё не "
        "вечер, зима. Η θάλασσα. 冬の海は静かです。 北京的冬天很冷。 겨울 바다는 조용하다. सर्दी का मौसम है। البحر في الشتاء. "
        "החורף בים. ฤดูหนาว 😀👩‍💻 café naïve")
POOLS = ["abcdefghij THEthe", "0123456789", ".,;:!?-_(){}[]<>/\\|@#$%^&*+=~`\"'", " \t\n\r", "    ", "\n\n\n",
         "\u00a0\u3000\u0085\u2003\u2028\u180e\u200b\ufeff\x0b\x0c\x1c\x1f", "äöüßéèçñÅøİıſ", "αβγδωΣςσ", "абвгджзийЁ",
         "אבגדה\u05b0", "ابتثج\u064b٠١٢", "कखगघ\u093e\u094d१२", "กขคง\u0e34๑", "가나다한글\u1100\u1161", "漢字北京冬海", "かなカナー々",
         "😀👩\u200d💻🏽🇩🇪\ufe0f", "e\u0301o\u0308n\u0303\u0323", "𝒜𝓑𝟙𝟚ⅷ½²①", "ﬁﬀＡＢ１", "'s 't 're 'VE 'm 'LL 'd 'ſ ’s", "\x01\x7f\x80"]
# Code points whose normal forms the tables of `tokenizers` do not have.
YOUNG = "e\u0345\u08ca\u0301 \u32ff\uff21 \U00011935\U00011930e\u0301 \u1abf\u0334"
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<s>", "</s>", "<mask>", "<bos>", "<unk>",
            "<0x41>", "\u2581", "\u2581\u2581"]


def level(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(tokenizer, size, alphabet):
    tokenizer.train_from_iterator([TEXT] * 3, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False, special_tokens=[]))
    return tokenizer


def byte_level(split, specials, normalizer=None, ignore=False, first=None):
    t = Tokenizer(models.BPE(ignore_merges=ignore))
    t.pre_tokenizer = split
    train(t, 420, pre_tokenizers.ByteLevel.alphabet())
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(specials)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    if first:
        t.post_processor = processors.Sequence([t.post_processor, processors.TemplateProcessing(
            single=first + " $A", pair=first + " $A " + first + " $B", special_tokens=[(first, t.token_to_id(first))])])
    return t


def byte_fallback(split, normalizer, decoder, specials, around, more=()):
    """A vocabulary as SentencePiece's BPE has it: special tokens, bytes, characters, joined pieces."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    train(trained, 240, [])
    state = json.loads(trained.to_str())["model"]
    pieces = specials + ["<0x%02X>" % b for b in range(256)] + sorted(state["vocab"], key=state["vocab"].get)
    vocab = {p: i for i, p in enumerate(dict.fromkeys(pieces))}
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in state["merges"]]
    t = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if split:
        t.pre_tokenizer = split
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoder
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in specials])
    t.add_tokens([AddedToken(s, normalized=False) for s in more])
    t.post_processor = processors.TemplateProcessing(single=around + " $A", pair=around + " $A $B",
                                                     special_tokens=[(around, t.token_to_id(around))])
    return t


def wordpiece():
    """BERT's: the ids of its texts are not decoded here."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator([TEXT] * 3, trainers.WordPieceTrainer(vocab_size=260, special_tokens=specials, show_progress=False))
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]",
                                                     special_tokens=[(n, t.token_to_id(n)) for n in ("[CLS]", "[SEP]")])
    return t


def made():
    space = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    strip = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                               decoders.Strip(" ", 1, 0)])
    return {
        "gpt2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False),
                           ["<|endoftext|>", AddedToken("<mask>", lstrip=True, rstrip=True, normalized=True)]),
        "llama3": byte_level(level(LLAMA3), ["<|begin_of_text|>", "<|im_end|>"], ignore=True, first="<|begin_of_text|>"),
        "qwen": byte_level(level(QWEN), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC()),
        "deepseek": byte_level(pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex("[\r\n]"), "isolated"), pre_tokenizers.Split(Regex("\\s?\\p{L}+"), "isolated"),
            pre_tokenizers.Split("-", "contiguous"), pre_tokenizers.Split(",", "merged_with_next"),
            pre_tokenizers.Split("~", "removed"), pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)]), ["<s>"], normalizers.NFKC()),
        "llama2": byte_fallback(None, normalizers.Sequence([normalizers.Prepend("\u2581"),
                                                            normalizers.Replace(" ", "\u2581")]),
                                strip, ["<unk>", "<s>", "</s>"], "<s>"),
        "mistral": byte_fallback(pre_tokenizers.Metaspace(prepend_scheme="first", split=False), None, strip,
                                 ["<unk>", "<s>", "</s>"], "<s>"),
        "gemma": byte_fallback(pre_tokenizers.Split(" ", "merged_with_previous"), normalizers.Replace(" ", "\u2581"),
                               space, ["<unk>", "<bos>", "<mask>"], "<bos>", ["\n\n", "\u2581\u2581"]),
        "bert": wordpiece(),
    }


def known(c):
    return unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")


def old(text):
    """The classes of characters that BertNormalizer knows are of Unicode 8."""
    return all(unicodedata.category(c) == unicodedata.ucd_3_2_0.category(c) for c in text)


def strings(number, draw):
    yield ""
    yield " "
    yield TEXT
    yield YOUNG
    assigned = [c for c in range(1, 0x32000) if known(c)]
    for _ in range(number - 4):
        parts = []
        for _ in range(draw.randrange(1, 9)):
            kind = draw.random()
            if kind < 0.12:
                parts.append(draw.choice(SPECIALS))
            elif kind < 0.22:
                parts.append("".join(chr(draw.choice(assigned)) for _ in range(draw.randrange(1, 5))))
            elif kind < 0.45:
                at = draw.randrange(len(TEXT))
                parts.append(TEXT[at:at + draw.randrange(1, 24)])
            else:
                pool = draw.choice(POOLS)
                parts.append("".join(draw.choice(pool) for _ in range(draw.randrange(1, 9))))
            if draw.random() < 0.4:
                parts.append(" ")
        yield "".join(parts)


def main():
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/tokenizers")
    folder, number, seed = (sys.argv[1], int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 3 else (golden, 24, 1)
    os.makedirs(folder, exist_ok=True)
    cases = {}
    for i, (name, t) in enumerate(made().items()):
        with open(os.path.join(folder, name + ".json"), "w") as f:
            json.dump(json.loads(t.to_str()), f, separators=(",", ":"))
        rows = cases[name] = []
        for text in strings(number, random.Random(seed * 100 + i)):
            if name == "bert" and not old(text):
                continue
            ids = t.encode(text).ids
            rows.append([text, ids, "\ufffd" if name == "bert" else t.decode(ids, skip_special_tokens=True)])
    with open(os.path.join(folder, "cases.json"), "w") as f:
        f.write("{" + ",\n".join("%s: [\n%s]" % (json.dumps(name), ",\n".join(
            json.dumps(row, separators=(",", ":")) for row in rows)) for name, rows in cases.items()) + "}\n")
    print(folder, "tokenizers", tokenizers.__version__, sum(map(len, cases.values())), "strings")


main()
