/* From a model and a cost source to the problem of cut.h. cut_plan() cuts a plan by the times of
 * its devices, plan_complete() also fills in the rest of a plan, and cut_chain_solve() cuts a chain
 * of equal devices with communication and memory. Read cut_plan() first. */
#include "partition/plan/cut_model.h"

#include <stdlib.h>
#include <string.h>

#include "partition/plan/autodp.h"
#include "partition/schedule/schedule.h"
#include "partition/layout/tensor_group.h"
#include "partition/base/units.h"

enum status cut_times(const struct setting *setting, const struct cut_device *on, int first_item,
                      struct cut_time *times, bool *extrapolated, struct err *err)
{
    const struct cost *cost = setting->cost;
    const bool updates = on->optim_states >= 0;
    for (int i = first_item; i < setting->model->num_items; i++) {
        int64_t ns[PASS_COUNT] = {0};
        for (int pass = 0; pass < (updates ? PASS_COUNT : PASS_FWD_NOGRAD); pass++) {
            const int64_t samples = pass == PASS_UPDATE ? on->optim_states : on->samples;
            enum status rc = cost->item_ns(cost->ctx, setting->model, i, (enum pass)pass, samples,
                                           on->device, &ns[pass], extrapolated, err);
            if (rc != OK)
                return rc;
            ns[pass] = device_ns(on->device, ns[pass]);
        }
        times[i - first_item] = (struct cut_time){.fwd_ns = ns[PASS_FWD],
                                                  .bwd_input_ns = ns[PASS_BWD_INPUT],
                                                  .bwd_weight_ns = ns[PASS_BWD_WEIGHT],
                                                  .update_ns = ns[PASS_UPDATE],
                                                  .bwd_rest_ns = ns[PASS_BWD_REST],
                                                  .fwd_nograd_ns = ns[PASS_FWD_NOGRAD]};
    }
    return OK;
}

/* Number the different devices of replica 0's stages. class_of_stage[s] is the class of stage s,
 * stage_of_class[c] the first stage of class c. Returns the number of classes. */
static int classify(const struct cluster *cluster, const struct plan *plan, int *class_of_stage,
                    int *stage_of_class)
{
    int num = 0;
    for (int s = 0; s < plan->num_stages; s++) {
        const struct device *mine = &cluster->devices[plan->device[schedule_rank_of_stage(
            plan->schedule, plan->num_ranks, s)]];
        int c = 0;
        for (; c < num; c++) {
            const struct device *other = &cluster->devices[plan->device[schedule_rank_of_stage(
                plan->schedule, plan->num_ranks, stage_of_class[c])]];
            if (other->speed == mine->speed && strcmp(other->kind, mine->kind) == 0)
                break;
        }
        if (c == num)
            stage_of_class[num++] = s;
        class_of_stage[s] = c;
    }
    return num;
}

enum status cut_plan(const struct setting *setting, struct plan *plan, struct err *err)
{
    const struct model *model = setting->model;
    const int S = plan->num_stages, frozen = model_frozen_items(model, plan->num_frozen_layers);
    const int first = plan_cut_start(plan, model), items = model->num_items - first;
    enum status rc = OK;
    struct cut cut = {0};
    struct cut_time *times = NULL;
    bool extrapolated = false;
    int *class_of_stage = malloc((size_t)S * sizeof *class_of_stage);
    int *stage_of_class = malloc((size_t)S * sizeof *stage_of_class);
    int *first_item = malloc(((size_t)S + 1) * sizeof *first_item);
    if (!class_of_stage || !stage_of_class || !first_item) {
        rc = err_nomem(err);
        goto out;
    }
    if (S > items) {
        rc = err_set(err, ERR_INFEASIBLE, "cannot cut %s into %s", COUNT_TEXT(items, "item"),
                     COUNT_TEXT(S, "stage"));
        goto out;
    }
    const int classes = classify(setting->cluster, plan, class_of_stage, stage_of_class);
    times = calloc((size_t)classes * (size_t)items, sizeof *times);
    if (!times)
        rc = err_nomem(err);
    for (int c = 0; c < classes && rc == OK; c++) {
        const int rank = schedule_rank_of_stage(plan->schedule, plan->num_ranks, stage_of_class[c]);
        const struct cut_device on = {&setting->cluster->devices[plan->device[rank]],
                                      plan->microbatches.size, plan->optim_bytes_per_param / 4};
        struct cut_time *mine = &times[c * items];
        rc = cut_times(setting, &on, first, mine, &extrapolated, err);
        if (rc == OK && first > 0) /* no item below needs the input gradient of the first one */
            mine[0].bwd_input_ns = mine[0].bwd_rest_ns;
    }
    struct cut_problem problem = {.num_items = items,
                                  .num_stages = S,
                                  .num_frozen = frozen - first,
                                  .num_microbatches = plan->microbatches.count,
                                  .num_classes = classes,
                                  .class_of_stage = class_of_stage,
                                  .times = times,
                                  .overlap = true,
                                  .recompute = recompute_by_stage(plan->recompute)};
    if (rc == OK)
        rc = cut_solve(&problem, &cut, err);
    if (rc != OK)
        goto out;
    for (int s = 0; s <= S; s++)
        first_item[s] = first + cut.first_item[s];
    free(plan->first_item);
    plan->first_item = first_item;
    first_item = NULL;
out:
    cut_clear(&cut);
    free(times);
    free(class_of_stage);
    free(stage_of_class);
    free(first_item);
    return rc;
}

/* Set the cut from the given sizes. */
static enum status take_sizes(const struct model *model, const int64_t *sizes, int num_sizes,
                              struct plan *plan, struct err *err)
{
    const int S = plan->num_stages;
    int64_t at = plan_cut_start(plan, model);
    if (num_sizes != S)
        return err_set(err, ERR_INPUT, "cut has %d stages, expected %d", num_sizes, S);
    plan->first_item = calloc((size_t)S + 1, sizeof *plan->first_item);
    if (!plan->first_item)
        return err_nomem(err);
    for (int s = 0; s < S && at <= model->num_items; s++) {
        plan->first_item[s] = (int)at;
        at += sizes[s];
    }
    plan->first_item[S] = (int)at;
    if (at != model->num_items)
        return err_set(err, ERR_INPUT, "cut covers %lld items, model '%s' has %d", (long long)at,
                       model->name, model->num_items);
    return OK;
}

/* Complete and check the counts, before anything is allocated for them. */
static enum status complete_counts(const struct setting *setting, struct plan *plan,
                                   struct err *err)
{
    const struct model *model = setting->model;
    const int wanted = plan->microbatches.count;
    int64_t devices, stages;
    if (!mul_ok(plan->num_ranks, plan->num_replicas, &devices) ||
        (plan_tensor(plan) == 1 && devices > setting->cluster->num_devices))
        return err_set(err, ERR_INFEASIBLE,
                       "%d replicas of %d devices do not fit cluster '%s' of %d devices",
                       plan->num_replicas, plan->num_ranks, setting->cluster->name,
                       setting->cluster->num_devices);
    if (plan->chunks == 0)
        plan->chunks = schedule_default_chunks(plan->schedule);
    if (!mul_ok(plan->num_ranks, plan->chunks, &stages) || stages > SCHEDULE_MAX_STAGES)
        return err_set(err, ERR_INPUT, "%d stages of %d chunks, at most %d stages", plan->num_ranks,
                       plan->chunks, SCHEDULE_MAX_STAGES);
    if (stages > model->num_items)
        return err_set(err, ERR_INFEASIBLE, "cannot cut %d items of model '%s' into %lld stages",
                       model->num_items, model->name, (long long)stages);
    enum status rc = model_check_frozen(model, plan->num_frozen_layers, err);
    if (rc != OK)
        return rc;
    if (wanted > plan->batch)
        return err_set(err, ERR_INFEASIBLE, "cannot cut a batch of %lld into %d micro-batches",
                       (long long)plan->batch, wanted);
    plan->num_stages = (int)stages;
    plan->microbatches = microbatches_of(plan->batch, wanted);
    if (plan->num_frozen_layers == 0)
        plan->frozen = FROZEN_NONE;
    else if (plan->frozen == FROZEN_NONE)
        plan->frozen = FROZEN_SPREAD;
    return plan_check_counts(plan, model, setting->cluster, err);
}

/* cut_plan() with the times of the plan's groups. */
static enum status cut_groups(const struct setting *setting, struct plan *plan, struct err *err)
{
    struct tensor_group *group;
    const struct division division = plan_division(plan);
    enum status rc = tensor_group_new(setting, &division, &group, err);
    const struct setting own = tensor_group_setting(group, setting);
    if (rc == OK)
        rc = cut_plan(&own, plan, err);
    tensor_group_free(group);
    return rc;
}

enum status plan_complete(const struct setting *setting, const int64_t *sizes, int num_sizes,
                          struct plan *plan, struct err *err)
{
    enum status rc = complete_counts(setting, plan, err);
    if (rc != OK)
        return rc;
    plan->device =
        calloc((size_t)plan->num_ranks * (size_t)plan->num_replicas, sizeof *plan->device);
    if (!plan->device)
        rc = err_nomem(err);
    if (rc == OK)
        rc = autodp_map_groups(setting->cluster, MAP_PIPELINE_INSIDE, plan_tensor(plan),
                               plan->num_ranks, plan->num_replicas, plan->device, err);
    if (rc == OK)
        rc = sizes ? take_sizes(setting->model, sizes, num_sizes, plan, err)
                   : cut_groups(setting, plan, err);
    if (rc == OK && plan->recompute == RECOMPUTE_LAYER && !plan->recompute_layers) {
        plan->recompute_layers = calloc((size_t)plan->num_stages, sizeof *plan->recompute_layers);
        rc = plan->recompute_layers ? OK : err_nomem(err);
    }
    if (rc == OK)
        rc = plan_check(plan, setting->model, setting->cluster, err);
    if (rc != OK)
        plan_clear(plan);
    return rc;
}

enum status cut_chain_solve(const struct cut_chain *chain, struct cut *cut, int64_t *stage_ns,
                            struct err *err)
{
    const struct model *model = chain->model;
    const int frozen = chain->num_frozen, stages = chain->num_stages;
    const int n = model->num_items - frozen;
    const int64_t scale = model->per_microbatch ? 1 : chain->samples;
    struct cut_time *times = malloc((size_t)n * sizeof *times);
    struct cut_item *items = malloc((size_t)n * sizeof *items);
    struct cut_skip *skips = malloc(((size_t)model->num_skips + 1) * sizeof *skips);
    struct cut_link *links = malloc((size_t)stages * sizeof *links);
    int64_t *live = malloc((size_t)stages * sizeof *live);
    int64_t *limits = malloc((size_t)stages * sizeof *limits);
    struct cut_problem problem = {.num_items = n,
                                  .num_stages = stages,
                                  .num_microbatches = chain->num_microbatches,
                                  .num_classes = 1,
                                  .times = times,
                                  .items = items,
                                  .skips = skips,
                                  .links = chain->link_bytes_per_s > 0 ? links : NULL,
                                  .live = live,
                                  .mem_limit_bytes = chain->mem_bytes < INT64_MAX ? limits : NULL};
    enum status rc = OK;
    if (!times || !items || !skips || !links || !live || !limits) {
        rc = err_nomem(err);
        goto out;
    }
    for (int i = 0; rc == OK && i < n; i++) {
        const struct item *item = &model->items[frozen + i];
        times[i] = chain->times[frozen + i];
        if (i == 0 && frozen > 0)
            times[i].bwd_input_ns = times[i].bwd_rest_ns;
        items[i] = (struct cut_item){.weight_bytes = 4 * item->params,
                                     .train_bytes = 8 * item->params,
                                     .tied_bytes = 12 * item->tied_params};
        if (!mul_ok(item->act_bytes, scale, &items[i].out_bytes) ||
            !mul_ok(item->stash_bytes, scale, &items[i].stash_bytes))
            rc = err_set(err, ERR_INPUT, "the size of item %d overflows", frozen + i);
    }
    for (int e = 0; rc == OK && e < model->num_skips; e++) {
        const struct skip_edge *skip = &model->skips[e];
        struct cut_skip *active = &skips[problem.num_skips];
        if (skip->from < frozen)
            continue;
        *active = (struct cut_skip){.from = skip->from - frozen, .to = skip->to - frozen};
        problem.num_skips++;
        if (!mul_ok(skip->bytes, scale, &active->bytes))
            rc = err_set(err, ERR_INPUT, "the size of skip edge %d -> %d overflows", skip->from,
                         skip->to);
    }
    for (int k = 0; k < stages; k++) {
        links[k] = (struct cut_link){chain->latency_ns, chain->link_bytes_per_s};
        live[k] = stages - k < chain->num_microbatches ? stages - k : chain->num_microbatches;
        limits[k] = chain->mem_bytes;
    }
    if (rc == OK)
        rc = cut_solve(&problem, cut, err);
    if (rc == OK)
        cut_evaluate(&problem, cut->first_item, stage_ns, NULL);
out:
    free(times);
    free(items);
    free(skips);
    free(links);
    free(live);
    free(limits);
    return rc;
}
