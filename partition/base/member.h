/* partition/base/member.h - a member of a struct as a row of a table: its name, type, place, limits,
 * default, and how it is shown.
 *
 * Whatever reads, checks, prints or explains the values of a struct walks the rows of its table, so
 * that these cannot disagree. A name may be a dotted path of a file's key ("train.optimizer.lr").
 * Pure: no I/O. profiles/json/fields.h reads and writes JSON by such tables. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum member_type {
    MEMBER_INT,    /* an integer; by size: 1 uint8_t, 2 uint16_t, 4 int, 8 int64_t */
    MEMBER_COUNT,  /* the same, or "auto", which is 0 */
    MEMBER_REAL,   /* double; text may be a fraction "1/3" */
    MEMBER_BOOL,   /* bool */
    MEMBER_NAME,   /* an enum (or a bool), by its name */
    MEMBER_TEXT,   /* char[size] */
    MEMBER_STRING, /* owned char * */
    MEMBER_PATH,   /* owned char *; in files resolved against their folder */
    MEMBER_NS,     /* int64_t; a text with unit, 0, and in names "..._ns" any number of ns */
    MEMBER_BYTES,  /* int64_t; a number of bytes, or a text with unit */
    MEMBER_RATE,   /* double; a number of bytes per second, or a text with unit */
    MEMBER_FLOPS,  /* double; a number of operations per second, or a text with unit */
    MEMBER_OTHER   /* anything; its owner reads it */
};

enum member_flag {
    MEMBER_ABOVE = 1,  /* a value is above min, not equal to it */
    MEMBER_BELOW = 2,  /* a value is below max, not equal to it */
    MEMBER_UNSET = 4,  /* 0 is allowed beside min..max: not given */
    MEMBER_OBJECT = 8, /* TEXT: the owner reads an object that stands in its place */
    MEMBER_LIST = 16,  /* TEXT: an array of texts is read as one text, joined by commas */
    /* Columns of rows: */
    MEMBER_KEY = 32,      /* what it says is a part of the row's key */
    MEMBER_KNOWN = 64,    /* a number above 0; others are null in JSON and "-" in a table */
    MEMBER_OPTIONAL = 128 /* absent from JSON where it is 0 or an empty text */
};

struct member {
    const char *name;
    enum member_type type;
    int flags;           /* of enum member_flag */
    size_t offset, size; /* in the struct */
    /* Limits of numbers; max 0: none but that of the variable. A REAL of any value has min -INFINITY.
     * NS, BYTES and RATE have the limits of units.h. NAME: of the values that can be chosen. */
    double min, max;
    /* NAME: NULL-terminated, by value. PATH: words that are no paths. */
    const char *const *names;
    size_t auto_offset; /* BOOL, NAME: offset of the bool that "auto" sets; 0: there is no "auto" */
    /* NAME with "auto": offset of an unsigned. A list of names restricts "auto" and sets the bits
     * 1 << value. 0: no list. */
    size_t list_offset;
    /* The default as text, up to the first of ":;," or a blank. The help shows all of it in
     * brackets. NULL: zero. */
    const char *init;
    const char *help;
    /* Words of other tools for it, "tp|tp_size". What follows a word stands after our name in a hint:
     * "fsdp=weights". NULL: none. */
    const char *also;
    /* The option of `elapse sim` that is short for the key, without dashes. NULL: none. */
    const char *option;
    /* A key that `plan` and `sim` alone know: what `train` does in its place. NULL: train knows it. */
    const char *instead;
    /* What gives the member an effect: "KEY=a|b": that of the table has one of these values, "KEY": it has
     * not its default; several are joined by " or ". NULL: it always has one. */
    const char *needs;
    const char *head; /* above its cells in a printed table, whose leading blanks precede each
                           cell. NULL: not printed */
    int width;        /* of a printed cell; below 0: aligned to the left; 0: any, up to max */
    int leaves; /* 1: a terminal that is too narrow for the table loses this column first, 2: then
                           this one; 0: it stays */
    const char *format; /* of a printed REAL, such as "%.1f %%"; NULL: 4 digits */
    double scale;       /* printed REAL values are multiplied by it; 0: 1 */
    const char *(*text)(const void *row, char *buf, size_t size); /* the printed cell, if given */
};

struct member_table {
    const struct member *rows;
    int num;
};

/* A row for a member of struct STRUCT_: MEMBER(job, "train.epochs", INT, train.epochs, "epochs",
 * .max = 100, .init = "1"). */
#define MEMBER(struct_, name_, type_, path_, help_, ...)                                           \
    {                                                                                              \
        .name = (name_), .type = MEMBER_##type_, .offset = offsetof(struct struct_, path_),        \
        .size = sizeof(((struct struct_ *)0)->path_), .help = (help_), __VA_ARGS__                 \
    }
/* A row that its owner reads. */
#define MEMBER_OWN(name_, ...)                                                                     \
    {                                                                                              \
        .name = (name_), .type = MEMBER_OTHER, .help = __VA_ARGS__                                 \
    }

/* The number that a member holds (a bool or a name: its value). */
int64_t member_int(const struct member *member, const void *base);
double member_real(const struct member *member, const void *base);

/* The name that a NAME has; "?" where there is none. */
const char *member_name(const struct member *member, const void *base);

/* Set an integer of any value, as our own files hold it. */
void member_put_int(const struct member *member, int64_t value, void *base);
/* Set a number, if it is within the limits: INT, COUNT, BOOL, NAME, NS, BYTES; REAL, RATE. */
bool member_set_int(const struct member *member, int64_t value, void *base);
bool member_set_real(const struct member *member, double value, void *base);

/* The place of a name among the row's names, a word of earlier versions included; -1: none. */
int member_find_name(const struct member *member, const char *name);

/* Whether a name says itself that its numbers are ns: "fwd_ns". */
bool member_in_ns(const struct member *member);

/* Find the row that other tools call `word`. hint gets its name, with what belongs after it
 * ("pipeline.shard=weights"). NULL: none. */
const struct member *member_called(const struct member_table *table, const char *word, char *hint,
                                   size_t size);

/* Whether "auto" is the member's value: of a COUNT, or by the bool at auto_offset. */
bool member_auto(const struct member *member, const void *base);

/* Set the member from a text with units, as people write it. `shown` names it in errors ("--epochs").
 * STRING and PATH free the old text and keep a copy. ERR_INPUT: malformed, or outside the limits. */
enum status member_parse(const struct member *member, const char *shown, const char *text,
                         void *base, struct err *err);

/* Set the member to its default. base was zeroed or holds a default. ERR_NOMEM for a STRING only. */
enum status member_default(const struct member *member, void *base, struct err *err);

/* Check that the value is within the limits. ERR_INPUT: "SOURCE: NAME must be LIMIT, got VALUE". */
enum status member_check(const struct member *member, const void *base, const char *source,
                         struct err *err);

/* Whether two structs have equal values there; "auto" equals "auto". OTHER: yes. */
bool member_equal(const struct member *member, const void *a, const void *b);

/* The value as member_parse() reads it back, "" for a NULL text. Returns buf. */
const char *member_text(const struct member *member, const void *base, char *buf, size_t size);

/* What values the member takes, for help texts: "0..1024", "gpipe|1f1b|auto", "number in [0, 1)",
 * "time"; "": see its help. Returns buf. */
const char *member_takes(const struct member *member, char *buf, size_t size);

/* The same limit in an error: "must be ...". `number`: the value that was given is a number, so that
 * the limit need not ask for one. Returns buf. */
const char *member_limit(const struct member *member, bool number, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
