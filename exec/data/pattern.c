/* Patterns of tokenizer files (pattern.h). PCRE2's \s contains U+180E, which Unicode has taken out of
 * White_Space, so spell_spaces() writes the characters out before PCRE2 sees the pattern.
 *
 * A pattern comes from a stranger. PCRE2 refuses \C, which would cut characters, and \K inside a
 * lookaround. A \K in a group that a lookaround calls passes its check, so pattern_next() looks at
 * every match. */
#include "exec/data/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Source: Unicode's PropList.txt, White_Space. */
#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"

/* A match may take this much memory, in KiB. PCRE2's own limit is 20 GB. */
enum { MATCH_KIB = 1 << 18 };

struct pattern {
    pcre2_code *code;             /* owned */
    pcre2_match_context *context; /* owned */
    char *text;                   /* owned; as the file spells it */
};

/* Write \s and \S out. *to is owned by the caller. */
static enum status spell_spaces(const char *from, char **to, struct err *err)
{
    char *out = malloc(strlen(from) * (sizeof SPACES + 4) + 1);
    size_t n = 0;
    bool in_class = false;
    if (!out)
        return err_nomem(err);
    for (const char *at = from; *at; at++) {
        if (*at == '\\' && (at[1] == 's' || at[1] == 'S')) {
            const bool no = at[1] == 'S';
            if (in_class && no) {
                free(out);
                return err_set(err, ERR_INPUT, "pattern '%.80s' has \\S inside a class", from);
            }
            n += (size_t)sprintf(out + n, in_class ? "%s%s" : "[%s%s]", no ? "^" : "", SPACES);
            at++;
            continue;
        }
        if (*at == '\\' && at[1]) {
            out[n++] = *at++;
        } else if (*at == '[' && !in_class) {
            in_class = true;
            if (at[1] == '^')
                out[n++] = *at++;
            if (at[1] == ']')
                out[n++] = *at++;
        } else if (*at == ']') {
            in_class = false;
        }
        out[n++] = *at;
    }
    out[n] = '\0';
    *to = out;
    return OK;
}

enum status pattern_new(const char *text, bool literal, struct pattern **pattern, struct err *err)
{
    struct pattern *got = calloc(1, sizeof *got);
    char *spelled = NULL;
    int why;
    PCRE2_SIZE where;
    enum status rc =
        got && (got->text = strdup(text)) && (got->context = pcre2_match_context_create(NULL))
            ? OK
            : err_nomem(err);
    if (rc == OK && !literal)
        rc = spell_spaces(text, &spelled, err);
    if (rc == OK) {
        pcre2_set_heap_limit(got->context, MATCH_KIB);
        got->code = pcre2_compile(
            (PCRE2_SPTR)(spelled ? spelled : text), PCRE2_ZERO_TERMINATED,
            PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C), &why,
            &where, NULL);
        if (!got->code) {
            PCRE2_UCHAR message[120];
            pcre2_get_error_message(why, message, sizeof message);
            rc = err_set(err, ERR_INPUT, "pattern '%.80s': %s", text, (const char *)message);
        }
    }
    if (rc == OK) {
        pcre2_jit_compile(got->code, PCRE2_JIT_COMPLETE); /* without it, matching is slower */
        *pattern = got;
        got = NULL;
    }
    free(spelled);
    pattern_free(got);
    return rc;
}

void pattern_free(struct pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    pcre2_match_context_free(pattern->context);
    free(pattern->text);
    free(pattern);
}

enum status pattern_search(const struct pattern *pattern, const char *text, size_t bytes,
                           struct pattern_search *search, struct err *err)
{
    *search = (struct pattern_search){.pattern = pattern, .text = text, .bytes = bytes};
    search->match = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    return search->match ? OK : err_nomem(err);
}

enum status pattern_next(struct pattern_search *search, bool *found, size_t *first, size_t *end,
                         struct err *err)
{
    const PCRE2_SPTR text = (PCRE2_SPTR)search->text;
    *found = false;
    if (search->empty_seen) { /* go on after the next character */
        search->at++;
        while (search->at < search->bytes && (text[search->at] & 0xc0) == 0x80)
            search->at++;
    }
    if (search->at > search->bytes)
        return OK;
    /* The first call checks that the text is UTF-8. */
    uint32_t options = search->checked ? PCRE2_NO_UTF_CHECK : 0;
    int rc = pcre2_match(search->pattern->code, text, search->bytes, search->at, options,
                         search->match, search->pattern->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(search->pattern->code, text, search->bytes, search->at,
                         options | PCRE2_NO_JIT, search->match, search->pattern->context);
    search->checked = true;
    if (rc == PCRE2_ERROR_NOMATCH)
        return OK;
    if (rc < 0) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(rc, message, sizeof message);
        return err_set(err, ERR_INPUT, "pattern '%.80s' fails on a text: %s", search->pattern->text,
                       (const char *)message);
    }
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(search->match);
    if (place[0] < search->last_end || place[1] < place[0])
        return err_set(err, ERR_INPUT,
                       "pattern '%.80s' is not supported: a match begins after its own end, or "
                       "before the end of the one before it (\\K in a lookaround)",
                       search->pattern->text);
    *found = true;
    *first = place[0];
    *end = search->at = search->last_end = place[1];
    search->empty_seen = place[0] == place[1];
    return OK;
}

void pattern_search_clear(struct pattern_search *search)
{
    pcre2_match_data_free(search->match);
    *search = (struct pattern_search){0};
}
