/* exec/data/vocab.h - a hash table from pieces of text to ids, and lists of tokens.
 *
 * Keys are bytes; the table copies them into one block. Any thread may look up; only one may
 * insert, and none may look up meanwhile. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"

struct vocab_slot {
    int64_t text; /* offset of the piece in bytes */
    int32_t length, id;
};
struct vocab {
    char *bytes; /* owned */
    int64_t num_bytes, room_bytes;
    struct vocab_slot *slots; /* owned; num_slots, a power of two; length < 0: empty slot */
    int64_t num_slots, count;
    int32_t max_id, max_length;
};

void vocab_clear(struct vocab *vocab); /* {0} is an empty vocabulary */
/* Insert a piece. ERR_INPUT: it exists already. Amortised O(length). */
enum status vocab_put(struct vocab *vocab, const char *piece, size_t length, int32_t id,
                      struct err *err);
int32_t vocab_find(const struct vocab *vocab, const char *piece, size_t length); /* -1: absent */
/* Whether a slot is this table's. */
static inline bool vocab_holds(const struct vocab *vocab, const struct vocab_slot *slot)
{
    return vocab->num_slots > 0 && slot >= vocab->slots && slot < vocab->slots + vocab->num_slots;
}

/* A token, and the bytes [first, end) of the text that it stands for. */
struct token {
    int32_t id;
    int32_t first, end;
};
struct token_list {
    struct token *at; /* owned */
    int64_t count, room;
};
enum status token_list_add(struct token_list *list, struct token token, struct err *err);
void token_list_clear(struct token_list *list);

/* Read a whole file, decompressed if it is gzip, into a new buffer that ends with a NUL. The caller
 * frees *bytes. ERR_SYSTEM: missing or unreadable. ERR_INPUT: the gzip stream is cut off or
 * corrupt, or the file has more than `limit` bytes (decompressed). */
enum status data_read_file(const char *path, int64_t limit, char **bytes, int64_t *num_bytes,
                           struct err *err);
/* The same, for UTF-8 text: a byte order mark is left out, and one of UTF-16 is ERR_INPUT. */
enum status data_read_text(const char *path, int64_t limit, char **text, int64_t *num_bytes,
                           struct err *err);
