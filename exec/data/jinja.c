/* Chat templates (jinja.h): from a source to nodes (parse_body(), parse_expression()), and from nodes
 * to a text (run_body(), eval()). Values are in jinja_values.c. */
#include "exec/data/jinja.h"

#include <stdlib.h>
#include <string.h>

#include "exec/data/jinja_values.h"
#include "profiles/base/utf8.h"

enum { MAX_SOURCE = 1 << 20, MAX_DEPTH = 100 };

/* a, b, c, first: operands, by kind as parse_*() sets them; a chain of nodes goes by next. */
enum node_kind {
    N_DATA,       /* text */
    N_OUT,        /* a */
    N_IF,         /* a: condition, b: body, c: else */
    N_FOR,        /* first: names, a: of, b: body, c: else, d: condition */
    N_SET,        /* text: name, first: attribute of a namespace, a: value, b: body of a block */
    N_MACRO,      /* text: name, first: parameters (text, a: default), b: body */
    N_GENERATION, /* b: body */
    N_BREAK,
    N_CONTINUE,
    N_VALUE,  /* value */
    N_NAME,   /* text */
    N_LIST,   /* first */
    N_DICT,   /* first: pairs (a: key, b: value) */
    N_ITEM,   /* a[b] */
    N_SLICE,  /* a[b:c:d] */
    N_CALL,   /* a: of a name; first: arguments (text: name, a) */
    N_METHOD, /* a.text(first) */
    N_FILTER, /* a | text(first) */
    N_TEST,   /* a is text(first) */
    N_NOT,
    N_AND,
    N_OR,
    N_PICK,    /* b if a else c */
    N_COMPARE, /* a, then a chain of (op, a) */
    N_MATH,    /* a op b */
    N_ARG
};
struct node {
    enum node_kind kind;
    char op;
    int line;
    struct text text;
    struct value value;
    const struct named *function;
    struct node *a, *b, *c, *d, *first, *next;
};

struct jinja {
    struct machine machine; /* its memory holds the nodes */
    char *source;           /* owned */
    struct node *body;
    bool generates, has_date;
};

/* --- words of an expression ------------------------------------------------------------------------ */

enum word { W_END, W_NAME, W_INT, W_REAL, W_TEXT, W_SIGN };

struct parser {
    struct machine *m;
    struct jinja *jinja;
    const char *at, *end;
    /* The present word of a tag. */
    enum word word;
    struct text text;
    double real;
    int64_t whole;
    int brackets, depth;
    bool in_output; /* {{ }}, else {% %} */
    bool line_starts;
    const char *counted; /* lines up to here are in m->line */
};

static void count_lines(struct parser *p)
{
    for (; p->counted < p->at; p->counted++)
        p->m->line += *p->counted == '\n';
}

static bool starts(const struct parser *p, const char *text)
{
    const size_t n = strlen(text);
    return (size_t)(p->end - p->at) >= n && memcmp(p->at, text, n) == 0;
}

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void read_string(struct parser *p)
{
    static const char plain[] = "nrtabfv\\'\"", codes[] = "\n\r\t\a\b\f\v\\'\"";
    const char quote = *p->at++;
    const char *stop = p->at;
    while (stop < p->end && *stop != quote)
        stop += *stop == '\\' && stop + 1 < p->end ? 2 : 1;
    if (stop >= p->end)
        machine_fail(p->m, "a text has no end");
    char *to = machine_alloc(p->m, (size_t)(stop - p->at) + 4);
    size_t n = 0;
    for (const char *c = p->at; c < stop; c++) {
        const char *known;
        if (*c != '\\') {
            to[n++] = *c;
        } else if (c[1] == '\n') {
            c++;
        } else if (c[1] == 'x' || c[1] == 'u') {
            const int digits = c[1] == 'x' ? 2 : 4;
            char hex[5] = {0};
            memcpy(hex, c + 2, stop - c - 2 < digits ? (size_t)(stop - c - 2) : (size_t)digits);
            if (strspn(hex, "0123456789abcdefABCDEF") != (size_t)digits)
                machine_fail(p->m, "a text has a malformed \\%c", c[1]);
            n += (size_t)utf8_put((uint32_t)strtoul(hex, NULL, 16), to + n);
            c += 1 + digits;
        } else if (is_digit(c[1]) || c[1] == 'U' || c[1] == 'N') {
            machine_fail(p->m, "\\%c in a text is not supported", c[1]);
        } else if ((known = strchr(plain, c[1]))) {
            to[n++] = codes[known - plain];
            c++;
        } else {
            to[n++] = *c; /* an unknown escape stands for itself */
        }
    }
    p->at = stop + 1;
    p->word = W_TEXT;
    p->text = (struct text){to, NULL, n};
}

static void read_number(struct parser *p)
{
    char text[64];
    size_t n = 0;
    bool real = false;
    for (; p->at < p->end && n + 1 < sizeof text; p->at++) {
        const bool point = *p->at == '.' && !real && p->at + 1 < p->end && is_digit(p->at[1]);
        if (*p->at == '_')
            continue;
        if (!is_digit(*p->at) && !point)
            break;
        real |= point;
        text[n++] = *p->at;
    }
    text[n] = '\0';
    p->word = real ? W_REAL : W_INT;
    p->real = strtod(text, NULL);
    p->whole = strtoll(text, NULL, 10);
}

/* Read the next word of the tag; at its end W_END, with the place left at the end. */
static void advance(struct parser *p)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "//", "**", NULL};
    while (p->at < p->end && is_blank(*p->at))
        p->at++;
    count_lines(p);
    if (p->at >= p->end)
        machine_fail(p->m, "a tag has no end");
    const char *close = p->in_output ? "}}" : "%}";
    const bool sign = *p->at == '-' || *p->at == '+';
    p->at += sign;
    const bool ends = p->brackets == 0 && starts(p, close);
    p->at -= sign;
    p->text = (struct text){p->at, NULL, 1};
    p->word = W_SIGN;
    if (ends) {
        p->word = W_END;
    } else if (*p->at == '"' || *p->at == '\'') {
        read_string(p);
    } else if (is_digit(*p->at)) {
        read_number(p);
    } else if (is_alpha(*p->at)) {
        const char *begin = p->at;
        while (p->at < p->end && (is_alpha(*p->at) || is_digit(*p->at)))
            p->at++;
        p->word = W_NAME;
        p->text = (struct text){begin, NULL, (size_t)(p->at - begin)};
    } else {
        for (int i = 0; signs[i]; i++)
            if (starts(p, signs[i]))
                p->text.bytes = 2;
        p->brackets += strchr("([{", *p->at) != NULL;
        p->brackets -= strchr(")]}", *p->at) != NULL;
        p->at += p->text.bytes;
    }
}

static bool is(const struct parser *p, enum word word, const char *text)
{
    return p->word == word && text_is(p->text, text);
}

static bool skip(struct parser *p, enum word word, const char *text)
{
    const bool there = is(p, word, text);
    if (there)
        advance(p);
    return there;
}

static void need_sign(struct parser *p, const char *sign)
{
    if (!skip(p, W_SIGN, sign))
        machine_fail(p->m, "'%s' is missing before '%.*s'", sign, (int)p->text.bytes, p->text.at);
}

static struct text need_name(struct parser *p)
{
    const struct text name = p->text;
    if (p->word != W_NAME)
        machine_fail(p->m, "a name is missing before '%.*s'", (int)name.bytes, name.at);
    advance(p);
    return name;
}

/* --- expressions ----------------------------------------------------------------------------------- */

static struct node *node(struct parser *p, enum node_kind kind)
{
    struct node *n = machine_alloc(p->m, sizeof *n);
    n->kind = kind;
    n->line = p->m->line;
    return n;
}

static struct node *binary(struct parser *p, enum node_kind kind, char op, struct node *a,
                           struct node *b)
{
    struct node *n = node(p, kind);
    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

static struct node *parse_expression(struct parser *p);
static struct node *parse_unary(struct parser *p, bool filters);

/* Items up to a closing sign: arguments (name=value), of a list, or pairs of a mapping. */
static struct node *parse_items(struct parser *p, const char *close, bool pairs)
{
    struct node *first = NULL, **next = &first;
    int count = 0;
    while (!skip(p, W_SIGN, close)) {
        struct node *arg = node(p, N_ARG);
        if (count++ > 0) {
            need_sign(p, ",");
            if (skip(p, W_SIGN, close))
                break;
        }
        arg->a = parse_expression(p);
        if (pairs) {
            need_sign(p, ":");
            arg->b = parse_expression(p);
        } else if (arg->a->kind == N_NAME && is(p, W_SIGN, "=")) {
            advance(p);
            arg->text = arg->a->text;
            arg->a = parse_expression(p);
        }
        *next = arg;
        next = &arg->next;
    }
    return first;
}

static struct node *parse_primary(struct parser *p)
{
    struct node *n = node(p, N_VALUE);
    const struct text text = p->text;
    if (p->word == W_NAME) {
        static const char *const names[] = {"true", "True", "false", "False", "none", "None"};
        advance(p);
        n->kind = N_NAME;
        n->text = text;
        for (int i = 0; i < 6; i++)
            if (text_is(text, names[i])) {
                n->kind = N_VALUE;
                n->value = i < 4 ? value_bool(i < 2) : (struct value){.kind = K_NONE};
            }
        p->jinja->has_date |= text_is(text, "strftime_now");
    } else if (p->word == W_TEXT) {
        struct text all = {0};
        for (; p->word == W_TEXT; advance(p))
            all = text_join(p->m, all, p->text);
        n->value = value_text(all);
    } else if (p->word == W_INT || p->word == W_REAL) {
        n->value = p->word == W_INT ? value_int(p->whole)
                                    : (struct value){.kind = K_REAL, .real = p->real};
        advance(p);
    } else if (skip(p, W_SIGN, "[")) {
        n->kind = N_LIST;
        n->first = parse_items(p, "]", false);
    } else if (skip(p, W_SIGN, "{")) {
        n->kind = N_DICT;
        n->first = parse_items(p, "}", true);
    } else if (skip(p, W_SIGN, "(")) {
        n = parse_expression(p);
        if (is(p, W_SIGN, ",")) { /* a tuple */
            struct node *list = node(p, N_LIST), *head = node(p, N_ARG);
            head->a = n;
            list->first = head;
            advance(p);
            head->next = parse_items(p, ")", false);
            return list;
        }
        need_sign(p, ")");
    } else {
        machine_fail(p->m, "'%.*s' is not expected here", (int)text.bytes, text.at);
    }
    return n;
}

/* [index] or [first:end:step], after the bracket. */
static struct node *parse_subscript(struct parser *p, struct node *of)
{
    struct node *n = node(p, N_ITEM), **const parts[] = {&n->b, &n->c, &n->d};
    int part = 0;
    n->a = of;
    while (!is(p, W_SIGN, "]")) {
        if (skip(p, W_SIGN, ":")) {
            n->kind = N_SLICE;
            if (++part > 2)
                machine_fail(p->m, "a slice has more than three parts");
        } else if (*parts[part]) {
            machine_fail(p->m, "']' is missing before '%.*s'", (int)p->text.bytes, p->text.at);
        } else {
            *parts[part] = parse_expression(p);
        }
    }
    need_sign(p, "]");
    if (n->kind == N_ITEM && !n->b)
        machine_fail(p->m, "[] has no index");
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    for (;;) {
        if (skip(p, W_SIGN, ".")) {
            struct node *key = node(p, N_VALUE);
            key->value = p->word == W_INT ? value_int(p->whole) : value_text(p->text);
            if (p->word == W_INT)
                advance(p);
            else
                need_name(p);
            n = binary(p, N_ITEM, '.', n, key);
        } else if (skip(p, W_SIGN, "[")) {
            n = parse_subscript(p, n);
        } else if (skip(p, W_SIGN, "(")) {
            struct node *call = node(p, N_CALL);
            call->a = n;
            if (n->kind == N_ITEM && n->op == '.') {
                call->kind = N_METHOD;
                call->a = n->a;
                call->text = n->b->value.text;
                call->function = find_named(NAMED_METHOD, call->text);
                if (!call->function)
                    machine_fail(p->m, "method '%.*s' is not supported", (int)call->text.bytes,
                                 call->text.at);
            } else if (n->kind != N_NAME) {
                machine_fail(p->m, "a call of what is no name is not supported");
            }
            call->first = parse_items(p, ")", false);
            n = call;
        } else {
            return n;
        }
    }
}

static bool begins_value(const struct parser *p)
{
    static const char *const not_values[] = {"else", "or", "and", "if", "is", "in", "not"};
    for (size_t i = 0; i < sizeof not_values / sizeof *not_values; i++)
        if (is(p, W_NAME, not_values[i]))
            return false;
    return (p->word != W_SIGN && p->word != W_END) || is(p, W_SIGN, "[") || is(p, W_SIGN, "{");
}

static struct node *parse_test(struct parser *p, struct node *of)
{
    struct node *n = node(p, N_TEST);
    const bool no = skip(p, W_NAME, "not");
    n->a = of;
    n->text = need_name(p);
    n->function = find_named(NAMED_TEST, n->text);
    if (!n->function)
        machine_fail(p->m, "test '%.*s' is not supported", (int)n->text.bytes, n->text.at);
    if (skip(p, W_SIGN, "(")) {
        n->first = parse_items(p, ")", false);
    } else if (begins_value(p)) {
        n->first = node(p, N_ARG);
        n->first->a = parse_postfix(p, parse_primary(p));
    }
    return no ? binary(p, N_NOT, 0, n, NULL) : n;
}

static struct node *parse_unary(struct parser *p, bool filters)
{
    struct node *n;
    if (++p->depth > MAX_DEPTH)
        machine_fail(p->m, "an expression has more than %d levels", MAX_DEPTH);
    if (skip(p, W_SIGN, "-")) {
        struct node *zero = node(p, N_VALUE);
        zero->value = value_int(0);
        n = binary(p, N_MATH, '-', zero, parse_unary(p, false));
    } else if (skip(p, W_SIGN, "+")) {
        n = parse_unary(p, false);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    while (filters) {
        if (skip(p, W_SIGN, "|")) {
            struct node *filter = node(p, N_FILTER);
            filter->a = n;
            filter->text = need_name(p);
            filter->function = find_named(NAMED_FILTER, filter->text);
            if (!filter->function)
                machine_fail(p->m, "filter '%.*s' is not supported", (int)filter->text.bytes,
                             filter->text.at);
            if (skip(p, W_SIGN, "("))
                filter->first = parse_items(p, ")", false);
            n = filter;
        } else if (skip(p, W_NAME, "is")) {
            n = parse_test(p, n);
        } else {
            break;
        }
    }
    p->depth--;
    return n;
}

/* Levels of signs that bind alike, the strongest first: products, ~, sums. */
static struct node *parse_math(struct parser *p, int level)
{
    static const char *const signs[3][5] = {
        {"*",   "/", "//", "%", NULL},
        {"~", NULL   },
        {"+",     "-",   NULL     }
    };
    struct node *n = level == 0 ? parse_unary(p, true) : parse_math(p, level - 1);
    for (int i = 0; signs[level][i];) {
        const char *sign = signs[level][i++];
        if (!skip(p, W_SIGN, sign))
            continue;
        struct node *b = level == 0 ? parse_unary(p, true) : parse_math(p, level - 1);
        n = binary(p, N_MATH, sign[1] ? 'd' : *sign, n, b);
        i = 0;
    }
    return n;
}

/* The sign of a comparison, which is skipped; 0: none. 'i': in, 'n': not in. */
static char skip_comparison(struct parser *p)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (int i = 0; i < 6; i++)
        if (skip(p, W_SIGN, signs[i]))
            return "=!lg<>"[i];
    if (skip(p, W_NAME, "in"))
        return 'i';
    if (!is(p, W_NAME, "not"))
        return 0;
    advance(p);
    if (!skip(p, W_NAME, "in"))
        machine_fail(p->m, "'in' is missing after 'not'");
    return 'n';
}

static struct node *parse_not(struct parser *p)
{
    if (is(p, W_NAME, "not")) {
        if (++p->depth > MAX_DEPTH)
            machine_fail(p->m, "an expression has more than %d levels", MAX_DEPTH);
        advance(p);
        struct node *n = binary(p, N_NOT, 0, parse_not(p), NULL);
        p->depth--;
        return n;
    }
    struct node *n = parse_math(p, 2), *all = NULL, **next = NULL;
    for (char op; (op = skip_comparison(p));) {
        if (!all) {
            all = binary(p, N_COMPARE, 0, n, NULL);
            next = &all->first;
        }
        *next = binary(p, N_ARG, op, parse_math(p, 2), NULL);
        next = &(*next)->next;
    }
    return all ? all : n;
}

static struct node *parse_logic(struct parser *p, bool is_or)
{
    struct node *n = is_or ? parse_logic(p, false) : parse_not(p);
    while (skip(p, W_NAME, is_or ? "or" : "and")) {
        struct node *b = is_or ? parse_logic(p, false) : parse_not(p);
        n = binary(p, is_or ? N_OR : N_AND, 0, n, b);
    }
    return n;
}

static struct node *parse_expression(struct parser *p)
{
    if (++p->depth > MAX_DEPTH)
        machine_fail(p->m, "an expression has more than %d levels", MAX_DEPTH);
    struct node *n = parse_logic(p, true);
    while (skip(p, W_NAME, "if")) {
        struct node *pick = binary(p, N_PICK, 0, parse_logic(p, true), n);
        pick->c = skip(p, W_NAME, "else") ? parse_expression(p) : node(p, N_VALUE);
        n = pick;
    }
    p->depth--;
    return n;
}

/* --- statements ------------------------------------------------------------------------------------ */

/* Go past the end of a tag, and the white space that it takes. */
static void end_tag(struct parser *p)
{
    if (p->word != W_END)
        machine_fail(p->m, "'%.*s' is not expected here", (int)p->text.bytes, p->text.at);
    const char sign = *p->at;
    p->at += sign == '-' || sign == '+' ? 3 : 2;
    const char *before = p->at;
    if (sign == '-')
        while (p->at < p->end && is_blank(*p->at))
            p->at++;
    else if (sign != '+' && !p->in_output && p->at < p->end && *p->at == '\n')
        p->at++;
    p->line_starts = p->at > before && p->at[-1] == '\n';
    count_lines(p);
}

/* The text up to the next tag, without what that tag takes; the place is left inside the tag, after its
 * sign. NULL in *tag: the source ends. */
static struct text read_data(struct parser *p, const char **tag)
{
    const char *begin = p->at, *stop = begin;
    while (stop < p->end && !(stop + 1 < p->end && *stop == '{' && strchr("{%#", stop[1])))
        stop++;
    struct text text = {begin, NULL, (size_t)(stop - begin)};
    p->at = *tag = stop;
    count_lines(p);
    if (stop == p->end) {
        *tag = NULL;
        return text;
    }
    p->in_output = stop[1] == '{';
    p->at = stop + 2;
    const char sign = p->at < p->end ? *p->at : '\0';
    p->at += sign == '-' || (sign == '+' && !p->in_output);
    if (sign == '-') {
        while (text.bytes > 0 && is_blank(begin[text.bytes - 1]))
            text.bytes--;
    } else if (sign != '+' && !p->in_output) {
        size_t line = text.bytes;
        while (line > 0 && is_blank(begin[line - 1]) && begin[line - 1] != '\n')
            line--;
        if (line > 0 ? begin[line - 1] == '\n' : p->line_starts)
            text.bytes = line;
    }
    p->line_starts = false;
    return text;
}

static void skip_comment(struct parser *p)
{
    while (p->at < p->end && !starts(p, "#}"))
        p->at++;
    if (p->at >= p->end)
        machine_fail(p->m, "a comment has no end");
    p->at -= p->at[-1] == '-' || p->at[-1] == '+';
    p->word = W_END;
    end_tag(p);
}

static struct node *parse_body(struct parser *p, const char *const *ends);

static struct node *parse_block(struct parser *p, const char *const *ends)
{
    end_tag(p);
    return parse_body(p, ends);
}

static struct node *parse_if(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *n = node(p, N_IF);
    n->a = parse_expression(p);
    n->b = parse_block(p, ends);
    if (skip(p, W_NAME, "elif")) {
        n->c = parse_if(p);
        return n;
    }
    if (skip(p, W_NAME, "else"))
        n->c = parse_block(p, ends + 2);
    advance(p);
    return n;
}

static struct node *parse_for(struct parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct node *n = node(p, N_FOR), **next = &n->first;
    do {
        *next = node(p, N_NAME);
        (*next)->text = need_name(p);
        next = &(*next)->next;
    } while (skip(p, W_SIGN, ","));
    if (!skip(p, W_NAME, "in"))
        machine_fail(p->m, "'in' is missing in a for");
    n->a = parse_logic(p, true);
    if (skip(p, W_NAME, "if"))
        n->d = parse_expression(p);
    if (is(p, W_NAME, "recursive"))
        machine_fail(p->m, "'for ... recursive' is not supported");
    n->b = parse_block(p, ends);
    if (skip(p, W_NAME, "else"))
        n->c = parse_block(p, ends + 1);
    advance(p);
    return n;
}

static struct node *parse_set(struct parser *p)
{
    static const char *const ends[] = {"endset", NULL};
    struct node *n = node(p, N_SET);
    n->text = need_name(p);
    if (skip(p, W_SIGN, ".")) {
        n->first = node(p, N_NAME);
        n->first->text = need_name(p);
    }
    if (is(p, W_SIGN, ","))
        machine_fail(p->m, "'set' of several names is not supported");
    if (skip(p, W_SIGN, "=")) {
        n->a = parse_expression(p);
    } else {
        n->b = parse_block(p, ends);
        advance(p);
    }
    return n;
}

static struct node *parse_macro(struct parser *p)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct node *n = node(p, N_MACRO), **next = &n->first;
    n->text = need_name(p);
    need_sign(p, "(");
    for (int count = 0; !skip(p, W_SIGN, ")"); count++) {
        if (count > 0)
            need_sign(p, ",");
        if (count == MAX_ARGS)
            machine_fail(p->m, "a macro has more than %d parameters", MAX_ARGS);
        *next = node(p, N_ARG);
        (*next)->text = need_name(p);
        if (skip(p, W_SIGN, "="))
            (*next)->a = parse_expression(p);
        next = &(*next)->next;
    }
    n->b = parse_block(p, ends);
    advance(p);
    return n;
}

static struct node *parse_generation(struct parser *p)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct node *n = node(p, N_GENERATION);
    p->jinja->generates = true;
    n->b = parse_block(p, ends);
    advance(p);
    return n;
}

static struct node *parse_statement(struct parser *p)
{
    static const struct {
        const char *name;
        struct node *(*parse)(struct parser *p);
    } statements[] = {
        {"if",         parse_if        },
        {"for",        parse_for       },
        {"set",        parse_set       },
        {"macro",      parse_macro     },
        {"generation", parse_generation}
    };
    const struct text name = need_name(p);
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (text_is(name, statements[i].name))
            return statements[i].parse(p);
    if (text_is(name, "break") || text_is(name, "continue"))
        return node(p, text_is(name, "break") ? N_BREAK : N_CONTINUE);
    machine_fail(p->m, "statement '%.*s' is not supported", (int)name.bytes, name.at);
}

/* Nodes up to a tag that begins with a word of `ends`, which becomes the present word. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    struct node *first = NULL, **next = &first;
    const char *tag;
    if (++p->depth > MAX_DEPTH)
        machine_fail(p->m, "statements have more than %d levels", MAX_DEPTH);
    for (;;) {
        struct node *data = node(p, N_DATA);
        data->text = read_data(p, &tag);
        if (data->text.bytes > 0) {
            *next = data;
            next = &data->next;
        }
        if (!tag)
            break;
        if (tag[1] == '#') {
            skip_comment(p);
            continue;
        }
        p->brackets = 0;
        advance(p);
        if (p->in_output) {
            *next = binary(p, N_OUT, 0, parse_expression(p), NULL);
        } else {
            for (int i = 0; ends[i]; i++)
                if (is(p, W_NAME, ends[i])) {
                    p->depth--;
                    return first;
                }
            *next = parse_statement(p);
        }
        next = &(*next)->next;
        end_tag(p);
    }
    if (ends[0])
        machine_fail(p->m, "'%s' is missing", ends[0]);
    p->depth--;
    return first;
}

/* --- values ---------------------------------------------------------------------------------------- */

/* Names of a loop, a macro or the whole template. */
struct scope {
    struct dict names;
    struct scope *outer;
};
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct run {
    struct machine m;
    struct scope *scope, *top;
    struct builder *out;
    int generating;
};

static struct value eval(struct run *run, const struct node *n);
static enum flow run_body(struct run *run, const struct node *n);

static void put(struct run *run, struct text text)
{
    const size_t first = run->out->bytes;
    builder_add(&run->m, run->out, text);
    for (size_t i = first; run->generating && i < run->out->bytes; i++)
        run->out->marks[i] = JINJA_GENERATED;
}

static struct value find_name(const struct run *run, struct text name)
{
    struct value value = {.text = name};
    for (const struct scope *s = run->scope; s && value.kind == K_UNDEFINED; s = s->outer)
        value = dict_get(&s->names, name);
    return value;
}

static struct scope *new_scope(struct run *run, struct scope *outer)
{
    struct scope *scope = machine_alloc(&run->m, sizeof *scope);
    scope->outer = outer;
    return scope;
}

/* What a body writes, as a text. */
static struct value capture(struct run *run, const struct node *body)
{
    struct builder own = {0}, *before = run->out;
    run->out = &own;
    run_body(run, body);
    run->out = before;
    return value_text(builder_text(&own));
}

static struct args eval_args(struct run *run, const struct node *n)
{
    struct args args = {0};
    for (; n; n = n->next) {
        if (args.count == MAX_ARGS || args.num_named == MAX_ARGS)
            machine_fail(&run->m, "a call has more than %d arguments", MAX_ARGS);
        const struct value value = eval(run, n->a);
        if (n->text.bytes > 0)
            args.named[args.num_named++] = (struct pair){n->text, value};
        else
            args.at[args.count++] = value;
    }
    return args;
}

static struct value call_macro(struct run *run, const struct node *macro, const struct args *args)
{
    struct scope *scope = new_scope(run, run->top), *before = run->scope;
    int i = 0, taken = 0;
    for (const struct node *p = macro->first; p; p = p->next, i++) {
        struct value value = i < args->count ? args->at[i] : (struct value){.text = p->text};
        for (int k = 0; k < args->num_named; k++)
            if (p->text.bytes == args->named[k].key.bytes &&
                memcmp(p->text.at, args->named[k].key.at, p->text.bytes) == 0) {
                value = args->named[k].value;
                taken++;
            }
        if (value.kind == K_UNDEFINED && p->a)
            value = eval(run, p->a);
        dict_set(&run->m, &scope->names, p->text, value);
    }
    if (args->count > i || taken < args->num_named)
        machine_fail(&run->m, "arguments that a macro does not name are not supported");
    run->scope = scope;
    const struct value text = capture(run, macro->b);
    run->scope = before;
    return text;
}

static struct value eval_call(struct run *run, const struct node *n)
{
    const struct args args = eval_args(run, n->first);
    const struct text name = n->a->text;
    const struct value callee = find_name(run, name);
    if (callee.kind == K_MACRO)
        return call_macro(run, callee.macro, &args);
    const struct named *function =
        callee.kind == K_UNDEFINED ? find_named(NAMED_GLOBAL, name) : NULL;
    if (!function)
        machine_fail(&run->m, "function '%.*s' is not supported", (int)name.bytes, name.at);
    return value_call(&run->m, function, NULL, &args);
}

static bool compares(struct run *run, char op, const struct value *a, const struct value *b)
{
    switch (op) {
    case '=':
        return value_equal(&run->m, a, b);
    case '!':
        return !value_equal(&run->m, a, b);
    case 'i':
        return value_in(&run->m, a, b);
    case 'n':
        return !value_in(&run->m, a, b);
    case '<':
        return value_order(&run->m, a, b) < 0;
    case '>':
        return value_order(&run->m, a, b) > 0;
    case 'l':
        return value_order(&run->m, a, b) <= 0;
    default:
        return value_order(&run->m, a, b) >= 0;
    }
}

static struct value eval_compare(struct run *run, const struct node *n)
{
    struct value a = eval(run, n->a);
    for (const struct node *next = n->first; next; next = next->next) {
        const struct value b = eval(run, next->a);
        if (!compares(run, next->op, &a, &b))
            return value_bool(false);
        a = b;
    }
    return value_bool(true);
}

/* A list, a mapping, or a part of a value. */
static struct value eval_parts(struct run *run, const struct node *n)
{
    struct machine *m = &run->m;
    if (n->kind == N_SLICE) {
        const struct value none = {.kind = K_NONE}, of = eval(run, n->a);
        const struct value bounds[3] = {n->b ? eval(run, n->b) : none,
                                        n->c ? eval(run, n->c) : none,
                                        n->d ? eval(run, n->d) : none};
        return value_slice(m, &of, bounds);
    }
    const struct value made = n->kind == N_LIST ? value_list(m) : value_dict(m);
    for (const struct node *i = n->first; i; i = i->next) {
        const struct value first = eval(run, i->a);
        if (n->kind == N_LIST) {
            list_add(m, made.list, first);
            continue;
        }
        if (first.kind != K_TEXT)
            machine_fail(m, "a mapping has a key that is no text");
        dict_set(m, made.dict, first.text, eval(run, i->b));
    }
    return made;
}

static struct value eval_kind(struct run *run, const struct node *n)
{
    struct value a = {0}, b = {0};
    struct args args = {0};
    switch (n->kind) {
    case N_VALUE:
        return n->value;
    case N_NAME:
        a = find_name(run, n->text);
        if (a.kind == K_UNDEFINED && find_named(NAMED_GLOBAL, n->text))
            a.kind = K_MACRO; /* defined, and no value to write */
        return a;
    case N_CALL:
        return eval_call(run, n);
    case N_METHOD:
    case N_FILTER:
    case N_TEST:
        a = eval(run, n->a);
        args = eval_args(run, n->first);
        if (n->kind == N_METHOD && a.kind == K_UNDEFINED)
            machine_fail(&run->m, "'%.*s' is undefined", (int)a.text.bytes, a.text.at);
        return value_call(&run->m, n->function, &a, &args);
    case N_AND:
    case N_OR:
        a = eval(run, n->a);
        return value_true(&a) == (n->kind == N_OR) ? a : eval(run, n->b);
    case N_NOT:
        a = eval(run, n->a);
        return value_bool(!value_true(&a));
    case N_PICK:
        a = eval(run, n->a);
        return eval(run, value_true(&a) ? n->b : n->c);
    case N_COMPARE:
        return eval_compare(run, n);
    case N_ITEM:
    case N_MATH:
        a = eval(run, n->a);
        b = eval(run, n->b);
        return n->kind == N_ITEM ? value_item(&run->m, &a, &b)
                                 : value_arithmetic(&run->m, n->op, &a, &b);
    default:
        return eval_parts(run, n);
    }
}

static struct value eval(struct run *run, const struct node *n)
{
    struct machine *m = &run->m;
    m->line = n->line;
    machine_enter(m);
    const struct value value = eval_kind(run, n);
    m->depth--;
    m->line = n->line;
    return value;
}

/* --- statements ------------------------------------------------------------------------------------ */

static void bind(struct run *run, const struct node *names, const struct value *item)
{
    if (!names->next) {
        dict_set(&run->m, &run->scope->names, names->text, *item);
        return;
    }
    const struct list *parts = value_items(&run->m, item);
    int i = 0;
    for (const struct node *name = names; name; name = name->next, i++)
        if (i < parts->count)
            dict_set(&run->m, &run->scope->names, name->text, parts->items[i]);
    if (i != parts->count)
        machine_fail(&run->m, "%d names for %d values", i, parts->count);
}

static struct value loop_of(struct run *run, const struct list *items, int i)
{
    const struct value loop = value_dict(&run->m);
    const int n = items->count;
    const struct {
        const char *name;
        struct value value;
    } members[] = {
        {"index",     value_int(i + 1)                                             },
        {"index0",    value_int(i)                                                 },
        {"revindex",  value_int(n - i)                                             },
        {"revindex0", value_int(n - i - 1)                                         },
        {"first",     value_bool(i == 0)                                           },
        {"last",      value_bool(i == n - 1)                                       },
        {"length",    value_int(n)                                                 },
        {"previtem",  i > 0 ? items->items[i - 1] : (struct value){.text = {0}}    },
        {"nextitem",  i < n - 1 ? items->items[i + 1] : (struct value){.text = {0}}}
    };
    for (size_t k = 0; k < sizeof members / sizeof *members; k++)
        dict_set(&run->m, loop.dict, text_of(members[k].name), members[k].value);
    return loop;
}

static void run_for(struct run *run, const struct node *n)
{
    struct scope *before = run->scope;
    const struct value of = eval(run, n->a), kept = value_list(&run->m);
    const struct list *items = value_items(&run->m, &of);
    for (int i = 0; n->d && i < items->count; i++) {
        run->scope = new_scope(run, before);
        bind(run, n->first, &items->items[i]);
        const struct value is = eval(run, n->d);
        if (value_true(&is))
            list_add(&run->m, kept.list, items->items[i]);
    }
    items = n->d ? kept.list : items;
    enum flow flow = FLOW_ON;
    for (int i = 0; i < items->count && flow != FLOW_BREAK; i++) {
        run->scope = new_scope(run, before);
        dict_set(&run->m, &run->scope->names, text_of("loop"), loop_of(run, items, i));
        bind(run, n->first, &items->items[i]);
        flow = run_body(run, n->b);
    }
    run->scope = before;
    if (items->count == 0)
        run_body(run, n->c);
}

static void run_set(struct run *run, const struct node *n)
{
    const struct value value = n->a ? eval(run, n->a) : capture(run, n->b);
    if (!n->first) {
        dict_set(&run->m, &run->scope->names, n->text, value);
        return;
    }
    const struct value space = find_name(run, n->text);
    if (space.kind != K_DICT || !space.dict->is_namespace)
        machine_fail(&run->m, "'%.*s' is no namespace", (int)n->text.bytes, n->text.at);
    dict_set(&run->m, space.dict, n->first->text, value);
}

static enum flow run_body(struct run *run, const struct node *n)
{
    enum flow flow = FLOW_ON;
    machine_enter(&run->m);
    for (; n && flow == FLOW_ON; n = n->next) {
        struct value value;
        run->m.line = n->line;
        switch (n->kind) {
        case N_DATA:
            put(run, n->text);
            break;
        case N_OUT:
            value = eval(run, n->a);
            put(run, value_str(&run->m, &value));
            break;
        case N_IF:
            value = eval(run, n->a);
            flow = run_body(run, value_true(&value) ? n->b : n->c);
            break;
        case N_FOR:
            run_for(run, n);
            break;
        case N_SET:
            run_set(run, n);
            break;
        case N_MACRO:
            dict_set(&run->m, &run->scope->names, n->text,
                     (struct value){.kind = K_MACRO, .macro = n});
            break;
        case N_GENERATION:
            run->generating++;
            flow = run_body(run, n->b);
            run->generating--;
            break;
        default:
            flow = n->kind == N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        }
    }
    run->m.depth--;
    return flow;
}

/* --- templates ------------------------------------------------------------------------------------- */

enum status jinja_new(const char *source, struct jinja **jinja, struct err *err)
{
    static const char *const none[] = {NULL};
    struct jinja *got = calloc(1, sizeof *got);
    size_t n = 0;
    if (!got || !(got->source = malloc(strlen(source) + 1))) {
        free(got);
        return err_nomem(err);
    }
    got->machine = (struct machine){.err = err, .line = 1};
    for (const char *c = source; *c; c++) /* line ends, as Jinja reads them */
        if (*c != '\r' || c[1] != '\n')
            got->source[n++] = *c == '\r' ? '\n' : *c;
    n -= n > 0 && got->source[n - 1] == '\n';
    got->source[n] = '\0';
    struct parser p = {.m = &got->machine,
                       .jinja = got,
                       .at = got->source,
                       .end = got->source + n,
                       .counted = got->source,
                       .line_starts = true};
    if (setjmp(got->machine.out)) {
        const enum status rc = got->machine.rc;
        jinja_free(got);
        return rc;
    }
    if (n > MAX_SOURCE)
        machine_fail(&got->machine, "it has more than %d bytes", MAX_SOURCE);
    got->body = parse_body(&p, none);
    *jinja = got;
    return OK;
}

void jinja_free(struct jinja *jinja)
{
    if (!jinja)
        return;
    machine_clear(&jinja->machine);
    free(jinja->source);
    free(jinja);
}

bool jinja_generates(const struct jinja *jinja)
{
    return jinja->generates;
}

bool jinja_has_date(const struct jinja *jinja)
{
    return jinja->has_date;
}

void jinja_text_clear(struct jinja_text *text)
{
    free(text->at);
    free(text->marks);
    *text = (struct jinja_text){0};
}

/* A message; what an assistant says in it carries its mark. */
static struct value message_value(struct machine *m, const struct json *message, uint16_t mark)
{
    static const char *const said[] = {"content", "reasoning_content", "thinking", "tool_calls"};
    const char *role = json_string(json_get(message, "role"));
    const struct value value = value_from_json(m, message, 0);
    if (value.kind != K_DICT || !role || strcmp(role, "assistant") != 0)
        return value;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (json_get(message, said[i]))
            dict_set(m, value.dict, text_of(said[i]),
                     value_from_json(m, json_get(message, said[i]), mark));
    return value;
}

static void set_variables(struct run *run, const struct json *variables, bool marks)
{
    struct machine *m = &run->m;
    for (const struct json *v = json_first(variables); v; v = json_next(v)) {
        struct value value = value_list(m);
        int mark = 0;
        if (strcmp(json_key(v), "messages") != 0)
            value = value_from_json(m, v, 0);
        else if (json_count(v) > JINJA_MAX_MESSAGES)
            machine_fail(m, "more than %d messages", JINJA_MAX_MESSAGES);
        else
            for (const struct json *i = json_first(v); i; i = json_next(i))
                list_add(m, value.list, message_value(m, i, (uint16_t)(mark += marks)));
        dict_set(m, &run->top->names, text_of(json_key(v)), value);
    }
}

enum status jinja_render(const struct jinja *jinja, const struct json *variables,
                         struct jinja_text *text, struct err *err)
{
    struct run run = {
        .m = {.err = err, .line = 1}
    };
    struct builder out = {0};
    if (setjmp(run.m.out)) {
        machine_clear(&run.m);
        return run.m.rc;
    }
    run.out = &out;
    run.top = run.scope = new_scope(&run, NULL);
    set_variables(&run, variables, !jinja->generates);
    run_body(&run, jinja->body);
    struct jinja_text got = {malloc(out.bytes + 1), malloc((out.bytes + 1) * sizeof *got.marks),
                             out.bytes};
    if (got.at && got.marks) {
        if (out.bytes > 0) {
            memcpy(got.at, out.at, out.bytes);
            memcpy(got.marks, out.marks, out.bytes * sizeof *got.marks);
        }
        got.at[out.bytes] = '\0';
        *text = got;
    } else {
        run.m.rc = err_nomem(err);
        jinja_text_clear(&got);
    }
    machine_clear(&run.m);
    return run.m.rc;
}
