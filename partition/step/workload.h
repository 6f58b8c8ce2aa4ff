/* partition/step/workload.h - the costs of a plan's step, per stage and op. The rules of
 * step_rules.h turn them into times and memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/cost/cost.h"
#include "partition/layout/tensor_group.h"
#include "partition/plan/plan.h"
#include "partition/schedule/schedule.h"
#include "partition/step/sites.h"
#include "partition/step/step_rules.h"

/* Index of figures per micro-batch: the last micro-batch may be smaller. */
enum { MB_FULL, MB_LAST, MB_SIZES };

/* Through this much memory a stage exchanges weights with their lagged copy, piece by piece. */
enum { LAG_ROOM_BYTES = 1 << 18 };

/* Times and bytes of one stage on one device. F keeps no stash where items are frozen or R runs
 * them again (PASS_FWD_NOGRAD). */
struct stage_cost {
    int64_t op_ns[OP_KIND_COUNT][MB_SIZES]; /* F B I W R Z C P; UPDATE in both columns. Launching,
                                               the device's speed and, where its own cores prepare
                                               the samples, that time are in it */
    int64_t whole_batch_ns[2];              /* [0] Z, [1] P of OP_WHOLE_BATCH; stage 0 only */
    int64_t weight_bytes, frozen_bytes;     /* trainable and frozen parameters */
    int64_t grad_bytes, optim_bytes;
    int64_t lagged_bytes;          /* the copy of a plan that is lagged, and LAG_ROOM_BYTES */
    int64_t tree_bytes;            /* ceil(log2 M) sums of gradients, for a canonical reduction */
    int64_t stash_bytes[MB_SIZES]; /* kept from F to B (W) */
    /* In use only while an op runs: [0] F R Z, [1] B I W (memory-4). */
    int64_t work_bytes[2][MB_SIZES];
    int64_t
        input_bytes[MB_SIZES];    /* the stage's input, kept instead of the stash under recompute */
    int64_t copy_bytes[MB_SIZES]; /* of C and P, between host and device */
    int64_t weight_ns[MB_SIZES];  /* of weight gradients alone, in op_ns of B and of W: what a
                                       share of 1 leaves out (time-9) */
    int64_t hidden_ns[2][MB_SIZES]; /* all-to-alls of experts: of op_ns[OP_F], of op_ns[OP_B] */
    int64_t host_copy_bytes_whole;  /* of P of OP_WHOLE_BATCH */
};

/* A tensor that goes from stage to stage for every micro-batch. The first edges are the boundaries
 * (s -> s+1; num_stages - 1 of them). The rest are skip edges that the cut
 * crosses, merged for each pair of stages and need of a gradient. A skip from a frozen item that no
 * stage holds (frozen: first, cached) leaves stage 0. */
struct stage_edge {
    int from, to;
    int64_t bytes[MB_SIZES];      /* of the message that each device of a group sends */
    int64_t held_bytes[MB_SIZES]; /* of the receiver's buffer, which may hold more than a message */
    bool grad;                    /* its gradient comes back; false where `from` is frozen */
};

/* A part of a stage's gradients that is all-reduced at once. */
struct bucket {
    int stage;
    int first_item; /* the bucket holds items from here up to the bucket before it */
    int64_t bytes;
    /* The time from these gradients' completion to the end of the stage's last backward
     * (time-4), on replica 0's device: where that op is a B, and where it is a W. */
    int64_t lead_ns, lead_w_ns;
};

struct stage_memo; /* stage_memo.h */

struct workload {
    struct tensor_group *group; /* owned; NULL: the plan's groups need no setting of their own */
    /* What the workload was built from, with the model of the plan's frozen layers (model_at()), as a
     * device of the plan's groups sees it. Borrowed: whoever asks the workload for times keeps model,
     * cluster and costs alive. */
    struct setting setting;
    const struct sites *sites; /* of the plan's devices: own_sites, or the caller's */
    struct sites *own_sites;   /* owned; NULL: the caller's */
    struct stage_memo *memo;   /* borrowed: of the plan's earlier cuts; NULL: none */
    int num_ranks, num_stages, num_pipelines;
    int num_microbatches;
    double overlap_share;      /* time-1b */
    int num_classes;           /* distinct kinds of replica (devices or links between its ranks
                                  differ); usually 1 */
    int *class_of_replica;     /* owned, num_pipelines */
    struct stage_cost *stages; /* owned, [num_classes][num_stages] */
    int num_edges;
    struct stage_edge *edges; /* owned */
    /* Owned. Edges that leave stage s are out_edge[out_first[s] .. out_first[s+1]), those that
       enter it in_edge[in_first[s] .. in_first[s+1]). */
    int *out_first, *out_edge, *in_first, *in_edge;
    bool scatter; /* buckets are reduce-scattered, not all-reduced (SHARD_OPTIMIZER) */
    int num_buckets;
    struct bucket *buckets; /* owned; stage s has first_bucket[s] .. first_bucket[s+1] */
    int *first_bucket;      /* owned, num_stages + 1 */
    int num_frozen_stages;
    bool drop_first_input; /* F >= 1: nobody computes the first active item's input gradient */
    bool i_folded_into_w;  /* The first active stage trains one item: its I is dropped and the
                              remaining cost is charged to W. */
    int cache_write_stage; /* the stage that has a P after each forward (frozen: spread, with
                              cache_write); -1: none */
    bool clip;
    int *rank_of_stage;          /* owned, num_stages */
    int64_t *edge_ns;            /* owned; by class, unshared times of messages and of TIED: ask
                           workload_edge_ns() and workload_tied_ns() */
    struct freeze_shares shares; /* owned; the plan's */
    int64_t *distances;          /* owned, num_stages: stash-distance; NULL: far */
    int64_t tied_bytes;          /* gradient of the table that TIED adds; 0: there is no TIED */
    int64_t norm_ns;       /* NORM, once all ranks are there: the squares of the rank with most
                           gradients, and a tree of 2 ceil(log2(K R)) latencies */
    int64_t cache_read_ns; /* time-2b: the host reads a replica's step from the cache; else 0 */
    bool host_blocking;    /* launch-blocking */
    bool sends_blocking;   /* time-3b */
    int64_t context_bytes; /* of the cluster and of the framework's groups */
    int beyond_tensors;    /* framework_beyond_tensors() */
    enum cost_source source;
    bool extrapolated;
};

void workload_clear(struct workload *workload);

static inline int64_t workload_times_per_class(const struct workload *workload)
{
    return (int64_t)workload->num_edges * 2 * MB_SIZES + 1;
}

/* Unshared time of an edge's message in a class of replicas; grad: the gradient's way back. */
static inline int64_t workload_edge_ns(const struct workload *workload, int class_index, int edge,
                                       bool grad, int mb)
{
    return workload->edge_ns[class_index * workload_times_per_class(workload) +
                             (edge * (int64_t)2 + grad) * MB_SIZES + mb];
}

/* Unshared time of TIED in a class of replicas. */
static inline int64_t workload_tied_ns(const struct workload *workload, int class_index)
{
    return workload->edge_ns[(class_index + 1) * workload_times_per_class(workload) - 1];
}

/* The devices of a replica that run TIED. */
void workload_tied_devices(const struct workload *workload, const struct plan *plan, int replica,
                           int ends[2]);

/* The devices that hold a stage, one of each replica. Their gradients are summed. */
void workload_holders(const struct workload *workload, const struct plan *plan, int stage,
                      int *devices);

/* Time of a stage's bucket of this size, as a ring, alone on its links. `holders`, workload_holders()
 * of the stage, is read only if the cost source has measured all-reduces. */
int64_t workload_bucket_ns(const struct workload *workload, int stage, const int *holders,
                           int64_t bytes);

/* Time of F f and B b where they run as one op (time-1b). The part of it that a trace shows as F is
 * *forward_ns. */
int64_t workload_pair_ns(const struct workload *workload, int class_index, struct op f, struct op b,
                         int64_t *forward_ns);

/* The time of an F B I W R Z C P or UPDATE that is not part of a pair. */
int64_t workload_op_ns(const struct workload *workload, int class_index, struct op op);

/* The part of `all`, time or bytes of the weight gradients of a stage and micro-batch, that the
 * plan's share leaves out. */
int64_t workload_left_out(const struct workload *workload, int stage, int microbatch, int64_t all);

/* Set num_frozen_stages and i_folded_into_w to what they are under the plan's cut. */
void workload_place_frozen(struct workload *workload, const struct plan *plan);

/* Whether a rank of the plan waits for its sends (time-3b): as the cluster says, else as the
 * model's framework has it. */
bool workload_sends_block(const struct setting *setting, const struct plan *plan);

/* The costs of a plan. rank_of_stage (num_stages entries, borrowed for the call) says where a
 * custom list has its stages; NULL: schedule_rank_of_stage(). The plan must pass plan_check().
 * ERR_INPUT on overflow, and where the ops, launches and messages of a step pass STEP_NS_MAX one
 * after the other (messages of all replicas: those that share a link take turns). Errors of the
 * cost source pass through. Time O(classes * (items + stages * skip edges) + replicas * edges). */
enum status workload_build(const struct setting *setting, const struct plan *plan,
                           const int *rank_of_stage, struct workload *workload, struct err *err);
/* The same with the sites of the plan's devices and the costs that stages of its earlier cuts had.
 * Both are borrowed as long as the workload lives; NULL: not known yet. */
enum status workload_build_at(const struct setting *setting, const struct plan *plan,
                              const int *rank_of_stage, const struct sites *sites,
                              struct stage_memo *memo, struct workload *workload, struct err *err);

/* Bytes of stash between two uses of one byte in each stage, num_stages entries of the caller's.
 * O(ops). */
void schedule_stash_distance(const struct schedule *full, const struct workload *workload,
                             int64_t *distances);

/* Work out the times of stages and buckets anew for stash at these distances (borrowed for the
 * call). Nothing happens where they are those already, or where the cost source knows no near
 * stash. On failure *workload can only be cleared. */
enum status workload_set_distances(const struct plan *plan, const int64_t *distances,
                                   struct workload *workload, struct err *err);

/* Work out stages and buckets again, after a change of plan->recompute_layers. Edges, classes and
 * stages' ranks stay. On failure the workload can only be cleared. */
enum status workload_rebuild(const struct plan *plan, struct workload *workload, struct err *err);

/* The costs of one stage of a plan that differs from the workload's in nothing but its cut and
 * recompute_layers. *builder, NULL at first, keeps times of items from call to call about such
 * plans; release it with workload_builder_free(). */
struct builder;
enum status workload_stage(const struct plan *plan, const struct workload *workload,
                           struct builder **builder, int class_index, int stage,
                           struct stage_cost *cost, struct err *err);
void workload_builder_free(struct builder *builder);

/* Work out only the bytes of the stages of some ranks again, by rank. Times stay as they were. */
enum status workload_rebuild_bytes(const struct plan *plan, const bool *ranks,
                                   struct workload *workload, struct err *err);

/* workload_set_distances() with the distances of this list of the plan. */
enum status workload_near(const struct plan *plan, const struct schedule *full,
                          struct workload *workload, struct err *err);

/* Forward and backward of a full micro-batch in a stage of the first class. */
static inline int64_t workload_stage_ns(const struct workload *workload, int stage)
{
    const struct stage_cost *cost = &workload->stages[stage];
    return cost->op_ns[OP_F][MB_FULL] +
           (stage < workload->num_frozen_stages ? 0 : cost->op_ns[OP_B][MB_FULL]);
}
