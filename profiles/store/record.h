/* profiles/store/record.h - run records. Simulated and real runs write the same tables.
 *
 * A writer opens a store (STORE_RECORD for a run's own file, STORE_WRITE for the shared one), adds
 * a run, appends rows in batches (each call is one transaction) and finishes the run. A reader gets
 * the rows back as arrays. Removing a run removes its rows. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/schedule/schedule.h"
#include "partition/base/status.h"
#include "profiles/store/store.h"

struct run_info {
    int64_t id;                                 /* set by record_start() */
    bool simulated;                             /* false: a real run */
    bool finished;                              /* false: still running, or died */
    char name[64];                              /* name of the job */
    char started_at[32], host[64], version[32]; /* record_start() fills those that are empty */
    char cost_source[96];
    int64_t num_devices;
    int64_t total_ns; /* set by record_finish() */
    char *job_json;   /* the resolved job, or NULL; borrowed when writing, owned when read */
};

struct epoch_row {
    int64_t epoch, frozen_layers, pipeline_length, replicas, microbatches, steps;
    int64_t step_ns, transition_ns;
    double samples_per_s, bubble_fraction;
    bool cached;
    double train_loss, eval_loss, eval_accuracy; /* NaN: not computed */
};

struct step_row {
    int64_t step, epoch, start_ns, step_ns; /* start_ns: since the start of the run */
    double loss, lr, grad_norm, samples_per_s;
    int64_t frozen_layers, pipeline_length, replicas;
};

struct op_row {
    int64_t step, replica, rank;
    int64_t start_ns, end_ns; /* since the start of the step */
    struct op op;
};

struct transition_row {
    int64_t epoch;
    char part[16]; /* decide plan move groups cache total; restart: time lost before this epoch */
    int64_t ns, bytes;
};

struct device_memory_row {
    int64_t epoch, device, predicted_bytes, peak_bytes; /* bytes 0: unknown */
    char what[16]; /* total weights grads optimizer stash ... */
};

/* The rows of an epoch, of a step and of a device's memory, as stored and as printed. */
extern const struct row_table epoch_table, step_table, memory_table;

/* Add a run. Other functions take the *run_id that it returns. */
enum status record_start(struct store *store, const struct run_info *info, int64_t *run_id,
                         struct err *err);
enum status record_finish(struct store *store, int64_t run_id, int64_t total_ns, struct err *err);

/* Append rows. A row replaces an older one with an equal key (epoch; step; step, replica, rank,
 * start, kind; ...), because a resumed run may write a step again. */
enum status record_epochs(struct store *store, int64_t run_id, const struct epoch_row *rows,
                          int64_t n, struct err *err);
enum status record_steps(struct store *store, int64_t run_id, const struct step_row *rows,
                         int64_t n, struct err *err);
enum status record_ops(struct store *store, int64_t run_id, const struct op_row *rows, int64_t n,
                       struct err *err);
enum status record_transitions(struct store *store, int64_t run_id,
                               const struct transition_row *rows, int64_t n, struct err *err);
enum status record_memory(struct store *store, int64_t run_id, const struct device_memory_row *rows,
                          int64_t n, struct err *err);

/* Of n rows in ascending order of their steps, keep those whose step no run of the store has. */
enum status record_missing_steps(struct store *store, struct step_row *rows, int64_t *n,
                                 struct err *err);

/* Reading. Arrays are fresh: free() them. record_list() does not read job_json. record_run() does:
 * free(info->job_json). With run_id 0 it takes the last run. A real run without a step (resumed at
 * its end, or just started) counts only if there is no other run. ERR_INFEASIBLE if there is no
 * such run. */
enum status record_list(struct store *store, struct run_info **infos, int *count, struct err *err);
enum status record_run(struct store *store, int64_t run_id, struct run_info *info, struct err *err);
enum status record_read_epochs(struct store *store, int64_t run_id, struct epoch_row **rows,
                               int64_t *n, struct err *err);
enum status record_read_steps(struct store *store, int64_t run_id, struct step_row **rows,
                              int64_t *n, struct err *err);
enum status record_read_ops(struct store *store, int64_t run_id, struct op_row **rows, int64_t *n,
                            struct err *err);
enum status record_read_transitions(struct store *store, int64_t run_id,
                                    struct transition_row **rows, int64_t *n, struct err *err);
enum status record_read_memory(struct store *store, int64_t run_id, struct device_memory_row **rows,
                               int64_t *n, struct err *err);
