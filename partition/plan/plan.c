#include "partition/plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "partition/layout/model_shard.h"
#include "partition/layout/tensor_group.h"
#include "partition/model/framework.h"
#include "partition/base/units.h"

static enum status copy_array(const void *src, size_t count, size_t size, void *dst_pointer,
                              struct err *err)
{
    void *copy = NULL;
    if (src) {
        copy = malloc(count > 0 ? count * size : 1);
        if (!copy)
            return err_nomem(err);
        if (count > 0)
            memcpy(copy, src, count * size);
    }
    memcpy(dst_pointer, &copy, sizeof copy);
    return OK;
}

enum status plan_copy(const struct plan *src, struct plan *dst, struct err *err)
{
    enum status rc;
    struct plan got = *src;
    got.first_item = NULL;
    got.device = NULL;
    got.memory_bytes = NULL;
    got.recompute_layers = NULL;
    got.order = NULL;
    got.shares = (struct freeze_shares){0};
    size_t num_devices = (size_t)src->num_pipelines * (size_t)src->num_ranks;
    rc = copy_array(src->first_item, (size_t)src->num_stages + 1, sizeof *src->first_item,
                    &got.first_item, err);
    THEN(copy_array(src->device, num_devices, sizeof *src->device, &got.device, err));
    THEN(copy_array(src->memory_bytes, (size_t)src->num_ranks, sizeof *src->memory_bytes,
                    &got.memory_bytes, err));
    THEN(copy_array(src->recompute_layers, (size_t)src->num_stages, sizeof *src->recompute_layers,
                    &got.recompute_layers, err));
    THEN(shares_copy(&src->shares, &got.shares, err));
    if (rc == OK && src->order)
        rc = plan_set_order(&got, src->schedule, src->order, err);
    if (rc == OK) {
        *dst = got;
        got = (struct plan){0};
    }
    plan_clear(&got);
    return rc;
}

static uint64_t digest_ints(uint64_t digest, const int *array, size_t count)
{
    for (size_t i = 0; i < count; i++)
        digest = mix64(digest ^ (uint64_t)(unsigned)array[i]);
    return digest;
}

uint64_t plan_digest(const struct plan *plan)
{
    if (plan->order || plan->shares.share)
        return 0;
    const int64_t numbers[] = {
        plan->num_ranks,
        plan->chunks,
        plan->num_pipelines,
        plan->batch,
        plan->microbatches.size,
        plan->schedule,
        plan->num_stages,
        plan->microbatches.count,
        plan->num_frozen_layers,
        plan->frozen,
        plan->cache_write,
        plan->microbatches.last_size,
        plan->recompute,
        plan->canonical,
        plan->bucket_bytes,
        plan->optim_bytes_per_param,
        plan->lagged,
        plan->clip,
    };
    uint64_t digest = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        digest = mix64(digest ^ (uint64_t)numbers[i]);
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++)
        digest = mix64(digest ^ (uint64_t)layout_get(&plan->layout, (enum layout_dim)d));
    digest = digest_ints(digest, plan->first_item, (size_t)plan->num_stages + 1);
    digest =
        digest_ints(digest, plan->device, (size_t)plan->num_pipelines * (size_t)plan->num_ranks);
    if (plan->recompute_layers)
        digest = digest_ints(digest, plan->recompute_layers, (size_t)plan->num_stages);
    return digest;
}

static void order_free(struct schedule *order)
{
    if (order)
        schedule_clear(order);
    free(order);
}

enum status plan_set_order(struct plan *plan, enum schedule_kind kind, const struct schedule *order,
                           struct err *err)
{
    struct schedule *copy = order ? calloc(1, sizeof *copy) : NULL;
    enum status rc = OK;
    if (order)
        rc = copy ? schedule_copy(order, copy, err) : err_nomem(err);
    if (rc != OK) {
        free(copy);
        return rc;
    }
    if (copy)
        copy->kind = kind;
    order_free(plan->order);
    plan->order = copy;
    plan->schedule = kind;
    return OK;
}

void plan_clear(struct plan *plan)
{
    order_free(plan->order);
    free(plan->first_item);
    free(plan->device);
    free(plan->memory_bytes);
    free(plan->recompute_layers);
    shares_free(&plan->shares);
    *plan = (struct plan){0};
}

/* Whether the replicas can divide the experts, and the tokens of samples. */
static enum status check_expert(const struct plan *plan, const struct model *model, struct err *err)
{
    const int expert = layout_expert(&plan->layout), C = layout_context(&plan->layout),
              span = layout_expert_span(&plan->layout);
    if (plan->num_pipelines % C != 0)
        return err_set(err, ERR_INFEASIBLE,
                       "plan: pipeline.context %d does not divide %d pipelines", C,
                       plan->num_pipelines);
    if (span == expert && plan->num_pipelines % expert != 0)
        return err_set(err, ERR_INFEASIBLE, "plan: pipeline.expert %d does not divide %d replicas",
                       expert, plan->num_pipelines);
    struct err why = {0};
    enum status rc = model_experts_check(model, &plan->layout, &why);
    if (rc == OK && plan->num_pipelines % span != 0)
        rc = err_set(&why, ERR_INFEASIBLE,
                     "pipeline.expert %d times pipeline.expert_tensor %d does not divide the %d "
                     "devices of a stage",
                     expert, layout_expert_tensor(&plan->layout),
                     plan->num_pipelines * layout_tensor(&plan->layout));
    THEN(model_context_check(model, C, plan->layout.context_kind, layout_tensor(&plan->layout),
                             &why));
    return rc == OK ? OK : err_set(err, rc, "plan: %s", why.msg);
}

static enum status check_room(const struct plan *plan, const struct cluster *cluster,
                              struct err *err)
{
    int64_t devices;
    if (!mul_ok(plan->num_ranks, plan->num_pipelines, &devices) ||
        !mul_ok(devices, layout_tensor(&plan->layout), &devices) ||
        devices > cluster->num_devices) {
        if (layout_tensor(&plan->layout) > 1)
            return err_set(err, ERR_INFEASIBLE,
                           "plan: %d replicas of %d groups of %d devices do not fit a cluster of "
                           "%d",
                           plan->num_pipelines, plan->num_ranks, plan->layout.tensor,
                           cluster->num_devices);
        return err_set(err, ERR_INFEASIBLE,
                       "plan: %d replicas of %d devices do not fit a cluster of %d",
                       plan->num_pipelines, plan->num_ranks, cluster->num_devices);
    }
    return OK;
}

enum status plan_check_counts(const struct plan *plan, const struct model *model,
                              const struct cluster *cluster, struct err *err)
{
    if (plan->num_ranks < 1 || plan->num_pipelines < 1 || plan->chunks < 1)
        return err_set(err, ERR_INFEASIBLE,
                       "plan: pipeline length, replicas and chunks must be at least 1, got %d, %d, "
                       "%d",
                       plan->num_ranks, plan->num_pipelines, plan->chunks);
    int64_t stages;
    if (!mul_ok(plan->num_ranks, plan->chunks, &stages) || stages != plan->num_stages)
        return err_set(err, ERR_INFEASIBLE, "plan: %d stages, but %d ranks with %d chunks each",
                       plan->num_stages, plan->num_ranks, plan->chunks);
    if (schedule_v_shaped(plan->schedule) && plan->chunks != 2)
        return err_set(err, ERR_INFEASIBLE, "plan: schedule %s has 2 chunks a rank, got %d",
                       schedule_kind_name(plan->schedule), plan->chunks);
    if (plan->num_stages > model->num_items)
        return err_set(err, ERR_INFEASIBLE, "cannot cut %s into %s",
                       COUNT_TEXT(model->num_items, "item"), COUNT_TEXT(plan->num_stages, "stage"));
    const enum status rc = check_expert(plan, model, err);
    if (rc != OK)
        return rc;
    const enum status grouped = tensor_group_check(cluster, layout_tensor(&plan->layout), err);
    if (grouped != OK)
        return grouped;
    const enum status fits = check_room(plan, cluster, err);
    if (fits != OK)
        return fits;
    const struct microbatches *mb = &plan->microbatches;
    int64_t full;
    if (plan->batch < 1 || mb->count < 1 || mb->size < 1 || mb->last_size < 1 ||
        mb->last_size > mb->size || !mul_ok(mb->size, mb->count - 1, &full) ||
        full != plan->batch - mb->last_size)
        return err_set(err, ERR_INFEASIBLE,
                       "plan: %d micro-batches of %lld, the last of %lld, do not make a batch of "
                       "%lld",
                       mb->count, (long long)mb->size, (long long)mb->last_size,
                       (long long)plan->batch);
    return OK;
}

const char *plan_layout_text(const struct plan *plan, char *text, size_t size)
{
    return layout_text(&plan->layout, plan->num_ranks, plan_width(plan), plan->chunks, text, size);
}

int plan_cut_start(const struct plan *plan, const struct model *model)
{
    return frozen_outside(plan->frozen) ? model_frozen_items(model, plan->num_frozen_layers) : 0;
}

static enum status check_cut(const struct plan *plan, const struct model *model, struct err *err)
{
    if (plan->num_frozen_layers < 0 || plan->num_frozen_layers > model->num_layers)
        return err_set(err, ERR_INFEASIBLE, "plan: %d frozen layers, must be 0..%d",
                       plan->num_frozen_layers, model->num_layers);
    if ((plan->num_frozen_layers > 0) != (plan->frozen != FROZEN_NONE))
        return err_set(err, ERR_INFEASIBLE, "plan: %d frozen layers with frozen placement '%s'",
                       plan->num_frozen_layers, frozen_placement_name(plan->frozen));
    int first = plan_cut_start(plan, model);
    if (!plan->first_item || plan->first_item[0] != first)
        return err_set(err, ERR_INFEASIBLE, "plan: the cut starts at item %d, must be %d",
                       plan->first_item ? plan->first_item[0] : -1, first);
    for (int s = 0; s < plan->num_stages; s++) {
        int size = plan->first_item[s + 1] - plan->first_item[s];
        if (size == 0)
            return err_set(err, ERR_INFEASIBLE, "plan: stage %d of %d is empty", s,
                           plan->num_stages);
        if (size < 0)
            return err_set(err, ERR_INFEASIBLE,
                           "plan: stage %d ends at item %d before its start %d", s,
                           plan->first_item[s + 1], plan->first_item[s]);
    }
    if (plan->first_item[plan->num_stages] != model->num_items)
        return err_set(err, ERR_INFEASIBLE, "plan: the cut ends at item %d, must be %d",
                       plan->first_item[plan->num_stages], model->num_items);
    return OK;
}

/* Check the T devices of a rank, and mark them as used. */
static enum status check_group(const struct plan *plan, const struct cluster *cluster, int i,
                               bool *used, struct err *err)
{
    const int first = plan->device ? plan->device[i] : -1, T = layout_tensor(&plan->layout);
    const int replica = i / plan->num_ranks, rank = i % plan->num_ranks;
    if (first < 0 || first >= cluster->num_devices)
        return err_set(err, ERR_INFEASIBLE,
                       "plan: replica %d rank %d is on device %d, must be 0..%d", replica, rank,
                       first, cluster->num_devices - 1);
    if (!tensor_group_fits(cluster, T, first))
        return err_set(err, ERR_INFEASIBLE,
                       "plan: replica %d rank %d: %d devices from device %d on leave their node",
                       replica, rank, T, first);
    for (int device = first; device < first + T; device++) {
        if (used[device])
            return err_set(err, ERR_INFEASIBLE, "plan: replica %d rank %d: device %d is taken",
                           replica, rank, device);
        used[device] = true;
    }
    return OK;
}

static enum status check_devices(const struct plan *plan, const struct cluster *cluster,
                                 struct err *err)
{
    bool *used = calloc((size_t)cluster->num_devices, sizeof *used);
    if (!used)
        return err_nomem(err);
    enum status rc = OK;
    for (int i = 0; i < plan->num_pipelines * plan->num_ranks && rc == OK; i++)
        rc = check_group(plan, cluster, i, used, err);
    free(used);
    return rc;
}

/* Check that a plan has op lists of its own if its schedule is no named one, and that they are right. */
static enum status check_order(const struct plan *plan, struct err *err)
{
    const struct schedule *order = plan->order;
    /* Its first forward is of the last micro-batch, which is then not the smaller one. */
    if (plan->schedule == SCHEDULE_LOOPED_BFS &&
        plan->microbatches.size != plan->microbatches.last_size)
        return err_set(err, ERR_INFEASIBLE,
                       "schedule looped-bfs needs micro-batches of one size, got %" PRId64
                       " and a last one of %" PRId64,
                       plan->microbatches.size, plan->microbatches.last_size);
    if (!order && plan->schedule < SCHEDULE_SEARCH)
        return OK;
    if (!order || plan->schedule < SCHEDULE_SEARCH)
        return err_set(err, ERR_INFEASIBLE, "plan: schedule %s %s op lists of its own",
                       schedule_kind_name(plan->schedule), order ? "has no" : "needs");
    if (order->num_ranks != plan->num_ranks || order->num_stages != plan->num_stages ||
        order->num_microbatches != plan->microbatches.count)
        return err_set(err, ERR_INFEASIBLE,
                       "schedule of %d ranks, %d stages, %d microbatches does not fit a plan of "
                       "%d, %d, %d",
                       order->num_ranks, order->num_stages, order->num_microbatches,
                       plan->num_ranks, plan->num_stages, plan->microbatches.count);
    return schedule_check(order, 0, err);
}

/* Check what the layout's modes need. */
static enum status check_layout(const struct plan *plan, const struct model *model, struct err *err)
{
    if (plan->recompute == RECOMPUTE_LAYER && !plan->recompute_layers)
        return err_set(err, ERR_INFEASIBLE,
                       "plan: recompute layer needs the layers to recompute in each stage");
    if (recompute_whole_backward(plan->recompute) &&
        (plan->order ? schedule_has_halves(plan->order) : schedule_splits(plan->schedule)))
        return err_set(err, ERR_INFEASIBLE,
                       "plan: schedule %s splits the backward, which recompute %s does not",
                       schedule_kind_name(plan->schedule), recompute_mode_name(plan->recompute));
    for (int s = 0; plan->recompute == RECOMPUTE_LAYER && s < plan->num_stages; s++)
        if (plan->recompute_layers[s] < 0)
            return err_set(err, ERR_INFEASIBLE, "plan: stage %d runs %d layers again", s,
                           plan->recompute_layers[s]);
    struct err why = {0};
    if (shares_check(&plan->shares, plan->num_stages, plan->microbatches.count, &why) != OK)
        return err_set(err, ERR_INFEASIBLE, "plan: %s", why.msg);
    const bool alone =
        plan->layout.shard == SHARD_WEIGHTS && framework_shards_alone(model->framework);
    if (plan->layout.shard != SHARD_NONE && plan->num_pipelines == 1 && !alone)
        return err_set(err, ERR_INFEASIBLE, "plan: shard %s divides nothing with 1 replica",
                       shard_mode_name(plan->layout.shard));
    if (shard_group_check(plan->layout.shard_group, plan->layout.shard, plan->num_pipelines,
                          layout_expert_span(&plan->layout), &why) != OK)
        return err_set(err, ERR_INFEASIBLE, "plan: %s", why.msg);
    if (plan->layout.shard != SHARD_NONE && plan->canonical)
        return err_set(err, ERR_INFEASIBLE, "plan: shard %s sums gradients in no canonical order",
                       shard_mode_name(plan->layout.shard));
    return OK;
}

enum status plan_check_layout(const struct plan *plan, const struct model *model,
                              const struct cluster *cluster, struct err *err)
{
    enum status rc = plan_check_counts(plan, model, cluster, err);
    THEN(check_cut(plan, model, err));
    THEN(check_order(plan, err));
    return rc == OK ? check_layout(plan, model, err) : rc;
}

enum status plan_check(const struct plan *plan, const struct model *model,
                       const struct cluster *cluster, struct err *err)
{
    enum status rc = plan_check_layout(plan, model, cluster, err);
    return rc == OK ? check_devices(plan, cluster, err) : rc;
}

const char *const frozen_placement_names[] = {"none", "first", "spread", "cached", NULL};
const char *const recompute_mode_names[] = {"never", "stage",       "except-last", "selective",
                                            "layer", "stage-early", "norms",       "op",
                                            "fit",   NULL};

const char *frozen_placement_name(enum frozen_placement placement)
{
    return frozen_placement_names[placement];
}

const char *recompute_mode_name(enum recompute_mode mode)
{
    return recompute_mode_names[mode];
}

void plan_memory_limits(const struct plan *plan, const struct cluster *cluster, int64_t *limits)
{
    for (int k = 0; k < plan->num_ranks; k++) {
        limits[k] = INT64_MAX;
        for (int r = 0; r < plan->num_pipelines; r++) {
            const int device = plan->device[(int64_t)r * plan->num_ranks + k];
            const int64_t bytes = cluster->devices[device].mem_bytes;
            limits[k] = bytes < limits[k] ? bytes : limits[k];
        }
    }
}
