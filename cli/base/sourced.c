#include "cli/base/sourced.h"

#include <stdio.h>

#include "partition/base/units.h"

/* Print a figure as a line, or add its source to the JSON. Returns whether there is JSON, to which
 * the caller then adds the value. */
static bool add_source(const struct sourced *out, const char *name, const char *words,
                       const char *text, const char *source)
{
    if (!out->values)
        printf("  %-32s %14s%s%s\n", words, text, *source ? "  " : "", source);
    else if (*source)
        json_add_string(out->sources, name, source);
    return out->values != NULL;
}

/* A figure that is a number in JSON, and in text has a format after a division by `unit`. */
#define SOURCED_DOUBLE(function, format, unit)                                                     \
    void function(const struct sourced *out, const char *name, const char *words, double value,    \
                  const char *source)                                                              \
    {                                                                                              \
        char text[32];                                                                             \
        snprintf(text, sizeof text, format, value / (unit));                                       \
        if (add_source(out, name, words, text, source))                                            \
            json_add_double(out->values, name, value);                                             \
    }
SOURCED_DOUBLE(sourced_rate, "%.4g GB/s", 1e9)
SOURCED_DOUBLE(sourced_flops, "%.4g TFLOP/s", 1e12)
SOURCED_DOUBLE(sourced_number, "%.6g", 1)

void sourced_bytes(const struct sourced *out, const char *name, const char *words, int64_t bytes,
                   const char *source)
{
    char text[32] = "unlimited";
    if (bytes != INT64_MAX)
        format_bytes(bytes, text, sizeof text);
    if (!add_source(out, name, words, text, source))
        return;
    if (bytes == INT64_MAX)
        json_add_null(out->values, name);
    else
        json_add_int(out->values, name, bytes);
}

void sourced_ns(const struct sourced *out, const char *name, const char *words, int64_t ns,
                const char *source)
{
    char text[32];
    if (add_source(out, name, words, format_ns(ns, text, sizeof text), source))
        json_add_int(out->values, name, ns);
}

void sourced_text(const struct sourced *out, const char *name, const char *words, const char *text,
                  const char *source)
{
    if (add_source(out, name, words, text, source))
        json_add_string(out->values, name, text);
}
