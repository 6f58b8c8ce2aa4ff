/* partition/schedule_auto.h - a schedule found by search for the stage times, messages and memory
 * at hand, where the named ones assume equal stages. */
#ifndef ELAPSE_PARTITION_SCHEDULE_AUTO_H
#define ELAPSE_PARTITION_SCHEDULE_AUTO_H

#include "partition/cluster.h"
#include "partition/cost.h"
#include "partition/plan.h"
#include "partition/schedule.h"
#include "partition/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Compute ops (not yet frozen) for the plan's cut, of least schedule_time() among all that the
 * search sees: every named schedule that exists for this many chunks and keeps each device within
 * its memory, then list schedules with several priorities and live limits, then local moves. So the
 * answer is never slower than the best named schedule that fits. *schedule must be zeroed or
 * cleared; its kind is SCHEDULE_AUTO. ERR_INFEASIBLE when nothing fits the memory of the devices.
 */
enum status schedule_auto_search(const struct workload *workload, const struct cluster *cluster,
                                 const struct cost *cost, const struct plan *plan,
                                 struct schedule *schedule, struct err *err);

/* The same for equal stages with F = I = W, no messages and no memory limit: what `elapse schedule
 * --kind auto` shows. */
enum status schedule_auto_uniform(int num_ranks, int num_microbatches, int chunks,
                                  struct schedule *schedule, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
