#include "partition/plan/plausible.h"

#include <math.h>

#include "partition/base/units.h"
#include "partition/cluster/device_kinds.h"

/* A weight is stored in 4 bits at least. */
#define LEAST_WEIGHT_BYTES 0.5
/* Rounding of times to ns and of rates to doubles. */
#define ROUNDING 1e-6

static enum status refuse(struct err *err, const char *what, double value, const char *unit,
                          const char *limit)
{
    err_set(err, ERR_SYSTEM, "internal error: the answer has %s of %.4g%s, %s", what, value, unit,
            limit);
    err_hint(err, "no such step exists, so this is an error of elapse: please report it with its "
                  "command and job");
    return ERR_SYSTEM;
}

static double fastest_device(const struct cluster *cluster)
{
    double most = 1;
    for (int d = 0; d < cluster->num_devices; d++)
        most = fmax(most, cluster->devices[d].speed);
    return most;
}

/* Weights of the layers in the stages of a rank, on one device of its group. Experts are left out: those
 * that no token takes are not read. */
static double rank_weights(const struct model *model, const struct plan *plan, int rank)
{
    double sum = 0;
    for (int s = 0; s < plan->num_stages; s++)
        for (int i = plan->first_item[s];
             i < plan->first_item[s + 1] && plan_rank_of_stage(plan, s) == rank; i++)
            if (model->items[i].layer >= 0 && model->items[i].layer < model->num_layers)
                sum += (double)(model->items[i].params + model->items[i].base_params);
    return sum / layout_tensor(&plan->layout);
}

static enum status check_speed(const struct step_claim *claim, struct err *err)
{
    const struct setting *setting = claim->setting;
    const struct plan *plan = claim->plan;
    /* Rates count the weight gradients that shares leave out, a third of the flops. */
    const double counted = plan->shares.share ? 1.5 : 1;
    const double limit = claim->speed * fastest_device(setting->cluster) * counted * (1 + ROUNDING);
    if (claim->rates.mfu > limit || claim->rates.hfu > limit)
        return refuse(err, "an MFU", 100 * fmax(claim->rates.mfu, claim->rates.hfu), " %",
                      "more than the peak of its devices");
    for (int k = 0; k < plan->num_ranks && setting->model->experts <= 1; k++) {
        const struct roofline *roof = device_roofline(&setting->cluster->devices[plan->device[k]]);
        const double bytes = rank_weights(setting->model, plan, k) * LEAST_WEIGHT_BYTES;
        const double least_ns =
            roof && roof->mem_bytes_per_s > 0 ? bytes / (roof->mem_bytes_per_s * limit) * 1e9 : 0;
        if ((double)claim->step_ns + 1 < least_ns)
            return refuse(err, "a step", (double)claim->step_ns, " ns",
                          "in which its weights cannot be read once");
    }
    return OK;
}

static enum status check_memory(const struct step_claim *claim, bool computed, struct err *err)
{
    const struct plan *plan = claim->plan;
    const struct model *model = claim->setting->model;
    double held = 0, weights = 0;
    for (int k = 0; k < plan->num_ranks; k++) {
        held += (double)claim->memory_bytes[k] * plan->num_pipelines * layout_tensor(&plan->layout);
        for (int r = 0; r < plan->num_pipelines && claim->fits; r++) {
            const int device = plan->device[r * plan->num_ranks + k];
            if (claim->memory_bytes[k] > claim->setting->cluster->devices[device].mem_bytes)
                return refuse(err, "a peak", (double)claim->memory_bytes[k], " B",
                              "more than its device has");
        }
    }
    for (int i = plan->first_item[0]; i < model->num_items && computed; i++)
        weights += (double)(model->items[i].params + model->items[i].base_params);
    return held < weights * LEAST_WEIGHT_BYTES
               ? refuse(err, "a memory", held, " B on all devices", "less than its weights take")
               : OK;
}

enum status plausible_step(const struct step_claim *claim, struct err *err)
{
    const enum cost_source source = claim->setting->cost->source;
    const bool computed = source == COST_KERNELS || source == COST_ROOFLINE;
    enum status rc = OK;
    if (claim->step_ns < 0 || (computed && claim->step_ns == 0))
        rc = refuse(err, "a step", (double)claim->step_ns, " ns", "which is no time");
    if (rc == OK && (claim->bubble < 0 || claim->bubble > 1))
        rc = refuse(err, "a bubble", 100 * claim->bubble, " %", "which is no share of a step");
    if (rc == OK && computed)
        rc = check_speed(claim, err);
    if (rc == OK && claim->memory_bytes)
        rc = check_memory(claim, computed, err);
    return rc;
}
