/* A reader of shell scripts that executes nothing.
 *
 * read_command() collects the words of one command and expands them. finish() applies assignments,
 * opens and closes ifs, loops and functions, and keeps the command with the most flags. An if is
 * entered if its test is known and true. Commands and assignments of other blocks are not executed:
 * their variables become unknown. Grammar: POSIX.1-2017, XCU 2 (Shell Command Language), and bash's
 * arrays and [[ ]]. */
#include "profiles/frameworks/shell_words.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"

struct list {
    char **item;
    int count;
};

struct variable {
    char *name;
    struct list value; /* more than one item: an array */
    bool known;
};

/* BLOCK_TEST: what && or || joins to a test, up to the end of the line. */
enum block_kind { BLOCK_IF, BLOCK_LOOP, BLOCK_CASE, BLOCK_FUNCTION, BLOCK_TEST };
struct block {
    enum block_kind kind;
    bool active;  /* its commands are executed */
    bool sure;    /* that is known */
    bool done;    /* a branch before was taken */
    bool pattern; /* BLOCK_CASE: the next words are one */
    char *word;   /* BLOCK_CASE, owned: what patterns meet; NULL: not known */
};
enum { BLOCKS_MAX = 64 };

struct script {
    const char *at, *what;
    int line;
    struct list arguments; /* borrowed */
    struct variable *variables;
    int num_variables;
    struct block blocks[BLOCKS_MAX];
    int num_blocks;
    struct list words;       /* of the current command */
    bool operators;          /* it has && or || */
    bool condition;          /* it is the test of an if */
    int before;              /* the branch before that test: 1 was taken, -1 is not known */
    bool function;           /* NAME() was read */
    bool vanished;           /* an array without items was expanded */
    struct list best, loose; /* the chosen command; a text of flags, line by line */
    int best_score;
    char *document;     /* the last heredoc */
    char delimiter[64]; /* of the heredoc that begins after this line */
    struct json *notes;
    bool nomem;
};

static void list_add(struct script *s, struct list *list, const char *text, size_t length)
{
    char *copy = strndup(text, length);
    if (!copy || !array_extend(&list->item, list->count, sizeof *list->item)) {
        s->nomem = true;
        free(copy);
        return;
    }
    list->item[list->count++] = copy;
}

static void list_clear(struct list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->item[i]);
    free(list->item);
    *list = (struct list){0};
}

static void note(struct script *s, const char *text, const char *more)
{
    char line[200];
    snprintf(line, sizeof line, "%.60s:%d: %s%.60s", s->what, s->line, text, more);
    json_add_string(s->notes, NULL, line);
}

static struct variable *variable_find(const struct script *s, const char *name, size_t length)
{
    for (int i = 0; i < s->num_variables; i++)
        if (strlen(s->variables[i].name) == length &&
            memcmp(s->variables[i].name, name, length) == 0)
            return &s->variables[i];
    return NULL;
}

static struct variable *variable_make(struct script *s, const char *name, size_t length)
{
    struct variable *found = variable_find(s, name, length);
    if (found)
        return found;
    char *copy = strndup(name, length);
    if (!copy || !array_extend(&s->variables, s->num_variables, sizeof *s->variables)) {
        s->nomem = true;
        free(copy);
        return NULL;
    }
    s->variables[s->num_variables] = (struct variable){.name = copy, .known = true};
    return &s->variables[s->num_variables++];
}

static bool runs(const struct script *s)
{
    for (int i = 0; i < s->num_blocks; i++)
        if (!s->blocks[i].active)
            return false;
    return true;
}

static bool is_name(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_')
            return false;
    return length > 0 && !isdigit((unsigned char)text[0]);
}

/* Length of a bracketed text that begins at text[0], brackets included; 0: it is not closed. */
static size_t balanced(const char *text, char open, char close)
{
    int depth = 0;
    char quote = '\0';
    for (size_t i = 0; text[i]; i++)
        if (quote)
            quote = text[i] == quote ? '\0' : quote;
        else if (text[i] == '\'' || text[i] == '"')
            quote = text[i];
        else if (text[i] == open)
            depth++;
        else if (text[i] == close && --depth == 0)
            return i + 1;
    return 0;
}

/* --- arithmetic -------------------------------------------------------------------------------- */

struct sum {
    struct script *script;
    const char *at, *end;
    bool known;
};

static long sum_of(struct sum *sum);

/* The number of NAME, $NAME, $1 or ${NAME:-8}. */
static long variable_of(struct sum *sum)
{
    const struct list *const arguments = &sum->script->arguments;
    const size_t signs = strspn(sum->at, "${");
    const bool brace = signs > 0 && sum->at[signs - 1] == '{';
    const char *text = NULL;
    char *after = NULL;
    sum->at += signs;
    size_t n = 0;
    while (sum->at + n < sum->end && is_name(sum->at, n + 1))
        n++;
    const struct variable *v = variable_find(sum->script, sum->at, n);
    if (v && v->known && v->value.count == 1)
        text = v->value.item[0];
    if (n == 0 && signs > 0 && isdigit((unsigned char)*sum->at)) {
        const int at = atoi(sum->at);
        n = strspn(sum->at, "0123456789");
        text = at > 0 && at <= arguments->count ? arguments->item[at - 1] : NULL;
    }
    sum->at += n;
    const size_t colon = brace && *sum->at == ':';
    if (brace && sum->at < sum->end && strchr("-=", sum->at[colon])) {
        text = text && *text ? text : sum->at + colon + 1;
        sum->at += strcspn(sum->at, "}");
    }
    const long value = text ? strtol(text, &after, 10) : 0;
    sum->known = sum->known && text && after != text && (!*after || *after == '}');
    return value;
}

static long factor_of(struct sum *sum)
{
    long value = 0;
    while (sum->at < sum->end && (isspace((unsigned char)*sum->at) || *sum->at == '"'))
        sum->at++;
    if (sum->at < sum->end && *sum->at == '(') {
        sum->at++;
        value = sum_of(sum);
        sum->known = sum->known && sum->at < sum->end && *sum->at == ')';
        sum->at++;
    } else if (sum->at < sum->end && isdigit((unsigned char)*sum->at)) {
        char *after;
        value = strtol(sum->at, &after, 10);
        sum->at = after;
    } else {
        value = variable_of(sum);
        while (sum->at < sum->end && *sum->at == '}')
            sum->at++;
    }
    while (sum->at < sum->end && (isspace((unsigned char)*sum->at) || *sum->at == '"'))
        sum->at++;
    return value;
}

static long product_of(struct sum *sum)
{
    long value = factor_of(sum);
    while (sum->known && sum->at < sum->end && strchr("*/%", *sum->at)) {
        const char op = *sum->at++;
        const long by = factor_of(sum);
        long product = 0;
        sum->known =
            sum->known && (op == '*' ? !__builtin_mul_overflow(value, by, &product) : by > 0);
        if (sum->known)
            value = op == '*' ? product : op == '/' ? value / by : value % by;
    }
    return value;
}

static long sum_of(struct sum *sum)
{
    long value = product_of(sum);
    while (sum->known && sum->at < sum->end && strchr("+-", *sum->at)) {
        const char op = *sum->at++;
        const long by = product_of(sum);
        sum->known = sum->known && (op == '+' ? !__builtin_add_overflow(value, by, &value)
                                              : !__builtin_sub_overflow(value, by, &value));
    }
    return value;
}

/* --- words --------------------------------------------------------------------------------------- */

/* A word that is being built: pieces of it that are complete go to `to`. */
struct building {
    char *text;
    size_t used, size;
    bool some;  /* it is a word, though perhaps an empty one */
    bool whole; /* it is the value of a variable: items of an array are joined */
    struct list *to;
};

static void build(struct script *s, struct building *b, const char *text, size_t length)
{
    if (b->used + length + 1 > b->size) {
        const size_t size = 2 * (b->used + length + 32);
        char *grown = realloc(b->text, size);
        if (!grown) {
            s->nomem = true;
            return;
        }
        b->text = grown;
        b->size = size;
    }
    memcpy(b->text + b->used, text, length);
    b->used += length;
    b->text[b->used] = '\0';
    b->some = true;
}

static void build_end(struct script *s, struct building *b)
{
    if (b->some)
        list_add(s, b->to, b->text ? b->text : "", b->used);
    b->used = 0;
    b->some = false;
}

/* Add a value, cut at blanks unless it is quoted. */
static void build_value(struct script *s, struct building *b, const char *text, bool quoted)
{
    if (quoted) {
        build(s, b, text, strlen(text));
        return;
    }
    while (*text) {
        const size_t blank = strspn(text, " \t\n"), n = strcspn(text + blank, " \t\n");
        if (blank > 0)
            build_end(s, b);
        if (n > 0)
            build(s, b, text + blank, n);
        text += blank + n;
    }
}

static enum status read_word(struct script *s, struct building *b, bool split, struct err *err);

/* Expand the value after :- or - of a parameter, which may itself have parameters. */
static enum status build_default(struct script *s, struct building *b, const char *text,
                                 size_t length, bool quoted, struct err *err)
{
    struct list parts = {0};
    struct building inner = {.to = &parts, .whole = b->whole};
    char *copy = strndup(text, length);
    const char *const after = s->at;
    enum status rc = copy ? OK : err_nomem(err);
    if (rc == OK && (!*copy || strpbrk(copy, " \t\n"))) { /* several words: as they are */
        build_value(s, b, copy, quoted);
    } else if (rc == OK) {
        s->at = copy;
        rc = read_word(s, &inner, false, err);
        build_end(s, &inner);
        for (int i = 0; i < parts.count; i++)
            build_value(s, b, parts.item[i], quoted);
    }
    s->at = after;
    free(inner.text);
    free(copy);
    list_clear(&parts);
    return rc;
}

static void build_items(struct script *s, struct building *b, const struct list *items, bool apart,
                        bool quoted)
{
    apart = apart && !b->whole;
    for (int i = 0; i < items->count; i++) {
        if (i > 0 && apart)
            build_end(s, b);
        else if (i > 0)
            build_value(s, b, " ", quoted);
        build_value(s, b, items->item[i], quoted);
    }
}

/* $((sum)), which is computed, or $(command), which is not: `n` characters in parentheses after the
 * dollar sign. */
static void build_sum(struct script *s, struct building *b, const char *dollar, size_t n)
{
    struct sum sum = {s, dollar + 3, dollar + n - 1, dollar[2] == '('};
    const long value = sum.known ? sum_of(&sum) : 0;
    char text[32];
    if (sum.known && sum.at == sum.end) {
        snprintf(text, sizeof text, "%ld", value);
        build(s, b, text, strlen(text));
    } else {
        build(s, b, dollar, n + 1);
    }
}

/* A parameter as it is written: $NAME, ${NAME} or ${NAME:-default}. */
struct parameter {
    const char *start, *name; /* at the dollar sign; after it and the brace */
    size_t length, name_length;
    const char *tail; /* what stands between the name and the closing brace */
    size_t tail_length;
};

/* How many characters at `id` are a name, a number or one of @ and *. */
static size_t name_length(const char *id, bool braced)
{
    size_t n = 0;
    while (is_name(id, n + 1))
        n++;
    if (n > 0)
        return n;
    return braced ? strspn(id, "0123456789@*")
                  : isdigit((unsigned char)*id) || *id == '@' || *id == '*';
}

/* False where a brace is not closed. */
static bool parameter_at(const char *start, struct parameter *p)
{
    const bool braced = start[1] == '{';
    const size_t n = braced ? balanced(start + 1, '{', '}') : 0;
    *p = (struct parameter){.start = start, .name = start + 1 + braced, .tail = ""};
    p->name_length = name_length(p->name, braced);
    p->length = braced ? n + 1 : p->name_length + 1;
    if (braced && n > 0) {
        p->tail = p->name + p->name_length;
        p->tail_length = (size_t)(start + p->length - 1 - p->tail);
    }
    return !braced || n > 0;
}

/* What a parameter stands for. */
struct meaning {
    const struct list *found; /* NULL: nothing */
    struct list first;        /* where that is one item of a list */
    bool known;               /* false: it has a value that nobody can tell */
    bool apart;               /* its items are words of their own */
    bool all;                 /* the tail says which items */
};

static void meaning_of(const struct script *s, const struct parameter *p, struct meaning *m)
{
    const struct variable *v = variable_find(s, p->name, p->name_length);
    const char c = p->name_length > 0 ? *p->name : '\0';
    *m = (struct meaning){.found = v && v->known ? &v->value : NULL, .known = !v || v->known};
    if (c == '@' || c == '*') {
        m->found = &s->arguments;
        m->apart = c == '@';
    } else if (isdigit((unsigned char)c)) {
        const int at = atoi(p->name);
        if (at > 0 && at <= s->arguments.count) {
            m->first = (struct list){&s->arguments.item[at - 1], 1};
            m->found = &m->first;
        }
    } else if (p->tail_length == 3 &&
               (strncmp(p->tail, "[@]", 3) == 0 || strncmp(p->tail, "[*]", 3) == 0)) {
        m->all = true;
        m->apart = p->tail[1] == '@';
    } else if (m->found && m->found->count > 1) { /* $ARRAY is its first item */
        m->first = (struct list){m->found->item, 1};
        m->found = &m->first;
    }
}

/* Expand what begins with the dollar sign at s->at. A value that is not known stays as written. */
static enum status read_dollar(struct script *s, struct building *b, bool quoted, struct err *err)
{
    const char *const start = s->at;
    if (start[1] == '(') {
        const size_t n = balanced(start + 1, '(', ')');
        if (n == 0)
            return err_set(err, ERR_INPUT, "%s:%d: a parenthesis is not closed", s->what, s->line);
        s->at = start + 1 + n;
        build_sum(s, b, start, n);
        return OK;
    }
    struct parameter p;
    if (!parameter_at(start, &p))
        return err_set(err, ERR_INPUT, "%s:%d: a brace is not closed", s->what, s->line);
    s->at = start + p.length;
    struct meaning m;
    meaning_of(s, &p, &m);
    const bool colon = *p.tail == ':', has_default = colon || *p.tail == '-' || *p.tail == '=';
    const bool readable =
        p.name_length > 0 && m.known && (p.tail_length == 0 || m.all || has_default);
    const bool empty =
        m.found && (m.found->count == 0 || (m.found->count == 1 && !m.found->item[0][0]));
    if (readable && m.found && !(colon && empty)) {
        s->vanished = m.apart && m.found->count == 0;
        if (m.apart || !empty || quoted)
            build_items(s, b, m.found, m.apart, quoted);
        b->some = b->some || (quoted && !m.apart);
        return OK;
    }
    if (readable && has_default && p.tail[colon] && strchr("-=", p.tail[colon]))
        return build_default(s, b, p.tail + colon + 1, p.tail_length - colon - 1, quoted, err);
    build(s, b, start, p.length);
    return OK;
}

/* Whether a text in single quotes is a command of a shell, which expands it: bash -c '...'. */
static bool is_command(const struct script *s)
{
    const int n = s->words.count;
    const char *const shell = n > 1 ? s->words.item[n - 2] : "", *const slash = strrchr(shell, '/');
    const char *const base = slash ? slash + 1 : shell;
    return n > 1 && strcmp(s->words.item[n - 1], "-c") == 0 &&
           (strcmp(base, "bash") == 0 || strcmp(base, "sh") == 0);
}

static enum status read_quoted(struct script *s, struct building *b, char quote, struct err *err)
{
    const bool before = b->some;
    const size_t used = b->used;
    b->some = true;
    s->vanished = false;
    for (s->at++; *s->at && *s->at != quote;) {
        if (*s->at == '\n')
            s->line++;
        if (*s->at == '\\' && s->at[1] && strchr("\\\"$`\n", s->at[1])) {
            if (s->at[1] != '\n')
                build(s, b, s->at + 1, 1);
            s->at += 2;
        } else if (*s->at == '$') {
            const enum status rc = read_dollar(s, b, true, err);
            if (rc != OK)
                return rc;
        } else {
            build(s, b, s->at++, 1);
        }
    }
    if (!*s->at)
        return err_set(err, ERR_INPUT, "%s:%d: a quote is not closed", s->what, s->line);
    s->at++;
    if (s->vanished && b->used == used)
        b->some = before; /* "$@" without arguments is no word */
    return OK;
}

/* Read up to a blank, or to a parenthesis that closes what the word did not open. */
static enum status read_word(struct script *s, struct building *b, bool split, struct err *err)
{
    enum status rc = OK;
    int depth = 0;
    while (*s->at && rc == OK) {
        const char c = *s->at;
        if (strchr(" \t\r\n", c) || (c == ')' && depth == 0))
            break;
        if (c == ';' && (!s->at[1] || strchr(" \t\n;", s->at[1])))
            break;
        if (c == '\\' && s->at[1] == '\n') {
            s->at += 2;
            s->line++;
        } else if (c == '\\' && s->at[1]) {
            build(s, b, s->at + 1, 1);
            s->at += 2;
        } else if (c == '\'' && is_command(s)) {
            rc = read_quoted(s, b, c, err);
        } else if (c == '\'') {
            const char *const end = strchr(s->at + 1, '\'');
            if (!end)
                return err_set(err, ERR_INPUT, "%s:%d: a quote is not closed", s->what, s->line);
            build(s, b, s->at + 1, (size_t)(end - s->at - 1));
            for (; s->at < end; s->at++)
                s->line += *s->at == '\n';
            s->at++;
        } else if (c == '"') {
            rc = read_quoted(s, b, c, err);
        } else if (c == '$') {
            rc = read_dollar(s, b, !split, err);
        } else if (c == '`') {
            const char *const end = strchr(s->at + 1, '`');
            const size_t n = end ? (size_t)(end - s->at) + 1 : strlen(s->at);
            build(s, b, s->at, n);
            s->at += n;
        } else {
            depth += (c == '(') - (c == ')');
            build(s, b, s->at++, 1);
        }
    }
    return rc;
}

/* --- commands ------------------------------------------------------------------------------------ */

static void skip_blanks(struct script *s, bool lines)
{
    for (;;) {
        if (s->at[0] == '\\' && (s->at[1] == '\n' || (s->at[1] == '\r' && s->at[2] == '\n'))) {
            s->at += s->at[1] == '\r' ? 3 : 2;
            s->line++;
        } else if (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || (lines && *s->at == '\n')) {
            s->line += *s->at == '\n';
            s->at++;
        } else if (*s->at == '#') {
            s->at += strcspn(s->at, "\n");
        } else {
            return;
        }
    }
}

/* Read the value of an assignment at s->at: a word, or items in parentheses (array). */
static enum status read_value(struct script *s, bool array, struct list *value, struct err *err)
{
    struct building b = {.to = value};
    enum status rc = OK;
    if (array) {
        s->at++;
        for (skip_blanks(s, true); rc == OK && *s->at && *s->at != ')'; skip_blanks(s, true)) {
            rc = read_word(s, &b, true, err);
            build_end(s, &b);
        }
        if (rc == OK && *s->at != ')')
            rc = err_set(err, ERR_INPUT, "%s:%d: a parenthesis is not closed", s->what, s->line);
        s->at += *s->at == ')';
    } else {
        b.whole = true;
        rc = read_word(s, &b, false, err);
        b.some = true;
        build_end(s, &b);
    }
    free(b.text);
    return rc;
}

/* A block that may run or not sets the variable: nobody knows its value then. */
static void doubt(struct script *s, struct variable *v)
{
    bool sure = true;
    for (int i = 0; i < s->num_blocks; i++)
        sure = sure && (s->blocks[i].active || s->blocks[i].sure);
    if (!sure && v->known) {
        v->known = false;
        note(s, "a block that is not evaluated sets ", v->name);
    }
}

/* Put a text behind the one that the variable has. */
static void lengthen(struct script *s, struct variable *v, const char *more)
{
    struct list sum = {0};
    struct building both = {.to = &sum};
    build(s, &both, v->value.item[0], strlen(v->value.item[0]));
    build(s, &both, more, strlen(more));
    build_end(s, &both);
    free(both.text);
    list_clear(&v->value);
    v->value = sum;
}

/* Read NAME=value, NAME+=value, NAME=(items) at s->at, if it is one. */
static enum status read_assignment(struct script *s, bool *was, struct err *err)
{
    const char *const name = s->at;
    size_t n = 0;
    while (is_name(name, n + 1))
        n++;
    const bool more = n > 0 && name[n] == '+' && name[n + 1] == '=';
    *was = n > 0 && (more || name[n] == '=');
    if (!*was)
        return OK;
    struct list value = {0};
    s->at = name + n + 1 + more;
    const bool array = *s->at == '(';
    const enum status rc = read_value(s, array, &value, err);
    struct variable *v = rc == OK ? variable_make(s, name, n) : NULL;
    if (v && !runs(s)) {
        doubt(s, v);
    } else if (v && more && !array && v->value.count == 1 && value.count == 1) {
        lengthen(s, v, value.item[0]);
    } else if (v) {
        if (!more)
            list_clear(&v->value);
        for (int i = 0; i < value.count; i++)
            list_add(s, &v->value, value.item[i], strlen(value.item[i]));
        v->known = true;
    }
    list_clear(&value);
    return rc;
}

/* The test of an if: 1 true, 0 false, -1 not known. */
static int test_of(const struct script *s)
{
    const struct list *w = &s->words;
    for (int i = 0; i < w->count; i++)
        if (strchr(w->item[i], '$') || strchr(w->item[i], '`'))
            return -1;
    if (s->operators || w->count < 3 || w->item[0][0] != '[')
        return -1;
    const char *const a = w->item[1], *const b = w->item[2];
    if (w->count == 4 && strcmp(a, "-z") == 0)
        return !*b;
    if (w->count == 4 && strcmp(a, "-n") == 0)
        return *b != '\0';
    if (w->count != 5)
        return -1;
    const char *const c = w->item[3];
    const long x = atol(a), y = atol(c);
    const struct {
        const char *op;
        int value;
    } ops[] = {
        {"=",       strcmp(a, c) == 0},
        {"==",         strcmp(a,              c) == 0},
        {"!=",  strcmp(a,c) != 0},
        {"-eq",x == y    },
        {"-ne",     x != y       },
        {"-gt",     x > y  },
        {"-ge",     x >= y   },
        {"-lt",     x < y  },
        {"-le",     x <= y   },
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i].op, b) == 0)
            return ops[i].value;
    return -1;
}

static void block_open(struct script *s, enum block_kind kind, int test)
{
    if (s->num_blocks < BLOCKS_MAX)
        s->blocks[s->num_blocks++] =
            (struct block){.kind = kind, .active = test > 0, .sure = test >= 0, .done = test > 0};
}

static void block_close(struct script *s)
{
    struct block *const last = &s->blocks[--s->num_blocks];
    free(last->word);
    last->word = NULL;
}

/* Begin a case: the word between `case` and `in`, if it is known. */
static void open_case(struct script *s)
{
    const struct list *w = &s->words;
    const bool known = w->count > 2 && !strpbrk(w->item[1], "$`");
    if (!known && runs(s))
        note(s, "a case is not evaluated: ", w->count > 1 ? w->item[1] : "");
    const int before = s->num_blocks;
    block_open(s, BLOCK_CASE, known ? 0 : -1);
    if (s->num_blocks > before) {
        s->blocks[before].word = known ? strdup(w->item[1]) : NULL;
        s->blocks[before].pattern = true;
    }
}

/* Take the words before a parenthesis as a pattern of a case: its commands run if it is the first that
 * the word meets. */
static void take_pattern(struct script *s, struct block *block)
{
    bool met = false;
    for (int i = 0; i < s->words.count; i++) {
        char *rest = NULL;
        for (char *part = strtok_r(s->words.item[i], "|", &rest); part && block->word;
             part = strtok_r(NULL, "|", &rest))
            met = met || fnmatch(part, block->word, 0) == 0;
    }
    block->active = met && !block->done;
    block->done = block->done || met;
    block->pattern = false;
    list_clear(&s->words);
}

/* Act on a word that begins a command, if it is one of the grammar. True: the word is used up. */
static bool keyword(struct script *s, const char *word)
{
    struct block *const last = s->num_blocks > 0 ? &s->blocks[s->num_blocks - 1] : NULL;
    static const char *const ends[] = {"fi", "done", "esac", "}"};
    for (int i = 0; i < 4; i++)
        if (strcmp(word, ends[i]) == 0) {
            if (last && (int)last->kind == i)
                block_close(s);
            return true;
        }
    if (strcmp(word, "if") == 0 || strcmp(word, "elif") == 0) {
        const bool branch = word[0] == 'e' && last && last->kind == BLOCK_IF;
        s->before = !branch ? 0 : !last->sure ? -1 : last->done;
        s->num_blocks -= branch;
        s->condition = true;
        return true;
    }
    if (strcmp(word, "else") == 0 && last && last->kind == BLOCK_IF) {
        last->active = last->sure && !last->done;
        return true;
    }
    if (strcmp(word, "{") == 0) {
        block_open(s, BLOCK_FUNCTION, s->function ? -1 : 1);
        s->function = false;
        return true;
    }
    return strcmp(word, "then") == 0 || strcmp(word, "do") == 0 || strcmp(word, "function") == 0;
}

static int flags_in(const struct list *words)
{
    int n = 0;
    for (int i = 0; i < words->count; i++)
        n += strncmp(words->item[i], "--", 2) == 0 || strstr(words->item[i], " --") != NULL;
    return n;
}

/* The words are the condition of an if, whose block begins. */
static void finish_condition(struct script *s)
{
    const struct list *w = &s->words;
    const int test = s->before > 0 ? 0 : s->before < 0 ? -1 : test_of(s);
    if (test < 0 && s->before == 0 && runs(s))
        note(s, "an if is not evaluated, and taken as false: ", w->item[w->count > 1]);
    block_open(s, BLOCK_IF, test);
    s->blocks[s->num_blocks - 1].done = test > 0 || s->before > 0;
    s->condition = false;
}

/* Keep the words if they are the command with most flags; one that runs comes before one that does not. */
static void offer_command(struct script *s)
{
    const int score = 2 * flags_in(&s->words) + (flags_in(&s->words) > 0 && runs(s));
    if (score > s->best_score) {
        list_clear(&s->best);
        s->best = s->words;
        s->best_score = score;
        s->words = (struct list){0};
    }
}

/* Take the command that was read. */
static void finish(struct script *s)
{
    struct list *w = &s->words;
    const char *const first = w->count > 0 ? w->item[0] : "";
    if (s->condition && w->count > 0) {
        finish_condition(s);
    } else if (strcmp(first, "for") == 0 || strcmp(first, "while") == 0 ||
               strcmp(first, "until") == 0) {
        if (runs(s))
            note(s, "a loop is not evaluated: ", first);
        block_open(s, BLOCK_LOOP, -1);
    } else if (strcmp(first, "case") == 0) {
        open_case(s);
    } else if (strcmp(first, "source") == 0 || strcmp(first, ".") == 0) {
        note(s, "not read: ", w->count > 1 ? w->item[1] : "");
    } else if (strncmp(first, "--", 2) == 0 || (s->loose.count > 0 && s->best_score == 0)) {
        for (int i = 0; i < w->count; i++)
            list_add(s, &s->loose, w->item[i], strlen(w->item[i]));
    } else if (w->count > 0 && strcmp(first, "echo") != 0 && strcmp(first, "printf") != 0) {
        offer_command(s);
    }
    list_clear(w);
    s->operators = false;
    while (s->num_blocks > 0 && s->blocks[s->num_blocks - 1].kind == BLOCK_TEST)
        s->num_blocks--;
}

/* Take the command before && or ||. After a test the next command runs as the test says. */
static void finish_part(struct script *s, bool both)
{
    const int blocks = s->num_blocks;
    const bool is_test = s->words.count > 1 && s->words.item[0][0] == '[';
    const int test = is_test ? test_of(s) : -1;
    if (is_test && test < 0 && runs(s))
        note(s, "a test is not evaluated, and taken as false: ", s->words.item[1]);
    finish(s);
    s->num_blocks = blocks; /* the line continues */
    if (is_test)
        block_open(s, BLOCK_TEST, (test > 0) == both);
}

/* Take the lines up to the delimiter. */
static void read_document(struct script *s)
{
    const char *const from = s->at;
    while (*s->at) {
        const size_t n = strcspn(s->at, "\n"), indent = strspn(s->at, "\t");
        const size_t want = strlen(s->delimiter);
        const bool last =
            n >= indent && n - indent == want && memcmp(s->at + indent, s->delimiter, want) == 0;
        if (last && runs(s)) {
            free(s->document);
            s->document = strndup(from, (size_t)(s->at - from));
        }
        s->at += n + (s->at[n] == '\n');
        s->line++;
        if (last)
            break;
    }
    s->delimiter[0] = '\0';
}

/* Read an operator between commands, or a redirection, at s->at. False: there is none. */
static bool read_operator(struct script *s)
{
    const char *const at = s->at;
    const size_t digits = strspn(at, "0123456789");
    if (strncmp(at, "<<", 2) == 0 && at[2] != '<') {
        s->at += 2 + (at[2] == '-');
        s->at += strspn(s->at, " \t");
        const size_t n = strcspn(s->at, " \t\r\n;|>)");
        size_t used = 0;
        for (size_t i = 0; i < n && used + 1 < sizeof s->delimiter; i++)
            if (!strchr("'\"\\", s->at[i]))
                s->delimiter[used++] = s->at[i];
        s->delimiter[used] = '\0';
        s->at += n;
        return true;
    }
    if (at[digits] == '>' || *at == '<' || strncmp(at, "&>", 2) == 0) {
        s->at += digits + strcspn(at + digits, "<>");
        s->at += strspn(s->at, "<>&|");
        s->at += strspn(s->at, " \t");
        s->at += strcspn(s->at, " \t\r\n;|)");
        return true;
    }
    if (strncmp(at, "&&", 2) == 0 || strncmp(at, "||", 2) == 0) {
        s->at += 2;
        if (s->condition)
            s->operators = true;
        else
            finish_part(s, *at == '&');
        return true;
    }
    if (strncmp(at, ";;", 2) == 0 && s->num_blocks > 0) {
        finish(s);
        struct block *const last = &s->blocks[s->num_blocks - 1];
        last->pattern = last->kind == BLOCK_CASE;
        s->at += 2;
        return true;
    }
    if (strchr("|&;()", *at) && *at) {
        const bool function = at[0] == '(' && at[1] == ')';
        s->at += function ? 2 : 1;
        if (function)
            s->function = true;
        if (!(*at == '(' && s->words.count > 0 && !function) || function)
            finish(s);
        return true;
    }
    return false;
}

static bool declares(const char *word)
{
    static const char *const words[] = {"export", "declare", "local", "readonly", "typeset"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

/* A parenthesis ends the pattern of a case, whose first one stands behind "case WORD in". */
static void end_pattern(struct script *s)
{
    if (s->words.count > 3 && strcmp(s->words.item[0], "case") == 0 &&
        strcmp(s->words.item[2], "in") == 0) {
        open_case(s);
        for (int i = 0; i < 3; i++) /* these are no pattern */
            s->words.item[i][0] = '\0';
    }
    struct block *const last = s->num_blocks > 0 ? &s->blocks[s->num_blocks - 1] : NULL;
    if (last && last->kind == BLOCK_CASE && last->pattern)
        take_pattern(s, last);
}

static void end_line(struct script *s)
{
    s->at++;
    s->line++;
    finish(s);
    if (s->delimiter[0])
        read_document(s);
}

/* Whether the word that was read is the name of a function or a keyword, which are no words of a command. */
static bool is_syntax(struct script *s, const struct building *b)
{
    if (s->words.count > 0)
        return false;
    if (b->used > 2 && strcmp(b->text + b->used - 2, "()") == 0)
        return s->function = true;
    return b->some && keyword(s, b->text ? b->text : "");
}

static enum status read_all(struct script *s, struct err *err)
{
    enum status rc = OK;
    struct building b = {.to = &s->words};
    while (*s->at && rc == OK && !s->nomem) {
        const bool begins = s->words.count == 0;
        skip_blanks(s, false);
        if (!*s->at)
            break;
        if (*s->at == '\n') {
            end_line(s);
            continue;
        }
        bool assigned = false;
        if (begins || declares(s->words.item[0]))
            rc = read_assignment(s, &assigned, err);
        const bool flag_before =
            !begins && strncmp(s->words.item[s->words.count - 1], "--", 2) == 0;
        if (rc != OK || assigned || (!(flag_before && *s->at == '(') && read_operator(s)))
            continue;
        rc = read_word(s, &b, true, err);
        if (begins && is_syntax(s, &b)) {
            b.used = 0;
            b.some = false;
        }
        build_end(s, &b);
        if (*s->at == ')') {
            s->at++;
            end_pattern(s);
        }
    }
    finish(s);
    free(b.text);
    return rc;
}

/* The words of all variables, cut at blanks. */
static void take_variables(struct script *s)
{
    struct building b = {.to = &s->best};
    for (int i = 0; i < s->num_variables; i++)
        for (int k = 0; k < s->variables[i].value.count; k++) {
            const struct list *value = &s->variables[i].value;
            if (flags_in(value) > 0)
                build_value(s, &b, value->item[k], value->count > 1);
            build_end(s, &b);
        }
    free(b.text);
}

/* Cut words that hold a whole command: bash -c "torchrun ...". */
static void cut_commands(struct script *s)
{
    struct list cut = {0};
    struct building b = {.to = &cut};
    for (int i = 0; i < s->best.count; i++) {
        const char *word = s->best.item[i];
        build_value(s, &b, word, strncmp(word, "--", 2) == 0 || !strstr(word, " --"));
        b.some = true;
        build_end(s, &b);
    }
    free(b.text);
    list_clear(&s->best);
    s->best = cut;
}

enum status shell_words_read(const char *text, const char *what, char *const *arguments,
                             int num_arguments, struct shell_words *words, struct err *err)
{
    struct script s = {
        .at = text,
        .what = what,
        .line = 1,
        .arguments = {(char **)(uintptr_t)arguments, num_arguments},
        .notes = json_array_new()
    };
    struct json *names = json_object_new();
    enum status rc = read_all(&s, err);
    if (rc == OK && s.loose.count > 0) { /* a file of flags, alone or after its command */
        if (s.best.count > 0)
            note(&s, "lines of flags, taken with the command (is a backslash missing before?): ",
                 s.loose.item[0]);
        for (int i = 0; i < s.loose.count; i++)
            list_add(&s, &s.best, s.loose.item[i], strlen(s.loose.item[i]));
    } else if (rc == OK && s.best.count == 0) {
        take_variables(&s);
    }
    if (rc == OK)
        cut_commands(&s);
    if (rc == OK && s.nomem)
        rc = err_nomem(err);
    for (int i = 0; i < s.num_variables; i++)
        if (s.variables[i].known && s.variables[i].value.count == 1)
            json_add_string(names, s.variables[i].name, s.variables[i].value.item[0]);
    THEN(json_check(s.notes, err));
    THEN(json_check(names, err));
    if (rc == OK) {
        *words = (struct shell_words){s.best.item, s.best.count, s.document, names, s.notes};
        s.best = (struct list){0};
    } else {
        json_free(s.notes);
        json_free(names);
        free(s.document);
    }
    while (s.num_blocks > 0)
        block_close(&s);
    for (int i = 0; i < s.num_variables; i++) {
        free(s.variables[i].name);
        list_clear(&s.variables[i].value);
    }
    free(s.variables);
    list_clear(&s.words);
    list_clear(&s.loose);
    list_clear(&s.best);
    return rc;
}

void shell_words_clear(struct shell_words *words)
{
    for (int i = 0; i < words->count; i++)
        free(words->word[i]);
    free(words->word);
    free(words->document);
    json_free(words->names);
    json_free(words->notes);
    *words = (struct shell_words){0};
}
