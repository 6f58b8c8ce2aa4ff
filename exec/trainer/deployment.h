/* exec/trainer/deployment.h - one rank's part in a plan: its place, groups, stages, batches and
 * runtime.
 *
 * A run has one deployment at a time and makes a new one at every change of plan. The data set, the
 * backend and the message group outlive it. A rank without a stage (idle: place.rank < 0) has
 * samplers only. */
#pragma once

#include "exec/data/loader.h"
#include "exec/trainer/parcels.h"
#include "exec/trainer/train_plan.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/step/runtime.h"

/* Borrowed by every deployment of a run. */
struct deployment_base {
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

struct deployment {
    struct train_plan plan; /* owned, as everything below */
    struct runtime_groups place;
    struct runtime_links links; /* between GPUs, where base.nccl is set */
    struct sampler samplers[SPLIT_COUNT];
    struct loader *loaders[SPLIT_COUNT];
    struct stage **stages; /* num_stages + 1; the last is a frozen prefix before the pipeline */
    struct runtime *runtime;
    int64_t device_bytes; /* reserved on a device, without its kernels' share; 0 on the host */
};

/* Make a deployment by these calls, in this order; deployment_clear() may follow any of them. The
 * deployment must not move in memory once it has a runtime. deployment_place() takes over *plan,
 * also if it fails. deployment_stages() leaves weights zero. Before that it reserves the device
 * memory that stages, runtime and kernels will take: ERR_INFEASIBLE if the device has less. Only
 * deployment_place() is collective over the message group. */
enum status deployment_place(const struct deployment_base *base, struct train_plan *plan,
                             struct deployment *deployment, struct err *err);
enum status deployment_stages(const struct deployment_base *base, struct deployment *deployment,
                              struct err *err);
/* position: of the epoch's next sample. */
enum status deployment_batches(const struct deployment_base *base, int64_t position,
                               struct deployment *deployment, struct err *err);
enum status deployment_runtime(const struct deployment_base *base, struct deployment *deployment,
                               struct err *err);
void deployment_clear(struct deployment *deployment); /* safe twice, and on a zeroed one */

/* Call before the first step of an epoch: batches begin at its first sample again, if a change of
 * plan within the last epoch had moved them. */
enum status deployment_epoch(const struct deployment_base *base, struct deployment *deployment,
                             struct err *err);

static inline bool deployment_idle(const struct deployment *deployment)
{
    return deployment->place.rank < 0;
}

/* Whether this rank holds the stage. The rank of stage 0 holds the frozen prefix too. */
bool deployment_has(const struct deployment *deployment, int stage);

/* The rank's stages, the prefix included, for checkpoints. */
struct stage_list deployment_list(const struct deployment_base *base,
                                  const struct deployment *deployment);

/* Bytes that stages and messages take, on a device of its memory only. */
int64_t deployment_bytes(const struct deployment *deployment);
