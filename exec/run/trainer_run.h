/* exec/run/trainer_run.h - a training run from job to summary: plan, stages, steps, evaluation,
 * checkpoints, records.
 *
 * Every rank calls the same functions. Rank 0 plans and writes, and broadcasts its decisions. All
 * input is checked, and all ranks agree on the result, before the first file is made. */
#pragma once

#include "exec/trainer/trainer.h"
#include "profiles/json/json.h"

/* Run a job over all ranks. *summary becomes a fresh object on rank 0 (NULL elsewhere). A failure
 * that all ranks know of is returned; one that may be known to this rank only ends the job by
 * comm_fail(). */
enum status trainer_run(const struct comm *comm, const struct cores *cores, const struct job *job,
                        const struct trainer_options *options, struct json **summary,
                        struct err *err);

/* Evaluate options->init on the test split; of the other options, db counts. Like trainer_run()
 * otherwise. If K and R of the job do not fit the number of ranks, the plan is made for the ranks
 * there are. */
enum status trainer_eval(const struct comm *comm, const struct cores *cores, const struct job *job,
                         const struct trainer_options *options, struct json **summary,
                         struct err *err);
