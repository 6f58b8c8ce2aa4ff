/* partition/turn.h - the turns of an elastic run: when a decision is due, what it decides, and the
 * plan that follows it.
 *
 * The trainer and the simulator both ask here, with the same costs, so that a simulated run freezes
 * and changes as the real one does.
 *
 * U1  A turn begins with each epoch or, with freeze.every_steps n, before every n-th step of the
 *     run.
 * U2  The policy then decides F from the norms of the turn before (partition/freeze.h);
 *     elastic.stages says K, the turn's entry or the last.
 * U3  The plan changes where F or that K does, and nowhere else.
 * U4  Without auto_pipe K stays (unless its schedule has more stages than items are left); with it,
 *     elastic.compression halving and the greedy balancers follow the paper's rule, else every K is
 *     tried. Without auto_dp R stays, with it there are as many replicas as devices are there for
 *     (and, where each adds a batch, samples). Of all, the least time a sample. Fewer items than
 *     the schedule's stages on one rank run 1f1b.
 * U5  For each K and R that is the least of two plans: one that computes the frozen forward in
 *     every step, and one that reads it from the cache and computes only what that lacks, on the
 *     first device of each pipeline. cache.policy on takes the latter, auto asks
 *     partition/cache_rule.h. pipeline.frozen says where the former has it.
 *
 * Pure; deterministic. */
#ifndef ELAPSE_PARTITION_TURN_H
#define ELAPSE_PARTITION_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/cost.h"
#include "partition/job.h"
#include "partition/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether plans may change in mid-run, and leave devices idle: a freeze policy or elastic.stages.
 */
bool turn_elastic(const struct job *job);

/* The turn that the step behind `step` steps, in `epoch`, belongs to: decisions before its own. */
int64_t turn_at(const struct job *job, int64_t step, int64_t epoch);
/* U1. Whether a turn begins there; position: samples of the epoch that are done. */
bool turn_begins(const struct job *job, int64_t step, int64_t position);
/* Steps from there to where the next turn may begin within an epoch; INT64_MAX: at its end only. */
int64_t turn_steps_left(const struct job *job, int64_t step);

/* U2. norms: [num_rows][layers], a row a turn; turns without one decide without. Errors and reason
 * as of freeze_decide(). */
enum status turn_decide(struct freeze *freeze, const double *norms, int64_t num_rows, int64_t turn,
                        int *num_frozen, char reason[160], struct err *err);

/* U3. */
bool turn_changes(const struct job *job, int64_t turn, int num_frozen, const struct plan *plan);

/* A cost source with the job's own times for the cache. */
struct cost turn_cost(const struct job *job, const struct cost *cost);

/* What to plan for. */
struct turn_ask {
    int64_t turn, epoch;
    int num_frozen_layers;
    int64_t num_samples;      /* of an epoch */
    double cache_room;        /* share of the samples for which the cache has a slot; 0: no cache */
    bool cache_whole;         /* see cache_share() */
    const struct plan *old;   /* the plan in force, whose devices are kept; NULL: the first one */
    const struct plan *given; /* taken as it is, as the first plan; NULL: plan */
};

/* U4, U5. Where the job is not elastic, every device of the cluster gets a place. Under
 * train.reduction canonical with a global batch, pipeline.num_microbatches (or the first plan's)
 * counts the micro-batches of the global batch, so that they hold the same samples at every R.
 * Device 0 has a place always. *plan must be zeroed; the caller owns it; on failure it stays so.
 * ERR_INFEASIBLE; ERR_INPUT with the key when devices do not divide as asked; ERR_NOMEM. Two
 * planner calls for each K, and as many for each R that has no plan of that K. */
enum status turn_plan(const struct job *job, const struct cluster *cluster, const struct cost *cost,
                      const struct turn_ask *ask, struct plan *plan, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
