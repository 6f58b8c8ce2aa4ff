/* partition/search/planner.h - the best plan for a model on a cluster.
 *
 * Objective: throughput. A step of a plan processes R * B samples (B per pipeline; with a global
 * batch, B = global / R; plan.num_pipelines is R C), so the planner maximises R * B / step_ns.
 * step_ns is the larger of schedule_time() and workload_traffic_ns(). A judge, such as the event
 * engine, may raise it.
 *
 * The search is exact over tensor-parallel groups T, what replicas divide (shard), pipeline length K,
 * replicas R, micro-batches M, schedule, recompute, placement of the frozen forward, and the places
 * of the ranks (rank_places.h). Each candidate starts with the cut whose lower bound is least. For
 * candidates that could still win the planner then tries all cuts if they are few. Otherwise it
 * tries two plain cuts (equally many items a stage, shortest longest stage) and improves the best
 * candidates' cuts by local moves.
 *
 * Before the search some textbook plans of each layout are timed (planner_textbook.c), and the judge is
 * asked about the fastest. No answer is slower than that one. A watch that says no ends the textbooks too,
 * so this holds of those that were timed by then.
 * The layouts are then searched one after the other, that of the fastest textbook plan first. Of a
 * layout that the watch leaves no time for there is a bound alone (search_ceiling()).
 *
 * The search space leaves out V-shaped schedules on pipelines of more than 16 ranks (unless K or
 * the schedule is given), op lists of more than 2^21 ops (unless K and M are given), and pipelines
 * of different lengths side by side. On one device it holds one schedule, because all of them run
 * the same ops there. Inside the search space a candidate is skipped only by a proven lower bound
 * (planner_bound.h).
 *
 * Pure; deterministic; threads may call it on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/cost/cost.h"
#include "partition/plan/job.h"
#include "partition/plan/plan.h"
#include "partition/plan/target.h"

/* Whether a plan may read the frozen prefix's output from a cache. The cost of filling the cache is
 * spread over the epochs that are left and added to each step of a plan that reads
 * (cache_rule.h). If the planner chooses M for a plan that reads, all micro-batches are full,
 * because smaller ones are not cached. */
struct planner_cache {
    enum cache_use {
        CACHE_UNUSED,
        CACHE_ALLOWED, /* a plan reads the cache if that is faster */
        CACHE_WANTED   /* every plan reads the cache */
    } use;
    bool filled;           /* the cache holds the prefix's output of all samples */
    int level;             /* unless filled: the cache holds the output of this many frozen items */
    double room;           /* share of the samples for which the cache has slots */
    bool whole;            /* see cache_share() */
    int64_t epochs, views; /* see cache_fill_weight() */
};

struct planner_problem {
    struct setting setting;
    struct layout layout;
    enum batch_mode batch_mode;
    int64_t batch;         /* per pipeline, or global */
    int num_frozen_layers; /* F */
    int64_t bucket_bytes;  /* of the all-reduce */
    bool bucket_auto;      /* framework_bucket_bytes() in its place */
    bool clip;
    int optim_bytes_per_param;
    bool canonical;     /* plan.canonical */
    bool lagged;        /* plan.lagged */
    bool with_device_0; /* only plans that use device 0 */
    bool most_replicas; /* try only the largest possible R of each K */
    /* With a batch per pipeline and R > 1, a step has at most this many samples; 0: no limit. */
    int64_t most_samples;
    struct planner_cache cache;
};

/* Progress of a search: candidates by their bounds, better cuts of the best, questions to the
 * judge. */
enum planner_phase { PLANNER_SEARCHES, PLANNER_IMPROVES, PLANNER_JUDGES, PLANNER_PHASE_COUNT };

/* The progress of a search over all its layouts. */
struct planner_progress {
    int64_t candidates, evaluated; /* see struct planner_result */
    double best_per_s;             /* samples per second of the best plan so far; 0: none */
    double memory_share;           /* that it needs of its fullest device's memory */
    double bound_per_s;            /* no plan of the search space is faster; 0: not known yet */
    enum planner_phase phase;
};

/* A second opinion on one plan; the CLI passes the event engine. The judge sets *step_ns, and the
 * planner raises a value below plan->step_ns to it. ERR_INFEASIBLE (out of memory) drops the
 * candidate, any other error ends the search. */
struct planner_judge {
    enum status (*step_ns)(void *ctx, const struct plan *plan, int64_t *step_ns, struct err *err);
    void *ctx;
    bool all; /* also ask about candidates that cannot win, up to PLANNER_KEEP */
    /* The search looks only for plans with more samples per second; 0: for all plans. */
    double floor_per_s;
    /* May be NULL: told about the search every few microseconds, and says whether it continues. Once
     * the watch says no in a phase, that phase is over for all layouts: no further candidates are
     * looked at, no further cuts are tried, or the judge is asked no more than it takes to have an
     * answer. Which plan is found then depends on when the watch said so. */
    bool (*watch)(void *watch_ctx, const struct planner_progress *progress);
    void *watch_ctx;
};

struct planner_options {
    int num_ranks, num_replicas; /* AUTO or a count */
    /* AUTO, or into how many micro-batches problem.batch is cut. The replicas share the
     * micro-batches of a global batch. */
    int num_microbatches;
    int64_t microbatch_size; /* AUTO, or samples of every micro-batch, in place of a number */
    bool equal_microbatches; /* with AUTO, only counts that divide the batch */
    int chunks;              /* of the interleaved schedule; AUTO tries 2, 3 and 4 */
    unsigned schedules;      /* bit (1 << kind) is set if the schedule may be chosen */
    /* The search tries of an open T every one that divides the model and fits a node; with T > 1
     * both values of sequence_parallel; every E that divides the model's experts; C = 2, 4, ... where
     * samples are long, with every kind; every shard. Unless layout.at says another, X is T or, with
     * E > 1 in groups by tokens, 1; and G is all replicas or, with an open shard, also those of a
     * node. R is a multiple of E and C. */
    struct layout_ask layout;
    enum offload_choice offload;
    enum balancer_kind balancer;
    bool by_params; /* BALANCER_OPTIMAL cuts by parameters instead of time */
    bool recompute_auto;
    enum recompute_mode recompute; /* used unless recompute_auto */
    bool recompute_inside; /* with recompute_auto, try what frameworks run: RECOMPUTE_SELECTIVE,
                              _LAYER and _STAGE in place of the early forms */
    int recompute_layers;  /* of each stage with RECOMPUTE_LAYER; AUTO: as few as fit the memory */
    bool few_samples;      /* a step has fewer of them than there are devices */
    bool frozen_auto;      /* a plan that reads no cache may use FROZEN_FIRST or FROZEN_SPREAD */
    enum frozen_placement frozen; /* used by such plans unless frozen_auto */
    struct planner_judge judge;   /* judge.step_ns may be NULL: there is no judge */
    /* Only plans that this framework runs; shard and recompute unless they are auto must be among
     * its own. NULL: all. */
    const struct plan_target *target;
};

/* All schedules that have a name. */
/* All but looped-bfs, which is breadth-first with micro-batches counted from the other end. */
#define PLANNER_ALL_SCHEDULES (((1u << SCHEDULE_SEARCH) - 1) & ~(1u << SCHEDULE_LOOPED_BFS))

#define PLANNER_KEEP 16 /* candidates reported at most, and asked the judge about in one round */

/* A candidate that was judged, for --explain. */
struct planner_candidate {
    struct plan plan;       /* owned; its step_ns is the planner's, not the judge's */
    int64_t unshared_ns;    /* schedule_time(), where no transfers share a link */
    int64_t judged_ns;      /* the judge's step time; 0: it was not asked */
    int64_t lower_bound_ns; /* no cut of this candidate has a shorter step */
    double samples_per_s;
};

/* The fate of one pipeline length. */
enum planner_verdict {
    PLANNER_CHOSEN,
    PLANNER_SLOWER, /* a plan of it was timed and is slower; bound_per_s says what its best can be */
    PLANNER_BOUND,  /* not searched further, because none of its plans exceeds bound_per_s */
    PLANNER_MEMORY, /* bounds or the cuts that were tried exceed the devices' memory */
    PLANNER_NONE    /* no candidate exists (batch, replicas or schedule do not divide) */
};
struct planner_length {
    int num_ranks;
    enum planner_verdict verdict;
    double samples_per_s; /* of its best timed candidate, by the judge if there is one; 0: none */
    double bound_per_s;   /* no plan of this length is faster; 0: none fits the memory */
    double rest_per_s;    /* no candidate that was not timed is faster; 0: none is left */
    int64_t need_bytes;   /* with PLANNER_MEMORY: the smallest peak, or bound of a peak, of the cuts
                             tried; 0: bounds exclude every cut. Otherwise 0 */
};

/* The fate of one layout (T and shard mode). */
struct planner_layout_fate {
    struct layout layout;
    enum planner_verdict verdict;
    double samples_per_s;           /* of its best timed candidate, as in planner_length */
    double bound_per_s;             /* no plan of this layout is faster */
    int64_t need_bytes, have_bytes; /* with PLANNER_MEMORY: as in planner_length, and the memory */
};

/* How far a search came. */
struct searched {
    int64_t judged;  /* cuts of candidates that were weighed or timed; 0: there was no search */
    int64_t work_ns; /* its processor time */
    bool complete;   /* the search ended because no other plan can be faster by its times, not
                        because the watch ended it */
};

struct planner_result {
    struct plan plan;     /* owned; step_ns and memory_bytes filled */
    int64_t *stage_ns;    /* owned, num_stages: forward + backward of one full micro-batch */
    double fill_ns;       /* cost of filling the cache, per step on average; step_ns lacks it */
    double samples_per_s; /* R * B / (step_ns + fill_ns) */
    double memory_share;  /* as in struct planner_progress */
    int64_t whole_ns;     /* of the best plan without shares; 0: this one has none either */
    /* no plan in the search space, with any cut, processes the chosen plan's R * B samples in less
     * time; 0: its backwards have shares, or it was given */
    int64_t lower_bound_ns;
    double gap;               /* step_ns / lower_bound_ns - 1 */
    int64_t candidates;       /* combinations of K, R, M, schedule, recompute and placement */
    struct searched searched; /* the planner has no clock: the caller sets work_ns */
    bool judge_decided;       /* without the judge another plan would have been chosen */
    bool extrapolated;        /* the cost source was asked outside the range that it measured */
    int num_best;
    /* Owned; fastest first, so [0] is the chosen plan. With a judge: candidates it was asked about.
     */
    struct planner_candidate *best;
    int num_lengths;
    struct planner_length *lengths; /* owned; ascending K; of the chosen layout */
    int num_layouts;
    struct planner_layout_fate *layouts; /* owned; in the order in which they were searched */
};

/* Find the best plan. *result must be zeroed or cleared; on OK the caller owns it, on failure it is
 * untouched. ERR_INFEASIBLE: no plan exists or none fits the memory; the message names the smallest
 * need. ERR_UNFINISHED: the watch ended the search before it had a plan.
 *
 * With BALANCER_RELEASED or BALANCER_PAPER the plan follows the greedy rules (balance.h). If M is
 * AUTO, it is 4 for K = 1 and 16 otherwise, as released. If K is AUTO, it starts with the number of
 * devices of a node and follows the halving rule. If R is AUTO, it is the largest that the devices
 * and the batch allow. The schedule is GPipe unless one is fixed. If the greedy cut has an empty
 * stage, the result is ERR_INFEASIBLE. */
enum status planner_solve(const struct planner_problem *problem,
                          const struct planner_options *options, struct planner_result *result,
                          struct err *err);
void planner_result_clear(struct planner_result *result);

/* The plan of a problem that leaves nothing to choose, without its times and its memory: one layout, K,
 * R, M, schedule and place, and one cut. With any_cut the caller puts its own cut in place of the
 * plan's. *plan must be zeroed, and stays so where there is a choice or no plan; it may exceed the
 * memory. ERR_NOMEM. Time O(items + devices). */
enum status planner_only(const struct planner_problem *problem,
                         const struct planner_options *options, bool any_cut, struct plan *plan,
                         struct err *err);

/* Make another candidate, whose plan the result then owns, the chosen one. It has the cut and the
 * samples of the plan that was chosen, which becomes the next best. The bound stays that of the named
 * schedules, so the gap may be negative. ERR_NOMEM. */
enum status planner_result_prefer(struct planner_result *result, struct planner_candidate *first,
                                  struct err *err);

/* result->plan has become another plan: make it the chosen one of layouts and lengths. Lengths stay if they are
 * of its layout. */
void planner_result_mark(struct planner_result *result);

/* Room for a candidate at the front of result->best; the last one goes if there are PLANNER_KEEP. */
void planner_result_shift(struct planner_result *result);

/* The micro-batch counts that the planner tries for K ranks and a batch: K..6K and every divisor of
 * the batch, made by microbatches_of(), without duplicates, in ascending order. *list is a fresh
 * array of *num entries that the caller owns. */
enum status planner_microbatches(int64_t batch, int num_ranks, struct microbatches **list, int *num,
                                 struct err *err);
