/* partition/schedule_auto.h - a schedule found by search for the stage times, messages and memory
 * at hand, where the named ones assume equal stages. */
#ifndef ELAPSE_PARTITION_SCHEDULE_AUTO_H
#define ELAPSE_PARTITION_SCHEDULE_AUTO_H

#include "partition/cluster.h"
#include "partition/cost.h"
#include "partition/model.h"
#include "partition/plan.h"
#include "partition/schedule.h"
#include "partition/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The workload of the plan's cut (wants workload_near() yet) and the compute list (frozen as the
 * plan says) of least schedule_time() that keeps every device within its memory, among all that the
 * search sees: every named schedule for this many chunks, list schedules under many rules, and
 * local moves from the best. So the answer is never slower than the best named schedule that fits.
 * With two chunks stages may lie in the V of zb-v: ask compute->rank_of_stage, not
 * plan_rank_of_stage(). Ties go to the earlier candidate. The same inputs give the same answer
 * everywhere. Both outputs must be zeroed or cleared. ERR_INFEASIBLE when nothing fits: the need of
 * the rank that is worst off, of the candidate that came nearest. */
enum status schedule_auto(const struct setting *setting, const struct plan *plan,
                          struct workload *workload, struct schedule *compute, struct err *err);

/* The same for equal stages with F = I = W, no messages and no memory limit: what `elapse schedule
 * --kind auto` shows. */
enum status schedule_auto_uniform(int num_ranks, int num_microbatches, int chunks,
                                  struct schedule *compute, struct err *err);

/* Rules of one list schedule: what an idle rank does next. */
struct list_rules {
    bool split;         /* I and W instead of B */
    bool forward_first; /* F before a backward that may start as early */
    int wait_percent;   /* wait for a backward that comes within this part of a forward's time */
    int fill_percent;   /* a W may overrun the gap that it fills by this part of its time */
    const int *limits;  /* borrowed, num_ranks: live pairs; at least the rank's chunks */
};

/* Time the workload forward under the rules, each rank taking the best op that can start first. On
 * OK *complete tells whether all ops found a place (a tight limit can block chunks against each
 * other); *compute is only filled then. O(ops * num_ranks). */
enum status schedule_list(const struct workload *workload, const struct list_rules *rules,
                          struct schedule *compute, bool *complete, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
