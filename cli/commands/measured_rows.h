/* cli/commands/measured_rows.h - measured steps for `elapse calibrate`: what ran, and how long it took. */
#pragma once

#include "cli/commands/measured_log.h"
#include "cli/simulate/sim_command.h"

struct measured_row {
    char *label;               /* owned; for messages */
    struct step_answer answer; /* model, cluster without limits of memory, plan, query */
    double measured_ns;
    struct measured_log log; /* where a log or a trace was measured */
    double peak_bytes;       /* measured; 0: unknown */
    double computed_ns;      /* by uncalibrated costs */
    double computed_peak;    /* bytes, the most of its devices */
    double peak_ratio;       /* of measured to computed peak, both without the context */
};

struct measured_rows {
    struct measured_row *at; /* owned */
    int n;
    const char *db_path; /* borrowed: the store of calibrations that are named in a row */
};
void measured_rows_clear(struct measured_rows *rows);

/* Add the step that `elapse sim` with the options in `text` would simulate: a JOB and its options, or
 * "--model ... --cluster ... --stages ...". Words are divided by blanks; quotes keep them together.
 * measured: a time with its unit, a trace of torch.profiler (*.json, *.json.gz), an export of
 * Nsight Systems (*.sqlite, profiles/store/nsys.h) or a log (measured_log.h), whose
 * median step counts.
 * peak: a size, or NULL. Errors of the options, the job and the planner pass through. */
enum status measured_rows_add(struct measured_rows *rows, const char *text, const char *measured,
                              const char *peak, struct err *err);

/* Add the rows of a CSV. Its header has "measured" (a time with unit) or "measured_ms", may have
 * "peak" (a size), and names for the rest settings of `elapse sim --step` ("stages", "tensor"), or
 * keys of the job in `common` ("pipeline.tensor"). An empty cell leaves a setting out. common has the
 * options of all rows; "": none. */
enum status measured_rows_add_csv(struct measured_rows *rows, const char *path, const char *common,
                                  struct err *err);

/* Add the measured median step of a run's folder (`elapse train --out`). */
enum status measured_rows_add_run(struct measured_rows *rows, const char *run_dir, struct err *err);

/* Simulate a row with factors (FACTOR_COUNT of them); the answer's result holds the step. */
enum status measured_row_simulate(const struct measured_rows *rows, struct measured_row *row,
                                  const double *factors, struct err *err);
