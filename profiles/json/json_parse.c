/* A strict JSON parser that makes cJSON trees, by recursive descent. json_parse() at the end starts
 * it.
 *
 * cJSON represents and prints the tree. Its parser does not fit, because it is lenient, reports no
 * positions and keeps numbers as doubles, which it prints to 15 digits. This parser is strict
 * (RFC 8259) and makes cJSON nodes. Every number is a raw node that holds its text, so 64-bit
 * integers stay exact and doubles round-trip. */
#include "profiles/json/json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/base/utf8.h"

#define MAX_DEPTH 64

struct parser {
    const char *text, *at, *end;
    const char *what;
    char *scratch; /* end - text + 1 bytes: the string being decoded */
    int depth;
    struct err *err;
};

static cJSON *parse_value(struct parser *p);

/* Record an error with the line and column (both from 1) of a place in the text. */
static void *fail_at(struct parser *p, const char *place, const char *what_failed)
{
    int line = 1;
    const char *start = p->text;
    for (const char *c = p->text; c < place; c++)
        if (*c == '\n') {
            line++;
            start = c + 1;
        }
    err_set(p->err, ERR_INPUT, "%s:%d:%d: %s", p->what, line, (int)(place - start) + 1,
            what_failed);
    return NULL;
}

static void *fail(struct parser *p, const char *what_failed)
{
    return fail_at(p, p->at, p->at == p->end ? "the text ends too early" : what_failed);
}

static void skip_space(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

static bool is_digit(const struct parser *p)
{
    return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

static cJSON *parse_number(struct parser *p)
{
    const char *start = p->at;
    if (*p->at == '-')
        p->at++;
    if (!is_digit(p))
        return fail(p, "a digit is missing");
    if (*p->at == '0') {
        p->at++;
        if (is_digit(p))
            return fail(p, "a number does not start with 0");
    }
    while (is_digit(p))
        p->at++;
    if (p->at < p->end && *p->at == '.') {
        p->at++;
        if (!is_digit(p))
            return fail(p, "a digit is missing after the point");
        while (is_digit(p))
            p->at++;
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        p->at++;
        if (p->at < p->end && (*p->at == '+' || *p->at == '-'))
            p->at++;
        if (!is_digit(p))
            return fail(p, "a digit is missing in the exponent");
        while (is_digit(p))
            p->at++;
    }
    size_t n = (size_t)(p->at - start);
    memcpy(p->scratch, start, n);
    p->scratch[n] = '\0';
    if (!isfinite(strtod(p->scratch, NULL)))
        return fail_at(p, start, "the number is out of the range of a double");
    cJSON *item = cJSON_CreateRaw(p->scratch);
    if (!item)
        err_nomem(p->err);
    return item;
}

static bool parse_hex4(struct parser *p, unsigned *code)
{
    unsigned value = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        unsigned c = p->at < p->end ? (unsigned char)*p->at : 0;
        if (c >= '0' && c <= '9')
            value = value * 16 + (c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            value = value * 16 + ((c | 32) - 'a' + 10);
        else
            return fail(p, "\\u needs four hexadecimal digits") != NULL;
    }
    *code = value;
    return true;
}

/* Decode the digits after \u: one unit, or a surrogate pair. */
static bool parse_unicode(struct parser *p, char **out)
{
    unsigned code, low;
    if (!parse_hex4(p, &code))
        return false;
    if (code == 0)
        return fail(p, "\\u0000 is not allowed in a string") != NULL;
    if (code >= 0xd800 && code < 0xe000) {
        if (code >= 0xdc00 || p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u')
            return fail(p, "half a surrogate pair") != NULL;
        p->at += 2;
        if (!parse_hex4(p, &low))
            return false;
        if (low < 0xdc00 || low >= 0xe000)
            return fail(p, "half a surrogate pair") != NULL;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out += utf8_put(code, *out);
    return true;
}

/* Decode a string into scratch; p->at is at the opening quote. The text is never shorter than the
 * decoded string, so scratch is large enough. */
static const char *parse_string(struct parser *p)
{
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char *out = p->scratch;
    p->at++;
    for (;;) {
        if (p->at == p->end)
            return fail(p, "");
        unsigned char c = (unsigned char)*p->at;
        if (c == '"')
            break;
        if (c < 0x20)
            return fail(p, "a control character inside a string");
        if (c != '\\') {
            size_t length = 0;
            utf8_next(p->at, (size_t)(p->end - p->at), &length);
            if (c >= 0x80 && length == 1)
                return fail(p, "a byte that is no UTF-8");
            memcpy(out, p->at, length);
            out += length;
            p->at += length;
            continue;
        }
        p->at++;
        if (p->at == p->end)
            return fail(p, "");
        const char *found = *p->at ? strchr(escapes, *p->at) : NULL;
        if (found) {
            *out++ = meanings[found - escapes];
            p->at++;
        } else if (*p->at == 'u') {
            p->at++;
            if (!parse_unicode(p, &out))
                return NULL;
        } else {
            return fail(p, "an unknown escape");
        }
    }
    p->at++;
    *out = '\0';
    return p->scratch;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp((*(cJSON *const *)a)->string, (*(cJSON *const *)b)->string);
}

/* Refuse duplicate keys. Sorting keeps a hostile object at O(n log n). */
static bool check_keys(struct parser *p, const cJSON *object, int count, const char *place)
{
    if (count < 2)
        return true;
    bool ok = true;
    cJSON **members = calloc((size_t)count, sizeof(cJSON *));
    if (!members)
        return err_nomem(p->err) == OK;
    int n = 0;
    for (cJSON *m = object->child; m; m = m->next)
        members[n++] = m;
    qsort(members, (size_t)n, sizeof(cJSON *), compare_keys);
    for (int i = 1; i < n && ok; i++)
        if (strcmp(members[i - 1]->string, members[i]->string) == 0) {
            char text[160];
            snprintf(text, sizeof text, "the object that starts here has the key '%s' twice",
                     members[i]->string);
            fail_at(p, place, text);
            ok = false;
        }
    free(members);
    return ok;
}

/* Parse a key and the ':' after it. Fresh text; NULL after recording why. */
static char *parse_key(struct parser *p)
{
    if (p->at == p->end || *p->at != '"')
        return fail(p, "a key in quotes is missing");
    const char *text = parse_string(p);
    if (!text)
        return NULL;
    char *key = strdup(text);
    if (!key) {
        err_nomem(p->err);
        return NULL;
    }
    skip_space(p);
    if (p->at == p->end || *p->at != ':') {
        free(key);
        return fail(p, "':' is missing");
    }
    p->at++;
    skip_space(p);
    return key;
}

/* Parse a member of an object, or an element of an array, and add it. */
static bool parse_member(struct parser *p, cJSON *self, bool object)
{
    char *key = object ? parse_key(p) : NULL;
    if (object && !key)
        return false;
    cJSON *value = parse_value(p);
    const bool added = value && (object ? cJSON_AddItemToObject(self, key, value)
                                        : cJSON_AddItemToArray(self, value));
    free(key);
    if (value && !added) {
        err_nomem(p->err);
        cJSON_Delete(value);
    }
    return added;
}

/* Parse what lies between the brackets, the closing one included. */
static bool parse_members(struct parser *p, cJSON *self, bool object)
{
    const char *place = p->at;
    const char close = object ? '}' : ']';
    int count = 0;
    p->at++;
    skip_space(p);
    while (p->at == p->end || *p->at != close) {
        if (count++ > 0) {
            if (p->at == p->end || *p->at != ',')
                return fail(p, object ? "',' or '}' is missing" : "',' or ']' is missing") != NULL;
            p->at++;
            skip_space(p);
        }
        if (!parse_member(p, self, object))
            return false;
        skip_space(p);
    }
    p->at++;
    return !object || check_keys(p, self, count, place);
}

static cJSON *parse_container(struct parser *p, bool object)
{
    if (++p->depth > MAX_DEPTH)
        return fail(p, "nested deeper than 64");
    cJSON *self = object ? cJSON_CreateObject() : cJSON_CreateArray();
    if (!self) {
        err_nomem(p->err);
        return NULL;
    }
    if (!parse_members(p, self, object)) {
        cJSON_Delete(self);
        return NULL;
    }
    p->depth--;
    return self;
}

static cJSON *parse_value(struct parser *p)
{
    static const struct {
        const char *word;
        size_t length;
    } words[] = {
        {"null",  4},
        {"true",  4},
        {"false", 5}
    };
    if (p->at == p->end)
        return fail(p, "");
    if (*p->at == '{' || *p->at == '[')
        return parse_container(p, *p->at == '{');
    if (*p->at == '-' || is_digit(p))
        return parse_number(p);
    cJSON *item = NULL;
    if (*p->at == '"') {
        const char *text = parse_string(p);
        if (!text)
            return NULL;
        item = cJSON_CreateString(text);
    } else {
        int w = 0;
        while (w < 3 && ((size_t)(p->end - p->at) < words[w].length ||
                         memcmp(p->at, words[w].word, words[w].length) != 0))
            w++;
        if (w == 3)
            return fail(p, "a value is missing");
        p->at += words[w].length;
        item = w == 0 ? cJSON_CreateNull() : cJSON_CreateBool(w == 1);
    }
    if (!item)
        err_nomem(p->err);
    return item;
}

static enum status parse_bytes_of(const char *text, size_t length, const char *what,
                                  struct json **json, struct err *err)
{
    struct err local = {0};
    struct parser p = {.text = text, .at = text, .end = text + length, .what = what, .err = &local};
    cJSON *root = NULL;
    p.scratch = malloc(length + 1);
    if (!p.scratch) {
        err_nomem(&local);
        goto out;
    }
    skip_space(&p);
    root = parse_value(&p);
    if (!root)
        goto out;
    skip_space(&p);
    if (p.at != p.end)
        fail(&p, "text follows the value");
out:
    free(p.scratch);
    if (local.status != OK) {
        cJSON_Delete(root);
        return err_copy(err, &local);
    }
    *json = (struct json *)(void *)root;
    return OK;
}

enum status json_parse(const char *text, const char *what, struct json **json, struct err *err)
{
    return parse_bytes_of(text, strlen(text), what, json, err);
}

enum status json_read_file(const char *path, struct json **json, struct err *err)
{
    char *text = NULL;
    size_t length = 0;
    enum status rc = file_read(path, &text, &length, err);
    THEN(file_refuse_utf16(path, text, length, err));
    THEN(parse_bytes_of(text + file_mark(text), length - file_mark(text), path, json, err));
    free(text);
    return rc;
}
