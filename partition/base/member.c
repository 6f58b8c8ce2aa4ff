/* Values of members by their rows. Numbers pass through member_set_int() and member_set_real(),
 * which hold the limits; range_text() is the one text of a limit. Read struct member first. */
#include "partition/base/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/synonyms.h"
#include "partition/base/units.h"

enum { LIMIT_MAX = 96 };

static bool is_integer(const struct member *member)
{
    return member->type == MEMBER_INT || member->type == MEMBER_COUNT;
}

/* --- numbers ---------------------------------------------------------------------------------- */

int64_t member_int(const struct member *member, const void *base)
{
    const char *at = (const char *)base + member->offset;
    switch (member->size) {
    case 1:
        return *(const uint8_t *)at;
    case 2:
        return *(const uint16_t *)(const void *)at;
    case 4:
        return *(const int32_t *)(const void *)at;
    default:
        return *(const int64_t *)(const void *)at;
    }
}

double member_real(const struct member *member, const void *base)
{
    double value;
    memcpy(&value, (const char *)base + member->offset, sizeof value);
    return value;
}

void member_put_int(const struct member *member, int64_t value, void *base)
{
    void *at = (char *)base + member->offset;
    if (member->size == 1)
        *(uint8_t *)at = (uint8_t)value;
    else if (member->size == 2)
        *(uint16_t *)at = (uint16_t)value;
    else if (member->size == 4)
        *(int32_t *)at = (int32_t)value;
    else
        *(int64_t *)at = value;
}

/* The largest integer that a member may hold. */
static int64_t int_limit(const struct member *member)
{
    static const int64_t of_size[9] = {
        [1] = UINT8_MAX, [2] = UINT16_MAX, [4] = INT32_MAX, [8] = INT64_MAX};
    const int64_t most = of_size[member->size];
    return member->max > 0 && member->max < (double)most ? (int64_t)member->max : most;
}

/* The values of an enum below this one can be chosen. */
static int num_names(const struct member *member)
{
    int n = 0;
    while (member->names[n] && !(member->max > 0 && n > member->max))
        n++;
    return n;
}

/* Whether an integer is within the limits. */
static bool int_fits(const struct member *member, int64_t value)
{
    switch (member->type) {
    case MEMBER_BOOL:
        return value == 0 || value == 1;
    case MEMBER_NAME:
        return (double)value >= member->min && value < num_names(member);
    case MEMBER_NS:
        return value >= 0 && value <= NS_MAX;
    case MEMBER_BYTES:
        return value >= 0;
    default:
        return (member->type == MEMBER_INT && value == 0 && (member->flags & MEMBER_UNSET)) ||
               (value <= int_limit(member) &&
                ((double)value > member->min ||
                 ((double)value == member->min && !(member->flags & MEMBER_ABOVE))));
    }
}

bool member_set_int(const struct member *member, int64_t value, void *base)
{
    if (!int_fits(member, value))
        return false;
    member_put_int(member, value, base);
    return true;
}

static bool real_fits(const struct member *member, double value)
{
    const bool above = member->flags & MEMBER_ABOVE, below = member->flags & MEMBER_BELOW;
    if (member->type == MEMBER_RATE)
        return value >= 1 && value <= 1e18;
    if (!isfinite(value))
        return false;
    if (value == 0 && (member->flags & MEMBER_UNSET))
        return true;
    if (above ? value <= member->min : value < member->min)
        return false;
    return !(member->max > 0) || (below ? value < member->max : value <= member->max);
}

bool member_set_real(const struct member *member, double value, void *base)
{
    if (!real_fits(member, value))
        return false;
    memcpy((char *)base + member->offset, &value, sizeof value);
    if (member->auto_offset)
        *(bool *)((char *)base + member->auto_offset) = false;
    return true;
}

const char *member_name(const struct member *member, const void *base)
{
    const int64_t value = member_int(member, base);
    return value >= 0 && value < num_names(member) ? member->names[value] : "?";
}

int member_find_name(const struct member *member, const char *name)
{
    const char *current = current_value(name);
    for (int i = (int)member->min, n = num_names(member); i < n; i++)
        if (strcmp(member->names[i], current) == 0)
            return i;
    return -1;
}

const struct member *member_called(const struct member_table *table, const char *word, char *hint,
                                   size_t size)
{
    for (const struct member *row = table->rows; row < table->rows + table->num; row++) {
        size_t whole; /* of an entry of row->also, such as "fsdp=weights" */
        for (const char *at = row->also; at && *at; at += whole + (at[whole] == '|')) {
            whole = strcspn(at, "|");
            const size_t bare = strcspn(at, "|= ");
            if (!same_word(at, bare, word))
                continue;
            snprintf(hint, size, "%s%.*s", row->name, (int)(whole - bare), at + bare);
            return row;
        }
    }
    return NULL;
}

/* --- "auto" ----------------------------------------------------------------------------------- */

bool member_auto(const struct member *member, const void *base)
{
    if (member->type == MEMBER_COUNT)
        return member_int(member, base) == 0;
    return member->auto_offset && *((const bool *)base + member->auto_offset);
}

static void set_auto(const struct member *member, bool automatic, void *base)
{
    if (member->type == MEMBER_COUNT)
        member_put_int(member, 0, base);
    if (member->auto_offset)
        *(bool *)((char *)base + member->auto_offset) = automatic;
    if (member->list_offset && automatic)
        *(unsigned *)(void *)((char *)base + member->list_offset) = 0;
}

/* --- limits as texts --------------------------------------------------------------------------- */

/* The shortest decimal number that is read back as value: "0.1", "1e-6". */
static const char *real_text(double value, char *buf, size_t size)
{
    if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(buf, size, "%.0f", value);
        return buf;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    char *zero = strstr(buf, "e-0");
    if (zero)
        memmove(zero + 2, zero + 3, strlen(zero + 3) + 1);
    return buf;
}

/* The range of a number: "1..64", "at least 0", "in [0, 1)"; "" where there is none. With `open`, a
 * limit that only the variable has is left out, and "0.." stands for "at least 0". */
static void range_text(const struct member *member, bool open, char *buf, size_t size)
{
    const bool above = member->flags & MEMBER_ABOVE, below = member->flags & MEMBER_BELOW;
    const bool zero = (member->flags & MEMBER_UNSET) && member->min > 0;
    char min[32], max[32];
    const char *or_zero = zero ? "0 or " : "";
    *buf = '\0';
    if (is_integer(member)) {
        const int64_t most = int_limit(member), least = (int64_t)member->min + above;
        if (open && most >= INT32_MAX)
            snprintf(buf, size, "%s%lld..", or_zero, (long long)least);
        else if (most == INT64_MAX)
            snprintf(buf, size, "%sat least %lld", or_zero, (long long)least);
        else
            snprintf(buf, size, "%s%lld..%lld", or_zero, (long long)least, (long long)most);
    } else if (member->min > -INFINITY) {
        real_text(member->min, min, sizeof min);
        real_text(member->max, max, sizeof max);
        if (!(member->max > 0))
            snprintf(buf, size, "%s%s %s", or_zero, above ? "above" : "at least", min);
        else if (above || below)
            snprintf(buf, size, "%sin %s%s, %s%s", or_zero, above ? "(" : "[", min, max,
                     below ? ")" : "]");
        else
            snprintf(buf, size, "%s%s..%s", or_zero, min, max);
    }
}

/* "gpipe|1f1b|auto". */
static void names_text(const struct member *member, char *buf, size_t size)
{
    size_t used = 0;
    for (int i = (int)member->min; i < num_names(member) && used < size; i++)
        used +=
            (size_t)snprintf(buf + used, size - used, "%s%s", used ? "|" : "", member->names[i]);
    if (member->auto_offset && used < size)
        snprintf(buf + used, size - used, "|auto%s", member->list_offset ? "|[...]" : "");
}

const char *member_takes(const struct member *member, char *buf, size_t size)
{
    static const char *const words[] = {"",          "",      "number", "true|false", "",
                                        "text",      "text",  "path",   "time",       "size",
                                        "bandwidth", "speed", ""};
    char range[LIMIT_MAX];
    range_text(member, true, range, sizeof range);
    if (is_integer(member))
        snprintf(buf, size, "%s%s", member->type == MEMBER_COUNT ? "auto|" : "", range);
    else if (member->type == MEMBER_REAL)
        snprintf(buf, size, "number%s%s", *range ? " " : "", range);
    else if (member->type == MEMBER_NAME)
        names_text(member, buf, size);
    else
        snprintf(buf, size, "%s%s", words[member->type],
                 member->type == MEMBER_BOOL && member->auto_offset ? "|auto" : "");
    return buf;
}

bool member_in_ns(const struct member *member)
{
    const size_t length = strlen(member->name);
    return length > 3 && strcmp(member->name + length - 3, "_ns") == 0;
}

const char *member_limit(const struct member *member, bool number, char *buf, size_t size)
{
    static const char *const texts[] = {
        [MEMBER_BOOL] = "true or false",
        [MEMBER_STRING] = "a text that is not empty",
        [MEMBER_PATH] = "a text that is not empty",
        [MEMBER_NS] = "a time with a unit, like \"20us\" or \"1.5ms\"",
        [MEMBER_BYTES] = "a size like \"16GiB\" or whole bytes at least 0",
        [MEMBER_RATE] = "a bandwidth like \"5GBps\" or bytes per second 1..10^18",
        [MEMBER_FLOPS] = "a speed like \"165TFLOPS\" or operations per second",
        [MEMBER_OTHER] = "another value"};
    char range[LIMIT_MAX];
    range_text(member, false, range, sizeof range);
    if (is_integer(member))
        snprintf(buf, size, "%s%s%s", member->type == MEMBER_COUNT ? "\"auto\" or " : "",
                 number ? "" : "an integer ", range);
    else if (member->type == MEMBER_REAL)
        snprintf(buf, size, "%s%s%s", number && *range ? "" : "a number",
                 *range && !number ? " " : "", range);
    else if (member->type == MEMBER_NAME)
        names_text(member, buf, size);
    else if (member->type == MEMBER_TEXT)
        snprintf(buf, size, "a text of at most %zu characters, no control characters",
                 member->size - 1);
    else if (member->type == MEMBER_BOOL && member->auto_offset)
        snprintf(buf, size, "true, false or auto");
    else
        snprintf(buf, size, "%s",
                 member->type == MEMBER_NS && member_in_ns(member)
                     ? "a time like \"1ms\" or whole ns 0..2^60"
                     : texts[member->type]);
    return buf;
}

/* --- texts ------------------------------------------------------------------------------------ */

/* Texts are printed, so they must not break a line or send control codes to a terminal. */
static bool has_control(const char *text)
{
    while ((unsigned char)*text >= ' ' && *text != 0x7f)
        text++;
    return *text != '\0';
}

static enum status refuse_text(const struct member *member, const char *shown, const char *text,
                               struct err *err)
{
    char limit[256];
    return err_set(err, ERR_INPUT, "%s must be %s, got '%.80s'", shown,
                   member_limit(member, true, limit, sizeof limit), text);
}

/* A text with a unit. */
static enum status parse_unit(const struct member *member, const char *shown, const char *text,
                              void *base, struct err *err)
{
    int64_t number;
    double rate;
    const bool real = member->type == MEMBER_RATE || member->type == MEMBER_FLOPS;
    enum status rc = member->type == MEMBER_NS      ? parse_ns(text, shown, &number, err)
                     : member->type == MEMBER_BYTES ? parse_bytes(text, shown, &number, err)
                     : member->type == MEMBER_RATE  ? parse_rate(text, shown, &rate, err)
                                                    : parse_flops(text, shown, &rate, err);
    if (rc == OK && real)
        memcpy((char *)base + member->offset, &rate, sizeof rate);
    else if (rc == OK)
        member_put_int(member, number, base);
    return rc;
}

static enum status keep_text(const struct member *member, const char *text, void *base,
                             struct err *err)
{
    char **at = (char **)(void *)((char *)base + member->offset);
    char *copy = strdup(text);
    if (!copy)
        return err_nomem(err);
    free(*at);
    *at = copy;
    return OK;
}

enum status member_parse(const struct member *member, const char *shown, const char *text,
                         void *base, struct err *err)
{
    char *at = (char *)base + member->offset;
    int64_t number = -1;
    double real;
    bool ok = false;
    if (strcmp(text, "auto") == 0 && (member->type == MEMBER_COUNT || member->auto_offset)) {
        set_auto(member, true, base);
        return OK;
    }
    switch (member->type) {
    case MEMBER_INT:
    case MEMBER_COUNT:
        ok = parse_int(text, shown, INT64_MIN, INT64_MAX, &number, NULL) == OK &&
             member_set_int(member, number, base);
        break;
    case MEMBER_REAL:
        if (parse_ratio(text, shown, &real, err) != OK)
            return ERR_INPUT;
        ok = member_set_real(member, real, base);
        break;
    case MEMBER_BOOL:
        number = strcmp(text, "true") == 0 ? 1 : strcmp(text, "false") == 0 ? 0 : -1;
        ok = member_set_int(member, number, base);
        break;
    case MEMBER_NAME:
        ok = member_set_int(member, member_find_name(member, text), base);
        break;
    case MEMBER_TEXT:
        ok = strlen(text) < member->size && !has_control(text);
        if (ok)
            memcpy(memset(at, 0, member->size), text, strlen(text));
        break;
    case MEMBER_STRING:
    case MEMBER_PATH:
        return *text ? keep_text(member, text, base, err) : refuse_text(member, shown, text, err);
    case MEMBER_NS:
    case MEMBER_BYTES:
    case MEMBER_RATE:
    case MEMBER_FLOPS:
        return parse_unit(member, shown, text, base, err);
    case MEMBER_OTHER:
        break;
    }
    if (!ok)
        return refuse_text(member, shown, text, err);
    if (member->type == MEMBER_BOOL || member->type == MEMBER_NAME)
        set_auto(member, false, base);
    return OK;
}

enum status member_default(const struct member *member, void *base, struct err *err)
{
    char word[64];
    if (!member->init || member->type == MEMBER_OTHER)
        return OK;
    const size_t length = strcspn(member->init, ":;, ");
    if (length >= sizeof word)
        return err_set(err, ERR_INPUT, "%s: default is too long", member->name);
    memcpy(word, member->init, length);
    word[length] = '\0';
    return member_parse(member, member->name, word, base, err);
}

/* The text that a member holds; NULL: it is no text, or none. */
static const char *held_text(const struct member *member, const void *base)
{
    const void *at = (const char *)base + member->offset;
    return member->type == MEMBER_TEXT                                    ? at
           : member->type == MEMBER_STRING || member->type == MEMBER_PATH ? *(char *const *)at
                                                                          : NULL;
}

const char *member_text(const struct member *member, const void *base, char *buf, size_t size)
{
    const char *text = held_text(member, base);
    snprintf(buf, size, "%s", text ? text : "");
    if (member_auto(member, base)) {
        snprintf(buf, size, "auto");
        return buf;
    }
    switch (member->type) {
    case MEMBER_INT:
    case MEMBER_COUNT:
    case MEMBER_BYTES:
        snprintf(buf, size, "%lld", (long long)member_int(member, base));
        break;
    case MEMBER_REAL:
    case MEMBER_RATE:
    case MEMBER_FLOPS:
        real_text(member_real(member, base), buf, size);
        snprintf(buf + strlen(buf), size - strlen(buf), "%s",
                 member->type == MEMBER_RATE    ? "Bps"
                 : member->type == MEMBER_FLOPS ? "FLOPS"
                                                : "");
        break;
    case MEMBER_BOOL:
        snprintf(buf, size, "%s", member_int(member, base) ? "true" : "false");
        break;
    case MEMBER_NAME:
        snprintf(buf, size, "%s", member_name(member, base));
        break;
    case MEMBER_NS:
        write_ns(member_int(member, base), buf, size);
        break;
    default:
        break;
    }
    return buf;
}

/* --- checks ------------------------------------------------------------------------------------ */

/* Whether the value is a number or a name within the limits. Texts were checked when they were set. */
static bool fits(const struct member *member, const void *base)
{
    switch (member->type) {
    case MEMBER_TEXT:
    case MEMBER_STRING:
    case MEMBER_PATH:
    case MEMBER_OTHER:
        return true;
    case MEMBER_REAL:
    case MEMBER_RATE:
    case MEMBER_FLOPS:
        return real_fits(member, member_real(member, base));
    default:
        return member_auto(member, base) || int_fits(member, member_int(member, base));
    }
}

enum status member_check(const struct member *member, const void *base, const char *source,
                         struct err *err)
{
    char limit[256], value[64];
    if (fits(member, base))
        return OK;
    if (member->type == MEMBER_NS)
        snprintf(value, sizeof value, "%lld", (long long)member_int(member, base));
    else
        member_text(member, base, value, sizeof value);
    return err_set(err, ERR_INPUT, "%s: %s must be %s, got %s", source, member->name,
                   member_limit(member, true, limit, sizeof limit), value);
}

bool member_equal(const struct member *member, const void *a, const void *b)
{
    const char *one = a, *other = b, *text = held_text(member, a), *text_b = held_text(member, b);
    if (member_auto(member, a) || member_auto(member, b))
        return member_auto(member, a) && member_auto(member, b) &&
               (!member->list_offset || memcmp(one + member->list_offset,
                                               other + member->list_offset, sizeof(unsigned)) == 0);
    if (text || text_b)
        return text && text_b && strcmp(text, text_b) == 0;
    return member->type == MEMBER_OTHER ||
           memcmp(one + member->offset, other + member->offset, member->size) == 0;
}
