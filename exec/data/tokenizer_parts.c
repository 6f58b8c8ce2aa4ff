#include "exec/data/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "exec/data/unicode.h"
#include "profiles/base/utf8.h"
#include "partition/base/arrays.h"

void buffer_start(struct buffer *buffer, struct span from)
{
    buffer->bytes = 0;
    buffer->keeps = from.places != NULL;
}

void buffer_clear(struct buffer *buffer)
{
    free(buffer->at);
    free(buffer->places);
    *buffer = (struct buffer){0};
}

static enum status make_room(struct buffer *buffer, size_t bytes, struct err *err)
{
    if (buffer->bytes + bytes + 1 > buffer->room || (buffer->keeps && !buffer->places)) {
        const size_t room = 2 * (buffer->bytes + bytes) + 64;
        char *at = realloc(buffer->at, room);
        if (!at)
            return err_nomem(err);
        buffer->at = at;
        if (buffer->keeps) {
            struct place *places = realloc(buffer->places, room * sizeof *places);
            if (!places)
                return err_nomem(err);
            buffer->places = places;
        }
        buffer->room = room;
    }
    return OK;
}

enum status buffer_put(struct buffer *buffer, struct span text, struct err *err)
{
    if (make_room(buffer, text.bytes, err) != OK)
        return ERR_NOMEM;
    if (text.bytes > 0)
        memcpy(buffer->at + buffer->bytes, text.at, text.bytes);
    if (buffer->keeps && text.bytes > 0)
        memcpy(buffer->places + buffer->bytes, text.places, text.bytes * sizeof *text.places);
    buffer->bytes += text.bytes;
    buffer->at[buffer->bytes] = '\0';
    return OK;
}

enum status buffer_put_from(struct buffer *buffer, const char *text, size_t bytes,
                            struct place from, struct err *err)
{
    if (make_room(buffer, bytes, err) != OK)
        return ERR_NOMEM;
    memcpy(buffer->at + buffer->bytes, text, bytes);
    for (size_t i = 0; buffer->keeps && i < bytes; i++)
        buffer->places[buffer->bytes + i] = from;
    buffer->bytes += bytes;
    buffer->at[buffer->bytes] = '\0';
    return OK;
}

/* --- vocabularies ----------------------------------------------------------------------------- */

enum status tokenizer_add_merge(struct tokenizer *t, const char *a, size_t a_bytes, const char *b,
                                size_t b_bytes, int32_t rank, bool *twice, struct err *err)
{
    const int32_t pair[2] = {vocab_find(&t->vocab, a, a_bytes), vocab_find(&t->vocab, b, b_bytes)};
    char joined[2 * MAX_PIECE];
    *twice = false;
    if (pair[0] < 0 || pair[1] < 0 || a_bytes > MAX_PIECE || b_bytes > MAX_PIECE)
        return ERR_INPUT;
    memcpy(joined, a, a_bytes);
    memcpy(joined + a_bytes, b, b_bytes);
    const struct merge merge = {rank, vocab_find(&t->vocab, joined, a_bytes + b_bytes)};
    const int32_t known = vocab_find(&t->pairs, (const char *)pair, sizeof pair);
    if (merge.id < 0)
        return ERR_INPUT;
    if (known >= 0) { /* the later rank counts, as in a map */
        t->merges[known] = merge;
        *twice = true;
        return OK;
    }
    if (!array_grow(&t->merges, t->pairs.count + 1, &t->room_merges, sizeof *t->merges))
        return err_nomem(err);
    t->merges[t->pairs.count] = merge;
    return vocab_put(&t->pairs, (const char *)pair, sizeof pair, (int32_t)t->pairs.count, err);
}

enum status tokenizer_make_ids(struct tokenizer *t, int size, struct err *err)
{
    t->size = size;
    t->added = calloc((size_t)size + 1, sizeof *t->added);
    t->by_id = calloc((size_t)size + 1, sizeof *t->by_id);
    return t->added && t->by_id ? OK : err_nomem(err);
}

/* --- characters of bytes ---------------------------------------------------------------------- */

/* Bytes that print stand for themselves; the others, in their order, are U+0100, U+0101, ... */
enum { CONTROLS = 0x21, UPPER = 0x7f, SPACES_END = 0xa1, SOFT_HYPHEN = 0xad };

int byte_char(int byte, char *to)
{
    uint32_t code = (uint32_t)byte;
    if (byte < CONTROLS)
        code = 0x100 + code;
    else if (byte >= UPPER && byte < SPACES_END)
        code = 0x100 + CONTROLS + (code - UPPER);
    else if (byte == SOFT_HYPHEN)
        code = 0x100 + CONTROLS + (SPACES_END - UPPER);
    return utf8_put(code, to);
}

int byte_of_char(uint32_t code)
{
    for (int byte = 0; byte < 256 && code < 0x200; byte++) {
        char text[4];
        size_t at = 0;
        const int n = byte_char(byte, text);
        if (utf8_next(text, (size_t)n, &at) == code)
            return byte;
    }
    return -1;
}

/* --- normal forms ----------------------------------------------------------------------------- */

/* The bytes of `at` up to the first code point without normal forms; all of them if it has none. */
static size_t before_formless(const char *at, size_t bytes)
{
    for (size_t i = 0, next = 0; i < bytes; i = next)
        if (unicode_without_forms(utf8_next(at, bytes, &next)))
            return i;
    return bytes;
}

/* The form of a text without code points that have none. */
static enum status put_form(int options, struct span text, struct buffer *to, struct err *err)
{
    utf8proc_uint8_t *form = NULL;
    const utf8proc_ssize_t bytes = utf8proc_map((const utf8proc_uint8_t *)text.at,
                                                (utf8proc_ssize_t)text.bytes, &form, options);
    enum status rc;
    if (bytes < 0)
        rc = bytes == UTF8PROC_ERROR_NOMEM
                 ? err_nomem(err)
                 : err_set(err, ERR_INPUT, "a text has no normal form: %s", utf8proc_errmsg(bytes));
    else if ((size_t)bytes == text.bytes && memcmp(form, text.at, text.bytes) == 0)
        rc = buffer_put(to, text, err);
    else
        rc = buffer_put_from(to, (const char *)form, (size_t)bytes, span_place(text, 0, text.bytes),
                             err);
    free(form);
    return rc;
}

/* An ASCII character combines with nothing before it, so the text is formed from one to the next.
 * Code points without normal forms are starters that combine with nothing, so the text between two of
 * them has its own form. */
static enum status normal_form(const struct norm_step *step, struct span text, struct buffer *to,
                               struct err *err)
{
    const enum form_kind kind = step->kind;
    const int options =
        UTF8PROC_STABLE |
        (kind == NORM_NFC || kind == NORM_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
        (kind == NORM_NFKC || kind == NORM_NFKD ? UTF8PROC_COMPAT : 0);
    enum status rc = OK;
    for (size_t at = 0, stop; at < text.bytes && rc == OK; at = stop) {
        size_t plain = at;
        while (plain < text.bytes && (unsigned char)text.at[plain] < 0x80)
            plain++;
        plain -= plain > at && plain < text.bytes; /* the last one may combine */
        rc = buffer_put(to, span_part(text, at, plain), err);
        stop = plain < text.bytes ? plain + 1 : plain;
        while (stop < text.bytes && (unsigned char)text.at[stop] >= 0x80)
            stop++;
        for (at = plain; at < stop && rc == OK;) {
            const size_t formed = at + before_formless(text.at + at, stop - at);
            size_t next = formed;
            if (formed > at)
                rc = put_form(options, span_part(text, at, formed), to, err);
            if (next < stop)
                utf8_next(text.at, stop, &next);
            THEN(buffer_put(to, span_part(text, formed, next), err));
            at = next;
        }
    }
    return rc;
}

static enum status replace_all(const struct norm_step *step, struct span text, struct buffer *to,
                               struct err *err)
{
    struct pattern_search search;
    size_t at = 0, first, end;
    bool found;
    enum status rc = pattern_search(step->pattern, text.at, text.bytes, &search, err);
    while (rc == OK && (rc = pattern_next(&search, &found, &first, &end, err)) == OK && found) {
        rc = buffer_put(to, span_part(text, at, first), err);
        THEN(
            buffer_put_from(to, step->text, strlen(step->text), span_place(text, first, end), err));
        at = end;
    }
    THEN(buffer_put(to, span_part(text, at, text.bytes), err));
    pattern_search_clear(&search);
    return rc;
}

static enum status prepend(const struct norm_step *step, struct span text, struct buffer *to,
                           struct err *err)
{
    enum status rc =
        buffer_put_from(to, step->text, strlen(step->text), span_place(text, 0, 0), err);
    THEN(buffer_put(to, text, err));
    return rc;
}

/* The blocks of CJK ideographs. Hangul, Hiragana and Katakana are not split, as in the reference. */
static bool ideograph(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b820 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* Source: Devlin et al. 2018, and BertNormalizer of `tokenizers`, which gives the same tokens. */
static enum status bert_form(const struct norm_step *step, struct span text, struct buffer *to,
                             struct err *err)
{
    enum status rc = OK;
    for (size_t at = 0; at < text.bytes && rc == OK;) {
        const size_t first = at;
        const uint32_t code = utf8_next(text.at, text.bytes, &at);
        const struct place place = span_place(text, first, at);
        uint32_t folded[UNICODE_FOLD_MAX] = {code};
        char out[4 * UNICODE_FOLD_MAX + 2];
        size_t n = 0;
        if (step->clean && (code < ' ' || code >= 0x7f)) {
            const enum unicode_class class = unicode_class_of(code);
            if (code == '\t' || code == '\n' || code == '\r' || class == UNICODE_SPACE)
                folded[0] = ' ';
            else if (code == UNICODE_BAD || class == UNICODE_CONTROL)
                continue;
        }
        const bool alone = step->ideographs && ideograph(code);
        const int parts = step->lower && folded[0] != ' ' ? unicode_fold(code, folded) : 1;
        if (alone)
            out[n++] = ' ';
        for (int i = 0; i < parts; i++)
            n += (size_t)utf8_put(folded[i], out + n);
        if (alone)
            out[n++] = ' ';
        rc = buffer_put_from(to, out, n, place, err);
    }
    return rc;
}

enum status tokenizer_normalize(const struct tokenizer *t, struct span text, struct buffer *out,
                                struct err *err)
{
    typedef enum status form(const struct norm_step *, struct span, struct buffer *, struct err *);
    static form *const forms[] = {
        [NORM_NFC] = normal_form,  [NORM_NFD] = normal_form, [NORM_NFKC] = normal_form,
        [NORM_NFKD] = normal_form, [NORM_PREPEND] = prepend, [NORM_REPLACE] = replace_all,
        [NORM_BERT] = bert_form};
    struct buffer now = {0};
    buffer_start(&now, text);
    enum status rc = buffer_put(&now, text, err);
    for (int i = 0; i < t->num_norms && rc == OK && now.bytes > 0; i++) {
        struct buffer next = {0};
        buffer_start(&next, text);
        rc = buffer_put(&next, (struct span){0}, err);
        THEN(forms[t->norms[i].kind](&t->norms[i], buffer_span(&now), &next, err));
        buffer_clear(&now);
        now = next;
    }
    *out = now;
    return rc;
}
