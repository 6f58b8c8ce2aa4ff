/* Run records in the store: tables of columns for each kind of row, and typed functions over
 * store_put_rows() and store_get_rows(). Read record.h first. */
#include "profiles/store/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "profiles/store/store_internal.h"

#ifndef ELAPSE_VERSION
#define ELAPSE_VERSION ""
#endif

#define INT(row, member, ...) COLUMN(row, #member, INT, member, __VA_ARGS__)
#define BOOL(row, member, ...) COLUMN(row, #member, BOOL, member, __VA_ARGS__)
#define REAL(row, member, ...) COLUMN(row, #member, REAL, member, __VA_ARGS__)
#define TEXT(row, member) COLUMN(row, #member, TEXT, member)
#define TABLE(name_, row, ...)                                                                     \
    {                                                                                              \
        .name = (name_), .owner = "run_id", .row_size = sizeof(struct row), COLUMNS(__VA_ARGS__)   \
    }

static const struct row_table run_table =
    TABLE("run", run_info, INT(run_info, id), BOOL(run_info, finished), TEXT(run_info, name),
          TEXT(run_info, started_at), TEXT(run_info, host), TEXT(run_info, version),
          TEXT(run_info, cost_source), INT(run_info, num_devices), INT(run_info, total_ns));
const struct row_table epoch_table =
    TABLE("epoch", epoch_row, INT(epoch_row, epoch, SHOWN("epoch", 5)),
          INT(epoch_row, frozen_layers, SHOWN(" frozen", 6)),
          INT(epoch_row, pipeline_length, SHOWN(" K", 4)), INT(epoch_row, replicas, SHOWN(" R", 4)),
          INT(epoch_row, microbatches, SHOWN(" M", 5), .leaves = 4),
          INT(epoch_row, steps, SHOWN(" steps", 6), .leaves = 6),
          INT(epoch_row, step_ns, SHOWN(" step", 12)),
          REAL(epoch_row, samples_per_s, SHOWN(" samples/s", 12), .leaves = 7, .format = "%.1f"),
          REAL(epoch_row, bubble_fraction, SHOWN(" bubble", 7), .leaves = 1, .format = "%.4f"),
          INT(epoch_row, transition_ns, SHOWN(" transition", 12), .leaves = 2),
          BOOL(epoch_row, cached, SHOWN(" cached", 6), .leaves = 3), REAL(epoch_row, train_loss),
          REAL(epoch_row, eval_loss),
          REAL(epoch_row, eval_accuracy, SHOWN(" accuracy", 9), .leaves = 5, .format = "%.4f"));
const struct row_table step_table =
    TABLE("step", step_row, INT(step_row, step), INT(step_row, epoch), INT(step_row, start_ns),
          INT(step_row, step_ns), REAL(step_row, loss), REAL(step_row, lr),
          REAL(step_row, grad_norm), REAL(step_row, samples_per_s), INT(step_row, frozen_layers),
          INT(step_row, pipeline_length), INT(step_row, replicas));
static const struct row_table op_table = TABLE(
    "op", op_row, INT(op_row, step), INT(op_row, replica), INT(op_row, rank), INT(op_row, start_ns),
    INT(op_row, end_ns), COLUMN(op_row, "kind", NAME, op.kind, .names = op_kind_names),
    COLUMN(op_row, "stage", INT, op.stage), COLUMN(op_row, "microbatch", INT, op.microbatch),
    COLUMN(op_row, "arg", INT, op.arg));
static const struct row_table transition_table =
    TABLE("transition", transition_row, INT(transition_row, epoch), TEXT(transition_row, part),
          INT(transition_row, ns), INT(transition_row, bytes));
const struct row_table memory_table =
    TABLE("memory", device_memory_row, INT(device_memory_row, epoch),
          INT(device_memory_row, device), TEXT(device_memory_row, what),
          INT(device_memory_row, predicted_bytes), INT(device_memory_row, peak_bytes));

/* --- writing ---------------------------------------------------------------------------------- */

enum status record_start(struct store *store, const struct run_info *info, int64_t *run_id,
                         struct err *err)
{
    struct run_info whole = *info;
    sqlite3_stmt *stmt = NULL;
    if (!*whole.started_at) {
        time_t now = time(NULL);
        struct tm utc;
        gmtime_r(&now, &utc);
        strftime(whole.started_at, sizeof whole.started_at, "%Y-%m-%dT%H:%M:%SZ", &utc);
    }
    if (!*whole.host)
        gethostname(whole.host, sizeof whole.host - 1);
    if (!*whole.version)
        snprintf(whole.version, sizeof whole.version, "%s", ELAPSE_VERSION);
    enum status rc = store_begin(store, err);
    if (rc != OK)
        return rc;
    rc = store_prepare(store,
                       "INSERT INTO run (kind, name, started_at, host, version, cost_source, "
                       "num_devices, job_json) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                       &stmt, err);
    if (rc == OK) {
        const char *const texts[] = {whole.simulated ? "simulated" : "real",
                                     whole.name,
                                     whole.started_at,
                                     whole.host,
                                     whole.version,
                                     whole.cost_source};
        for (int i = 0; i < 6; i++)
            sqlite3_bind_text(stmt, i + 1, texts[i], -1, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 7, whole.num_devices);
        sqlite3_bind_text(stmt, 8, whole.job_json, -1, SQLITE_STATIC); /* NULL stays NULL */
        if (store_step(store, stmt) == SQLITE_DONE)
            *run_id = sqlite3_last_insert_rowid(store->db);
        else
            rc = store_fail(store, "cannot write", err);
    }
    sqlite3_finalize(stmt);
    return store_end(store, rc, err);
}

static enum status no_run(struct store *store, int64_t run_id, struct err *err)
{
    if (run_id == 0)
        return err_set(err, ERR_INFEASIBLE, "no runs in store '%s'", store_path(store));
    return err_set(err, ERR_INFEASIBLE, "no run %lld in store '%s'", (long long)run_id,
                   store_path(store));
}

enum status record_finish(struct store *store, int64_t run_id, int64_t total_ns, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc = store_begin(store, err);
    if (rc != OK)
        return rc;
    rc = store_prepare(store, "UPDATE run SET finished = 1, total_ns = ? WHERE id = ?", &stmt, err);
    if (rc == OK) {
        sqlite3_bind_int64(stmt, 1, total_ns);
        sqlite3_bind_int64(stmt, 2, run_id);
        if (store_step(store, stmt) != SQLITE_DONE)
            rc = store_fail(store, "cannot write", err);
        else if (sqlite3_changes(store->db) == 0)
            rc = no_run(store, run_id, err);
    }
    sqlite3_finalize(stmt);
    return store_end(store, rc, err);
}

enum status record_epochs(struct store *store, int64_t run_id, const struct epoch_row *rows,
                          int64_t n, struct err *err)
{
    return store_put_rows(store, &epoch_table, run_id, rows, n, err);
}

enum status record_steps(struct store *store, int64_t run_id, const struct step_row *rows,
                         int64_t n, struct err *err)
{
    return store_put_rows(store, &step_table, run_id, rows, n, err);
}

enum status record_missing_steps(struct store *store, struct step_row *rows, int64_t *n,
                                 struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc =
        store_prepare(store, "SELECT DISTINCT step FROM step ORDER BY step", &stmt, err);
    if (rc != OK)
        return rc;
    int64_t kept = 0, i = 0;
    int got = SQLITE_ROW;
    while (i < *n && got == SQLITE_ROW) {
        got = store_step(store, stmt);
        const int64_t there = got == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : INT64_MAX;
        while (i < *n && rows[i].step < there)
            rows[kept++] = rows[i++];
        while (i < *n && rows[i].step == there)
            i++;
    }
    if (got != SQLITE_ROW && got != SQLITE_DONE)
        rc = store_fail(store, "cannot read", err);
    sqlite3_finalize(stmt);
    if (rc == OK)
        *n = kept;
    return rc;
}

enum status record_ops(struct store *store, int64_t run_id, const struct op_row *rows, int64_t n,
                       struct err *err)
{
    return store_put_rows(store, &op_table, run_id, rows, n, err);
}

enum status record_transitions(struct store *store, int64_t run_id,
                               const struct transition_row *rows, int64_t n, struct err *err)
{
    return store_put_rows(store, &transition_table, run_id, rows, n, err);
}

enum status record_memory(struct store *store, int64_t run_id, const struct device_memory_row *rows,
                          int64_t n, struct err *err)
{
    return store_put_rows(store, &memory_table, run_id, rows, n, err);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Read kind and job_json, which the table of columns cannot describe. */
static enum status read_rest(struct store *store, struct run_info *info, bool with_job,
                             struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc = store_prepare(
        store, "SELECT kind = 'simulated', job_json FROM run WHERE id = ?", &stmt, err);
    if (rc != OK)
        return rc;
    sqlite3_bind_int64(stmt, 1, info->id);
    if (store_step(store, stmt) != SQLITE_ROW) {
        rc = store_fail(store, "cannot read", err);
    } else {
        const char *text = (const char *)sqlite3_column_text(stmt, 1);
        info->simulated = sqlite3_column_int(stmt, 0) != 0;
        if (with_job && text && !(info->job_json = strdup(text)))
            rc = err_nomem(err);
    }
    sqlite3_finalize(stmt);
    return rc;
}

enum status record_list(struct store *store, struct run_info **infos, int *count, struct err *err)
{
    struct rows rows = {0};
    enum status rc = store_get_rows(store, &run_table, "ORDER BY id", NULL, &rows, err);
    struct run_info *got = rows.at;
    for (int64_t i = 0; i < rows.n && rc == OK; i++)
        rc = read_rest(store, &got[i], false, err);
    if (rc != OK) {
        free(got);
        return rc;
    }
    *infos = got;
    *count = (int)rows.n;
    return OK;
}

enum status record_run(struct store *store, int64_t run_id, struct run_info *info, struct err *err)
{
    struct rows rows = {0};
    const char *tail = run_id ? "WHERE id = ?"
                              : "ORDER BY kind = 'real' AND NOT EXISTS "
                                "(SELECT 1 FROM step WHERE run_id = run.id), id DESC LIMIT 1";
    enum status rc = store_get_rows(store, &run_table, tail, &run_id, &rows, err);
    if (rc == OK && rows.n == 0)
        rc = no_run(store, run_id, err);
    if (rc == OK) {
        struct run_info got = *(struct run_info *)rows.at;
        rc = read_rest(store, &got, true, err);
        if (rc == OK)
            *info = got;
    }
    free(rows.at);
    return rc;
}

/* Define the typed readers over store_get_rows(). */
#define READER(function, row_type, table, order)                                                   \
    enum status function(struct store *store, int64_t run_id, struct row_type **rows, int64_t *n,  \
                         struct err *err)                                                          \
    {                                                                                              \
        struct rows got;                                                                           \
        enum status rc =                                                                           \
            store_get_rows(store, &table, "WHERE run_id = ? ORDER BY " order, &run_id, &got, err); \
        if (rc == OK) {                                                                            \
            *rows = got.at;                                                                        \
            *n = got.n;                                                                            \
        }                                                                                          \
        return rc;                                                                                 \
    }

READER(record_read_epochs, epoch_row, epoch_table, "epoch")
READER(record_read_steps, step_row, step_table, "step")
READER(record_read_ops, op_row, op_table, "step, start_ns, replica, rank, end_ns, kind")
READER(record_read_transitions, transition_row, transition_table, "epoch, part")
READER(record_read_memory, device_memory_row, memory_table, "epoch, device, what")
