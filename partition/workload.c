#include "partition/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/units.h"

struct builder {
    const struct model *model;
    const struct cluster *cluster;
    const struct cost *cost;
    const struct plan *plan;
    int num_frozen_items; /* leading items that are frozen */
    int64_t distance;     /* of the stage at hand (stash-distance) */
    struct workload got;
    struct err *err;
};

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
    *workload = (struct workload){0};
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
    return stage
        ->op_ns[op.kind][op.microbatch == workload->num_microbatches - 1 ? MB_LAST : MB_FULL];
}

static enum status too_large(struct builder *b, const char *what)
{
    return err_set(b->err, ERR_INPUT, "%s of model '%s' overflow", what, b->model->name);
}

static bool add_to(int64_t *sum, int64_t value)
{
    return add_ok(*sum, value, sum);
}

/* Bytes of `samples` samples, from a figure that is per sample or per micro-batch. */
static bool scale(const struct builder *b, int64_t bytes, int64_t samples, int64_t *out)
{
    return mul_ok(bytes, b->model->per_microbatch ? 1 : samples, out);
}

static int64_t samples_of(const struct builder *b, int mb)
{
    return mb == MB_FULL ? b->plan->microbatches.size : b->plan->microbatches.last_size;
}

static const struct device *device_of(const struct builder *b, int replica, int rank)
{
    return &b->cluster->devices[b->plan->device[(int64_t)replica * b->plan->num_ranks + rank]];
}

static enum status item_ns(struct builder *b, int item, enum pass pass, int64_t samples,
                           const struct device *device, int64_t *ns)
{
    enum status rc = cost_item_ns(b->cost, b->model, item, pass, samples, device, b->distance, ns,
                                  &b->got.extrapolated, b->err);
    if (rc != OK) {
        return rc;
    }
    *ns = device_ns(device, *ns);
    if (*ns < 0 || *ns > STEP_NS_MAX) {
        return err_set(b->err, ERR_INPUT, "item %d of model '%s' takes %lld ns, must be 0..2^60",
                       item, b->model->name, (long long)*ns);
    }
    return OK;
}

/* --- edges ------------------------------------------------------------------------------------ */

/* Stage of an item; 0 for frozen items that no stage holds. */
static int stage_of_item(const struct plan *plan, int item)
{
    int low = 0, high = plan->num_stages - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (plan->first_item[middle] <= item) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static int compare_edges(const void *left, const void *right)
{
    const struct stage_edge *a = left, *b = right;
    if (a->from != b->from) {
        return a->from < b->from ? -1 : 1;
    }
    if (a->to != b->to) {
        return a->to < b->to ? -1 : 1;
    }
    return (int)a->grad - (int)b->grad;
}

static enum status build_edges(struct builder *b)
{
    const struct model *model = b->model;
    const struct plan *plan = b->plan;
    const int S = plan->num_stages;
    struct workload *w = &b->got;
    w->edges = calloc((size_t)S + (size_t)model->num_skips, sizeof *w->edges);
    w->out_first = calloc((size_t)S + 2, sizeof(int));
    w->in_first = calloc((size_t)S + 2, sizeof(int));
    if (!w->edges || !w->out_first || !w->in_first) {
        return err_nomem(b->err);
    }
    int num = 0;
    for (int s = 0; s + 1 < S; s++) {
        const int border = plan->first_item[s + 1];
        struct stage_edge *edge = &w->edges[num++];
        *edge = (struct stage_edge){.from = s, .to = s + 1, .grad = border > b->num_frozen_items};
        for (int mb = 0; mb < MB_SIZES; mb++) {
            if (!scale(b, model->items[border - 1].act_bytes, samples_of(b, mb),
                       &edge->bytes[mb])) {
                return too_large(b, "activations");
            }
        }
    }
    struct stage_edge *skips = w->edges + num;
    int num_skips = 0;
    for (int i = 0; i < model->num_skips; i++) {
        const struct skip_edge *skip = &model->skips[i];
        if (skip->to < plan->first_item[0]) {
            continue;
        }
        struct stage_edge edge = {.from = stage_of_item(plan, skip->from),
                                  .to = stage_of_item(plan, skip->to),
                                  .grad = skip->from >= b->num_frozen_items};
        for (int mb = 0; mb < MB_SIZES; mb++) {
            if (!scale(b, skip->bytes, samples_of(b, mb), &edge.bytes[mb])) {
                return too_large(b, "activations");
            }
        }
        if (edge.from != edge.to) {
            skips[num_skips++] = edge;
        }
    }
    if (num_skips > 1) {
        qsort(skips, (size_t)num_skips, sizeof *skips, compare_edges);
    }
    for (int i = 0; i < num_skips; i++) {
        if (i > 0 && compare_edges(&w->edges[num - 1], &skips[i]) == 0) {
            for (int mb = 0; mb < MB_SIZES; mb++) {
                if (!add_to(&w->edges[num - 1].bytes[mb], skips[i].bytes[mb])) {
                    return too_large(b, "activations");
                }
            }
        } else {
            w->edges[num++] = skips[i];
        }
    }
    w->num_edges = num;
    w->out_edge = calloc((size_t)num + 1, sizeof(int));
    w->in_edge = calloc((size_t)num + 1, sizeof(int));
    if (!w->out_edge || !w->in_edge) {
        return err_nomem(b->err);
    }
    /* Counted one entry further on, so that filling leaves the starts in place. */
    for (int e = 0; e < num; e++) {
        w->out_first[w->edges[e].from + 2]++;
        w->in_first[w->edges[e].to + 2]++;
    }
    for (int s = 2; s < S + 2; s++) {
        w->out_first[s] += w->out_first[s - 1];
        w->in_first[s] += w->in_first[s - 1];
    }
    for (int e = 0; e < num; e++) {
        w->out_edge[w->out_first[w->edges[e].from + 1]++] = e;
        w->in_edge[w->in_first[w->edges[e].to + 1]++] = e;
    }
    for (int s = 0; s < S; s++) {
        if (w->out_first[s + 1] - w->out_first[s] > UINT8_MAX + 1 ||
            w->in_first[s + 1] - w->in_first[s] > UINT8_MAX + 1) {
            return err_set(b->err, ERR_INFEASIBLE,
                           "stage %d meets more than %d skip edges of other stages", s,
                           UINT8_MAX + 1);
        }
    }
    return OK;
}

/* --- the tied table --------------------------------------------------------------------------- */

/* Parameters of the table that the last item shares with the first, while they train. */
static int64_t tied_params(const struct builder *b)
{
    return b->num_frozen_items > 0 ? 0 : b->model->items[b->model->num_items - 1].tied_params;
}

/* time-8: nothing where one rank holds both stages. */
static enum status build_tied(struct builder *b)
{
    struct workload *w = &b->got;
    if (w->rank_of_stage[0] != w->rank_of_stage[w->num_stages - 1] &&
        !mul_ok(tied_params(b), b->model->param_bytes, &w->tied_bytes)) {
        return too_large(b, "parameters");
    }
    return OK;
}

void workload_tied_devices(const struct workload *workload, const struct plan *plan, int replica,
                           int ends[2])
{
    const int *device = plan->device + (int64_t)replica * workload->num_ranks;
    ends[0] = device[workload->rank_of_stage[0]];
    ends[1] = device[workload->rank_of_stage[workload->num_stages - 1]];
}

/* --- classes of replicas ---------------------------------------------------------------------- */

static bool outside(const int64_t range[2], int64_t bytes)
{
    return range[1] > 0 && (bytes < range[0] || bytes > range[1]);
}

static int64_t edge_time(struct builder *b, int replica, int e, bool grad, int mb)
{
    struct workload *w = &b->got;
    const struct stage_edge *edge = &w->edges[e];
    const struct device *devices = b->cluster->devices;
    const int *device = b->plan->device + (int64_t)replica * b->plan->num_ranks;
    const int from = device[w->rank_of_stage[edge->from]], to = device[w->rank_of_stage[edge->to]];
    if (from != to && devices[from].node == devices[to].node &&
        outside(b->cost->message_bytes, edge->bytes[mb])) {
        w->extrapolated = true;
    }
    return from == to ? 0
                      : cost_transfer_ns(b->cost, b->cluster, grad ? to : from, grad ? from : to,
                                         edge->bytes[mb]);
}

static int64_t tied_time(struct builder *b, int replica)
{
    struct workload *w = &b->got;
    const struct device *devices = b->cluster->devices;
    int ends[2];
    workload_tied_devices(w, b->plan, replica, ends);
    if (w->tied_bytes > 0 && devices[ends[0]].node == devices[ends[1]].node &&
        outside(b->cost->allreduce_bytes, w->tied_bytes)) {
        w->extrapolated = true;
    }
    return w->tied_bytes > 0 ? cost_allreduce_ns(b->cost, b->cluster, ends, 2, w->tied_bytes) : 0;
}

static bool same_devices(const struct builder *b, int one, int other)
{
    for (int k = 0; k < b->plan->num_ranks; k++) {
        const struct device *x = device_of(b, one, k), *y = device_of(b, other, k);
        if (x->speed != y->speed || x->copy_bytes_per_s != y->copy_bytes_per_s ||
            strcmp(x->kind, y->kind) != 0) {
            return false;
        }
    }
    return true;
}

/* Two replicas are of a class when their devices, and what goes between these, take equally long.
 * Replicas are mostly alike, so each is compared with the class before it first. */
static enum status build_classes(struct builder *b)
{
    struct workload *w = &b->got;
    const int R = w->num_replicas;
    const int64_t per_class = workload_times_per_class(w);
    int *representative = malloc((size_t)R * sizeof *representative);
    int64_t *times = malloc((size_t)per_class * sizeof *times);
    int room = 0;
    enum status rc = OK;
    w->class_of_replica = calloc((size_t)R, sizeof(int));
    if (!representative || !times || !w->class_of_replica) {
        rc = err_nomem(b->err);
        goto out;
    }
    for (int r = 0; r < R; r++) {
        for (int64_t i = 0; i < per_class; i++) {
            const int mb = (int)(i % MB_SIZES);
            const bool grad = (i / MB_SIZES) % 2;
            times[i] = i == per_class - 1 ? tied_time(b, r)
                                          : edge_time(b, r, (int)(i / (2 * MB_SIZES)), grad, mb);
            if (times[i] < 0 || times[i] > STEP_NS_MAX / w->num_microbatches) {
                rc = too_large(b, "transfer times");
                goto out;
            }
        }
        int class_index = 0;
        while (class_index < w->num_classes && (!same_devices(b, representative[class_index], r) ||
                                                memcmp(times, w->edge_ns + per_class * class_index,
                                                       (size_t)per_class * sizeof *times) != 0)) {
            class_index++;
        }
        if (class_index == w->num_classes) {
            if (w->num_classes == room) {
                room = room ? 2 * room : 1;
                int64_t *grown = realloc(w->edge_ns, (size_t)(room * per_class) * sizeof *grown);
                if (!grown) {
                    rc = err_nomem(b->err);
                    goto out;
                }
                w->edge_ns = grown;
            }
            memcpy(w->edge_ns + per_class * class_index, times, (size_t)per_class * sizeof *times);
            representative[w->num_classes++] = r;
        }
        w->class_of_replica[r] = class_index;
    }
out:
    free(representative);
    free(times);
    return rc;
}

/* --- stages ----------------------------------------------------------------------------------- */

/* Bytes a sample (or micro-batch) of what the cache holds: the frozen prefix's output and the skip
 * tensors that leave the prefix. */
static bool cached_bytes(const struct builder *b, int64_t *bytes)
{
    *bytes = b->model->items[b->num_frozen_items - 1].act_bytes;
    for (int i = 0; i < b->model->num_skips; i++) {
        const struct skip_edge *skip = &b->model->skips[i];
        if (skip->from < b->num_frozen_items && skip->to >= b->num_frozen_items &&
            !add_to(bytes, skip->bytes)) {
            return false;
        }
    }
    return true;
}

/* Time of C or P of `bytes` and `samples`. */
static bool cache_ns(const struct builder *b, const struct device *device, int64_t per_sample_ns,
                     int64_t samples, int64_t bytes, int64_t *ns)
{
    const double copy = device_copy_ns(device, bytes);
    return mul_ok(per_sample_ns, samples, ns) && *ns <= STEP_NS_MAX && copy < (double)STEP_NS_MAX &&
           add_to(ns, (int64_t)ceil(copy)) && add_to(ns, b->cost->op_overhead_ns);
}

static enum status stage_bytes_build(struct builder *b, int s, struct stage_cost *stage)
{
    const struct model *model = b->model;
    const struct plan *plan = b->plan;
    const int first = plan->first_item[s], end = plan->first_item[s + 1];
    const bool has_head = end == model->num_items;
    int64_t trainable = 0, frozen = 0, stash = 0, input = 0, grads, sums;
    bool fits = true;
    for (int i = s == 0 ? 0 : first; i < end; i++) { /* a prefix outside is rank 0's */
        const struct item *item = &model->items[i];
        fits = fits && add_to(i < b->num_frozen_items ? &frozen : &trainable, item->params);
        if (i >= b->num_frozen_items) {
            fits = fits && add_to(&stash, item->stash_bytes);
        }
        /* A tied table is used in place where the stage holds its owner, the first item. */
        if (item->tied_params > 0 && first > 0) {
            fits =
                fits && add_to(b->num_frozen_items > 0 ? &frozen : &trainable, item->tied_params);
        }
    }
    /* Table and head sum up a gradient each, and where they are apart each takes the other's. */
    fits = fits && add_ok(trainable, first == 0 || has_head ? tied_params(b) : 0, &grads) &&
           add_ok(trainable, first == 0 && has_head ? tied_params(b) : 0, &sums) &&
           mul_ok(trainable, model_weight_bytes(model), &stage->weight_bytes) &&
           mul_ok(frozen, model_weight_bytes(model), &stage->frozen_bytes) &&
           mul_ok(grads, model->param_bytes, &stage->grad_bytes) &&
           mul_ok(sums, model->param_bytes, &sums) &&
           mul_ok(trainable, plan->optim_bytes_per_param, &stage->optim_bytes);
    int depth = 0;
    while (plan->canonical && ((int64_t)1 << depth) < plan->microbatches.count) {
        depth++;
    }
    fits = fits && mul_ok(sums, depth, &stage->tree_bytes);
    if (first > 0) {
        input = model->items[first - 1].act_bytes;
    }
    for (int i = 0; i < model->num_skips; i++) {
        const struct skip_edge *skip = &model->skips[i];
        if (skip->to >= first && skip->to < end && skip->from < first) {
            fits = fits && add_to(&input, skip->bytes);
        }
    }
    int64_t copied = 0;
    const bool reads = s == 0 && plan->frozen == FROZEN_CACHED;
    if (reads || s == b->got.cache_write_stage) {
        fits = fits && cached_bytes(b, &copied);
    }
    for (int mb = 0; mb < MB_SIZES; mb++) {
        const int64_t samples = samples_of(b, mb);
        fits = fits && scale(b, stash, samples, &stage->stash_bytes[mb]) &&
               scale(b, input, samples, &stage->input_bytes[mb]) &&
               scale(b, copied, samples, &stage->copy_bytes[mb]);
    }
    return fits ? OK : too_large(b, "parameters or activations");
}

static int64_t input_time(const struct builder *b, int64_t samples, const struct device *device)
{
    const double ns = b->cost->input_ns_per_sample * (double)samples;
    return ns > 0 && ns < (double)STEP_NS_MAX ? device_ns(device, llround(ns)) : 0;
}

/* Truncation: behind a frozen prefix nobody wants the gradient of the first active item's input. */
static enum pass input_pass(const struct builder *b, int item)
{
    return item > b->num_frozen_items || b->num_frozen_items == 0 ? PASS_BWD_INPUT : PASS_BWD_REST;
}

/* What is recomputed keeps no stash either, until it is. */
static enum pass forward_pass(const struct builder *b, int item, int mb)
{
    const enum recompute_mode again = b->plan->recompute;
    return item < b->num_frozen_items || again == RECOMPUTE_ALWAYS ||
                   (again == RECOMPUTE_EXCEPT_LAST && mb == MB_FULL)
               ? PASS_FWD_NOGRAD
               : PASS_FWD;
}

/* The passes over the items [first, end) of a stage for a micro-batch of `samples`. */
static enum status stage_times(struct builder *b, int first, int end, int64_t samples,
                               const struct device *device, int mb, struct stage_cost *stage)
{
    const int frozen = b->num_frozen_items, active = first > frozen ? first : frozen;
    int64_t forward = 0, again = 0, input = 0, weight = 0, update = 0, ns;
    enum status rc = OK;
    bool fits = true;
    for (int i = first; i < end && rc == OK; i++) {
        rc = item_ns(b, i, forward_pass(b, i, mb), samples, device, &ns);
        fits = fits && rc == OK && add_to(&forward, ns);
        if (rc == OK) { /* R begins at the stage's input, too */
            rc = item_ns(b, i, i < active ? PASS_FWD_NOGRAD : PASS_FWD, samples, device, &ns);
            fits = fits && rc == OK && add_to(&again, ns);
        }
        if (i < active) {
            continue;
        }
        if (rc == OK) {
            rc = item_ns(b, i, input_pass(b, i), samples, device, &ns);
            fits = fits && rc == OK && add_to(&input, ns);
        }
        if (rc == OK) {
            rc = item_ns(b, i, PASS_BWD_WEIGHT, samples, device, &ns);
            fits = fits && rc == OK && add_to(&weight, ns);
        }
        if (rc == OK && mb == MB_FULL) {
            rc = item_ns(b, i, PASS_UPDATE, b->plan->optim_bytes_per_param / 4, device, &ns);
            fits = fits && rc == OK && add_to(&update, ns);
        }
    }
    /* The copy of a tied table takes what the first item does, which is little else. */
    if (rc == OK && mb == MB_FULL && first > 0 && end == b->model->num_items &&
        tied_params(b) > 0) {
        rc = item_ns(b, 0, PASS_UPDATE, b->plan->optim_bytes_per_param / 4, device, &ns);
        fits = fits && rc == OK && add_to(&update, ns);
    }
    if (rc != OK) {
        return rc;
    }
    /* Where I is dropped, W does what is left of it. */
    if (b->got.no_input_half && active == frozen && end == frozen + 1) {
        fits = fits && add_to(&weight, input);
        input = 0;
    }
    int64_t both, host = 0;
    /* The samples are prepared beside the first stage's forward, on its cores. */
    fits = fits && (first > 0 || add_to(&forward, input_time(b, samples, device))) &&
           add_ok(input, weight, &both) &&
           (!b->got.host_blocking || mul_ok(b->cluster->host_op_ns, b->plan->num_ranks, &host)) &&
           add_to(&host, b->cost->op_overhead_ns);
    int64_t *times[] = {&forward, &again, &input, &weight, &both};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        fits = fits && add_to(times[i], host);
    }
    /* Without weights there is an update only where the model says that it takes time. */
    if (mb == MB_FULL && (update > 0 || stage->weight_bytes > 0)) {
        fits = fits && add_ok(update, b->cost->op_overhead_ns, &stage->op_ns[OP_UPDATE][MB_FULL]);
        stage->op_ns[OP_UPDATE][MB_LAST] = stage->op_ns[OP_UPDATE][MB_FULL];
    }
    stage->op_ns[OP_F][mb] = stage->op_ns[OP_Z][mb] = forward;
    stage->op_ns[OP_R][mb] = again;
    stage->op_ns[OP_I][mb] = input;
    stage->op_ns[OP_W][mb] = weight;
    stage->op_ns[OP_B][mb] = both;
    return fits ? OK : too_large(b, "times");
}

/* The serial forward of the frozen prefix over the mini-batch, and its way into the cache. */
static enum status whole_batch_times(struct builder *b, const struct device *device,
                                     struct stage_cost *stage)
{
    const struct plan *plan = b->plan;
    int64_t forward = 0, ns, host = 0, cached;
    /* Constants per micro-batch hold once for each micro-batch. */
    const int64_t times = b->model->per_microbatch ? plan->microbatches.count : 1;
    for (int i = 0; i < b->num_frozen_items; i++) {
        enum status rc = item_ns(b, i, PASS_FWD_NOGRAD, plan->batch, device, &ns);
        if (rc != OK) {
            return rc;
        }
        if (!mul_ok(ns, times, &ns) || !add_to(&forward, ns)) {
            return too_large(b, "times");
        }
    }
    bool fits = !b->got.host_blocking || mul_ok(b->cluster->host_op_ns, plan->num_ranks, &host);
    fits = fits && add_to(&forward, input_time(b, plan->batch, device));
    fits = fits && add_to(&forward, host) && add_to(&forward, b->cost->op_overhead_ns);
    stage->whole_batch_ns[0] = forward;
    if (plan->cache_write) {
        fits = fits && cached_bytes(b, &cached) &&
               mul_ok(cached, b->model->per_microbatch ? times : plan->batch,
                      &stage->host_copy_bytes_whole) &&
               cache_ns(b, device, b->cost->cache_write_ns, plan->batch,
                        stage->host_copy_bytes_whole, &stage->whole_batch_ns[1]);
    }
    return fits ? OK : too_large(b, "times");
}

/* Messages and launches, as if each waited for the one before. */
static bool add_waits(const struct builder *b, int class_index, int64_t *step)
{
    const struct workload *w = &b->got;
    int64_t once = 0, all = 0;
    bool fits = true;
    for (int e = 0; e < w->num_edges; e++) {
        for (int grad = 0; grad < 2; grad++) {
            const int64_t full = workload_edge_ns(w, class_index, e, grad, MB_FULL),
                          last = workload_edge_ns(w, class_index, e, grad, MB_LAST);
            fits = fits && add_to(&once, full > last ? full : last);
        }
    }
    fits = fits && mul_ok(once, (int64_t)w->num_microbatches * w->num_replicas, &all) &&
           add_to(step, all) && mul_ok(workload_tied_ns(w, class_index), w->num_replicas, &all) &&
           add_to(step, all);
    if (!w->host_blocking) {
        /* F R I W C P of each stage and micro-batch; Z, P and UPDATE of the batch */
        const int64_t launches = w->num_stages * (6 * (int64_t)w->num_microbatches + 3);
        fits = fits && mul_ok(b->cluster->host_op_ns, launches, &all) && add_to(step, all);
    }
    return fits;
}

static enum status build_stages(struct builder *b)
{
    struct workload *w = &b->got;
    const struct plan *plan = b->plan;
    const int S = w->num_stages;
    w->stages = calloc((size_t)w->num_classes * (size_t)S, sizeof *w->stages);
    if (!w->stages) {
        return err_nomem(b->err);
    }
    for (int c = 0; c < w->num_classes; c++) {
        int replica = 0;
        while (w->class_of_replica[replica] != c) {
            replica++;
        }
        int64_t step = 0;
        bool fits = true;
        for (int s = 0; s < S; s++) {
            struct stage_cost *stage = &w->stages[(int64_t)c * S + s];
            const struct device *device = device_of(b, replica, w->rank_of_stage[s]);
            const int first = plan->first_item[s], end = plan->first_item[s + 1];
            b->distance = b->got.distances ? b->got.distances[s] : STASH_FAR;
            enum status rc = stage_bytes_build(b, s, stage);
            for (int mb = 0; mb < MB_SIZES && rc == OK; mb++) {
                if (mb == MB_LAST && plan->microbatches.last_size == plan->microbatches.size &&
                    plan->recompute != RECOMPUTE_EXCEPT_LAST) {
                    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
                        stage->op_ns[kind][MB_LAST] = stage->op_ns[kind][MB_FULL];
                    }
                    break;
                }
                const int64_t samples = samples_of(b, mb);
                rc = stage_times(b, first, end, samples, device, mb, stage);
                if (rc == OK && s == 0 && plan->frozen == FROZEN_CACHED &&
                    !cache_ns(b, device, b->cost->cache_read_ns, samples, stage->copy_bytes[mb],
                              &stage->op_ns[OP_C][mb])) {
                    rc = too_large(b, "times");
                }
                if (rc == OK && s == w->cache_write_stage &&
                    !cache_ns(b, device, b->cost->cache_write_ns, samples, stage->copy_bytes[mb],
                              &stage->op_ns[OP_P][mb])) {
                    rc = too_large(b, "times");
                }
            }
            if (rc == OK && s == 0 && plan->frozen == FROZEN_FIRST) {
                rc = whole_batch_times(b, device, stage);
            }
            if (rc != OK) {
                return rc;
            }
            const enum op_kind each[] = {OP_F, OP_R, OP_I, OP_W, OP_C, OP_P};
            for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
                int64_t all;
                fits = fits && mul_ok(stage->op_ns[each[i]][MB_FULL], w->num_microbatches, &all) &&
                       add_to(&step, all);
            }
            fits = fits && add_to(&step, stage->whole_batch_ns[0]) &&
                   add_to(&step, stage->whole_batch_ns[1]) &&
                   add_to(&step, stage->op_ns[OP_UPDATE][MB_FULL]);
        }
        if (!fits || !add_waits(b, c, &step) || step > STEP_NS_MAX) {
            return err_set(b->err, ERR_INPUT, "a step of model '%s' is longer than 2^60 ns",
                           b->model->name);
        }
    }
    return OK;
}

/* --- buckets ---------------------------------------------------------------------------------- */

/* Cut the gradients of stage s into buckets in the order in which its last backward completes them:
 * from its last item down. A bucket closes when it holds bucket_bytes; items are not divided. */
static enum status stage_buckets(struct builder *b, int s)
{
    struct workload *w = &b->got;
    const struct plan *plan = b->plan;
    const int first = plan->first_item[s], end = plan->first_item[s + 1];
    const int frozen = b->num_frozen_items, active = first > frozen ? first : frozen;
    const int before = w->num_buckets;
    const struct device *device = device_of(b, 0, w->rank_of_stage[s]);
    int64_t held = 0, done = 0, done_weight = 0, total = 0, total_weight = 0;
    b->distance = b->got.distances ? b->got.distances[s] : STASH_FAR;
    for (int i = end - 1; i >= active; i--) {
        const struct item *item = &b->model->items[i];
        int64_t input = 0, weight, bytes = 0;
        enum status rc = OK;
        if (plan->bucket_bytes > 0 && !device_is_host(device)) { /* else there is no lead */
            rc = item_ns(b, i, input_pass(b, i), plan->microbatches.last_size, device, &input);
            if (rc == OK) {
                rc = item_ns(b, i, PASS_BWD_WEIGHT, plan->microbatches.last_size, device, &weight);
            }
            if (rc != OK) {
                return rc;
            }
            total += input + weight;
            total_weight += weight;
        }
        const int64_t tied = i == b->model->num_items - 1 ? tied_params(b) : 0;
        if (!mul_ok(item->params + tied, b->model->param_bytes, &bytes) || !add_to(&held, bytes)) {
            return too_large(b, "parameters");
        }
        if (bytes > 0) {
            done = total;
            done_weight = total_weight;
        }
        const int full = w->num_buckets - before;
        const bool closes =
            plan->bucket_bytes > 0 && held >= plan->bucket_bytes && full < UINT8_MAX && held > 0;
        if (closes || (i == active && held > 0)) {
            /* lead: completion counted from the start for now */
            w->buckets[w->num_buckets++] = (struct bucket){.stage = s,
                                                           .first_item = i,
                                                           .bytes = held,
                                                           .lead_ns = done,
                                                           .lead_w_ns = done_weight};
            held = 0;
        }
    }
    for (int i = before; i < w->num_buckets; i++) {
        w->buckets[i].lead_ns = total - w->buckets[i].lead_ns;
        w->buckets[i].lead_w_ns = total_weight - w->buckets[i].lead_w_ns;
    }
    return OK;
}

/* Were all-reduces like these measured? Times of them are, inside a node. */
static void flag_buckets(struct builder *b)
{
    struct workload *w = &b->got;
    for (int i = 0; i < w->num_buckets; i++) {
        const int rank = w->rank_of_stage[w->buckets[i].stage];
        const int node = device_of(b, 0, rank)->node;
        bool together = true;
        for (int r = 1; r < w->num_replicas; r++) {
            together = together && device_of(b, r, rank)->node == node;
        }
        if (together && outside(b->cost->allreduce_bytes, w->buckets[i].bytes)) {
            w->extrapolated = true;
        }
    }
}

static enum status build_buckets(struct builder *b)
{
    struct workload *w = &b->got;
    w->first_bucket = calloc((size_t)w->num_stages + 1, sizeof(int));
    w->buckets = calloc((size_t)b->model->num_items + 1, sizeof *w->buckets);
    if (!w->first_bucket || !w->buckets) {
        return err_nomem(b->err);
    }
    for (int s = 0; s < w->num_stages; s++) {
        w->first_bucket[s] = w->num_buckets;
        if (w->num_replicas > 1 && w->stages[s].weight_bytes > 0) {
            enum status rc = stage_buckets(b, s);
            if (rc != OK) {
                return rc;
            }
        }
    }
    w->first_bucket[w->num_stages] = w->num_buckets;
    flag_buckets(b);
    return OK;
}

static enum status build_norm(struct builder *b)
{
    const struct plan *plan = b->plan;
    const int64_t n = (int64_t)plan->num_ranks * plan->num_replicas;
    const struct device *devices = b->cluster->devices;
    int64_t latency = b->cluster->link_latency_ns;
    for (int64_t i = 1; i < n; i++) {
        if (devices[plan->device[i]].node != devices[plan->device[0]].node) {
            latency = b->cluster->uplink_latency_ns;
        }
    }
    int depth = 0;
    while (((int64_t)1 << depth) < n) {
        depth++;
    }
    /* The rank with most gradients, or the slowest, sums its squares last. */
    double most = 0, *bytes = calloc((size_t)plan->num_ranks, sizeof *bytes);
    if (!bytes) {
        return err_nomem(b->err);
    }
    for (int s = 0; s < plan->num_stages; s++) {
        for (int i = plan->first_item[s]; i < plan->first_item[s + 1]; i++) {
            bytes[b->got.rank_of_stage[s]] +=
                i < b->num_frozen_items ? 0
                                        : (double)b->model->items[i].params * b->model->param_bytes;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, bytes[i % plan->num_ranks] / devices[plan->device[i]].speed);
    }
    free(bytes);
    const double squares = most * b->cost->norm_ns_per_byte;
    int64_t tree = 0;
    if (!mul_ok(2 * depth, latency, &tree) || tree > STEP_NS_MAX || squares > (double)STEP_NS_MAX) {
        return too_large(b, "times of the gradient norm");
    }
    b->got.norm_ns = tree + llround(squares);
    return OK;
}

enum status workload_build(const struct setting *setting, const struct plan *plan,
                           struct workload *workload, struct err *err)
{
    return workload_build_on(setting, plan, NULL, workload, err);
}

enum status workload_build_on(const struct setting *setting, const struct plan *plan,
                              const int *rank_of_stage, struct workload *workload, struct err *err)
{
    enum status rc;
    struct builder b = {.model = setting->model,
                        .cluster = setting->cluster,
                        .cost = setting->cost,
                        .plan = plan,
                        .num_frozen_items =
                            model_frozen_items(setting->model, plan->num_frozen_layers),
                        .err = err};
    struct workload *w = &b.got;
    *w = (struct workload){.num_ranks = plan->num_ranks,
                           .num_stages = plan->num_stages,
                           .num_replicas = plan->num_replicas,
                           .num_microbatches = plan->microbatches.count,
                           .drop_first_input = plan->num_frozen_layers > 0,
                           .cache_write_stage = -1,
                           .clip = plan->clip,
                           .host_blocking = setting->cluster->host_blocking,
                           .context_bytes = setting->cluster->context_bytes,
                           .source = setting->cost->source};
    if (plan->num_stages > SCHEDULE_MAX_STAGES) {
        return err_set(err, ERR_INPUT, "plan of %d stages, the limit is %d", plan->num_stages,
                       SCHEDULE_MAX_STAGES);
    }
    w->rank_of_stage = malloc((size_t)plan->num_stages * sizeof(int));
    if (!w->rank_of_stage) {
        return err_nomem(err);
    }
    for (int s = 0; s < plan->num_stages; s++) {
        w->rank_of_stage[s] = rank_of_stage
                                  ? rank_of_stage[s]
                                  : plan_rank_of_stage(plan->schedule, plan->num_ranks, s);
        if (!frozen_outside(plan->frozen) && plan->first_item[s + 1] <= b.num_frozen_items) {
            w->num_frozen_stages = s + 1;
        }
    }
    if (w->drop_first_input && w->num_frozen_stages < plan->num_stages) {
        const int first = plan->first_item[w->num_frozen_stages];
        const int active = first > b.num_frozen_items ? first : b.num_frozen_items;
        w->no_input_half = plan->first_item[w->num_frozen_stages + 1] - active == 1;
    }
    if (plan->frozen == FROZEN_SPREAD && plan->cache_write) {
        w->cache_write_stage = stage_of_item(plan, b.num_frozen_items - 1);
    }
    rc = build_edges(&b);
    if (rc == OK) {
        rc = build_tied(&b);
    }
    if (rc == OK) {
        rc = build_classes(&b);
    }
    if (rc == OK) {
        rc = build_stages(&b);
    }
    if (rc == OK) {
        rc = build_buckets(&b);
    }
    if (rc == OK && plan->clip) {
        rc = build_norm(&b);
    }
    if (rc == OK) {
        *workload = b.got;
        b.got = (struct workload){0};
    }
    workload_clear(&b.got);
    return rc;
}

enum status workload_set_distances(const struct setting *setting, const struct plan *plan,
                                   const int64_t *distances, struct workload *workload,
                                   struct err *err)
{
    struct workload *w = workload;
    const size_t bytes = (size_t)w->num_stages * sizeof *distances;
    if (!setting->cost->near_ns_per_byte ||
        (w->distances && memcmp(w->distances, distances, bytes) == 0)) {
        return OK;
    }
    if (!w->distances) {
        w->distances = malloc(bytes);
        if (!w->distances) {
            return err_nomem(err);
        }
    }
    memcpy(w->distances, distances, bytes);
    free(w->stages);
    free(w->buckets);
    free(w->first_bucket);
    w->stages = NULL;
    w->buckets = NULL;
    w->first_bucket = NULL;
    w->num_buckets = 0;
    struct builder b = {.model = setting->model,
                        .cluster = setting->cluster,
                        .cost = setting->cost,
                        .plan = plan,
                        .num_frozen_items =
                            model_frozen_items(setting->model, plan->num_frozen_layers),
                        .got = *w,
                        .err = err};
    enum status rc = build_stages(&b);
    if (rc == OK) {
        rc = build_buckets(&b);
    }
    *w = b.got;
    return rc;
}

enum status workload_near(const struct setting *setting, const struct plan *plan,
                          const struct schedule *full, struct workload *workload, struct err *err)
{
    if (!setting->cost->near_ns_per_byte) {
        return OK;
    }
    int64_t *distances = malloc((size_t)workload->num_stages * sizeof *distances);
    if (!distances) {
        return err_nomem(err);
    }
    schedule_stash_distance(full, workload, distances);
    const enum status rc = workload_set_distances(setting, plan, distances, workload, err);
    free(distances);
    return rc;
}
