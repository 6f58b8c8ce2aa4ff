/* exec/trainer/layout.h - what a plan gives one rank: its place, groups, stages, batches and runtime.
 *
 * A run has one layout at a time and makes a new one at every change of plan. The data set, the
 * backend and the message group outlive it. A rank without a stage (idle: place.rank < 0) has
 * samplers only. */
#ifndef ELAPSE_EXEC_TRAINER_LAYOUT_H
#define ELAPSE_EXEC_TRAINER_LAYOUT_H

#include "exec/data/loader.h"
#include "exec/trainer/parcels.h"
#include "exec/trainer/train_plan.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/step/runtime.h"

/* Borrowed by every layout of a run. */
struct layout_base {
    const struct comm *comm;
    const struct job *job;
    struct backend *backend;
    struct dataset *dataset;
    struct cache *cache;             /* of frozen activations; NULL: none */
    struct nccl *nccl;               /* train.transport nccl; NULL: mpi */
    struct parcel_room *parcel_room; /* windows for moving weights of a device; NULL on the host */
    bool lagged;                     /* stages hold lagged weights (exec/probe/probe.h) */
    int workers[SPLIT_COUNT];        /* threads that make samples, struct loader_spec; 0 is 1 */
};

struct layout {
    struct train_plan plan; /* owned, as everything below */
    struct runtime_groups place;
    struct runtime_links links; /* between GPUs, where base.nccl is set */
    struct sampler samplers[SPLIT_COUNT];
    struct loader *loaders[SPLIT_COUNT];
    struct stage **stages; /* num_stages + 1; the last is a frozen prefix before the pipeline */
    struct runtime *runtime;
    int64_t device_bytes; /* reserved on a device, without its kernels' share; 0 on the host */
};

/* Make a layout by these calls, in this order; layout_clear() may follow any of them. The layout
 * must not move in memory once it has a runtime. layout_place() takes over *plan, also if it fails.
 * layout_stages() leaves weights zero. Before that it reserves the device memory that stages,
 * runtime and kernels will take: ERR_INFEASIBLE if the device has less. Only layout_place() is
 * collective over the message group. */
enum status layout_place(const struct layout_base *base, struct train_plan *plan,
                         struct layout *layout, struct err *err);
enum status layout_stages(const struct layout_base *base, struct layout *layout, struct err *err);
/* position: of the epoch's next sample. */
enum status layout_batches(const struct layout_base *base, int64_t position, struct layout *layout,
                           struct err *err);
enum status layout_runtime(const struct layout_base *base, struct layout *layout, struct err *err);
void layout_clear(struct layout *layout); /* safe twice, and on a zeroed one */

/* Call before the first step of an epoch: batches begin at its first sample again, if a change of
 * plan within the last epoch had moved them. */
enum status layout_epoch(const struct layout_base *base, struct layout *layout, struct err *err);

static inline bool layout_idle(const struct layout *layout)
{
    return layout->place.rank < 0;
}

/* Whether this rank holds the stage. The rank of stage 0 holds the frozen prefix too. */
bool layout_has(const struct layout *layout, int stage);

/* The rank's stages, the prefix included, for checkpoints. */
struct stage_list layout_list(const struct layout_base *base, const struct layout *layout);

/* Bytes that stages and messages take, on a device of its memory only. */
int64_t layout_bytes(const struct layout *layout);

#endif
