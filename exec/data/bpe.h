/* exec/data/bpe.h - GPT-2's tokenizer: byte-level byte-pair encoding, from vocab.json and
 * merges.txt.
 *
 * The text is cut into words: English contractions; runs of letters, of digits or of other
 * characters, each with the space before it; runs of spaces. A word is cut into bytes. Then
 * neighbours are joined, always the pair that comes first in merges.txt, until no pair is left.
 * Both files write a byte as one printable character. Special tokens that are spelled out in a text
 * (<|endoftext|>) become those tokens: the pieces of vocab.json in angle or square brackets that no
 * merge makes, and what tokenizer_config.json and added_tokens.json beside it add. Source: Radford
 * et al. 2019 and github.com/openai/gpt-2, encoder.py; tiktoken and Hugging Face's tokenizers for
 * special tokens. One difference: a word of more than 4,096 bytes is cut
 * there, so that time stays bounded. A struct bpe does not change after opening, and any thread may
 * encode. */
#ifndef ELAPSE_EXEC_DATA_BPE_H
#define ELAPSE_EXEC_DATA_BPE_H

#include "exec/data/markers.h"
#include "exec/data/vocab.h"

struct bpe {
    struct vocab vocab;     /* owned; the bytes of a token -> its id */
    struct vocab ranks;     /* owned; two ids (8 bytes) -> rank of the pair */
    int32_t *merged;        /* owned; rank of a pair -> id of the joined token */
    struct markers markers; /* owned; without any, special tokens in a text are ordinary text */
    int32_t of_byte[256];
    int size; /* largest id + 1 */
};

/* ERR_SYSTEM: a file is missing. ERR_INPUT: vocab.json is not an object of ids, a byte has no
 * token, or a merge joins tokens that the vocabulary lacks (the message gives line and text). *bpe
 * must be zeroed or cleared; the caller owns it. */
enum status bpe_open(const char *vocab_path, const char *merges_path, struct bpe *bpe,
                     struct err *err);
void bpe_clear(struct bpe *bpe);
/* Append the tokens of a text with the bytes that they stand for. ERR_INPUT: over 1 GiB. */
enum status bpe_encode(const struct bpe *bpe, const char *text, size_t bytes,
                       struct token_list *tokens, struct err *err);

#endif
