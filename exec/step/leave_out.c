/* exec/step/leave_out.c - timed freezing in a step: which weight gradients the backwards leave out,
 * and what becomes of the sums.
 *
 * A choice is a function of the run's seed, the step, the micro-batch of a replica and the shares,
 * so every rank knows those of all stages and replicas, and none is sent. */
#include <string.h>

#include "exec/step/runtime_state.h"

struct left_out {
    bool *items;      /* [microbatches][items]; in one array of the runtime each */
    int64_t *counted; /* [items]: samples of the step, over all replicas, that the sum has */
    bool *any;        /* [items]: whether that is any */
    int64_t total;    /* samples of the step */
};

enum status runtime_leave_out(struct runtime *rt, const struct leave_out *rule, struct err *err)
{
    const int64_t items = rt->spec.model->num_items, m = rt->num_microbatches;
    rt->leave_out = rule ? *rule : (struct leave_out){0};
    for (int s = 0; !rule && s < rt->spec.workload->num_stages; s++)
        if (rt->stages[s].stage)
            stage_counted(rt->stages[s].stage, NULL, false);
    if (!rule || rt->left_out)
        return OK;
    struct left_out *left = runtime_new_zeroed(rt, 1, sizeof *left);
    if (left) {
        left->items = runtime_new_zeroed(rt, m * items, sizeof *left->items);
        left->counted = runtime_new_zeroed(rt, items, sizeof *left->counted);
        left->any = runtime_new_zeroed(rt, items, sizeof *left->any);
    }
    if (rt->arrays.failed) {
        rt->leave_out = (struct leave_out){0};
        return err_nomem(err);
    }
    rt->left_out = left;
    return OK;
}

/* Samples of a micro-batch over all replicas. */
static int64_t samples_of(const struct runtime *rt, const struct batch *batch, int microbatch)
{
    int64_t first, sum = 0;
    if (!rt->spec.sampler)
        return batch->blocks[microbatch].num_samples;
    for (int r = 0; r < rt->spec.plan->num_pipelines; r++)
        sum += sampler_microbatch(rt->spec.sampler, batch->step, r, microbatch, &first);
    return sum;
}

static void choose_pass(struct runtime *rt, int stage, int microbatch, int64_t step)
{
    const struct plan *plan = rt->spec.plan;
    const int frozen = model_frozen_items(rt->spec.model, plan->num_frozen_layers);
    const struct leave_out *rule = &rt->leave_out;
    const struct freeze_pass pass = {
        .seed = rt->spec.job->train.seed,
        .step = step,
        .microbatch = microbatch,
        .first_item = plan->first_item[stage] > frozen ? plan->first_item[stage] : frozen,
        .end_item = plan->first_item[stage + 1],
        .share = rule->ramp * rule->share[stage * rt->num_microbatches + microbatch],
        .order = rule->order,
    };
    bool *items = rt->left_out->items + (size_t)microbatch * (size_t)rt->spec.model->num_items;
    if (pass.first_item < pass.end_item)
        freeze_choose(rule->choice, &pass, items + pass.first_item);
}

void runtime_choose(struct runtime *rt, const struct batch *batch, int64_t step)
{
    struct left_out *left = rt->left_out;
    const int items = rt->spec.model->num_items;
    if (!rt->leave_out.share)
        return;
    left->total = 0;
    memset(left->counted, 0, (size_t)items * sizeof *left->counted);
    for (int m = 0; m < rt->num_microbatches; m++) {
        const int64_t samples = samples_of(rt, batch, m);
        for (int s = 0; s < rt->spec.plan->num_stages; s++)
            choose_pass(rt, s, m, step);
        for (int i = 0; i < items; i++)
            left->counted[i] += left->items[m * items + i] ? 0 : samples;
        left->total += samples;
    }
    for (int i = 0; i < items; i++)
        left->any[i] = left->counted[i] > 0;
    for (int s = 0; s < rt->spec.plan->num_stages; s++)
        if (rt->stages[s].stage)
            stage_counted(rt->stages[s].stage, left->any + rt->spec.plan->first_item[s],
                          left->any[0] || left->any[items - 1]);
}

const bool *runtime_left_out(const struct runtime *rt, int stage, int microbatch)
{
    return rt->leave_out.share
               ? rt->left_out->items + (size_t)microbatch * (size_t)rt->spec.model->num_items +
                     rt->spec.plan->first_item[stage]
               : NULL;
}

void runtime_rescale(struct runtime *rt)
{
    const struct left_out *left = rt->left_out;
    if (!rt->leave_out.share || !rt->leave_out.rescale)
        return;
    for (int s = 0; s < rt->spec.plan->num_stages; s++)
        for (int i = rt->spec.plan->first_item[s];
             rt->stages[s].stage && i < rt->spec.plan->first_item[s + 1]; i++)
            if (left->counted[i] > 0 && left->counted[i] < left->total)
                stage_scale_grad(rt->stages[s].stage, i - rt->spec.plan->first_item[s],
                                 (float)((double)left->total / (double)left->counted[i]));
}
