/* partition/turn.h - the turns of an elastic run: when a decision is due, what it decides, and
 * whether the plan changes.
 *
 * The trainer and the simulator both ask here, with the same costs, so that a simulated run freezes
 * and changes as the real one does.
 *
 * U1  A turn begins with each epoch or, with freeze.every_steps n, before every n-th step of the
 *     run.
 * U2  The policy then decides F from the norms of the turn before (partition/freeze.h);
 *     elastic.stages says K, the turn's entry or the last.
 * U3  The plan changes where F or that K does, and nowhere else.
 *
 * partition/plan_for.h makes the plan that follows.
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

/* Whether plans may change in mid-run: a freeze policy or elastic.stages. */
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

/* K as elastic.stages says it for a turn; 0: it does not. */
int turn_stages(const struct job *job, int64_t turn);

/* U3. */
bool turn_changes(const struct job *job, int64_t turn, int num_frozen, const struct plan *plan);

/* A cost source with the job's own times for the cache. */
struct cost turn_cost(const struct job *job, const struct cost *cost);

#ifdef __cplusplus
}
#endif
#endif
