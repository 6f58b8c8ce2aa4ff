/* Answers of a measured cost source: the functions of struct cost over the curves of struct
 * kind_cost. profile_cost_finish() installs them. Read cost_internal.h first. */
#include "profiles/cost/profile_cost.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/model/attention.h"
#include "partition/model/packing.h"
#include "profiles/cost/cost_internal.h"

static const struct kind_cost *find_kind(const struct profile_cost *ctx, const char *kind)
{
    for (int k = 0; k < ctx->num_kinds; k++)
        if (strcmp(ctx->kinds[k].kind, kind) == 0)
            return &ctx->kinds[k];
    return NULL;
}

/* A profile was measured on rows of one document. elapse-exec's attention takes QUERIES rows at once,
 * and multiplies them with the keys from the start of the first row's document on (cpu_attention.c).
 * So a row of s tokens computes s (s + QUERIES) / 2 pairs as one document, and s (QUERIES + l / 2) as
 * documents of l tokens, where s exceeds QUERIES. Returns what is left of the time of an attention
 * item's pass: the core's flops count by these pairs, and 5/2 of them in the backward for the input,
 * which has all of the core. */
static double packed_share(const struct model *model, int item, enum pass pass)
{
    enum { QUERIES = 128 };
    const double s = model->seq, l = (double)model_core_tokens(model);
    const double packed = (double)model_core_flops(model, item);
    if (!model->packing.apart || model->items[item].kind != ITEM_ATTENTION || s <= QUERIES ||
        !(packed > 0))
        return 1;
    const double linears = (double)model->items[item].fwd_flops - packed;
    const double pair = packed / (double)model_attention_pairs(model, model->items[item].layer);
    const double times = pass == PASS_FWD || pass == PASS_FWD_NOGRAD       ? 1
                         : pass == PASS_BWD_INPUT || pass == PASS_BWD_REST ? 2.5
                                                                           : 0;
    const double before = times * pair * s * (s + QUERIES) / 2;
    const double after = fmin(before, times * pair * s * (QUERIES + l / 2));
    return (linears + after) / (linears + before);
}

static enum status measured_ns(const void *opaque, const struct model *model, int item,
                               enum pass pass, int64_t samples, const struct device *device,
                               int64_t *ns, bool *extrapolated, struct err *err)
{
    const struct kind_cost *kind = find_kind(opaque, device->kind);
    struct layer_key key;
    if (!kind)
        return err_set(err, ERR_INFEASIBLE, "no profile for device kind '%s'", device->kind);
    layer_key_of(model, item, &key);
    for (int i = 0; i < kind->num_items; i++) {
        if (memcmp(&kind->items[i].key, &key, sizeof key) != 0)
            continue;
        const struct curve *curve = &kind->items[i].passes[pass];
        bool beyond = false;
        *ns = 0;
        if (curve->n == 0)
            return OK;
        double x = (double)samples;
        if (pass == PASS_UPDATE) { /* x is an optimizer; use the nearest that was measured */
            x = x < curve->x[0] ? curve->x[0] : x;
            x = x > curve->x[curve->n - 1] ? curve->x[curve->n - 1] : x;
        }
        double got = curve_at(curve, x, &beyond) * packed_share(model, item, pass);
        if (pass == PASS_FWD_NOGRAD) /* without stash it cannot be slower; that would be noise */
            got = fmin(got, curve_at(&kind->items[i].passes[PASS_FWD], x, &beyond) *
                                packed_share(model, item, PASS_FWD));
        if (!(got < 9e18))
            return err_set(err, ERR_INPUT, "time of item '%s' overflows: %g ns for %lld samples",
                           model->items[item].name, got, (long long)samples);
        *ns = (int64_t)(got + 0.5);
        if (beyond && extrapolated)
            *extrapolated = true;
        return OK;
    }
    return err_set(err, ERR_INFEASIBLE, "no layers for model '%s' in profile '%s': item '%s'",
                   model->name, kind->profile, model->items[item].name);
}

/* The update of a table that the head has taken over is in no profile, because the head had none. It takes
 * the embedding's time by its share of the embedding's parameters. */
static enum status item_ns(const void *opaque, const struct model *model, int item, enum pass pass,
                           int64_t samples, const struct device *device, int64_t *ns,
                           bool *extrapolated, struct err *err)
{
    int64_t all = 0;
    enum status rc = measured_ns(opaque, model, item, pass, samples, device, ns, extrapolated, err);
    if (!model->was_tied || pass != PASS_UPDATE || model->items[item].kind != ITEM_HEAD)
        return rc;
    THEN(measured_ns(opaque, model, 0, pass, samples, device, &all, extrapolated, err));
    if (rc == OK && model->items[0].params > 0)
        *ns +=
            (int64_t)((double)all * model->vocab * model->hidden / (double)model->items[0].params);
    return rc;
}

/* Outside the measured distances the saving is that of the nearest measured distance. */
static double near_ns_per_byte(const void *opaque, const struct device *device, enum pass pass,
                               int64_t distance)
{
    const struct kind_cost *kind = find_kind(opaque, device->kind);
    const struct curve *curve = kind ? &kind->near[pass] : NULL;
    bool beyond = false;
    if (!curve || curve->n == 0)
        return 0;
    const double x = fmax(curve->x[0], fmin(curve->x[curve->n - 1], (double)distance));
    return fmax(0, -curve_at(curve, x, &beyond)) / (1 << 20);
}

/* Round a message's time to whole ns. INT64_MAX if it overflows; the callers refuse that. */
static int64_t message_ns(double ns)
{
    return ns < 9e18 ? (int64_t)(ns + 0.5) : INT64_MAX;
}

static int64_t transfer_ns(const void *opaque, const struct cluster *cluster, int from, int to,
                           int64_t bytes)
{
    const struct device *src = &cluster->devices[from], *dst = &cluster->devices[to];
    const struct kind_cost *kind = find_kind(opaque, src->kind);
    bool beyond = false;
    if (from == to)
        return 0;
    const struct curve *curve = NULL;
    if (kind && strcmp(src->kind, dst->kind) == 0)
        curve = src->node == dst->node ? &kind->node_link : &kind->net_link;
    if (!curve || curve->n == 0)
        return cluster_transfer_ns(cluster, from, to, bytes);
    return message_ns(curve_at(curve, (double)bytes, &beyond));
}

/* Measured with n ranks at the place of the group. If that was not measured between nodes, it is
 * the ring of cluster_allreduce_ns() with 2 (n - 1) measured messages between nodes. */
static int64_t allreduce_ns(const void *opaque, const struct cluster *cluster, const int *devices,
                            int n, int64_t bytes)
{
    const struct device *first = &cluster->devices[devices[0]];
    const struct kind_cost *kind = find_kind(opaque, first->kind);
    bool alike = kind != NULL, net = false, beyond = false;
    for (int i = 1; i < n && alike; i++) {
        const struct device *other = &cluster->devices[devices[i]];
        net = net || other->node != first->node;
        alike = strcmp(other->kind, first->kind) == 0;
    }
    for (int g = 0; alike && g < kind->num_groups; g++)
        if (kind->groups[g].ranks == n && kind->groups[g].net == net)
            return message_ns(curve_at(&kind->groups[g].bytes, (double)bytes, &beyond));
    if (alike && net && kind->net_link.n > 0)
        return message_ns(2 * (n - 1) * curve_at(&kind->net_link, (double)bytes / n, &beyond));
    return cluster_allreduce_ns(cluster, devices, n, bytes);
}

bool cost_item_stash(const struct cost_handle *handle, const struct model *model, int item,
                     int64_t *bytes)
{
    struct layer_key key;
    layer_key_of(model, item, &key);
    *bytes = model->items[item].stash_bytes;
    for (int i = 0; handle->ctx && i < handle->ctx->kinds[0].num_items; i++) {
        const struct item_cost *known = &handle->ctx->kinds[0].items[i];
        if (known->stash_bytes >= 0 && memcmp(&known->key, &key, sizeof key) == 0) {
            *bytes = known->stash_bytes;
            return true;
        }
    }
    return false;
}

void profile_cost_free(struct profile_cost *ctx)
{
    if (!ctx)
        return;
    for (int k = 0; k < ctx->num_kinds; k++)
        kind_cost_clear(&ctx->kinds[k]);
    free(ctx->kinds);
    free(ctx);
}

bool cost_band(const struct cost_handle *handle, const struct setting *setting,
               struct step_band *band)
{
    if (handle->cost.source != COST_KERNELS || *handle->calibration.name)
        return false;
    *band = step_band_of(setting->model, setting->cluster);
    return true;
}

void cost_handle_clear(struct cost_handle *handle)
{
    profile_cost_free(handle->ctx);
    kernel_costs_free(handle->kernels);
    *handle = (struct cost_handle){0};
}

/* Intersect a range of bytes with the range of a curve; {0, 0} stands for every size. */
static void narrow(const struct curve *curve, int64_t range[2])
{
    if (curve->n == 0)
        return;
    const int64_t least = (int64_t)curve->x[0], most = (int64_t)curve->x[curve->n - 1];
    if (range[1] == 0 || least > range[0])
        range[0] = least;
    if (range[1] == 0 || most < range[1])
        range[1] = most;
}

void profile_cost_finish(struct cost_handle *handle, struct profile_cost *ctx, bool published)
{
    struct cost *cost = &handle->cost;
    bool links = false, groups = false;
    size_t used;
    handle->ctx = ctx;
    *cost = (struct cost){
        .source = published ? COST_PUBLISHED : COST_MEASURED, .ctx = ctx, .item_ns = item_ns};
    cost->bits_independent_of_row_count = ctx->num_kinds > 0;
    used = (size_t)snprintf(cost->label, sizeof cost->label, "profile ");
    for (int k = 0; k < ctx->num_kinds; k++) {
        const struct kind_cost *kind = &ctx->kinds[k];
        if (used < sizeof cost->label)
            used += (size_t)snprintf(cost->label + used, sizeof cost->label - used, "%s%s",
                                     k ? ", " : "", kind->profile);
        handle->spread = kind->spread > handle->spread ? kind->spread : handle->spread;
        links = links || kind->node_link.n || kind->net_link.n;
        groups = groups || kind->num_groups || kind->net_link.n;
        narrow(&kind->node_link, cost->message_bytes);
        for (int g = 0; g < kind->num_groups; g++)
            if (!kind->groups[g].net)
                narrow(&kind->groups[g].bytes, cost->allreduce_bytes);
        if (kind->near[PASS_FWD].n)
            cost->near_ns_per_byte = near_ns_per_byte;
        cost->bits_independent_of_row_count =
            cost->bits_independent_of_row_count && kind->bits_independent_of_row_count;
        if (kind->op_overhead_ns > cost->op_overhead_ns)
            cost->op_overhead_ns = kind->op_overhead_ns;
        if (kind->input_ns_per_sample > cost->input_ns_per_sample)
            cost->input_ns_per_sample = kind->input_ns_per_sample;
        if (kind->norm_ns_per_byte > cost->norm_ns_per_byte)
            cost->norm_ns_per_byte = kind->norm_ns_per_byte;
        if (kind->copy_in_ns_per_byte > cost->copy_in_ns_per_byte)
            cost->copy_in_ns_per_byte = kind->copy_in_ns_per_byte;
        if (kind->copy_out_ns_per_byte > cost->copy_out_ns_per_byte)
            cost->copy_out_ns_per_byte = kind->copy_out_ns_per_byte;
        if (kind->cache_read_ns > cost->cache_read_ns)
            cost->cache_read_ns = kind->cache_read_ns;
        if (kind->cache_write_ns > cost->cache_write_ns)
            cost->cache_write_ns = kind->cache_write_ns;
    }
    if (used < sizeof cost->label)
        snprintf(cost->label + used, sizeof cost->label - used,
                 published ? " (published)" : " (measured)");
    if (links)
        cost->transfer_ns = transfer_ns;
    if (groups)
        cost->allreduce_ns = allreduce_ns;
}

struct profile_cost *profile_cost_new(int num_kinds)
{
    struct profile_cost *ctx = calloc(1, sizeof *ctx);
    if (ctx)
        ctx->kinds = calloc((size_t)num_kinds, sizeof *ctx->kinds);
    if (ctx && !ctx->kinds) {
        free(ctx);
        ctx = NULL;
    }
    return ctx;
}

struct cost_query cost_query_of(const struct job *job)
{
    struct cost_query query = {.dtype = job->train.dtype,
                               .graphs = job->train.cuda_graphs,
                               .fp8_attention = job->train.fp8_attention,
                               .delayed_scaling = job->train.fp8_scaling == SCALING_DELAYED,
                               .dropout = job->train.dropout > 0,
                               .choice = job->cost.source,
                               .efficiency = job->cost.efficiency,
                               .input = job->data.kind == DATA_SYNTHETIC};
    memcpy(query.calibration, job->cost.calibration, sizeof query.calibration);
    return query;
}

struct cost_query cost_query_of_model(const struct model *model)
{
    return (struct cost_query){.dtype = model->elem_bytes == 2 ? DTYPE_BF16 : DTYPE_FP32};
}

void cost_note_add(char note[COST_NOTE_BYTES], const char *format, ...)
{
    const size_t used = strlen(note);
    const size_t begin =
        used + (size_t)snprintf(note + used, COST_NOTE_BYTES - used, "%s", used ? "; " : "");
    va_list args;
    va_start(args, format);
    if (begin < COST_NOTE_BYTES)
        vsnprintf(note + begin, COST_NOTE_BYTES - begin, format, args);
    va_end(args);
}

enum status profile_cost(const struct profile *profile, const struct model *model,
                         const struct cluster *cluster, const struct cost_query *query,
                         struct cost_handle *handle, struct err *err)
{
    const struct cost_query own = cost_query_of_model(model);
    struct profile_cost *ctx = profile_cost_new(1);
    char note[COST_NOTE_BYTES] = "";
    if (!ctx)
        return err_nomem(err);
    enum status rc =
        kind_cost_build(profile, model, cluster, query ? query : &own, &ctx->kinds[0], note, err);
    if (rc != OK) {
        profile_cost_free(ctx);
        return rc;
    }
    ctx->num_kinds = 1;
    *handle = (struct cost_handle){0};
    strcpy(handle->note, note);
    profile_cost_finish(handle, ctx, strcmp(profile->info.source, "published") == 0);
    return OK;
}
