/* exec/data/tokenizer_parts.h - a tokenizer in memory: filled by tokenizer.c, followed by
 * tokenizer_encode.c; private to both. Normal forms, and bytes as characters. */
#ifndef ELAPSE_EXEC_DATA_TOKENIZER_PARTS_H
#define ELAPSE_EXEC_DATA_TOKENIZER_PARTS_H

#include "exec/data/markers.h"
#include "exec/data/pattern.h"

enum { MAX_STEPS = 8, MAX_AROUND = 8, MAX_PIECE = 4096 };

enum norm_kind { NORM_NFC, NORM_NFD, NORM_NFKC, NORM_NFKD, NORM_PREPEND, NORM_REPLACE };
struct norm_step {
    enum norm_kind kind;
    struct pattern *pattern; /* owned; of NORM_REPLACE */
    char *text;              /* owned; text that goes in front of a match, or replaces it */
};

enum split_kind { SPLIT_PATTERN, SPLIT_BYTES, SPLIT_METASPACE };
/* A match becomes a word of its own, is dropped, joins the run of matches around it, or joins the
 * text before or behind it. */
enum split_match { MATCH_ISOLATED, MATCH_REMOVED, MATCH_CONTIGUOUS, MATCH_PREVIOUS, MATCH_NEXT };
enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };
struct split_step {
    enum split_kind kind;
    enum split_match match;
    bool invert;             /* words are what the pattern does not match */
    struct pattern *pattern; /* owned; NULL: the text stays whole */
    enum prepend prepend;    /* Metaspace: its mark; ByteLevel, PREPEND_ALWAYS: a space */
    char *mark;              /* owned; of Metaspace, in place of a space */
};

/* An added token that takes the white space beside it. */
struct added_token {
    bool left, right, special;
};

/* merges: rank and result of each pair of ids. */
struct merge {
    int32_t rank, id;
};

struct tokenizer {
    struct vocab vocab;   /* owned; spelling of a token -> id */
    struct vocab pairs;   /* owned; two ids (8 bytes) -> index in merges */
    struct merge *merges; /* owned */
    bool byte_fallback, fuse_unknown, ignore_merges;
    int32_t unknown;            /* -1: characters without a token are dropped */
    int32_t byte_ids[256];      /* of <0x00> to <0xFF>; -1: none */
    struct markers raw, normal; /* owned; added tokens, found before and after normalization */
    struct added_token *added;  /* owned; by id, [size] */
    struct vocab added_text;    /* owned; all added tokens */
    bool find_special;
    struct norm_step norms[MAX_STEPS];
    struct split_step splits[MAX_STEPS];
    int num_norms, num_splits;
    int32_t before[MAX_AROUND], after[MAX_AROUND]; /* tokens around a text */
    int num_before, num_after;
    bool decode_bytes;                  /* characters of tokens stand for bytes */
    bool decode_fallback, decode_strip; /* <0x41> is a byte; the first space goes */
    char *decode_from, *decode_to;      /* owned; what to replace in a token */
    const struct vocab_slot **by_id;    /* owned, [size]; NULL: no token */
    int size;
};

/* A text that grows; a NUL follows its bytes. */
struct buffer {
    char *at; /* owned */
    size_t bytes, room;
};
enum status buffer_put(struct buffer *buffer, const char *text, size_t bytes, struct err *err);

/* The characters that stand for bytes in byte-level vocabularies. */
int byte_char(int byte, char *to); /* UTF-8; returns its length */
int byte_of_char(uint32_t code);   /* -1: it stands for none */
/* Apply the normalizer to a text; *out is owned by the caller. */
enum status tokenizer_normalize(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                                char **out, size_t *out_bytes, struct err *err);

#endif
