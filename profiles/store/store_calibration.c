/* Calibrations in the store: a row of table calibration, and rows of its factors and their
 * covariances. */
#include "profiles/store/store_calibration.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "profiles/store/store_internal.h"

#define HEAD(type, member) COLUMN(calibration, #member, type, member)
static const struct row_table head_table = {
    .name = "calibration",
    .row_size = sizeof(struct calibration),
    COLUMNS(HEAD(TEXT, name), HEAD(TEXT, made_at), HEAD(TEXT, version), HEAD(TEXT, cluster),
            HEAD(TEXT, framework), HEAD(INT, num_rows), HEAD(INT, num_peaks), HEAD(REAL, noise),
            HEAD(TEXT, device), HEAD(TEXT, dtype), HEAD(TEXT, launcher))};

struct factor_row {
    char calibration[CALIBRATION_NAME_MAX], factor[16], other[16];
    bool determined;
    double value;
};
#define FACTOR(type, member) COLUMN(factor_row, #member, type, member)
static const struct row_table factor_table = {
    .name = "calibration_factor",
    .row_size = sizeof(struct factor_row),
    COLUMNS(FACTOR(TEXT, calibration), FACTOR(TEXT, factor), FACTOR(BOOL, determined),
            FACTOR(REAL, value))};
static const struct row_table covariance_table = {.name = "calibration_covariance",
                                                  .row_size = sizeof(struct factor_row),
                                                  COLUMNS(FACTOR(TEXT, calibration),
                                                          FACTOR(TEXT, factor), FACTOR(TEXT, other),
                                                          FACTOR(REAL, value))};

/* Table calibration as it is in this store: below version 9 it lacks the last columns, and a store of
 * a version that knew no calibrations has none. */
static enum status known_table(struct store *store, struct row_table *table, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc =
        store_prepare(store, "SELECT count(*) FROM pragma_table_info('calibration')", &stmt, err);
    if (rc != OK)
        return rc;
    *table = head_table;
    if (store_step(store, stmt) != SQLITE_ROW)
        rc = store_fail(store, "cannot read", err);
    else if (sqlite3_column_int(stmt, 0) < table->num_columns)
        table->num_columns = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    return rc;
}

enum status store_list_calibrations(struct store *store, char (**names)[CALIBRATION_NAME_MAX],
                                    int *n, struct err *err)
{
    struct row_table table;
    struct rows rows = {0};
    enum status rc = known_table(store, &table, err);
    if (rc == OK && table.num_columns > 0)
        rc = store_get_rows(store, &table, "ORDER BY name", NULL, &rows, err);
    *names = rc == OK ? malloc((size_t)(rows.n + 1) * sizeof **names) : NULL;
    if (rc == OK && !*names)
        rc = err_nomem(err);
    for (int64_t i = 0; rc == OK && i < rows.n; i++)
        memcpy((*names)[i], ((struct calibration *)rows.at)[i].name, sizeof **names);
    *n = (int)rows.n;
    free(rows.at);
    return rc;
}

static enum status no_calibration(struct store *store, const char *name, struct err *err)
{
    char(*names)[CALIBRATION_NAME_MAX] = NULL;
    const char *known[64];
    char list[200];
    int n = 0, count = 0;
    if (store_list_calibrations(store, &names, &count, NULL) != OK)
        count = 0;
    for (; n < count && n < 64; n++)
        known[n] = names[n];
    const char *near = nearest_name(name, known, n);
    const enum status rc =
        err_set(err, ERR_INFEASIBLE, "no calibration '%s' in store '%s'%s%s%s", name,
                store_path(store), near ? ", nearest is '" : "", near ? near : "", near ? "'" : "");
    if (n)
        err_hint(err, "calibrations: %s", join_names(known, n, list, sizeof list));
    else
        err_hint(err, "'elapse calibrate' makes one of measured steps");
    free(names);
    return rc;
}

/* Delete a calibration, and with it the rows that refer to it. */
static enum status delete_calibration(struct store *store, const char *name, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc = store_prepare(store, "DELETE FROM calibration WHERE name = ?", &stmt, err);
    if (rc != OK)
        return rc;
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    if (store_step(store, stmt) != SQLITE_DONE)
        rc = store_fail(store, "cannot write", err);
    sqlite3_finalize(stmt);
    return rc;
}

enum status store_put_calibration(struct store *store, const struct calibration *calibration,
                                  struct err *err)
{
    struct factor_row factors[FACTOR_COUNT], covariances[FACTOR_COUNT * FACTOR_COUNT];
    for (int i = 0; i < FACTOR_COUNT * FACTOR_COUNT; i++) {
        const int k = i / FACTOR_COUNT, other = i % FACTOR_COUNT;
        struct factor_row *row = &covariances[i];
        *row = (struct factor_row){.value = calibration->covariance[k][other]};
        snprintf(row->calibration, sizeof row->calibration, "%s", calibration->name);
        snprintf(row->factor, sizeof row->factor, "%s", factor_name((enum factor)k));
        snprintf(row->other, sizeof row->other, "%s", factor_name((enum factor)other));
        if (other > 0)
            continue;
        factors[k] = *row;
        factors[k].value = calibration->factor[k];
        factors[k].determined = calibration->determined[k];
    }
    enum status rc = store_begin(store, err);
    if (rc != OK)
        return rc;
    rc = delete_calibration(store, calibration->name, err);
    THEN(store_put_rows(store, &head_table, 0, calibration, 1, err));
    THEN(store_put_rows(store, &factor_table, 0, factors, FACTOR_COUNT, err));
    THEN(
        store_put_rows(store, &covariance_table, 0, covariances, FACTOR_COUNT * FACTOR_COUNT, err));
    return store_end(store, rc, err);
}

enum status store_remove_calibration(struct store *store, const char *name, struct err *err)
{
    struct calibration known;
    enum status rc = store_get_calibration(store, name, &known, err);
    THEN(store_begin(store, err));
    if (rc != OK)
        return rc;
    rc = delete_calibration(store, name, err);
    return store_end(store, rc, err);
}

/* The rows of a table whose column `key` is a name. */
static enum status rows_of(struct store *store, const struct row_table *table, const char *key,
                           const char *name, struct rows *rows, struct err *err)
{
    char sql[512] = "SELECT ";
    sqlite3_stmt *stmt = NULL;
    store_name_columns(sql, sizeof sql, table->columns, table->num_columns);
    const size_t used = strlen(sql);
    snprintf(sql + used, sizeof sql - used, " FROM %s WHERE %s = ?", table->name, key);
    const enum status rc = store_prepare(store, sql, &stmt, err);
    if (rc != OK)
        return rc;
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    return store_collect(store, stmt, table, rows, err);
}

static int factor_find(const char *name)
{
    for (int i = 0; i < FACTOR_COUNT; i++)
        if (strcmp(name, factor_name((enum factor)i)) == 0)
            return i;
    return -1;
}

/* Read the rows of factors or of covariances. */
static enum status get_factors(struct store *store, bool covariances, struct calibration *c,
                               struct err *err)
{
    struct rows rows = {0};
    enum status rc = rows_of(store, covariances ? &covariance_table : &factor_table, "calibration",
                             c->name, &rows, err);
    for (int64_t r = 0; rc == OK && r < rows.n; r++) {
        const struct factor_row *row = &((const struct factor_row *)rows.at)[r];
        const int i = factor_find(row->factor), j = covariances ? factor_find(row->other) : 0;
        if (i < 0 || j < 0 || !isfinite(row->value) || (!covariances && !(row->value > 0))) {
            rc = err_set(err, ERR_INPUT, "store '%s' is damaged: calibration '%s'",
                         store_path(store), c->name);
        } else if (covariances) {
            c->covariance[i][j] = row->value;
        } else {
            c->factor[i] = row->value;
            c->determined[i] = row->determined;
        }
    }
    if (rc == OK && rows.n != (covariances ? FACTOR_COUNT * FACTOR_COUNT : FACTOR_COUNT))
        rc = err_set(err, ERR_INPUT, "store '%s' is damaged: calibration '%s' lacks factors",
                     store_path(store), c->name);
    free(rows.at);
    return rc;
}

enum status store_get_calibration(struct store *store, const char *name,
                                  struct calibration *calibration, struct err *err)
{
    struct row_table table;
    struct rows rows = {0};
    struct calibration got = {0};
    enum status rc = known_table(store, &table, err);
    if (rc == OK && table.num_columns > 0)
        rc = rows_of(store, &table, "name", name, &rows, err);
    if (rc == OK && rows.n == 0)
        rc = no_calibration(store, name, err);
    if (rc == OK)
        got = *(const struct calibration *)rows.at;
    free(rows.at);
    THEN(get_factors(store, false, &got, err));
    THEN(get_factors(store, true, &got, err));
    if (rc == OK)
        *calibration = got;
    return rc;
}
