/* partition/plan/plan.h - every decision about how a job runs: cut, replicas, micro-batches, schedule
 * and devices. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/units.h"
#include "partition/cluster/cluster.h"
#include "partition/freeze/shares.h"
#include "partition/layout/layout.h"
#include "partition/layout/tensor_group.h"
#include "partition/model/attention.h"
#include "partition/model/model.h"
#include "partition/model/rerun.h"
#include "partition/schedule/schedule.h"
#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The place where the forward of the frozen prefix runs. */
enum frozen_placement {
    FROZEN_NONE, /* nothing is frozen */
    FROZEN_FIRST, /* on rank 0, for the whole mini-batch before the pipeline, as in PipeTransformer's code */
    FROZEN_SPREAD, /* in the pipeline: the cut covers frozen items too */
    FROZEN_CACHED, /* it does not run: stage 0 reads the cache; rank 0 keeps the weights */
    FROZEN_PLACEMENT_COUNT
};

enum recompute_mode {
    RECOMPUTE_NEVER,
    /* The whole stage, once the gradient of its output is there (Megatron-LM's
     * --recompute-granularity full with one chunk; DeepSpeed's activation_checkpoint_interval). */
    RECOMPUTE_STAGE,
    RECOMPUTE_EXCEPT_LAST, /* as RECOMPUTE_STAGE_EARLY, but not the last micro-batch (PyTorch
                              Pipe's except_last) */
    /* The two modes below run inside the backward, without an op of their own (Korthikanti et al.,
     * "Reducing Activation Recomputation", section 5; Megatron-LM's --recompute-granularity). */
    RECOMPUTE_SELECTIVE, /* attention's core (scores, softmax, dropout, context) */
    RECOMPUTE_LAYER,     /* the first layers of each stage, each kept by its input only. One layer's
                        stash is alive at a time (Megatron-LM's --recompute-method block) */
    /* The whole stage, begun before the gradient arrives (Kim et al., "torchgpipe", 2020; its
     * checkpoint.py calls it preceding recomputation). */
    RECOMPUTE_STAGE_EARLY,
    /* Inside the backward, as SELECTIVE: RERUN_NORMS and RERUN_OPS of rerun.h. */
    RECOMPUTE_NORMS,
    RECOMPUTE_OP,
    RECOMPUTE_MODE_COUNT
};

/* The parts of every layer that a mode runs again inside the backward; RERUN_COUNT: none. */
static inline enum rerun recompute_parts(enum recompute_mode mode)
{
    return mode == RECOMPUTE_SELECTIVE ? RERUN_CORE
           : mode == RECOMPUTE_NORMS   ? RERUN_NORMS
           : mode == RECOMPUTE_OP      ? RERUN_OPS
                                       : RERUN_COUNT;
}

/* Whether a mode needs backwards in one piece: the gradients of weights need what runs again, too. */
static inline bool recompute_whole_backward(enum recompute_mode mode)
{
    return mode == RECOMPUTE_LAYER || mode == RECOMPUTE_NORMS || mode == RECOMPUTE_OP;
}

/* Whether a mode runs every micro-batch's forward of a stage again as an op of its own (OP_R). */
static inline bool recompute_every(enum recompute_mode mode)
{
    return mode == RECOMPUTE_STAGE || mode == RECOMPUTE_STAGE_EARLY;
}

/* Whether a mode runs forwards of a stage again as an op of its own (OP_R). */
static inline bool recompute_by_stage(enum recompute_mode mode)
{
    return recompute_every(mode) || mode == RECOMPUTE_EXCEPT_LAST;
}

/* Whether OP_R starts before the gradient of the stage's output arrives. */
static inline bool recompute_early(enum recompute_mode mode)
{
    return mode == RECOMPUTE_STAGE_EARLY || mode == RECOMPUTE_EXCEPT_LAST;
}

struct plan {
    int num_ranks;     /* K, devices per pipeline */
    int chunks;        /* v; num_stages = num_ranks * chunks */
    int num_pipelines; /* R C: pipelines, each with a copy of the weights */
    struct layout layout;
    int64_t batch;                    /* samples per pipeline and step */
    struct microbatches microbatches; /* M = microbatches.count */
    enum schedule_kind schedule;
    /* Owned: the compute lists of SCHEDULE_SEARCH and SCHEDULE_CUSTOM. NULL: schedule_generate() makes
     * those of the other schedules. */
    struct schedule *order;
    int num_frozen_layers; /* F */
    enum frozen_placement frozen;
    bool cache_write; /* steps also write the frozen prefix's output to the cache */
    enum recompute_mode recompute;
    int *recompute_layers; /* owned, num_stages: how many layers of each stage RECOMPUTE_LAYER runs
                              again; NULL with other modes */
    int num_stages;
    int *first_item; /* owned, num_stages + 1 entries; stage s holds items [first_item[s],
                        first_item[s + 1]). [0] is 0 for NONE and SPREAD, the number of frozen
                        items for FIRST and CACHED; [num_stages] is model.num_items */
    /* owned, num_pipelines * num_ranks: device of rank k of replica r at r * K + k. With tensor > 1
     * it is the first of the rank's T devices */
    int *device;
    int64_t bucket_bytes;      /* gradient bucket of the all-reduce; 0: one bucket a stage */
    bool clip;                 /* each step computes the global gradient norm (OP_NORM) */
    int optim_bytes_per_param; /* optimizer state: 0 plain SGD, 4 momentum, 8 Adam */
    bool canonical;            /* gradients are summed by a tree; its sums take memory (memory-1) */
    struct freeze_shares shares; /* owned; of backward passes; none: share NULL */
    bool lagged; /* stages keep the weights of a turn's begin beside the present ones */
    /* A prediction by the planner (planner.h) or the simulator; 0: not predicted. */
    int64_t step_ns;
    int64_t *memory_bytes; /* owned, num_ranks: peak of each rank's device; NULL: not predicted */
};

/* Copy src into *dst, which the caller owns. On failure *dst is untouched. ERR_NOMEM. */
enum status plan_copy(const struct plan *src, struct plan *dst, struct err *err);
void plan_clear(struct plan *plan);

/* A digest of all members but the prediction. Plans of equal digests have equal steps; 0: a plan with
 * lists or shares of its own has none. */
uint64_t plan_digest(const struct plan *plan);

/* Give a plan a schedule: with SCHEDULE_SEARCH and SCHEDULE_CUSTOM a copy of order, with the others
 * order is NULL. On failure the plan is unchanged. ERR_NOMEM. */
enum status plan_set_order(struct plan *plan, enum schedule_kind kind, const struct schedule *order,
                           struct err *err);

/* The rank that holds a stage. */
static inline int plan_rank_of_stage(const struct plan *plan, int stage)
{
    return plan->order ? plan->order->rank_of_stage[stage]
                       : schedule_rank_of_stage(plan->schedule, plan->num_ranks, stage);
}

/* Check every structural rule: counts are positive, the cut ascends and covers the model, no stage
 * is empty, op lists of its own fit it, devices are distinct and inside the cluster, and K * R devices
 * exist. ERR_INFEASIBLE
 * names the rule and the stage. ERR_NOMEM. */
enum status plan_check(const struct plan *plan, const struct model *model,
                       const struct cluster *cluster, struct err *err);

/* plan_check() without a look at the devices. */
enum status plan_check_layout(const struct plan *plan, const struct model *model,
                              const struct cluster *cluster, struct err *err);

/* Check only the counts K, R, M, chunks and batch. The plan needs no cut. ERR_INFEASIBLE. */
enum status plan_check_counts(const struct plan *plan, const struct model *model,
                              const struct cluster *cluster, struct err *err);

/* The first item of the cut: 0, or the first active item if the frozen prefix is outside. */
int plan_cut_start(const struct plan *plan, const struct model *model);

/* The number of pipelines with samples of their own, which users call replicas. C pipelines in a
 * row share their samples. */
static inline int plan_width(const struct plan *plan)
{
    return plan->num_pipelines / layout_context(&plan->layout);
}

/* Samples of a step. */
static inline int64_t plan_samples(const struct plan *plan)
{
    return mul_saturated(plan->batch, plan_width(plan));
}

/* Samples per second of steps of step_ns; 0 if that is not known. */
static inline double plan_samples_per_s(const struct plan *plan, int64_t step_ns)
{
    return step_ns > 0 ? (double)plan_samples(plan) * 1e9 / (double)step_ns : 0;
}

/* The pipeline, its replicas and the layout of a plan, as layout_text() has them. Returns text. */
const char *plan_layout_text(const struct plan *plan, char *text, size_t size);

/* Devices of a plan: every rank of every replica is a group of T devices that follow each other. */
static inline int64_t plan_num_devices(const struct plan *plan)
{
    return (int64_t)plan->num_ranks * plan->num_pipelines * layout_tensor(&plan->layout);
}

/* The smallest memory of each rank's devices, num_ranks entries of the caller's. INT64_MAX: unlimited. */
void plan_memory_limits(const struct plan *plan, const struct cluster *cluster, int64_t *limits);

/* Whether the frozen prefix is outside the pipeline. The cut then starts after it. */
static inline bool frozen_outside(enum frozen_placement placement)
{
    return placement == FROZEN_FIRST || placement == FROZEN_CACHED;
}

/* Names by value, NULL-terminated. A job's recompute may be one more, "fit" (job.h). */
extern const char *const frozen_placement_names[], *const recompute_mode_names[];
const char *frozen_placement_name(enum frozen_placement placement);
const char *recompute_mode_name(enum recompute_mode mode);

#ifdef __cplusplus
}
#endif
