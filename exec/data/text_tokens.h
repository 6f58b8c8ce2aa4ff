/* exec/data/text_tokens.h - the tokens of a causal language model, there and back: bytes, GPT-2's
 * vocab.json with merges.txt, or a tokenizer.json. */
#ifndef ELAPSE_EXEC_DATA_TEXT_TOKENS_H
#define ELAPSE_EXEC_DATA_TEXT_TOKENS_H

#include "exec/data/bpe.h"
#include "exec/data/tokenizer.h"

enum text_tokens_kind { TOKENS_BYTES, TOKENS_BPE, TOKENS_FILE };
struct text_tokens {
    enum text_tokens_kind kind;
    struct bpe bpe;                      /* owned */
    struct tokenizer *file;              /* owned */
    const struct vocab_slot **bpe_by_id; /* owned; made by the first text_tokens_bytes() */
};

/* vocab NULL: bytes. merges NULL: merges.txt beside vocab. special: special tokens that are spelled
 * out in a text count. Errors of bpe_open() and tokenizer_open(). */
enum status text_tokens_open(const char *vocab, const char *merges, bool special,
                             struct text_tokens *tokens, struct err *err);
void text_tokens_clear(struct text_tokens *tokens); /* safe twice */
int text_tokens_size(const struct text_tokens *tokens);
/* Append the tokens of a text; `around`: those of a tokenizer.json's template too. */
enum status text_tokens_encode(const struct text_tokens *tokens, const char *text, size_t bytes,
                               bool around, struct token_list *list, struct err *err);
/* The bytes of a token, as tokenizer_bytes(); not for several threads. */
size_t text_tokens_bytes(struct text_tokens *tokens, int32_t id, char *bytes, size_t size,
                         bool *special);
/* The id of a special token by its spelling; -1: there is none. */
int32_t text_tokens_special(const struct text_tokens *tokens, const char *text);

#endif
