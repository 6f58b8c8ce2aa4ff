/* partition/base/units.h - values with units, as people write them: 1ms, 20us, 5GBps, 16GiB, 1/3.
 *
 * Decimal prefixes are powers of 1000 (GB = 10^9 B), binary ones powers of 1024 (GiB). Every parser
 * reads the whole string and refuses NaN, negative and overflowing values. Its error names `what`,
 * the option or key. Pure functions, no locale. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <stdbool.h>

#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The longest time that may be given, 36 years: sums of a few such times fit 64 bits. */
#define NS_MAX (INT64_C(1) << 60)
/* ns us ms s min h -> integer nanoseconds up to NS_MAX, rounded to nearest. A number without a unit
 * must be 0. */
enum status parse_ns(const char *text, const char *what, int64_t *ns, struct err *err);

/* B KB MB GB TB KiB MiB GiB TiB -> bytes; a bare integer is bytes. */
enum status parse_bytes(const char *text, const char *what, int64_t *bytes, struct err *err);

/* Bps KBps MBps GBps TBps (and KiBps...) -> bytes per second, 1 .. 10^18. */
enum status parse_rate(const char *text, const char *what, double *bytes_per_s, struct err *err);

/* MFLOPS GFLOPS TFLOPS PFLOPS, also as TFLOP/s -> operations per second. */
enum status parse_flops(const char *text, const char *what, double *flops_per_s, struct err *err);

/* A decimal number or a fraction "1/3" -> double. */
enum status parse_ratio(const char *text, const char *what, double *ratio, struct err *err);

/* A decimal integer min..max. */
enum status parse_int(const char *text, const char *what, int64_t min, int64_t max, int64_t *value,
                      struct err *err);

/* "1,2,3" -> a fresh array of *count integers, each min..max; the caller frees it. */
enum status parse_int_list(const char *text, const char *what, int64_t min, int64_t max,
                           int64_t **values, int *count, struct err *err);

/* Overflow-checked arithmetic on sizes and times; true when the exact result is in *out. Operands
 * must be >= 0. */
static inline bool add_ok(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool mul_ok(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Saturating arithmetic: INT64_MAX where the result does not fit. Operands must be >= 0. */
static inline int64_t add_saturated(int64_t a, int64_t b)
{
    int64_t sum;
    return add_ok(a, b, &sum) ? sum : INT64_MAX;
}

static inline int64_t mul_saturated(int64_t a, int64_t b)
{
    int64_t product;
    return mul_ok(a, b, &product) ? product : INT64_MAX;
}

/* Ascending order, for qsort(). */
static inline int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static inline int compare_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}
static inline int compare_texts(const void *a, const void *b) /* of char * */
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline bool text_ends(const char *text, const char *end) /* false of NULL */
{
    const size_t length = text ? strlen(text) : 0, n = strlen(end);
    return length >= n && strcmp(text + length - n, end) == 0;
}

/* splitmix64 (Steele, Lea, Flood 2014) as a hash of a counter. Kernels use the copy in
 * exec/base/rng.h. */
static inline uint64_t mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Write a name's letters and digits in lower case: "DGX_H100" and "dgx-h100" fold to "dgxh100". False
 * if it has none or they do not fit. */
bool name_fold(const char *name, char *out, size_t size);

/* Nearest of the n names to word by edit distance, for "did you mean"; NULL when none is near. */
const char *nearest_name(const char *word, const char *const *names, int n);

/* Join the n names with spaces ("a b c") for a hint; names that do not fit are left out. Returns
 * buf. */
const char *join_names(const char *const *names, int n, char *buf, size_t size);

/* Write a time 0..NS_MAX as parse_ns() reads it back exactly, in the largest unit that fits: "16s",
 * "1500us". Returns buf. */
const char *write_ns(int64_t ns, char *buf, size_t size);

/* Write a value for a human reader ("1.25 ms", "33.7 h", "16.0 GiB") into buf; returns buf.
 * Times from 90 s are in minutes, from 90 minutes in hours. */
const char *format_ns(int64_t ns, char *buf, size_t size);
const char *format_bytes(int64_t bytes, char *buf, size_t size);
/* Words for a ratio of speeds: "2.50 times faster", or "1.25 times slower" for 0.8. */
const char *format_speed(double ratio, char *buf, size_t size);
/* "1 rank", "2 ranks". */
const char *format_count(int64_t n, const char *noun, char *buf, size_t size);
/* That in storage of the enclosing block, as an argument of a printf. */
#define COUNT_TEXT(n, noun) format_count((n), (noun), (char[64]){0}, 64)

#ifdef __cplusplus
}
#endif
