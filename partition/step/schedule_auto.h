/* partition/step/schedule_auto.h - a schedule found by search for given stage times, messages and
 * memory. The named schedules assume equal stages. */
#pragma once

#include "partition/cluster/cluster.h"
#include "partition/cost/cost.h"
#include "partition/model/model.h"
#include "partition/plan/plan.h"
#include "partition/schedule/schedule.h"
#include "partition/step/workload.h"

/* Ops times ranks of a plan's list schedules. */
static inline int64_t schedule_search_work(const struct plan *plan)
{
    return mul_saturated(3 * (int64_t)plan->num_stages * plan->num_ranks, plan->microbatches.count);
}
#define SCHEDULE_SEARCH_WORK ((int64_t)1 << 22) /* about 20 ms for a list */

/* Find the compute list with the least schedule_time() that keeps every device within its memory.
 * The search covers every named schedule for plan->chunks, list schedules under many rules, and
 * local moves from the best list. So the result is never slower than the best named schedule that
 * fits. Of equal steps the one whose devices have the shorter longest
 * span from first to last op wins, then the earlier candidate. Equal inputs give equal results on
 * every machine. Of a plan with more than SCHEDULE_SEARCH_WORK it looks at the named schedules alone.
 *
 * *compute gets the list, frozen as the plan says; its kind is that of a named schedule if none was
 * found that is better. *workload gets the workload of the plan's cut;
 * the caller still has to call workload_near() on it. Both must be zeroed or cleared. With two
 * chunks stages may lie in the V of zb-v, so use compute->rank_of_stage and not
 * schedule_rank_of_stage(). ERR_INFEASIBLE if no candidate fits; the message names the need of the
 * worst rank of the candidate that came nearest. */
enum status schedule_auto(const struct setting *setting, const struct plan *plan,
                          struct workload *workload, struct schedule *compute, struct err *err);

/* Like schedule_auto(), for equal stages with F = I = W, no messages and no memory limit. `elapse
 * schedule --kind auto` prints it. */
enum status schedule_auto_uniform(int num_ranks, int num_microbatches, int chunks,
                                  struct schedule *compute, struct err *err);

/* The rules by which an idle rank of a list schedule chooses its next op. */
struct list_rules {
    bool split;         /* I and W instead of B */
    bool forward_first; /* if an F and a backward can start at one time, F goes first */
    int wait_percent;   /* wait for a backward if it comes within this part of a forward's time */
    int fill_percent;   /* a W may overrun the gap that it fills by this part of its time */
    /* Borrowed, num_ranks entries: the most (stage, micro-batch) pairs in flight on each rank, at
     * least the rank's number of chunks. */
    const int *limits;
};

/* Make a list schedule by playing the workload forward in time under the rules. Each rank takes the
 * best of the ops that can start first. On OK *complete tells whether all ops found a place; with a
 * tight limit the chunks of a rank can block each other. *compute is filled only if *complete.
 * O(ops * num_ranks). */
enum status schedule_list(const struct workload *workload, const struct list_rules *rules,
                          struct schedule *compute, bool *complete, struct err *err);
