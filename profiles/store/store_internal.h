/* profiles/store/store_internal.h - the connection and generic rows of store.c, for the files that keep
 * tables in the store. */
#pragma once

#include <sqlite3.h>

#include "profiles/store/store.h"

struct store {
    sqlite3 *db;
    char *path;
    int depth; /* nested store_begin() calls; only the outermost begins a transaction in SQLite */
    bool busy; /* store_fail() saw a lock */
    int patience_ms; /* how long a call waits for a lock */
    int64_t ops,
        ops_limit; /* instructions of SQLite's machine in this step, and the most it gets */
};

/* Open a SQLite file of another program for reading. *store must be zeroed; the caller closes it with
 * store_close_other(), also after a failure. ERR_SYSTEM: it is missing or a folder. ERR_INPUT: it holds
 * code (invariant 5 of store.c), or is no SQLite file. */
enum status store_open_other(const char *path, struct store *store, struct err *err);
void store_close_other(struct store *store);

/* Turn the connection's last SQLite error into a status and a message with the file and the remedy.
 * `what` says what failed ("cannot read"). */
enum status store_fail(struct store *store, const char *what, struct err *err);

/* A transaction; it may lie within another. store_end() commits if rc is OK, else it rolls back all
 * of them. Returns rc, or why the commit failed. */
enum status store_begin(struct store *store, struct err *err);
enum status store_end(struct store *store, enum status rc, struct err *err);

enum status store_prepare(struct store *store, const char *sql, sqlite3_stmt **stmt,
                          struct err *err);
/* sqlite3_step() that gives up (SQLITE_INTERRUPT) after store->ops_limit instructions, so that a
 * forged or damaged file cannot keep one step busy for ever. */
int store_step(struct store *store, sqlite3_stmt *stmt);

/* Append the names of the columns, separated by commas, to the text in sql. */
void store_name_columns(char *sql, size_t size, const struct member *columns, int n);
void store_bind_column(sqlite3_stmt *stmt, int index, const struct member *column, const void *row);

/* INSERT OR REPLACE n rows of an owner; of a table without an owner, owner is not used. */
enum status store_put_rows(struct store *store, const struct row_table *table, int64_t owner,
                           const void *rows, int64_t n, struct err *err);

struct rows {
    void *at; /* fresh (free() it), or NULL if n is 0 */
    int64_t n;
};

/* Read all rows of a statement whose results are the table's columns in order. Its parameters must
 * be bound. The statement is finalized. */
enum status store_collect(struct store *store, sqlite3_stmt *stmt, const struct row_table *table,
                          struct rows *rows, struct err *err);

/* SELECT rows. tail is the SQL after FROM ("WHERE run_id = ? ORDER BY step"); args has a value for
 * each of its parameters. */
enum status store_get_rows(struct store *store, const struct row_table *table, const char *tail,
                           const int64_t *args, struct rows *rows, struct err *err);
