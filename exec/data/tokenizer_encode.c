/* From a text to tokens (tokenizer.h). tokenizer_encode() at the end first; each step hands its parts
 * to the next one: find_added(), tokenizer_normalize(), split_text(), add_word(). */
#include <stdlib.h>
#include <string.h>

#include "exec/data/tokenizer.h"
#include "exec/data/tokenizer_parts.h"
#include "exec/data/unicode.h"
#include "profiles/base/utf8.h"
#include "partition/base/arrays.h"

enum { MAX_TEXT = 1 << 30 };

/* A character of a word; `next` and `prev` are indices, -1: none. id -1: it has joined another. */
struct symbol {
    int32_t id, prev, next;
    int32_t end; /* of its bytes in the word; they begin where its predecessor ends */
};
/* A join that may be due: the pair that begins at symbol `at`. */
struct join {
    int32_t rank, at, id;
};

/* Words that were seen, and their tokens with places in the word. A text repeats its words. */
struct seen_words {
    struct vocab index;       /* owned; word -> index in lists */
    struct token_list tokens; /* owned; of all words */
    struct seen {
        int64_t first;
        int32_t count;
    } * lists; /* owned, [room] */
    int64_t room;
};
enum { MAX_SEEN_BYTES = 48, MAX_SEEN = 1 << 16 };

struct work {
    const struct tokenizer *t;
    struct token_list *tokens;
    struct token_list word;                           /* owned; tokens of the present word */
    struct buffer texts[MAX_STEPS], words[MAX_STEPS]; /* owned; what a step has changed: its text,
                                                         and the word that it hands on */
    struct buffer piece;                              /* owned; of WordPiece, with its prefix */
    struct seen_words seen;
    struct symbol *symbols; /* owned */
    struct join *heap;      /* owned; the lowest rank first, then the first place */
    int64_t num_symbols, room_symbols, num_joins, room_joins;
    struct err *err;
};

/* --- joining the characters of a word --------------------------------------------------------- */

static bool before(const struct join *a, const struct join *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* Push the join of symbol `at` with its successor, if there is a merge. */
static enum status push_join(struct work *w, int32_t at)
{
    const int32_t next = at < 0 ? -1 : w->symbols[at].next;
    if (next < 0)
        return OK;
    const int32_t pair[2] = {w->symbols[at].id, w->symbols[next].id};
    const int32_t found = vocab_find(&w->t->pairs, (const char *)pair, sizeof pair);
    if (found < 0)
        return OK;
    if (!array_grow(&w->heap, w->num_joins + 1, &w->room_joins, sizeof *w->heap))
        return err_nomem(w->err);
    const struct join join = {w->t->merges[found].rank, at, w->t->merges[found].id};
    int64_t i = w->num_joins++;
    for (; i > 0 && before(&join, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = join;
    return OK;
}

static struct join pop_join(struct work *w)
{
    const struct join top = w->heap[0], last = w->heap[--w->num_joins];
    int64_t i = 0;
    for (int64_t child = 1; child < w->num_joins; child = 2 * i + 1) {
        child += child + 1 < w->num_joins && before(&w->heap[child + 1], &w->heap[child]);
        if (!before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

static enum status add_symbol(struct work *w, int32_t id, size_t end)
{
    if (!array_grow(&w->symbols, w->num_symbols + 1, &w->room_symbols, sizeof *w->symbols))
        return err_nomem(w->err);
    const int32_t at = (int32_t)w->num_symbols++;
    w->symbols[at] = (struct symbol){id, at - 1, -1, (int32_t)end};
    if (at > 0)
        w->symbols[at - 1].next = at;
    return OK;
}

/* The tokens of one character, text[at .. end), that the vocabulary lacks: its bytes, else the unknown
 * token. *unknown_open: the last unknown token waits to be joined by the next one (fuse_unk). */
static enum status add_unknown(struct work *w, const char *text, size_t at, size_t end,
                               bool *unknown_open)
{
    bool whole = w->t->byte_fallback;
    for (size_t i = at; i < end && whole; i++)
        whole = w->t->byte_ids[(unsigned char)text[i]] >= 0;
    enum status rc = OK;
    if (whole) {
        for (size_t i = at; i < end && rc == OK; i++)
            rc = add_symbol(w, w->t->byte_ids[(unsigned char)text[i]], i + 1);
    } else if (w->t->unknown >= 0) {
        if (*unknown_open && w->t->fuse_unknown)
            w->symbols[w->num_symbols - 1].end = (int32_t)end;
        else
            rc = add_symbol(w, w->t->unknown, end);
        *unknown_open = true;
    }
    return rc;
}

/* The tokens of a word: always the pair of the lowest rank joins, of several the first.
 * O(n log n). */
static enum status join_word(struct work *w, const char *text, size_t bytes)
{
    const struct tokenizer *t = w->t;
    bool unknown_open = false;
    enum status rc = OK;
    if (t->ignore_merges) {
        const int32_t id = vocab_find(&t->vocab, text, bytes);
        if (id >= 0)
            return token_list_add(&w->word, (struct token){id, 0, (int32_t)bytes}, w->err);
    }
    w->num_symbols = w->num_joins = 0;
    for (size_t at = 0, next; at < bytes && rc == OK; at = next) {
        next = at;
        utf8_next(text, bytes, &next);
        const int32_t id = vocab_find(&t->vocab, text + at, next - at);
        if (id < 0) {
            rc = add_unknown(w, text, at, next, &unknown_open);
        } else {
            unknown_open = false;
            rc = add_symbol(w, id, next);
        }
    }
    for (int64_t i = 0; i < w->num_symbols && rc == OK; i++)
        rc = push_join(w, (int32_t)i);
    while (rc == OK && w->num_joins > 0) {
        const struct join join = pop_join(w);
        struct symbol *left = &w->symbols[join.at];
        if (left->id < 0 || left->next < 0)
            continue;
        struct symbol *right = &w->symbols[left->next];
        const int32_t pair[2] = {left->id, right->id};
        const int32_t found = vocab_find(&t->pairs, (const char *)pair, sizeof pair);
        if (found < 0 || t->merges[found].id != join.id)
            continue; /* one of the two has joined another since */
        left->id = join.id;
        left->next = right->next;
        left->end = right->end;
        right->id = -1;
        if (left->next >= 0)
            w->symbols[left->next].prev = join.at;
        rc = push_join(w, left->prev);
        THEN(push_join(w, join.at));
    }
    int32_t first = 0;
    for (int32_t i = w->num_symbols > 0 ? 0 : -1; i >= 0 && rc == OK; i = w->symbols[i].next) {
        rc = token_list_add(&w->word, (struct token){w->symbols[i].id, first, w->symbols[i].end},
                            w->err);
        first = w->symbols[i].end;
    }
    return rc;
}

/* The tokens of a word, cut from the left into the longest pieces of the vocabulary. If some part has
 * no piece, or the word is too long, all of it is one unknown token. */
static enum status cut_pieces(struct work *w, const char *text, size_t bytes)
{
    const struct tokenizer *t = w->t;
    const size_t inside = strlen(t->inside);
    int64_t chars = 0;
    size_t from = 0;
    enum status rc = OK;
    for (size_t i = 0; i < bytes; i++)
        chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    while (rc == OK && chars <= t->most_chars && from < bytes) {
        const size_t prefix = from > 0 ? inside : 0;
        size_t to = bytes - from + prefix;
        int32_t id = -1;
        w->piece.bytes = 0;
        rc = buffer_put_from(&w->piece, t->inside, prefix, (struct place){0, 0}, w->err);
        THEN(buffer_put_from(&w->piece, text + from, bytes - from, (struct place){0, 0}, w->err));
        to = to < (size_t)t->vocab.max_length ? to : (size_t)t->vocab.max_length;
        for (; rc == OK && to > prefix; to--) {
            const bool whole =
                to == w->piece.bytes || ((unsigned char)w->piece.at[to] & 0xc0) != 0x80;
            if (whole && (id = vocab_find(&t->vocab, w->piece.at, to)) >= 0)
                break;
        }
        if (id < 0)
            break;
        const size_t end = from + to - prefix;
        rc = token_list_add(&w->word, (struct token){id, (int32_t)from, (int32_t)end}, w->err);
        from = end;
    }
    if (rc == OK && from < bytes) {
        w->word.count = 0;
        rc = token_list_add(&w->word, (struct token){t->unknown, 0, (int32_t)bytes}, w->err);
    }
    return rc;
}

/* Keep the tokens of a word that was not seen. */
static enum status keep_word(struct work *w, struct span word)
{
    struct seen_words *seen = &w->seen;
    const int64_t n = seen->index.count;
    if (!array_grow(&seen->lists, n + 1, &seen->room, sizeof *seen->lists))
        return err_nomem(w->err);
    seen->lists[n] = (struct seen){seen->tokens.count, (int32_t)w->word.count};
    enum status rc = vocab_put(&seen->index, word.at, word.bytes, (int32_t)n, w->err);
    for (int64_t i = 0; i < w->word.count && rc == OK; i++)
        rc = token_list_add(&seen->tokens, w->word.at[i], w->err);
    return rc;
}

/* Append the tokens of a word. */
static enum status add_word(struct work *w, struct span word)
{
    const bool keeps = word.bytes <= MAX_SEEN_BYTES;
    const int32_t known = keeps ? vocab_find(&w->seen.index, word.at, word.bytes) : -1;
    int64_t count = known >= 0 ? w->seen.lists[known].count : 0;
    enum status rc = OK;
    if (known < 0) {
        w->word.count = 0;
        rc = w->t->model == MODEL_BPE ? join_word(w, word.at, word.bytes)
                                      : cut_pieces(w, word.at, word.bytes);
        if (rc == OK && keeps && w->seen.index.count < MAX_SEEN)
            rc = keep_word(w, word);
        count = w->word.count;
    }
    const struct token *tokens =
        known >= 0 ? w->seen.tokens.at + w->seen.lists[known].first : w->word.at;
    for (int64_t i = 0; i < count && rc == OK; i++) {
        const struct place place = span_place(word, (size_t)tokens[i].first, (size_t)tokens[i].end);
        rc =
            token_list_add(w->tokens, (struct token){tokens[i].id, place.first, place.end}, w->err);
    }
    return rc;
}

/* --- words ------------------------------------------------------------------------------------ */

static enum status split_text(struct work *w, int step, struct span text, bool first);

/* The part that a step has not handed on, because the next one may belong to it. */
struct part {
    bool open, match;
    size_t first, end;
};

/* Hand a part of a text to the next step; `first`: the text is the beginning of all. */
static enum status hand_on(struct work *w, int step, struct span text, const struct part *part,
                           bool first)
{
    struct span word = span_part(text, part->first, part->end);
    struct buffer *to = &w->words[step];
    enum status rc = OK;
    if (!part->open || word.bytes == 0)
        return OK;
    if (w->t->splits[step].kind == SPLIT_BYTES) {
        buffer_start(to, word);
        for (size_t i = 0; i < word.bytes && rc == OK; i++) {
            char one[4];
            const int n = byte_char((unsigned char)word.at[i], one);
            rc = buffer_put_from(to, one, (size_t)n, span_place(word, i, i + 1), w->err);
        }
        word = buffer_span(to);
    }
    return rc == OK ? split_text(w, step + 1, word, first && part->first == 0) : rc;
}

/* Add the next part of a text, of matches or between them, to the part that is open, or hand that on
 * and open it. The rules are those of `tokenizers`, SplitDelimiterBehavior. */
static enum status add_part(struct work *w, int step, struct span text, struct part next,
                            struct part *open, bool first)
{
    const enum split_match match = w->t->splits[step].match;
    bool joins = false;
    if (match == MATCH_REMOVED && next.match)
        next.first = next.end;
    if (match == MATCH_CONTIGUOUS)
        joins = open->open && next.match == open->match;
    if (match == MATCH_PREVIOUS)
        joins = open->open && next.match && !open->match;
    if (match == MATCH_NEXT)
        joins = open->open && !next.match && open->match;
    if (joins) {
        open->end = next.end;
        open->match = next.match;
        return OK;
    }
    const enum status rc = hand_on(w, step, text, open, first);
    *open = next;
    return rc;
}

static enum status cut(struct work *w, int step, struct span text, bool first)
{
    const struct split_step *s = &w->t->splits[step];
    struct part open = {0};
    struct pattern_search search;
    size_t at = 0, from, end;
    bool found;
    if (!s->pattern)
        return hand_on(w, step, text, &(struct part){true, false, 0, text.bytes}, first);
    enum status rc = pattern_search(s->pattern, text.at, text.bytes, &search, w->err);
    while (rc == OK && (rc = pattern_next(&search, &found, &from, &end, w->err)) == OK && found) {
        if (from > at)
            rc = add_part(w, step, text, (struct part){true, s->invert, at, from}, &open, first);
        if (rc == OK && end > from)
            rc = add_part(w, step, text, (struct part){true, !s->invert, from, end}, &open, first);
        at = end;
    }
    if (rc == OK && at < text.bytes)
        rc = add_part(w, step, text, (struct part){true, s->invert, at, text.bytes}, &open, first);
    THEN(hand_on(w, step, text, &open, first));
    pattern_search_clear(&search);
    return rc;
}

/* White_Space of Unicode's PropList.txt. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

static bool is_punctuation(uint32_t c)
{
    if (c < 0x80) /* every ASCII character that is not a letter, digit, space or control, also "$"
                     and "^" */
        return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
               (c >= 123 && c <= 126);
    return unicode_class_of(c) == UNICODE_PUNCTUATION;
}

/* Cut at white space, and around every punctuation character. */
static enum status cut_words(struct work *w, int step, struct span text, bool first)
{
    struct part part = {.open = true};
    enum status rc = OK;
    for (size_t at = 0, next = 0; at < text.bytes && rc == OK; at = next) {
        const uint32_t code = utf8_next(text.at, text.bytes, &next);
        const bool alone = is_punctuation(code);
        if (!alone && !is_space(code))
            continue;
        part.end = at;
        rc = hand_on(w, step, text, &part, first);
        if (alone)
            THEN(hand_on(w, step, text, &(struct part){true, true, at, next}, first));
        part.first = next;
    }
    part.end = text.bytes;
    return rc == OK ? hand_on(w, step, text, &part, first) : rc;
}

/* Cut a text into words by the steps from `step` on, and append their tokens. */
static enum status split_text(struct work *w, int step, struct span text, bool first)
{
    if (text.bytes == 0)
        return OK;
    if (step == w->t->num_splits)
        return add_word(w, text);
    const struct split_step *s = &w->t->splits[step];
    struct buffer *to = &w->texts[step];
    const char *mark = s->kind == SPLIT_METASPACE ? s->mark : " ";
    const size_t mark_bytes = strlen(mark);
    const bool begins = s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && first);
    enum status rc = OK;
    if (s->kind == SPLIT_WORDS)
        return cut_words(w, step, text, first);
    if (s->kind == SPLIT_PATTERN || (s->kind == SPLIT_BYTES && !begins))
        return cut(w, step, text, first);
    buffer_start(to, text);
    if (begins && text.at[0] != ' ' &&
        (text.bytes < mark_bytes || memcmp(text.at, mark, mark_bytes) != 0))
        rc = buffer_put_from(to, mark, mark_bytes, span_place(text, 0, 0), w->err);
    for (size_t i = 0; i < text.bytes && rc == OK; i++)
        rc = text.at[i] == ' '
                 ? buffer_put_from(to, mark, mark_bytes, span_place(text, i, i + 1), w->err)
                 : buffer_put(to, span_part(text, i, i + 1), w->err);
    return rc == OK ? cut(w, step, buffer_span(to), first) : rc;
}

/* --- added tokens ----------------------------------------------------------------------------- */

static size_t space_before(const char *text, size_t least, size_t at)
{
    while (at > least) {
        size_t one = at - 1, next;
        while (one > least && ((unsigned char)text[one] & 0xc0) == 0x80)
            one--;
        next = one;
        if (!is_space(utf8_next(text, at, &next)))
            break;
        at = one;
    }
    return at;
}

static size_t space_after(const char *text, size_t bytes, size_t at)
{
    for (size_t next = at; at < bytes && is_space(utf8_next(text, bytes, &next)); at = next) {
    }
    return at;
}

static enum status normal_part(struct work *w, struct span text, bool first);

/* Append the added tokens of a text, and what is between them by the next step: of the raw text
 * normal_part(), of a normalized one split_text(). */
static enum status find_added(struct work *w, bool raw, struct span text, bool first)
{
    const struct tokenizer *t = w->t;
    const struct markers *markers = raw ? &t->raw : &t->normal;
    enum status rc = OK;
    for (size_t at = 0, look = 0; rc == OK && at < text.bytes;) {
        size_t length, end = text.bytes, stop = text.bytes;
        int32_t id = -1;
        const size_t found = markers_next(markers, text.at, text.bytes, look, &length, &id);
        if (length > 0) {
            look = stop = found + length;
            if (t->added[id].special && !t->find_special)
                continue;
            end = t->added[id].left ? space_before(text.at, at, found) : found;
            if (t->added[id].right)
                look = stop = space_after(text.at, text.bytes, stop);
        }
        if (end > at && raw)
            rc = normal_part(w, span_part(text, at, end), first && at == 0);
        else if (end > at)
            rc = split_text(w, 0, span_part(text, at, end), first && at == 0);
        if (rc == OK && length > 0) {
            const struct place place = span_place(text, end, stop);
            rc = token_list_add(w->tokens, (struct token){id, place.first, place.end}, w->err);
        }
        at = stop;
    }
    return rc;
}

static enum status normal_part(struct work *w, struct span text, bool first)
{
    struct buffer normal = {0};
    enum status rc = w->t->num_norms > 0 ? tokenizer_normalize(w->t, text, &normal, w->err) : OK;
    THEN(find_added(w, false, w->t->num_norms > 0 ? buffer_span(&normal) : text, first));
    buffer_clear(&normal);
    return rc;
}

/* --- a whole text ----------------------------------------------------------------------------- */

/* Copy a text with U+FFFD in place of bytes that are not UTF-8. */
static enum status clean(const char *text, size_t bytes, struct buffer *to, struct err *err)
{
    enum status rc = OK;
    for (size_t at = 0; at < bytes && rc == OK;) {
        char one[4];
        const size_t first = at;
        while (!to->keeps && at < bytes && (unsigned char)text[at] < 0x80)
            at++;
        rc = buffer_put_from(to, text + first, at - first, (struct place){0, 0}, err);
        if (rc != OK || at == bytes)
            break;
        const int n = utf8_put(utf8_next(text, bytes, &at), one);
        const bool valid = (size_t)n == at - first && memcmp(one, text + first, (size_t)n) == 0;
        for (int i = 0; i < n && rc == OK; i++) {
            struct place place = {(int32_t)first, (int32_t)at};
            if (valid)
                place = (struct place){(int32_t)first + i, (int32_t)first + i + 1};
            rc = buffer_put_from(to, one + i, 1, place, err);
        }
    }
    return rc;
}

static enum status encode_bytes(const char *text, size_t bytes, struct token_list *tokens,
                                struct err *err)
{
    enum status rc = OK;
    for (int32_t i = 0; i < (int32_t)bytes && rc == OK; i++)
        rc = token_list_add(tokens, (struct token){(unsigned char)text[i], i, i + 1}, err);
    return rc;
}

static void work_clear(struct work *w)
{
    for (int i = 0; i < MAX_STEPS; i++) {
        buffer_clear(&w->texts[i]);
        buffer_clear(&w->words[i]);
    }
    buffer_clear(&w->piece);
    token_list_clear(&w->word);
    vocab_clear(&w->seen.index);
    token_list_clear(&w->seen.tokens);
    free(w->seen.lists);
    free(w->symbols);
    free(w->heap);
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, int flags,
                             struct token_list *tokens, struct err *err)
{
    struct work w = {.t = t, .tokens = tokens, .err = err};
    struct buffer valid = {.keeps = (flags & ENCODE_PLACES) != 0};
    const bool around = (flags & ENCODE_AROUND) != 0;
    if (bytes > MAX_TEXT)
        return err_set(err, ERR_INPUT, "a text of %zu bytes is too long, limit %d", bytes,
                       MAX_TEXT);
    if (t->model == MODEL_BYTES)
        return encode_bytes(text, bytes, tokens, err);
    enum status rc = clean(text, bytes, &valid, err);
    for (int i = 0; around && i < t->num_before && rc == OK; i++)
        rc = token_list_add(tokens, (struct token){.id = t->before[i]}, err);
    THEN(find_added(&w, true, buffer_span(&valid), true));
    for (int i = 0; around && i < t->num_after && rc == OK; i++)
        rc = token_list_add(tokens, (struct token){.id = t->after[i]}, err);
    work_clear(&w);
    buffer_clear(&valid);
    return rc;
}
