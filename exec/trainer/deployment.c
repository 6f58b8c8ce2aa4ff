/* exec/trainer/deployment.c - makes the stages, batches and runtime that a plan gives this rank. Read the
 * calls of deployment.h in their order: deployment_place(), deployment_stages(), deployment_batches(),
 * deployment_runtime(). */
#include "exec/trainer/deployment.h"

#include <stdlib.h>
#include <string.h>

#include "exec/device/backend_count.h"
#include "partition/step/pool_memory.h"

#define BLOCK_SUMS_BYTES ((int64_t)8 << 20)

bool deployment_has(const struct deployment *deployment, int stage)
{
    return !deployment_idle(deployment) &&
           deployment->plan.full->rank_of_stage[stage] == deployment->place.rank;
}

struct stage_list deployment_list(const struct deployment_base *base,
                                  const struct deployment *deployment)
{
    const struct plan *plan = &deployment->plan.plan;
    return (struct stage_list){.stages = deployment->stages,
                               .num_stages = plan->num_stages + frozen_outside(plan->frozen),
                               .backend = base->backend};
}

int64_t deployment_bytes(const struct deployment *deployment)
{
    if (deployment->device_bytes > 0)
        return deployment->device_bytes;
    int64_t bytes = deployment->runtime ? runtime_bytes(deployment->runtime) : 0;
    for (int s = 0; s <= deployment->plan.plan.num_stages; s++)
        bytes += deployment->stages[s] ? stage_bytes(deployment->stages[s]) : 0;
    return bytes;
}

enum status deployment_place(const struct deployment_base *base, struct train_plan *plan,
                             struct deployment *deployment, struct err *err)
{
    *deployment = (struct deployment){
        .plan = *plan, .place = {.replica = -1, .rank = -1}
    };
    *plan = (struct train_plan){0};
    enum status rc =
        runtime_groups_open(base->comm, &deployment->plan.plan, &deployment->place, err);
    if (rc == OK && base->nccl)
        rc = runtime_links_open(base->comm, base->nccl,
                                &(struct link_plan){&deployment->plan.plan,
                                                    deployment->plan.workload,
                                                    deployment->plan.full},
                                &deployment->links, err);
    return rc;
}

static enum status make_stages(const struct deployment_base *base, struct deployment *deployment,
                               struct err *err)
{
    const struct plan *plan = &deployment->plan.plan;
    enum status rc = OK;
    deployment->stages = calloc((size_t)plan->num_stages + 1, sizeof *deployment->stages);
    if (!deployment->stages)
        return err_nomem(err);
    for (int s = 0; rc == OK && s <= plan->num_stages; s++) {
        bool prefix = s == plan->num_stages;
        struct stage_spec spec = {
            .model = deployment->plan.workload->setting.model,
            .job = base->job,
            .backend = base->backend,
            .num_frozen_items = model_frozen_items(&base->job->model, plan->num_frozen_layers),
            .first_item = prefix ? 0 : plan->first_item[s],
            .end_item = prefix ? plan->first_item[0] : plan->first_item[s + 1],
            .first_items = plan->first_item,
            .num_stages = plan->num_stages,
            .max_samples = plan->microbatches.size,
            .max_live = prefix ? 1 : pool_slots(deployment->plan.full, s),
            .lagged = base->lagged,
            .recompute = plan->recompute != RECOMPUTE_NEVER,
            /* The stage that reads images copies them ahead; a cached prefix seldom reads any. */
            .uploads =
                prefix ? plan->frozen != FROZEN_CACHED : s == 0 && !frozen_outside(plan->frozen)};
        if ((prefix && !frozen_outside(plan->frozen)) ||
            !deployment_has(deployment, prefix ? 0 : s))
            continue;
        rc = stage_new(&spec, &deployment->stages[s], err);
    }
    return rc;
}

static void free_stages(struct deployment *deployment)
{
    for (int s = 0; deployment->stages && s <= deployment->plan.plan.num_stages; s++)
        stage_free(deployment->stages[s]);
    free(deployment->stages);
    deployment->stages = NULL;
}

/* Scratch that kernels take: at most two tensors of the widest kind, and sums by blocks, which do
 * not grow with the batch. */
static int64_t kernel_bytes(const struct deployment_base *base, const struct deployment *deployment)
{
    const struct model *model = &base->job->model;
    const int64_t mlp = (model->gated_mlp ? 2 : 1) * (int64_t)model->mlp;
    const int64_t heads = 3 * (int64_t)model->heads * model->head_dim;
    const int64_t wide = mlp > heads ? mlp : heads;
    const int64_t elems = deployment->plan.plan.microbatches.size * model->seq * wide;
    return 2 * backend_bytes(base->backend, elems) + BLOCK_SUMS_BYTES;
}

/* Reserve all device memory of a deployment in one piece before anything is built. To find out how much
 * that is, stages and runtime are made once on a backend that only counts. */
static enum status announce(const struct deployment_base *base, struct deployment *deployment,
                            struct err *err)
{
    struct deployment_base counted = *base;
    struct deployment trial = *deployment; /* borrows everything except stages and runtime */
    struct backend *be = base->backend;
    enum status rc;
    if (be->host_memory || deployment_idle(deployment))
        return OK;
    rc = backend_count_new(be, &counted.backend, err);
    if (rc != OK)
        return rc;
    counted.cache = NULL; /* its buffers are host memory */
    rc = make_stages(&counted, &trial, err);
    THEN(deployment_runtime(&counted, &trial, err));
    struct memory_need need = {.kernel_bytes = kernel_bytes(base, deployment)};
    need.bytes = backend_count_pieces(counted.backend, &need.num);
    for (int64_t i = 0; i < need.num; i++)
        deployment->device_bytes += need.bytes[i];
    THEN(be->reserve(be, &need, err));
    runtime_free(trial.runtime);
    free_stages(&trial);
    backend_free(counted.backend);
    return rc;
}

enum status deployment_stages(const struct deployment_base *base, struct deployment *deployment,
                              struct err *err)
{
    enum status rc = announce(base, deployment, err);
    return rc == OK ? make_stages(base, deployment, err) : rc;
}

static enum status open_loader(const struct deployment_base *base, struct deployment *deployment,
                               int split, struct err *err)
{
    struct loader_spec spec = {.dataset = base->dataset,
                               .sampler = &deployment->samplers[split],
                               .split = split,
                               .replica = deployment->place.replica,
                               .want_inputs = deployment_has(deployment, 0),
                               .want_labels =
                                   deployment_has(deployment, deployment->plan.plan.num_stages - 1),
                               .prefetch = split == SPLIT_TRAIN,
                               .workers = base->workers[split],
                               .backend = base->backend};
    return deployment_idle(deployment) ? OK : loader_new(&spec, &deployment->loaders[split], err);
}

enum status deployment_batches(const struct deployment_base *base, int64_t position,
                               struct deployment *deployment, struct err *err)
{
    const struct plan *plan = &deployment->plan.plan;
    const struct job *job = base->job;
    enum status rc = OK;
    if (plan->batch > base->dataset->num_samples[SPLIT_TRAIN] / plan->num_pipelines)
        return err_set(
            err, ERR_INPUT,
            "%s: train.batch of %lld samples times %d replicas exceeds the %lld training "
            "samples",
            job->path ? job->path : job->name, (long long)plan->batch, plan->num_pipelines,
            (long long)base->dataset->num_samples[SPLIT_TRAIN]);
    for (int split = SPLIT_TRAIN; rc == OK && split <= SPLIT_TEST; split++) {
        const struct sampler_spec spec = {.num_samples = base->dataset->num_samples[split],
                                          .seed = job->train.seed,
                                          .shuffle = split == SPLIT_TRAIN,
                                          .num_replicas = plan->num_pipelines,
                                          .batch = plan->batch,
                                          .num_microbatches = plan->microbatches.count};
        rc = sampler_init(&deployment->samplers[split], &spec, err);
        if (rc == OK && split == SPLIT_TRAIN)
            sampler_go_on(&deployment->samplers[split], position);
        THEN(open_loader(base, deployment, split, err));
    }
    return rc;
}

enum status deployment_epoch(const struct deployment_base *base, struct deployment *deployment,
                             struct err *err)
{
    if (deployment->samplers[SPLIT_TRAIN].origin == 0)
        return OK;
    loader_free(deployment->loaders[SPLIT_TRAIN]);
    deployment->loaders[SPLIT_TRAIN] = NULL;
    sampler_go_on(&deployment->samplers[SPLIT_TRAIN], 0);
    return open_loader(base, deployment, SPLIT_TRAIN, err);
}

enum status deployment_runtime(const struct deployment_base *base, struct deployment *deployment,
                               struct err *err)
{
    const struct runtime_spec spec = {.model = deployment->plan.workload->setting.model,
                                      .job = base->job,
                                      .plan = &deployment->plan.plan,
                                      .workload = deployment->plan.workload,
                                      .full = deployment->plan.full,
                                      .comm = base->comm,
                                      .active = deployment->place.active,
                                      .pipeline = deployment->place.pipeline,
                                      .replicas = deployment->place.replicas,
                                      .nccl = base->nccl,
                                      .links = base->nccl ? &deployment->links : NULL,
                                      .backend = base->backend,
                                      .stages = deployment->stages,
                                      .prefix =
                                          deployment->stages[deployment->plan.plan.num_stages],
                                      .cache = base->cache,
                                      .sampler = &deployment->samplers[SPLIT_TRAIN],
                                      .replica = deployment->place.replica,
                                      .rank = deployment->place.rank};
    return deployment_idle(deployment) ? OK : runtime_new(&spec, &deployment->runtime, err);
}

void deployment_clear(struct deployment *deployment)
{
    /* Links go first, because freeing memory would wait for messages of a step that has failed. */
    runtime_links_clear(&deployment->links);
    runtime_free(deployment->runtime);
    for (int split = 0; split < SPLIT_COUNT; split++)
        loader_free(deployment->loaders[split]);
    free_stages(deployment);
    runtime_groups_clear(&deployment->place);
    train_plan_clear(&deployment->plan);
    *deployment = (struct deployment){
        .place = {.replica = -1, .rank = -1}
    };
}
