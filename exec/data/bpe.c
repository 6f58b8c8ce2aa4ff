/* GPT-2's byte-pair encoding (bpe.h).
 *
 * Opening reads vocab.json into a table from bytes to ids, and merges.txt into a table from pairs
 * of ids to ranks. bpe_encode() cuts the text into words by word_end() (GPT-2's pattern, written as
 * code) and encode_word() joins the bytes of a word, lowest rank first. */
#include "exec/data/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/data/tokenizer_parts.h"
#include "exec/data/unicode.h"
#include "profiles/json/json.h"

enum { MAX_MERGES_BYTES = 64 << 20, MAX_WORD = 4096, MAX_TOKEN = 1024, MAX_TEXT = 1 << 30 };

void bpe_clear(struct bpe *bpe)
{
    vocab_clear(&bpe->vocab);
    vocab_clear(&bpe->ranks);
    free(bpe->merged);
    markers_clear(&bpe->markers);
    *bpe = (struct bpe){0};
}

/* Converts the printable form of a token to bytes. -1: a character stands for no byte, or the token
 * is too long. */
static int unprint(const char *text, size_t length, char *bytes)
{
    size_t at = 0;
    int n = 0;
    while (at < length) {
        int byte = byte_of_char(utf8_next(text, length, &at));
        if (byte < 0 || n == MAX_TOKEN)
            return -1;
        bytes[n++] = (char)byte;
    }
    return n;
}

static enum status read_vocab(const char *path, struct bpe *bpe, struct err *err)
{
    struct json *root = NULL;
    enum status rc = json_read_file(path, &root, err);
    if (rc == OK && json_type(root) != JSON_OBJECT)
        rc = err_set(err, ERR_INPUT, "'%s' must be an object of tokens and ids, got %s", path,
                     json_type_name(json_type(root)));
    for (struct json *m = rc == OK ? json_first(root) : NULL; rc == OK && m; m = json_next(m)) {
        const char *name = json_key(m);
        char bytes[MAX_TOKEN];
        int64_t id;
        int n = unprint(name, strlen(name), bytes);
        struct err inner = {0};
        if (!json_int64(m, &id) || id < 0 || id >= INT32_MAX)
            rc = err_set(err, ERR_INPUT, "'%s': the id of '%.60s' must be 0..%d", path, name,
                         INT32_MAX - 1);
        else if (n < 1) { /* not written as bytes, for instance with a space: a special token */
            bpe->size = id >= bpe->size ? (int)id + 1 : bpe->size;
            if (marker_form(name, strlen(name)))
                rc = markers_add(&bpe->markers, name, strlen(name), (int32_t)id, err);
        } else if ((rc = vocab_put(&bpe->vocab, bytes, (size_t)n, (int32_t)id, &inner)) != OK)
            err_set(err, rc, "'%s': %s", path, inner.msg);
    }
    json_free(root);
    for (int byte = 0; rc == OK && byte < 256; byte++) {
        char one = (char)byte;
        bpe->of_byte[byte] = vocab_find(&bpe->vocab, &one, 1);
        if (bpe->of_byte[byte] < 0)
            rc = err_set(err, ERR_INPUT, "'%s' is no byte-level vocabulary: byte %d has no token",
                         path, byte);
    }
    if (rc == OK && bpe->vocab.max_id >= bpe->size)
        bpe->size = bpe->vocab.max_id + 1;
    return rc;
}

/* Adds one line of merges.txt. *known becomes false if it is not a new pair of tokens of the
 * vocabulary. */
static enum status add_merge(struct bpe *bpe, const char *line, size_t length, int64_t *room,
                             bool *known, struct err *err)
{
    const char *space = memchr(line, ' ', length);
    char bytes[2 * MAX_TOKEN];
    int a = -1, b = -1;
    int32_t pair[2], id;
    enum status rc;
    *known = false;
    if (space) {
        a = unprint(line, (size_t)(space - line), bytes);
        b = a < 0 ? -1 : unprint(space + 1, length - (size_t)(space + 1 - line), bytes + a);
    }
    if (a < 1 || b < 1)
        return OK;
    pair[0] = vocab_find(&bpe->vocab, bytes, (size_t)a);
    pair[1] = vocab_find(&bpe->vocab, bytes + a, (size_t)b);
    id = vocab_find(&bpe->vocab, bytes, (size_t)(a + b));
    if (pair[0] < 0 || pair[1] < 0 || id < 0)
        return OK;
    if (bpe->ranks.count == *room) {
        int64_t more = *room ? 2 * *room : 1024;
        int32_t *merged = realloc(bpe->merged, (size_t)more * sizeof *merged);
        if (!merged)
            return err_nomem(err);
        bpe->merged = merged;
        *room = more;
    }
    bpe->merged[bpe->ranks.count] = id;
    rc = vocab_put(&bpe->ranks, (const char *)pair, sizeof pair, (int32_t)bpe->ranks.count, NULL);
    *known = rc == OK;
    return rc == ERR_NOMEM ? err_nomem(err) : OK;
}

static enum status read_merges(const char *path, struct bpe *bpe, struct err *err)
{
    char *text = NULL;
    int64_t bytes = 0, number = 0, room = 0;
    enum status rc = data_read_file(path, MAX_MERGES_BYTES, &text, &bytes, err);
    for (const char *line = text, *end = rc == OK ? text + bytes : NULL; rc == OK && line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((stop ? stop : end) - line);
        bool known = true;
        if (length > 0 && line[length - 1] == '\r')
            length--;
        number++;
        if (length > 0 && !(number == 1 && strncmp(line, "#version", 8) == 0))
            rc = add_merge(bpe, line, length, &room, &known, err);
        if (rc == OK && !known)
            rc = err_set(err, ERR_INPUT,
                         "'%s' line %lld: '%.*s' is not a pair of tokens of the vocabulary, or "
                         "occurs twice",
                         path, (long long)number, length < 60 ? (int)length : 60, line);
        line = stop ? stop + 1 : end;
    }
    free(text);
    return rc;
}

static int by_id(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The pieces in brackets that no merge makes are special tokens. */
static enum status add_markers(struct bpe *bpe, struct err *err)
{
    const size_t num_merged = (size_t)bpe->ranks.count;
    int32_t *merged = malloc((num_merged + 1) * sizeof *merged);
    enum status rc = merged ? OK : err_nomem(err);
    if (rc == OK && num_merged > 0) {
        memcpy(merged, bpe->merged, num_merged * sizeof *merged);
        qsort(merged, num_merged, sizeof *merged, by_id);
    }
    for (int64_t i = 0; rc == OK && i < bpe->vocab.num_slots; i++) {
        const struct vocab_slot *slot = &bpe->vocab.slots[i];
        if (slot->length <= 0)
            continue; /* -1: the slot is empty, and its text is not set */
        const char *piece = bpe->vocab.bytes + slot->text;
        if (marker_form(piece, (size_t)slot->length) &&
            !bsearch(&slot->id, merged, num_merged, sizeof *merged, by_id))
            rc = markers_add(&bpe->markers, piece, (size_t)slot->length, slot->id, err);
    }
    free(merged);
    return rc;
}

enum status bpe_open(const char *vocab_path, const char *merges_path, struct bpe *bpe,
                     struct err *err)
{
    struct bpe got = {0};
    struct tokenizer_config config;
    enum status rc = read_vocab(vocab_path, &got, err);
    THEN(read_merges(merges_path, &got, err));
    THEN(add_markers(&got, err));
    THEN(tokenizer_config_read(vocab_path, &config, &got.markers, err));
    if (rc == OK && markers_size(&got.markers) > got.size)
        got.size = markers_size(&got.markers);
    if (rc == OK)
        *bpe = got;
    else
        bpe_clear(&got);
    return rc;
}

/* --- encoding --------------------------------------------------------------------------------- */

enum sign { SIGN_SPACE, SIGN_LETTER, SIGN_NUMBER, SIGN_OTHER };

static enum sign sign_at(const char *text, size_t bytes, size_t at, size_t *next)
{
    *next = at;
    uint32_t code = utf8_next(text, bytes, next);
    switch (unicode_class_of(code)) {
    case UNICODE_LETTER:
        return SIGN_LETTER;
    case UNICODE_NUMBER:
        return SIGN_NUMBER;
    case UNICODE_SPACE:
        return SIGN_SPACE;
    default:
        return (code >= 9 && code <= 13) || code == 0x85 ? SIGN_SPACE : SIGN_OTHER;
    }
}

static size_t sign_run_bytes(const char *text, size_t bytes, size_t at, enum sign sign)
{
    size_t next;
    while (at < bytes && sign_at(text, bytes, at, &next) == sign)
        at = next;
    return at;
}

/* End of the word that starts at `at`. Tries the alternatives of GPT-2's pattern in its order. */
static size_t word_end(const char *text, size_t bytes, size_t at)
{
    static const char *const contractions[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    size_t next, end, last = at;
    enum sign sign;
    for (size_t i = 0; i < sizeof contractions / sizeof *contractions; i++) {
        size_t n = strlen(contractions[i]);
        if (n <= bytes - at && memcmp(text + at, contractions[i], n) == 0)
            return at + n;
    }
    sign = sign_at(text, bytes, at, &next);
    if (sign != SIGN_SPACE)
        return sign_run_bytes(text, bytes, next, sign);
    if (text[at] == ' ' && at + 1 < bytes) {
        sign = sign_at(text, bytes, at + 1, &next);
        if (sign != SIGN_SPACE)
            return sign_run_bytes(text, bytes, next, sign);
    }
    /* A run of spaces: all of them at the end of the text; otherwise all but the last, unless it is
     * the only one. */
    end = sign_run_bytes(text, bytes, at, SIGN_SPACE);
    if (end == bytes)
        return end;
    for (size_t i = at; i < end; i = next) {
        sign_at(text, bytes, i, &next);
        last = i;
    }
    return last > at ? last : end;
}

/* Encodes text[first .. end) as one word. parts: scratch of MAX_WORD tokens. Every pass joins all
 * pairs of the lowest rank. */
static enum status encode_word(const struct bpe *bpe, const char *text, int32_t first, int32_t end,
                               struct token *parts, struct token_list *tokens, struct err *err)
{
    int n = end - first;
    enum status rc = OK;
    for (int i = 0; i < n; i++)
        parts[i] =
            (struct token){bpe->of_byte[(unsigned char)text[first + i]], first + i, first + i + 1};
    while (n > 1) {
        int32_t best = -1;
        int to = 0;
        for (int i = 0; i + 1 < n; i++) {
            int32_t pair[2] = {parts[i].id, parts[i + 1].id};
            int32_t rank = vocab_find(&bpe->ranks, (const char *)pair, sizeof pair);
            best = rank >= 0 && (best < 0 || rank < best) ? rank : best;
        }
        if (best < 0)
            break;
        for (int i = 0; i < n; to++) {
            int32_t pair[2] = {parts[i].id, i + 1 < n ? parts[i + 1].id : -1};
            bool join =
                i + 1 < n && vocab_find(&bpe->ranks, (const char *)pair, sizeof pair) == best;
            struct token part = parts[i];
            if (join) {
                part.id = bpe->merged[best];
                part.end = parts[i + 1].end;
            }
            parts[to] = part;
            i += join ? 2 : 1;
        }
        n = to;
    }
    for (int i = 0; rc == OK && i < n; i++)
        rc = token_list_add(tokens, parts[i], err);
    return rc;
}

/* Encodes text[at .. bytes), which holds no special token. parts: scratch of MAX_WORD tokens. */
static enum status encode_plain(const struct bpe *bpe, const char *text, size_t bytes, size_t at,
                                struct token *parts, struct token_list *tokens, struct err *err)
{
    enum status rc = OK;
    while (rc == OK && at < bytes) {
        /* A window bounds the search for the end of a word, so that a very long word is not scanned
         * again for each part. */
        size_t window = bytes - at < 2 * MAX_WORD ? bytes : at + 2 * MAX_WORD;
        size_t end = word_end(text, window, at);
        if (end - at > MAX_WORD)
            end = at + MAX_WORD;
        rc = encode_word(bpe, text, (int32_t)at, (int32_t)end, parts, tokens, err);
        at = end;
    }
    return rc;
}

enum status bpe_encode(const struct bpe *bpe, const char *text, size_t bytes,
                       struct token_list *tokens, struct err *err)
{
    struct token *parts;
    enum status rc = OK;
    if (bytes > MAX_TEXT)
        return err_set(err, ERR_INPUT, "a text of %zu bytes is too long, limit %d", bytes,
                       MAX_TEXT);
    parts = malloc(MAX_WORD * sizeof *parts);
    if (!parts)
        return err_nomem(err);
    for (size_t at = 0; rc == OK && at < bytes;) {
        size_t length;
        int32_t id;
        const size_t found = markers_next(&bpe->markers, text, bytes, at, &length, &id);
        rc = encode_plain(bpe, text, found, at, parts, tokens, err);
        at = found + length;
        if (rc == OK && length > 0)
            rc = token_list_add(tokens, (struct token){id, (int32_t)found, (int32_t)at}, err);
    }
    free(parts);
    return rc;
}
