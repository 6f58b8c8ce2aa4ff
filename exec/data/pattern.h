/* exec/data/pattern.h - regular expressions of tokenizer files, by PCRE2 with Unicode properties. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "partition/base/status.h"

struct pattern; /* opaque; does not change, any thread may match */

/* Compile an expression, or with `literal` one that matches this text. ERR_INPUT: PCRE2's message,
 * also for \C and for \K in a lookaround. \s and \S stand for White_Space of Unicode. */
enum status pattern_new(const char *text, bool literal, struct pattern **pattern, struct err *err);
void pattern_free(struct pattern *pattern); /* NULL is fine */

/* A search through one text; release it with pattern_search_clear(). */
struct pattern_search {
    const struct pattern *pattern;
    void *match; /* owned */
    const char *text;
    size_t bytes, at, last_end; /* last_end: where the last match ends */
    bool empty_seen;            /* the last match was empty */
    bool checked;               /* the text is UTF-8 */
};
enum status pattern_search(const struct pattern *pattern, const char *text, size_t bytes,
                           struct pattern_search *search, struct err *err);
/* The next match, [*first, *end) of the text. It begins at or after the end of the last match, and
 * it ends at or after its own beginning, both between characters. *found false: there is none.
 * ERR_INPUT, with the pattern: PCRE2 gave up, the text is not UTF-8, or the next match is not of
 * this order. Each call advances, so a loop over all matches ends. */
enum status pattern_next(struct pattern_search *search, bool *found, size_t *first, size_t *end,
                         struct err *err);
void pattern_search_clear(struct pattern_search *search);
