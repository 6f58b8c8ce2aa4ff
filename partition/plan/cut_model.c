/* From a model and a cost source to the problem of cut.h: times of items, and the cut of a chain of
 * equal devices with communication and memory. */
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
