/* Calibrations in the store: a row of table calibration, and rows of its factors and their
 * covariances. */
#include "profiles/store/store_calibration.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "profiles/store/store_internal.h"

/* A store of a version that knew no calibrations has none. */
static enum status has_tables(struct store *store, bool *has, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc = store_prepare(
        store, "SELECT count(*) FROM sqlite_schema WHERE name = 'calibration'", &stmt, err);
    if (rc != OK)
        return rc;
    if (store_step(store, stmt) == SQLITE_ROW)
        *has = sqlite3_column_int64(stmt, 0) > 0;
    else
        rc = store_fail(store, "cannot read", err);
    sqlite3_finalize(stmt);
    return rc;
}

enum status store_list_calibrations(struct store *store, char (**names)[CALIBRATION_NAME_MAX],
                                    int *n, struct err *err)
{
    char(*got)[CALIBRATION_NAME_MAX] = NULL;
    sqlite3_stmt *stmt = NULL;
    int count = 0, step = SQLITE_DONE;
    bool has = false;
    enum status rc = has_tables(store, &has, err);
    if (rc == OK && has)
        rc = store_prepare(store, "SELECT name FROM calibration ORDER BY name", &stmt, err);
    while (rc == OK && stmt && (step = store_step(store, stmt)) == SQLITE_ROW) {
        void *more = realloc(got, ((size_t)count + 1) * sizeof *got);
        if (!more) {
            rc = err_nomem(err);
            break;
        }
        got = more;
        snprintf(got[count++], sizeof *got, "%s", (const char *)sqlite3_column_text(stmt, 0));
    }
    if (rc == OK && step != SQLITE_DONE)
        rc = store_fail(store, "cannot read", err);
    sqlite3_finalize(stmt);
    if (rc != OK) {
        free(got);
        return rc;
    }
    *names = got;
    *n = count;
    return OK;
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

/* Run a statement that returns no rows and finalize it. */
static enum status run(struct store *store, sqlite3_stmt *stmt, struct err *err)
{
    const enum status rc =
        store_step(store, stmt) == SQLITE_DONE ? OK : store_fail(store, "cannot write", err);
    sqlite3_finalize(stmt);
    return rc;
}

static enum status put_head(struct store *store, const struct calibration *c, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    const enum status rc = store_prepare(
        store, "INSERT INTO calibration VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", &stmt, err);
    if (rc != OK)
        return rc;
    const char *texts[] = {c->name, c->made_at, c->version, c->cluster, c->framework};
    for (int i = 0; i < 5; i++)
        sqlite3_bind_text(stmt, i + 1, texts[i], -1, SQLITE_TRANSIENT);
    sqlite3_bind_int(stmt, 6, c->num_rows);
    sqlite3_bind_int(stmt, 7, c->num_peaks);
    sqlite3_bind_double(stmt, 8, c->noise);
    const char *measured_on[] = {c->device, c->dtype, c->launcher};
    for (int i = 0; i < 3; i++)
        sqlite3_bind_text(stmt, i + 9, measured_on[i], -1, SQLITE_TRANSIENT);
    return run(store, stmt, err);
}

static enum status put_factor(struct store *store, const struct calibration *c, int factor,
                              struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc =
        store_prepare(store, "INSERT INTO calibration_factor VALUES (?, ?, ?, ?)", &stmt, err);
    if (rc != OK)
        return rc;
    sqlite3_bind_text(stmt, 1, c->name, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, factor_name((enum factor)factor), -1, SQLITE_STATIC);
    sqlite3_bind_double(stmt, 3, c->factor[factor]);
    sqlite3_bind_int(stmt, 4, c->determined[factor]);
    rc = run(store, stmt, err);
    for (int k = 0; k < FACTOR_COUNT && rc == OK; k++) {
        rc = store_prepare(store, "INSERT INTO calibration_covariance VALUES (?, ?, ?, ?)", &stmt,
                           err);
        if (rc != OK)
            return rc;
        sqlite3_bind_text(stmt, 1, c->name, -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 2, factor_name((enum factor)factor), -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 3, factor_name((enum factor)k), -1, SQLITE_STATIC);
        sqlite3_bind_double(stmt, 4, c->covariance[factor][k]);
        rc = run(store, stmt, err);
    }
    return rc;
}

/* Delete a calibration, and with it the rows that refer to it. */
static enum status delete_calibration(struct store *store, const char *name, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    const enum status rc =
        store_prepare(store, "DELETE FROM calibration WHERE name = ?", &stmt, err);
    if (rc != OK)
        return rc;
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    return run(store, stmt, err);
}

enum status store_put_calibration(struct store *store, const struct calibration *calibration,
                                  struct err *err)
{
    enum status rc = store_begin(store, err);
    if (rc != OK)
        return rc;
    rc = delete_calibration(store, calibration->name, err);
    THEN(put_head(store, calibration, err));
    for (int i = 0; i < FACTOR_COUNT && rc == OK; i++)
        rc = put_factor(store, calibration, i, err);
    return store_end(store, rc, err);
}

enum status store_remove_calibration(struct store *store, const char *name, struct err *err)
{
    struct calibration known;
    enum status rc = store_get_calibration(store, name, &known, err);
    if (rc != OK)
        return rc;
    rc = store_begin(store, err);
    if (rc != OK)
        return rc;
    rc = delete_calibration(store, name, err);
    return store_end(store, rc, err);
}

static int factor_find(const unsigned char *name)
{
    for (int i = 0; i < FACTOR_COUNT; i++)
        if (name && strcmp((const char *)name, factor_name((enum factor)i)) == 0)
            return i;
    return -1;
}

/* Read the rows of factors or of covariances: a factor, for covariances another one, and values. */
static enum status get_rows(struct store *store, bool covariances, struct calibration *c,
                            struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int step = SQLITE_DONE, rows = 0;
    const char *sql = covariances
                          ? "SELECT factor, other, value FROM calibration_covariance WHERE "
                            "calibration = ?"
                          : "SELECT factor, determined, value FROM calibration_factor WHERE "
                            "calibration = ?";
    enum status rc = store_prepare(store, sql, &stmt, err);
    if (rc != OK)
        return rc;
    sqlite3_bind_text(stmt, 1, c->name, -1, SQLITE_STATIC);
    while (rc == OK && (step = store_step(store, stmt)) == SQLITE_ROW) {
        const int i = factor_find(sqlite3_column_text(stmt, 0));
        const int j = covariances ? factor_find(sqlite3_column_text(stmt, 1)) : 0;
        const double value = sqlite3_column_double(stmt, 2);
        rows++;
        if (i < 0 || j < 0 || !isfinite(value) || (!covariances && !(value > 0))) {
            rc = err_set(err, ERR_INPUT, "store '%s' is damaged: calibration '%s'",
                         store_path(store), c->name);
        } else if (covariances) {
            c->covariance[i][j] = value;
        } else {
            c->factor[i] = value;
            c->determined[i] = sqlite3_column_int(stmt, 1) != 0;
        }
    }
    if (rc == OK && step != SQLITE_DONE)
        rc = store_fail(store, "cannot read", err);
    if (rc == OK && rows != (covariances ? FACTOR_COUNT * FACTOR_COUNT : FACTOR_COUNT))
        rc = err_set(err, ERR_INPUT, "store '%s' is damaged: calibration '%s' lacks factors",
                     store_path(store), c->name);
    sqlite3_finalize(stmt);
    return rc;
}

/* Copy the text of a column; "" where the row has no such column. */
static void take_text(sqlite3_stmt *stmt, int column, char *text, size_t size)
{
    const unsigned char *got = sqlite3_column_text(stmt, column);
    snprintf(text, size, "%s", got ? (const char *)got : "");
}

/* Stores below version 9 lack the last three columns. */
enum status store_get_calibration(struct store *store, const char *name,
                                  struct calibration *calibration, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    struct calibration got = {0};
    bool has = false, found = false;
    enum status rc = has_tables(store, &has, err);
    if (rc != OK || !has)
        return rc != OK ? rc : no_calibration(store, name, err);
    rc = store_prepare(store, "SELECT * FROM calibration WHERE name = ?", &stmt, err);
    if (rc != OK)
        return rc;
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    const int step = store_step(store, stmt);
    if (step == SQLITE_ROW) {
        found = true;
        snprintf(got.name, sizeof got.name, "%s", name);
        take_text(stmt, 1, got.made_at, sizeof got.made_at);
        take_text(stmt, 2, got.version, sizeof got.version);
        take_text(stmt, 3, got.cluster, sizeof got.cluster);
        take_text(stmt, 4, got.framework, sizeof got.framework);
        got.num_rows = sqlite3_column_int(stmt, 5);
        got.num_peaks = sqlite3_column_int(stmt, 6);
        got.noise = sqlite3_column_double(stmt, 7);
        take_text(stmt, 8, got.device, sizeof got.device);
        take_text(stmt, 9, got.dtype, sizeof got.dtype);
        take_text(stmt, 10, got.launcher, sizeof got.launcher);
    } else if (step != SQLITE_DONE) {
        rc = store_fail(store, "cannot read", err);
    }
    sqlite3_finalize(stmt);
    if (rc == OK && !found)
        rc = no_calibration(store, name, err);
    THEN(get_rows(store, false, &got, err));
    THEN(get_rows(store, true, &got, err));
    if (rc == OK)
        *calibration = got;
    return rc;
}
