/* WordPiece tokenization (wordpiece.h).
 *
 * wordpiece_encode() reads code points and collects folded characters in a struct word, each with
 * its byte range in the source. At the end of a word word_flush() cuts it into pieces. */
#include "exec/data/wordpiece.h"

#include <stdlib.h>
#include <string.h>

#include "exec/data/unicode.h"

/* MAX_CHARS: a longer word is one unknown token, as in the reference. */
enum { MAX_VOCAB_BYTES = 64 << 20, MAX_TEXT = 1 << 30, MAX_CHARS = 100, CHAR_BYTES = 4 };

void wordpiece_clear(struct wordpiece *wp)
{
    vocab_clear(&wp->vocab);
    markers_clear(&wp->markers);
    *wp = (struct wordpiece){0};
}

/* Capital letters of the alphabets that have both cases: Latin with accents, Greek, Cyrillic,
 * Armenian. (From U+0100 on Latin capitals alternate with small letters.) */
static bool capital(uint32_t c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7) ||
           (c >= 0x391 && c <= 0x3ab) || (c >= 0x400 && c <= 0x42f) || (c >= 0x531 && c <= 0x556);
}

static bool has_capital(const char *piece, size_t length)
{
    bool found = false;
    for (size_t at = 0; at < length && !found;)
        found = capital(utf8_next(piece, length, &at));
    return found;
}

static enum status read_pieces(const char *path, struct wordpiece *wp, struct err *err)
{
    char *text = NULL;
    int64_t bytes = 0;
    enum status rc = data_read_file(path, MAX_VOCAB_BYTES, &text, &bytes, err);
    for (char *line = text, *end = rc == OK ? text + bytes : NULL; rc == OK && line < end;
         wp->size++) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((stop ? stop : end) - line);
        if (length > 0 && line[length - 1] == '\r')
            length--;
        struct err inner = {0};
        rc = vocab_put(&wp->vocab, line, length, wp->size, &inner);
        if (rc != OK)
            err_set(err, rc, "'%s' line %d: %s", path, wp->size + 1, inner.msg);
        wp->lower &= marker_form(line, length) || !has_capital(line, length);
        line = stop ? stop + 1 : end;
    }
    free(text);
    return rc;
}

/* Applies the settings beside the vocabulary. */
static enum status read_settings(const char *path, enum lower_case lower_case, struct wordpiece *wp,
                                 struct err *err)
{
    struct tokenizer_config config;
    enum status rc = tokenizer_config_read(path, &config, &wp->markers, err);
    if (rc != OK)
        return rc;
    if (lower_case != LOWER_AUTO)
        wp->lower = lower_case == LOWER_ON;
    else if (config.lower_case >= 0)
        wp->lower = config.lower_case;
    wp->whole_ideographs = config.split_ideographs == 0;
    if (config.strip_accents >= 0 && config.strip_accents != wp->lower)
        return err_set(
            err, ERR_INPUT,
            "'%s': tokenizer_config.json next to it says strip_accents %s, lower case is %s, "
            "and only equal values are computed",
            path, config.strip_accents ? "true" : "false", wp->lower ? "true" : "false");
    if (markers_size(&wp->markers) > wp->size)
        wp->size = markers_size(&wp->markers);
    return OK;
}

enum status wordpiece_open(const char *path, enum lower_case lower_case, struct wordpiece *wp,
                           struct err *err)
{
    static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    struct wordpiece got = {.lower = true};
    int32_t *const ids[] = {&got.pad, &got.unk, &got.cls, &got.sep, &got.mask};
    enum status rc = read_pieces(path, &got, err);
    for (int i = 0; rc == OK && i < 5; i++) {
        *ids[i] = vocab_find(&got.vocab, names[i], strlen(names[i]));
        if (i < 4 && *ids[i] < 0)
            rc = err_set(err, ERR_INPUT, "'%s' is no WordPiece vocabulary: %s is missing", path,
                         names[i]);
        else if (*ids[i] >= 0)
            rc = markers_add(&got.markers, names[i], strlen(names[i]), *ids[i], err);
    }
    THEN(read_settings(path, lower_case, &got, err));
    if (rc == OK)
        *wp = got;
    else
        wordpiece_clear(&got);
    return rc;
}

/* The word that is being collected: its folded text, and the source bytes of each of its
 * characters. */
struct word {
    char text[2 * MAX_CHARS * CHAR_BYTES];
    int chars;                /* may exceed MAX_CHARS, but only MAX_CHARS are stored */
    int at[MAX_CHARS + 1];    /* byte of text where character i starts */
    int32_t first[MAX_CHARS]; /* byte of the source where character i starts */
    int32_t end[MAX_CHARS];
    int32_t whole_first, whole_end;
};

static void word_add(struct word *word, uint32_t code, int32_t first, int32_t end)
{
    if (word->chars == 0) {
        word->whole_first = first;
        word->at[0] = 0;
    }
    word->whole_end = end;
    if (word->chars < MAX_CHARS) {
        int n = word->chars;
        word->first[n] = first;
        word->end[n] = end;
        word->at[n + 1] = word->at[n] + utf8_put(code, word->text + word->at[n]);
    }
    word->chars++;
}

/* Cuts a word from the left into the longest pieces of the vocabulary. If some part has no piece,
 * the whole word is one unknown token. */
static enum status word_flush(const struct wordpiece *wp, struct word *word,
                              struct token_list *tokens, struct err *err)
{
    int64_t before = tokens->count;
    enum status rc = OK;
    int from = 0, n = word->chars;
    word->chars = 0;
    if (n == 0)
        return OK;
    while (rc == OK && n <= MAX_CHARS && from < n) {
        char piece[2 + sizeof word->text] = "##";
        int prefix = from > 0 ? 2 : 0, to = n, base = word->at[from];
        int32_t id = -1;
        memcpy(piece + prefix, word->text + base, (size_t)(word->at[n] - base));
        for (; to > from; to--) {
            id = vocab_find(&wp->vocab, piece, (size_t)(prefix + word->at[to] - base));
            if (id >= 0)
                break;
        }
        if (id < 0)
            break;
        rc = token_list_add(tokens, (struct token){id, word->first[from], word->end[to - 1]}, err);
        from = to;
    }
    if (rc == OK && from < n) {
        tokens->count = before;
        rc = token_list_add(tokens, (struct token){wp->unk, word->whole_first, word->whole_end},
                            err);
    }
    return rc;
}

/* The blocks of CJK ideographs. Hangul, Hiragana and Katakana are not split, as in the reference.
 */
static bool ideograph(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b820 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static bool punctuation(uint32_t c)
{
    if (c < 0x80) /* every ASCII character that is not a letter, digit, space or control, also "$"
                     and "^" */
        return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
               (c >= 123 && c <= 126);
    return unicode_class_of(c) == UNICODE_PUNCTUATION;
}

/* Cuts text[at .. bytes), which holds no special token, into pieces. */
static enum status encode_plain(const struct wordpiece *wp, const char *text, size_t bytes,
                                size_t at, struct token_list *tokens, struct err *err)
{
    struct word word = {0};
    enum status rc = OK;
    while (rc == OK && at < bytes) {
        int32_t first = (int32_t)at, end;
        uint32_t code = utf8_next(text, bytes, &at), folded[UNICODE_FOLD_MAX];
        enum unicode_class class = unicode_class_of(code);
        bool blank = code == '\t' || code == '\n' || code == '\r' || class == UNICODE_SPACE;
        int n = 1;
        end = (int32_t)at;
        if (!blank && (code == UNICODE_BAD || class == UNICODE_CONTROL))
            continue;
        if (blank) {
            rc = word_flush(wp, &word, tokens, err);
            continue;
        }
        bool alone = !wp->whole_ideographs && ideograph(code);
        if (alone)
            rc = word_flush(wp, &word, tokens, err);
        folded[0] = code;
        if (wp->lower)
            n = unicode_fold(code, folded);
        for (int i = 0; rc == OK && i < n; i++) {
            bool split = punctuation(folded[i]);
            if (split)
                rc = word_flush(wp, &word, tokens, err);
            word_add(&word, folded[i], first, end);
            if (split && rc == OK)
                rc = word_flush(wp, &word, tokens, err);
        }
        if (alone && rc == OK)
            rc = word_flush(wp, &word, tokens, err);
    }
    return rc == OK ? word_flush(wp, &word, tokens, err) : rc;
}

enum status wordpiece_encode(const struct wordpiece *wp, const char *text, size_t bytes,
                             struct token_list *tokens, struct err *err)
{
    enum status rc = OK;
    if (bytes > MAX_TEXT)
        return err_set(err, ERR_INPUT, "a text of %zu bytes is too long, limit %d", bytes,
                       MAX_TEXT);
    for (size_t at = 0; rc == OK && at < bytes;) {
        size_t length;
        int32_t id;
        const size_t found = markers_next(&wp->markers, text, bytes, at, &length, &id);
        rc = encode_plain(wp, text, found, at, tokens, err);
        at = found + length;
        if (rc == OK && length > 0)
            rc = token_list_add(tokens, (struct token){id, (int32_t)found, (int32_t)at}, err);
    }
    return rc;
}
