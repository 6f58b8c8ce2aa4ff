/* The inputs of the bounds of planner_bound.h: families and candidates.
 *
 * A bound_table (planner_bound_table.c) belongs to a search. A bound_family belongs to one (K, R,
 * place) and describes the devices and links of each rank. A bound_shape belongs to one
 * candidate and holds the terms of each stage that do not depend on the cut. planner_bound_rank.c
 * and planner_bound_cut.c then bound cuts. Read planner_bound.h first, then bound_shape_init(). */
#include "partition/search/planner_bound.h"

#include <stdlib.h>
#include <string.h>

#include "partition/model/framework.h"
#include "partition/base/units.h"

/* Bytes of the smallest message that can cross a boundary of a cut. */
static int64_t least_act_bytes(const struct bound_shape *shape, int64_t samples)
{
    const struct model *model = shape->table->problem->setting.model;
    int64_t least = INT64_MAX, bytes;
    for (int i = shape->first_item; i < shape->num_items - 1; i++)
        least = bound_min(least, model->items[i].act_bytes);
    if (least == INT64_MAX)
        return 0;
    return mul_ok(least, model->per_microbatch ? 1 : samples, &bytes) ? bytes : INT64_MAX;
}

/* The kinds must be equal too, because measured message times depend on the kind of device. */
static bool same_port(const struct device *a, const struct device *b)
{
    return a->link_bytes_per_s == b->link_bytes_per_s && a->nic_bytes_per_s == b->nic_bytes_per_s &&
           strcmp(a->kind, b->kind) == 0;
}

static bool same_link(const struct cluster *cluster, int from, int to, int other_from, int other_to)
{
    const struct device *d = cluster->devices;
    const double *up = cluster->uplink_bytes_per_s;
    bool inside = d[from].node == d[to].node, other = d[other_from].node == d[other_to].node;
    const bool pod = cluster_device_pod(cluster, from) == cluster_device_pod(cluster, to);
    return inside == other &&
           pod ==
               (cluster_device_pod(cluster, other_from) == cluster_device_pod(cluster, other_to)) &&
           same_port(&d[from], &d[other_from]) && same_port(&d[to], &d[other_to]) &&
           (inside ||
            (up[d[from].node] == up[d[other_from].node] && up[d[to].node] == up[d[other_to].node]));
}

static void add_link(const struct cluster *cluster, struct bound_rank *rank, int from, int to)
{
    for (int i = 0; i < rank->num_links; i++)
        if (same_link(cluster, from, to, rank->from[i], rank->to[i]))
            return;
    if (rank->num_links < BOUND_TYPES) {
        rank->from[rank->num_links] = from;
        rank->to[rank->num_links++] = to;
    }
}

/* Time of OP_TIED in the slowest replica. This is a bound for every replica, because OP_TIED waits
 * for the all-reduce of the first item, which holds the table, and so for the last backward of all
 * replicas. */
static int64_t tied_ns(const struct bound_table *table, int num_ranks, int num_pipelines,
                       const int *device)
{
    const struct planner_problem *problem = table->problem;
    const struct model *model = problem->setting.model;
    const int64_t bytes =
        mul_saturated(model->items[model->num_items - 1].tied_params, model_grad_bytes(model));
    int64_t most = 0;
    if (bytes == 0 || table->num_frozen_items > 0 || num_ranks == 1 || model->lora.rank > 0)
        return 0;
    for (int r = 0; r < num_pipelines; r++) {
        const int *row = device + (int64_t)r * num_ranks, ends[2] = {row[0], row[num_ranks - 1]};
        most = bound_max(most, cost_allreduce_ns(problem->setting.cost, problem->setting.cluster,
                                                 ends, 2, bytes));
    }
    return bound_min(most, BOUND_MAX_TERM);
}

enum status bound_family_init(struct bound_family *family, const struct bound_table *table,
                              int num_ranks, int num_pipelines, const int *device, struct err *err)
{
    const struct planner_problem *problem = table->problem;
    struct bound_rank *ranks = calloc((size_t)num_ranks, sizeof *ranks);
    int *group = malloc((size_t)num_pipelines * sizeof *group);
    if (!ranks || !group) {
        free(ranks);
        free(group);
        return err_nomem(err);
    }
    for (int k = 0; k < num_ranks; k++) {
        struct bound_rank *rank = &ranks[k];
        rank->mem_bytes = INT64_MAX;
        for (int r = 0; r < num_pipelines; r++) {
            const int *row = device + (int64_t)r * num_ranks;
            int d = row[k], type = table->type_of_device[d], t = 0;
            while (t < rank->num_types && rank->types[t] != type)
                t++;
            if (t == rank->num_types && t < BOUND_TYPES)
                rank->types[rank->num_types++] = type;
            rank->mem_bytes =
                bound_min(rank->mem_bytes, problem->setting.cluster->devices[d].mem_bytes);
            add_link(problem->setting.cluster, rank, row[k > 0 ? k - 1 : num_ranks - 1], d);
            group[r] = d;
        }
        if (num_pipelines > 1 && !problem->setting.cost->allreduce_ns &&
            problem->layout.shard == SHARD_NONE) {
            /* The ring's time is linear in bytes, so two points define it. One ns is taken off
             * because the times are rounded. */
            const int64_t probe = (int64_t)1 << 40;
            int64_t none = cost_collective_ns(problem->setting.cost, problem->setting.cluster,
                                              COLLECTIVE_ALLREDUCE, group, num_pipelines, 0);
            int64_t some = cost_collective_ns(problem->setting.cost, problem->setting.cluster,
                                              COLLECTIVE_ALLREDUCE, group, num_pipelines, probe);
            rank->allreduce_ns = bound_min(none, BOUND_MAX_TERM);
            rank->allreduce_ns_per_byte =
                (double)(bound_max(some - 1, none) - none) / (double)probe * (1 - 1e-9);
        }
    }
    free(group);
    *family = (struct bound_family){.num_ranks = num_ranks,
                                    .ranks = ranks,
                                    .tied_ns = tied_ns(table, num_ranks, num_pipelines, device)};
    return OK;
}

void bound_family_clear(struct bound_family *family)
{
    free(family->ranks);
    *family = (struct bound_family){0};
}

/* The bytes that a device with this memory has for tensors. */
static int64_t room_bytes(const struct planner_problem *problem, int64_t mem_bytes, int num_ranks,
                          int num_pipelines)
{
    const struct model *model = problem->setting.model;
    const int64_t context = problem->setting.cluster->context_bytes +
                            framework_context_bytes(model, num_ranks, num_pipelines);
    return framework_room_bytes(
        framework_beyond_tensors(model->framework, problem->setting.cost->memory_factor),
        mem_bytes - context);
}

bool bound_weights_fit(const struct bound_table *table, int num_ranks, int num_pipelines,
                       int64_t mem_bytes, int first_item)
{
    if (mem_bytes == INT64_MAX)
        return true;
    mem_bytes = room_bytes(table->problem, mem_bytes, num_ranks, num_pipelines);
    const int n = table->problem->setting.model->num_items;
    int a = first_item;
    for (int k = 0; k < num_ranks && a < n; k++) {
        int b = a;
        while (b < n && bound_fixed_bytes(table, a, b + 1, num_pipelines) <= mem_bytes)
            b++;
        if (b == a)
            return false;
        a = b;
    }
    return a == n;
}

/* Least time of a message between the ranks of neighbouring stages, over the kinds of link that the
 * replicas have there. */
static int64_t hop_ns(const struct planner_problem *problem, const struct bound_family *family,
                      int from, int to, int64_t bytes)
{
    if (from == to)
        return 0;
    bool up = to == from + 1 || (to == 0 && from == family->num_ranks - 1);
    const struct bound_rank *rank = &family->ranks[up ? to : from];
    int64_t least = INT64_MAX;
    for (int i = 0; i < rank->num_links; i++)
        least = bound_min(least, cost_transfer_ns(problem->setting.cost, problem->setting.cluster,
                                                  up ? rank->from[i] : rank->to[i],
                                                  up ? rank->to[i] : rank->from[i], bytes));
    return rank->num_links > 0 && rank->num_links < BOUND_TYPES ? least : 0;
}

/* The times of the last hop up or down the ranks, kept because the next one usually has an equal
 * link. */
struct last_hop {
    const struct bound_rank *rank;
    int64_t act_ns, grad_ns;
};

static bool same_links(const struct cluster *cluster, const struct bound_rank *a,
                       const struct bound_rank *b)
{
    if (!a || a->num_links != 1 || b->num_links != 1)
        return false;
    return same_link(cluster, a->from[0], a->to[0], b->from[0], b->to[0]);
}

/* A stash distance that no cut falls below (stash-distance). It is 0 with several stages. A single
 * stage without recompute holds at least the stash that the schedule keeps (schedule_live()). */
static int64_t least_distance(const struct bound_shape *shape, const struct plan *plan)
{
    const struct bound_table *table = shape->table;
    const int64_t one = shape->stash_bytes[shape->num_items],
                  size = table->problem->setting.model->per_microbatch ? 1 : shape->size,
                  last = table->problem->setting.model->per_microbatch ? 1 : shape->last_size;
    if (shape->num_stages > 1)
        return 0;
    const int64_t live =
        shape->recompute ? 1 : schedule_live(plan->schedule, 1, (int)shape->num_microbatches, 1, 0);
    /* P: live - 1 full micro-batches and one sample of the last. B: one full micro-batch. */
    return bound_max(bound_mul_add(bound_mul_add(live - 1, size, last), one, 0) -
                         bound_mul_add(size, one, 0) / 2,
                     0);
}

/* The micro-batches that a stage holds just before its rank's first backward, and their samples. */
static void set_live(struct bound_shape *shape, enum schedule_kind kind, int s)
{
    const bool each = !shape->table->problem->setting.model->per_microbatch;
    const int64_t size = each ? shape->size : 1, last = each ? shape->last_size : 1;
    const int64_t live =
        schedule_live(kind, shape->num_ranks, (int)shape->num_microbatches, shape->chunks, s);
    shape->stages[s].live = live;
    shape->stages[s].held_samples = live < shape->num_microbatches
                                        ? bound_mul_add(live, size, 0)
                                        : bound_mul_add(live - 1, size, last);
}

static enum status shape_stage(struct bound_shape *shape, struct bound_table *table,
                               const struct bound_family *family, const struct plan *plan, int s,
                               const int64_t hop_bytes[2], struct last_hop hops[2], struct err *err)
{
    const struct planner_problem *problem = table->problem;
    struct bound_stage *stage = &shape->stages[s];
    int rank = schedule_rank_of_stage(plan->schedule, plan->num_ranks, s);
    int previous = s ? schedule_rank_of_stage(plan->schedule, plan->num_ranks, s - 1) : rank;
    const struct bound_rank *of = &family->ranks[rank];
    stage->rank = rank;
    stage->num_types = of->num_types;
    for (int t = 0; t < of->num_types; t++) {
        if (s > 0 && shape->stages[s - 1].full[t] &&
            shape->stages[s - 1].full[t]->type == of->types[t]) {
            stage->full[t] = shape->stages[s - 1].full[t];
            stage->last[t] = shape->stages[s - 1].last[t];
            continue;
        }
        enum status rc = bound_times_of(table, of->types[t], shape->size,
                                        bound_again_of(shape->mode, shape->recompute),
                                        shape->distance, &stage->full[t], err);
        THEN(bound_times_of(table, of->types[t], shape->last_size,
                            bound_again_of(shape->mode, shape->recompute_last), shape->distance,
                            &stage->last[t], err));
        if (rc != OK)
            return rc;
    }
    if (s > 0) {
        int64_t act, grad;
        const bool down = rank < previous;
        struct last_hop *hop = &hops[down];
        const struct bound_rank *link = rank == previous + 1   ? of
                                        : rank == previous - 1 ? &family->ranks[previous]
                                                               : NULL;
        if (link && same_links(problem->setting.cluster, hop->rank, link)) {
            act = hop->act_ns;
            grad = hop->grad_ns;
        } else {
            act = hop_ns(problem, family, previous, rank, hop_bytes[0]);
            grad = hop_ns(problem, family, rank, previous, hop_bytes[1]);
            if (link)
                *hop = (struct last_hop){.rank = link, .act_ns = act, .grad_ns = grad};
        }
        stage->hop_act_ns = bound_mul_add(act, 1, shape->stages[s - 1].hop_act_ns);
        stage->hop_grad_ns = bound_mul_add(grad, 1, shape->stages[s - 1].hop_grad_ns);
    }
    stage->allreduce_ns = of->allreduce_ns;
    stage->allreduce_ns_per_byte = of->allreduce_ns_per_byte;
    set_live(shape, plan->schedule, s);
    stage->mem_bytes = of->mem_bytes;
    if (of->mem_bytes != INT64_MAX) {
        stage->mem_bytes =
            room_bytes(problem, stage->mem_bytes, plan->num_ranks, plan->num_pipelines);
        if (s == 0) /* rank 0 also holds the weights of a prefix outside the cut */
            stage->mem_bytes -=
                bound_fixed_bytes(table, 0, shape->first_item, shape->num_pipelines);
    }
    return OK;
}

/* Set the times of fill and drain if all stages use one device type. With several types they stay
 * NULL and fill counts as 0, because the fastest type may differ from item to item and a bound may
 * not mix types. */
static void shape_fill(struct bound_shape *shape)
{
    const struct bound_stage *first = &shape->stages[0];
    bool one = true;
    for (int s = 0; s < shape->num_stages; s++)
        one &= shape->stages[s].num_types == 1 && shape->stages[s].full[0] == first->full[0];
    shape->fill_full = one ? first->full[0] : NULL;
    shape->fill_last = one ? first->last[0] : NULL;
}

/* Set the parts of bound_rank_edges() that do not depend on the items of a stage. */
static void shape_edges(struct bound_shape *shape)
{
    const struct bound_times *ff = shape->fill_full, *fl = shape->fill_last;
    const int nf = shape->table->num_frozen_items, first = shape->first_item;
    /* Gradients cross every link below an active stage, unless the prefix in the cut is frozen. */
    const bool crossed = nf == 0 || first == nf;
    for (int s = 0; s < shape->num_stages; s++) {
        struct bound_stage *stage = &shape->stages[s];
        const int64_t ops_ns = shape->op_ns == 0 ? 0 : bound_mul_add(s, shape->op_ns, 0),
                      grad_ns = crossed ? stage->hop_grad_ns : 0;
        stage->apart =
            (struct bound_edges){.base = shape->before_ns + stage->hop_act_ns + ops_ns,
                                 .drain = grad_ns + (crossed ? ops_ns : 0) + shape->tied_ns,
                                 .drain_in = grad_ns + (nf == 0 ? ops_ns : 0) + shape->tied_ns};
        if (ff) {
            stage->apart.base -= ff->fwd[first];
            stage->apart.drain_in -= fl->bwd_input[first];
            stage->apart.drain -= fl->bwd_input[first] + fl->bwd_weight[first];
        }
    }
}

/* Make the prefix sums over all micro-batches. They stay NULL if a sum would saturate, because a
 * difference of saturated sums is wrong. */
static enum status shape_sums(struct bound_shape *shape, struct err *err)
{
    const int n = shape->num_items;
    const int64_t more = shape->num_microbatches - 1;
    const struct bound_times *full = shape->fill_full, *last = shape->fill_last;
    if (!full ||
        bound_mul_add(bound_once_ns(full, 0, n), more, bound_once_ns(last, 0, n)) >= BOUND_MAX_TERM)
        return OK;
    shape->work = malloc(3 * ((size_t)n + 1) * sizeof *shape->work);
    if (!shape->work)
        return err_nomem(err);
    shape->halves = shape->work + n + 1;
    shape->last_op = shape->halves + n + 1;
    for (int i = 0; i <= n; i++) {
        shape->work[i] = bound_once_ns(full, 0, i) * more + bound_once_ns(last, 0, i);
        shape->halves[i] =
            (full->fwd[i] + full->bwd_input[i]) * more + last->fwd[i] + last->bwd_input[i];
        shape->last_op[i] = last->bwd_weight[i] + (shape->split ? 0 : last->bwd_input[i]);
    }
    return OK;
}

static enum status shape_room(struct bound_shape *got, const struct plan *plan, struct err *err)
{
    got->stages = calloc((size_t)plan->num_stages, sizeof *got->stages);
    got->parts = malloc((size_t)plan->chunks * sizeof *got->parts);
    got->loads = malloc(3 * (size_t)plan->num_ranks * sizeof *got->loads);
    got->tried =
        malloc(((size_t)plan->num_ranks + 6 * (size_t)plan->num_stages) * sizeof *got->tried);
    if (schedule_v_shaped(plan->schedule))
        got->peel =
            malloc(2 * (size_t)plan->num_ranks * ((size_t)got->num_items + 1) * sizeof *got->peel);
    if (!got->stages || !got->parts || !got->loads || !got->tried ||
        (schedule_v_shaped(plan->schedule) && !got->peel))
        return err_nomem(err);
    return OK;
}

/* Z takes the whole batch on rank 0's device. The fastest type of the replicas counts. */
static enum status shape_before(struct bound_shape *got, struct bound_table *table,
                                const struct plan *plan, struct err *err)
{
    got->before_ns = INT64_MAX;
    for (int t = 0; t < got->stages[0].num_types; t++) {
        const struct bound_times *whole;
        const enum status rc = bound_times_of(table, got->stages[0].full[t]->type, plan->batch,
                                              AGAIN_NEVER, STASH_FAR, &whole, err);
        if (rc != OK)
            return rc;
        got->before_ns = bound_min(got->before_ns, whole->fwd[table->num_frozen_items]);
    }
    return OK;
}

enum status bound_shape_init(struct bound_shape *shape, struct bound_table *table,
                             const struct bound_family *family, const struct plan *plan,
                             struct err *err)
{
    const struct planner_problem *problem = table->problem;
    enum status rc;
    const bool only_last = plan->microbatches.count == 1;
    const enum rerun parts = recompute_parts(plan->recompute);
    struct bound_shape got = {
        .table = table,
        .first_item = frozen_outside(plan->frozen) ? table->num_frozen_items : 0,
        .num_items = problem->setting.model->num_items,
        .num_ranks = plan->num_ranks,
        .chunks = plan->chunks,
        .num_stages = plan->num_stages,
        .num_pipelines = plan->num_pipelines,
        .mode = plan->recompute,
        .stash_bytes = parts != RERUN_COUNT                 ? table->part_bytes[parts]
                       : plan->recompute == RECOMPUTE_LAYER ? table->layer_bytes
                                                            : table->stash_bytes,
        .num_microbatches = plan->microbatches.count,
        .size = only_last ? plan->microbatches.last_size : plan->microbatches.size,
        .last_size = plan->microbatches.last_size,
        .split = schedule_splits(plan->schedule),
        .recompute = recompute_every(plan->recompute) ||
                     (plan->recompute == RECOMPUTE_EXCEPT_LAST && !only_last),
        .recompute_last = recompute_every(plan->recompute),
        .tied_ns = schedule_v_shaped(plan->schedule) ? 0 : family->tied_ns,
        .op_ns = problem->setting.cost->op_overhead_ns,
    };
    if (problem->setting.cluster->host_blocking)
        got.op_ns = bound_mul_add(problem->setting.cluster->host_op_ns, plan->num_ranks, got.op_ns);
    else /* The host of a rank launches an F and a backward for each micro-batch (launch-async). A
            frozen stage has only an F. */
        got.floor_ns = bound_mul_add(
            (table->num_frozen_items > 0 ? 1 : 2) * (int64_t)plan->microbatches.count - 1,
            problem->setting.cluster->host_op_ns, 0);
    rc = shape_room(&got, plan, err);
    if (rc != OK)
        goto out;
    const int64_t hop_bytes[2] = {least_act_bytes(&got, got.size),
                                  least_act_bytes(&got, got.last_size)};
    got.input_bytes = hop_bytes[0];
    got.distance = least_distance(&got, plan);
    struct last_hop hops[2] = {0};
    for (int s = 0; s < plan->num_stages; s++) {
        rc = shape_stage(&got, table, family, plan, s, hop_bytes, hops, err);
        if (rc != OK)
            goto out;
    }
    shape_fill(&got);
    rc = shape_sums(&got, err);
    if (rc != OK)
        goto out;
    if (plan->frozen == FROZEN_FIRST)
        rc = shape_before(&got, table, plan, err);
    if (rc != OK)
        goto out;
    shape_edges(&got);
    *shape = got;
    got = (struct bound_shape){0};
    rc = OK;
out:
    bound_shape_clear(&got);
    return rc;
}

void bound_shape_set_kind(struct bound_shape *shape, enum schedule_kind kind)
{
    for (int s = 0; s < shape->num_stages; s++)
        set_live(shape, kind, s);
}

void bound_shape_clear(struct bound_shape *shape)
{
    free(shape->stages);
    free(shape->parts);
    free(shape->loads);
    free(shape->tried);
    free(shape->work);
    free(shape->peel);
    *shape = (struct bound_shape){0};
}
