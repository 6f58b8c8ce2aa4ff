/* A bound of a candidate whose devices are of several types, from the types of each replica's ranks.
 *
 * Let c(i, t) be the time of item i on type t for the whole batch, and W(t) the sum over all items.
 * A replica's ranks take at least any weighted average of their loads. With weights in proportion to
 * 1 / W(t), each item adds at least min over t of c(i, t) / W(t), wherever it is. So the step is no
 * shorter than
 *     sum over items of min over t of c(i, t) / W(t)  divided by  sum over ranks k of 1 / W(t(k)),
 * which for types that differ by a factor only is the time of a perfectly even pipeline. The slowest
 * replica counts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/search/planner_search.h"

#include "partition/base/arrays.h"

/* Larger families keep the bound of the fastest type, because the types of all ranks are many. */
#define MOST_MIXED 1024

/* The work of a batch: one entry of a direct-mapped cache. */
#define WORK_SLOTS 256
struct mixed_work {
    bool known;
    int count;
    int64_t size, last_size; /* of the micro-batches */
    enum bound_again again, again_last;
    int from;        /* first item that counts */
    double even;     /* the sum over items above */
    double *by_type; /* owned: W(t) */
};

struct mixed {
    struct mixed_work slots[WORK_SLOTS];
    /* Ranks of each type in each kind of replica of the current family; num_types entries each. */
    int *ranks, num_kinds;
    int64_t room_kinds;
};

void search_mixed_free(struct mixed *mixed)
{
    for (int i = 0; mixed && i < WORK_SLOTS; i++)
        free(mixed->slots[i].by_type);
    if (mixed)
        free(mixed->ranks);
    free(mixed);
}

/* Add one replica's ranks by type unless there is a replica like it. */
static enum status add_kind(struct mixed *mixed, const int *ranks, int num_types, struct err *err)
{
    const size_t size = (size_t)num_types * sizeof *ranks;
    for (int i = 0; i < mixed->num_kinds; i++)
        if (memcmp(mixed->ranks + (size_t)i * (size_t)num_types, ranks, size) == 0)
            return OK;
    if (!array_grow(&mixed->ranks, mixed->num_kinds + 1, &mixed->room_kinds, size))
        return err_nomem(err);
    memcpy(mixed->ranks + (size_t)mixed->num_kinds++ * (size_t)num_types, ranks, size);
    return OK;
}

enum status search_mix(struct search *search, const struct node *family)
{
    const int K = family->num_ranks, R = family->num_pipelines, types = search->table.num_types;
    if (!search->mixed)
        search->mixed = calloc(1, sizeof *search->mixed);
    int *device = malloc((size_t)K * (size_t)R * sizeof *device);
    int *ranks = malloc((size_t)types * sizeof *ranks);
    enum status rc = search->mixed && device && ranks ? OK : err_nomem(search->err);
    if (rc == OK) {
        search->mixed->num_kinds = 0;
        if (types > 1 && (int64_t)K * R <= MOST_MIXED)
            rc = search_map(search, family, device, search->err);
        else
            goto out;
    }
    for (int r = 0; r < R && rc == OK; r++) {
        memset(ranks, 0, (size_t)types * sizeof *ranks);
        for (int k = 0; k < K; k++)
            ranks[search->table.type_of_device[device[(int64_t)r * K + k]]]++;
        rc = add_kind(search->mixed, ranks, types, search->err);
    }
out:
    free(device);
    free(ranks);
    return rc;
}

/* Work out one entry. */
static enum status fill_work(struct search *search, struct mixed_work *work)
{
    const int n = search->problem->setting.model->num_items, types = search->table.num_types;
    const struct bound_times **times = malloc(2 * (size_t)types * sizeof *times);
    enum status rc = times ? OK : err_nomem(search->err);
    for (int t = 0; t < types && rc == OK; t++) {
        rc = bound_times_of(&search->table, t, work->size, work->again, 0, &times[2 * t],
                            search->err);
        THEN(bound_times_of(&search->table, t, work->last_size, work->again_last, 0,
                            &times[2 * t + 1], search->err));
        if (rc == OK)
            work->by_type[t] =
                (double)bound_once_ns(times[2 * t], work->from, n) * (work->count - 1) +
                (double)bound_once_ns(times[2 * t + 1], work->from, n);
    }
    work->even = 0;
    for (int i = work->from; i < n && rc == OK; i++) {
        double least = INFINITY;
        for (int t = 0; t < types; t++)
            if (work->by_type[t] > 0)
                least =
                    fmin(least, ((double)bound_once_ns(times[2 * t], i, i + 1) * (work->count - 1) +
                                 (double)bound_once_ns(times[2 * t + 1], i, i + 1)) /
                                    work->by_type[t]);
        work->even += isfinite(least) ? least : 0;
    }
    free(times);
    return rc;
}

enum status search_mixed_bound(struct search *search, const struct microbatches *mb,
                               enum bound_again again, enum bound_again again_last, int from,
                               double *bound_ns)
{
    struct mixed *mixed = search->mixed;
    const int types = search->table.num_types;
    const size_t hash = (size_t)mb->count * 31 + (size_t)mb->size * 7 + (size_t)again * 5 +
                        (size_t)again_last * 3 + (size_t)(from > 0);
    struct mixed_work *work = &mixed->slots[hash % WORK_SLOTS];
    *bound_ns = 0;
    if (mixed->num_kinds == 0)
        return OK;
    if (!work->known || work->count != mb->count || work->size != mb->size ||
        work->last_size != mb->last_size || work->again != again ||
        work->again_last != again_last || work->from != from) {
        if (!work->by_type)
            work->by_type = malloc((size_t)types * sizeof *work->by_type);
        if (!work->by_type)
            return err_nomem(search->err);
        work->count = mb->count;
        work->size = mb->size;
        work->last_size = mb->last_size;
        work->again = again;
        work->again_last = again_last;
        work->from = from;
        const enum status rc = fill_work(search, work);
        work->known = rc == OK;
        if (rc != OK)
            return rc;
    }
    for (int i = 0; i < mixed->num_kinds; i++) {
        const int *ranks = mixed->ranks + (size_t)i * (size_t)types;
        double share = 0; /* of a batch that the replica could do in a nanosecond */
        for (int t = 0; t < types; t++)
            if (ranks[t] > 0)
                share += work->by_type[t] > 0 ? ranks[t] / work->by_type[t] : INFINITY;
        *bound_ns = fmax(*bound_ns, work->even / share * (1 - 1e-9));
    }
    return OK;
}
