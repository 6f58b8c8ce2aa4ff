/* partition/step/schedule_time.h - when each op of a step runs, and how long the step takes.
 *
 * One recurrence over the op lists gives all times by the rules of partition/step/step_rules.h, to the
 * nanosecond, as long as no two transfers share a port or an uplink. The planner asks for the
 * length of the step; the simulator watches each op. The event engine (sim/step/event_run.c) shares no
 * code with this one, and tests compare the two. */
#ifndef ELAPSE_PARTITION_SCHEDULE_TIME_H
#define ELAPSE_PARTITION_SCHEDULE_TIME_H

#include "partition/cost/collective.h"
#include "partition/step/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

struct step_time {
    int64_t step_ns;                       /* first op start to last op end */
    int64_t *rank_busy_ns;                 /* owned, num_ranks, of replica 0 */
    int64_t *rank_first_ns, *rank_last_ns; /* owned */
    int64_t allreduce_ns;                  /* longest total of one stage's all-reduces */
    int64_t allreduce_exposed_ns; /* longest time from a device's last backward end to its last
                                     all-reduce end */
};
void step_time_clear(struct step_time *time);

/* Compute the length of a step whose transfers do not share links. All-reduces are rings. *time
 * must be zeroed or cleared; the caller owns it. One pass, O(ops); replicas of one class are
 * computed once. ERR_INFEASIBLE: the lists deadlock. */
enum status schedule_time(const struct schedule *full, const struct workload *workload,
                          const struct setting *setting, const struct plan *plan,
                          struct step_time *time, struct err *err);

/* Callbacks for every op of a step. Times count from the moment at which all hosts begin. */
struct step_watch {
    /* Called once for each op of each class of replicas. A SEND runs from leaving to arrival, a
     * RECV starts and ends when its message arrives, and TIED and NORM start when the last rank has
     * reached them. The ops of a rank come in list order, and a SEND comes before its RECV.
     * ALLREDUCE is the exception: all of them come after the last backward and before the first
     * TIED, NORM or UPDATE, once for all classes (class_index 0). */
    void (*op)(void *ctx, int class_index, int rank, struct op op, int64_t start_ns,
               int64_t end_ns);
    void *ctx;
    enum allreduce_kind allreduce;
    int64_t *arrival_ns; /* the caller's, [class][2 * edge + (1: gradient)][micro-batch]; gets the
                            arrival of each message, -1 if none is sent */
};

/* Like schedule_time(), and also report each op to the watch. Order and arithmetic are equal. On
 * failure some ops have been reported. */
enum status schedule_watch(const struct schedule *full, const struct workload *workload,
                           const struct setting *setting, const struct plan *plan,
                           const struct step_watch *watch, struct err *err);

/* Set ERR_INFEASIBLE with a message that this rank waits for ever at position `next` of its list.
 */
enum status schedule_deadlock(const struct schedule *full, int replica, int rank, int64_t next,
                              struct err *err);

#ifdef __cplusplus
}
#endif
#endif
