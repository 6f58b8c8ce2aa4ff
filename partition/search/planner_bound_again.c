/* The time that layers take which RECOMPUTE_LAYER runs again, as a term of the bounds.
 *
 * The memory of a rank decides how much stash it must do without, and so how many layers run again
 * at least. A stage runs its first layers again (workload_layout.c), so with one stage a rank the
 * least end of these layers follows from prefix sums. A rank with several stages may share the
 * layers out between them. Then each byte costs at least as much time as the cheapest item, and the
 * bytes that most micro-batches hold go first. Read planner_bound.h first. */
#include <math.h>

#include "partition/search/planner_bound.h"
#include "partition/step/recompute_fit.h"

/* Stash bytes of items [a, b) that one sample gives up if all their layers run again. */
static int64_t saved_bytes(const struct bound_table *table, int a, int b)
{
    return table->stash_bytes[b] - table->stash_bytes[a] - table->layer_bytes[b] +
           table->layer_bytes[a];
}

/* The least end of the items [a, end) that run again in a stage [a, b) that must give up `need`
 * bytes of stash a sample. Whole layers run again, or what the stage has of them. */
static int again_end(const struct bound_table *table, int a, int b, int64_t need)
{
    const struct model *model = table->problem->setting.model;
    int low = a, high = b; /* low gives up too little */
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (saved_bytes(table, a, middle) >= need)
            high = middle;
        else
            low = middle;
    }
    while (high < b && model->items[high].layer == model->items[high - 1].layer)
        high++;
    return high;
}

/* Bytes that a rank has for the stash of these parts. */
static int64_t stash_room(const struct bound_shape *shape, const struct bound_part *parts,
                          int num_parts)
{
    int64_t fixed = 0;
    for (int i = 0; i < num_parts; i++)
        fixed = bound_add(
            bound_fixed_bytes(shape->table, parts[i].a, parts[i].b, shape->num_pipelines), fixed);
    return bound_max(shape->stages[parts[0].stage].mem_bytes - fixed, 0);
}

/* The least number of bytes, summed over the parts of a rank and each for one micro-batch, that the
 * rank must give up: first of the parts of which it holds most micro-batches. */
static double fewest_bytes(const struct bound_shape *shape, const struct bound_part *parts,
                           int num_parts, int64_t room)
{
    double need = -(double)room, bytes = 0;
    int64_t below = INT64_MAX; /* parts with as many samples or more are done */
    for (int i = 0; i < num_parts; i++)
        need +=
            (double)shape->stages[parts[i].stage].held_samples *
            (double)(shape->table->stash_bytes[parts[i].b] - shape->table->stash_bytes[parts[i].a]);
    while (need > 0) {
        int64_t samples = 0, saved = 0;
        for (int i = 0; i < num_parts; i++) {
            const int64_t own = shape->stages[parts[i].stage].held_samples;
            if (own < below && own > samples) {
                samples = own;
                saved = 0;
            }
            if (own == samples)
                saved = bound_add(saved_bytes(shape->table, parts[i].a, parts[i].b), saved);
        }
        if (samples == 0)
            break;
        const double take = fmin((double)saved, need / (double)samples);
        bytes += take;
        need -= take * (double)samples;
        below = samples;
    }
    return bytes;
}

/* The end of the items of a rank's only stage that run again at least; part.a: none do. */
static int least_again(const struct bound_shape *shape, struct bound_part part)
{
    const struct bound_table *table = shape->table;
    const struct bound_stage *stage = &shape->stages[part.stage];
    const int64_t need = table->stash_bytes[part.b] - table->stash_bytes[part.a] -
                         stash_room(shape, &part, 1) / stage->held_samples;
    return need > 0 && part.b > part.a ? again_end(table, part.a, part.b, need) : part.a;
}

int bound_again_layers(const struct bound_shape *shape, struct bound_part part)
{
    const struct model *model = shape->table->problem->setting.model;
    int layers = 0, last = -1;
    if (shape->stages[part.stage].mem_bytes == INT64_MAX)
        return 0;
    for (int i = part.a, end = least_again(shape, part); i < end; i++)
        if (recompute_in_layer(model, i) && model->items[i].layer != last) {
            last = model->items[i].layer;
            layers++;
        }
    return layers;
}

int64_t bound_again_ns(const struct bound_shape *shape, const struct bound_part *parts,
                       int num_parts, int t, int64_t *but_last_ns)
{
    const struct bound_stage *stage = &shape->stages[parts[0].stage];
    const struct bound_times *full = stage->full[t], *last = stage->last[t];
    int64_t once = 0, end = 0;
    *but_last_ns = 0;
    if (shape->mode != RECOMPUTE_LAYER || stage->mem_bytes == INT64_MAX)
        return 0;
    if (num_parts == 1) {
        const int a = parts[0].a, e = least_again(shape, parts[0]);
        once = full->rerun[e] - full->rerun[a];
        end = last->rerun[e] - last->rerun[a];
    } else {
        const int64_t room = stash_room(shape, parts, num_parts);
        const double bytes = fewest_bytes(shape, parts, num_parts, room) * (1 - 1e-9);
        once = (int64_t)fmin(bytes * full->rerun_ns_per_byte, (double)BOUND_MAX_TERM);
        end = (int64_t)fmin(bytes * last->rerun_ns_per_byte, (double)BOUND_MAX_TERM);
    }
    *but_last_ns = bound_mul_add(once, shape->num_microbatches - 1, 0);
    return bound_add(*but_last_ns, end);
}

/* --- for any cut ------------------------------------------------------------------------------ */

/* A rank with items X takes at least
 *     wait + work(X) + rate * (stash(X) - (memory - fixed(X)) / samples)
 * where `rate` is the time that a byte of stash costs which the rank gives up. The last term may be
 * left out. That is a constant and a sum over the items of X. Summed over the ranks with weights of
 * their own, each item counts on the rank where it weighs least, so no cut matters. Any weights
 * give a bound. Those below let a whole chain weigh the same on each rank, because a good cut gives
 * a rank that holds more micro-batches fewer items. */
struct lines {
    double *work, *stash, *fixed;     /* by rank: what a unit of an item weighs */
    double weights, constants, sizes; /* sums over the ranks; sizes: of absolute values */
};

/* The least that a rank waits before its first op and after its last backward, and the overhead of
 * its ops, for any cut: each rank before it holds at least one item. */
static double least_wait_ns(const struct bound_shape *shape, int r)
{
    const struct bound_times *ff = shape->fill_full, *fl = shape->fill_last;
    const int a = shape->first_item;
    int64_t wait = shape->before_ns + shape->stages[r].hop_act_ns + ff->fwd[a + r] - ff->fwd[a];
    if (!shape->split)
        wait += fl->bwd_input[a + r] - fl->bwd_input[a] + fl->bwd_weight[a + r] - fl->bwd_weight[a];
    return (double)wait + (double)shape->op_ns * (double)shape->num_microbatches * shape->chunks;
}

static void add_rank(const struct bound_shape *shape, int r, double rate, struct lines *lines)
{
    const struct bound_table *table = shape->table;
    const int a = shape->first_item, n = shape->num_items, K = shape->num_ranks;
    const double work = (double)(shape->work[n] - shape->work[a]),
                 stash = (double)(table->stash_bytes[n] - table->stash_bytes[a]),
                 fixed = (double)bound_fixed_bytes(table, a, n, shape->num_pipelines);
    const int64_t mem_bytes = shape->stages[r].mem_bytes;
    double samples = INFINITY, per_byte = 0, constant = least_wait_ns(shape, r);
    for (int c = 0; c < shape->chunks; c++)
        samples = fmin(samples, (double)shape->stages[c * K + r].held_samples);
    /* Count the last term if it is positive for an equal share of the chain. */
    if (mem_bytes != INT64_MAX && stash > ((double)mem_bytes * K - fixed) / samples) {
        per_byte = rate;
        constant -= rate * (double)mem_bytes / samples;
    }
    const double weight = 1 / fmax(work + per_byte * (stash + fixed / samples), 1);
    lines->work[r] = weight;
    lines->stash[r] = weight * per_byte;
    lines->fixed[r] = weight * per_byte / samples;
    lines->weights += weight;
    lines->constants += weight * constant;
    lines->sizes += weight * fabs(constant);
}

/* The least memory of an item over all ranks. */
static double item_least(const struct bound_shape *shape, const struct lines *lines, int i)
{
    const struct bound_table *table = shape->table;
    const double work = (double)(shape->work[i + 1] - shape->work[i]),
                 stash = (double)(table->stash_bytes[i + 1] - table->stash_bytes[i]),
                 fixed = (double)bound_fixed_bytes(table, i, i + 1, shape->num_pipelines);
    double least = INFINITY;
    for (int r = 0; r < shape->num_ranks; r++)
        least =
            fmin(least, lines->work[r] * work + lines->stash[r] * stash + lines->fixed[r] * fixed);
    return least;
}

int64_t bound_again_average_ns(const struct bound_shape *shape)
{
    const struct bound_table *table = shape->table;
    const struct model *model = table->problem->setting.model;
    const int K = shape->num_ranks;
    struct lines lines = {shape->loads, shape->loads + K, shape->loads + 2 * K, 0, 0, 0};
    if (shape->mode != RECOMPUTE_LAYER || !shape->work || shape->peel)
        return 0;
    const double rate =
        shape->fill_full->rerun_ns_per_byte * (double)(shape->num_microbatches - 1) +
        shape->fill_last->rerun_ns_per_byte;
    for (int r = 0; r < K; r++)
        add_rank(shape, r, rate, &lines);
    double sum = 0, least[2] = {0, 0}; /* of items i - 2 and i - 1, which most items repeat */
    for (int i = shape->first_item; i < shape->num_items; i++) {
        const bool again = i - 2 > bound_max(shape->first_item, table->num_frozen_items) &&
                           model_items_alike(model, i, i - 2);
        const double one = again ? least[0] : item_least(shape, &lines, i);
        least[0] = least[1];
        least[1] = one;
        sum += one;
    }
    /* Rounding moves the sums by less than one part in 1e12. */
    const double bound = (lines.constants + sum - 1e-9 * (lines.sizes + sum)) / lines.weights;
    return bound > 0 ? (int64_t)fmin(bound, (double)BOUND_MAX_TERM) : 0;
}
