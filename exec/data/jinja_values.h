/* exec/data/jinja_values.h - values of chat templates, in one block of memory per render, and what
 * filters, tests and methods make of them; private to jinja.c. A failure leaves by longjmp(), since
 * all memory goes with the machine. */
#pragma once

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"
#include "profiles/json/json.h"

enum kind { K_UNDEFINED, K_NONE, K_BOOL, K_INT, K_REAL, K_TEXT, K_LIST, K_DICT, K_MACRO };

/* Bytes and their marks; marks NULL: all 0. */
struct text {
    const char *at;
    const uint16_t *marks;
    size_t bytes;
};
struct value {
    enum kind kind;
    int64_t whole; /* of K_BOOL and K_INT */
    double real;
    struct text text; /* K_UNDEFINED: its name */
    struct list *list;
    struct dict *dict;
    const struct node *macro;
};
struct list {
    struct value *items;
    int count, room;
};
struct dict {
    struct pair {
        struct text key;
        struct value value;
    } * pairs;
    int count, room;
    bool is_namespace;
};

enum { MAX_ARGS = 8 };
struct args {
    struct value at[MAX_ARGS];
    int count; /* of positions */
    struct pair named[MAX_ARGS];
    int num_named;
};

struct block;
struct machine {
    jmp_buf out;
    struct err *err;
    enum status rc;
    struct block *blocks; /* owned */
    size_t bytes, steps;
    int depth, line;
};
/* Memory that lives as long as the machine, zeroed. */
void *machine_alloc(struct machine *m, size_t bytes);
void machine_clear(struct machine *m);
/* One step, one level of calls deeper; fails above the most of either. The caller ends the level by
 * depth--. */
void machine_enter(struct machine *m);
_Noreturn void machine_fail(struct machine *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct text text_of(const char *text);
bool text_is(struct text text, const char *word);
struct text text_join(struct machine *m, struct text a, struct text b);
/* A text that grows. */
struct builder {
    char *at;
    uint16_t *marks;
    size_t bytes, room;
};
void builder_add(struct machine *m, struct builder *builder, struct text text);
struct text builder_text(const struct builder *builder);
struct value value_text(struct text text);
struct value value_int(int64_t whole);
struct value value_bool(bool is);
struct value value_list(struct machine *m);
void list_add(struct machine *m, struct list *list, struct value value);
struct value value_dict(struct machine *m);
void dict_set(struct machine *m, struct dict *dict, struct text key, struct value value);
/* K_UNDEFINED: it has no such key. */
struct value dict_get(const struct dict *dict, struct text key);
/* Marks go to all texts inside. */
struct value value_from_json(struct machine *m, const struct json *json, uint16_t mark);

bool value_true(const struct value *value);
bool value_equal(struct machine *m, const struct value *a, const struct value *b);
/* < 0, 0, > 0; fails for values without an order. */
int value_order(struct machine *m, const struct value *a, const struct value *b);
bool value_in(struct machine *m, const struct value *needle, const struct value *all);
/* As str() of Python writes it; of a list and a dict it fails. */
struct text value_str(struct machine *m, const struct value *value);
/* What a loop walks over. */
struct list *value_items(struct machine *m, const struct value *value);
struct value value_item(struct machine *m, const struct value *of, const struct value *index);
struct value value_slice(struct machine *m, const struct value *of, const struct value bounds[3]);
struct value value_arithmetic(struct machine *m, char op, const struct value *a,
                              const struct value *b);

typedef struct value value_function(struct machine *m, const struct value *of,
                                    const struct args *args, unsigned how);
/* A filter, a method, a test (which gives K_BOOL) or a global function (whose `of` is NULL). */
enum { NAMED_FILTER = 1, NAMED_METHOD = 2, NAMED_TEST = 4, NAMED_GLOBAL = 8 };
/* A function under one of its names, and the arguments that it takes: at most `most` without a
 * name, and those named in `words` (between blanks; "*": any). */
struct named {
    const char *name;
    unsigned uses; /* NAMED_... */
    value_function *function;
    int most;
    const char *words;
    unsigned how; /* names that share a function: which of them it is */
};
/* NULL: there is none of that name for this use. */
const struct named *find_named(unsigned use, struct text name);
/* Fails for arguments that it does not take. */
struct value value_call(struct machine *m, const struct named *named, const struct value *of,
                        const struct args *args);
