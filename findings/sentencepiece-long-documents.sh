#!/bin/bash
# A sentencepiece vocabulary trained on one document a line may be that of the short documents only.
#
# Guess: every line is read; a long one is cut or at most counts for less.
# Seen (sentencepiece 0.2.3, 2026-11-30), 99 documents of 7,199 bytes and one of 22: a line longer than
#   max_sentence_length, 4,192 bytes, is left out as a whole, so the vocabulary is learnt from the 22 bytes. Of a word
#   that stands 29,700 times in the long ones not even all letters are known. Training ends well; 4 of 64 lines of its
#   log say so. Cut to lines of 599 bytes that word is one piece.
# Source: max_sentence_length in sentencepiece's src/trainer_interface.cc (LoadSentences).
# Why it matters: corpora for language models have one document a line.
. "$(dirname "$0")/lib"
packages sentencepiece==0.2.3
cat >"$work/train.py" <<'P'
import io
import sentencepiece

def pieces(lines):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=40,
                                             model_type="bpe", hard_vocab_limit=False, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).encode("gradient", out_type=str)

def show(lines):
    print("lines of", len(lines[0]), "bytes:", *(piece.replace("\u2581", "_") for piece in pieces(lines)))

words = ["gradient", "pipeline", "stage"] * 300
long = [" ".join(words)] * 99
short = [" ".join(words[i:i + 75]) for i in range(0, 900, 75)] * 99
show(long + ["some short notes of us"])
show(short + ["some short notes of us"])
P
"$python" "$work/train.py" 2>/dev/null | expect "lines of 7199 bytes: _ g r adi e n t
lines of 599 bytes: _gradient"
