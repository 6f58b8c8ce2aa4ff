/* exec/trainer/layout.c - makes the stages, batches and runtime that a plan gives this rank. Read the
 * calls of layout.h in their order: layout_place(), layout_stages(), layout_batches(),
 * layout_runtime(). */
#include "exec/trainer/layout.h"

#include <stdlib.h>
#include <string.h>

#include "exec/device/backend_count.h"
#include "partition/step/pool_memory.h"

#define BLOCK_SUMS_BYTES ((int64_t)8 << 20)

bool layout_has(const struct layout *layout, int stage)
{
    return !layout_idle(layout) && layout->plan.full->rank_of_stage[stage] == layout->place.rank;
}

struct stage_list layout_list(const struct layout_base *base, const struct layout *layout)
{
    const struct plan *plan = &layout->plan.plan;
    return (struct stage_list){.stages = layout->stages,
                               .num_stages = plan->num_stages + frozen_outside(plan->frozen),
                               .backend = base->backend};
}

int64_t layout_bytes(const struct layout *layout)
{
    if (layout->device_bytes > 0)
        return layout->device_bytes;
    int64_t bytes = layout->runtime ? runtime_bytes(layout->runtime) : 0;
    for (int s = 0; s <= layout->plan.plan.num_stages; s++)
        bytes += layout->stages[s] ? stage_bytes(layout->stages[s]) : 0;
    return bytes;
}

enum status layout_place(const struct layout_base *base, struct train_plan *plan,
                         struct layout *layout, struct err *err)
{
    *layout = (struct layout){
        .plan = *plan, .place = {.replica = -1, .rank = -1}
    };
    *plan = (struct train_plan){0};
    enum status rc = runtime_groups_open(base->comm, &layout->plan.plan, &layout->place, err);
    if (rc == OK && base->nccl)
        rc = runtime_links_open(base->comm, base->nccl,
                                &(struct link_plan){&base->job->model, &layout->plan.plan,
                                                    layout->plan.workload, layout->plan.full},
                                &layout->links, err);
    return rc;
}

static enum status make_stages(const struct layout_base *base, struct layout *layout,
                               struct err *err)
{
    const struct plan *plan = &layout->plan.plan;
    enum status rc = OK;
    layout->stages = calloc((size_t)plan->num_stages + 1, sizeof *layout->stages);
    if (!layout->stages)
        return err_nomem(err);
    for (int s = 0; rc == OK && s <= plan->num_stages; s++) {
        bool prefix = s == plan->num_stages;
        struct stage_spec spec = {
            .model = &base->job->model,
            .job = base->job,
            .backend = base->backend,
            .num_frozen_items = model_frozen_items(&base->job->model, plan->num_frozen_layers),
            .first_item = prefix ? 0 : plan->first_item[s],
            .end_item = prefix ? plan->first_item[0] : plan->first_item[s + 1],
            .first_items = plan->first_item,
            .num_stages = plan->num_stages,
            .max_samples = plan->microbatches.size,
            .max_live = prefix ? 1 : pool_slots(layout->plan.full, s),
            .lagged = base->lagged,
            .recompute = plan->recompute != RECOMPUTE_NEVER,
            /* The stage that reads images copies them ahead; a cached prefix seldom reads any. */
            .uploads =
                prefix ? plan->frozen != FROZEN_CACHED : s == 0 && !frozen_outside(plan->frozen)};
        if ((prefix && !frozen_outside(plan->frozen)) || !layout_has(layout, prefix ? 0 : s))
            continue;
        rc = stage_new(&spec, &layout->stages[s], err);
    }
    return rc;
}

static void free_stages(struct layout *layout)
{
    for (int s = 0; layout->stages && s <= layout->plan.plan.num_stages; s++)
        stage_free(layout->stages[s]);
    free(layout->stages);
    layout->stages = NULL;
}

/* Scratch that kernels take: at most two tensors of the widest kind, and sums by blocks, which do
 * not grow with the batch. */
static int64_t kernel_bytes(const struct layout_base *base, const struct layout *layout)
{
    const struct model *model = &base->job->model;
    const int64_t mlp = (model->gated_mlp ? 2 : 1) * (int64_t)model->mlp;
    const int64_t heads = 3 * (int64_t)model->heads * model->head_dim;
    const int64_t wide = mlp > heads ? mlp : heads;
    const int64_t elems = layout->plan.plan.microbatches.size * model->seq * wide;
    return 2 * backend_bytes(base->backend, elems) + BLOCK_SUMS_BYTES;
}

/* Reserve all device memory of a layout in one piece before anything is built. To find out how much
 * that is, stages and runtime are made once on a backend that only counts. */
static enum status announce(const struct layout_base *base, struct layout *layout, struct err *err)
{
    struct layout_base counted = *base;
    struct layout trial = *layout; /* borrows everything except stages and runtime */
    struct backend *be = base->backend;
    enum status rc;
    if (be->host_memory || layout_idle(layout))
        return OK;
    rc = backend_count_new(be, &counted.backend, err);
    if (rc != OK)
        return rc;
    counted.cache = NULL; /* its buffers are host memory */
    rc = make_stages(&counted, &trial, err);
    THEN(layout_runtime(&counted, &trial, err));
    struct memory_need need = {.kernel_bytes = kernel_bytes(base, layout)};
    need.bytes = backend_count_pieces(counted.backend, &need.num);
    for (int64_t i = 0; i < need.num; i++)
        layout->device_bytes += need.bytes[i];
    THEN(be->reserve(be, &need, err));
    runtime_free(trial.runtime);
    free_stages(&trial);
    backend_free(counted.backend);
    return rc;
}

enum status layout_stages(const struct layout_base *base, struct layout *layout, struct err *err)
{
    enum status rc = announce(base, layout, err);
    return rc == OK ? make_stages(base, layout, err) : rc;
}

static enum status open_loader(const struct layout_base *base, struct layout *layout, int split,
                               struct err *err)
{
    struct loader_spec spec = {.dataset = base->dataset,
                               .sampler = &layout->samplers[split],
                               .split = split,
                               .replica = layout->place.replica,
                               .want_inputs = layout_has(layout, 0),
                               .want_labels = layout_has(layout, layout->plan.plan.num_stages - 1),
                               .prefetch = split == SPLIT_TRAIN,
                               .workers = base->workers[split],
                               .backend = base->backend};
    return layout_idle(layout) ? OK : loader_new(&spec, &layout->loaders[split], err);
}

enum status layout_batches(const struct layout_base *base, int64_t position, struct layout *layout,
                           struct err *err)
{
    const struct plan *plan = &layout->plan.plan;
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
        rc = sampler_init(&layout->samplers[split], &spec, err);
        if (rc == OK && split == SPLIT_TRAIN)
            sampler_go_on(&layout->samplers[split], position);
        THEN(open_loader(base, layout, split, err));
    }
    return rc;
}

enum status layout_epoch(const struct layout_base *base, struct layout *layout, struct err *err)
{
    if (layout->samplers[SPLIT_TRAIN].origin == 0)
        return OK;
    loader_free(layout->loaders[SPLIT_TRAIN]);
    layout->loaders[SPLIT_TRAIN] = NULL;
    sampler_go_on(&layout->samplers[SPLIT_TRAIN], 0);
    return open_loader(base, layout, SPLIT_TRAIN, err);
}

enum status layout_runtime(const struct layout_base *base, struct layout *layout, struct err *err)
{
    const struct runtime_spec spec = {.model = &base->job->model,
                                      .job = base->job,
                                      .plan = &layout->plan.plan,
                                      .workload = layout->plan.workload,
                                      .full = layout->plan.full,
                                      .comm = base->comm,
                                      .active = layout->place.active,
                                      .pipeline = layout->place.pipeline,
                                      .replicas = layout->place.replicas,
                                      .nccl = base->nccl,
                                      .links = base->nccl ? &layout->links : NULL,
                                      .backend = base->backend,
                                      .stages = layout->stages,
                                      .prefix = layout->stages[layout->plan.plan.num_stages],
                                      .cache = base->cache,
                                      .sampler = &layout->samplers[SPLIT_TRAIN],
                                      .replica = layout->place.replica,
                                      .rank = layout->place.rank};
    return layout_idle(layout) ? OK : runtime_new(&spec, &layout->runtime, err);
}

void layout_clear(struct layout *layout)
{
    /* Links go first, because freeing memory would wait for messages of a step that has failed. */
    runtime_links_clear(&layout->links);
    runtime_free(layout->runtime);
    for (int split = 0; split < SPLIT_COUNT; split++)
        loader_free(layout->loaders[split]);
    free_stages(layout);
    runtime_groups_clear(&layout->place);
    train_plan_clear(&layout->plan);
    *layout = (struct layout){
        .place = {.replica = -1, .rank = -1}
    };
}
