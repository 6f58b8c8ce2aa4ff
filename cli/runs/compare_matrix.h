/* cli/runs/compare_matrix.h - many configurations of a job, each trained for some steps beside its
 * simulation: `elapse compare --matrix`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cli/runs/comparison.h"
#include "partition/base/options.h"

/* The options of `compare --matrix`. NULL texts: 1 and RANKS for stages and replicas. */
struct matrix_ask {
    const char *job, *db_path;
    const char *stages, *replicas, *microbatches, *frozen, *schedules, *recomputes, *caches;
    int64_t ranks, steps, repeats;
    int64_t threads; /* per rank; 0: its share of the cores */
    struct option_list sets;
};

/* Train every entry that fits the ranks, repeats times, and replay each run. configs has room for
 * COMPARISONS_MAX; *num is how many were filled. Runs lie in a temporary folder, which is removed.
 * Progress goes to stderr.
 * Returns OK, ERR_INPUT (a bad list, an entry that the job refuses, or no entry that fits),
 * ERR_INFEASIBLE, ERR_NOMEM, ERR_SYSTEM (a run failed or was stopped). */
enum status matrix_run(const struct matrix_ask *ask, struct comparison *configs, int *num,
                       struct err *err);
