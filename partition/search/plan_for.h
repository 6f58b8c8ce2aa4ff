/* partition/search/plan_for.h - the one function that makes plans; plan, sim and train call it.
 *
 * plan_for() chooses what a job leaves open, for a setting and for the state of its run.
 *
 * K and R:
 *   - pipeline.num_stages and num_pipelines fix them or leave them open. elastic.stages fixes K of
 *     an elastic run.
 *   - A change keeps K unless elastic.auto_pipe is on or too few items are left for it. It keeps R
 *     unless elastic.auto_dp is on.
 *   - In an elastic run an open R is the largest one that the devices allow for each K. With a
 *     batch per pipeline, a changed plan's step takes no more samples than an epoch has.
 *   - With elastic.compression halving or a greedy balancer, an open K follows the paper's rule.
 *
 * M: pipeline.num_microbatches counts the micro-batches of train.batch as the job gives it, either
 * a pipeline's batch or the global batch. Replicas share a global count. Under train.reduction
 * canonical with a global batch, an open count stays what the first plan had in all.
 *
 * Cache: if the run has a cache and a frozen prefix, plans that read the cache compete with plans
 * that compute the prefix in every step. The cost of filling the cache is added to plans that read
 * it (cache_rule.h). With cache.policy on, every plan reads if a plan can read at all.
 *
 * The planner chooses schedule, recompute, placement and cut (planner.h). With pipeline.recompute fit
 * it may recompute where the memory of a device is limited. On GPUs that our executor has not
 * measured, a job without a layout of its own (job.h, layout_open) gets T, sequence parallelism, E,
 * shard, recompute and schedule chosen, unless its plan changes as layers freeze. With pipeline.schedule
 * search the chosen plan gets op lists of its own where these are faster.
 *
 * With freeze.max_share the chosen plan gets shares of weight gradients to leave out (shares_solve.h).
 *
 * The best plan takes the least time per sample by schedule_time() and the busiest link. The
 * executor, which has no event engine, therefore finds the plan of `elapse plan --no-simulate`. A
 * caller may pass a judge to get another answer, as `elapse plan` does. A plan may leave devices
 * idle. A plan for the executor uses device 0, because the rank there decides and writes the run's
 * files.
 *
 * Pure; deterministic. */
#pragma once

#include "partition/search/planner.h"

/* The state of a run at the moment when it needs a plan. */
struct run_state {
    int64_t turn, epoch; /* see turn.h */
    int num_frozen_layers;
    int64_t num_samples;      /* of an epoch */
    double cache_room;        /* share of the samples for which the cache has a slot; 0: no cache */
    bool cache_whole;         /* see cache_share() */
    bool cache_filled;        /* it holds the prefix's output of all samples */
    bool executor;            /* the plan is for our executor, which lacks some recompute modes and
                              whose rank 0 must hold a stage */
    const struct plan *old;   /* the plan in force, whose devices are kept; NULL: the first one */
    const struct plan *given; /* the first plan, used unchanged; NULL: search for one */
};

/* Find the best plan. judge may be NULL (planner.h). *result must be zeroed; the caller owns it; on
 * failure it stays zeroed. It also holds how the plan was found and what it was chosen over; with
 * state->given only the plan is set. ERR_INFEASIBLE: no plan exists or fits. ERR_UNFINISHED: the
 * judge's watch ended the search too early. ERR_INPUT names the
 * key if the job's counts contradict each other. ERR_NOMEM. At most six searches. */
enum status plan_for(const struct job *job, const struct setting *setting,
                     const struct run_state *state, const struct planner_judge *judge,
                     struct planner_result *result, struct err *err);

/* The plan of a first turn that leaves nothing to choose, see planner_only(). *plan must be zeroed and
 * stays so otherwise. Errors as of plan_for(). */
enum status plan_only(const struct job *job, const struct setting *setting,
                      const struct run_state *state, bool any_cut, struct plan *plan,
                      struct err *err);

/* Give a plan the op lists that schedule_auto.h finds for its layout, within the memory of its devices,
 * or the named schedule that they do not beat. On failure the plan is unchanged. ERR_INFEASIBLE: no
 * list fits. ERR_NOMEM. */
enum status plan_find_order(const struct setting *setting, struct plan *plan, struct err *err);

/* Translate a job with F frozen layers and no cache into the planner's problem and options. problem
 * borrows what the setting points to. */
void planner_from_job(const struct job *job, const struct setting *setting, int num_frozen_layers,
                      struct planner_problem *problem, struct planner_options *options);
