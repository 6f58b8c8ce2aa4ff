/* exec/data/tokenizer.h - the tokenizer that a tokenizer.json describes: byte-pair encoding as Llama,
 * Mistral, Qwen, Gemma and GPT-2 use it.
 *
 * A text goes through the steps of the file: added tokens are cut out, the normalizer changes what is
 * between them, the pre-tokenizer cuts that into words, merges join the characters of a word, and the
 * post-processor puts tokens around the text. Source: documentation of Hugging Face's `tokenizers`
 * (components); tests/reference/tokenizers_peer.py compares ids with that package. Patterns are those
 * of PCRE2 with Unicode properties, normal forms those of utf8proc.
 *
 * Steps that are known: normalizers NFC NFD NFKC NFKD Prepend Replace; pre-tokenizers ByteLevel Split
 * Digits Metaspace; model BPE, with byte fallback; post-processors TemplateProcessing ByteLevel;
 * decoders ByteLevel Replace ByteFallback Fuse Strip Metaspace; Sequence of each. A file with
 * another one is refused by its name. An open tokenizer does not change, and any thread may
 * encode. */
#ifndef ELAPSE_EXEC_DATA_TOKENIZER_H
#define ELAPSE_EXEC_DATA_TOKENIZER_H

#include <stdbool.h>

#include "exec/data/vocab.h"

struct tokenizer; /* opaque */

/* Whether a job's vocabulary is for tokenizer_open(): its name ends in tokenizer.json. */
bool tokenizer_named(const char *path);

/* Open a tokenizer.json. ERR_SYSTEM: it is missing. ERR_INPUT: malformed, or a step that is not
 * known; the message names it. On OK the caller owns *tokenizer. O(vocabulary). */
enum status tokenizer_open(const char *path, struct tokenizer **tokenizer, struct err *err);
void tokenizer_free(struct tokenizer *tokenizer); /* NULL is fine */

int tokenizer_size(const struct tokenizer *tokenizer); /* largest id + 1 */
/* Id of a token as the file spells it, added ones included; -1: there is none. */
int32_t tokenizer_id(const struct tokenizer *tokenizer, const char *piece);
/* Whether added tokens that are spelled out in a text become those tokens [true]. */
void tokenizer_find_special(struct tokenizer *tokenizer, bool find);

/* Append the tokens of a text; `around`: with those that the post-processor adds. Bytes that are not
 * UTF-8 count as U+FFFD. Places of tokens in the text are not kept: first and end are 0. ERR_INPUT:
 * over 1 GiB, or a pattern needs more steps than PCRE2 allows. O(n log n). */
enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                             bool around, struct token_list *tokens, struct err *err);

/* The bytes of a token in a text, at most `size`, which may be part of a character; returns how many.
 * *special: an added token that is no text. Unknown ids have no bytes. */
size_t tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, char *bytes, size_t size,
                       bool *special);
/* Whether the first token of a text leaves out its leading space. */
bool tokenizer_strips(const struct tokenizer *tokenizer);

#endif
