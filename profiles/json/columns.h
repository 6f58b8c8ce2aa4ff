/* profiles/json/columns.h - the members of a struct as columns. One table says how a row is stored in
 * SQL, written as JSON and CSV, and printed. */
#ifndef ELAPSE_PROFILES_COLUMNS_H
#define ELAPSE_PROFILES_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "profiles/json/json.h"

enum column_type {
    COLUMN_TEXT,   /* char[size] */
    COLUMN_STRING, /* const char * */
    COLUMN_INT,    /* by size: 1 uint8_t, 2 uint16_t, 4 int32_t, 8 int64_t */
    COLUMN_BOOL,   /* the file may hold any number */
    COLUMN_REAL,   /* double; NaN is NULL */
    COLUMN_NAME,   /* an enum, by name_of */
    COLUMN_CALL    /* the text that text() makes of the row */
};
enum {
    COLUMN_KEY = 1,
    COLUMN_POSITIVE = 2, /* > 0, not only >= 0 */
    COLUMN_KNOWN = 4,    /* a number above 0; others are null in JSON and "-" in a table */
    COLUMN_OPTIONAL = 8  /* absent from JSON where it is 0 or an empty text */
};

struct column {
    const char *name; /* in SQL, JSON and CSV; ends with the unit. NULL: only printed */
    enum column_type type;
    int flags;
    size_t offset, size;         /* in the row */
    const char *(*name_of)(int); /* COLUMN_NAME */
    const char *head;            /* printed above the cells; its leading blanks precede each cell.
                                     NULL: not printed */
    int width;                   /* of a printed cell; below 0: aligned to the left */
    const char *format;          /* of a printed COLUMN_REAL, such as "%.1f %%"; NULL: 4 digits */
    double scale;                /* printed COLUMN_REAL values are multiplied by it; 0: 1 */
    const char *(*text)(const void *row, char *buf, size_t size); /* the printed cell, if given */
};

/* A column of struct ROW: COLUMN(step_row, "loss", REAL, loss, .head = "loss"). */
#define COLUMN(row, name_, type_, member, ...)                                                     \
    {                                                                                              \
        .name = (name_), .type = COLUMN_##type_, .offset = offsetof(struct row, member),           \
        .size = sizeof(((struct row *)0)->member), __VA_ARGS__                                     \
    }
/* The name_of of an enum's columns: COLUMN_NAMES(op_kind_name, op_kind) makes op_kind_name_of(). */
#define COLUMN_NAMES(function, type)                                                               \
    static const char *function##_of(int value)                                                    \
    {                                                                                              \
        return function((enum type)value);                                                         \
    }
#define SHOWN(head_, width_) .head = (head_), .width = (width_)

/* A table of the store or of an answer, and the struct that holds one row of it. */
struct row_table {
    const char *name;  /* "layer_cost" */
    const char *owner; /* column with the id of the row's profile or run; not in columns */
    const struct column *columns;
    int num_columns;
    size_t row_size;
    size_t rows_offset, count_offset; /* tables of a profile: the array and its length there */
};
/* A table with rows of struct ROW and these columns. */
#define ROW_TABLE(row, ...)                                                                        \
    {                                                                                              \
        .row_size = sizeof(struct row), COLUMNS(__VA_ARGS__)                                       \
    }
#define COLUMNS(...)                                                                               \
    .columns = (const struct column[]){__VA_ARGS__},                                               \
    .num_columns = sizeof((const struct column[]){__VA_ARGS__}) / sizeof(struct column)

/* The value of a number's column. */
int64_t column_int(const struct column *column, const void *row);
double column_real(const struct column *column, const void *row);

/* Add the columns of a row that have a name to an object. */
void row_to_json(struct json *object, const struct row_table *table, const void *row);
/* Add an array to a parent: an object for each of n rows. */
void rows_to_json(struct json *parent, const char *key, const struct row_table *table,
                  const void *rows, int64_t n);

/* The cell of a CSV file: numbers whole, "" for a missing one. */
enum { CELL_MAX = 128 };
const char *column_csv(const struct column *column, const void *row, char buf[CELL_MAX]);
/* The printed cell, "-" for a missing value. */
const char *column_text(const struct column *column, const void *row, char buf[CELL_MAX]);

/* Print the headings, or the cells of a row, without a newline. A column whose name ends in _ns or
 * _bytes is printed as a time or a size. */
void row_print_head(FILE *out, const struct row_table *table);
void row_print(FILE *out, const struct row_table *table, const void *row);
/* Print the headings and n rows, a line each. */
void rows_print(const struct row_table *table, const void *rows, int64_t n);

#endif
