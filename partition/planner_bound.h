/* partition/planner_bound.h - proven lower bounds of a step, over every cut of a chain.
 *
 * The planner's only reason to skip a candidate. Stage s of a pipeline holds items [a, b). By the
 * rules of workload.h its device cannot start before micro-batch 0 has been forwarded through the
 * items before a and over s links (fill), then works for all micro-batches (work), and after its
 * last backward the last micro-batch still has to go back through the items before a (drain; where
 * backward is split, only the input halves must follow the last I, and W may overlap them), its
 * gradients are reduced and its weights updated:
 *
 *   B1  step >= fill(a) + work(a, b) + drain(a)                         (backward in one op)
 *   B2  step >= fill(a) + forward and input halves of (a, b) + input halves before a   (split)
 *       TIED (time-8) comes behind either.
 *   B3  step >= fill(a) + work(a, b) + max(0, allreduce(a, b) - last backward op) + update(a, b)
 *   B4  memory: context, weights, gradients, optimizer state, and the stash of the micro-batches
 *       that the schedule keeps at least, must fit the device.
 *
 * Each right side grows with b and does not grow with a (moving item i from behind a to before it
 * adds its forward, and its backward at most once, and takes them away M >= 1 times). So the cut
 * that gives each stage in turn as many items as T allows reaches furthest: if it does not reach
 * the end, no cut has a step below T. Bisection over T then gives the least T that these bounds
 * allow, and a cut for it. For equal stages and no communication B1 is (M + K - 1)(f + b), the
 * exact step of GPipe and 1F1B.
 *
 * With several chunks a rank, B1..B4 hold for a rank's stages together, a being where its lowest
 * stage begins (every op of the rank waits for that stage's first forward, and its last backward is
 * that stage's). Over all cuts:
 *
 *   B5  step >= (M * work of the whole chain + sum over ranks r of what the first r items take
 *       once) / K, because rank r waits for stages 0..r-1 first, and each of them holds an item;
 *       (M * work + the same of forwards alone + updates) / K likewise
 *
 *   B6  step >= one micro-batch through the whole chain and back
 *
 *   B7  memory summed over the ranks, see ranks_fit()
 *
 *   B8  the least T that B1..B4 allow where ranks hold a stage on each arm of a V, see peel();
 *       of interleaved chunks only B5..B7 are known */
#ifndef ELAPSE_PARTITION_PLANNER_BOUND_H
#define ELAPSE_PARTITION_PLANNER_BOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/plan.h"
#include "partition/planner.h"
#include "partition/units.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All that a bound adds up besides two chains: six such fit an int64_t. A bound may be too low. */
#define BOUND_MAX_TERM (INT64_MAX / 8)

static inline int64_t bound_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t bound_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* a * b + c for terms >= 0, saturated. */
static inline int64_t bound_mul_add(int64_t a, int64_t b, int64_t c)
{
    return bound_min(add_saturated(mul_saturated(a, b), c), BOUND_MAX_TERM);
}

/* Prefix sums over items on one type of device (kind and speed), at one micro-batch size, in ns
 * rounded down; freezing is in them: no backward below the boundary, at it what is left of the
 * input half; and recompute: the first forward, and again the one that keeps the stash. distance:
 * stash lies no nearer than that (step_rules.h, stash-distance), so no pass is shorter. */
struct bound_times {
    int type;
    int64_t samples;
    bool recompute;
    int64_t distance;
    int64_t *fwd, *again, *bwd_input, *bwd_weight, *update; /* num_items + 1 each; fwd owns the
                                                               block */
};

/* Sum over items [a, b) of what one micro-batch costs. */
static inline int64_t bound_once_ns(const struct bound_times *t, int a, int b)
{
    return t->fwd[b] - t->fwd[a] + t->again[b] - t->again[a] + t->bwd_input[b] - t->bwd_input[a] +
           t->bwd_weight[b] - t->bwd_weight[a];
}

struct bound_table {
    const struct planner_problem *problem; /* borrowed */
    int num_frozen_items;
    int num_types;
    int *type_of_device; /* owned, cluster.num_devices */
    int *device_of_type; /* owned: a device of each type */
    int num_times, room_times;
    struct bound_times **times; /* owned */
    int64_t *weight_bytes;      /* owned, prefix sums: weights of all items */
    int64_t *train_bytes; /* owned, prefix sums: gradients and optimizer state of active items */
    int64_t *grad_bytes;  /* owned, prefix sums: gradients of active items */
    int64_t *stash_bytes; /* owned, prefix sums: stash of active items, one sample (or one
                             micro-batch, where the model counts so) */
    bool extrapolated;
};

enum status bound_table_init(struct bound_table *table, const struct planner_problem *problem,
                             struct err *err);
void bound_table_clear(struct bound_table *table);

/* The prefix sums of a type at a micro-batch size, with recompute or without, with stash at least
 * so far, computed once. Lives as long as the table. */
enum status bound_times_of(struct bound_table *table, int type, int64_t samples, bool recompute,
                           int64_t distance, const struct bound_times **times, struct err *err);

/* Device types (or kinds of link) of one rank that are looked at; where there are more, a bound
 * over some of the replicas is a bound. */
#define BOUND_TYPES 4

/* What all candidates of one (K, R, rank map) share; costs O(K * R) once. */
struct bound_rank {
    int num_types, types[BOUND_TYPES];
    int64_t mem_bytes;    /* least over the replicas; INT64_MAX: no limit */
    int64_t allreduce_ns; /* of 0 bytes over the rank's replicas */
    double allreduce_ns_per_byte;
    int num_links; /* kinds of link from rank k - 1 (for k = 0: from K - 1) */
    int from[BOUND_TYPES], to[BOUND_TYPES]; /* a pair of devices of each */
};
struct bound_family {
    int num_ranks;
    struct bound_rank *ranks; /* owned */
    int64_t tied_ns;          /* OP_TIED where it is slowest, between ranks 0 and K - 1 */
};
/* device[r * K + k]. *family must be zeroed or cleared. */
enum status bound_family_init(struct bound_family *family, const struct bound_table *table,
                              int num_ranks, int num_replicas, const int *device, struct err *err);
void bound_family_clear(struct bound_family *family);

/* Whether the weights, gradients and optimizer state of the items from first_item on fit K devices
 * of mem_bytes each, stash aside. */
bool bound_weights_fit(const struct bound_table *table, int num_ranks, int64_t mem_bytes,
                       int first_item);

/* One candidate's figures, stage by stage. */
struct bound_stage {
    int rank;
    int num_types;
    const struct bound_times *full[BOUND_TYPES], *last[BOUND_TYPES];
    int64_t hop_act_ns;   /* all links before the stage, one activation each */
    int64_t hop_grad_ns;  /* likewise, gradients of the last micro-batch */
    int64_t allreduce_ns; /* of 0 bytes */
    double allreduce_ns_per_byte;
    int64_t mem_bytes; /* what is left for B4; INT64_MAX: no limit */
    int64_t live;      /* bound_live() */
};

/* Items [a, b) of a stage. A rank's parts begin with its lowest stage. */
struct bound_part {
    int stage, a, b;
};

struct bound_shape {
    const struct bound_table *table;
    int first_item, num_items; /* the cut covers [first_item, num_items) */
    int num_ranks, chunks, num_stages;
    int64_t num_microbatches, size, last_size;
    bool split;     /* backward as I and W */
    bool recompute; /* for all micro-batches but perhaps the last */
    bool recompute_last;
    int64_t distance;                                /* no stash is nearer */
    int64_t before_ns;                               /* whole-batch forward of the frozen prefix */
    int64_t tied_ns;                                 /* TIED; 0: none */
    int64_t op_ns;                                   /* runtime's and host's time in every op */
    int64_t floor_ns;                                /* host launches: no step is shorter */
    const struct bound_times *fill_full, *fill_last; /* the fastest type in use */
    /* Owned: where one type is in use, prefix sums of what all micro-batches take, and of their
     * forwards and input halves; else NULL. */
    int64_t *work, *halves;
    int64_t input_bytes;        /* least that enters a stage but the first, of one micro-batch */
    struct bound_stage *stages; /* owned, num_stages */
    struct bound_part *parts;   /* owned, scratch: chunks */
    double *loads;              /* owned, scratch: num_ranks */
    /* Owned, scratch of a V-shaped schedule: 2 * num_ranks * (num_items + 1); else NULL. */
    int *peel;
};

/* Fill *shape (zeroed or cleared) for a plan that lacks its cut and devices (both may be NULL; the
 * family knows the devices). */
enum status bound_shape_init(struct bound_shape *shape, struct bound_table *table,
                             const struct bound_family *family, const struct plan *plan,
                             struct err *err);
void bound_shape_clear(struct bound_shape *shape);

/* B5, B6 and the host: O(1) after the prefix sums. Holds for every schedule. */
int64_t bound_average_ns(const struct bound_shape *shape);

/* Least bound over all cuts when it is at most limit_ns, with the cut that has it (first_item is
 * the caller's, num_stages + 1). False: no cut can be done in limit_ns. memory_only (may be NULL)
 * is set when memory alone excludes every cut. */
bool bound_solve(const struct bound_shape *shape, int64_t limit_ns, int64_t *bound_ns,
                 int *first_item, bool *memory_only);

/* Bound of one cut: B1..B3, of the busiest rank. */
int64_t bound_of_cut(const struct bound_shape *shape, const int *first_item);

/* B4 of one cut: over[k], num_ranks entries, is by how many bytes rank k is too large at least.
 * False: it cannot fit. */
bool bound_cut_fits(const struct bound_shape *shape, const int *first_item, int64_t *over);

/* Move boundaries of a cut while the ranks' bounds get more alike, and those that cannot fit fewer;
 * no bound comes of it. */
void bound_balance(const struct bound_shape *shape, int *first_item);

/* Micro-batches whose stash stage s of a named schedule holds at once, at least: all stages of a
 * rank at one moment, before the rank's first backward (zb-h1 and zb-h2: its first W). */
int64_t bound_live(enum schedule_kind kind, int num_ranks, int num_microbatches, int chunks, int s);

#ifdef __cplusplus
}
#endif
#endif
