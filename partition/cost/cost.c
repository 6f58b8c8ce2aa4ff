/* Cost sources without a profile: constants of the model, and the roofline over the published
 * figures of device_kinds.h. pass_flops() and pass_bytes() count the work of a pass for the
 * roofline. The cost_ functions at the end answer for any source. Read struct cost in cost.h first.
 */
#include "partition/cost/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "partition/model/attention.h"

static int64_t table_pass(const struct time_row *row, enum pass pass)
{
    return pass == PASS_FWD || pass == PASS_FWD_NOGRAD ? row->fwd_ns
           : pass == PASS_BWD_WEIGHT                   ? row->bwd_weight_ns
                                                       : row->bwd_input_ns;
}

/* Linear between two rows, and on the line of the two nearest rows outside the table, which is
 * flagged. A single row stands for a time per sample. */
static enum status table_ns(const struct time_table *times, enum pass pass, int64_t samples,
                            int64_t *ns, bool *extrapolated, struct err *err)
{
    const struct time_row none = {0}, *rows = times->rows;
    const int n = times->num_rows;
    int right = 1;
    while (right < n - 1 && rows[right].samples < samples)
        right++;
    const struct time_row *a = n > 1 ? &rows[right - 1] : &none, *b = &rows[n > 1 ? right : 0];
    const int64_t from = table_pass(a, pass), rise = table_pass(b, pass) - from;
    const __int128 got = from + (__int128)rise * (samples - a->samples) / (b->samples - a->samples);
    if (samples < rows[0].samples || samples > rows[n - 1].samples)
        *extrapolated = true;
    if (got > INT64_MAX)
        return err_set(err, ERR_INPUT, "time of %lld samples overflows", (long long)samples);
    *ns = got > 0 ? (int64_t)got : 0;
    return OK;
}

static enum status no_table(const struct model *model, int item, const struct device *device,
                            struct err *err)
{
    const struct item *it = &model->items[item];
    const char *kinds[8];
    char list[160];
    int n = 0;
    for (int t = 0; t < it->num_times && n < 8; t++)
        kinds[n++] = model->times[it->first_times + t].kind;
    return err_set(err, ERR_INFEASIBLE,
                   "item '%s' of model '%s' has no times of device kind '%s', only of %s", it->name,
                   model->name, device->kind, join_names(kinds, n, list, sizeof list));
}

static enum status constant_item_ns(const void *ctx, const struct model *model, int item,
                                    enum pass pass, int64_t samples, const struct device *device,
                                    int64_t *ns, bool *extrapolated, struct err *err)
{
    (void)ctx;
    const struct item *it = &model->items[item];
    if (it->num_times > 0 && pass != PASS_UPDATE) {
        const struct time_table *times = model_time_table(model, item, device->kind);
        return times ? table_ns(times, pass, samples, ns, extrapolated, err)
                     : no_table(model, item, device, err);
    }
    if (it->kind != ITEM_OPAQUE)
        return err_set(err, ERR_INFEASIBLE,
                       "no constant times for item '%s' of model '%s': only uniform and explicit "
                       "models carry them",
                       it->name, model->name);
    int64_t one = 0;
    switch (pass) {
    case PASS_FWD:
        one = it->fwd_ns;
        break;
    case PASS_BWD_INPUT:
        one = it->bwd_input_ns;
        break;
    case PASS_BWD_WEIGHT:
        one = it->bwd_weight_ns;
        break;
    case PASS_BWD_REST:
        one = it->bwd_rest_ns;
        break;
    case PASS_FWD_NOGRAD:
        one = it->fwd_ns - it->fwd_stash_ns;
        break;
    case PASS_UPDATE:
    case PASS_COUNT:
        one = it->update_ns;
        break;
    }
    bool once = model->per_microbatch || pass == PASS_UPDATE;
    if (!mul_ok(one, once ? 1 : samples, ns))
        return err_set(err, ERR_INPUT, "time of item '%s' overflows: %lld ns x %lld samples",
                       it->name, (long long)one, (long long)samples);
    return OK;
}

void cost_constant(struct cost *cost)
{
    *cost = (struct cost){.source = COST_CONSTANT, .item_ns = constant_item_ns};
    snprintf(cost->label, sizeof cost->label, "constants of the model");
}

/* Flops that PASS_BWD_REST saves: the product that computes the gradient of the first linear's
 * input. In pre-norm blocks the LayerNorm in front needs that gradient for its weights, so nothing
 * is saved. */
static double last_dgrad_flops(const struct model *model, const struct item *it)
{
    const double hidden = model->hidden, tokens = model->seq;
    const bool post_norm = model_family_traits(model->family)->post_norm;
    switch (it->kind) {
    case ITEM_ATTENTION: /* QKV */
        return post_norm ? 6 * hidden * hidden * tokens : 0;
    case ITEM_MLP:
        return post_norm ? 2 * hidden * model->mlp * tokens : 0;
    case ITEM_HEAD: /* masked LM: its first linear is a dense layer before the token table */
        return model->task == TASK_MLM ? 2 * hidden * hidden * (double)model_masked_of(model->seq)
                                       : (double)it->fwd_flops;
    case ITEM_POOLER:
        return (double)it->fwd_flops;
    default:
        return 0;
    }
}

/* Flops of one sample. Backward does twice the work of forward. The weight pass repeats the forward
 * product of each weight (2 x params x tokens). The input pass does the rest: the input gradients,
 * and attention's score products twice. The embedding's input has no gradient. */
static double pass_flops(const struct model *model, const struct item *it, enum pass pass)
{
    double fwd = (double)it->fwd_flops;
    const double tokens = model->seq > 0 ? model->seq : 1;
    double weight = 2.0 * (double)it->params * tokens;
    if (weight > fwd)
        weight = fwd;
    /* The forward's products with weights, frozen ones too; the rest of the forward is scores. */
    double products = fmin(2.0 * (double)(it->params + it->base_params) * tokens, fwd);
    if (it->num_pieces > 0 || it->kind == ITEM_STATE) /* its linears are listed */
        products = weight = (double)model_product_flops(model, it);
    switch (pass) {
    case PASS_FWD:
    case PASS_FWD_NOGRAD:
        return fwd;
    case PASS_BWD_INPUT:
        return it->kind == ITEM_EMBEDDING ? 0 : 2 * fwd - products;
    case PASS_BWD_WEIGHT:
        return weight;
    case PASS_BWD_REST:
        return it->kind == ITEM_EMBEDDING
                   ? 0
                   : fmax(0, 2 * fwd - products - last_dgrad_flops(model, it));
    case PASS_UPDATE:
    case PASS_COUNT:
        break;
    }
    return 0;
}

/* Bytes that one micro-batch moves to and from device memory: the weights once, and per sample the
 * stash and one tensor of activation size. Forward writes the stash and its output; each half of
 * the backward reads the stash and one gradient. Update reads weight, gradient and one moment and
 * writes two of them. */
static double pass_bytes(const struct model *model, const struct item *it, enum pass pass,
                         int64_t samples)
{
    double params = (double)it->params * model->param_bytes;
    const double base = (double)it->base_params * model->elem_bytes;
    const double own = (double)it->moved_bytes;
    double moved =
        (double)samples * (own > 0 ? own : (double)it->stash_bytes + (double)it->act_bytes);
    switch (pass) {
    case PASS_FWD:
    case PASS_FWD_NOGRAD: /* kernels still pass these tensors through memory, then drop them */
        return params + base + moved;
    case PASS_BWD_INPUT:
    case PASS_BWD_REST:
        return it->kind == ITEM_EMBEDDING ? 0 : params + base + moved;
    case PASS_BWD_WEIGHT:
        return model->lora.rank > 0 && it->params == 0 ? 0 : params + moved;
    case PASS_UPDATE:
    case PASS_COUNT:
        break;
    }
    return 5 * params;
}

/* The part of an item's flops that has the narrow format: the products of a layer's weights. */
static double narrow_share(const struct model *model, int item, const struct cost_options *options)
{
    const struct item *it = &model->items[item];
    const bool layer = it->kind == ITEM_ATTENTION || it->kind == ITEM_MLP || it->kind == ITEM_STATE;
    if (options->narrow == NARROW_NONE || !layer || it->fwd_flops == 0)
        return 0;
    return it->kind == ITEM_STATE
               ? (double)model_product_flops(model, it) / (double)it->fwd_flops
               : 1 - (double)model_core_flops(model, item) / (double)it->fwd_flops;
}

/* Williams, Waterman, Patterson: Roofline, CACM 2009. */
static enum status roofline_item_ns(const void *ctx, const struct model *model, int item,
                                    enum pass pass, int64_t samples, const struct device *device,
                                    int64_t *ns, bool *extrapolated, struct err *err)
{
    (void)extrapolated;
    const struct cost_options *options = ctx ? ctx : &(struct cost_options){.efficiency = 1};
    const struct item *it = &model->items[item];
    const struct roofline *roof = device_roofline(device);
    if (!roof) {
        enum status rc = err_set(err, ERR_INFEASIBLE,
                                 "no published data for device kind '%s', so no roofline of model "
                                 "'%s'",
                                 device->kind, model->name);
        const struct kind *typed = kind_find_typed(device->kind);
        if (typed)
            err_hint(err, "write '%s'", typed->name);
        else
            err_hint(err,
                     "'elapse devices' lists the known kinds; or measure it with 'elapse profile'");
        return rc;
    }
    if (it->kind == ITEM_OPAQUE && it->fwd_flops == 0 && it->fwd_ns > 0)
        return err_set(err, ERR_INFEASIBLE,
                       "no flops for item '%s' of model '%s', so no roofline of it", it->name,
                       model->name);
    const double peak = roofline_peak(roof, model, options);
    if (!(peak > 0))
        return roofline_no_peak(roof, err);
    enum status rc = roofline_check_narrow(roof, options, err);
    if (rc != OK)
        return rc;
    const double flops = pass_flops(model, it, pass) * (double)samples;
    const double share = narrow_share(model, item, options);
    const double ideal =
        flops * (1 - share) / peak +
        (share > 0 ? flops * share / roofline_narrow_peak(roof, options->narrow) : 0);
    double seconds = fmax(ideal, pass_bytes(model, it, pass, samples) / roof->mem_bytes_per_s) /
                     options->efficiency * (options->compute > 0 ? options->compute : 1);
    double got = seconds * 1e9;
    if (!(got < 9e18))
        return err_set(err, ERR_INPUT, "time of item '%s' overflows: %g s for %lld samples",
                       it->name, seconds, (long long)samples);
    *ns = (int64_t)ceil(got);
    return OK;
}

enum status roofline_check_narrow(const struct roofline *roof, const struct cost_options *options,
                                  struct err *err)
{
    const bool lacks_fp8 = options->fp8_attention && roof->fp8_flops_per_s <= 0;
    if (!lacks_fp8 &&
        (options->narrow == NARROW_NONE || roofline_narrow_peak(roof, options->narrow) > 0))
        return OK;
    const enum status rc =
        err_set(err, ERR_INFEASIBLE, "device kind '%s' has no %s units", roof->kind,
                narrow_format_name(lacks_fp8 ? NARROW_FP8 : options->narrow));
    err_hint(err, "elapse devices %s lists what it has; use train.dtype bf16", roof->kind);
    return rc;
}

enum status roofline_no_peak(const struct roofline *roof, struct err *err)
{
    const enum status rc = err_set(
        err, ERR_INFEASIBLE, "no peak of device kind '%s' is published for this dtype", roof->kind);
    err_hint(
        err,
        "elapse devices %s lists what it has; use bf16 (train.dtype, or --model NAME:dtype=bf16)",
        roof->kind);
    return rc;
}

double roofline_peak(const struct roofline *roof, const struct model *model,
                     const struct cost_options *options)
{
    if (model->elem_bytes == 2)
        return options->fp16 ? roof->fp16_flops_per_s : roof->bf16_flops_per_s;
    return options->tf32 ? roof->tf32_flops_per_s : roof->fp32_flops_per_s;
}

void cost_roofline(struct cost *cost, const struct cost_options *options)
{
    *cost = (struct cost){.source = COST_ROOFLINE, .ctx = options, .item_ns = roofline_item_ns};
    snprintf(cost->label, sizeof cost->label, "ideal: roofline of published data");
    if (options && options->efficiency != 1)
        snprintf(cost->label, sizeof cost->label, "roofline of published data at %g of its speed",
                 options->efficiency);
}

enum status cost_item_ns(const struct cost *cost, const struct model *model, int item,
                         enum pass pass, int64_t samples, const struct device *device,
                         int64_t distance, int64_t *ns, bool *extrapolated, struct err *err)
{
    const enum status rc =
        cost->item_ns(cost->ctx, model, item, pass, samples, device, ns, extrapolated, err);
    if (rc != OK || !cost->near_ns_per_byte || distance == STASH_FAR || pass == PASS_FWD_NOGRAD ||
        pass == PASS_UPDATE)
        return rc;
    const double rate = cost->near_ns_per_byte(
        cost->ctx, device, pass == PASS_BWD_REST ? PASS_BWD_INPUT : pass, distance);
    const double stash =
        (double)model->items[item].stash_bytes * (model->per_microbatch ? 1 : (double)samples);
    *ns -= (int64_t)fmin(floor(rate * stash), (double)*ns);
    return OK;
}

enum status cost_rerun_ns(const struct cost *cost, const struct model *model, int item,
                          enum rerun rerun, int64_t samples, const struct device *device,
                          int64_t *ns, bool *extrapolated, struct err *err)
{
    const int64_t part = model_rerun_flops(model, item, rerun), all = model->items[item].fwd_flops;
    const int64_t bytes = rerun == RERUN_CORE ? 0 : model_rerun_bytes(model, item, rerun);
    *ns = 0;
    if ((part == 0 && bytes == 0) || all == 0)
        return OK;
    if (cost->rerun_ns)
        return cost->rerun_ns(cost->ctx, model, item, rerun, samples, device, ns, extrapolated,
                              err);
    const enum status rc =
        cost->item_ns(cost->ctx, model, item, PASS_FWD, samples, device, ns, extrapolated, err);
    const struct roofline *roof = device_roofline(device);
    const double moved = roof && roof->mem_bytes_per_s > 0
                             ? 2e9 * (double)bytes * (double)samples / roof->mem_bytes_per_s
                             : 0;
    if (rc == OK && part < all)
        *ns = (int64_t)fmin((double)*ns, (double)*ns * ((double)part / (double)all) + moved);
    return rc;
}

int64_t cost_transfer_ns(const struct cost *cost, const struct cluster *cluster, int from, int to,
                         int64_t bytes)
{
    if (from == to)
        return 0;
    return cost->transfer_ns ? cost->transfer_ns(cost->ctx, cluster, from, to, bytes)
                             : cluster_transfer_ns(cluster, from, to, bytes);
}

int64_t cost_allreduce_ns(const struct cost *cost, const struct cluster *cluster,
                          const int *devices, int n, int64_t bytes)
{
    if (n < 2)
        return 0;
    return cost->allreduce_ns
               ? cost->allreduce_ns(cost->ctx, cluster, devices, n, bytes)
               : cost_collective_ns(cost, cluster, COLLECTIVE_ALLREDUCE, devices, n, bytes);
}

/* Apply the source's factors to the time of a collective. */
static int64_t scale_collective(const struct cost *cost, bool between, int64_t ns)
{
    const double factor = between ? cost->between_factor : cost->inside_factor;
    const double scaled = factor > 0 ? ceil((double)ns * factor) : (double)ns;
    return scaled < (double)INT64_MAX ? (int64_t)scaled : INT64_MAX;
}

int64_t cost_collective_ns(const struct cost *cost, const struct cluster *cluster,
                           enum collective kind, const int *devices, int n, int64_t bytes)
{
    const int64_t ns = cluster_collective_ns(cluster, kind, devices, n, bytes);
    bool between = false;
    if (cost->inside_factor == 0 && cost->between_factor == 0)
        return ns;
    for (int i = 1; i < n && !between; i++)
        between = cluster->devices[devices[i]].node != cluster->devices[devices[0]].node;
    return scale_collective(cost, between, ns);
}

int64_t cost_ring_ns(const struct setting *setting, enum collective kind, const struct ring *ring,
                     int64_t bytes)
{
    const struct cost *cost = setting->cost;
    const int64_t ns = cluster_ring_ns(setting->cluster, kind, ring, bytes);
    return cost->inside_factor == 0 && cost->between_factor == 0
               ? ns
               : scale_collective(cost, ring->between, ns);
}

const char *const cost_source_names[] = {"constant", "measured", "published",
                                         "roofline", "kernels",  NULL};

const char *cost_source_name(enum cost_source source)
{
    return cost_source_names[source];
}

const char *const cost_choice_names[] = {"auto", "kernels", "roofline", "profile", NULL};
const char *const fp8_scaling_names[] = {"current", "delayed", NULL};
const char *const graph_parts_names[] = {"none", "mlp", "layers", "step", NULL};

enum status cost_choice_parse(const char *text, enum cost_choice *choice, struct err *err)
{
    for (int i = 0; i < COST_CHOICE_COUNT; i++) {
        if (strcmp(text, cost_choice_names[i]) == 0) {
            *choice = (enum cost_choice)i;
            return OK;
        }
    }
    return err_set(err, ERR_INPUT,
                   "cost must be one of auto, kernels, roofline, profile, got '%.64s'", text);
}

enum status cost_efficiency_check(double efficiency, struct err *err)
{
    if (efficiency >= EFFICIENCY_MIN && efficiency <= EFFICIENCY_MAX)
        return OK;
    return err_set(err, ERR_INPUT, "efficiency must be %g..%d, got %g", EFFICIENCY_MIN,
                   EFFICIENCY_MAX, efficiency);
}
