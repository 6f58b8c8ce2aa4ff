/* The edges between stages, and which replicas are alike.
 *
 * Chain boundaries come first, then the skip edges that the cut crosses, sorted and merged. Classes
 * of replicas follow from what goes over these edges. */
#include <stdlib.h>
#include <string.h>

#include "partition/step/workload_build.h"

/* Stage of an item; 0 for frozen items that no stage holds. */
static int stage_of_item(const struct plan *plan, int item)
{
    int low = 0, high = plan->num_stages - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (plan->first_item[middle] <= item)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static int compare_edges(const void *left, const void *right)
{
    const struct stage_edge *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (int)a->grad - (int)b->grad;
}

/* Each device of a group sends the tokens that it has, or its share of a tensor that all have. */
static bool scale_edge(const struct builder *b, int64_t bytes, struct stage_edge *edge)
{
    const int ways = builder_message_parts(b);
    const int64_t sent = bytes / ways + (bytes % ways != 0);
    bool fits = true;
    for (int mb = 0; mb < MB_SIZES; mb++)
        fits = fits && builder_scale(b, sent, builder_samples(b, mb), &edge->bytes[mb]) &&
               builder_scale(b, bytes, builder_samples(b, mb), &edge->held_bytes[mb]);
    return fits;
}

/* The boundaries of the chain. */
static bool add_boundaries(struct builder *b)
{
    struct workload *w = &b->got;
    bool fits = true;
    for (int s = 0; s + 1 < w->num_stages; s++) {
        const int border = b->plan->first_item[s + 1];
        struct stage_edge *edge = &w->edges[w->num_edges++];
        *edge = (struct stage_edge){.from = s, .to = s + 1, .grad = border > b->num_frozen_items};
        fits = fits && scale_edge(b, b->model->items[border - 1].act_bytes, edge);
    }
    return fits;
}

/* The skip edges that cross a boundary, after the chain's; different tensors of equal ends
 * and need of a gradient are one message. */
static bool add_skips(struct builder *b)
{
    const struct plan *plan = b->plan;
    struct workload *w = &b->got;
    struct stage_edge *skips = w->edges + w->num_edges;
    int num_skips = 0;
    bool fits = true;
    for (int i = 0; i < b->model->num_skips; i++) {
        const struct skip_edge *skip = &b->model->skips[i];
        const int to = stage_of_item(plan, skip->to);
        if (skip->to < plan->first_item[0] || model_skip_repeats(b->model, i, plan->first_item[to]))
            continue;
        struct stage_edge edge = {.from = stage_of_item(plan, skip->from),
                                  .to = to,
                                  .grad = skip->from >= b->num_frozen_items};
        fits = fits && scale_edge(b, skip->bytes, &edge);
        if (edge.from != edge.to)
            skips[num_skips++] = edge;
    }
    if (num_skips > 1)
        qsort(skips, (size_t)num_skips, sizeof *skips, compare_edges);
    for (int i = 0; i < num_skips; i++) {
        struct stage_edge *last = &w->edges[w->num_edges - 1];
        if (i > 0 && compare_edges(last, &skips[i]) == 0)
            for (int mb = 0; mb < MB_SIZES; mb++)
                fits = fits && add_to(&last->bytes[mb], skips[i].bytes[mb]) &&
                       add_to(&last->held_bytes[mb], skips[i].held_bytes[mb]);
        else
            w->edges[w->num_edges++] = skips[i];
    }
    return fits;
}

/* Find the edges that leave and enter each stage. */
static enum status index_edges(struct builder *b)
{
    struct workload *w = &b->got;
    const int S = w->num_stages, num = w->num_edges;
    w->out_first = calloc((size_t)S + 2, sizeof(int));
    w->in_first = calloc((size_t)S + 2, sizeof(int));
    w->out_edge = calloc((size_t)num + 1, sizeof(int));
    w->in_edge = calloc((size_t)num + 1, sizeof(int));
    if (!w->out_first || !w->in_first || !w->out_edge || !w->in_edge)
        return err_nomem(b->err);
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
    for (int s = 0; s < S; s++) { /* op.arg has 8 bits */
        if (w->out_first[s + 1] - w->out_first[s] > UINT8_MAX + 1 ||
            w->in_first[s + 1] - w->in_first[s] > UINT8_MAX + 1) {
            return err_set(b->err, ERR_INFEASIBLE,
                           "stage %d meets more than %d skip edges of other stages", s,
                           UINT8_MAX + 1);
        }
    }
    return OK;
}

enum status workload_build_edges(struct builder *b)
{
    struct workload *w = &b->got;
    w->edges = calloc((size_t)w->num_stages + (size_t)b->model->num_skips, sizeof *w->edges);
    if (!w->edges)
        return err_nomem(b->err);
    if (!add_boundaries(b) || !add_skips(b))
        return builder_overflow(b, "act_bytes or skip bytes");
    if (b->plan->frozen == FROZEN_SPREAD && b->plan->cache_write)
        w->cache_write_stage = stage_of_item(b->plan, b->num_frozen_items - 1);
    return index_edges(b);
}

/* --- classes of replicas ---------------------------------------------------------------------- */

/* There is a TIED only between two ranks (time-8). */
static enum status build_tied(struct builder *b)
{
    struct workload *w = &b->got;
    if (w->rank_of_stage[0] != w->rank_of_stage[w->num_stages - 1] &&
        !mul_ok(builder_tied_params(b), model_grad_bytes(b->model), &w->tied_bytes))
        return builder_overflow(b, "parameters");
    return OK;
}

static int64_t edge_time(struct builder *b, int replica, int e, bool grad, int mb)
{
    struct workload *w = &b->got;
    const struct stage_edge *edge = &w->edges[e];
    const struct device *devices = b->cluster->devices;
    const int *device = b->plan->device + (int64_t)replica * b->plan->num_ranks;
    const int from = device[w->rank_of_stage[edge->from]], to = device[w->rank_of_stage[edge->to]];
    if (from != to && devices[from].node == devices[to].node &&
        builder_outside(b->cost->message_bytes, edge->bytes[mb]))
        w->extrapolated = true;
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
        builder_outside(b->cost->allreduce_bytes, w->tied_bytes))
        w->extrapolated = true;
    return w->tied_bytes > 0 ? cost_allreduce_ns(b->cost, b->cluster, ends, 2, w->tied_bytes) : 0;
}

/* Unshared times of all messages of a replica, and of its TIED. */
static bool replica_times(struct builder *b, int replica, int64_t *times)
{
    struct workload *w = &b->got;
    bool fits = true;
    int64_t n = 0;
    for (int e = 0; e < w->num_edges; e++) {
        for (int grad = 0; grad < 2; grad++)
            for (int mb = 0; mb < MB_SIZES; mb++)
                times[n++] = edge_time(b, replica, e, grad, mb);
    }
    times[n++] = tied_time(b, replica);
    for (int64_t i = 0; i < n; i++)
        fits = fits && times[i] >= 0 && times[i] <= STEP_NS_MAX / w->num_microbatches;
    return fits;
}

/* Whether the devices of two replicas take equally long. */
static bool same_devices(const struct builder *b, int one, int other)
{
    for (int k = 0; k < b->plan->num_ranks; k++) {
        const struct device *x = builder_device(b, one, k), *y = builder_device(b, other, k);
        if (x->speed != y->speed || x->copy_bytes_per_s != y->copy_bytes_per_s ||
            strcmp(x->kind, y->kind) != 0)
            return false;
    }
    return true;
}

/* The class of a kind of replicas of such times; a new one where none of those before is like it.
 * class_of: by kind. */
static int classify(struct builder *b, int kind, const int64_t *times, int *class_of)
{
    struct workload *w = &b->got;
    const struct sites *sites = w->sites;
    const int64_t per_class = workload_times_per_class(w);
    const size_t bytes = (size_t)per_class * sizeof *times;
    for (int before = 0; before < kind; before++)
        if (same_devices(b, sites->example[before], sites->example[kind]) &&
            memcmp(times, w->edge_ns + per_class * class_of[before], bytes) == 0)
            return class_of[before];
    memcpy(w->edge_ns + per_class * w->num_classes, times, bytes);
    return w->num_classes++;
}

/* Two replicas are of a class when their devices, and the messages between these, take equally
 * long; so are those of one kind. */
enum status workload_build_classes(struct builder *b)
{
    struct workload *w = &b->got;
    const struct sites *sites = w->sites;
    const size_t kinds = (size_t)sites->num_kinds;
    enum status rc = build_tied(b);
    if (rc != OK)
        return rc;
    const size_t per_class = (size_t)workload_times_per_class(w);
    int *class_of = malloc(kinds * sizeof *class_of);
    int64_t *times = malloc(per_class * sizeof *times);
    w->class_of_replica = malloc((size_t)w->num_pipelines * sizeof(int));
    w->edge_ns = malloc(kinds * per_class * sizeof *w->edge_ns);
    if (!class_of || !times || !w->class_of_replica || !w->edge_ns)
        rc = err_nomem(b->err);
    for (int kind = 0; kind < sites->num_kinds && rc == OK; kind++)
        if (replica_times(b, sites->example[kind], times))
            class_of[kind] = classify(b, kind, times, class_of);
        else
            rc = builder_overflow(b, "transfer times");
    for (int r = 0; r < w->num_pipelines && rc == OK; r++)
        w->class_of_replica[r] = class_of[sites->kind_of_replica[r]];
    free(class_of);
    free(times);
    return rc;
}
