/* exec/data/tokenizer.h - from texts to tokens and back: one encoder for all tokenizers.
 *
 * It is built from a tokenizer.json; from a vocab.txt (WordPiece: BERT); from vocab.json and
 * merges.txt (byte-level byte-pair encoding: GPT-2); or from nothing, where a byte is a token. A text
 * goes through steps: added tokens are cut out, the normalizer changes the text between them, the
 * pre-tokenizer cuts that into words, the model makes tokens of a word, and the post-processor puts
 * tokens around the text. Source: documentation of Hugging Face's `tokenizers` (components);
 * tests/reference/tokenizers_peer.py compares ids with that package. Patterns are those of PCRE2 with
 * Unicode properties, normal forms those of utf8proc.
 *
 * Known steps: normalizers NFC NFD NFKC NFKD Prepend Replace BertNormalizer; pre-tokenizers ByteLevel
 * Split Digits Metaspace BertPreTokenizer; models BPE, with byte fallback, and WordPiece;
 * post-processors TemplateProcessing ByteLevel BertProcessing RobertaProcessing; decoders ByteLevel
 * Replace ByteFallback Fuse Strip Metaspace WordPiece (whose tokens stay as they are spelled);
 * Sequence of each. A file with another step is refused by its name. An open tokenizer does not
 * change, and any thread may encode. */
#pragma once

#include <stdbool.h>

#include "exec/data/vocab.h"
#include "partition/plan/job.h"

struct tokenizer; /* opaque */

/* Open what `vocab` names: a .json file that is named tokenizer.json or has a "model"; any other .json
 * file (vocab.json, with `merges`, or merges.txt beside it if that is NULL); any other file
 * (vocab.txt); NULL: bytes.
 *
 * vocab.json and vocab.txt: special tokens are pieces in angle or square brackets that no merge makes
 * ([PAD], [UNK], [CLS], [SEP], [MASK] of vocab.txt), and those that tokenizer_config.json and
 * added_tokens.json beside the file add. lower: of WordPiece; LOWER_AUTO: as the file or
 * tokenizer_config.json beside it says, else a vocab.txt is uncased if no piece but special tokens
 * has a capital letter.
 *
 * ERR_SYSTEM: a file is missing. ERR_INPUT: malformed, or a step that is not known; the message names
 * it. On OK the caller owns *tokenizer. O(vocabulary). */
enum status tokenizer_open(const char *vocab, const char *merges, enum lower_case lower,
                           struct tokenizer **tokenizer, struct err *err);
void tokenizer_free(struct tokenizer *tokenizer); /* NULL is fine */

int tokenizer_size(const struct tokenizer *tokenizer); /* largest id + 1 */
/* Id of a token as the file spells it, added ones included; -1: there is none. */
int32_t tokenizer_id(const struct tokenizer *tokenizer, const char *piece);
/* Whether it is an added token that is no text. */
bool tokenizer_special(const struct tokenizer *tokenizer, int32_t id);
/* Whether special tokens that are spelled out in a text become those tokens [true]. */
void tokenizer_find_special(struct tokenizer *tokenizer, bool find);
bool tokenizer_is_wordpiece(const struct tokenizer *tokenizer);
bool tokenizer_lowers(const struct tokenizer *tokenizer); /* WordPiece, lower case */

/* ENCODE_AROUND: with the tokens that the post-processor adds. ENCODE_PLACES: with the bytes of the
 * text that each token stands for; without it they are 0, as for tokens that are added around. */
enum { ENCODE_AROUND = 1, ENCODE_PLACES = 2 };
/* Append the tokens of a text. Bytes that are not UTF-8 count as U+FFFD. ERR_INPUT: over 1 GiB, or a
 * pattern needs more steps than PCRE2 allows. O(n log n). */
enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                             int flags, struct token_list *tokens, struct err *err);

/* The bytes of a token in a text, at most `size`, which may be part of a character; returns how many.
 * *special as tokenizer_special(). Unknown ids have no bytes. */
size_t tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, char *bytes, size_t size,
                       bool *special);
/* Whether the first token of a text leaves out its leading space. */
bool tokenizer_strips(const struct tokenizer *tokenizer);
