/* partition/base/synonyms.h - words of other tools, and what they are called here. One table serves
 * the keys of files, the values of keys and options, and the options of commands. Pure. */
#ifndef ELAPSE_PARTITION_SYNONYMS_H
#define ELAPSE_PARTITION_SYNONYMS_H

#include "partition/base/status.h"

/* The key of a job file that others call `word`, such as "pipeline.tensor" for "tp"; NULL: none. A
 * value may follow it: "pipeline.shard=weights". */
const char *synonym_key(const char *word);

/* The first of the words that others write as `word` and that is one of the NULL-terminated names
 * ("bf16" for "bfloat16" and for "BF16"); NULL: none. */
const char *synonym_value(const char *word, const char *const *names);

/* The value that is now called by another word than `word` ("stage" for "always"), else word
 * itself. */
const char *current_value(const char *word);

/* The option that others write as `word` (both without dashes), such as "n" for "nproc_per_node";
 * NULL: none. */
const char *synonym_option(const char *word);

/* The key or option of one of the field's short words, which input takes in its place: PP TP DP EP
 * VP GBS MBS. NULL for all other words. */
const char *synonym_short_key(const char *word);
const char *synonym_short_option(const char *word);

#endif
