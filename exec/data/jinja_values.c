#include "exec/data/jinja_values.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "profiles/base/utf8.h"

enum { BLOCK_BYTES = 1 << 16, MAX_BYTES = 256 << 20, MAX_LEVELS = 64, MAX_INDENT = 16 };
enum { MAX_CALLS = 400, MAX_STEPS = 10000000 };

struct block {
    struct block *next;
    size_t used, room;
    max_align_t at[];
};

void machine_fail(struct machine *m, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    m->rc = err_set(m->err, ERR_INPUT, "chat template line %d: %s", m->line, text);
    longjmp(m->out, 1);
}

void *machine_alloc(struct machine *m, size_t bytes)
{
    const size_t unit = sizeof(max_align_t);
    bytes = (bytes + unit) / unit * unit;
    if (!m->blocks || m->blocks->room - m->blocks->used < bytes) {
        const size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        if (bytes > MAX_BYTES || m->bytes + room > MAX_BYTES)
            machine_fail(m, "it needs more than %d MiB", MAX_BYTES >> 20);
        struct block *block = calloc(1, sizeof *block + room);
        if (!block) {
            m->rc = err_nomem(m->err);
            longjmp(m->out, 1);
        }
        *block = (struct block){.next = m->blocks, .room = room};
        m->blocks = block;
        m->bytes += room;
    }
    void *got = (char *)m->blocks->at + m->blocks->used;
    m->blocks->used += bytes;
    return got;
}

void machine_clear(struct machine *m)
{
    while (m->blocks) {
        struct block *next = m->blocks->next;
        free(m->blocks);
        m->blocks = next;
    }
}

void machine_enter(struct machine *m)
{
    if (++m->steps > MAX_STEPS)
        machine_fail(m, "it takes more than %d steps", MAX_STEPS);
    if (++m->depth > MAX_CALLS)
        machine_fail(m, "calls have more than %d levels", MAX_CALLS);
}

/* --- texts -------------------------------------------------------------------------------------- */

struct text text_of(const char *text)
{
    return (struct text){text, NULL, strlen(text)};
}

static struct text text_part(struct text text, size_t first, size_t end)
{
    return (struct text){text.at + first, text.marks ? text.marks + first : NULL, end - first};
}

bool text_is(struct text text, const char *word)
{
    return text.bytes == strlen(word) && memcmp(text.at, word, text.bytes) == 0;
}

static bool same(struct text a, struct text b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.at, b.at, a.bytes) == 0);
}

struct text text_join(struct machine *m, struct text a, struct text b)
{
    if (a.bytes == 0 || b.bytes == 0)
        return a.bytes == 0 ? b : a;
    char *at = machine_alloc(m, a.bytes + b.bytes);
    uint16_t *marks =
        a.marks || b.marks ? machine_alloc(m, (a.bytes + b.bytes) * sizeof *marks) : NULL;
    memcpy(at, a.at, a.bytes);
    memcpy(at + a.bytes, b.at, b.bytes);
    if (a.marks)
        memcpy(marks, a.marks, a.bytes * sizeof *marks);
    if (b.marks)
        memcpy(marks + a.bytes, b.marks, b.bytes * sizeof *marks);
    return (struct text){at, marks, a.bytes + b.bytes};
}

void builder_add(struct machine *m, struct builder *b, struct text text)
{
    if (b->bytes + text.bytes > b->room) {
        const struct builder old = *b;
        b->room = 2 * (b->bytes + text.bytes) + 64;
        b->at = machine_alloc(m, b->room);
        b->marks = machine_alloc(m, b->room * sizeof *b->marks);
        if (old.bytes > 0) {
            memcpy(b->at, old.at, old.bytes);
            memcpy(b->marks, old.marks, old.bytes * sizeof *b->marks);
        }
    }
    if (text.bytes == 0)
        return;
    memcpy(b->at + b->bytes, text.at, text.bytes);
    if (text.marks)
        memcpy(b->marks + b->bytes, text.marks, text.bytes * sizeof *b->marks);
    b->bytes += text.bytes;
}

struct text builder_text(const struct builder *builder)
{
    return (struct text){builder->at, builder->marks, builder->bytes};
}

/* The first place of `needle` in text[from ..); text.bytes + 1: nowhere. */
static size_t find(struct text text, struct text needle, size_t from)
{
    for (; from + needle.bytes <= text.bytes; from++)
        if (needle.bytes == 0 || memcmp(text.at + from, needle.at, needle.bytes) == 0)
            return from;
    return text.bytes + 1;
}

static int64_t count_chars(struct text text)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.bytes; i++)
        n += ((unsigned char)text.at[i] & 0xc0) != 0x80;
    return n;
}

/* The byte where character i begins; the end, if there are no more. */
static size_t char_at(struct text text, int64_t i)
{
    size_t at = 0;
    for (; at < text.bytes; at++)
        if (((unsigned char)text.at[at] & 0xc0) != 0x80 && i-- == 0)
            break;
    return at;
}

static struct text next_char(struct text text, size_t *at)
{
    const size_t first = *at;
    utf8_next(text.at, text.bytes, at);
    return text_part(text, first, *at);
}

/* What Python's str.isspace() says of one character. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Whether a character is to be stripped: one of `set`, or white space without one. */
static bool strips(struct text one, const struct value *set)
{
    size_t at = 0;
    if (set && set->kind == K_TEXT)
        return find(set->text, one, 0) <= set->text.bytes;
    return is_space(utf8_next(one.at, one.bytes, &at));
}

static struct text strip(struct text text, const struct value *set, bool left, bool right)
{
    size_t first = 0, end = text.bytes;
    while (left && first < end) {
        size_t next = first;
        if (!strips(next_char(text, &next), set))
            break;
        first = next;
    }
    while (right && end > first) {
        size_t one = end - 1;
        while (one > first && ((unsigned char)text.at[one] & 0xc0) == 0x80)
            one--;
        if (!strips(text_part(text, one, end), set))
            break;
        end = one;
    }
    return text_part(text, first, end);
}

/* --- values ------------------------------------------------------------------------------------- */

struct value value_text(struct text text)
{
    return (struct value){.kind = K_TEXT, .text = text};
}
struct value value_int(int64_t whole)
{
    return (struct value){.kind = K_INT, .whole = whole};
}
struct value value_bool(bool is)
{
    return (struct value){.kind = K_BOOL, .whole = is};
}
struct value value_list(struct machine *m)
{
    return (struct value){.kind = K_LIST, .list = machine_alloc(m, sizeof(struct list))};
}
struct value value_dict(struct machine *m)
{
    return (struct value){.kind = K_DICT, .dict = machine_alloc(m, sizeof(struct dict))};
}

void list_add(struct machine *m, struct list *list, struct value value)
{
    if (list->count == list->room) {
        const int room = 2 * list->room + 8;
        struct value *items = machine_alloc(m, (size_t)room * sizeof *items);
        if (list->count > 0)
            memcpy(items, list->items, (size_t)list->count * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = value;
}

void dict_set(struct machine *m, struct dict *dict, struct text key, struct value value)
{
    for (int i = 0; i < dict->count; i++)
        if (same(dict->pairs[i].key, key)) {
            dict->pairs[i].value = value;
            return;
        }
    if (dict->count == dict->room) {
        const int room = 2 * dict->room + 8;
        struct pair *pairs = machine_alloc(m, (size_t)room * sizeof *pairs);
        if (dict->count > 0)
            memcpy(pairs, dict->pairs, (size_t)dict->count * sizeof *pairs);
        dict->pairs = pairs;
        dict->room = room;
    }
    dict->pairs[dict->count++] = (struct pair){key, value};
}

struct value dict_get(const struct dict *dict, struct text key)
{
    for (int i = 0; i < dict->count; i++)
        if (same(dict->pairs[i].key, key))
            return dict->pairs[i].value;
    return (struct value){.text = key};
}

static struct text marked(struct machine *m, struct text text, uint16_t mark)
{
    char *at = machine_alloc(m, text.bytes + 1);
    uint16_t *marks = mark ? machine_alloc(m, (text.bytes + 1) * sizeof *marks) : NULL;
    memcpy(at, text.at, text.bytes);
    for (size_t i = 0; mark && i < text.bytes; i++)
        marks[i] = mark;
    return (struct text){at, marks, text.bytes};
}

struct value value_from_json(struct machine *m, const struct json *json, uint16_t mark)
{
    struct value value = {.kind = K_NONE};
    switch (json_type(json)) {
    case JSON_BOOL:
        return value_bool(json_true(json));
    case JSON_NUMBER:
        if (json_int64(json, &value.whole))
            return value_int(value.whole);
        return (struct value){.kind = K_REAL, .real = json_number(json)};
    case JSON_STRING:
        return value_text(marked(m, text_of(json_string(json)), mark));
    case JSON_ARRAY:
        value = value_list(m);
        for (const struct json *i = json_first(json); i; i = json_next(i))
            list_add(m, value.list, value_from_json(m, i, mark));
        return value;
    case JSON_OBJECT:
        value = value_dict(m);
        for (const struct json *i = json_first(json); i; i = json_next(i))
            dict_set(m, value.dict, marked(m, text_of(json_key(i)), 0),
                     value_from_json(m, i, mark));
        return value;
    case JSON_NULL:
        break;
    }
    return value;
}

bool value_true(const struct value *v)
{
    switch (v->kind) {
    case K_BOOL:
    case K_INT:
        return v->whole != 0;
    case K_REAL:
        return v->real != 0.0;
    case K_TEXT:
        return v->text.bytes > 0;
    case K_LIST:
        return v->list->count > 0;
    case K_DICT:
        return v->dict->is_namespace || v->dict->count > 0;
    case K_MACRO:
        return true;
    case K_UNDEFINED:
    case K_NONE:
        break;
    }
    return false;
}

static bool is_number(const struct value *v)
{
    return v->kind == K_INT || v->kind == K_BOOL || v->kind == K_REAL;
}

static double number(const struct value *v)
{
    return v->kind == K_REAL ? v->real : (double)v->whole;
}

/* A namespace equals itself alone, so a value that holds itself ends here. */
static bool value_equal_parts(struct machine *m, const struct value *a, const struct value *b)
{
    if (a->kind == K_LIST) {
        bool equal = a->list->count == b->list->count;
        for (int i = 0; equal && i < a->list->count; i++)
            equal = value_equal(m, &a->list->items[i], &b->list->items[i]);
        return equal;
    }
    if (a->dict == b->dict || a->dict->is_namespace || b->dict->is_namespace)
        return a->dict == b->dict;
    bool equal = a->dict->count == b->dict->count;
    for (int i = 0; equal && i < a->dict->count; i++) {
        const struct value other = dict_get(b->dict, a->dict->pairs[i].key);
        equal = value_equal(m, &a->dict->pairs[i].value, &other);
    }
    return equal;
}

bool value_equal(struct machine *m, const struct value *a, const struct value *b)
{
    if (is_number(a) && is_number(b))
        return a->kind == K_REAL || b->kind == K_REAL ? number(a) == number(b)
                                                      : a->whole == b->whole;
    if (a->kind != b->kind)
        return false;
    if (a->kind == K_TEXT)
        return same(a->text, b->text);
    if (a->kind == K_LIST || a->kind == K_DICT) {
        machine_enter(m);
        const bool equal = value_equal_parts(m, a, b);
        m->depth--;
        return equal;
    }
    return a->kind != K_MACRO || a->macro == b->macro;
}

int value_order(struct machine *m, const struct value *a, const struct value *b)
{
    if (is_number(a) && is_number(b))
        return (number(a) > number(b)) - (number(a) < number(b));
    if (a->kind != K_TEXT || b->kind != K_TEXT)
        machine_fail(m, "it orders values that have no order");
    const size_t n = a->text.bytes < b->text.bytes ? a->text.bytes : b->text.bytes;
    const int order = n > 0 ? memcmp(a->text.at, b->text.at, n) : 0;
    return order ? order : (a->text.bytes > b->text.bytes) - (a->text.bytes < b->text.bytes);
}

bool value_in(struct machine *m, const struct value *needle, const struct value *all)
{
    if (all->kind == K_TEXT) {
        if (needle->kind != K_TEXT)
            machine_fail(m, "only a text can be in a text");
        return find(all->text, needle->text, 0) <= all->text.bytes;
    }
    const struct list *items = value_items(m, all);
    for (int i = 0; i < items->count; i++)
        if (value_equal(m, &items->items[i], needle))
            return true;
    return false;
}

/* The shortest digits that read back, with ".0" if it is whole, as Python has it. */
static void print_real(double real, char *to, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(to, size, "%.*g", digits, real);
        if (strtod(to, NULL) == real)
            break;
    }
    if (!strpbrk(to, ".en"))
        strcat(to, ".0");
}

static struct text copied(struct machine *m, const char *text)
{
    return marked(m, text_of(text), 0);
}

struct text value_str(struct machine *m, const struct value *v)
{
    char text[40];
    switch (v->kind) {
    case K_UNDEFINED:
        return text_of("");
    case K_NONE:
        return text_of("None");
    case K_BOOL:
        return text_of(v->whole ? "True" : "False");
    case K_INT:
        snprintf(text, sizeof text, "%lld", (long long)v->whole);
        return copied(m, text);
    case K_REAL:
        print_real(v->real, text, sizeof text);
        return copied(m, text);
    case K_TEXT:
        return v->text;
    case K_LIST:
    case K_DICT:
    case K_MACRO:
        break;
    }
    machine_fail(m, "it writes a list, a mapping or a macro as text, which is not supported");
}

struct list *value_items(struct machine *m, const struct value *v)
{
    struct list *list = v->kind == K_LIST ? v->list : value_list(m).list;
    if (v->kind == K_DICT)
        for (int i = 0; i < v->dict->count; i++)
            list_add(m, list, value_text(v->dict->pairs[i].key));
    else if (v->kind == K_TEXT)
        for (size_t at = 0; at < v->text.bytes;)
            list_add(m, list, value_text(next_char(v->text, &at)));
    else if (v->kind != K_LIST && v->kind != K_UNDEFINED)
        machine_fail(m, "it walks over a value that has no items");
    return list;
}

static int64_t value_length(struct machine *m, const struct value *v)
{
    if (v->kind == K_TEXT)
        return count_chars(v->text);
    return value_items(m, v)->count;
}

struct value value_item(struct machine *m, const struct value *of, const struct value *index)
{
    if (of->kind == K_UNDEFINED)
        machine_fail(m, "'%.*s' is undefined", (int)of->text.bytes, of->text.at);
    if (of->kind == K_DICT && index->kind == K_TEXT)
        return dict_get(of->dict, index->text);
    if ((of->kind == K_LIST || of->kind == K_TEXT) && index->kind == K_INT) {
        const int64_t n = value_length(m, of);
        const int64_t i = index->whole + (index->whole < 0 ? n : 0);
        if (i >= 0 && i < n && of->kind == K_LIST)
            return of->list->items[i];
        size_t at = i >= 0 && i < n ? char_at(of->text, i) : of->text.bytes;
        if (i >= 0 && i < n)
            return value_text(next_char(of->text, &at));
    }
    return (struct value){.text = index->kind == K_TEXT ? index->text : text_of("an item")};
}

struct value value_slice(struct machine *m, const struct value *of, const struct value bounds[3])
{
    if (of->kind != K_LIST && of->kind != K_TEXT)
        machine_fail(m, "it takes a part of a value that has none");
    const int64_t n = value_length(m, of), step = bounds[2].kind == K_INT ? bounds[2].whole : 1;
    int64_t edge[2] = {step < 0 ? n - 1 : 0, step < 0 ? -1 : n};
    if (step == 0)
        machine_fail(m, "a slice has a step of 0");
    for (int i = 0; i < 2; i++) {
        int64_t at = bounds[i].whole;
        if (bounds[i].kind != K_INT)
            continue;
        at += at < 0 ? n : 0;
        at = at < 0 ? (step < 0 ? -1 : 0) : at;
        edge[i] = at < n ? at : (step < 0 ? n - 1 : n);
    }
    if (of->kind == K_TEXT && step == 1) {
        const size_t first = char_at(of->text, edge[0]);
        const size_t end = edge[1] > edge[0] ? char_at(of->text, edge[1]) : first;
        return value_text(text_part(of->text, first, end));
    }
    const struct list *from = value_items(m, of);
    const struct value list = value_list(m);
    struct builder text = {0};
    for (int64_t i = edge[0]; step < 0 ? i > edge[1] : i < edge[1];) {
        if (of->kind == K_LIST)
            list_add(m, list.list, from->items[i]);
        else
            builder_add(m, &text, from->items[i].text);
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return of->kind == K_LIST ? list : value_text(builder_text(&text));
}

static int64_t floor_mod(int64_t a, int64_t b)
{
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static double of_reals(char op, double x, double y)
{
    switch (op) {
    case '+':
        return x + y;
    case '-':
        return x - y;
    case '*':
        return x * y;
    case '/':
        return x / y;
    case 'd':
        return floor(x / y);
    default:
        return x - y * floor(x / y);
    }
}

static int64_t of_wholes(struct machine *m, char op, int64_t a, int64_t b)
{
    int64_t whole = 0;
    if (op == '%')
        return b == -1 ? 0 : floor_mod(a, b);
    if (op == 'd' && b != -1)
        return (a - floor_mod(a, b)) / b;
    if (op == '+'   ? __builtin_add_overflow(a, b, &whole)
        : op == '-' ? __builtin_sub_overflow(a, b, &whole)
                    : __builtin_mul_overflow(a, b, &whole))
        machine_fail(m, "a number is out of range");
    return whole;
}

struct value value_arithmetic(struct machine *m, char op, const struct value *a,
                              const struct value *b)
{
    struct value list = {0};
    if (op == '~')
        return value_text(text_join(m, value_str(m, a), value_str(m, b)));
    if (op == '+' && a->kind == K_TEXT && b->kind == K_TEXT)
        return value_text(text_join(m, a->text, b->text));
    if (op == '+' && a->kind == K_LIST && b->kind == K_LIST) {
        list = value_list(m);
        for (int i = 0; i < a->list->count + b->list->count; i++)
            list_add(m, list.list,
                     i < a->list->count ? a->list->items[i] : b->list->items[i - a->list->count]);
        return list;
    }
    if (a->kind == K_UNDEFINED || b->kind == K_UNDEFINED) {
        const struct text name = a->kind == K_UNDEFINED ? a->text : b->text;
        machine_fail(m, "'%.*s' is undefined", (int)name.bytes, name.at);
    }
    if (!is_number(a) || !is_number(b))
        machine_fail(m, "'%c' of these values is not supported", op);
    if ((op == '/' || op == '%' || op == 'd') && number(b) == 0.0)
        machine_fail(m, "it divides by 0");
    return a->kind == K_REAL || b->kind == K_REAL || op == '/'
               ? (struct value){.kind = K_REAL, .real = of_reals(op, number(a), number(b))}
               : value_int(of_wholes(m, op, a->whole, b->whole));
}

/* --- JSON --------------------------------------------------------------------------------------- */

struct json_out {
    struct builder text;
    int indent; /* -1: on one line */
};

static void put(struct machine *m, struct json_out *out, struct text text)
{
    builder_add(m, &out->text, text);
}

static void put_line(struct machine *m, struct json_out *out, int level)
{
    char blanks[2 + MAX_INDENT * (MAX_LEVELS + 1)];
    const int n = out->indent * level;
    if (out->indent < 0)
        return;
    blanks[0] = '\n';
    memset(blanks + 1, ' ', (size_t)n);
    blanks[n + 1] = '\0';
    put(m, out, copied(m, blanks));
}

static void put_json_text(struct machine *m, struct json_out *out, struct text text)
{
    static const char plain[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
    size_t from = 0;
    put(m, out, text_of("\""));
    for (size_t i = 0; i < text.bytes; i++) {
        char escaped[8] = {'\\', 0};
        const char *known = text.at[i] ? strchr(plain, text.at[i]) : NULL;
        if (known)
            escaped[1] = names[known - plain];
        else if ((unsigned char)text.at[i] < ' ')
            snprintf(escaped, sizeof escaped, "\\u%04x", text.at[i]);
        else
            continue;
        put(m, out, text_part(text, from, i));
        put(m, out, marked(m, text_of(escaped), text.marks ? text.marks[i] : 0));
        from = i + 1;
    }
    put(m, out, text_part(text, from, text.bytes));
    put(m, out, text_of("\""));
}

static void put_json(struct machine *m, struct json_out *out, const struct value *v, int level)
{
    const int count = v->kind == K_LIST ? v->list->count : v->kind == K_DICT ? v->dict->count : -1;
    if (level > MAX_LEVELS)
        machine_fail(m, "tojson of a value with more than %d levels", MAX_LEVELS);
    if (v->kind == K_TEXT) {
        put_json_text(m, out, v->text);
    } else if (v->kind == K_BOOL) {
        put(m, out, text_of(v->whole ? "true" : "false"));
    } else if (v->kind == K_NONE) {
        put(m, out, text_of("null"));
    } else if (is_number(v)) {
        put(m, out, value_str(m, v));
    } else if (count < 0) {
        machine_fail(m, "tojson of a value that JSON does not have");
    } else {
        put(m, out, text_of(v->kind == K_LIST ? "[" : "{"));
        for (int i = 0; i < count; i++) {
            if (i > 0)
                put(m, out, text_of(out->indent < 0 ? ", " : ","));
            put_line(m, out, level + 1);
            if (v->kind == K_DICT) {
                put_json_text(m, out, v->dict->pairs[i].key);
                put(m, out, text_of(": "));
            }
            put_json(m, out, v->kind == K_LIST ? &v->list->items[i] : &v->dict->pairs[i].value,
                     level + 1);
        }
        if (count > 0)
            put_line(m, out, level);
        put(m, out, text_of(v->kind == K_LIST ? "]" : "}"));
    }
}

/* --- filters ------------------------------------------------------------------------------------ */

/* Argument `i`, or the one of that name; NULL: neither. */
static const struct value *arg(const struct args *args, int i, const char *name)
{
    for (int n = 0; name && n < args->num_named; n++)
        if (text_is(args->named[n].key, name))
            return &args->named[n].value;
    return i < args->count ? &args->at[i] : NULL;
}

static struct text need_text(struct machine *m, const struct value *v)
{
    if (!v || v->kind != K_TEXT)
        machine_fail(m, "a text is needed, got another value%s",
                     v && v->kind == K_UNDEFINED ? " (undefined)" : "");
    return v->text;
}

/* `how` is that of the row in names[]. */
#define FUNCTION(name)                                                                             \
    static struct value name(                                                                      \
        __attribute__((unused)) struct machine *m, __attribute__((unused)) const struct value *of, \
        __attribute__((unused)) const struct args *args, __attribute__((unused)) unsigned how)

FUNCTION(f_trim)
{
    return value_text(strip(value_str(m, of), arg(args, 0, "chars"), true, true));
}
enum { LEFT = 1, RIGHT = 2 };
FUNCTION(m_strip)
{
    return value_text(strip(need_text(m, of), arg(args, 0, NULL), how & LEFT, how & RIGHT));
}
FUNCTION(f_length)
{
    return value_int(value_length(m, of));
}
FUNCTION(f_tojson)
{
    const struct value *indent = arg(args, 0, "indent");
    struct json_out out = {.indent = -1};
    if (indent && indent->kind == K_INT) {
        if (indent->whole < 0 || indent->whole > MAX_INDENT)
            machine_fail(m, "tojson with an indent of %lld", (long long)indent->whole);
        out.indent = (int)indent->whole;
    }
    for (int i = 0; i < args->num_named; i++)
        if (!text_is(args->named[i].key, "indent") &&
            !(text_is(args->named[i].key, "ensure_ascii") && !value_true(&args->named[i].value)))
            machine_fail(m, "tojson with %.*s is not supported", (int)args->named[i].key.bytes,
                         args->named[i].key.at);
    put_json(m, &out, of, 0);
    return value_text(builder_text(&out.text));
}
FUNCTION(f_first)
{
    const struct value at = value_int(how == RIGHT ? -1 : 0);
    return value_item(m, of, &at);
}
FUNCTION(f_list)
{
    return (struct value){.kind = K_LIST, .list = value_items(m, of)};
}
FUNCTION(f_string)
{
    return value_text(value_str(m, of));
}
/* A text as a whole number, or cut off from a real one, or the default. */
FUNCTION(f_int)
{
    const struct value *other = arg(args, 0, "default");
    char text[20], *end, *real_end;
    if (is_number(of))
        return value_int(of->kind == K_REAL && fabs(of->real) < 9e18 ? (int64_t)of->real
                                                                     : of->whole);
    const struct text from = strip(need_text(m, of), NULL, true, true);
    if (from.bytes >= sizeof text)
        machine_fail(m, "int of a text of %zu bytes", from.bytes);
    snprintf(text, sizeof text, "%.*s", (int)from.bytes, from.at);
    const int64_t whole = strtoll(text, &end, 10);
    if (*text && !*end)
        return value_int(whole);
    const double real = strtod(text, &real_end);
    if (*text && !*real_end && fabs(real) < 9e18 && !strpbrk(text, "xX"))
        return value_int((int64_t)real);
    return other ? *other : value_int(0);
}
enum { FIRST_UPPER = 1, REST_UPPER = 2 };
FUNCTION(f_case)
{
    const struct text text = value_str(m, of);
    char *at = machine_alloc(m, text.bytes + 1);
    for (size_t i = 0; i < text.bytes; i++) {
        const bool upper = how & (i == 0 ? FIRST_UPPER : REST_UPPER);
        const unsigned char c = (unsigned char)text.at[i];
        if (c >= 0x80)
            machine_fail(m, "upper and lower case of other than ASCII are not supported");
        at[i] = (char)(!upper && c >= 'A' && c <= 'Z'  ? c + 32
                       : upper && c >= 'a' && c <= 'z' ? c - 32
                                                       : c);
    }
    return value_text((struct text){at, text.marks, text.bytes});
}
FUNCTION(f_replace)
{
    const struct text text = value_str(m, of), from = need_text(m, arg(args, 0, "old")),
                      to = need_text(m, arg(args, 1, "new"));
    const struct value *most = arg(args, 2, "count");
    struct builder out = {0};
    int64_t left = most && most->kind == K_INT && most->whole >= 0 ? most->whole : INT64_MAX;
    size_t at = 0, found;
    if (from.bytes == 0)
        machine_fail(m, "replace of an empty text is not supported");
    for (; left-- > 0 && (found = find(text, from, at)) <= text.bytes; at = found + from.bytes) {
        builder_add(m, &out, text_part(text, at, found));
        builder_add(m, &out, to);
    }
    builder_add(m, &out, text_part(text, at, text.bytes));
    return value_text(builder_text(&out));
}
FUNCTION(f_join)
{
    const struct list *list = value_items(m, of);
    const struct value *between = arg(args, 0, "d"), *key = arg(args, 1, "attribute");
    struct builder out = {0};
    for (int i = 0; i < list->count; i++) {
        const struct value one = key ? value_item(m, &list->items[i], key) : list->items[i];
        if (i > 0 && between)
            builder_add(m, &out, need_text(m, between));
        builder_add(m, &out, value_str(m, &one));
    }
    return value_text(builder_text(&out));
}
FUNCTION(f_default)
{
    const struct value *other = arg(args, 0, "default_value"), *falsy = arg(args, 1, "boolean");
    if (of->kind == K_UNDEFINED || (falsy && value_true(falsy) && !value_true(of)))
        return other ? *other : value_text(text_of(""));
    return *of;
}
/* Keys, values or pairs of a mapping. MAYBE: none of an undefined value. */
enum { KEYS = 1, VALUES = 2, MAYBE = 4 };
FUNCTION(f_parts)
{
    const struct value list = value_list(m);
    if (of->kind == K_UNDEFINED && how & MAYBE)
        return list;
    if (of->kind != K_DICT)
        machine_fail(m, "items of a value that is no mapping");
    for (int i = 0; i < of->dict->count; i++) {
        const struct pair *pair = &of->dict->pairs[i];
        const struct value key = value_text(pair->key), both = value_list(m);
        list_add(m, both.list, key);
        list_add(m, both.list, pair->value);
        list_add(m, list.list, how & KEYS && how & VALUES ? both : how & KEYS ? key : pair->value);
    }
    return list;
}
FUNCTION(f_reverse)
{
    const struct value none = {.kind = K_NONE};
    return value_slice(m, of, (const struct value[3]){none, none, value_int(-1)});
}
FUNCTION(f_safe)
{
    return *of;
}
/* The items of which a test is true (REJECT: false). BY_KEY: of an attribute of theirs. */
enum { BY_KEY = 1, REJECT = 2 };
FUNCTION(f_select)
{
    const bool by_key = how & BY_KEY, want = !(how & REJECT);
    const struct list *list = value_items(m, of);
    const struct value out = value_list(m), *name = arg(args, by_key, NULL);
    const struct named *test = name ? find_named(NAMED_TEST, need_text(m, name)) : NULL;
    struct args rest = {0};
    if (name && !test)
        machine_fail(m, "test '%.*s' is not supported", (int)name->text.bytes, name->text.at);
    for (int i = by_key + 1; i < args->count; i++)
        rest.at[rest.count++] = args->at[i];
    for (int i = 0; i < list->count; i++) {
        const struct value one =
            by_key ? value_item(m, &list->items[i], arg(args, 0, NULL)) : list->items[i];
        const struct value is = test ? value_call(m, test, &one, &rest) : one;
        if (value_true(&is) == want)
            list_add(m, out.list, list->items[i]);
    }
    return out;
}
FUNCTION(f_map)
{
    const struct list *list = value_items(m, of);
    const struct value out = value_list(m), *key = arg(args, MAX_ARGS, "attribute");
    const struct named *filter =
        key ? NULL : find_named(NAMED_FILTER, need_text(m, arg(args, 0, NULL)));
    const struct args none = {0};
    if (!key && (!filter || args->count != 1))
        machine_fail(m, "map takes attribute=, or the name of a filter");
    for (int i = 0; i < list->count; i++)
        list_add(m, out.list,
                 key ? value_item(m, &list->items[i], key)
                     : value_call(m, filter, &list->items[i], &none));
    return out;
}
FUNCTION(f_abs)
{
    const struct value zero = value_int(0);
    return value_order(m, of, &zero) < 0 ? value_arithmetic(m, '-', &zero, of) : *of;
}

/* --- methods and functions ---------------------------------------------------------------------- */

FUNCTION(m_split)
{
    const struct text text = need_text(m, of);
    const struct value *sep = arg(args, 0, "sep"), *most = arg(args, 1, "maxsplit");
    const struct value list = value_list(m);
    int64_t left = most && most->kind == K_INT && most->whole >= 0 ? most->whole : INT64_MAX;
    size_t at = 0, found;
    if (sep && sep->kind == K_TEXT) {
        if (sep->text.bytes == 0)
            machine_fail(m, "split at an empty text");
        for (; left-- > 0 && (found = find(text, sep->text, at)) <= text.bytes;
             at = found + sep->text.bytes)
            list_add(m, list.list, value_text(text_part(text, at, found)));
        list_add(m, list.list, value_text(text_part(text, at, text.bytes)));
        return list;
    }
    for (struct text rest = strip(text, NULL, true, false); rest.bytes > 0;) {
        size_t end = 0;
        for (size_t next = 0; end < rest.bytes; end = next)
            if (left > 0 && strips(next_char(rest, &next), NULL))
                break;
        list_add(m, list.list, value_text(text_part(rest, 0, end)));
        rest = left-- > 0 ? strip(text_part(rest, end, rest.bytes), NULL, true, false)
                          : (struct text){0};
    }
    return list;
}
/* Whether a text begins (LEFT) or ends with one of the argument's texts. */
FUNCTION(m_has_end)
{
    const struct text text = need_text(m, of);
    const struct value *word = arg(args, 0, NULL);
    const struct list one = {.items = (struct value *)word, .count = word != NULL};
    const struct list *words = word && word->kind == K_LIST ? word->list : &one;
    for (int i = 0; i < words->count; i++) {
        const struct text end = need_text(m, &words->items[i]);
        if (end.bytes <= text.bytes &&
            same(end, how == LEFT ? text_part(text, 0, end.bytes)
                                  : text_part(text, text.bytes - end.bytes, text.bytes)))
            return value_bool(true);
    }
    return value_bool(false);
}
FUNCTION(m_get)
{
    const struct value *key = arg(args, 0, NULL), *other = arg(args, 1, NULL);
    if (of->kind != K_DICT)
        machine_fail(m, "get() of a value that is no mapping");
    const struct value got = dict_get(of->dict, need_text(m, key));
    if (got.kind != K_UNDEFINED)
        return got;
    return other ? *other : (struct value){.kind = K_NONE};
}
FUNCTION(g_raise)
{
    const struct text why = need_text(m, arg(args, 0, NULL));
    machine_fail(m, "it refuses the messages: %.*s", (int)(why.bytes < 200 ? why.bytes : 200),
                 why.at);
}
FUNCTION(g_namespace)
{
    const struct value space = value_dict(m);
    space.dict->is_namespace = true;
    for (int i = 0; i < args->num_named; i++)
        dict_set(m, space.dict, args->named[i].key, args->named[i].value);
    return space;
}
FUNCTION(g_range)
{
    const struct value list = value_list(m);
    int64_t v[3] = {0, 0, 1};
    for (int i = 0; i < 3 && i < args->count; i++)
        v[args->count == 1 ? 1 : i] = args->at[i].kind == K_INT ? args->at[i].whole : 0;
    if (v[2] == 0)
        machine_fail(m, "range() has a step of 0");
    for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1];) {
        list_add(m, list.list, value_int(i));
        if (__builtin_add_overflow(i, v[2], &i))
            break;
    }
    return list;
}
FUNCTION(g_strftime_now)
{
    char form[64], text[128];
    const struct text asked = need_text(m, arg(args, 0, NULL));
    const time_t now = time(NULL);
    struct tm day;
    snprintf(form, sizeof form, "%.*s", (int)(asked.bytes < 60 ? asked.bytes : 60), asked.at);
    if (!localtime_r(&now, &day) || strftime(text, sizeof text, form, &day) == 0)
        text[0] = '\0';
    return value_text(copied(m, text));
}

/* --- tests -------------------------------------------------------------------------------------- */

static const struct value *need(struct machine *m, const struct args *args)
{
    if (args->count < 1)
        machine_fail(m, "a test has no value to compare with");
    return &args->at[0];
}
/* Whether the value is of one of these kinds, 1 << K_INT and so on. */
FUNCTION(t_kind)
{
    return value_bool(how >> of->kind & 1);
}
FUNCTION(t_mapping)
{
    return value_bool(of->kind == K_DICT && !of->dict->is_namespace);
}
FUNCTION(t_number)
{
    return value_bool(is_number(of));
}
FUNCTION(t_is)
{
    return value_bool(of->kind == K_BOOL && (of->whole != 0) == how);
}
FUNCTION(t_odd)
{
    return value_bool(is_number(of) && (of->whole % 2 != 0) == how);
}
FUNCTION(t_equal)
{
    return value_bool(value_equal(m, of, need(m, args)) == how);
}
FUNCTION(t_in)
{
    return value_bool(value_in(m, of, need(m, args)));
}
/* Whether the two compare in one of these ways. */
enum { LESS = 1, SAME = 2, GREATER = 4 };
FUNCTION(t_order)
{
    const int order = value_order(m, of, need(m, args));
    return value_bool(how & (order < 0 ? LESS : order > 0 ? GREATER : SAME));
}
FUNCTION(t_divisible)
{
    const struct value rest = value_arithmetic(m, '%', of, need(m, args));
    return value_bool(!value_true(&rest));
}

struct value value_call(struct machine *m, const struct named *named, const struct value *of,
                        const struct args *args)
{
    if (args->count > named->most)
        machine_fail(m, "'%s' with %d arguments is not supported", named->name, args->count);
    for (int i = 0; i < args->num_named; i++) {
        const struct text key = args->named[i].key;
        const char *at = named->words ? named->words : "";
        size_t length = strcspn(at, " ");
        while (*at && !(length == key.bytes && memcmp(at, key.at, length) == 0)) {
            at += length + (at[length] == ' ');
            length = strcspn(at, " ");
        }
        if (!*at && !(named->words && strcmp(named->words, "*") == 0))
            machine_fail(m, "'%s' with '%.*s' is not supported", named->name, (int)key.bytes,
                         key.at);
    }
    return named->function(m, of, args, named->how);
}

enum { F = NAMED_FILTER, M = NAMED_METHOD, T = NAMED_TEST, G = NAMED_GLOBAL };
enum {
    TEXT = 1 << K_TEXT,
    LIST = 1 << K_LIST,
    DICT = 1 << K_DICT,
    UNDEFINED = 1 << K_UNDEFINED,
    DEFINED = ~UNDEFINED
};

/* All names, with the number of arguments and the named ones. */
static const struct named names[] = {
  /* clang-format off */
    {"trim", F, f_trim, .most = 1, .words = "chars"},
    {"length", F, f_length, .most = 0},
    {"count", F, f_length, .most = 0},
    {"tojson", F, f_tojson, .most = 1, .words = "indent ensure_ascii"},
    {"first", F, f_first, .how = LEFT},
    {"last", F, f_first, .how = RIGHT},
    {"list", F, f_list, .most = 0},
    {"string", F, f_string, .most = 0},
    {"int", F, f_int, .most = 1, .words = "default"},
    {"lower", F | M, f_case, .most = 0},
    {"upper", F | M, f_case, .how = FIRST_UPPER | REST_UPPER},
    {"capitalize", F | M, f_case, .how = FIRST_UPPER},
    {"replace", F | M, f_replace, .most = 3, .words = "old new count"},
    {"join", F, f_join, .most = 2, .words = "d attribute"},
    {"default", F, f_default, .most = 2, .words = "default_value boolean"},
    {"d", F, f_default, .most = 2, .words = "default_value boolean"},
    {"items", F, f_parts, .how = KEYS | VALUES | MAYBE},
    {"reverse", F, f_reverse, .most = 0},
    {"safe", F, f_safe, .most = 0},
    {"selectattr", F, f_select, .most = MAX_ARGS, .how = BY_KEY},
    {"rejectattr", F, f_select, .most = MAX_ARGS, .how = BY_KEY | REJECT},
    {"select", F, f_select, .most = MAX_ARGS},
    {"reject", F, f_select, .most = MAX_ARGS, .how = REJECT},
    {"map", F, f_map, .most = 1, .words = "attribute"},
    {"abs", F, f_abs, .most = 0},
    {"strip", M, m_strip, .most = 1, .how = LEFT | RIGHT},
    {"lstrip", M, m_strip, .most = 1, .how = LEFT},
    {"rstrip", M, m_strip, .most = 1, .how = RIGHT},
    {"split", M, m_split, .most = 2, .words = "sep maxsplit"},
    {"startswith", M, m_has_end, .most = 1, .how = LEFT},
    {"endswith", M, m_has_end, .most = 1, .how = RIGHT},
    {"get", M, m_get, .most = 2},
    {"items", M, f_parts, .how = KEYS | VALUES},
    {"keys", M, f_parts, .how = KEYS},
    {"values", M, f_parts, .how = VALUES},
    {"raise_exception", G, g_raise, .most = 1},
    {"namespace", G, g_namespace, .words = "*"},
    {"range", G, g_range, .most = 3},
    {"strftime_now", G, g_strftime_now, .most = 1},
    {"defined", T, t_kind, .how = DEFINED},
    {"undefined", T, t_kind, .how = UNDEFINED},
    {"none", T, t_kind, .how = 1 << K_NONE},
    {"string", T, t_kind, .how = TEXT},
    {"sequence", T, t_kind, .how = LIST | DICT | TEXT},
    {"iterable", T, t_kind, .how = LIST | DICT | TEXT | UNDEFINED},
    {"integer", T, t_kind, .how = 1 << K_INT},
    {"float", T, t_kind, .how = 1 << K_REAL},
    {"boolean", T, t_kind, .how = 1 << K_BOOL},
    {"callable", T, t_kind, .how = 1 << K_MACRO},
    {"mapping", T, t_mapping, .most = 0},
    {"number", T, t_number, .most = 0},
    {"true", T, t_is, .how = true},
    {"false", T, t_is, .how = false},
    {"odd", T, t_odd, .how = true},
    {"even", T, t_odd, .how = false},
    {"divisibleby", T, t_divisible, .most = 1},
    {"in", T, t_in, .most = 1},
    {"eq", T, t_equal, .most = 1, .how = true},
    {"equalto", T, t_equal, .most = 1, .how = true},
    {"==", T, t_equal, .most = 1, .how = true},
    {"ne", T, t_equal, .most = 1, .how = false},
    {"!=", T, t_equal, .most = 1, .how = false},
    {"lt", T, t_order, .most = 1, .how = LESS},
    {"lessthan", T, t_order, .most = 1, .how = LESS},
    {"<", T, t_order, .most = 1, .how = LESS},
    {"gt", T, t_order, .most = 1, .how = GREATER},
    {"greaterthan", T, t_order, .most = 1, .how = GREATER},
    {">", T, t_order, .most = 1, .how = GREATER},
    {"le", T, t_order, .most = 1, .how = LESS | SAME},
    {"<=", T, t_order, .most = 1, .how = LESS | SAME},
    {"ge", T, t_order, .most = 1, .how = GREATER | SAME},
    {">=", T, t_order, .most = 1, .how = GREATER | SAME},
  /* clang-format on */
};

const struct named *find_named(unsigned use, struct text name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].uses & use && text_is(name, names[i].name))
            return &names[i];
    return NULL;
}
