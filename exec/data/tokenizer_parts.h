/* exec/data/tokenizer_parts.h - a tokenizer in memory: filled by tokenizer.c and vocab_files.c, followed
 * by tokenizer_encode.c; private to them. Normal forms, and bytes as characters. */
#pragma once

#include "exec/data/markers.h"
#include "exec/data/pattern.h"
#include "partition/plan/job.h"
#include "profiles/json/json.h"

enum { MAX_STEPS = 8, MAX_AROUND = 8, MAX_ID = 1 << 28, MAX_PIECE = 4096, MAX_WORD_CHARS = 100 };

/* NORM_BERT: cleans, puts spaces around ideographs, folds to lower case without accents. */
enum form_kind { NORM_NFC, NORM_NFD, NORM_NFKC, NORM_NFKD, NORM_PREPEND, NORM_REPLACE, NORM_BERT };
struct norm_step {
    enum form_kind kind;
    struct pattern *pattern;       /* owned; of NORM_REPLACE */
    char *text;                    /* owned; text that goes in front of a match, or replaces it */
    bool clean, ideographs, lower; /* of NORM_BERT */
};

/* SPLIT_WORDS: at white space, and around punctuation. */
enum split_kind { SPLIT_PATTERN, SPLIT_BYTES, SPLIT_METASPACE, SPLIT_WORDS };
/* A match becomes a word of its own, is dropped, joins the run of matches around it, or joins the
 * text before or after it. */
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

enum model_kind { MODEL_BYTES, MODEL_BPE, MODEL_WORDPIECE };

struct tokenizer {
    enum model_kind model;
    struct vocab vocab;   /* owned; spelling of a token -> id */
    struct vocab pairs;   /* owned; BPE: two ids (8 bytes) -> index in merges */
    struct merge *merges; /* owned */
    int64_t room_merges;
    char *inside;       /* owned; WordPiece: in front of pieces inside a word ("##") */
    int64_t most_chars; /* WordPiece: of a word; a longer one is unknown */
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

/* GPT-2's pattern, which ByteLevel has unless use_regex is false. Source: Radford et al. 2019,
 * encoder.py. */
#define GPT2_PATTERN                                                                               \
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* vocab_files.c: fill a zeroed tokenizer from vocab.json, whose JSON is `root`, and merges.txt, or from
 * vocab.txt. Errors of tokenizer_open(). */
enum status vocab_files_bpe(struct tokenizer *t, const char *vocab, const struct json *root,
                            const char *merges, struct err *err);
enum status vocab_files_wordpiece(struct tokenizer *t, const char *path, enum lower_case lower,
                                  struct err *err);
/* Add the merge of two tokens, of a rank. ERR_INPUT without a message: they
 * do not join to a third token; *twice: the pair was there, and now has this rank. */
enum status tokenizer_add_merge(struct tokenizer *t, const char *a, size_t a_bytes, const char *b,
                                size_t b_bytes, int32_t rank, bool *twice, struct err *err);
/* Make the tables by id, [size]. */
enum status tokenizer_make_ids(struct tokenizer *t, int size, struct err *err);

/* Where in the source a byte comes from: [first, end). */
struct place {
    int32_t first, end;
};
/* A part of a text, borrowed. places: of each byte; NULL: they are not kept. */
struct span {
    const char *at;
    size_t bytes;
    const struct place *places;
};
static inline struct span span_part(struct span span, size_t first, size_t end)
{
    return (struct span){span.at + first, end - first, span.places ? span.places + first : NULL};
}
/* The place of a part. An empty one is where the next byte begins, at the end where the last one ends. */
static inline struct place span_place(struct span span, size_t first, size_t end)
{
    if (!span.places || span.bytes == 0)
        return (struct place){0, 0};
    if (first == end) {
        const int32_t at =
            first < span.bytes ? span.places[first].first : span.places[first - 1].end;
        return (struct place){at, at};
    }
    return (struct place){span.places[first].first, span.places[end - 1].end};
}

/* A text that grows; a NUL follows its bytes. */
struct buffer {
    char *at;             /* owned */
    struct place *places; /* owned; of each byte, if they are kept */
    size_t bytes, room;
    bool keeps;
};
/* Empty a buffer for a text that is made of `from`, which says whether places are kept. */
void buffer_start(struct buffer *buffer, struct span from);
void buffer_clear(struct buffer *buffer);
/* Append a text with its places, or one all of which comes from one place. */
enum status buffer_put(struct buffer *buffer, struct span text, struct err *err);
enum status buffer_put_from(struct buffer *buffer, const char *text, size_t bytes,
                            struct place from, struct err *err);
static inline struct span buffer_span(const struct buffer *buffer)
{
    return (struct span){buffer->at, buffer->bytes, buffer->keeps ? buffer->places : NULL};
}

/* The characters that stand for bytes in byte-level vocabularies. */
int byte_char(int byte, char *to); /* UTF-8; returns its length */
int byte_of_char(uint32_t code);   /* -1: it stands for none */
/* Apply the normalizer to a text; the caller clears *out, which must be zeroed. */
enum status tokenizer_normalize(const struct tokenizer *tokenizer, struct span text,
                                struct buffer *out, struct err *err);
