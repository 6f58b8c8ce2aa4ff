/* exec/data/wordpiece.h - BERT's tokenizer, from a vocab.txt.
 *
 * The text is cleaned (control characters and U+FFFD dropped, spaces alike), split at spaces,
 * around punctuation and around CJK ideographs; lower-cased and freed of accents where the
 * vocabulary is uncased (no piece of it holds a capital); each word is then cut into the longest
 * pieces that the vocabulary has, those inside a word with "##" in front. Source: Devlin et al.
 * 2018 and the behaviour of Hugging Face's BertTokenizer, whose tokens these are, with two
 * differences: special tokens spelled in a text are ordinary text, and a final sigma is lower-cased
 * like any other (as their fast tokenizer does). Immutable after opening; any thread may encode. */
#ifndef ELAPSE_EXEC_DATA_WORDPIECE_H
#define ELAPSE_EXEC_DATA_WORDPIECE_H

#include "exec/data/vocab.h"

struct wordpiece {
    struct vocab vocab; /* owned */
    bool lower;
    int size;                         /* lines of the vocabulary */
    int32_t pad, unk, cls, sep, mask; /* mask -1: none */
};

/* vocab.txt: one piece a line, its number is the line's. ERR_SYSTEM: missing; ERR_INPUT: a piece
 * twice, or no [PAD], [UNK], [CLS], [SEP]. *wp must be zeroed or cleared; the caller owns it. */
enum status wordpiece_open(const char *path, struct wordpiece *wp, struct err *err);
void wordpiece_clear(struct wordpiece *wp);

/* Append the tokens of a text (no special ones) with the bytes that they stand for. Bytes that are
 * no UTF-8 are dropped. ERR_INPUT over 1 GiB. O(bytes * longest piece). */
enum status wordpiece_encode(const struct wordpiece *wp, const char *text, size_t bytes,
                             struct token_list *tokens, struct err *err);

#endif
