/* partition/step/schedule_time.h - when each op of a step runs, and how long the step takes.
 *
 * One recurrence over the op lists gives all times by the rules of partition/step/step_rules.h, to the
 * nanosecond, as long as no two transfers share a port or an uplink. The planner asks for the
 * length of the step. The event engine (sim/step/event_run.c) shares no code with this one, and
 * tests compare the two. */
#pragma once

#include "partition/cost/collective.h"
#include "partition/step/workload.h"

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
                          const struct plan *plan, struct step_time *time, struct err *err);

/* A chain of ops, messages and launches from the beginning of a step to its end, each of which begins
 * when the one before it ends. A plan with another cut has a chain of the same ops if its lists are
 * equal up to the all-reduces, and its step is no shorter than that. */
enum { CHAIN_KINDS = OP_Z + 1 }; /* F B I W R Z */
struct step_chain {
    /* owned, [num_stages][CHAIN_KINDS][MB_SIZES]: its ops before the tail; NULL: no chain was found
     * */
    int *counts;
    int class_index;          /* of the replica */
    int64_t *message_ns;      /* owned, num_stages: of the messages from each stage to the next */
    int64_t fixed_ns;         /* of other messages, of launches, and of Z of OP_WHOLE_BATCH */
    int64_t tail_ns;          /* from the last of these ops to the end of the step, without NORM */
    int entry_rank, end_rank; /* that run the last of these ops and the last update */
};
void step_chain_clear(struct step_chain *chain);
/* The time of the chain's ops of a stage that has these costs. */
int64_t step_chain_stage_ns(const struct step_chain *chain, int stage,
                            const struct stage_cost *cost);

/* schedule_time() that also finds a chain. *chain (NULL: none is wanted)
 * must be zeroed or cleared, but for class_index, which says what class of replicas is run first; the
 * caller owns it. With limit_ns above 0 it ends when a class takes as long before its tails: of *time
 * only step_ns is right then, as a lower bound. */
enum status schedule_time_chain(const struct schedule *full, const struct workload *workload,
                                const struct plan *plan, int64_t limit_ns, struct step_time *time,
                                struct step_chain *chain, struct err *err);

/* Set ERR_INFEASIBLE with a message that this rank waits for ever at position `next` of its list.
 */
enum status schedule_deadlock(const struct schedule *full, int replica, int rank, int64_t next,
                              struct err *err);
