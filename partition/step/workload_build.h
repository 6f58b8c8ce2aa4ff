/* partition/step/workload_build.h - declarations that the parts of workload_build() share; only
 * they include it. */
#pragma once

#include "partition/base/units.h"
#include "partition/model/framework.h"
#include "partition/step/workload.h"

/* The last time that a cost source gave for a kind of item, a pass and a micro-batch size. */
struct item_memo {
    bool known;
    int item;
    const struct device *device;
    int64_t samples, distance, ns;
};

/* Times of collectives over the replicas of a rank. Layers are mostly alike, so a few sizes meet
 * again and again. */
enum { COLLECTIVE_MEMOS = 8 }; /* a power of two */
struct collective_memo {
    bool known;
    enum collective kind;
    int64_t bytes, ns;
};
struct context_memo {
    bool known;
    int rank;
    int64_t samples, gather_ns, both_ns, trade_ns;
};
struct experts_memo {
    bool known;
    int rank;
    int64_t samples, ns;
};

struct builder {
    const struct model *model;
    const struct cluster *cluster;
    const struct cost *cost;
    const struct plan *plan;
    int num_frozen_items; /* leading items that are frozen */
    struct workload got;
    struct err *err;
    /* The stage that is being built. */
    const struct device *device;
    int replica, rank;
    int64_t distance;           /* stash-distance */
    int again_first, again_end; /* items that RECOMPUTE_LAYER runs again; empty with other modes */
    struct item_times *item_ns; /* owned, num_items: scratch of the current micro-batch size */
    struct item_memo memo[ITEM_KIND_COUNT][PASS_COUNT][MB_SIZES];
    int ring_rank; /* 1 + the rank of the collectives below; 0: none yet */
    struct collective_memo collectives[COLLECTIVE_MEMOS];
    struct experts_memo experts[MB_SIZES];
    struct context_memo context[MB_SIZES];
    int64_t below_gather_ns; /* of the unit below the current one, in builder_overlap() */
};

/* The times of one micro-batch in an item, in ns. `input` includes the part that a backward
 * recomputes. Messages of experts and of attention between replicas are in it. */
struct item_times {
    int64_t forward, again, input, weight;
};

/* The parts, in their order. */
enum status workload_build_edges(struct builder *b);
enum status workload_build_classes(struct builder *b); /* tied table, classes of replicas */
enum status workload_build_stages(struct builder *b);
enum status workload_build_stage(struct builder *b, int class_index, int stage,
                                 struct stage_cost *cost);
/* Only what the stages of these ranks hold from forward to backward and while an op runs. */
enum status workload_build_bytes(struct builder *b, const bool *ranks);
enum status workload_build_buckets(struct builder *b);
enum status workload_build_norm(struct builder *b);

/* The time of one pass over an item on the current device. */
enum status builder_item_ns(struct builder *b, int item, enum pass pass, int64_t samples,
                            int64_t *ns);

/* --- workload_layout.c: recompute inside the backward, groups, shards ------------------------- */

/* Set which items of stage s run again inside the backward. */
void builder_find_again(struct builder *b, int s);
static inline bool builder_runs_again(const struct builder *b, int item)
{
    return item >= b->again_first && item < b->again_end;
}
/* Bytes of one sample that an item keeps from forward to backward. */
int64_t builder_kept_bytes(const struct builder *b, int item);
/* Set stage->work_bytes. False on overflow. */
bool builder_work_bytes(const struct builder *b, int s, struct stage_cost *stage);
/* A replica's share of bytes that shard mode `from` and those after it divide: `experts` of it
 * belong to divided experts, which R/E replicas share, the rest all R. */
int64_t builder_share(const struct builder *b, enum shard_mode from, int64_t all, int64_t experts);
/* Parameters of the experts in an item that replicas divide; 0 if they do not. */
int64_t builder_expert_params(const struct builder *b, int item);

/* Times of the ops of a stage whose gathers and reduce-scatters overlap with compute, from
 * b->item_ns; they replace the sums over its items (SHARD_GRADIENTS, SHARD_WEIGHTS). */
struct op_times {
    int64_t forward, again, input, weight, both;
};
bool builder_overlap(struct builder *b, int s, struct op_times *times);
/* Parts into which the devices of a group divide a tensor that all of them hold, to send it: T, or
 * 1 where each sends the whole tensor (framework.sends_whole) or its own tokens. */
int builder_message_parts(const struct builder *b);
/* Time in which the group of stage s gathers what it received: activations, or gradients. 0 where
 * messages are not divided. */
bool builder_gather_ns(struct builder *b, int s, int mb, bool grad, int64_t *ns);
/* Set *ns to the time of the two all-to-alls of an item of experts on the current rank, one way:
 * each token goes to the devices of its experts and comes back. 0 unless replicas divide the
 * experts. */
enum status builder_experts_ns(struct builder *b, int64_t samples, int64_t *ns);
/* Set ns[0] and ns[1] to what the forward and the backward of an item wait for keys and values of
 * the tokens that other replicas have, on the current rank. 0 unless replicas divide samples. */
enum status builder_context_ns(struct builder *b, int item, int64_t samples, int64_t ns[2]);
/* workload_stages.c: what the forward and the backward of an item exchange between replicas: tokens
 * of experts, which take `experts` in one direction, or keys and values. */
enum status builder_exchanges(struct builder *b, int item, int64_t samples, int64_t experts,
                              int64_t ns[2]);
/* Bytes that an item's gradients count for in an all-reduce of all R replicas. Gradients of divided
 * experts are summed by R/E replicas, whose ring sends 2 (R/E - 1) / (R/E) of what a device has:
 * they count (R - E) / (R - 1) of their bytes. False on overflow. */
bool builder_reduced_bytes(const struct builder *b, int item, int64_t *bytes);
/* The update of a stage by shards, given its time as a whole, of which divided experts take
 * experts_ns: the share of a replica, and the all-gather of what it changed. */
bool builder_update_ns(struct builder *b, int s, int64_t experts_ns, int64_t *ns);

static inline enum status builder_overflow(struct builder *b, const char *what)
{
    return err_set(b->err, ERR_INPUT, "%s of model '%s' overflow", what, b->model->name);
}

static inline bool add_to(int64_t *sum, int64_t value)
{
    return add_ok(*sum, value, sum);
}

/* Bytes of `samples` samples, from a figure per sample or per micro-batch. */
static inline bool builder_scale(const struct builder *b, int64_t bytes, int64_t samples,
                                 int64_t *out)
{
    return mul_ok(bytes, b->model->per_microbatch ? 1 : samples, out);
}

static inline int64_t builder_samples(const struct builder *b, int mb)
{
    return mb == MB_FULL ? b->plan->microbatches.size : b->plan->microbatches.last_size;
}

static inline const struct device *builder_device(const struct builder *b, int replica, int rank)
{
    return &b->cluster->devices[b->plan->device[(int64_t)replica * b->plan->num_ranks + rank]];
}

/* Parameters of the table that the last item shares with the first, while they train. */
static inline int64_t builder_tied_params(const struct builder *b)
{
    return b->num_frozen_items > 0 || b->model->lora.rank > 0
               ? 0
               : b->model->items[b->model->num_items - 1].tied_params;
}

/* Whether table and head that share a table have one gradient where one rank has both. Frameworks
 * on PyTorch have one parameter; our executor sums up two gradients. */
static inline bool builder_one_table(const struct builder *b)
{
    return b->model->framework && b->model->framework != framework_of(FRAMEWORK_OURS);
}

/* The backward for the input of an item. Behind a frozen prefix nobody wants the gradient of the
 * first active item's input. */
static inline enum pass builder_input_pass(const struct builder *b, int item)
{
    return item > b->num_frozen_items || b->num_frozen_items == 0 ? PASS_BWD_INPUT : PASS_BWD_REST;
}

/* The first item of a stage that trains, or one at or past its end where none does. */
static inline int builder_first_active(const struct builder *b, int stage)
{
    const int first = b->plan->first_item[stage];
    return first > b->num_frozen_items ? first : b->num_frozen_items;
}

/* Whether a time or a size was never measured; range[1] is 0 where any is fine. */
static inline bool builder_outside(const int64_t range[2], int64_t bytes)
{
    return range[1] > 0 && (bytes < range[0] || bytes > range[1]);
}
