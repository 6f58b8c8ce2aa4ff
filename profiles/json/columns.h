/* profiles/json/columns.h - the members of a struct as columns. One table says how a row is stored in
 * SQL, written as JSON and CSV, and printed. */
#pragma once

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
    int besides; /* characters of a printed line that its columns do not count */
};
/* A table with rows of struct ROW and these columns, and one with `besides`. */
#define ROW_TABLE(row, ...) ROW_TABLE_BESIDES(0, row, __VA_ARGS__)
#define ROW_TABLE_BESIDES(besides_, row, ...)                                                      \
    {                                                                                              \
        .row_size = sizeof(struct row), .besides = (besides_), COLUMNS(__VA_ARGS__)                \
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

/* How many columns leave (member.leaves) so that a line of these tables, side by side, and `besides`
 * fits the terminal on stdout. 0: it fits, or stdout is no terminal. */
int rows_left_out(const struct row_table *const *tables, int num, int besides);
/* A table without those columns. */
enum { ROW_COLUMNS = 40 };
struct row_table row_table_without(const struct row_table *table, int left_out,
                                   struct member columns[ROW_COLUMNS]);

/* Print the headings, or the cells of a row, without a newline. A column whose name ends in _ns or
 * _bytes is printed as a time or a size. On stdout, a terminal gets the columns that fit it. */
void row_print_head(FILE *out, const struct row_table *table);
void row_print(FILE *out, const struct row_table *table, const void *row);
/* Print the headings and n rows, a line each. */
void rows_print(const struct row_table *table, const void *rows, int64_t n);
