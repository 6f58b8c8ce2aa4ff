/* Parsers and printers of values with units. scan_decimal() reads a number exactly into a struct
 * decimal, parse_quantity() applies a unit from a table to it, and the parse functions of units.h
 * are thin callers of both. The end of the file has the help for error texts (nearest_name) and the
 * printers. Read struct decimal first. */
#include "partition/base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A decimal number, exactly: mantissa * 10^exponent. A double is used only where the result is a
 * double, so 9007199254740993ns keeps its last digit. */
struct decimal {
    unsigned __int128 mantissa; /* below 10^DIGITS_MAX */
    int exponent;
};

#define DIGITS_MAX 24   /* 10^24 times the largest unit (2^40) stays inside 128 bits */
#define EXPONENT_MAX 40 /* largest exponent after 'e'; no legal value comes near it */

struct unit {
    const char *name;
    int64_t scale;
};

static const struct unit time_units[] = {
    {"ns",  1                     },
    {"us",  1000                  },
    {"ms",  1000000               },
    {"s",   1000000000            },
    {"min", INT64_C(60000000000)  },
    {"h",   INT64_C(3600000000000)},
    {NULL,  0                     }
};
enum { TIME_S = 3, TIME_MIN, TIME_H };

static const struct unit byte_units[] = {
    {"B",   1               },
    {"KB",  1000            },
    {"MB",  1000000         },
    {"GB",  1000000000      },
    {"TB",  1000000000000   },
    {"KiB", INT64_C(1) << 10},
    {"MiB", INT64_C(1) << 20},
    {"GiB", INT64_C(1) << 30},
    {"TiB", INT64_C(1) << 40},
    {NULL,  0               }
};

/* Networks are sold in bits per second, with powers of 10. */
static const struct unit bit_units[] = {
    {"b",    1            },
    {"bit",  1            },
    {"Kb",   1000         },
    {"kb",   1000         },
    {"Kbit", 1000         },
    {"kbit", 1000         },
    {"Mb",   1000000      },
    {"Mbit", 1000000      },
    {"Gb",   1000000000   },
    {"Gbit", 1000000000   },
    {"Tb",   1000000000000},
    {"Tbit", 1000000000000},
    {NULL,   0            }
};

/* Read the number at *text and move *text past it. False: no digits, too many digits, or an
 * exponent beyond EXPONENT_MAX. */
static bool scan_decimal(const char **text, struct decimal *number)
{
    const char *p = *text;
    int significant = 0, seen = 0;
    bool after_point = false;
    *number = (struct decimal){0};
    for (;; p++) {
        if (*p == '.' && !after_point) {
            after_point = true;
            continue;
        }
        if (*p < '0' || *p > '9')
            break;
        seen++;
        if (significant > 0 || *p != '0')
            significant++;
        if (significant > DIGITS_MAX)
            return false;
        number->mantissa = number->mantissa * 10 + (unsigned)(*p - '0');
        if (after_point)
            number->exponent--;
        if (number->exponent < -1000)
            return false;
    }
    if (seen == 0)
        return false;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1;
        int sign = 1, e = 0, digits = 0;
        if (*q == '+' || *q == '-')
            sign = *q++ == '-' ? -1 : 1;
        for (; *q >= '0' && *q <= '9' && e <= EXPONENT_MAX; q++, digits++)
            e = e * 10 + (*q - '0');
        if (digits > 0) { /* else 'e' is not an exponent: the caller refuses it as a unit */
            if (e > EXPONENT_MAX)
                return false;
            number->exponent += sign * e;
            p = q;
        }
    }
    *text = p;
    return true;
}

/* number * scale, rounded to nearest (halves up); false if it exceeds int64. */
static bool decimal_to_int(struct decimal number, int64_t scale, int64_t *out)
{
    unsigned __int128 value = number.mantissa * (unsigned __int128)scale;
    int exponent = number.exponent;
    for (; exponent > 0 && value > 0; exponent--) {
        if (value > (unsigned __int128)INT64_MAX)
            return false;
        value *= 10;
    }
    if (exponent < 0) {
        unsigned __int128 divisor = 1;
        for (; exponent < 0; exponent++) {
            if (divisor > value) { /* less than a tenth of a unit is left */
                *out = 0;
                return true;
            }
            divisor *= 10;
        }
        value = value / divisor + (value % divisor >= divisor - divisor / 2);
    }
    if (value > (unsigned __int128)INT64_MAX)
        return false;
    *out = (int64_t)value;
    return true;
}

/* If mantissa and power of ten are exact doubles, one operation rounds correctly (Clinger 1990).
 * Otherwise strtod() reads the text. */
static double decimal_to_double(struct decimal number, const char *text)
{
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (number.mantissa <= (UINT64_C(1) << 53)) {
        double mantissa = (double)(uint64_t)number.mantissa;
        if (number.exponent >= 0 && number.exponent <= 22)
            return mantissa * power[number.exponent];
        if (number.exponent < 0 && number.exponent >= -22)
            return mantissa / power[-number.exponent];
    }
    return strtod(text, NULL);
}

static const struct unit *find_unit(const struct unit *units, const char *name)
{
    for (; units->name; units++)
        if (strcmp(units->name, name) == 0)
            return units;
    return NULL;
}

static enum status refuse_negative(const char *text, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s must not be negative, got '%s'", what, text);
}

/* Parse a number with one of the units. bare_scale is the scale of a number without a unit; if it
 * is 0, only a bare zero is legal. */
static enum status parse_quantity(const char *text, const char *what, const struct unit *units,
                                  int64_t bare_scale, int64_t max, const char *example,
                                  int64_t *value, struct err *err)
{
    const char *p = text;
    struct decimal number;
    int64_t scale = bare_scale, got;
    if (*p == '-')
        return refuse_negative(text, what, err);
    if (!scan_decimal(&p, &number))
        return err_set(err, ERR_INPUT, "%s must be %s, got '%s'", what, example, text);
    if (*p) {
        const struct unit *unit = find_unit(units, p);
        if (!unit)
            return err_set(err, ERR_INPUT, "%s must be %s, got '%s'", what, example, text);
        scale = unit->scale;
    } else if (scale == 0) {
        if (number.mantissa != 0)
            return err_set(err, ERR_INPUT, "%s needs a unit (%s), got '%s'", what, example, text);
        scale = 1;
    }
    if (!decimal_to_int(number, scale, &got) || got > max)
        return err_set(err, ERR_INPUT, "%s is too large: '%s'", what, text);
    *value = got;
    return OK;
}

enum status parse_ns(const char *text, const char *what, int64_t *ns, struct err *err)
{
    return parse_quantity(text, what, time_units, 0, NS_MAX, "a time such as 20us or 1.5ms", ns,
                          err);
}

enum status parse_bytes(const char *text, const char *what, int64_t *bytes, struct err *err)
{
    return parse_quantity(text, what, byte_units, 1, INT64_MAX, "a size such as 64KB or 16GiB",
                          bytes, err);
}

enum status parse_rate(const char *text, const char *what, double *bytes_per_s, struct err *err)
{
    static const char example[] = "a rate such as 25GBps, 12.5GB/s, 100Gbps or 200Gbit/s";
    const char *p = text;
    struct decimal number;
    char name[8];
    const struct unit *unit = NULL;
    size_t length;
    double rate, bits = 1;
    if (*p == '-')
        return refuse_negative(text, what, err);
    if (!scan_decimal(&p, &number))
        return err_set(err, ERR_INPUT, "%s must be %s, got '%s'", what, example, text);
    length = strlen(p);
    if (length > 2 && length < sizeof name &&
        (strcmp(p + length - 2, "ps") == 0 || strcmp(p + length - 2, "/s") == 0)) {
        memcpy(name, p, length - 2);
        name[length - 2] = '\0';
        unit = find_unit(byte_units, name);
        if (!unit) {
            unit = find_unit(bit_units, name);
            bits = 8;
        }
    }
    if (!unit)
        return err_set(err, ERR_INPUT, "%s must be %s, got '%s'", what, example, text);
    rate = decimal_to_double(number, text) * (double)unit->scale / bits;
    if (!(rate >= 1 && rate <= 1e18))
        return err_set(err, ERR_INPUT, "%s must be 1Bps..1000000TBps, got '%s'", what, text);
    *bytes_per_s = rate;
    return OK;
}

enum status parse_flops(const char *text, const char *what, double *flops_per_s, struct err *err)
{
    static const struct unit flops_units[] = {
        {"MFLOPS",  1000000         },
        {"MFLOP/s", 1000000         },
        {"GFLOPS",  1000000000      },
        {"GFLOP/s", 1000000000      },
        {"TFLOPS",  1000000000000   },
        {"TFLOP/s", 1000000000000   },
        {"PFLOPS",  1000000000000000},
        {"PFLOP/s", 1000000000000000},
        {NULL,      0               }
    };
    int64_t value;
    const enum status rc = parse_quantity(text, what, flops_units, 0, INT64_MAX,
                                          "a speed such as 165TFLOPS or 1.2PFLOP/s", &value, err);
    if (rc == OK)
        *flops_per_s = (double)value;
    return rc;
}

enum status parse_ratio(const char *text, const char *what, double *ratio, struct err *err)
{
    static const char example[] = "a number such as 0.25, 5% or 1/3";
    const char *p = text;
    struct decimal number;
    double value;
    if (*p == '-')
        return refuse_negative(text, what, err);
    if (!scan_decimal(&p, &number))
        return err_set(err, ERR_INPUT, "%s must be %s, got '%s'", what, example, text);
    value = decimal_to_double(number, text);
    if (*p == '/') {
        const char *below = ++p;
        if (!scan_decimal(&p, &number) || *p)
            return err_set(err, ERR_INPUT, "%s must be %s, got '%s'", what, example, text);
        if (number.mantissa == 0)
            return err_set(err, ERR_INPUT, "%s divides by zero: '%s'", what, text);
        value /= decimal_to_double(number, below);
    } else if (strcmp(p, "%") == 0) {
        value /= 100;
    } else if (*p) {
        return err_set(err, ERR_INPUT, "%s must be %s, got '%s'", what, example, text);
    }
    if (!isfinite(value))
        return err_set(err, ERR_INPUT, "%s is too large: '%s'", what, text);
    *ratio = value;
    return OK;
}

/* Parse the integer in text..end (exclusive). */
static bool scan_int(const char *text, const char *end, int64_t *value)
{
    bool negative = text < end && *text == '-';
    int64_t magnitude = 0;
    const char *p = text + negative;
    if (p == end)
        return false;
    for (; p < end; p++) {
        if (*p == 'e' && p > text + negative)
            break;
        if (*p < '0' || *p > '9')
            return false;
        /* count downwards, because -INT64_MIN does not fit an int64_t */
        if (__builtin_mul_overflow(magnitude, 10, &magnitude) ||
            __builtin_sub_overflow(magnitude, *p - '0', &magnitude))
            return false;
    }
    if (p < end) { /* 1e3, as in JSON */
        int64_t zeros = 0;
        if (p + 1 == end || p[1] == '-' || !scan_int(p + 1, end, &zeros) || zeros > 18)
            return false;
        while (zeros-- > 0)
            if (__builtin_mul_overflow(magnitude, 10, &magnitude))
                return false;
    }
    if (!negative && magnitude == INT64_MIN)
        return false;
    *value = negative ? magnitude : -magnitude;
    return true;
}

enum status parse_int(const char *text, const char *what, int64_t min, int64_t max, int64_t *value,
                      struct err *err)
{
    int64_t got;
    if (!scan_int(text, text + strlen(text), &got) || got < min || got > max)
        return err_set(err, ERR_INPUT, "%s must be %lld..%lld, got '%s'", what, (long long)min,
                       (long long)max, text);
    *value = got;
    return OK;
}

enum status parse_int_list(const char *text, const char *what, int64_t min, int64_t max,
                           int64_t **values, int *count, struct err *err)
{
    int64_t *got;
    size_t n = 1;
    int i = 0;
    for (const char *p = text; *p; p++)
        n += *p == ',';
    if (n > INT32_MAX)
        return err_set(err, ERR_INPUT, "%s: too many values", what);
    got = malloc(n * sizeof *got);
    if (!got)
        return err_nomem(err);
    for (const char *p = text;; i++) {
        const char *end = strchrnul(p, ',');
        if (!scan_int(p, end, &got[i]) || got[i] < min || got[i] > max) {
            free(got);
            return err_set(err, ERR_INPUT, "%s: value %d must be %lld..%lld, got '%.*s'", what,
                           i + 1, (long long)min, (long long)max,
                           (int)(end - p > 40 ? 40 : end - p), p);
        }
        if (!*end)
            break;
        p = end + 1;
    }
    *values = got;
    *count = (int)n;
    return OK;
}

/* Edits between two words: insert, delete or replace a letter, or swap two neighbours (optimal
 * string alignment, the restricted distance of Damerau), which is how fingers err: "plto" is one
 * edit from "plot" and two from "plan". Words longer than the rows count as far away. */
static int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    int rows[3][LONGEST + 1]; /* of the letters i - 2, i - 1 and i of a, in turn */
    size_t na = strlen(a), nb = strlen(b);
    if (na > LONGEST || nb > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i - 1) % 3], *above_that = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                above_that[j - 2] + 1 < best)
                best = above_that[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[na % 3][nb];
}

bool name_fold(const char *name, char *out, size_t size)
{
    size_t n = 0;
    for (; *name; name++)
        if (isalnum((unsigned char)*name)) {
            if (n + 1 >= size)
                return false;
            out[n++] = (char)tolower((unsigned char)*name);
        }
    out[n] = '\0';
    return n > 0;
}

const char *nearest_name(const char *word, const char *const *names, int n)
{
    const char *best = NULL;
    int best_distance = (int)strlen(word) / 3 + 2; /* beyond that a guess is noise */
    for (int i = 0; i < n; i++) {
        int distance = edit_distance(word, names[i]);
        if (distance < best_distance) {
            best_distance = distance;
            best = names[i];
        }
    }
    return best;
}

const char *join_names(const char *const *names, int n, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? " " : "", names[i]);
    return buf;
}

/* value in this unit, three significant digits. */
static const char *format_unit(int64_t value, const struct unit *unit, char *buf, size_t size)
{
    const double scaled = (double)value / (double)unit->scale;
    const int digits = scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
    snprintf(buf, size, "%.*f %s", digits, scaled, unit->name);
    return buf;
}

/* value in the largest unit that leaves at least 1, three significant digits. */
static const char *format_scaled(int64_t value, const struct unit *units, int n, char *buf,
                                 size_t size)
{
    int u = 0;
    while (u + 1 < n && value >= units[u + 1].scale)
        u++;
    if (u > 0)
        return format_unit(value, &units[u], buf, size);
    snprintf(buf, size, "%lld %s", (long long)value, units[0].name);
    return buf;
}

const char *write_ns(int64_t ns, char *buf, size_t size)
{
    const struct unit *unit = &time_units[3];
    while (unit->scale > 1 && ns % unit->scale != 0)
        unit--;
    snprintf(buf, size, "%lld%s", (long long)(ns / unit->scale), unit->name);
    return buf;
}

const char *format_ns(int64_t ns, char *buf, size_t size)
{
    if (ns >= 90 * time_units[TIME_MIN].scale)
        return format_unit(ns, &time_units[TIME_H], buf, size);
    if (ns >= 90 * time_units[TIME_S].scale)
        return format_unit(ns, &time_units[TIME_MIN], buf, size);
    return format_scaled(ns, time_units, TIME_S + 1, buf, size);
}

const char *format_bytes(int64_t bytes, char *buf, size_t size)
{
    static const struct unit binary[] = {
        {"B",   1               },
        {"KiB", INT64_C(1) << 10},
        {"MiB", INT64_C(1) << 20},
        {"GiB", INT64_C(1) << 30},
        {"TiB", INT64_C(1) << 40}
    };
    return format_scaled(bytes, binary, 5, buf, size);
}

const char *format_speed(double ratio, char *buf, size_t size)
{
    if (!(ratio > 0))
        snprintf(buf, size, "takes no time");
    else if (ratio >= 0.995) /* 0.995 would be "1.00 times slower" */
        snprintf(buf, size, "%.2f times faster", ratio);
    else
        snprintf(buf, size, "%.2f times slower", 1 / ratio);
    return buf;
}

const char *format_count(int64_t n, const char *noun, char *buf, size_t size)
{
    const size_t length = strlen(noun);
    const bool hisses = length > 3 && strcmp(noun + length - 3, "tch") == 0; /* micro-batches */
    const bool copies = length > 2 && strcmp(noun + length - 2, "py") == 0;
    snprintf(buf, size, "%lld %.*s%s", (long long)n, (int)length - (copies && n != 1), noun,
             n == 1   ? ""
             : copies ? "ies"
             : hisses ? "es"
                      : "s");
    return buf;
}
