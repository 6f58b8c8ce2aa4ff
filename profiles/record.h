/* profiles/record.h - run records: what a simulated or a real run did, in the same tables.
 *
 * A writer opens a store (STORE_RECORD for a run's own file, STORE_WRITE for the shared one), adds
 * a run, appends rows in batches (each call is one transaction) and finishes it. A reader gets the
 * rows back as arrays. Rows refer to their run and vanish with it. */
#ifndef ELAPSE_PROFILES_RECORD_H
#define ELAPSE_PROFILES_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/schedule.h"
#include "partition/status.h"
#include "profiles/store.h"

struct run_info {
    int64_t id;                                 /* set by record_start() */
    bool simulated;                             /* else real */
    bool finished;                              /* false: still running, or died */
    char name[64];                              /* the job's */
    char started_at[32], host[64], version[32]; /* filled by record_start() where empty */
    char cost_source[96];
    int64_t num_devices;
    int64_t total_ns; /* set by record_finish() */
    char *job_json;   /* the resolved job; borrowed when writing, owned when read; NULL */
};

struct epoch_row {
    int64_t epoch, frozen_layers, pipeline_length, replicas, microbatches, steps;
    int64_t step_ns, transition_ns;
    double samples_per_s, bubble_fraction;
    bool cached;
    double train_loss, eval_loss, eval_accuracy; /* NaN where there is none */
};

struct step_row {
    int64_t step, epoch, start_ns, step_ns; /* start since the run's */
    double loss, lr, grad_norm, samples_per_s;
    int64_t frozen_layers, pipeline_length, replicas;
};

struct op_row {
    int64_t step, replica, rank;
    int64_t start_ns, end_ns; /* since the step's start */
    struct op op;
};

struct transition_row {
    int64_t epoch;
    char part[16]; /* decide plan move groups cache total */
    int64_t ns, bytes;
};

struct device_memory_row {
    int64_t epoch, device, predicted_bytes, peak_bytes; /* 0 where unknown */
    char what[16]; /* total weights grads optimizer stash ... */
};

/* *run_id identifies the run from now on. */
enum status record_start(struct store *store, const struct run_info *info, int64_t *run_id,
                         struct err *err);
enum status record_finish(struct store *store, int64_t run_id, int64_t total_ns, struct err *err);

/* Rows of equal key (epoch; step; step, replica, rank, start, kind; ...) replace older ones, so
 * that a resumed run may write a step again. */
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

/* Reading: fresh arrays, free() them. run_list() frees with run_infos_free() (job_json is not read
 * there). record_run() with run_id 0 takes the last one, a real one without a step (resumed at its
 * end, or just begun) only where there is no other; free(info->job_json). ERR_INFEASIBLE when there
 * is no such run. step < 0: all steps. */
enum status record_list(struct store *store, struct run_info **infos, int *count, struct err *err);
enum status record_run(struct store *store, int64_t run_id, struct run_info *info, struct err *err);
enum status record_read_epochs(struct store *store, int64_t run_id, struct epoch_row **rows,
                               int64_t *n, struct err *err);
enum status record_read_steps(struct store *store, int64_t run_id, struct step_row **rows,
                              int64_t *n, struct err *err);
enum status record_read_ops(struct store *store, int64_t run_id, int64_t step, struct op_row **rows,
                            int64_t *n, struct err *err);
enum status record_read_transitions(struct store *store, int64_t run_id,
                                    struct transition_row **rows, int64_t *n, struct err *err);
enum status record_read_memory(struct store *store, int64_t run_id, struct device_memory_row **rows,
                               int64_t *n, struct err *err);

#endif
