/* partition/search/planner_bound.h - proven lower bounds of a step, over every cut of a chain.
 *
 * The planner skips a candidate only if one of these bounds shows that it cannot win or cannot fit.
 * Stage s of a pipeline holds items [a, b). By the rules of step_rules.h:
 *   - fill(a): its device cannot start before micro-batch 0 has gone forward through the items
 *     before a and over s links.
 *   - work(a, b): the device then works on all micro-batches.
 *   - drain(a): after its last backward the last micro-batch still goes back through the items
 *     before a. If the backward is split, only the input halves must follow the last I, because W
 *     may overlap them.
 * The device also reduces its gradients and updates its weights. This gives four bounds:
 *
 *   bound-1: backward in one op. step >= fill(a) + work(a, b) + drain(a)
 *
 *   bound-2: backward split. step >= fill(a) + forwards and input halves of [a, b) + input halves
 *   of the items before a
 *
 *   bound-3: step >= fill(a) + work(a, b) + max(0, allreduce(a, b) - last backward op)
 *   + update(a, b)
 *
 *   bound-4: memory. The device must hold its context, weights, gradients, optimizer state and the
 *   stash of as many micro-batches as the schedule keeps at least.
 *
 * bound-1 and bound-2 also add the time of TIED (time-8), which follows the backwards. With
 * RECOMPUTE_LAYER work(a, b) includes the layers that must run again so that bound-4 holds. Their
 * time does not grow with a either: without item a the stage must give up less stash, at most by
 * that of the item.
 *
 * Each right side grows with b and does not grow with a: moving item i from after a to before it
 * adds its forward, and its backward at most once, and takes them away M >= 1 times. So the cut
 * that gives each stage in turn as many items as T allows reaches furthest. If it does not reach
 * the end, no cut has a step below T. Bisection over T then gives the least T that these bounds
 * allow, and a cut for it. For equal stages and no communication bound-1 is (M + K - 1)(f + b), the
 * exact step of GPipe and 1F1B.
 *
 * With several chunks a rank, the four bounds hold for all stages of a rank together, where a is
 * the first item of the rank's lowest stage: every op of the rank waits for the first forward of
 * that stage, and the last backward of the rank is of that stage.
 *
 * Four more bounds hold for any cut and any schedule:
 *   - The average of the ranks: step >= (M * work of the whole chain + sum over ranks r of the time
 *     of the first r items for one micro-batch) / K. Rank r first waits for stages 0..r-1, and each
 *     of them holds at least one item. A second form counts only the forwards in the sum and adds
 *     the updates of all items.
 *   - The way of one micro-batch: step >= one forward and backward through the whole chain.
 *   - With RECOMPUTE_LAYER a weighted average of the ranks, see planner_bound_again.c.
 *   - The memory of all ranks together, see ranks_fit() in planner_bound_cut.c.
 *
 * If ranks hold a stage on each arm of a V, peel() finds the least T that bound-1 to bound-4 allow.
 * For interleaved chunks only the four bounds for any cut are known. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/plan/plan.h"
#include "partition/search/planner.h"
#include "partition/base/units.h"

/* The terms of a bound, in ns or bytes, saturate here, so that six of them and two chains fit an
 * int64_t. Saturation only makes a bound lower, and a low bound is still a bound. */
#define BOUND_MAX_TERM (INT64_MAX / 8)

static inline int64_t bound_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t bound_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* a + b for terms of at most BOUND_MAX_TERM, or a few of them, saturated. */
static inline int64_t bound_add(int64_t a, int64_t b)
{
    return bound_min(add_saturated(a, b), BOUND_MAX_TERM);
}

/* a * b + c for terms >= 0, saturated. */
static inline int64_t bound_mul_add(int64_t a, int64_t b, int64_t c)
{
    return bound_min(add_saturated(mul_saturated(a, b), c), BOUND_MAX_TERM);
}

/* Prefix sums over items on one type of device (kind and speed), at one micro-batch size, in ns,
 * rounded down. They include the effect of freezing: frozen items have no backward, and the first
 * active item has only the rest of its input half. Under recompute `fwd` sums the first forward,
 * and `again` the second one, which keeps the stash. Stash lies at `distance` or further
 * (step_rules.h, stash-distance), so no pass is shorter than its entry here. */
enum bound_again {
    AGAIN_NEVER,
    AGAIN_STAGE, /* the whole stage, by R */
    AGAIN_LAYER, /* layers inside the backward, or none: fwd + again is one forward */
    AGAIN_PARTS /* and a value of enum rerun on top: parts of layers, inside the backward: in bwd_input */
};
struct bound_times {
    int type;
    int64_t samples;
    enum bound_again again_mode;
    int64_t distance;
    /* num_items + 1 each; fwd owns the block. `rerun`, with AGAIN_LAYER: what an item adds whose
     * layer runs again. */
    int64_t *fwd, *again, *bwd_input, *bwd_weight, *update, *rerun;
    double rerun_ns_per_byte; /* no item gives up a byte of its stash for less */
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
    int *type_of_device;        /* owned, cluster.num_devices */
    int *device_of_type;        /* owned: one device of each type */
    int num_times, room_times;  /* room_times: 0 or a power of two, more than num_times */
    struct bound_times **times; /* owned: a hash table; NULL: free */
    /* Owned, prefix sums: weights of all items, gradients and optimizer state of active ones; what a
     * replica holds as a whole, and what the replicas divide (problem.layout.shard). */
    int64_t *whole_bytes, *split_bytes;
    int64_t *grad_bytes;  /* owned, prefix sums: gradients of active items */
    int64_t *stash_bytes; /* owned, prefix sums: stash of active items for one sample, or for one
                             micro-batch if model.per_microbatch */
    int64_t
        *part_bytes[RERUN_COUNT]; /* owned, like stash_bytes, without the parts that run again */
    int64_t *layer_bytes;         /* owned, like stash_bytes, where all layers run again */
    bool has_part[RERUN_COUNT];   /* their rerun would keep less */
    bool extrapolated;
};

enum status bound_table_init(struct bound_table *table, const struct planner_problem *problem,
                             struct err *err);
void bound_table_clear(struct bound_table *table);

/* Bytes of items [a, b) that a rank holds all the time, with R replicas. */
static inline int64_t bound_fixed_bytes(const struct bound_table *table, int a, int b,
                                        int num_pipelines)
{
    const int64_t split = table->split_bytes[b] - table->split_bytes[a];
    return table->whole_bytes[b] - table->whole_bytes[a] +
           (split > 0 ? split / num_pipelines : 0); /* a division costs as much as the rest */
}

/* The forwards that a mode recomputes; by_stage: this micro-batch has an R. */
static inline enum bound_again bound_again_of(enum recompute_mode mode, bool by_stage)
{
    const enum rerun parts = recompute_parts(mode);
    return parts != RERUN_COUNT      ? (enum bound_again)(AGAIN_PARTS + (int)parts)
           : mode == RECOMPUTE_LAYER ? AGAIN_LAYER
           : by_stage                ? AGAIN_STAGE
                                     : AGAIN_NEVER;
}

/* T of a model: at least 1. */
static inline int bound_tensor(const struct model *model)
{
    return model->tensor > 1 ? model->tensor : 1;
}

/* Return in *times the prefix sums for a device type, a micro-batch size of `samples`, what runs
 * again, and a stash distance. They are computed at the first call and live as long as the table. */
enum status bound_times_of(struct bound_table *table, int type, int64_t samples,
                           enum bound_again again, int64_t distance,
                           const struct bound_times **times, struct err *err);

/* A rank's bound looks at this many device types, and at this many kinds of link. If its replicas
 * use more, the bound covers only some of the replicas, and it is still a lower bound. */
#define BOUND_TYPES 4

/* Data that all candidates of one family (K, R, place) share. Computed once in O(K * R). */
struct bound_rank {
    int num_types, types[BOUND_TYPES];
    int64_t mem_bytes;    /* smallest device memory of the replicas; INT64_MAX: no limit */
    int64_t allreduce_ns; /* an all-reduce of 0 bytes over the rank's replicas */
    double allreduce_ns_per_byte;
    int num_links; /* kinds of link from rank k - 1, or from rank K - 1 for k = 0 */
    int from[BOUND_TYPES], to[BOUND_TYPES]; /* one pair of devices for each kind of link */
};
struct bound_family {
    int num_ranks;
    struct bound_rank *ranks; /* owned */
    int64_t tied_ns;          /* OP_TIED between ranks 0 and K - 1 in the slowest replica */
};
/* device[r * K + k] is the device of rank k of replica r, borrowed for the call. *family must be
 * zeroed or cleared. ERR_NOMEM. */
enum status bound_family_init(struct bound_family *family, const struct bound_table *table,
                              int num_ranks, int num_pipelines, const int *device, struct err *err);
void bound_family_clear(struct bound_family *family);

/* Whether the weights, gradients and optimizer state of the items from first_item on fit K devices
 * of mem_bytes each, in a pipeline of at most num_pipelines. Stash is not counted. */
bool bound_weights_fit(const struct bound_table *table, int num_ranks, int num_pipelines,
                       int64_t mem_bytes, int first_item);

/* Times before and after the ops of a rank, in ns, for a lowest stage s that begins at item a.
 * base: before the first op. drain: after the last backward. drain_in: after the last input half.
 * None of them shrinks when s or a grows. */
struct bound_edges {
    int64_t base, drain, drain_in;
};

/* One stage of a candidate, as the bounds see it. */
struct bound_stage {
    int rank; /* that holds it */
    int num_types;
    const struct bound_times *full[BOUND_TYPES], *last[BOUND_TYPES];
    int64_t hop_act_ns;       /* all links before the stage, each with one activation message */
    int64_t hop_grad_ns;      /* all links before the stage, each with a gradient of the last
                             micro-batch */
    struct bound_edges apart; /* bound_rank_edges() is this and sums of items */
    int64_t allreduce_ns;     /* an all-reduce of 0 bytes over the rank's replicas */
    double allreduce_ns_per_byte;
    int64_t mem_bytes;    /* memory left for the terms of bound-4; INT64_MAX: no limit */
    int64_t live;         /* schedule_live() of this stage */
    int64_t held_samples; /* of these micro-batches */
};

/* A stage and its items [a, b). An array of a rank's parts begins with the rank's lowest stage. */
struct bound_part {
    int stage, a, b;
};

struct bound_shape {
    const struct bound_table *table;
    int first_item, num_items; /* the cut covers [first_item, num_items) */
    int num_ranks, chunks, num_stages;
    int num_pipelines; /* devices that share what a shard mode divides */
    int64_t num_microbatches;
    int64_t size, last_size;
    bool split; /* backward as I and W */
    enum recompute_mode mode;
    const int64_t *stash_bytes; /* of the table: the least that the mode keeps */
    bool recompute;             /* all micro-batches except the last are recomputed */
    bool recompute_last;        /* the last micro-batch is recomputed */
    int64_t distance;           /* no stash is nearer than this (stash-distance) */
    int64_t before_ns; /* forward of the frozen prefix for the whole batch, before the pipeline */
    int64_t tied_ns;   /* OP_TIED; 0: no tied table */
    int64_t op_ns;     /* time of the runtime and the host in every op */
    int64_t floor_ns;  /* time of all host launches; no step is shorter */
    /* Times on the one device type in use; NULL if several types are in use. */
    const struct bound_times *fill_full, *fill_last;
    /* Owned prefix sums over all micro-batches if one device type is in use, otherwise NULL.
     * `work`: all ops. `halves`: forwards and input halves. */
    int64_t *work, *halves;
    int64_t *last_op;    /* as work, owned by it: a last backward that ends a stage's gradients */
    int64_t input_bytes; /* smallest input of one micro-batch to a stage after the first */
    struct bound_stage *stages; /* owned, num_stages */
    struct bound_part *parts;   /* owned, scratch: chunks entries */
    double *loads;              /* owned, scratch: 3 * num_ranks entries */
    int *tried;                 /* owned, scratch: num_ranks + 6 * num_stages entries */
    /* Owned scratch of a V-shaped schedule, 2 * num_ranks * (num_items + 1) entries. NULL for other
     * schedules. */
    int *peel;
};

/* Fill *shape, which must be zeroed or cleared, for a plan without a cut: plan->first_item and
 * plan->device may be NULL, because the family describes the devices. ERR_NOMEM, or an error of the
 * cost source. */
enum status bound_shape_init(struct bound_shape *shape, struct bound_table *table,
                             const struct bound_family *family, const struct plan *plan,
                             struct err *err);
void bound_shape_clear(struct bound_shape *shape);

/* Make it the shape of another schedule with equal chunks and places of stages and an equal form of
 * backward, for several ranks. */
void bound_shape_set_kind(struct bound_shape *shape, enum schedule_kind kind);

/* --- planner_bound_rank.c: for a rank, given its items ----------------------------------------- */

/* The least number of ops of a stage for each micro-batch. A frozen stage runs one forward. An
 * active stage runs a forward and a backward; a schedule that splits backwards may leave some
 * whole, so a split backward counts as one op. */
static inline int64_t bound_ops_of_stage(bool active)
{
    return active ? 2 : 1;
}
/* All ops of items [a, b) of a stage, over all micro-batches, on its device type t. */
int64_t bound_work_ns(const struct bound_shape *shape, const struct bound_stage *stage, int t,
                      int a, int b);
static inline struct bound_edges bound_rank_edges(const struct bound_shape *shape, int s, int a)
{
    struct bound_edges got = shape->stages[s].apart;
    if (shape->fill_full) {
        const int64_t input = shape->fill_last->bwd_input[a];
        got.base += shape->fill_full->fwd[a];
        got.drain_in += input;
        got.drain += input + shape->fill_last->bwd_weight[a];
    }
    return got;
}
/* The tail after the last backward of a stage of items [a, b), from bound_shape.work's sums: the rest of an
 * all-reduce that runs beside it, and the update, which takes own_ns. */
static inline int64_t bound_tail_ns(const struct bound_shape *shape,
                                    const struct bound_stage *stage, int a, int b, int64_t own_ns)
{
    const int64_t bytes = shape->table->grad_bytes[b] - shape->table->grad_bytes[a];
    const double ns = stage->allreduce_ns_per_byte * (double)bytes;
    if (bytes == 0)
        return own_ns;
    const int64_t reduce_ns =
        stage->allreduce_ns + (ns < (double)BOUND_MAX_TERM ? (int64_t)ns : BOUND_MAX_TERM);
    return bound_max(0, reduce_ns - (shape->last_op[b] - shape->last_op[a])) + own_ns;
}
/* The largest of bound-1 to bound-3 for a rank with these parts, one for each chunk. */
int64_t bound_rank_ns(const struct bound_shape *shape, const struct bound_part *parts,
                      int num_parts);
/* bound-4: the least peak of a rank, without the context and the weights that bound_shape_init()
 * has already subtracted from mem_bytes. */
int64_t bound_rank_need_bytes(const struct bound_shape *shape, const struct bound_part *parts,
                              int num_parts);

/* --- for any cut ------------------------------------------------------------------------------ */

/* The bound for any cut and any schedule: the average of the ranks, the way of one micro-batch, and
 * the host's launches. O(num_ranks) where one device type is in use. */
int64_t bound_average_ns(const struct bound_shape *shape);

/* planner_bound_again.c: the least time that layers of a rank with these parts take to run again,
 * over all micro-batches, on its device type t. *but_last_ns lacks the last micro-batch. 0 unless
 * RECOMPUTE_LAYER. */
int64_t bound_again_ns(const struct bound_shape *shape, const struct bound_part *parts,
                       int num_parts, int t, int64_t *but_last_ns);

/* How many layers of a rank's only stage run again at least, with RECOMPUTE_LAYER. */
int bound_again_layers(const struct bound_shape *shape, struct bound_part part);

/* A bound for every cut: layers whose outputs do not fit all memories together run again, and take
 * this long. 0 (no bound) unless the mode is RECOMPUTE_LAYER and all devices are of one type. */
int64_t bound_again_average_ns(const struct bound_shape *shape);

/* Find the least bound over all cuts, and the cut that has it, if the bound is at most limit_ns.
 * first_item is the caller's array of num_stages + 1 entries. Returns false if no cut can have a
 * step of limit_ns or less. *memory_only (may be NULL) tells whether memory alone excludes every
 * cut. */
bool bound_solve(const struct bound_shape *shape, int64_t limit_ns, int64_t *bound_ns,
                 int *first_item, bool *memory_only);

/* The bound of one cut: the largest of bound-1 to bound-3 over the ranks. */
int64_t bound_of_cut(const struct bound_shape *shape, const int *first_item);
/* Whether that is at most limit_ns. */
bool bound_cut_within(const struct bound_shape *shape, const int *first_item, int64_t limit_ns);
/* No cut has a smaller bound: the average of bound-1 to bound-3 over the ranks. 0 with several device types
 * or ops that take time beyond their passes. O(num_ranks). */
int64_t bound_of_cuts(const struct bound_shape *shape);

/* bound-4 of one cut. over, the caller's array of num_ranks entries, gets the least number of bytes
 * by which each rank exceeds its memory. Returns false if any rank exceeds it. */
bool bound_cut_fits(const struct bound_shape *shape, const int *first_item, int64_t *over);

/* Improve a cut heuristically: move boundaries while the ranks' bounds become more equal and fewer
 * ranks exceed their memory. The result proves nothing. */
void bound_balance(const struct bound_shape *shape, int *first_item);
