#include "partition/step/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/model/framework.h"
#include "partition/step/workload_build.h"

void workload_clear(struct workload *workload)
{
    free(workload->class_of_replica);
    free(workload->stages);
    free(workload->edges);
    free(workload->out_first);
    free(workload->out_edge);
    free(workload->in_first);
    free(workload->in_edge);
    free(workload->buckets);
    free(workload->first_bucket);
    free(workload->rank_of_stage);
    free(workload->edge_ns);
    free(workload->distances);
    shares_free(&workload->shares);
    sites_free(workload->own_sites);
    tensor_group_free(workload->group);
    *workload = (struct workload){0};
}

int64_t workload_left_out(const struct workload *workload, int stage, int microbatch, int64_t all)
{
    return (int64_t)(shares_at(&workload->shares, stage, microbatch) * (double)all);
}

/* The time of a B, I or W of OP_PARTIAL. */
static int64_t partial_ns(const struct workload *workload, const struct stage_cost *stage,
                          struct op op)
{
    const int mb = op.microbatch == workload->num_microbatches - 1 ? MB_LAST : MB_FULL;
    const int64_t weight_ns = op.kind == OP_I ? 0 : stage->weight_ns[mb];
    return stage->op_ns[op.kind][mb] -
           workload_left_out(workload, op.stage, op.microbatch, weight_ns);
}

int64_t workload_op_ns(const struct workload *workload, int class_index, struct op op)
{
    const struct stage_cost *stage =
        &workload->stages[(int64_t)class_index * workload->num_stages + op.stage];
    if (op.microbatch == OP_WHOLE_BATCH) {
        return op.kind == OP_Z   ? stage->whole_batch_ns[0]
               : op.kind == OP_P ? stage->whole_batch_ns[1]
                                 : stage->op_ns[op.kind][MB_FULL];
    }
    if (op.kind <= OP_W && (op.arg & OP_PARTIAL))
        return partial_ns(workload, stage, op);
    return stage
        ->op_ns[op.kind][op.microbatch == workload->num_microbatches - 1 ? MB_LAST : MB_FULL];
}

int64_t workload_pair_ns(const struct workload *workload, int class_index, struct op f, struct op b,
                         int64_t *forward_ns)
{
    const struct stage_cost *stages =
        &workload->stages[(int64_t)class_index * workload->num_stages];
    const int last = workload->num_microbatches - 1;
    const int f_mb = f.microbatch == last ? MB_LAST : MB_FULL;
    const int b_mb = b.microbatch == last ? MB_LAST : MB_FULL;
    const int64_t forward = stages[f.stage].op_ns[OP_F][f_mb];
    const int64_t all = forward + (b.arg & OP_PARTIAL ? partial_ns(workload, &stages[b.stage], b)
                                                      : stages[b.stage].op_ns[OP_B][b_mb]);
    const int64_t hidden = stages[f.stage].hidden_ns[0][f_mb] + stages[b.stage].hidden_ns[1][b_mb];
    *forward_ns = forward;
    if (hidden == 0)
        return all;
    const int64_t compute = all - hidden + (int64_t)ceil(workload->overlap_share * (double)hidden);
    const int64_t ns = compute > hidden ? compute : hidden;
    *forward_ns = (int64_t)((double)ns * ((double)forward / (double)all));
    return ns;
}

void workload_holders(const struct workload *workload, const struct plan *plan, int stage,
                      int *devices)
{
    for (int r = 0; r < workload->num_pipelines; r++)
        devices[r] =
            plan->device[(int64_t)r * workload->num_ranks + workload->rank_of_stage[stage]];
}

int64_t workload_bucket_ns(const struct workload *workload, int stage, const int *holders,
                           int64_t bytes)
{
    const struct setting *setting = &workload->setting;
    if (!workload->scatter && setting->cost->allreduce_ns)
        return cost_allreduce_ns(setting->cost, setting->cluster, holders, workload->num_pipelines,
                                 bytes);
    return sites_collective_ns(workload->sites, setting, workload->rank_of_stage[stage],
                               workload->scatter ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALLREDUCE,
                               bytes);
}

void workload_tied_devices(const struct workload *workload, const struct plan *plan, int replica,
                           int ends[2])
{
    const int *device = plan->device + (int64_t)replica * workload->num_ranks;
    ends[0] = device[workload->rank_of_stage[0]];
    ends[1] = device[workload->rank_of_stage[workload->num_stages - 1]];
}

void workload_place_frozen(struct workload *workload, const struct plan *plan)
{
    const int frozen = model_frozen_items(workload->setting.model, plan->num_frozen_layers);
    const int *cut = plan->first_item;
    int first = 0; /* the first active stage */
    while (!frozen_outside(plan->frozen) && first < plan->num_stages && cut[first + 1] <= frozen)
        first++;
    workload->num_frozen_stages = first;
    workload->i_folded_into_w = workload->drop_first_input && first < plan->num_stages &&
                                cut[first + 1] - (cut[first] > frozen ? cut[first] : frozen) == 1;
}

/* Set the rank of each stage, and which are frozen. */
static enum status place_stages(struct builder *b, const int *rank_of_stage)
{
    const struct plan *plan = b->plan;
    struct workload *w = &b->got;
    w->rank_of_stage = malloc((size_t)w->num_stages * sizeof(int));
    if (!w->rank_of_stage)
        return err_nomem(b->err);
    for (int s = 0; s < w->num_stages; s++)
        w->rank_of_stage[s] = rank_of_stage ? rank_of_stage[s] : plan_rank_of_stage(plan, s);
    workload_place_frozen(w, plan);
    return OK;
}

bool workload_sends_block(const struct setting *setting, const struct plan *plan)
{
    const struct framework *framework = setting->model->framework;
    if (setting->cluster->sends != SENDS_AUTO)
        return setting->cluster->sends == SENDS_BLOCKING;
    return framework && framework->blocks_sends && plan->chunks < 2;
}

enum status workload_build(const struct setting *setting, const struct plan *plan,
                           const int *rank_of_stage, struct workload *workload, struct err *err)
{
    return workload_build_at(setting, plan, rank_of_stage, NULL, NULL, workload, err);
}

/* Whether the plan can be lowered: its stages can be counted, and the model is whole or divided as the
 * plan says. */
static enum status check_division(const struct model *model, const struct plan *plan,
                                  struct err *err)
{
    if (plan->num_stages > SCHEDULE_MAX_STAGES)
        return err_set(err, ERR_INPUT, "plan of %d stages, the limit is %d", plan->num_stages,
                       SCHEDULE_MAX_STAGES);
    if (model->tensor > 1 && model->tensor != layout_tensor(&plan->layout))
        return err_set(err, ERR_INFEASIBLE, "plan.tensor is %d, its model is divided by %d",
                       layout_tensor(&plan->layout), model->tensor);
    if (model->context > 1 && model->context != layout_context(&plan->layout))
        return err_set(err, ERR_INFEASIBLE, "plan.context is %d, its model is divided by %d",
                       layout_context(&plan->layout), model->context);
    if (model->expert_ways > 1 && (model->expert_ways != layout_expert(&plan->layout) ||
                                   model->expert_tensor != layout_expert_tensor(&plan->layout)))
        return err_set(err, ERR_INFEASIBLE,
                       "plan.expert and expert_tensor are %d and %d, its model is divided by %d "
                       "and %d",
                       layout_expert(&plan->layout), layout_expert_tensor(&plan->layout),
                       model->expert_ways, model->expert_tensor);
    return OK;
}

enum status workload_build_at(const struct setting *job_setting, const struct plan *plan,
                              const int *rank_of_stage, const struct sites *sites,
                              struct stage_memo *memo, struct workload *workload, struct err *err)
{
    const struct setting at = setting_at(job_setting, plan->num_frozen_layers), *setting = &at;
    struct tensor_group *group;
    enum status rc = tensor_group_new(setting, &plan->layout, &group, err);
    if (rc != OK)
        return rc;
    const struct setting own = tensor_group_setting(group, setting);
    struct builder b = {
        .model = own.model,
        .cluster = own.cluster,
        .cost = own.cost,
        .plan = plan,
        .num_frozen_items = model_frozen_items(own.model, plan->num_frozen_layers),
        .got = {.setting = own,
                .group = group,
                .sites = sites,
                /* reads and writes of a cache depend on more than a stage's items */
                .memo = plan->frozen == FROZEN_CACHED || plan->cache_write ? NULL : memo,
                .num_ranks = plan->num_ranks,
                .num_stages = plan->num_stages,
                .num_pipelines = plan->num_pipelines,
                .num_microbatches = plan->microbatches.count,
                .overlap_share = setting->cluster->overlap_share,
                .drop_first_input = plan->num_frozen_layers > 0,
                .cache_write_stage = -1,
                .clip = plan->clip,
                .host_blocking = setting->cluster->host_blocking,
                .sends_blocking = workload_sends_block(setting, plan),
                .scatter = plan->layout.shard == SHARD_OPTIMIZER && plan->num_pipelines > 1 &&
                           !(own.model->framework && own.model->framework->sums_whole),
                .context_bytes =
                    setting->cluster->context_bytes +
                    framework_context_bytes(own.model, plan->num_ranks, plan->num_pipelines),
                .beyond_tensors =
                    framework_beyond_tensors(own.model->framework, setting->cost->memory_factor),
                .source = setting->cost->source},
        .err = err
    };
    rc = check_division(own.model, plan, err);
    if (rc == OK && !sites) {
        rc = sites_new(own.cluster, plan, &b.got.own_sites, err);
        b.got.sites = b.got.own_sites;
    }
    THEN(shares_copy(&plan->shares, &b.got.shares, err));
    THEN(place_stages(&b, rank_of_stage));
    THEN(workload_build_edges(&b));
    THEN(workload_build_classes(&b));
    THEN(workload_build_stages(&b));
    THEN(workload_build_buckets(&b));
    if (rc == OK && plan->clip)
        rc = workload_build_norm(&b);
    if (rc == OK) {
        *workload = b.got;
        b.got = (struct workload){0};
    }
    free(b.item_ns);
    workload_clear(&b.got);
    return rc;
}

enum status workload_set_distances(const struct plan *plan, const int64_t *distances,
                                   struct workload *workload, struct err *err)
{
    struct workload *w = workload;
    const size_t bytes = (size_t)w->num_stages * sizeof *distances;
    if (!workload->setting.cost->near_ns_per_byte ||
        (w->distances && memcmp(w->distances, distances, bytes) == 0))
        return OK;
    if (!w->distances) {
        w->distances = malloc(bytes);
        if (!w->distances)
            return err_nomem(err);
    }
    memcpy(w->distances, distances, bytes);
    return workload_rebuild(plan, w, err);
}

/* A builder that continues a workload. Its `got` is a copy, which becomes *w again. */
static struct builder builder_again(const struct plan *plan, const struct workload *w,
                                    struct err *err)
{
    const struct setting *own = &w->setting;
    return (struct builder){.model = own->model,
                            .cluster = own->cluster,
                            .cost = own->cost,
                            .plan = plan,
                            .num_frozen_items =
                                model_frozen_items(own->model, plan->num_frozen_layers),
                            .got = *w,
                            .err = err};
}

enum status workload_stage(const struct plan *plan, const struct workload *workload,
                           struct builder **builder, int class_index, int stage,
                           struct stage_cost *cost, struct err *err)
{
    const bool fresh = !*builder;
    if (fresh)
        *builder = calloc(1, sizeof **builder);
    if (!*builder)
        return err_nomem(err);
    if (fresh || workload->group) { /* the group's devices go with the workload */
        free((*builder)->item_ns);
        **builder = builder_again(plan, workload, err);
    }
    (*builder)->plan = plan;
    (*builder)->got = *workload;
    (*builder)->err = err;
    return workload_build_stage(*builder, class_index, stage, cost);
}

void workload_builder_free(struct builder *builder)
{
    if (builder)
        free(builder->item_ns);
    free(builder);
}

enum status workload_rebuild_bytes(const struct plan *plan, const bool *ranks,
                                   struct workload *workload, struct err *err)
{
    struct builder b = builder_again(plan, workload, err);
    return workload_build_bytes(&b, ranks); /* into the stages, which both have */
}

enum status workload_rebuild(const struct plan *plan, struct workload *workload, struct err *err)
{
    struct workload *w = workload;
    free(w->stages);
    free(w->buckets);
    free(w->first_bucket);
    w->stages = NULL;
    w->buckets = NULL;
    w->first_bucket = NULL;
    w->num_buckets = 0;
    struct builder b = builder_again(plan, w, err);
    enum status rc = workload_build_stages(&b);
    THEN(workload_build_buckets(&b));
    free(b.item_ns);
    *w = b.got;
    return rc;
}

enum status workload_near(const struct plan *plan, const struct schedule *full,
                          struct workload *workload, struct err *err)
{
    if (!workload->setting.cost->near_ns_per_byte)
        return OK;
    int64_t *distances = malloc((size_t)workload->num_stages * sizeof *distances);
    if (!distances)
        return err_nomem(err);
    schedule_stash_distance(full, workload, distances);
    const enum status rc = workload_set_distances(plan, distances, workload, err);
    free(distances);
    return rc;
}
