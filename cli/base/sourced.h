/* cli/base/sourced.h - figures with their source, as lines for people or as JSON.
 *
 * In JSON a figure is a key of the answer, and its source has the same key in the object
 * "sources". */
#pragma once

#include <stdint.h>

#include "profiles/json/json.h"

struct sourced {
    struct json *values, *sources; /* borrowed; NULL: print lines */
};

/* name is the JSON key, words what a person reads. */
void sourced_rate(const struct sourced *out, const char *name, const char *words, double per_s,
                  const char *source);
void sourced_flops(const struct sourced *out, const char *name, const char *words, double per_s,
                   const char *source);
void sourced_bytes(const struct sourced *out, const char *name, const char *words, int64_t bytes,
                   const char *source);
void sourced_ns(const struct sourced *out, const char *name, const char *words, int64_t ns,
                const char *source);
void sourced_number(const struct sourced *out, const char *name, const char *words, double value,
                    const char *source);
void sourced_text(const struct sourced *out, const char *name, const char *words, const char *text,
                  const char *source);
