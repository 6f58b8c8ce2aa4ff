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

#ifdef __cplusplus
extern "C" {
#endif

/* Index of per-micro-batch figures: the last micro-batch may be smaller. */
enum { MB_FULL, MB_LAST, MB_SIZES };

/* Times and bytes of one stage on one device. */
struct stage_cost {
    int64_t op_ns[OP_KIND_COUNT][MB_SIZES]; /* F B I W R Z C P; UPDATE under MB_FULL; ops of the
                                               whole batch (Z, P) under whole_batch_ns */
    int64_t whole_batch_ns[2];              /* [0] Z, [1] P of OP_WHOLE_BATCH, stage 0 only */
    int64_t weight_bytes, frozen_bytes;     /* trainable and frozen parameters */
    int64_t grad_bytes, optim_bytes;
    int64_t stash_bytes[MB_SIZES]; /* kept from F to B (W), full */
    int64_t
        input_bytes[MB_SIZES];    /* the stage's input, kept instead of the stash under recompute */
    int64_t copy_bytes[MB_SIZES]; /* host-device bytes of C and P */
    int64_t host_copy_bytes_whole; /* host-device bytes of a whole-batch P */
};

/* A tensor that goes from stage to stage for every micro-batch; its gradient comes back. The first
 * num_stages - 1 edges are the chain's boundaries (s -> s+1), the rest skip edges that the cut
 * crosses, merged per pair of stages. */
struct stage_edge {
    int from, to;
    int64_t bytes[MB_SIZES];
    bool grad; /* false where `from` needs no gradient (frozen) */
};

struct bucket {
    int stage;
    int64_t bytes;
    int64_t lead_ns; /* how long before the end of the stage's last backward this gradient is
                        complete */
};

struct workload {
    int num_ranks, num_stages, num_replicas, num_microbatches;
    int num_classes;           /* distinct kinds of replica (devices that differ); usually 1 */
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
    bool drop_first_input; /* see schedule_freeze() */
    bool clip;
    int64_t context_bytes;
    enum cost_source source;
    bool extrapolated;
};

void workload_clear(struct workload *workload);

/* The costs of a plan. The plan must pass plan_check(). ERR_INPUT on overflow; errors of the cost
 * source pass through. Time O(items + stages * classes). */
enum status workload_build(const struct model *model, const struct cluster *cluster,
                           const struct cost *cost, const struct plan *plan,
                           struct workload *workload, struct err *err);

/* Add to a compute schedule everything else a step does, from the workload: recompute, cache reads
 * and writes, whole-batch frozen forward, sends and receives per edge, all-reduce buckets, norm,
 * update. The only place that knows where they go: RECV_ACT* before F/Z of a stage; SEND_ACT*
 * behind it; RECV_GRAD* before B/I, SEND_GRAD* behind it; R just before the first backward op of
 * its (stage, micro-batch); C before F on stage 0; ALLREDUCE behind the stage's last B/W; NORM and
 * UPDATE at the end of the list. Edges between stages of one rank need no op. */
enum status schedule_lower(const struct schedule *compute, const struct workload *workload,
                           const struct plan *plan, struct schedule *full, struct err *err);

/* plan -> workload, compute list (generated or, when custom is not NULL, copied from it), freeze
 * rewrite, lowering, schedule_check(). Simulator, planner and executor all start from this one
 * call. */
enum status plan_lower(const struct model *model, const struct cluster *cluster,
                       const struct cost *cost, const struct plan *plan,
                       const struct schedule *custom, struct workload *workload,
                       struct schedule *full, struct err *err);

/* What schedule_time() tells. */
struct step_time {
    int64_t step_ns;                       /* first op start to last op end */
    int64_t pipeline_ns;                   /* without all-reduce tail, norm and update */
    int64_t *rank_busy_ns;                 /* owned, num_ranks, of replica 0 */
    int64_t *rank_first_ns, *rank_last_ns; /* owned */
    int64_t allreduce_ns, allreduce_exposed_ns;
};
void step_time_clear(struct step_time *time);

/* Longest path over the lowered op lists with per-op costs and latency + bytes / bandwidth, links
 * not shared, host launches as the cluster says. Equals the simulator to the nanosecond whenever
 * nothing is shared. One pass, O(ops); replicas of one class are computed once. */
enum status schedule_time(const struct schedule *full, const struct workload *workload,
                          const struct cluster *cluster, const struct cost *cost,
                          const struct plan *plan, struct step_time *time, struct err *err);

/* Peak memory per rank by the same lists: weights, gradients, optimizer, stash (F to B/W end),
 * inputs under recompute, receive buffers, context. memory_bytes is the caller's, num_ranks. */
enum status schedule_memory(const struct schedule *full, const struct workload *workload,
                            const struct plan *plan, int64_t *memory_bytes, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
