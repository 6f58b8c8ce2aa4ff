#include "cli/base/sourced.h"

#include <stdio.h>

#include "partition/base/units.h"

static void line(const char *words, const char *text, const char *source)
{
    printf("  %-32s %14s%s%s\n", words, text, *source ? "  " : "", source);
}

static void add_source(const struct sourced *out, const char *name, const char *source)
{
    if (*source)
        json_add_string(out->sources, name, source);
}

/* A figure that is a number in JSON and `text` for people. */
static void number(const struct sourced *out, const char *name, const char *words, double value,
                   const char *text, const char *source)
{
    if (!out->values) {
        line(words, text, source);
        return;
    }
    json_add_double(out->values, name, value);
    add_source(out, name, source);
}

void sourced_rate(const struct sourced *out, const char *name, const char *words, double per_s,
                  const char *source)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g GB/s", per_s / 1e9);
    number(out, name, words, per_s, text, source);
}

void sourced_flops(const struct sourced *out, const char *name, const char *words, double per_s,
                   const char *source)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g TFLOP/s", per_s / 1e12);
    number(out, name, words, per_s, text, source);
}

void sourced_bytes(const struct sourced *out, const char *name, const char *words, int64_t bytes,
                   const char *source)
{
    char text[32];
    if (!out->values) {
        line(words, bytes == INT64_MAX ? "unlimited" : format_bytes(bytes, text, sizeof text),
             source);
        return;
    }
    if (bytes == INT64_MAX)
        json_add_null(out->values, name);
    else
        json_add_int(out->values, name, bytes);
    add_source(out, name, source);
}

void sourced_ns(const struct sourced *out, const char *name, const char *words, int64_t ns,
                const char *source)
{
    char text[32];
    if (!out->values) {
        line(words, format_ns(ns, text, sizeof text), source);
        return;
    }
    json_add_int(out->values, name, ns);
    add_source(out, name, source);
}

void sourced_number(const struct sourced *out, const char *name, const char *words, double value,
                    const char *source)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    number(out, name, words, value, text, source);
}

void sourced_text(const struct sourced *out, const char *name, const char *words, const char *text,
                  const char *source)
{
    if (!out->values) {
        line(words, text, source);
        return;
    }
    json_add_string(out->values, name, text);
    add_source(out, name, source);
}
