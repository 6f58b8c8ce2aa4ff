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
    int64_t *distances; /* owned, num_stages: stash between two uses of a byte (S1); NULL: far */
    int64_t tied_bytes; /* gradient of the table that OP_TIED adds; 0: there is none */
    int64_t norm_ns;    /* OP_NORM, once everybody is there: the squares of the rank with most
                           gradients, and a tree of 2 ceil(log2(K R)) latencies */
    bool host_blocking; /* H2 */
    int64_t context_bytes;
    enum cost_source source;
    bool extrapolated;
};

/* Rules of time. schedule_time() and sim/ follow them to the nanosecond; exec/ is built alike.
 *
 * T1  A device runs F B I W R Z UPDATE one at a time on its compute stream, in list order; each
 *     takes op_ns of its stage (whole_batch_ns for Z of OP_WHOLE_BATCH). Where the device's own
 *     cores prepare the samples, that time is in F of stage 0 (in Z under FROZEN_FIRST).
 * T2  C and P run on copy engines, one a direction, each serial in list order. C waits for its
 *     launch only (it reads ahead); its F waits for it. P starts when the compute op before it in
 *     the list has ended; nothing but the end of the step waits for it.
 * T3  A SEND starts when the compute op before it in the list has ended, takes latency +
 *     bytes / bandwidth (also for 0 bytes), and occupies no stream. A RECV takes no time; the next
 *     compute op of the list waits for its message. Stages of one rank hand over at once.
 * T4  Bucket b of a stage is ready on a replica when the stage's last backward op ends, less
 *     lead_ns (lead_w_ns where that op is a W), but not before that op starts. Its all-reduce
 *     starts when it is ready on all replicas and the stage's bucket before it has ended: serial
 *     in list order per stage, stages beside each other. A host's processor sums on the cores that
 *     compute: what it sums beside a backward puts that off by as much, so its leads are 0.
 * T5  NORM starts when every rank of every replica has reached it: its compute ops before it and
 *     its stages' all-reduces have ended. It takes norm_ns, and ends everywhere at once.
 * T6  UPDATE waits for its stage's all-reduces (for NORM where there is one).
 * T7  The step runs from the first op start to the last op end on any device (sends excluded,
 *     all-reduces included). Device times are counted from the step's start.
 * T8  TIED is an all-reduce between two: the ranks of the first and the last stage of a replica,
 *     which hold a gradient each of the table that these stages share (tied weights) while it
 *     trains. It starts when both have reached it - their compute ops before it and their stages'
 *     all-reduces have ended - and ends on both at once; NORM and UPDATE wait for it. One rank that
 *     holds both stages adds for itself, which is not counted. (Megatron-LM's embedding group.)
 *     The last stage's UPDATE takes in its copy of the table.
 * H1  Asynchronous launch (cluster.host_blocking false): a host thread a device launches F B I W R
 *     Z C P UPDATE of its list, host_op_ns each, without waiting; the i-th of them (from 0) starts
 *     no earlier than (i + 1) * host_op_ns on the clock on which all hosts begin at 0. Other ops
 *     cost the host nothing. With host_op_ns = 0 there is no host.
 * H2  Blocking launch: one process drives the K devices of a pipeline wave by wave, launching one
 *     device after the other and waiting for all: each F B I W R Z takes K * host_op_ns longer (as
 *     busy time; it is in op_ns already), and C and P run on the compute stream (T1) in place of
 *     T2. (The paper's system shows 30, 10, 10 ms a micro-batch at K = 8, 4, 2; this gives a cost
 *     that grows with K.)
 * S1  What a pass takes depends on how much stash its rank goes over before it comes back to the
 *     same bytes: the processor's caches keep the last of it. A rank that holds P bytes of stash at
 *     most writes and reads them in turn, so that a stage whose micro-batch has a stash of B bytes
 *     finds a byte after P - B/2 others, on average over its items (Mattson et al., 1970, call it
 *     stack distance). F, R, B, I and W take cost_item_ns() at that distance, the same for all
 *     micro-batches. M2 says what is held when.
 * Busy time is the compute stream's. A message of an edge lives on no device between send and RECV.
 *
 * M1  A rank holds context, weights (trainable and frozen; rank 0 also those of a prefix outside
 * the pipeline, for evaluation and what a cache lacks), gradients (of a table that the head shares
 *     two, both where the table is and where the head is), optimizer state and, under a canonical
 *     reduction, the sums of gradients that wait for their neighbours in its tree.
 * M2  Stash is taken when F starts and freed when B ends, or W where split. Under recompute (an R
 *     exists for the pair) F takes input_bytes in its place, R adds the stash, and both go.
 * M3  A receive buffer (edge bytes) is taken at RECV and freed when the next compute op of its
 *     stage and micro-batch ends. C takes copy_bytes likewise.
 * Every change happens at an op of the device, so that the list alone gives the peak.
 *
 * Left out: the rewriting of a cache that is being read (FROZEN_CACHED ignores cache_write: it
 * would write what it reads). */

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

/* Longest step that is accepted, 36 years: sums of a few such still fit an int64_t. */
#define STEP_NS_MAX ((int64_t)1 << 60)

/* Add to a sum of times of one step. ERR_INPUT when that passes STEP_NS_MAX; what names them. */
enum status step_add_ns(int64_t *sum, int64_t ns, const char *what, struct err *err);

/* Duration of F B I W R Z C P UPDATE; device speed, op overhead and H2 are in it. */
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

/* Bytes of stash between two uses of one in each stage (S1), num_stages entries of the caller's.
 * O(ops). */
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
