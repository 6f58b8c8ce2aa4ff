/* Which replicas of a step run for others.
 *
 * Where no link is shared, replicas of one class have equal times. Where links are shared, they have
 * them if all resources on their ways are shared alike. step_alike() finds such groups by colour
 * refinement (Cardon and Crochemore, Partitioning a graph in O(|A| log |V|), 1982): the colour of a
 * resource is the multiset of its users, that of a replica the list of its resources, and groups
 * split until none does any more. Progressive filling then gives the messages of a group one rate
 * (network.h says what rounding adds), so their events are at equal times. */
#include "sim/step/step.h"

#include <stdlib.h>

#include "partition/base/units.h"

struct coloured {
    uint64_t colour;
    int32_t member;
};

static int by_colour(const void *a, const void *b)
{
    const struct coloured *x = a, *y = b;
    if (x->colour != y->colour)
        return x->colour < y->colour ? -1 : 1;
    return x->member - y->member;
}

/* Let the first replica of each colour run for all of that colour. */
static void set_runs(struct step *step, struct coloured *order)
{
    const int n = step->num_pipelines;
    qsort(order, (size_t)n, sizeof *order, by_colour);
    step->num_runs = 0;
    for (int i = 0; i < n; i++) {
        if (i == 0 || order[i].colour != order[i - 1].colour)
            step->runs[step->num_runs++] = (struct replica_run){order[i].member, i, 0};
        step->runs[step->num_runs - 1].num_members++;
        step->members[i] = order[i].member;
        step->run_of[order[i].member] = step->num_runs - 1;
    }
}

/* Drawn times differ from replica to replica, and recorded ops are those of all. */
static bool all_differ(const struct step *step)
{
    return step->options->jitter > 0 || step->options->low || step->ops;
}

/* Group replicas by class, or leave each alone. */
static enum status group_plainly(struct step *step, bool by_class, struct err *err)
{
    const int n = step->num_pipelines;
    struct coloured *order = malloc((size_t)n * sizeof *order);
    if (!order)
        return err_nomem(err);
    for (int r = 0; r < n; r++)
        order[r] =
            (struct coloured){(uint64_t)(by_class ? step->workload->class_of_replica[r] : r), r};
    set_runs(step, order);
    free(order);
    return OK;
}

/* --- colours ----------------------------------------------------------------------------------- */

/* One round of refinement: what it reads and writes. */
struct colours {
    const struct step *step;
    uint64_t *replica, *resource;
    struct coloured *order; /* scratch, by replica */
    int *devices;           /* scratch: the holders of a stage */
};

/* Add a user's colour to all resources on a way. */
static void add_way(struct colours *c, int from, int to, uint64_t user)
{
    int32_t path[PATH_MAX_HOPS];
    const int hops = cluster_path(c->step->cluster, from, to, path);
    for (int i = 0; i < hops; i++)
        c->resource[path[i]] += user;
}

/* Add the colours of all resources on a way to a replica's, in their order. */
static void see_way(struct colours *c, int from, int to, uint64_t *colour)
{
    int32_t path[PATH_MAX_HOPS];
    const int hops = cluster_path(c->step->cluster, from, to, path);
    for (int i = 0; i < hops; i++)
        *colour = mix64(*colour ^ c->resource[path[i]]);
}

static void colour_resources(struct colours *c)
{
    const struct step *step = c->step;
    const struct workload *w = step->workload;
    const int R = step->num_pipelines, num = cluster_num_resources(step->cluster);
    for (int i = 0; i < num; i++)
        c->resource[i] = mix64((uint64_t)cluster_capacity(step->cluster, i));
    for (int r = 0; r < R; r++) {
        const int *device = &step->plan->device[r * step->num_ranks];
        for (int l = 0; l < step->num_links; l++)
            add_way(c, device[step->links[l].from_rank], device[step->links[l].to_rank],
                    mix64(c->replica[r] + (uint64_t)l));
        int ends[2];
        if (step->full->tied) {
            workload_tied_devices(w, step->plan, r, ends);
            for (int i = 0; i < 2; i++)
                add_way(c, ends[i], ends[1 - i], mix64(~c->replica[r]));
        }
    }
    for (int s = 0; s < w->num_stages && step_has_rings(step); s++) {
        workload_holders(w, step->plan, s, c->devices);
        for (int i = 0; i < R; i++)
            add_way(c, c->devices[i], c->devices[(i + 1) % R], mix64((uint64_t)s));
    }
}

static void colour_replicas(struct colours *c)
{
    const struct step *step = c->step;
    for (int r = 0; r < step->num_pipelines; r++) {
        const int *device = &step->plan->device[r * step->num_ranks];
        for (int l = 0; l < step->num_links; l++)
            see_way(c, device[step->links[l].from_rank], device[step->links[l].to_rank],
                    &c->replica[r]);
        int ends[2];
        if (step->full->tied) {
            workload_tied_devices(step->workload, step->plan, r, ends);
            for (int i = 0; i < 2; i++)
                see_way(c, ends[i], ends[1 - i], &c->replica[r]);
        }
        c->order[r] = (struct coloured){c->replica[r], r};
    }
}

/* Set step->alike of each resource to the first of its colour. */
static enum status find_alike(struct step *step, const uint64_t *resource, struct err *err)
{
    const int num = cluster_num_resources(step->cluster);
    struct coloured *order = malloc((size_t)num * sizeof *order);
    step->alike = arrays_new(&step->arrays, (size_t)num, sizeof *step->alike);
    if (!order || !step->alike) {
        free(order);
        return err_nomem(err);
    }
    for (int i = 0; i < num; i++)
        order[i] = (struct coloured){resource[i], i};
    qsort(order, (size_t)num, sizeof *order, by_colour);
    for (int i = 0, first = 0; i < num; i++) {
        first = order[i].colour == order[first].colour ? first : i;
        step->alike[order[i].member] = order[first].member;
    }
    free(order);
    return OK;
}

/* After this many rounds each replica is left alone: groups that still split do so along a chain of
 * nodes, and little is left to win. */
enum { MOST_ROUNDS = 8 };

/* Split the classes of replicas until the resources of a group's replicas are shared alike. */
static enum status refine(struct step *step, struct colours *c, struct err *err)
{
    for (int r = 0; r < step->num_pipelines; r++)
        c->replica[r] = mix64((uint64_t)step->workload->class_of_replica[r]);
    for (int round = 0, before = 0; before < step->num_runs; round++) {
        if (round == MOST_ROUNDS || step->num_runs == step->num_pipelines)
            return group_plainly(step, false, err);
        before = step->num_runs;
        colour_resources(c);
        colour_replicas(c);
        set_runs(step, c->order);
    }
    return find_alike(step, c->resource, err);
}

enum status step_group(struct step *step, enum step_groups groups, struct err *err)
{
    const size_t n = (size_t)step->num_pipelines;
    const size_t num = (size_t)cluster_num_resources(step->cluster);
    const bool plain = groups == GROUP_NONE || all_differ(step);
    enum status rc = group_plainly(step, !plain, err);
    step->alike = NULL;
    if (rc != OK || plain || groups == GROUP_CLASSES || step->num_runs == step->num_pipelines)
        return rc;
    struct arrays arrays = {0};
    struct colours c = {.step = step,
                        .replica = arrays_new(&arrays, n, sizeof *c.replica),
                        .resource = arrays_new(&arrays, num, sizeof *c.resource),
                        .order = arrays_new(&arrays, n, sizeof *c.order),
                        .devices = arrays_new(&arrays, n, sizeof *c.devices)};
    rc = arrays.failed ? err_nomem(err) : refine(step, &c, err);
    arrays_clear(&arrays);
    return rc;
}
