/* cli/runs/run_rows.h - the rows of one recorded run, for commands that show, draw or report it. */
#pragma once

#include "profiles/store/record.h"
#include "sim/run/elastic_run.h"

/* Arrays are owned. Ops are read only on demand, because there are many. */
struct run_rows {
    struct run_info info;
    struct epoch_row *epochs;
    struct step_row *steps;
    struct transition_row *transitions;
    struct device_memory_row *memories;
    struct op_row *ops;
    int64_t num_epochs, num_steps, num_transitions, num_memories, num_ops;
    int64_t num_differing; /* steps that differ from metrics.jsonl, see run_rows_merge_metrics() */
    int64_t num_samples;   /* that a run simulated now trains; 0: not known */
};

/* Read all rows of a run but its ops. run_id 0: the last run. *rows must be zeroed; the caller
 * clears it, on failure too. */
enum status run_rows_read(struct store *store, int64_t run_id, struct run_rows *rows,
                          struct err *err);
/* Read the ops too. */
enum status run_rows_read_ops(struct store *store, struct run_rows *rows, struct err *err);

/* Add epochs and changes of plan of the real runs before this one in the store, which is the run.db
 * of a folder: they are earlier starts of one run. Where a later start has an epoch too, its row
 * stays. Call run_rows_merge_metrics() and run_rows_count_epochs() after it. */
enum status run_rows_add_earlier(struct store *store, struct run_rows *rows, struct err *err);

/* Make the rows of epochs fit the merged steps: an epoch that a start left and the next one finished
 * has the steps of both, an epoch without a row gets one, and those after the last step, which a
 * resume has dropped, go. Runs without steps stay as they are. ERR_NOMEM. */
enum status run_rows_count_epochs(struct run_rows *rows, struct err *err);

/* Add the steps that metrics.jsonl has and the record lacks: those before a resume, which have a
 * record of their own, and the last ones of a killed run, because a record gets its rows in batches.
 * A step that both have must be the same in both; num_differing counts those that are not. A missing
 * file or an incomplete last line is no error. ERR_NOMEM. */
enum status run_rows_merge_metrics(const char *path, struct run_rows *rows, struct err *err);

/* Fill the epochs and transitions of a simulated run, as a record holds them. The accuracy and
 * losses are NaN, because nothing was trained. *rows must be zeroed. ERR_NOMEM. */
enum status run_rows_simulated(const struct elastic_run *run, struct run_rows *rows,
                               struct err *err);

/* The accuracy after the last evaluated epoch; NaN: none was recorded. */
double run_rows_accuracy(const struct run_rows *rows);
void run_rows_clear(struct run_rows *rows);
