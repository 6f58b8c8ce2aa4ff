#include "partition/plan/rates.h"

#include <math.h>

#include "partition/base/units.h"
#include "partition/cluster/device_kinds.h"
#include "partition/model/attention.h"
#include "partition/model/lora.h"
#include "partition/model/packing.h"

/* Whether an item is in one of the first `layers` layers of its stage that train
 * (RECOMPUTE_LAYER). */
struct again {
    int left, layer;
};

static bool runs_again(struct again *again, const struct item *item, int num_layers)
{
    if (item->layer < 0 || item->layer >= num_layers)
        return false;
    if (item->layer != again->layer) {
        again->layer = item->layer;
        again->left--;
    }
    return again->left >= 0;
}

/* Of an item, for a sample without padding: the forward, and its attention core. */
static double useful_core(const struct model *model, int item)
{
    const double core = (double)model_core_flops(model, item);
    const int layer = model->items[item].layer;
    return core > 0 && model->packing.documents > 0
               ? core * model_document_pairs(model, layer) /
                     (double)model_attention_pairs(model, layer)
               : core;
}

static double useful_share(const struct model *model)
{
    return model->packing.documents > 0 ? model->packing.tokens / (double)model_sample_tokens(model)
                                        : 1;
}

static double useful_forward(const struct model *model, int item)
{
    const double core = (double)model_core_flops(model, item);
    return ((double)model->items[item].fwd_flops - core) * useful_share(model) +
           useful_core(model, item);
}

/* Forward flops that recompute adds to a sample. */
static double again_flops(const struct model *model, const struct plan *plan, int frozen)
{
    const double last =
        plan->batch > 0 ? (double)plan->microbatches.last_size / (double)plan->batch : 0;
    double sum = 0;
    for (int s = 0; s < plan->num_stages; s++) {
        struct again again = {plan->recompute_layers ? plan->recompute_layers[s] : 0, -1};
        for (int i = plan->first_item[s]; i < plan->first_item[s + 1]; i++) {
            const double forward = useful_forward(model, i);
            if (i < frozen)
                continue;
            switch (plan->recompute) {
            case RECOMPUTE_STAGE:
            case RECOMPUTE_STAGE_EARLY:
                sum += forward;
                break;
            case RECOMPUTE_EXCEPT_LAST:
                sum += forward * (1 - last);
                break;
            case RECOMPUTE_SELECTIVE:
                sum += useful_core(model, i);
                break;
            case RECOMPUTE_NORMS:
            case RECOMPUTE_OP:
                sum += (double)model_rerun_flops(model, i, recompute_parts(plan->recompute)) *
                       useful_share(model);
                break;
            case RECOMPUTE_LAYER:
                sum += runs_again(&again, &model->items[i], model->num_layers) ? forward : 0;
                break;
            default:
                break;
            }
        }
    }
    return sum;
}

struct sample_flops rates_sample_flops(const struct model *model, const struct plan *plan)
{
    const int frozen = model_frozen_items(model, plan->num_frozen_layers);
    double sum = 0;
    if (model->per_microbatch)
        return (struct sample_flops){0};
    for (int i = 0; i < model->num_items; i++) {
        const struct item *item = &model->items[i];
        const double forward = useful_forward(model, i);
        if (item->kind == ITEM_OPAQUE && item->fwd_flops == 0 && item->num_pieces == 0)
            return (struct sample_flops){0};
        if (i >= frozen && model_item_is_base(model, i)) /* only adapters have weights' gradients */
            sum += 2 * forward + (double)model_adapter_flops(model, i) * useful_share(model);
        else if (i >=
                 frozen) /* the first active item gives no gradient of its input to a frozen one */
            sum += (frozen > 0 && i == frozen ? 1 : 2) * forward +
                   model_weight_share(model, i, plan->num_frozen_layers) * forward;
        else if (plan->frozen != FROZEN_CACHED)
            sum += forward;
    }
    return (struct sample_flops){sum, sum + again_flops(model, plan, frozen)};
}

double rates_sample_tokens(const struct model *model)
{
    return model_has_images(model) ? 0 : model_row_tokens(model);
}

static double peak_of(const struct device *device, enum dtype dtype)
{
    const struct roofline *roof = device_roofline(device);
    if (!roof)
        return 0;
    const double peak[] = {[DTYPE_FP32] = roof->fp32_flops_per_s,
                           [DTYPE_BF16] = roof->bf16_flops_per_s,
                           [DTYPE_TF32] = roof->tf32_flops_per_s,
                           [DTYPE_FP16] = roof->fp16_flops_per_s,
                           [DTYPE_FP8] = roofline_narrow_peak(roof, NARROW_FP8),
                           [DTYPE_MXFP8] = roofline_narrow_peak(roof, NARROW_MXFP8),
                           [DTYPE_NVFP4] = roofline_narrow_peak(roof, NARROW_NVFP4)};
    return peak[dtype];
}

/* Sum of the peaks of the devices in use; 0 if one is unknown. */
static double plan_peak(const struct cluster *cluster, const struct plan *plan, enum dtype dtype)
{
    double sum = 0;
    for (int64_t i = 0; i < (int64_t)plan->num_ranks * plan->num_pipelines; i++)
        for (int t = 0; t < layout_tensor(&plan->layout); t++) {
            const double peak = peak_of(&cluster->devices[plan->device[i] + t], dtype);
            if (!(peak > 0))
                return 0;
            sum += peak;
        }
    return sum;
}

struct step_rates rates_of_step(const struct model *model, const struct cluster *cluster,
                                const struct plan *plan, enum dtype dtype, double samples_per_s)
{
    const struct sample_flops flops = rates_sample_flops(model, plan);
    const double devices = (double)plan_num_devices(plan), peak = plan_peak(cluster, plan, dtype);
    const double tokens = rates_sample_tokens(model) * samples_per_s;
    return (struct step_rates){
        .samples_per_s = samples_per_s,
        .images_per_s = model_has_images(model) ? samples_per_s : 0,
        .documents_per_s = model->packing.documents * samples_per_s,
        .tokens_per_s = tokens,
        .tokens_per_s_per_device = tokens / devices,
        .flops_per_s_per_device = flops.model * samples_per_s / devices,
        .hardware_flops_per_s_per_device = flops.hardware * samples_per_s / devices,
        .mfu = peak > 0 ? flops.model * samples_per_s / peak : 0,
        .hfu = peak > 0 ? flops.hardware * samples_per_s / peak : 0,
    };
}

struct run_cost run_cost_of(const struct cluster *cluster, int64_t run_ns)
{
    const double hours = (double)run_ns / 3.6e12 * cluster->num_devices;
    return (struct run_cost){.run_ns = run_ns,
                             .device_hours = hours,
                             .cost = hours * cluster->price_per_hour,
                             .energy_kwh = hours * cluster->power_watts / 1000};
}

int64_t rates_run_samples(const struct job *job, const struct plan *plan, int64_t num_samples)
{
    const int64_t all = mul_saturated(num_samples, job->train.epochs);
    const int64_t step = plan_samples(plan);
    const int64_t limit = mul_saturated(job->train.max_steps, step);
    if (job->data.kind == DATA_SYNTHETIC && job->data.train_samples == 0 &&
        job->train.tokens == 0 && job->data.documents == 0 && job->train.max_steps == 0)
        return 0; /* its samples are a round figure that nobody asked for */
    return job->train.max_steps > 0 && limit < all ? limit : all;
}

int64_t rates_run_ns(int64_t samples, double samples_per_s)
{
    const double ns = samples_per_s > 0 ? ceil((double)samples / samples_per_s * 1e9) : 0;
    return ns < 9.2e18 ? (int64_t)ns : INT64_MAX;
}
