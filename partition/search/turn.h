/* partition/search/turn.h - the turns of an elastic run: when a decision is due, what it decides, and
 * whether the plan changes.
 *
 * The trainer and the simulator both call these functions with equal costs, so a simulated run
 * freezes and changes its plan as the real one does.
 *
 * A turn begins with each epoch or, with freeze.every_steps n, before every n-th step of the run.
 * At its start the freeze policy decides F from the gradient norms of the previous turn, or from
 * its evidence (partition/freeze/freeze.h), and elastic.stages gives K: its entry for this turn, or its
 * last entry. The plan changes only if F or this K changes. partition/search/plan_for.h then makes the
 * next plan.
 *
 * Pure; deterministic. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/cost/cost.h"
#include "partition/plan/job.h"
#include "partition/plan/plan.h"

/* Whether plans may change during the run: the job has a freeze policy or elastic.stages. */
bool turn_elastic(const struct job *job);

/* The turn, counted from 0, of the step in `epoch` before which the run has done `step` steps. */
int64_t turn_at(const struct job *job, int64_t step, int64_t epoch);
/* Whether a turn begins with the step before which the run has done `step` steps and the epoch
 * `position` samples. */
bool turn_begins(const struct job *job, int64_t step, int64_t position);
/* Number of steps from `step` to the next turn within an epoch. INT64_MAX: the next turn begins
 * with the next epoch. */
int64_t turn_steps_left(const struct job *job, int64_t step);

/* The share of its learning rate that a layer trains with in a turn after which it freezes
 * (freeze.anneal): a half cosine over the turn, 1 at its first step and close to 0 at its last.
 * step: steps that the run has done; position: samples that the epoch of num_samples has. It
 * depends on neither K nor R under a global batch. */
double turn_anneal(const struct job *job, int64_t step, int64_t position, int64_t num_samples);
/* What the shares of timed freezing are multiplied with before a step: 0 in the freeze.warmup turns,
 * then a straight line to 1 over RAMP_TURNS turns, then 1. Arguments as for turn_anneal(). */
enum { RAMP_TURNS = 3 }; /* as in TimelyFreeze's released code, whose unit is a phase of an epoch */
double turn_ramp(const struct job *job, int64_t step, int64_t epoch, int64_t position,
                 int64_t num_samples);
/* The layers that are certain to be frozen in the turn after `turn`, which *freeze has decided; 0
 * in the last turn of a run of total_steps. */
int turn_next_frozen(const struct job *job, const struct freeze *freeze, int64_t turn,
                     int64_t total_steps);

/* The history of a run at a turn. All pointers are borrowed. */
struct turn_facts {
    const double *norms; /* [num_norms][layers], a row for each turn that is over; or NULL */
    int64_t num_norms;
    const struct freeze_history *history; /* or NULL */
};

/* Ask the freeze policy at the start of a turn, by what is known of the turn before. *num_frozen
 * gets F. reason and errors are those of freeze_decide(). */
enum status turn_decide(struct freeze *freeze, const struct turn_facts *facts, int64_t turn,
                        int *num_frozen, char reason[160], struct err *err);

/* K of a turn by elastic.stages; 0 if the job has none. */
int turn_stages(const struct job *job, int64_t turn);

/* Whether a turn with num_frozen layers changes the plan. */
bool turn_changes(const struct job *job, int64_t turn, int num_frozen, const struct plan *plan);

/* A copy of cost in which the job's cache times, if it has any, replace the measured ones. */
struct cost turn_cost(const struct job *job, const struct cost *cost);
