/* partition/plan_for.h - the one maker of plans: plan, sim and train ask here.
 *
 * What a job leaves open is chosen for a setting and for the state of its run:
 *
 *   K and R   as pipeline.num_stages and num_replicas say, or free. Of an elastic run
 * elastic.stages says K; a change keeps K without auto_pipe (unless too few items are left for it)
 * and R without auto_dp; with auto_dp each K has as many replicas as there are devices for, and,
 *             where each adds a batch, samples. elastic.compression halving and the greedy
 * balancers follow the paper's rule for K. M         pipeline.num_microbatches counts the
 * micro-batches of train.batch as the job gives it: of a pipeline's batch, or of the global one, of
 * which each replica has its share. Under train.reduction canonical the global count stays what the
 * first plan had. cache     where the run has a cache and a frozen prefix, plans that read it are
 * candidates beside plans that compute the prefix in every step; each counts with what filling
 * takes (cache_rule.h). With cache.policy on, all plans read where one can. the rest  schedule,
 * recompute, placement, cut: the planner's (planner.h).
 *
 * The best plan is the one that takes least time a sample by schedule_time() and the busiest link:
 * the executor, which has no event engine, finds the same one. A plan may leave devices idle, but
 * never device 0: its rank writes the run's files. A judge may be handed in for another answer.
 *
 * Pure; deterministic. */
#ifndef ELAPSE_PARTITION_PLAN_FOR_H
#define ELAPSE_PARTITION_PLAN_FOR_H

#include "partition/planner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a run is when it needs a plan. */
struct run_state {
    int64_t turn, epoch; /* see turn.h */
    int num_frozen_layers;
    int64_t num_samples;      /* of an epoch */
    double cache_room;        /* share of the samples for which the cache has a slot; 0: no cache */
    bool cache_whole;         /* see cache_share() */
    bool cache_filled;        /* it holds the prefix's output of all samples */
    const struct plan *old;   /* the plan in force, whose devices are kept; NULL: the first one */
    const struct plan *given; /* taken as it is, as the first plan; NULL: plan */
};

/* The best plan, how it was found, and what it was chosen over; of a given plan only that. judge:
 * NULL, or as in planner.h. *result must be zeroed; the caller owns it; on failure it stays so.
 * ERR_INFEASIBLE; ERR_INPUT with the key where the job's counts contradict each other; ERR_NOMEM.
 * At most three searches. */
enum status plan_for(const struct job *job, const struct setting *setting,
                     const struct run_state *state, const struct planner_judge *judge,
                     struct planner_result *result, struct err *err);

/* What a job asks of the planner with F layers frozen and no cache. problem borrows the setting's
 * parts. */
void planner_from_job(const struct job *job, const struct setting *setting, int num_frozen_layers,
                      struct planner_problem *problem, struct planner_options *options);

#ifdef __cplusplus
}
#endif
#endif
