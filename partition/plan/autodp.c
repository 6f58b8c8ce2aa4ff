/* Rank maps, transfers of a plan change, and the permutation of devices that moves the fewest
 * bytes. The three parts are independent: autodp_map_groups(), transition_build() over struct
 * mover, and autodp_keep_devices() over struct keeper with the assignment solver assign(). Read
 * autodp.h first. */
#include "partition/plan/autodp.h"

#include <stdlib.h>
#include <string.h>

#include "partition/layout/tensor_group.h"
#include "partition/model/lora.h"
#include "partition/base/arrays.h"
#include "partition/base/units.h"

/* --- rank maps ----------------------------------------------------------------------------- */

void autodp_map_nodes(const int *node, int num_groups, enum rank_map map, int num_ranks,
                      int num_pipelines, int *group)
{
    const int64_t need = (int64_t)num_ranks * num_pipelines;
    if (map == MAP_STAGE_INSIDE) {
        for (int r = 0; r < num_pipelines; r++)
            for (int k = 0; k < num_ranks; k++)
                group[(int64_t)r * num_ranks + k] = k * num_pipelines + r;
        return;
    }
    /* First the pipelines that fit inside a node, in node order. Then pipelines over the remaining
     * groups of all nodes. */
    int64_t placed = 0;
    for (int rest = 0; rest < 2; rest++)
        for (int first = 0, end; first < num_groups && placed < need; first = end) {
            end = first;
            while (end < num_groups && node[end] == node[first])
                end++;
            const int inside = end - (end - first) % num_ranks;
            for (int g = rest ? inside : first; g < (rest ? end : inside) && placed < need; g++)
                group[placed++] = g;
        }
}

enum status autodp_map_groups(const struct cluster *cluster, enum rank_map map, int tensor,
                              int num_ranks, int num_pipelines, int *device, struct err *err)
{
    int64_t need;
    const int num_groups = tensor_group_list(cluster, tensor, NULL);
    if (num_ranks < 1 || num_pipelines < 1 || !mul_ok(num_ranks, num_pipelines, &need) ||
        need > num_groups) {
        const enum status rc = tensor_group_check(cluster, tensor, err);
        if (rc != OK)
            return rc;
        if (tensor > 1)
            return err_set(err, ERR_INFEASIBLE,
                           "%d replicas of %d groups of %d devices do not fit a cluster of %d",
                           num_pipelines, num_ranks, tensor, cluster->num_devices);
        return err_set(err, ERR_INFEASIBLE, "%d replicas of %d devices do not fit a cluster of %d",
                       num_pipelines, num_ranks, cluster->num_devices);
    }
    int *first = malloc(2 * (size_t)num_groups * sizeof *first);
    if (!first)
        return err_nomem(err);
    int *node = first + num_groups;
    tensor_group_list(cluster, tensor, first);
    for (int g = 0; g < num_groups; g++)
        node[g] = cluster->devices[first[g]].node;
    autodp_map_nodes(node, num_groups, map, num_ranks, num_pipelines, device);
    for (int64_t i = 0; i < need; i++)
        device[i] = first[device[i]];
    free(first);
    return OK;
}

/* --- owners of items ----------------------------------------------------------------------- */

/* Write to rank[i] the rank, inside each replica, that holds item i's weights under a plan. */
static void ranks_of_items(const struct plan *plan, const struct model *model, int *rank)
{
    for (int i = 0; i < model->num_items; i++)
        rank[i] = 0; /* rank 0 holds frozen items outside the cut */
    for (int s = 0; s < plan->num_stages; s++)
        for (int i = plan->first_item[s]; i < plan->first_item[s + 1]; i++)
            rank[i] = plan_rank_of_stage(plan, s);
}

/* --- transitions --------------------------------------------------------------------------- */

struct mover {
    const struct model *model;
    const struct cluster *cluster;
    const struct plan *old, *new_plan;
    struct arrays arrays;       /* the next four lines */
    int *old_rank, *new_rank;   /* by item */
    int *old_replica, *old_pos; /* by device: its place in the old plan, or -1 */
    int64_t *sent, *received;   /* by device */
    int64_t *up, *down;         /* by node */
    struct transition got;
    int64_t room;
    struct err *err;
};

static enum status mover_init(struct mover *m)
{
    size_t items = (size_t)m->model->num_items, devices = (size_t)m->cluster->num_devices;
    size_t nodes = (size_t)m->cluster->num_nodes;
    m->old_rank = arrays_new(&m->arrays, items, sizeof *m->old_rank);
    m->new_rank = arrays_new(&m->arrays, items, sizeof *m->new_rank);
    m->old_replica = arrays_new(&m->arrays, devices, sizeof *m->old_replica);
    m->old_pos = arrays_new(&m->arrays, devices, sizeof *m->old_pos);
    m->sent = arrays_new(&m->arrays, devices, sizeof *m->sent);
    m->received = arrays_new(&m->arrays, devices, sizeof *m->received);
    m->up = arrays_new(&m->arrays, nodes, sizeof *m->up);
    m->down = arrays_new(&m->arrays, nodes, sizeof *m->down);
    if (m->arrays.failed)
        return err_nomem(m->err);
    ranks_of_items(m->old, m->model, m->old_rank);
    ranks_of_items(m->new_plan, m->model, m->new_rank);
    for (size_t d = 0; d < devices; d++)
        m->old_replica[d] = m->old_pos[d] = -1;
    for (int r = 0; r < m->old->num_pipelines; r++)
        for (int k = 0; k < m->old->num_ranks; k++) {
            int device = m->old->device[(int64_t)r * m->old->num_ranks + k];
            m->old_replica[device] = r;
            m->old_pos[device] = k;
        }
    return OK;
}

static void mover_clear(struct mover *m)
{
    arrays_clear(&m->arrays);
    transition_clear(&m->got);
}

static enum status add_transfer(struct mover *m, struct transfer transfer)
{
    const int item = transfer.item, to = transfer.to;
    const int64_t bytes = transfer.bytes;
    if (bytes == 0)
        return OK;
    const struct device *devices = m->cluster->devices;
    int from = -1;
    for (int r = 0; r < m->old->num_pipelines; r++) {
        int d = m->old->device[(int64_t)r * m->old->num_ranks + m->old_rank[item]];
        if (from < 0) {
            from = d;
            continue;
        }
        bool near = devices[d].node == devices[to].node;
        bool from_near = devices[from].node == devices[to].node;
        if (near != from_near             ? near
            : m->sent[d] != m->sent[from] ? m->sent[d] < m->sent[from]
                                          : d < from)
            from = d;
    }
    struct transition *got = &m->got;
    if (!array_grow(&got->transfers, got->num_transfers + 1, &m->room, sizeof *got->transfers))
        return err_nomem(m->err);
    transfer.from = from;
    got->transfers[got->num_transfers++] = transfer;
    bool inside = devices[from].node == devices[to].node;
    int64_t *sum = inside ? &got->bytes_inside : &got->bytes_between;
    if (m->received[to] == 0)
        got->moved_devices++;
    if (!add_ok(got->bytes, bytes, &got->bytes) || !add_ok(*sum, bytes, sum))
        return err_set(m->err, ERR_INPUT, "transfers of model '%s' overflow", m->model->name);
    m->sent[from] += bytes;
    m->received[to] += bytes;
    if (!inside) {
        m->up[devices[from].node] += bytes;
        m->down[devices[to].node] += bytes;
    }
    return OK;
}

/* Move the weights of `params` parameters of an item, and their optimizer state if it trained and
 * still does. The state of an item that trains again is not with its old owner (autodp.h). */
static enum status move_params(struct mover *m, int item, bool tied, int to, int64_t params,
                               bool train)
{
    const bool stateful = train && item >= model_frozen_items(m->model, m->old->num_frozen_layers);
    const struct model *model = m->model;
    struct transfer weights = {
        .item = item, .tied = tied, .kind = train ? TRANSFER_WEIGHTS : TRANSFER_FROZEN, .to = to};
    struct transfer optimizer = weights;
    optimizer.kind = TRANSFER_OPTIMIZER;
    const int64_t base = tied ? 0 : model_base_bytes(model, item); /* beside adapters */
    if (!mul_ok(params, model->param_bytes, &weights.bytes) ||
        !add_ok(weights.bytes, base, &weights.bytes) ||
        !mul_ok(params, m->new_plan->optim_bytes_per_param, &optimizer.bytes))
        return err_set(m->err, ERR_INPUT, "item '%s' overflows", model->items[item].name);
    enum status rc = add_transfer(m, weights);
    return rc == OK && stateful ? add_transfer(m, optimizer) : rc;
}

static enum status move_item(struct mover *m, int item, int to)
{
    const struct model *model = m->model;
    const bool train = item >= model_frozen_items(model, m->new_plan->num_frozen_layers);
    if (m->old_pos[to] == m->old_rank[item] && m->old_pos[to] >= 0)
        return OK; /* it has the item already */
    return move_params(m, item, false, to, model->items[item].params, train);
}

/* Number of parameters of the table that the last stage needs a copy of; 0 if it holds the table
 * itself. */
static int64_t tied_copy(const struct model *model, const struct plan *plan)
{
    return plan->first_item[plan->num_stages - 1] > 0
               ? model->items[model->num_items - 1].tied_params
               : 0;
}

/* Whether devices of old rank pos held the table or a copy of it. pos -1: a device without rank. */
static bool held_table(const struct model *model, const int *old_rank, int pos)
{
    return pos >= 0 && (pos == old_rank[0] || pos == old_rank[model->num_items - 1]);
}

static enum status move_tied(struct mover *m, int to)
{
    if (held_table(m->model, m->old_rank, m->old_pos[to]))
        return OK;
    return move_params(m, 0, true, to, tied_copy(m->model, m->new_plan),
                       m->new_plan->num_frozen_layers == 0 && m->model->lora.rank == 0);
}

static int compare_transfers(const void *left, const void *right)
{
    const struct transfer *a = left, *b = right;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    if (a->item != b->item)
        return a->item < b->item ? -1 : 1;
    if (a->tied != b->tied)
        return a->tied ? 1 : -1;
    return (int)a->kind - (int)b->kind;
}

/* All transfers run at once. Each port and uplink is busy for its bytes, and the slowest one
 * determines the time. */
static int64_t moving_ns(const struct mover *m)
{
    const struct cluster *cluster = m->cluster;
    double worst = 0;
    const double both = cluster->half_duplex ? 1 : 0;
    for (int d = 0; d < cluster->num_devices; d++) {
        double in = (double)m->received[d], out = (double)m->sent[d];
        double bytes = both > 0 ? in + out : in > out ? in : out;
        double ns = bytes / cluster->devices[d].link_bytes_per_s * 1e9;
        worst = ns > worst ? ns : worst;
    }
    for (int n = 0; n < cluster->num_nodes; n++) {
        double in = (double)m->down[n], out = (double)m->up[n];
        double bytes = both > 0 ? in + out : in > out ? in : out;
        double ns = bytes / cluster->uplink_bytes_per_s[n] * 1e9;
        worst = ns > worst ? ns : worst;
    }
    if (m->got.num_transfers == 0)
        return 0;
    worst +=
        (double)(m->got.bytes_between > 0 ? cluster->uplink_latency_ns : cluster->link_latency_ns);
    return worst < 9e18 ? (int64_t)(worst + 0.5) : INT64_MAX;
}

enum status transition_build(const struct model *model, const struct cluster *cluster,
                             const struct plan *old, const struct plan *new_plan,
                             struct transition *transition, struct err *err)
{
    /* A head that gets a table of its own has it from the last stage, which had the shared one. */
    model = model_at(model, new_plan->num_frozen_layers);
    struct mover m = {
        .model = model, .cluster = cluster, .old = old, .new_plan = new_plan, .err = err};
    enum status rc = mover_init(&m);
    for (int r = 0; rc == OK && r < new_plan->num_pipelines; r++) {
        const int *device = new_plan->device + (int64_t)r * new_plan->num_ranks;
        for (int i = 0; rc == OK && i < model->num_items; i++)
            rc = move_item(&m, i, device[m.new_rank[i]]);
        THEN(move_tied(&m, device[m.new_rank[model->num_items - 1]]));
    }
    if (rc == OK) {
        if (m.got.num_transfers > 0)
            qsort(m.got.transfers, (size_t)m.got.num_transfers, sizeof *m.got.transfers,
                  compare_transfers);
        m.got.ns = moving_ns(&m);
        *transition = m.got;
        m.got = (struct transition){0};
    }
    mover_clear(&m);
    return rc;
}

void transition_clear(struct transition *transition)
{
    free(transition->transfers);
    *transition = (struct transition){0};
}

/* --- permuting devices --------------------------------------------------------------------- */

/* Minimum-cost assignment of n rows to n columns: shortest augmenting paths with potentials (Kuhn
 * 1955, Munkres 1957; the O(n^3) form of Jonker and Volgenant 1987). cost is [n][n] with entries of
 * at most INT64_MAX / 4 / n. Writes column_of[row]. work is scratch of 6 (n + 1) entries. Returns
 * the total cost. */
static int64_t assign(int n, const int64_t *cost, int *column_of, int64_t *work)
{
    int64_t *u = work, *v = u + n + 1, *least = v + n + 1, *row_of = least + n + 1,
            *came = row_of + n + 1, *done = came + n + 1;
    memset(work, 0, (size_t)(6 * (n + 1)) * sizeof *work);
    /* 1-based: row_of[j] is the row of column j, column 0 is a stand-in */
    for (int row = 1; row <= n; row++) {
        int64_t j = 0;
        row_of[0] = row;
        for (int k = 0; k <= n; k++)
            least[k] = INT64_MAX;
        memset(done, 0, ((size_t)n + 1) * sizeof *done);
        do {
            done[j] = 1;
            int64_t i = row_of[j], next = 0, delta = INT64_MAX;
            for (int k = 1; k <= n; k++) {
                if (done[k])
                    continue;
                int64_t reduced = cost[(i - 1) * n + (k - 1)] - u[i] - v[k];
                if (reduced < least[k]) {
                    least[k] = reduced;
                    came[k] = j;
                }
                if (least[k] < delta) {
                    delta = least[k];
                    next = k;
                }
            }
            for (int k = 0; k <= n; k++) {
                if (done[k]) {
                    u[row_of[k]] += delta;
                    v[k] -= delta;
                } else {
                    least[k] -= delta;
                }
            }
            j = next;
        } while (row_of[j] != 0);
        while (j != 0) {
            row_of[j] = row_of[came[j]];
            j = came[j];
        }
    }
    int64_t total = 0;
    for (int k = 1; k <= n; k++) {
        column_of[row_of[k] - 1] = k - 1;
        total += cost[(row_of[k] - 1) * n + (k - 1)];
    }
    return total;
}

struct keeper {
    const struct cluster *cluster;
    const struct plan *old, *plan;
    bool with_device_0; /* an idle device must not become device 0 */
    int *first;         /* owned: first device of each node; num_nodes + 1 */
    int *slot_of;       /* owned, by device: the slot r * K + k that plan puts there, or -1 */
    int *old_pos;       /* owned, by device: its old rank, or -1 */
    int64_t *lacks; /* owned, [K][K_old + 1]: cost of the bytes that a device of old rank j needs to
                       become rank k; j = K_old: a device without old rank */
    int widest;     /* devices of the largest node */
    int64_t never;  /* cost of a forbidden pair: above the cost of all devices of a node */
    int64_t *matrix; /* owned: scratch, widest node squared */
    int64_t *work;   /* owned: scratch */
    int *column;     /* owned: scratch */
};

static bool alike(const struct device *a, const struct device *b)
{
    return a->speed == b->speed && a->mem_bytes == b->mem_bytes &&
           a->link_bytes_per_s == b->link_bytes_per_s && a->nic_bytes_per_s == b->nic_bytes_per_s &&
           a->copy_bytes_per_s == b->copy_bytes_per_s && strcmp(a->kind, b->kind) == 0;
}

static bool nodes_alike(const struct keeper *keep, int a, int b)
{
    const struct cluster *c = keep->cluster;
    int size = keep->first[a + 1] - keep->first[a];
    if (keep->first[b + 1] - keep->first[b] != size ||
        c->uplink_bytes_per_s[a] != c->uplink_bytes_per_s[b])
        return false;
    for (int i = 0; i < size; i++)
        if (!alike(&c->devices[keep->first[a] + i], &c->devices[keep->first[b] + i]))
            return false;
    return true;
}

/* Least cost of moving the slots of node `from` to the devices of node `to`. Writes column[i], the
 * place in node `to` of the slot at place i of node `from`. */
static int64_t node_cost(const struct keeper *keep, int from, int to, int *column)
{
    const int n = keep->first[from + 1] - keep->first[from];
    const int old_ranks = keep->old->num_ranks;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            int at = keep->first[from] + i, device = keep->first[to] + j;
            int64_t cost = 0;
            if (!alike(&keep->cluster->devices[at], &keep->cluster->devices[device])) {
                cost = keep->never;
            } else if (keep->slot_of[at] >= 0) {
                int k = keep->slot_of[at] % keep->plan->num_ranks;
                int j_old = keep->old_pos[device] >= 0 ? keep->old_pos[device] : old_ranks;
                cost = keep->lacks[(int64_t)k * (old_ranks + 1) + j_old];
            } else if (device == 0 && keep->with_device_0) {
                cost = keep->never;
            }
            keep->matrix[(int64_t)i * n + j] = cost;
        }
    return assign(n, keep->matrix, column, keep->work);
}

/* Fill keep->lacks: the bytes that a device of each old rank needs to become each new rank. The
 * cost orders by bytes first, then by the number of devices that receive any. */
static enum status fill_lacks(struct keeper *keep, const struct model *model, int *old_rank,
                              int *new_rank, struct err *err)
{
    const struct plan *old = keep->old, *plan = keep->plan;
    const int frozen = model_frozen_items(model, plan->num_frozen_layers);
    ranks_of_items(old, model, old_rank);
    ranks_of_items(plan, model, new_rank);
    for (int n = 0; n <= model->num_items; n++) { /* n = num_items: the copy of the tied table */
        const bool tied = n == model->num_items;
        const int i = tied ? 0 : n, rank = new_rank[tied ? n - 1 : n];
        int64_t per_param = model->param_bytes + (i >= frozen ? plan->optim_bytes_per_param : 0);
        int64_t bytes;
        if (!mul_ok(tied ? tied_copy(model, plan) : model->items[i].params, per_param, &bytes))
            return err_set(err, ERR_INPUT, "item '%s' overflows", model->items[i].name);
        for (int j = 0; j <= old->num_ranks; j++)
            if (tied ? !held_table(model, old_rank, j) : j != old_rank[i]) {
                int64_t *lacks = &keep->lacks[(int64_t)rank * (old->num_ranks + 1) + j];
                if (!add_ok(*lacks, bytes, lacks))
                    return err_set(err, ERR_INPUT, "model '%s' overflows", model->name);
            }
    }
    /* Largest cost for which both assignments stay within the bound of assign(). */
    const int64_t n = keep->widest, N = keep->cluster->num_nodes;
    const int64_t room = INT64_MAX / 8 / (n * n + N * N * n);
    int64_t most = 0, scale = keep->cluster->num_devices + 1;
    const int64_t count = (int64_t)plan->num_ranks * (old->num_ranks + 1);
    for (int64_t i = 0; i < count; i++)
        most = keep->lacks[i] > most ? keep->lacks[i] : most;
    if (most > room)
        return err_set(err, ERR_INPUT, "model '%s' is too large to move: %lld bytes a device",
                       model->name, (long long)most);
    /* The cost is bytes * (devices + 1) + 1, or bytes alone if that would exceed the bound. */
    if (most <= (room - 1) / scale) {
        for (int64_t i = 0; i < count; i++)
            keep->lacks[i] = keep->lacks[i] > 0 ? keep->lacks[i] * scale + 1 : 0;
        most = most * scale + 1;
    }
    keep->never = n * most + 1;
    return OK;
}

/* Where each node's devices are, and which ranks have them in both plans. */
static void keep_places(struct keeper *keep)
{
    const struct cluster *cluster = keep->cluster;
    const struct plan *plan = keep->plan, *old = keep->old;
    for (int d = 0; d < cluster->num_devices; d++) {
        keep->slot_of[d] = keep->old_pos[d] = -1;
        keep->first[cluster->devices[d].node + 1] = d + 1;
    }
    for (int n = 0; n < cluster->num_nodes; n++) {
        const int size = keep->first[n + 1] - keep->first[n];
        keep->widest = size > keep->widest ? size : keep->widest;
    }
    for (int i = 0; i < plan->num_pipelines * plan->num_ranks; i++)
        keep->slot_of[plan->device[i]] = i;
    for (int i = 0; i < old->num_pipelines * old->num_ranks; i++)
        keep->old_pos[old->device[i]] = i % old->num_ranks;
}

enum status autodp_keep_devices(const struct model *model, const struct cluster *cluster,
                                const struct plan *old, bool with_device_0, struct plan *plan,
                                struct err *err)
{
    enum status rc;
    const int N = cluster->num_nodes, D = cluster->num_devices;
    struct keeper keep = {
        .cluster = cluster, .old = old, .plan = plan, .with_device_0 = with_device_0};
    struct arrays arrays = {0};
    int *ranks = arrays_new(&arrays, 2 * (size_t)model->num_items, sizeof *ranks);
    int *renamed = arrays_new(&arrays, (size_t)D, sizeof *renamed);
    int *node_of = arrays_new(&arrays, (size_t)N, sizeof *node_of);
    keep.first = arrays_new(&arrays, (size_t)N + 1, sizeof *keep.first);
    keep.slot_of = arrays_new(&arrays, (size_t)D, sizeof *keep.slot_of);
    keep.old_pos = arrays_new(&arrays, (size_t)D, sizeof *keep.old_pos);
    keep.lacks = arrays_new(&arrays, (size_t)plan->num_ranks * ((size_t)old->num_ranks + 1),
                            sizeof *keep.lacks);
    if (arrays.failed) {
        rc = err_nomem(err);
        goto out;
    }
    keep_places(&keep);
    const size_t widest = (size_t)keep.widest;
    keep.matrix = arrays_new(&arrays, widest * widest, sizeof *keep.matrix);
    keep.work = arrays_new(&arrays, 6 * (widest + 1), sizeof *keep.work);
    keep.column = arrays_new(&arrays, widest, sizeof *keep.column);
    int64_t *nodes = arrays_new(&arrays, (size_t)N * (size_t)N, sizeof *nodes);
    int64_t *node_work = arrays_new(&arrays, 6 * ((size_t)N + 1), sizeof *node_work);
    if (arrays.failed) {
        rc = err_nomem(err);
        goto out;
    }
    rc = fill_lacks(&keep, model_at(model, plan->num_frozen_layers), ranks,
                    ranks + model->num_items, err);
    if (rc != OK)
        goto out;
    for (int a = 0; a < N; a++)
        for (int b = 0; b < N; b++)
            nodes[(int64_t)a * N + b] =
                nodes_alike(&keep, a, b) ? node_cost(&keep, a, b, keep.column) : N * keep.never;
    assign(N, nodes, node_of, node_work);
    for (int a = 0; a < N; a++) {
        node_cost(&keep, a, node_of[a], keep.column);
        for (int i = 0; i < keep.first[a + 1] - keep.first[a]; i++)
            renamed[keep.first[a] + i] = keep.first[node_of[a]] + keep.column[i];
    }
    for (int i = 0; i < plan->num_pipelines * plan->num_ranks; i++)
        plan->device[i] = renamed[plan->device[i]];
out:
    arrays_clear(&arrays);
    return rc;
}
