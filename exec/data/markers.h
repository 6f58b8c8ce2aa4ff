/* exec/data/markers.h - the special tokens of a tokenizer, found in texts where they are spelled out,
 * and the tokenizer's settings beside its vocabulary.
 *
 * The reference tokenizers look for special tokens ([SEP], <|endoftext|>) first, and cut only the
 * text between them into pieces. Where two begin at one place, the longest counts. */
#pragma once

#include <stdbool.h>

#include "exec/data/vocab.h"

struct markers {
    struct vocab table; /* owned; special token -> id */
    bool begins[256];   /* the first bytes of all of them */
};

/* Add a special token; one that is known already keeps its first id. ERR_NOMEM. */
enum status markers_add(struct markers *markers, const char *text, size_t length, int32_t id,
                        struct err *err);
void markers_clear(struct markers *markers); /* safe twice, and on a zeroed one */

/* The first special token of text in [at, bytes): its place, and its length and id. Returns bytes
 * and *length 0 if there is none. */
size_t markers_next(const struct markers *markers, const char *text, size_t bytes, size_t at,
                    size_t *length, int32_t *id);

/* ids + 1, or 0: the least size of a table that holds all of them. */
int markers_size(const struct markers *markers);

/* Whether a piece has the form of a special token: [UNK], <S>, <|endoftext|>. */
bool marker_form(const char *piece, size_t length);

/* Settings of tokenizer_config.json. -1: not set. */
struct tokenizer_config {
    int lower_case, strip_accents, split_ideographs;
};

/* Read tokenizer_config.json and added_tokens.json beside the vocabulary file, if they are there:
 * the settings, and the added tokens with their ids. ERR_INPUT: a file is malformed. */
enum status tokenizer_config_read(const char *vocab_path, struct tokenizer_config *config,
                                  struct markers *markers, struct err *err);
