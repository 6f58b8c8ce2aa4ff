/* cli/simulate/subject.h - what a figure or a report is about: the folder of a run, a record of simulated
 * runs, a job, or a plan file.
 *
 * subject_open() reads what exists. A run that was killed or is still running has rows but no
 * summary. subject_simulate() adds a simulated step, subject_epochs() the epochs of a whole run. */
#pragma once

#include "cli/runs/replay.h"
#include "cli/runs/run_rows.h"
#include "cli/simulate/sim_command.h"

enum subject_kind {
    SUBJECT_RUN,    /* RUN_DIR */
    SUBJECT_RECORD, /* a store of `elapse sim --record`: its last run */
    SUBJECT_JOB,
    SUBJECT_PLAN /* a file of `elapse plan -o` */
};

struct subject_options {
    const char *db_path;   /* profile store of the prediction; NULL: the run's own, or the user's */
    const char *plan_path; /* of a job; NULL: plan_for() makes its plan */
    const struct option_list *overrides; /* of a job; NULL: none */
    int64_t num_frozen;                  /* of a job's step */
    bool cached;                         /* it reads their output from the cache */
};

struct subject {
    enum subject_kind kind;
    const char *path; /* borrowed */
    char word[64];    /* the last part of the path, without blanks: for keys of figures */
    struct subject_options options;
    struct job job;       /* its model is empty if a record holds no job */
    struct run_rows rows; /* RUN, RECORD; of a JOB after subject_epochs() */
    bool finished;        /* RUN: it left a summary, and replay holds it */
    struct replay replay;
    struct step_answer answer; /* JOB, PLAN */
    struct plan given;         /* PLAN, until it is simulated */
    struct err no_summary;     /* why a run has no summary */

    /* The simulated step; borrowed from replay or answer. sim NULL: there is none, see no_sim. */
    const struct sim_result *sim;
    const struct plan *plan;
    const struct model *model;
    const struct cluster *cluster;
    const struct workload *workload;
    const struct schedule *full;
    const struct cost_handle *cost;
    struct err no_sim;
};

/* *subject must be zeroed; the caller clears it, on failure too. ERR_SYSTEM: there is no such file
 * or run. ERR_INPUT: it is none of the kinds. */
enum status subject_open(const char *path, const struct subject_options *options,
                         struct subject *subject, struct err *err);

/* Simulate one step, with recorded ops. Fails for a job or a plan; a run that cannot be predicted
 * is OK, and no_sim says why. */
enum status subject_simulate(struct subject *subject, struct err *err);

/* Simulate the whole run of a job, unless the subject has epochs. ERR_INPUT: a plan file is only
 * one step. */
enum status subject_epochs(struct subject *subject, struct err *err);

/* Samples per second of a simulated run: of the subject's job, or of one that was made from it. cost
 * NULL: cost_choose() by the subject's store. *samples_per_s is NaN if its steps take no time. */
enum status subject_rate(const struct subject *subject, const struct job *job,
                         const struct cost *cost, double *samples_per_s, struct err *err);

/* That of the best static plan without freezing: of the search, or the job's --plan if that is faster. NaN:
 * the job freezes nothing. */
enum status subject_static_rate(const struct subject *subject, const struct cost *cost,
                                double *samples_per_s, struct err *err);

/* The measured ops of one step of a run: that of the replay, else the last recorded one. rows is
 * borrowed from the subject. *n 0: none was recorded. */
enum status subject_real_ops(struct subject *subject, const struct op_row **rows, int64_t *n,
                             struct err *err);

/* The simulated ops as rows, in a fresh array of num_ops entries. NULL: out of memory. */
struct op_row *sim_op_rows(const struct sim_result *result);
void subject_clear(struct subject *subject);
