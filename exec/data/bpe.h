/* exec/data/bpe.h - GPT-2's tokenizer: byte-level byte-pair encoding from vocab.json, merges.txt.
 *
 * The text is cut into words (English contractions, runs of letters, of digits, of other signs,
 * each with the space before it, and runs of spaces), a word into bytes, and neighbours are joined,
 * the pair that stands first in merges.txt first. In both files a byte is written as one printable
 * character. Source: Radford et al. 2019 and github.com/openai/gpt-2, encoder.py. Words of more
 * than 4,096 bytes are cut there, so that time stays bounded; nothing else differs. Immutable after
 * opening; any thread may encode. */
#ifndef ELAPSE_EXEC_DATA_BPE_H
#define ELAPSE_EXEC_DATA_BPE_H

#include "exec/data/vocab.h"

struct bpe {
    struct vocab vocab; /* owned: bytes of a token -> id */
    struct vocab ranks; /* owned: two ids (8 bytes) -> rank */
    int32_t *merged;    /* owned: id of the pair of a rank */
    int32_t of_byte[256];
    int size; /* largest id + 1 */
};

/* ERR_SYSTEM: a missing file; ERR_INPUT: no object of ids, a byte without a token, a merge of
 * tokens that the vocabulary lacks (line and text). */
enum status bpe_open(const char *vocab_path, const char *merges_path, struct bpe *bpe,
                     struct err *err);
void bpe_clear(struct bpe *bpe);
enum status bpe_encode(const struct bpe *bpe, const char *text, size_t bytes,
                       struct token_list *tokens, struct err *err);

#endif
