/* profiles/store_internal.h - the connection and generic rows of store.c, for the files that keep
 * tables in the store. */
#ifndef ELAPSE_PROFILES_STORE_INTERNAL_H
#define ELAPSE_PROFILES_STORE_INTERNAL_H

#include <sqlite3.h>

#include "profiles/store.h"

struct store {
    sqlite3 *db;
    char *path;
    int depth; /* nested store_begin() calls; only the outermost begins a transaction in SQLite */
    bool busy; /* store_fail() saw a lock */
    int64_t ops,
        ops_limit; /* instructions of SQLite's machine in this step, and the most it gets */
};

/* Turn the connection's last SQLite error into a status and a message with the file and the remedy.
 * `what` says what failed ("cannot read"). */
enum status store_fail(struct store *store, const char *what, struct err *err);

enum status store_prepare(struct store *store, const char *sql, sqlite3_stmt **stmt,
                          struct err *err);
/* sqlite3_step() that gives up (SQLITE_INTERRUPT) after store->ops_limit instructions, so that a
 * forged or damaged file cannot keep one step busy for ever. */
int store_step(struct store *store, sqlite3_stmt *stmt);

/* Append the names of the columns, separated by commas, to the text in sql. */
void store_name_columns(char *sql, size_t size, const struct column *columns, int n);
void store_bind_column(sqlite3_stmt *stmt, int index, const struct column *column, const void *row);

/* INSERT OR REPLACE n flat rows into a table. owner_column of each row is owner, the other columns
 * come from the row. */
enum status store_put_rows(struct store *store, const char *table, const char *owner_column,
                           int64_t owner, const struct column *columns, int num_columns,
                           const void *rows, size_t row_size, int64_t n, struct err *err);

/* Read all rows of a statement whose results are the columns in order. Its parameters must be
 * bound. The statement is finalized. *rows is fresh (free() it), or NULL if n is 0. */
enum status store_collect(struct store *store, sqlite3_stmt *stmt, const struct column *columns,
                          int num_columns, size_t row_size, void **rows, int64_t *n,
                          struct err *err);

/* SELECT the columns of all rows of an owner. tail is SQL behind the WHERE clause ("AND step = ?2
 * ORDER BY start_ns"); ?2 is arg. *rows is fresh (free() it), or NULL if n is 0. */
enum status store_get_rows(struct store *store, const char *table, const char *owner_column,
                           int64_t owner, const char *tail, int64_t arg,
                           const struct column *columns, int num_columns, size_t row_size,
                           void **rows, int64_t *n, struct err *err);

#endif
