#include "exec/probe/probe_pass.h"

#include <math.h>
#include <stdlib.h>

#include "exec/trainer/stop.h"

void probe_each_stage(struct trainer *t, void (*visit)(struct stage *stage, const int *range),
                      const int *range)
{
    for (int s = 0; t->deployment.stages && s <= t->deployment.plan.plan.num_stages; s++)
        if (t->deployment.stages[s])
            visit(t->deployment.stages[s], range);
}

static void swap(struct stage *stage, const int *range)
{
    stage_lag_swap(stage, range[0], range[1]);
}

static enum status append(struct probe_blocks *blocks, const struct runtime *runtime,
                          struct err *err)
{
    const int most = runtime_num_blocks(runtime);
    struct loss_sums *grown =
        realloc(blocks->sums, ((size_t)blocks->num + (size_t)most) * sizeof *grown);
    if (!grown)
        return err_nomem(err);
    blocks->sums = grown;
    for (int i = 0; i < most; i++) {
        const struct loss_sums one = runtime_block(runtime, i);
        if (one.count > 0)
            grown[blocks->num++] = one;
    }
    return OK;
}

enum status probe_measure(struct trainer *t, const struct probe_window *window,
                          struct probe_pass *pass, struct probe_blocks *blocks, struct err *err)
{
    const int64_t steps = sampler_steps_per_epoch(&window->sampler);
    const bool swaps = pass->lagged[0] < pass->lagged[1];
    enum status rc = OK;
    if (swaps)
        probe_each_stage(t, swap, pass->lagged);
    for (int64_t s = 0; rc == OK && s < steps; s++) {
        const struct batch *batch;
        struct loss_sums sums;
        pass->part.batch = s;
        rc = trainer_batch(t, window->loader, 0, s, &batch, err);
        THEN(runtime_eval_part(t->deployment.runtime, batch, &pass->part, &sums, err));
        THEN(append(blocks, t->deployment.runtime, err));
        THEN(stop_agreed(t->deployment.place.active, &t->probe.cut, err));
        if (rc == OK && t->probe.cut)
            rc = ERR_SYSTEM;
    }
    if (swaps)
        probe_each_stage(t, swap, pass->lagged);
    t->probe.passes++;
    return rc;
}

double probe_mean(const struct probe_blocks *blocks)
{
    double loss = 0, count = 0;
    for (int i = 0; i < blocks->num; i++) {
        loss += blocks->sums[i].loss;
        count += (double)blocks->sums[i].count;
    }
    return count > 0 ? loss / count : 0;
}

/* Sum over the passes of weight[k] * loss, in block b. */
static double block_loss(const struct probe_blocks *const *passes, const double *weight,
                         int num_passes, int b)
{
    double loss = 0;
    for (int k = 0; k < num_passes; k++)
        loss += weight[k] * passes[k]->sums[b].loss;
    return loss;
}

void probe_combine(const struct probe_blocks *const *passes, const double *weight, int num_passes,
                   double *value, double *se)
{
    const struct probe_blocks *any = passes[0];
    double sum = 0, count = 0, squares = 0;
    for (int b = 0; b < any->num; b++) {
        sum += block_loss(passes, weight, num_passes, b);
        count += (double)any->sums[b].count;
    }
    *value = count > 0 ? sum / count : 0;
    for (int b = 0; b < any->num; b++) {
        const double rest =
            block_loss(passes, weight, num_passes, b) - *value * (double)any->sums[b].count;
        squares += rest * rest;
    }
    *se = any->num > 1 && count > 0 ? sqrt(squares * any->num / (any->num - 1)) / count
                                    : fabs(*value);
}
