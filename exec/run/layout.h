/* exec/run/layout.h - what a plan makes of one rank: its place, its groups, its stages, its
 * batches, its runtime.
 *
 * A run has one layout at a time and makes a new one at every change of plan; the data set, the
 * backend and the message group outlive it. Ranks without a place (idle: place.rank < 0) have
 * samplers only. */
#ifndef ELAPSE_EXEC_RUN_LAYOUT_H
#define ELAPSE_EXEC_RUN_LAYOUT_H

#include "exec/data/loader.h"
#include "exec/run/parcels.h"
#include "exec/run/train_plan.h"
#include "exec/save/checkpoint.h"
#include "exec/step/runtime.h"

/* Borrowed by every layout of a run. */
struct layout_base {
    const struct comm *comm;
    const struct job *job;
    struct backend *backend;
    struct dataset *dataset;
    struct cache *cache;             /* of frozen activations; NULL: none */
    struct nccl *nccl;               /* train.transport nccl; NULL: mpi */
    struct parcel_room *parcel_room; /* what moves at a change go through; NULL: the host */
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
    int64_t device_bytes; /* announced to a device, without what its kernels take; 0: the host */
};

/* Steps that make a layout, in this order; layout_clear() after any of them. The layout must not
 * move in memory once it has a runtime. *plan is taken over by the first, also on failure.
 * layout_stages() leaves weights zero; before, it announces to the backend what stages, runtime and
 * kernels will take: ERR_INFEASIBLE where the device has not that much. Collective over the message
 * group where it says so. */
enum status layout_place(const struct layout_base *base, struct train_plan *plan,
                         struct layout *layout, struct err *err); /* collective */
enum status layout_stages(const struct layout_base *base, struct layout *layout, struct err *err);
/* position: of the next sample of the epoch. */
enum status layout_batches(const struct layout_base *base, int64_t position, struct layout *layout,
                           struct err *err);
enum status layout_runtime(const struct layout_base *base, struct layout *layout, struct err *err);
void layout_clear(struct layout *layout); /* safe twice, and on a zeroed one */

/* Before the first step of an epoch: batches begin at its first sample, where a change of plan in
 * mid-epoch had moved them. */
enum status layout_epoch(const struct layout_base *base, struct layout *layout, struct err *err);

static inline bool layout_idle(const struct layout *layout)
{
    return layout->place.rank < 0;
}

/* Whether this rank holds a stage; the prefix goes with stage 0. */
bool layout_has(const struct layout *layout, int stage);

/* Its stages, the prefix among them, for checkpoints. */
struct stage_list layout_list(const struct layout_base *base, const struct layout *layout);

/* Bytes of stages and messages: on a device those of its own memory. */
int64_t layout_bytes(const struct layout *layout);

#endif
