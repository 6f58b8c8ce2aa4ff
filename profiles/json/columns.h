/* profiles/json/columns.h - the members of a struct as columns. One table says how a row is stored in
 * SQL, written as JSON and CSV, and printed. */
#ifndef ELAPSE_PROFILES_COLUMNS_H
#define ELAPSE_PROFILES_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "partition/base/member.h"
#include "profiles/json/json.h"

/* A column of struct ROW: COLUMN(step_row, "loss", REAL, loss, .head = "loss"). The name stands in SQL,
 * JSON and CSV, and ends with the unit; NULL: only printed. A REAL that is NaN is NULL there. */
#define COLUMN(row, name_, type_, member, ...) MEMBER(row, name_, type_, member, NULL, __VA_ARGS__)
#define SHOWN(head_, width_) .head = (head_), .width = (width_)

/* A table of the store or of an answer, and the struct that holds one row of it. */
struct row_table {
    const char *name;  /* "layer_cost" */
    const char *owner; /* column with the id of the row's profile or run; not in columns */
    const struct member *columns;
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
    .columns = (const struct member[]){__VA_ARGS__},                                               \
    .num_columns = sizeof((const struct member[]){__VA_ARGS__}) / sizeof(struct member)

/* Add the columns of a row that have a name to an object. */
void row_to_json(struct json *object, const struct row_table *table, const void *row);
/* Add an array to a parent: an object for each of n rows. */
void rows_to_json(struct json *parent, const char *key, const struct row_table *table,
                  const void *rows, int64_t n);

/* The cell of a CSV file: numbers whole, "" for a missing one. */
enum { CELL_MAX = 128 };
const char *column_csv(const struct member *column, const void *row, char buf[CELL_MAX]);
/* The printed cell, "-" for a missing value. */
const char *column_text(const struct member *column, const void *row, char buf[CELL_MAX]);

/* Print the headings, or the cells of a row, without a newline. A column whose name ends in _ns or
 * _bytes is printed as a time or a size. */
void row_print_head(FILE *out, const struct row_table *table);
void row_print(FILE *out, const struct row_table *table, const void *row);
/* Print the headings and n rows, a line each. */
void rows_print(const struct row_table *table, const void *rows, int64_t n);

#endif
