#include "exec/data/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "exec/data/unicode.h"
#include "profiles/base/utf8.h"

enum status buffer_put(struct buffer *buffer, const char *text, size_t bytes, struct err *err)
{
    if (buffer->bytes + bytes + 1 > buffer->room) {
        const size_t room = 2 * (buffer->bytes + bytes) + 64;
        char *at = realloc(buffer->at, room);
        if (!at)
            return err_nomem(err);
        buffer->at = at;
        buffer->room = room;
    }
    memcpy(buffer->at + buffer->bytes, text, bytes);
    buffer->bytes += bytes;
    buffer->at[buffer->bytes] = '\0';
    return OK;
}

/* --- characters of bytes ---------------------------------------------------------------------- */

static bool printable(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

int byte_char(int byte, char *to)
{
    int next = 0x100;
    for (int b = 0; b < byte; b++)
        next += !printable(b);
    return utf8_put(printable(byte) ? (uint32_t)byte : (uint32_t)next, to);
}

int byte_of_char(uint32_t code)
{
    int next = 0x100;
    if (code < 0x100)
        return printable((int)code) ? (int)code : -1;
    for (int byte = 0; byte < 256; byte++)
        if (!printable(byte) && next++ == (int)code)
            return byte;
    return -1;
}

/* --- normal forms ----------------------------------------------------------------------------- */

static bool is_ascii(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

/* The bytes of `at` up to the first code point without normal forms; all of them if it has none. */
static size_t before_formless(const char *at, size_t bytes)
{
    for (size_t i = 0, next = 0; i < bytes; i = next)
        if (unicode_without_forms(utf8_next(at, bytes, &next)))
            return i;
    return bytes;
}

/* Code points without normal forms are starters that combine with nothing, so the text between two of
 * them has its own form. */
static enum status normal_form(enum norm_kind kind, struct buffer *text, struct err *err)
{
    const int options =
        UTF8PROC_STABLE |
        (kind == NORM_NFC || kind == NORM_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
        (kind == NORM_NFKC || kind == NORM_NFKD ? UTF8PROC_COMPAT : 0);
    struct buffer to = {0};
    enum status rc = OK;
    if (is_ascii(text->at, text->bytes))
        return OK;
    for (size_t at = 0; at < text->bytes && rc == OK;) {
        utf8proc_uint8_t *form = NULL;
        const size_t length = before_formless(text->at + at, text->bytes - at);
        size_t formless = at + length;
        const utf8proc_ssize_t bytes = utf8proc_map((const utf8proc_uint8_t *)text->at + at,
                                                    (utf8proc_ssize_t)length, &form, options);
        if (bytes < 0) {
            rc = bytes == UTF8PROC_ERROR_NOMEM
                     ? err_nomem(err)
                     : err_set(err, ERR_INPUT, "a text has no normal form: %s",
                               utf8proc_errmsg(bytes));
            break;
        }
        rc = buffer_put(&to, (const char *)form, (size_t)bytes, err);
        free(form);
        if (formless < text->bytes)
            utf8_next(text->at, text->bytes, &formless);
        THEN(buffer_put(&to, text->at + at + length, formless - at - length, err));
        at = formless;
    }
    free(rc == OK ? text->at : to.at);
    if (rc == OK)
        *text = to;
    return rc;
}

static enum status replace_all(const struct norm_step *step, struct buffer *text, struct err *err)
{
    struct buffer to = {0};
    struct pattern_search search;
    size_t at = 0, first, end;
    bool found;
    enum status rc = pattern_search(step->pattern, text->at, text->bytes, &search, err);
    if (rc != OK)
        return rc;
    while ((rc = pattern_next(&search, &found, &first, &end, err)) == OK && found) {
        rc = buffer_put(&to, text->at + at, first - at, err);
        THEN(buffer_put(&to, step->text, strlen(step->text), err));
        at = end;
        if (rc != OK)
            break;
    }
    THEN(buffer_put(&to, text->at + at, text->bytes - at, err));
    pattern_search_clear(&search);
    if (rc == OK) {
        free(text->at);
        *text = to;
    } else {
        free(to.at);
    }
    return rc;
}

enum status tokenizer_normalize(const struct tokenizer *t, const char *text, size_t bytes,
                                char **out, size_t *out_bytes, struct err *err)
{
    struct buffer got = {0};
    enum status rc = buffer_put(&got, text, bytes, err);
    for (int i = 0; i < t->num_norms && rc == OK && got.bytes > 0; i++) {
        const struct norm_step *step = &t->norms[i];
        if (step->kind == NORM_REPLACE) {
            rc = replace_all(step, &got, err);
        } else if (step->kind == NORM_PREPEND) {
            struct buffer to = {0};
            rc = buffer_put(&to, step->text, strlen(step->text), err);
            THEN(buffer_put(&to, got.at, got.bytes, err));
            free(got.at);
            got = to;
        } else {
            rc = normal_form(step->kind, &got, err);
        }
    }
    if (rc == OK) {
        *out = got.at;
        *out_bytes = got.bytes;
    } else {
        free(got.at);
    }
    return rc;
}
