/* partition/base/synonyms.h - maps words of other tools to ours: the values of keys
 * and options, and the options of commands. Those of keys stand in their rows (member.h). Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "partition/base/status.h"

/* Whether `length` letters are a word. Case does not count, and '-' equals '_'. */
bool same_word(const char *letters, size_t length, const char *word);

/* The first of the words that others write as `word` and that is one of the NULL-terminated names
 * ("bf16" for "bfloat16" and for "BF16"); NULL: none. */
const char *synonym_value(const char *word, const char *const *names);

/* The value that is now called by another word than `word` ("stage" for "always"), else word
 * itself. */
const char *current_value(const char *word);

/* The option that others write as `word` (both without dashes), such as "n" for "nproc_per_node";
 * NULL: none. */
const char *synonym_option(const char *word);

/* Whether the word is one of the field's short words, which input takes in place of a key or
 * option, not only in hints: PP TP DP EP CP VP GBS MBS. */
bool synonym_is_short(const char *word);
/* The option of such a word; NULL for all other words. */
const char *synonym_short_option(const char *word);
