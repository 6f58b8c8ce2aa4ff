/* cli/simulate/sweep_lines.h - the lines of a sweep: JSON or CSV for programs, a table for people. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cli/base/command.h"
#include "cli/plans/rates_show.h"
#include "partition/plan/plan.h"
#include "partition/schedule/schedule.h"
#include "partition/search/planner.h"
#include "profiles/cost/profile_cost.h"

enum sweep_form { SWEEP_JSON, SWEEP_CSV, SWEEP_TABLE };
struct sweep_table {
    enum sweep_form form;
    const struct command *command;
    int num_axes;
    const char *paths[OPTION_LIST_MAX]; /* borrowed: the names of the axes */
    int widths[OPTION_LIST_MAX];        /* of a table's cells: the longest value or the path */
    bool timed;                         /* lines of JSON have the processor time of searches */
    bool of_runs;                       /* points are whole runs, not steps */
    int num_left_out;                   /* columns that the terminal has no room for */
};

/* Leave out columns until the lines fit the terminal. */
void sweep_fit(struct sweep_table *table);

/* The answer of a point, a step or a whole run, and its plan; of a run, that of its first epoch. */
struct sweep_values {
    int64_t step_ns, peak_bytes, allreduce_ns, allreduce_exposed_ns, events;
    double bubble_fraction, samples_per_s;
    struct step_rates rates;
    struct run_cost run;           /* of a step: the whole run by it */
    int64_t total_ns, baseline_ns; /* of a run; baseline_ns 0: it has no baseline */
    double speedup, device_hours, cost, energy_kwh;
    int pipeline_length, replicas, microbatches;
    enum schedule_kind schedule;
    bool extrapolated;
    struct searched searched; /* for the plan */
    struct layout layout;     /* tensor at least 1; the rest of a step: a line of JSON names it */
    int64_t step_band_ns[2];  /* of published runs; zeros: none */
    struct job_assumed assumed;
    char note[COST_NOTE_BYTES]; /* how a profile does not fit; "": it does */
};

struct sweep_row {
    const char *texts[OPTION_LIST_MAX]; /* the values of the axes */
    const struct sweep_values *values;
    const char *error; /* why the point has no answer; NULL: it has one */
};

/* The measure by which one point is faster than another: time per sample of a step, or time of a
 * whole run. */
double sweep_cost(const struct sweep_table *table, const struct sweep_values *values);

/* Print the head of CSV and tables. */
void sweep_head(const struct sweep_table *table);
/* The line of a point in a fresh text without a newline. NULL: out of memory. */
char *sweep_line(const struct sweep_table *table, const struct sweep_row *row);
