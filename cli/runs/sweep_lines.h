/* cli/runs/sweep_lines.h - the lines of a sweep: JSON or CSV for programs, a table for people. */
#ifndef ELAPSE_CLI_SWEEP_LINES_H
#define ELAPSE_CLI_SWEEP_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/base/command.h"
#include "cli/runs/rates_show.h"
#include "partition/plan/plan.h"
#include "partition/schedule/schedule.h"

/* Columns of a step from SWEEP_FIRST_RATE on are rate_columns. */
enum { SWEEP_FIRST_RATE = 7, SWEEP_MAX_COLUMNS = SWEEP_FIRST_RATE + NUM_RATE_COLUMNS };
enum sweep_form { SWEEP_JSON, SWEEP_CSV, SWEEP_TABLE };
/* Counts of the plan that a point got: of a run, of its first epoch. */
enum sweep_chosen { CHOSEN_K, CHOSEN_R, CHOSEN_T, CHOSEN_M, CHOSEN_COUNT };

struct sweep_column;

struct sweep_table {
    enum sweep_form form;
    const struct command *command;
    int num_axes;
    const char *paths[OPTION_LIST_MAX]; /* borrowed: the names of the axes */
    int widths[OPTION_LIST_MAX];        /* of a table's cells: the longest value or the path */
    const struct sweep_column *columns; /* set by sweep_columns() */
    int num_columns;
};

/* The values of one answer, one for each column, and its plan. */
struct sweep_values {
    union {
        int64_t whole;
        double real;
    } at[SWEEP_MAX_COLUMNS];
    bool missing[SWEEP_MAX_COLUMNS];
    bool extrapolated;
    int chosen[CHOSEN_COUNT];
    enum schedule_kind schedule;
    enum shard_mode shard; /* of a step; a line of JSON names it, and the groups that divide */
    int shard_group;
};

struct sweep_row {
    const char *texts[OPTION_LIST_MAX]; /* the values of the axes */
    const struct sweep_values *values;
    const char *error; /* why the point has no answer; NULL: it has one */
};

/* Set the columns of steps (step_ns bubble_fraction samples_per_s peak_bytes allreduce_ns
 * allreduce_exposed_ns events, then rates) or of whole runs (total_ns baseline_ns speedup
 * device_hours samples_per_s step_ns cost energy_kwh), in the order of sweep_values.at. */
void sweep_columns(struct sweep_table *table, bool of_runs);

/* The measure by which one point is faster than another: time per sample of a step, or time of a
 * whole run. */
double sweep_cost(const struct sweep_table *table, const struct sweep_values *values);

/* Print the head of CSV and tables. */
void sweep_head(const struct sweep_table *table);
/* The line of a point in a fresh text without a newline. NULL: out of memory. */
char *sweep_line(const struct sweep_table *table, const struct sweep_row *row);

#endif
