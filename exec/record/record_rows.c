#include "exec/record/record_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partition/base/units.h"

enum { PATIENCE_MS = 50, START_PATIENCE_MS = 2000, END_PATIENCE_MS = 2000 };

/* Rows that were handed over in one call. */
struct batch {
    struct batch *next;
    enum row_kind kind;
    int64_t n, bytes;
    char rows[]; /* n of them */
};

struct record_rows {
    char *path, *waiting_path;
    struct run_info info;          /* job_json is owned */
    struct store *store, *waiting; /* store NULL: it was locked whenever it was to be opened */
    bool begun;                    /* run.db has the run's row, run_id */
    int64_t run_id, waiting_id;
    struct batch *first, **last;
    int64_t bytes;               /* of all batches */
    int64_t num_aside, num_lost; /* rows in the second store; rows that are in none */
    char why[160];               /* the first reason that run.db was not written */
};

static const size_t row_bytes[ROW_KINDS] = {sizeof(struct epoch_row), sizeof(struct step_row),
                                            sizeof(struct op_row), sizeof(struct transition_row),
                                            sizeof(struct device_memory_row)};

static enum status write_batch(struct store *store, int64_t run_id, const struct batch *batch,
                               struct err *err)
{
    const void *rows = batch->rows;
    switch (batch->kind) {
    case ROWS_EPOCH:
        return record_epochs(store, run_id, rows, batch->n, err);
    case ROWS_STEP:
        return record_steps(store, run_id, rows, batch->n, err);
    case ROWS_OP:
        return record_ops(store, run_id, rows, batch->n, err);
    case ROWS_TRANSITION:
        return record_transitions(store, run_id, rows, batch->n, err);
    default:
        return record_memory(store, run_id, rows, batch->n, err);
    }
}

/* Drop the batch that *at points to: rows->first, or the `next` of the one before it. */
static void drop(struct record_rows *rows, struct batch **at)
{
    struct batch *batch = *at;
    *at = batch->next;
    if (!*at)
        rows->last = at;
    rows->bytes -= batch->bytes;
    free(batch);
}

/* Open run.db and begin the record there, unless that has been done. *locked: whether it failed
 * because of a lock. */
static enum status begin(struct record_rows *rows, int patience_ms, bool *locked, struct err *err)
{
    enum status rc = OK;
    *locked = false;
    if (!rows->store)
        rc = store_open_within(rows->path, STORE_RECORD, patience_ms, locked, &rows->store, err);
    if (rc == OK && !rows->begun) {
        store_set_patience(rows->store, patience_ms);
        rc = record_start(rows->store, &rows->info, &rows->run_id, err);
        *locked = rc != OK && store_was_locked(rows->store);
        rows->begun = rc == OK;
        store_set_patience(rows->store, PATIENCE_MS);
    }
    return rc;
}

static void note_why(struct record_rows *rows, const struct err *err)
{
    if (!*rows->why)
        snprintf(rows->why, sizeof rows->why, "%.150s", err->msg);
}

/* Write waiting batches into run.db, in order, until one fails. */
static void flush(struct record_rows *rows, int patience_ms)
{
    struct err err = {0};
    bool locked;
    enum status rc = begin(rows, patience_ms, &locked, &err);
    if (rc == OK)
        store_set_patience(rows->store, patience_ms);
    while (rc == OK && rows->first) {
        rc = write_batch(rows->store, rows->run_id, rows->first, &err);
        if (rc == OK)
            drop(rows, &rows->first);
    }
    if (rc != OK)
        note_why(rows, &err);
    if (rows->store)
        store_set_patience(rows->store, PATIENCE_MS);
}

/* Open the second store and begin the record there. It stays NULL if that fails. */
static void open_waiting(struct record_rows *rows)
{
    if (rows->waiting || store_open(rows->waiting_path, STORE_RECORD, &rows->waiting, NULL) != OK)
        return;
    store_set_patience(rows->waiting, PATIENCE_MS);
    if (record_start(rows->waiting, &rows->info, &rows->waiting_id, NULL) != OK) {
        store_close(rows->waiting);
        rows->waiting = NULL;
    }
}

/* Put waiting batches into the second store. What it does not take is lost. Before the run's end
 * only steps and ops go there, because nothing replaces them. A row of another kind may be replaced
 * later; put aside, it would come back over the newer one. */
static void put_aside(struct record_rows *rows, bool ends)
{
    struct batch **at = &rows->first;
    if (!rows->first)
        return;
    open_waiting(rows);
    while (*at) {
        struct batch *batch = *at;
        if (!ends && batch->kind != ROWS_STEP && batch->kind != ROWS_OP) {
            at = &batch->next;
            continue;
        }
        const bool kept =
            rows->waiting && write_batch(rows->waiting, rows->waiting_id, batch, NULL) == OK;
        *(kept ? &rows->num_aside : &rows->num_lost) += batch->n;
        drop(rows, at);
    }
}

/* Copy all rows of a kind from the second store into run.db. */
static enum status copy_back(struct record_rows *rows, enum row_kind kind, struct err *err)
{
    struct store *from = rows->waiting, *to = rows->store;
    void *got = NULL;
    int64_t n = 0;
    enum status rc = OK;
    switch (kind) {
    case ROWS_EPOCH:
        rc = record_read_epochs(from, rows->waiting_id, (struct epoch_row **)&got, &n, err);
        THEN(record_epochs(to, rows->run_id, got, n, err));
        break;
    case ROWS_STEP:
        rc = record_read_steps(from, rows->waiting_id, (struct step_row **)&got, &n, err);
        THEN(record_steps(to, rows->run_id, got, n, err));
        break;
    case ROWS_OP:
        rc = record_read_ops(from, rows->waiting_id, (struct op_row **)&got, &n, err);
        THEN(record_ops(to, rows->run_id, got, n, err));
        break;
    case ROWS_TRANSITION:
        rc = record_read_transitions(from, rows->waiting_id, (struct transition_row **)&got, &n,
                                     err);
        THEN(record_transitions(to, rows->run_id, got, n, err));
        break;
    default:
        rc = record_read_memory(from, rows->waiting_id, (struct device_memory_row **)&got, &n, err);
        THEN(record_memory(to, rows->run_id, got, n, err));
        break;
    }
    free(got);
    return rc;
}

/* If run.db has everything else by now, copy the rows of the second store there, and remove it. If
 * one kind cannot be written, all stay; a row that is in both is the same row. */
static void bring_back(struct record_rows *rows)
{
    enum status rc = OK;
    if (!rows->waiting || !rows->begun || rows->first)
        return;
    for (int kind = 0; rc == OK && kind < ROW_KINDS; kind++)
        rc = copy_back(rows, (enum row_kind)kind, NULL);
    if (rc != OK)
        return;
    store_close(rows->waiting);
    rows->waiting = NULL;
    rows->num_aside = 0;
    unlink(rows->waiting_path);
}

enum status record_rows_open(const char *dir, const struct run_info *info,
                             struct record_rows **rows, struct err *err)
{
    struct record_rows *got = calloc(1, sizeof *got);
    struct err why = {0};
    bool locked = false;
    enum status rc;
    if (!got)
        return err_nomem(err);
    got->last = &got->first;
    got->info = *info;
    got->info.job_json = info->job_json ? strdup(info->job_json) : NULL;
    if (asprintf(&got->path, "%s/run.db", dir) < 0)
        got->path = NULL;
    if (asprintf(&got->waiting_path, "%s/run-waiting.db", dir) < 0)
        got->waiting_path = NULL;
    if (!got->path || !got->waiting_path || (info->job_json && !got->info.job_json))
        rc = err_nomem(&why);
    else
        rc = begin(got, START_PATIENCE_MS, &locked, &why);
    if (rc != OK && !locked) {
        record_rows_free(got);
        return err_copy(err, &why);
    }
    if (locked)
        note_why(got, &why);
    *rows = got;
    return OK;
}

void record_rows_fill(struct record_rows *rows, struct step_row *steps, int64_t n)
{
    struct err err = {0};
    if (!rows->begun || n == 0)
        return;
    enum status rc = record_missing_steps(rows->store, steps, &n, &err);
    if (rc == OK && n > 0)
        rc = record_steps(rows->store, rows->run_id > 1 ? rows->run_id - 1 : rows->run_id, steps, n,
                          &err);
    if (rc != OK)
        note_why(rows, &err);
}

void record_rows_add(struct record_rows *rows, enum row_kind kind, const void *at, int64_t n)
{
    const int64_t bytes = n * (int64_t)row_bytes[kind];
    struct batch *batch = n > 0 ? malloc(sizeof *batch + (size_t)bytes) : NULL;
    if (n <= 0)
        return;
    if (!batch) {
        rows->num_lost += n;
        return;
    }
    *batch = (struct batch){.kind = kind, .n = n, .bytes = bytes};
    memcpy(batch->rows, at, (size_t)bytes);
    *rows->last = batch;
    rows->last = &batch->next;
    rows->bytes += bytes;
    flush(rows, PATIENCE_MS);
    if (rows->bytes > ROWS_WAIT_BYTES)
        put_aside(rows, false);
}

void record_rows_finish(struct record_rows *rows, int64_t total_ns, int patience_ms,
                        char note[ROWS_NOTE_BYTES])
{
    struct err err = {0};
    size_t used = 0;
    enum status rc = ERR_SYSTEM;
    note[0] = '\0';
    flush(rows, patience_ms);
    if (rows->begun) {
        if (!rows->first) /* otherwise the lock has been waited for */
            store_set_patience(rows->store, patience_ms);
        bring_back(rows);
        rc = record_finish(rows->store, rows->run_id, total_ns, &err);
        store_set_patience(rows->store, PATIENCE_MS);
    }
    put_aside(rows, true);
    if (rc == OK && rows->num_aside == 0 && rows->num_lost == 0)
        return;
    used = (size_t)snprintf(note, ROWS_NOTE_BYTES, "run.db is not whole (%.150s)",
                            *rows->why ? rows->why : err.msg);
    if (rows->num_aside > 0 && used < ROWS_NOTE_BYTES)
        used += (size_t)snprintf(note + used, ROWS_NOTE_BYTES - used, "; %s in run-waiting.db",
                                 COUNT_TEXT(rows->num_aside, "row"));
    if (rows->num_lost > 0 && used < ROWS_NOTE_BYTES)
        snprintf(note + used, ROWS_NOTE_BYTES - used, "; %s lost",
                 COUNT_TEXT(rows->num_lost, "row"));
}

void record_rows_free(struct record_rows *rows)
{
    if (!rows)
        return;
    if (rows->first) {
        flush(rows, END_PATIENCE_MS);
        put_aside(rows, true);
    }
    bring_back(rows);
    store_close(rows->store);
    store_close(rows->waiting);
    free(rows->info.job_json);
    free(rows->path);
    free(rows->waiting_path);
    free(rows);
}
