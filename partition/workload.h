/* partition/workload.h - a plan's costs, laid out per stage and op: what schedule_time(), sim/ and
 * the reports read. plan_lower() turns (model, cluster, cost, plan) into a workload and the full op
 * lists. */
#ifndef ELAPSE_PARTITION_WORKLOAD_H
#define ELAPSE_PARTITION_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/cost.h"
#include "partition/plan.h"
#include "partition/schedule.h"
#include "partition/step_rules.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Index of per-micro-batch figures: the last micro-batch may be smaller. */
enum { MB_FULL, MB_LAST, MB_SIZES };

/* Times and bytes of one stage on one device. F's forward keeps no stash where items are frozen or
 * R runs them again (PASS_FWD_NOGRAD). */
struct stage_cost {
    int64_t op_ns[OP_KIND_COUNT][MB_SIZES]; /* F B I W R Z C P; UPDATE under MB_FULL; ops of the
                                               whole batch (Z, P) under whole_batch_ns */
    int64_t whole_batch_ns[2];              /* [0] Z, [1] P of OP_WHOLE_BATCH, stage 0 only */
    int64_t weight_bytes, frozen_bytes;     /* trainable and frozen parameters */
    int64_t grad_bytes, optim_bytes;
    int64_t tree_bytes;            /* of a canonical reduction: ceil(log2 M) sums of gradients */
    int64_t stash_bytes[MB_SIZES]; /* kept from F to B (W), full */
    int64_t input_bytes[MB_SIZES]; /* the stage's input, kept in its place under recompute */
    int64_t copy_bytes[MB_SIZES];  /* host-device bytes of C and P */
    int64_t host_copy_bytes_whole; /* host-device bytes of a whole-batch P */
};

/* A tensor that goes from stage to stage for every micro-batch; its gradient comes back. The first
 * num_stages - 1 edges are the chain's boundaries (s -> s+1), the rest skip edges that the cut
 * crosses, merged per pair of stages and need of a gradient. A skip from a frozen item that no
 * stage holds (FROZEN_FIRST, FROZEN_CACHED) leaves stage 0. */
struct stage_edge {
    int from, to;
    int64_t bytes[MB_SIZES];
    bool grad; /* false where `from` needs no gradient (frozen) */
};

struct bucket {
    int stage;
    int first_item; /* holds the stage's items from here to the bucket before it */
    int64_t bytes;
    int64_t lead_ns;   /* how long before the end of the stage's last backward this gradient is
                          complete, where that op is a B (on replica 0's device) */
    int64_t lead_w_ns; /* likewise where it is a W */
};

struct workload {
    int num_ranks, num_stages, num_replicas, num_microbatches;
    int num_classes;           /* distinct kinds of replica (devices or links between its ranks
                                  differ); usually 1 */
    int *class_of_replica;     /* owned, num_replicas */
    struct stage_cost *stages; /* owned, [num_classes][num_stages] */
    int num_edges;
    struct stage_edge *edges; /* owned */
    int *out_first,
        *out_edge; /* owned: edges leaving stage s are out_edge[out_first[s] .. out_first[s+1]) */
    int *in_first, *in_edge; /* owned: likewise entering */
    int num_buckets;
    struct bucket *buckets; /* owned, by stage; first_bucket[s] .. first_bucket[s+1] */
    int *first_bucket;      /* owned, num_stages + 1 */
    int num_frozen_stages;
    bool drop_first_input; /* F >= 1: nobody computes the first active item's input gradient */
    bool no_input_half; /* ... and its stage trains that item only: schedule_freeze() drops its I,
                           what is left of it is in W */
    int cache_write_stage; /* FROZEN_SPREAD with cache_write: the stage that has a P behind each
                              forward; -1: none */
    bool clip;
    int *rank_of_stage; /* owned, num_stages */
    int64_t *edge_ns;   /* owned: unshared times of transfers, and of OP_TIED, by class; see
                           workload_edge_ns(), workload_tied_ns() */
    int64_t *distances; /* owned, num_stages: stash-distance; NULL: far */
    int64_t tied_bytes; /* gradient of the table that OP_TIED adds; 0: there is none */
    int64_t norm_ns;    /* OP_NORM, once everybody is there: the squares of the rank with most
                           gradients, and a tree of 2 ceil(log2(K R)) latencies */
    bool host_blocking; /* launch-blocking */
    int64_t context_bytes;
    enum cost_source source;
    bool extrapolated;
};

void workload_clear(struct workload *workload);

static inline int64_t workload_times_per_class(const struct workload *workload)
{
    return (int64_t)workload->num_edges * 2 * MB_SIZES + 1;
}

/* Unshared time of edge e's message in a class of replicas; grad: the way back. */
static inline int64_t workload_edge_ns(const struct workload *workload, int class_index, int edge,
                                       bool grad, int mb)
{
    return workload->edge_ns[class_index * workload_times_per_class(workload) +
                             (edge * (int64_t)2 + grad) * MB_SIZES + mb];
}

/* Unshared time of OP_TIED in a class of replicas. */
static inline int64_t workload_tied_ns(const struct workload *workload, int class_index)
{
    return workload->edge_ns[(class_index + 1) * workload_times_per_class(workload) - 1];
}

/* The devices of a replica that run OP_TIED. */
void workload_tied_devices(const struct workload *workload, const struct plan *plan, int replica,
                           int ends[2]);

/* Duration of F B I W R Z C P UPDATE; device speed, op overhead and blocking launches are in it. */
int64_t workload_op_ns(const struct workload *workload, int class_index, struct op op);

/* The costs of a plan. The plan must pass plan_check(). ERR_INPUT on overflow, and where a
 * step's ops, launches and messages (of all replicas: those that share a link take turns), one
 * after the other, pass STEP_NS_MAX; errors of the cost source pass through. Time O(classes *
 * (items + stages * skip edges) + replicas * edges). */
enum status workload_build(const struct setting *setting, const struct plan *plan,
                           struct workload *workload, struct err *err);

/* As workload_build(), for a list whose stages lie on the given ranks (num_stages entries, borrowed
 * for the call; NULL: plan_rank_of_stage()). */
enum status workload_build_on(const struct setting *setting, const struct plan *plan,
                              const int *rank_of_stage, struct workload *workload, struct err *err);

/* Bytes of stash between two uses of one in each stage (stash-distance), num_stages entries of the
 * caller's. O(ops). */
void schedule_stash_distance(const struct schedule *full, const struct workload *workload,
                             int64_t *distances);

/* The costs of the same plan with stash at these distances (borrowed for the call): times of stages
 * and buckets anew, unless they are so already or the cost source knows no near stash. On failure
 * *workload can only be cleared. */
enum status workload_set_distances(const struct setting *setting, const struct plan *plan,
                                   const int64_t *distances, struct workload *workload,
                                   struct err *err);

/* ... at the distances of this list of the plan. */
enum status workload_near(const struct setting *setting, const struct plan *plan,
                          const struct schedule *full, struct workload *workload, struct err *err);

/* Add to a compute schedule everything else a step does, from the workload: recompute, cache reads
 * and writes, whole-batch frozen forward, sends and receives per edge, all-reduce buckets, norm,
 * update. The only place that knows where they go: RECV_ACT* before F/Z of a stage; SEND_ACT*
 * behind it; RECV_GRAD* before B/I, SEND_GRAD* behind it; R just before the first backward op of
 * its (stage, micro-batch); C before F on stage 0; ALLREDUCE behind the stage's last B/W; NORM and
 * UPDATE at the end of the list. Edges between stages of one rank need no op. */
enum status schedule_lower(const struct schedule *compute, const struct workload *workload,
                           const struct plan *plan, struct schedule *full, struct err *err);

/* plan -> workload, compute list (generated or, when custom is not NULL, copied from it), freeze
 * rewrite, lowering, workload_near(), schedule_check(). Simulator, planner and executor all start
 * from this one call. */
enum status plan_lower(const struct setting *setting, const struct plan *plan,
                       const struct schedule *custom, struct workload *workload,
                       struct schedule *full, struct err *err);

/* The same for a generated schedule, without schedule_check(): for the planner, which lowers many
 * candidates of kinds that the tests have proved and has the chosen one checked by plan_lower(). */
enum status plan_lower_unchecked(const struct setting *setting, const struct plan *plan,
                                 struct workload *workload, struct schedule *full, struct err *err);

/* How long the step's messages and all-reduces (as rings) keep the busiest port or uplink busy: no
 * step that shares them is shorter, however its ops lie. Between devices a message takes what it
 * takes alone, less its latency, at the narrowest of its way. O(replicas * (edges + stages)).
 * ERR_NOMEM. */
enum status workload_traffic_ns(const struct workload *workload, const struct setting *setting,
                                const struct plan *plan, int64_t *ns, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
