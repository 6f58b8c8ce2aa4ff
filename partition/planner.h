/* partition/planner.h - the best plan for a model on a cluster.
 *
 * Objective: throughput. A step of a plan processes R * B samples (B per pipeline; with a global
 * batch, B = global / R), so the planner maximises R * B / step_ns, where step_ns is what
 * schedule_time() says, or workload_traffic_ns() if that is more, and where asked the event engine
 * after it. The search is exact over
 * pipeline length K, replicas R, micro-batches M, schedule, recompute, placement of the frozen
 * forward and of the replicas (two rank maps), with one starting cut each (the one whose lower
 * bound is least) and, for every candidate that could still win, all cuts where they are few, else
 * the plain ones (equally many items a stage, least longest stage) and local moves of the best
 * candidates' cuts. Not in the search space: V-shaped schedules on pipelines of more than 16 ranks
 * (unless K or the schedule is given), more than 2^21 ops, pipelines of unequal length side by
 * side, and on one device more than one schedule (they run the same ops). What it skips beyond
 * that, it skips by a proven lower bound (planner_bound.h). Pure; deterministic; threads may call
 * it on distinct objects. */
#ifndef ELAPSE_PARTITION_PLANNER_H
#define ELAPSE_PARTITION_PLANNER_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/cost.h"
#include "partition/job.h"
#include "partition/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a plan may read the frozen prefix's output from a cache. Where it does, a step counts
 * with what filling the cache takes, on average over the epochs that are left (cache_rule.h), and
 * with full micro-batches only where the planner chooses their number: others are not cached. */
struct planner_cache {
    enum cache_use {
        CACHE_UNUSED,
        CACHE_ALLOWED, /* where that is faster */
        CACHE_WANTED   /* every plan reads */
    } use;
    bool filled;           /* it holds everything: nothing to fill */
    int level;             /* else the frozen items whose output it holds */
    double room;           /* the share of samples for which it has slots */
    bool whole;            /* see cache_share() */
    int64_t epochs, views; /* see cache_fill_weight() */
};

struct planner_problem {
    struct setting setting;
    enum batch_mode batch_mode;
    int64_t batch;         /* per pipeline, or global */
    int num_frozen_layers; /* F */
    int64_t bucket_bytes;  /* of the all-reduce */
    bool clip;
    int optim_bytes_per_param;
    bool canonical;     /* plan.canonical */
    bool most_replicas; /* of each K only the most replicas that can be */
    int64_t
        most_samples; /* of a step, with more than one replica and a batch per pipeline; 0: any */
    struct planner_cache cache;
};

/* Judge one plan anew (the CLI hands in the event engine): *step_ns, no less than plan->step_ns, or
 * ERR_INFEASIBLE (out of memory) to drop the candidate; any other error ends the search. */
struct planner_judge {
    enum status (*step_ns)(void *ctx, const struct plan *plan, int64_t *step_ns, struct err *err);
    void *ctx;
    bool all; /* asked about PLANNER_KEEP candidates, also those that cannot be the best */
};

struct planner_options {
    int num_ranks, num_replicas;
    int num_microbatches;    /* AUTO, or the count (so may the two above be). Of problem.batch: of a
                                pipeline's batch, or of the global one, shared by replicas */
    bool equal_microbatches; /* AUTO counts divide the batch */
    int chunks;              /* of interleaved: AUTO tries 2, 3 and 4 */
    unsigned schedules;      /* bit (1 << kind) for each schedule that may be chosen */
    enum balancer_kind balancer;
    bool by_params; /* optimal: cut by parameters in place of time */
    bool recompute_auto;
    enum recompute_mode recompute;
    bool frozen_auto; /* of plans that read no cache: FIRST or SPREAD */
    enum frozen_placement frozen;
    struct planner_judge judge; /* step_ns NULL: none */
};

/* Every schedule that the planner may choose by itself. */
#define PLANNER_ALL_SCHEDULES                                                                      \
    (1u << SCHEDULE_GPIPE | 1u << SCHEDULE_1F1B | 1u << SCHEDULE_INTERLEAVED |                     \
     1u << SCHEDULE_ZB_H1 | 1u << SCHEDULE_ZB_H2 | 1u << SCHEDULE_ZB_V |                           \
     1u << SCHEDULE_DUALPIPE_V)

#define PLANNER_KEEP 16 /* candidates kept, and judged anew */

/* A candidate that was judged, for --explain. */
struct planner_candidate {
    struct plan plan;       /* owned; step_ns before the judge was asked */
    int64_t unshared_ns;    /* schedule_time()'s */
    int64_t judged_ns;      /* what the judge said; 0: not asked */
    int64_t lower_bound_ns; /* of any cut of this candidate */
    double samples_per_s;
};

/* The fate of one pipeline length. */
enum planner_verdict {
    PLANNER_CHOSEN,
    PLANNER_SLOWER, /* judged: its best is slower */
    PLANNER_BOUND,  /* its lower bound already is slower */
    PLANNER_MEMORY, /* does not fit the devices */
    PLANNER_NONE    /* no candidate exists (batch, replicas or schedule do not divide) */
};
struct planner_length {
    int num_ranks;
    enum planner_verdict verdict;
    double samples_per_s; /* of its best judged candidate; 0: none */
    double bound_per_s;   /* no plan of this length is faster; 0 where none fits */
    int64_t need_bytes;   /* MEMORY: least peak of a cut tried, or bound of it; 0: bounds exclude
                             every cut */
};

struct planner_result {
    struct plan plan;       /* owned; step_ns and memory_bytes filled */
    int64_t *stage_ns;      /* owned, num_stages: forward + backward of one full micro-batch */
    double fill_ns;         /* of a step, besides: what filling the cache takes on average */
    double samples_per_s;   /* fill_ns counted */
    int64_t lower_bound_ns; /* no plan in the search space, with any cut, does the chosen plan's
                               R * B samples in less */
    double gap;             /* step_ns / lower_bound_ns - 1 */
    int64_t candidates;     /* K, R, M, schedule, recompute, placement: all that exist */
    int64_t evaluated;      /* of them judged by schedule_time(), cuts counted each */
    bool extrapolated;      /* the cost source left what it had measured */
    int num_best;
    struct planner_candidate *best; /* owned; the chosen one first; with a judge those asked */
    int num_lengths;
    struct planner_length *lengths; /* owned; ascending K */
};

/* Find the best plan. *result must be zeroed or cleared; on OK the caller owns it, on failure it is
 * untouched. ERR_INFEASIBLE: no plan exists or none fits the memory; the message says the least
 * need. balancer RELEASED and PAPER reproduce the greedy rules (balance.h): the released M of
 * 16, 16, 16, 4 where M is AUTO, K by the halving rule from the devices of a node where K is AUTO,
 * R the devices / K, GPipe unless one schedule is fixed, frozen forward first. An empty stage is
 * ERR_INFEASIBLE then. */
enum status planner_solve(const struct planner_problem *problem,
                          const struct planner_options *options, struct planner_result *result,
                          struct err *err);
void planner_result_clear(struct planner_result *result);

/* Micro-batch counts that the planner tries for K ranks and a batch: K..6K and every divisor of the
 * batch, as microbatches_of() makes them, duplicates dropped, ascending by count. A fresh array of
 * *num entries, the caller's. */
enum status planner_microbatches(int64_t batch, int num_ranks, struct microbatches **list, int *num,
                                 struct err *err);

#ifdef __cplusplus
}
#endif
#endif
