/* exec/run/trainer.h - a training run from job to summary: plan, stages, steps, evaluation,
 * checkpoints, records.
 *
 * Every rank calls the same functions. Rank 0 plans and writes; decisions come to all from its
 * broadcast. Whatever the user may have got wrong is checked, and agreed on, before the first file
 * is made. */
#ifndef ELAPSE_EXEC_RUN_TRAINER_H
#define ELAPSE_EXEC_RUN_TRAINER_H

#include <stdbool.h>

#include "exec/comm/comm.h"
#include "exec/device/cores.h"
#include "partition/job.h"
#include "profiles/json.h"

struct trainer_options {
    const char *out;     /* run folder; NULL: "runs/NAME" */
    const char *resume;  /* run folder or checkpoint; NULL */
    const char *init;    /* safetensors file or checkpoint to start from; NULL */
    const char *plan;    /* file of the plan to begin with; NULL: it is planned */
    const char *db;      /* profile store; NULL: the default one */
    int64_t max_steps;   /* steps of this call; 0: to the end of the job */
    int64_t trace_steps; /* steps of which every op is recorded, besides the last */
    const char *trace;   /* file for a Chrome trace of the recorded steps' ops; NULL: none */
    bool evaluate;       /* before, between (as the job says) and after; and the last checkpoint */
    bool progress;       /* write a progress line to stderr */
};

/* Run a job over all ranks. summary becomes a fresh object on rank 0 (NULL elsewhere). A failure
 * that is known to all is returned; one that may be known to this rank only goes to comm_fail(). */
enum status trainer_run(const struct comm *comm, const struct cores *cores, const struct job *job,
                        const struct trainer_options *options, struct json **summary,
                        struct err *err);

/* Evaluate a checkpoint (folder or safetensors file) on the test split; likewise. K and R of the
 * job hold where they fit the ranks; elsewhere the plan is made for the ranks there are. */
enum status trainer_eval(const struct comm *comm, const struct cores *cores, const struct job *job,
                         const char *checkpoint, const char *db, struct json **summary,
                         struct err *err);

/* Ask the run to write a checkpoint and stop after the step under way; safe in a signal handler. */
void trainer_stop(void);

/* Learning rate of a step (from 0) of total: rises linearly over warmup_steps, then follows the
 * job's curve to 0 at total (constant stays). */
double trainer_lr(const struct job *job, int64_t step, int64_t total_steps);

#endif
