/* From a text to tokens (tokenizer.h). tokenizer_encode() at the end first; each step hands its parts
 * to the next one: find_added(), tokenizer_normalize(), split_text(), join_word(). */
#include <stdlib.h>
#include <string.h>

#include "exec/data/tokenizer.h"
#include "exec/data/tokenizer_parts.h"
#include "profiles/base/utf8.h"

enum { MAX_TEXT = 1 << 30 };

/* A character of a word; `next` and `prev` are indices, -1: none. id -1: it has joined another. */
struct symbol {
    int32_t id, prev, next;
};
/* A join that may be due: the pair that begins at symbol `at`. */
struct join {
    int32_t rank, at, id;
};

struct work {
    const struct tokenizer *t;
    struct token_list *tokens;
    struct buffer texts[MAX_STEPS], words[MAX_STEPS]; /* owned; what a step has changed: its text,
                                                         and the word that it hands on */
    struct symbol *symbols;                           /* owned */
    struct join *heap; /* owned; the lowest rank first, then the first place */
    size_t num_symbols, room_symbols, num_joins, room_joins;
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
    if (w->num_joins == w->room_joins) {
        const size_t room = 2 * w->room_joins + 64;
        struct join *heap = realloc(w->heap, room * sizeof *heap);
        if (!heap)
            return err_nomem(w->err);
        w->heap = heap;
        w->room_joins = room;
    }
    const struct join join = {w->t->merges[found].rank, at, w->t->merges[found].id};
    size_t i = w->num_joins++;
    for (; i > 0 && before(&join, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = join;
    return OK;
}

static struct join pop_join(struct work *w)
{
    const struct join top = w->heap[0], last = w->heap[--w->num_joins];
    size_t i = 0;
    for (size_t child = 1; child < w->num_joins; child = 2 * i + 1) {
        child += child + 1 < w->num_joins && before(&w->heap[child + 1], &w->heap[child]);
        if (!before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

static enum status add_symbol(struct work *w, int32_t id)
{
    if (w->num_symbols == w->room_symbols) {
        const size_t room = 2 * w->room_symbols + 64;
        struct symbol *symbols = realloc(w->symbols, room * sizeof *symbols);
        if (!symbols)
            return err_nomem(w->err);
        w->symbols = symbols;
        w->room_symbols = room;
    }
    const int32_t at = (int32_t)w->num_symbols++;
    w->symbols[at] = (struct symbol){id, at - 1, -1};
    if (at > 0)
        w->symbols[at - 1].next = at;
    return OK;
}

/* The tokens of one character that the vocabulary lacks: its bytes, else the unknown token.
 * *unknown_open: the last unknown token waits to be joined by the next one (fuse_unk). */
static enum status add_unknown(struct work *w, const char *text, size_t bytes, bool *unknown_open)
{
    bool whole = w->t->byte_fallback;
    for (size_t i = 0; i < bytes && whole; i++)
        whole = w->t->byte_ids[(unsigned char)text[i]] >= 0;
    enum status rc = OK;
    if (whole) {
        for (size_t i = 0; i < bytes && rc == OK; i++)
            rc = add_symbol(w, w->t->byte_ids[(unsigned char)text[i]]);
    } else if (w->t->unknown >= 0) {
        if (!*unknown_open || !w->t->fuse_unknown)
            rc = add_symbol(w, w->t->unknown);
        *unknown_open = true;
    }
    return rc;
}

/* Append the tokens of a word: always the pair of the lowest rank joins, of several the first.
 * O(n log n). */
static enum status join_word(struct work *w, const char *text, size_t bytes)
{
    const struct tokenizer *t = w->t;
    bool unknown_open = false;
    enum status rc = OK;
    if (t->ignore_merges) {
        const int32_t id = vocab_find(&t->vocab, text, bytes);
        if (id >= 0)
            return token_list_add(w->tokens, (struct token){.id = id}, w->err);
    }
    w->num_symbols = w->num_joins = 0;
    for (size_t at = 0, next; at < bytes && rc == OK; at = next) {
        next = at;
        utf8_next(text, bytes, &next);
        const int32_t id = vocab_find(&t->vocab, text + at, next - at);
        if (id < 0) {
            rc = add_unknown(w, text + at, next - at, &unknown_open);
        } else {
            unknown_open = false;
            rc = add_symbol(w, id);
        }
    }
    for (size_t i = 0; i < w->num_symbols && rc == OK; i++)
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
        right->id = -1;
        if (left->next >= 0)
            w->symbols[left->next].prev = join.at;
        rc = push_join(w, left->prev);
        THEN(push_join(w, join.at));
    }
    for (int32_t i = w->num_symbols > 0 ? 0 : -1; i >= 0 && rc == OK; i = w->symbols[i].next)
        rc = token_list_add(w->tokens, (struct token){.id = w->symbols[i].id}, w->err);
    return rc;
}

/* --- words ------------------------------------------------------------------------------------ */

static enum status split_text(struct work *w, int step, const char *text, size_t bytes, bool first);

/* The part that a step has not handed on, because the next one may belong to it. */
struct part {
    bool open, match;
    size_t first, end;
};

/* Hand a part of a text to the next step; `first`: the text is the beginning of all. */
static enum status hand_on(struct work *w, int step, const char *text, const struct part *part,
                           bool first)
{
    size_t bytes = part->end - part->first;
    struct buffer *to = &w->words[step];
    enum status rc = OK;
    text += part->first;
    if (!part->open || bytes == 0)
        return OK;
    if (w->t->splits[step].kind == SPLIT_BYTES) {
        to->bytes = 0;
        for (size_t i = 0; i < bytes && rc == OK; i++) {
            char one[4];
            rc = buffer_put(to, one, (size_t)byte_char((unsigned char)text[i], one), w->err);
        }
        text = to->at;
        bytes = to->bytes;
    }
    return rc == OK ? split_text(w, step + 1, text, bytes, first && part->first == 0) : rc;
}

/* Add the next part of a text, of matches or between them, to the part that is open, or hand that on
 * and open it. The rules are those of `tokenizers`, SplitDelimiterBehavior. */
static enum status add_part(struct work *w, int step, const char *text, struct part next,
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

static enum status cut(struct work *w, int step, const char *text, size_t bytes, bool first)
{
    const struct split_step *s = &w->t->splits[step];
    struct part open = {0};
    struct pattern_search search;
    size_t at = 0, from, end;
    bool found;
    if (!s->pattern)
        return hand_on(w, step, text, &(struct part){true, false, 0, bytes}, first);
    enum status rc = pattern_search(s->pattern, text, bytes, &search, w->err);
    if (rc != OK)
        return rc;
    while ((rc = pattern_next(&search, &found, &from, &end, w->err)) == OK && found) {
        if (from > at)
            rc = add_part(w, step, text, (struct part){true, s->invert, at, from}, &open, first);
        if (rc == OK && end > from)
            rc = add_part(w, step, text, (struct part){true, !s->invert, from, end}, &open, first);
        at = end;
        if (rc != OK)
            break;
    }
    if (rc == OK && at < bytes)
        rc = add_part(w, step, text, (struct part){true, s->invert, at, bytes}, &open, first);
    THEN(hand_on(w, step, text, &open, first));
    pattern_search_clear(&search);
    return rc;
}

/* Cut a text into words by the steps from `step` on, and append their tokens. */
static enum status split_text(struct work *w, int step, const char *text, size_t bytes, bool first)
{
    if (bytes == 0)
        return OK;
    if (step == w->t->num_splits)
        return join_word(w, text, bytes);
    const struct split_step *s = &w->t->splits[step];
    struct buffer *to = &w->texts[step];
    const char *mark = s->kind == SPLIT_METASPACE ? s->mark : " ";
    const size_t mark_bytes = strlen(mark);
    const bool begins = s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && first);
    enum status rc = OK;
    if (s->kind == SPLIT_PATTERN || (s->kind == SPLIT_BYTES && !begins))
        return cut(w, step, text, bytes, first);
    to->bytes = 0;
    for (size_t i = 0; i < bytes && rc == OK; i++)
        rc = text[i] == ' ' ? buffer_put(to, mark, mark_bytes, w->err)
                            : buffer_put(to, text + i, 1, w->err);
    if (rc == OK && begins && (to->bytes < mark_bytes || memcmp(to->at, mark, mark_bytes) != 0)) {
        rc = buffer_put(to, mark, mark_bytes, w->err);
        if (rc == OK) {
            memmove(to->at + mark_bytes, to->at, to->bytes - mark_bytes);
            memcpy(to->at, mark, mark_bytes);
        }
    }
    return rc == OK ? cut(w, step, to->at, to->bytes, first) : rc;
}

/* --- added tokens ----------------------------------------------------------------------------- */

/* White_Space of Unicode's PropList.txt. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

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

static enum status normal_part(struct work *w, const char *text, size_t bytes, bool first);

/* Append the added tokens of a text, and what is between them by the next step: of the raw text
 * normal_part(), of a normalized one split_text(). */
static enum status find_added(struct work *w, bool raw, const char *text, size_t bytes, bool first)
{
    const struct tokenizer *t = w->t;
    const struct markers *markers = raw ? &t->raw : &t->normal;
    enum status rc = OK;
    for (size_t at = 0, look = 0; rc == OK && at < bytes;) {
        size_t length, end = bytes, stop = bytes;
        int32_t id = -1;
        const size_t found = markers_next(markers, text, bytes, look, &length, &id);
        if (length > 0) {
            look = stop = found + length;
            if (t->added[id].special && !t->find_special)
                continue;
            end = t->added[id].left ? space_before(text, at, found) : found;
            if (t->added[id].right)
                look = stop = space_after(text, bytes, stop);
        }
        if (end > at && raw)
            rc = normal_part(w, text + at, end - at, first && at == 0);
        else if (end > at)
            rc = split_text(w, 0, text + at, end - at, first && at == 0);
        if (rc == OK && length > 0)
            rc = token_list_add(w->tokens, (struct token){.id = id}, w->err);
        at = stop;
    }
    return rc;
}

static enum status normal_part(struct work *w, const char *text, size_t bytes, bool first)
{
    char *normal = NULL;
    size_t normal_bytes = 0;
    enum status rc = tokenizer_normalize(w->t, text, bytes, &normal, &normal_bytes, w->err);
    THEN(find_added(w, false, normal, normal_bytes, first));
    free(normal);
    return rc;
}

/* --- a whole text ----------------------------------------------------------------------------- */

/* Copy a text with U+FFFD in place of bytes that are not UTF-8. */
static enum status clean(const char *text, size_t bytes, struct buffer *to, struct err *err)
{
    enum status rc = OK;
    for (size_t at = 0; at < bytes && rc == OK;) {
        char one[4];
        const uint32_t code = utf8_next(text, bytes, &at);
        rc = buffer_put(to, one, (size_t)utf8_put(code, one), err);
    }
    return rc;
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, bool around,
                             struct token_list *tokens, struct err *err)
{
    struct work w = {.t = t, .tokens = tokens, .err = err};
    struct buffer valid = {0};
    if (bytes > MAX_TEXT)
        return err_set(err, ERR_INPUT, "a text of %zu bytes is too long, limit %d", bytes,
                       MAX_TEXT);
    enum status rc = clean(text, bytes, &valid, err);
    for (int i = 0; around && i < t->num_before && rc == OK; i++)
        rc = token_list_add(tokens, (struct token){.id = t->before[i]}, err);
    THEN(find_added(&w, true, valid.at, valid.bytes, true));
    for (int i = 0; around && i < t->num_after && rc == OK; i++)
        rc = token_list_add(tokens, (struct token){.id = t->after[i]}, err);
    for (int i = 0; i < MAX_STEPS; i++) {
        free(w.texts[i].at);
        free(w.words[i].at);
    }
    free(w.symbols);
    free(w.heap);
    free(valid.at);
    return rc;
}
