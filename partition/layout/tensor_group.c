/* struct tensor_group owns a model, a cluster and a cost source that wraps the setting's own. Read
 * tensor_group_new() at the end first. */
#include "partition/layout/tensor_group.h"

#include <stdlib.h>
#include <string.h>

#include "partition/layout/model_shard.h"
#include "partition/model/attention.h"
#include "partition/model/framework.h"
#include "partition/base/units.h"

enum { TENSOR_MAX = 64 };

struct tensor_group {
    const struct cost *inner;    /* borrowed */
    const struct cluster *whole; /* borrowed: the cluster of all devices, as it is */
    struct model model;          /* owned */
    struct cluster cluster;      /* owned; empty without groups */
    struct cluster apart; /* owned; `whole` as one of X all-to-alls at once sees it; empty where
                                    X is 1 or T */
    struct cost cost;
    struct setting setting;
    int tensor;
};

/* The device after the last one of the node that device d is on. */
static int node_end(const struct cluster *cluster, int d)
{
    int end = d + 1;
    while (end < cluster->num_devices && cluster->devices[end].node == cluster->devices[d].node)
        end++;
    return end;
}

/* Whether the whole nodes from device d on, the first one of its node, have `tensor` devices
 * together and one size. */
static bool whole_nodes(const struct cluster *cluster, int d, int tensor)
{
    const int size = node_end(cluster, d) - d;
    if (tensor % size != 0 || tensor > cluster->num_devices - d)
        return false;
    for (int next = d; next < d + tensor; next += size)
        if (node_end(cluster, next) - next != size)
            return false;
    return true;
}

int tensor_group_list(const struct cluster *cluster, int tensor, int *first)
{
    int count = 0, widest = 0;
    for (int d = 0, end; d < cluster->num_devices; d = end) {
        end = node_end(cluster, d);
        widest = end - d > widest ? end - d : widest;
        for (int group = d; group + tensor <= end; group += tensor, count++)
            if (first)
                first[count] = group;
    }
    for (int d = 0; tensor > widest && d < cluster->num_devices;) {
        const bool spans = whole_nodes(cluster, d, tensor);
        if (spans && first)
            first[count] = d;
        count += spans;
        d = spans ? d + tensor : node_end(cluster, d);
    }
    return count;
}

bool tensor_group_fits(const struct cluster *cluster, int tensor, int first)
{
    const struct device *devices = cluster->devices;
    if (tensor > cluster->num_devices - first)
        return false;
    return devices[first + tensor - 1].node == devices[first].node ||
           ((first == 0 || devices[first - 1].node != devices[first].node) &&
            whole_nodes(cluster, first, tensor));
}

enum status tensor_group_check(const struct cluster *cluster, int tensor, struct err *err)
{
    if (tensor < 2 || tensor_group_fits(cluster, tensor, 0) ||
        tensor_group_list(cluster, tensor, NULL) > 0)
        return OK;
    return err_set(
        err, ERR_INFEASIBLE,
        "pipeline.tensor %d: no node of cluster '%s' has as many devices, nor have whole "
        "nodes of one size",
        tensor, cluster->name);
}

/* Time of a collective of n neighbours from device `first` on, alone on their links. */
static int64_t neighbours_ns(const struct tensor_group *l, enum collective kind, int first, int n,
                             int64_t bytes)
{
    int devices[TENSOR_MAX];
    for (int i = 0; i < n; i++)
        devices[i] = first + i;
    return cost_collective_ns(l->inner, l->whole, kind, devices, n, bytes);
}

static int64_t group_collective_ns(const void *ctx, enum collective kind, int first, int64_t bytes)
{
    const struct tensor_group *l = ctx;
    return neighbours_ns(l, kind, first, l->tensor, bytes);
}

/* A pass of an item over `samples` samples on the first device of a group. */
struct group_pass {
    int item;
    enum pass pass;
    int64_t samples;
    const struct device *device;
};

/* The exposed time of a collective that is cut into T - 1 copies, of which each runs beside one of T parts of a
 * product: as much as each copy takes longer than a part (PyTorch, torch/distributed/_symmetric_memory/__init__.py,
 * _pipelined_multi_all_gather_and_consume() and _pipelined_produce_and_all2all()). The first part of a gather is the
 * device's own, and the last part before a scatter needs no copy. All of it without a product. */
static enum status stepped_ns(const struct tensor_group *l, const struct group_pass *p,
                              enum collective kind, int64_t ns, int64_t *exposed, struct err *err)
{
    int64_t product = INT64_MAX;
    const enum status rc = l->inner->beside_ns
                               ? l->inner->beside_ns(l->inner->ctx, &l->model, p->item, p->pass,
                                                     p->samples, p->device, kind, &product, err)
                               : OK;
    const int64_t covered = product - product / l->tensor;
    *exposed = ns > covered ? ns - covered : 0;
    return rc;
}

/* The exposed time of a collective that Transformer Engine overlaps with a product in T pieces: 0 for a gather,
 * whose first piece is the device's own, and the last piece of a reduce-scatter. */
static enum status exposed_ns(const struct tensor_group *l, const struct group_pass *p,
                              enum collective kind, int64_t ns, int64_t *exposed, struct err *err)
{
    *exposed = ns;
    if (!l->model.overlaps_tensor || !l->model.sequence_parallel)
        return OK;
    if (model_steps_tensor(&l->model))
        return stepped_ns(l, p, kind, ns, exposed, err);
    *exposed = kind == COLLECTIVE_ALLGATHER        ? 0
               : kind == COLLECTIVE_REDUCE_SCATTER ? ns / l->tensor
                                                   : ns;
    return OK;
}

/* Time of the collectives that a pass waits for; `device` is of the group's cluster. `hidden_ns` is that of the
 * others. alone: none overlaps. */
static enum status exchange_ns(const struct tensor_group *l, const struct group_pass *p, bool alone,
                               int64_t *ns, int64_t *hidden_ns, struct err *err)
{
    struct exchange exchanges[MODEL_EXCHANGES_MAX];
    const int n = model_exchanges(&l->model, p->item, p->pass, exchanges);
    const int first = (int)(p->device - l->cluster.devices);
    enum status rc = OK;
    *ns = *hidden_ns = 0;
    for (int i = 0; i < n && rc == OK; i++) {
        int64_t bytes, all, wait = 0;
        if (exchanges[i].hidden)
            continue;
        const int part = exchanges[i].devices ? exchanges[i].devices : l->tensor;
        bool fits = mul_ok(exchanges[i].bytes, p->pass == PASS_UPDATE ? 1 : p->samples, &bytes) &&
                    mul_ok(neighbours_ns(l, exchanges[i].kind, first, part, bytes),
                           exchanges[i].count, &all);
        if (fits && alone)
            wait = all;
        else if (fits)
            rc = exposed_ns(l, p, exchanges[i].kind, all, &wait, err);
        fits = fits && add_ok(*ns, wait, ns) && add_ok(*hidden_ns, all - wait, hidden_ns);
        if (!fits)
            rc = err_set(err, ERR_INPUT, "collectives of item '%s' overflow",
                         l->model.items[p->item].name);
    }
    return rc;
}

static enum status group_item_ns(const void *ctx, const struct model *model, int item,
                                 enum pass pass, int64_t samples, const struct device *device,
                                 int64_t *ns, bool *extrapolated, struct err *err)
{
    const struct tensor_group *l = ctx;
    int64_t exchanged, hidden;
    enum status rc =
        l->inner->item_ns(l->inner->ctx, model, item, pass, samples, device, ns, extrapolated, err);
    THEN(exchange_ns(l, &(struct group_pass){item, pass, samples, device}, false, &exchanged,
                     &hidden, err));
    /* The hidden part must not exceed the compute that hides it. */
    if (rc == OK && hidden > *ns)
        *ns = hidden;
    /* The caller divides by the device's speed, which is the network's no more than the host's. */
    if (rc == OK && device->speed != 1)
        exchanged = (int64_t)((double)exchanged * device->speed);
    if (rc == OK)
        *ns = add_saturated(*ns, exchanged);
    return rc;
}

/* Ops that run again gather their input once more; sums are saved. PyTorch's gather is alone: its product is saved,
 * or reads the input transposed, and is not found (torch/_inductor/fx_passes/micro_pipeline_tp.py). */
static enum status group_rerun_ns(const void *ctx, const struct model *model, int item,
                                  enum rerun rerun, int64_t samples, const struct device *device,
                                  int64_t *ns, bool *extrapolated, struct err *err)
{
    const struct tensor_group *l = ctx;
    int64_t exchanged = 0, hidden = 0;
    enum status rc =
        cost_rerun_ns(l->inner, model, item, rerun, samples, device, ns, extrapolated, err);
    if (rerun == RERUN_OPS && *ns > 0)
        THEN(exchange_ns(l, &(struct group_pass){item, PASS_FWD, samples, device},
                         model_steps_tensor(&l->model), &exchanged, &hidden, err));
    if (rc == OK && device->speed != 1)
        exchanged = (int64_t)((double)exchanged * device->speed);
    if (rc == OK)
        *ns = add_saturated(*ns, exchanged / 2);
    return rc;
}

/* The devices of a group that stand X apart have different experts; the X all-to-alls are at once. */
static int64_t group_experts_ns(const void *ctx, const int *first, int n, int64_t bytes)
{
    const struct tensor_group *l = ctx;
    const int X = l->model.expert_tensor, each = l->tensor / X, all = n * each;
    int *devices = malloc((size_t)all * sizeof *devices);
    if (!devices)
        return INT64_MAX;
    for (int i = 0; i < all; i++)
        devices[i] = first[i / each] + i % each * X;
    const int64_t ns = cost_collective_ns(l->inner, X > 1 ? &l->apart : l->whole,
                                          COLLECTIVE_ALLTOALL, devices, all, bytes);
    free(devices);
    return ns;
}

static int64_t group_transfer_ns(const void *ctx, const struct cluster *cluster, int from, int to,
                                 int64_t bytes)
{
    return cost_transfer_ns(((const struct tensor_group *)ctx)->inner, cluster, from, to, bytes);
}

static int64_t group_allreduce_ns(const void *ctx, const struct cluster *cluster,
                                  const int *devices, int n, int64_t bytes)
{
    return cost_allreduce_ns(((const struct tensor_group *)ctx)->inner, cluster, devices, n, bytes);
}

static void lower_to(double *value, double other)
{
    if (other < *value)
        *value = other;
}

/* The first device of each group becomes the slowest and smallest of its devices. The group's
 * devices on a node divide its uplink, those in a pod the pod's, and the first node has the
 * narrowest uplink of the group's.
 */
static void group_devices(struct cluster *cluster, int tensor, const int *first, int num_groups)
{
    for (int g = 0; g < num_groups; g++) {
        struct device *one = &cluster->devices[first[g]];
        for (int i = 1; i < tensor; i++) {
            const struct device *other = one + i;
            if (other->mem_bytes < one->mem_bytes)
                one->mem_bytes = other->mem_bytes;
            lower_to(&one->speed, other->speed);
            lower_to(&one->link_bytes_per_s, other->link_bytes_per_s);
            lower_to(&one->nic_bytes_per_s, other->nic_bytes_per_s);
            lower_to(&one->copy_bytes_per_s, other->copy_bytes_per_s);
            lower_to(&cluster->uplink_bytes_per_s[one->node],
                     cluster->uplink_bytes_per_s[other->node]);
        }
    }
    int in_pod = 0; /* devices of the first pod */
    while (in_pod < cluster->num_devices && cluster_device_pod(cluster, in_pod) == 0)
        in_pod++;
    cluster->pod_uplink_bytes_per_s /= tensor < in_pod ? tensor : in_pod;
    for (int d = 0, end; d < cluster->num_devices; d = end) {
        end = node_end(cluster, d);
        cluster->uplink_bytes_per_s[cluster->devices[d].node] /=
            tensor < end - d ? tensor : end - d;
    }
}

static enum status make_groups(struct tensor_group *l, const struct cluster *cluster,
                               struct err *err)
{
    const int most = cluster->num_devices / l->tensor;
    int *first = malloc(((size_t)most + 1) * sizeof *first);
    enum status rc = first ? cluster_copy(cluster, &l->cluster, err) : err_nomem(err);
    const int groups = rc == OK ? tensor_group_list(cluster, l->tensor, first) : 0;
    THEN(tensor_group_check(cluster, l->tensor, err));
    if (rc == OK)
        group_devices(&l->cluster, l->tensor, first, groups);
    free(first);
    return rc;
}

/* Whether the devices are of Ampere or later, which FlashAttention needs (Dao-AILab/flash-attention, README.md): those
 * before it are the ones without bf16 units. */
static bool has_flash(const struct cluster *cluster)
{
    const struct roofline *roof = device_roofline(&cluster->devices[0]);
    return !roof || !roofline_lacks_bf16(roof);
}

/* Whether the setting leaves it to us if attention is fused. */
static bool fuses(const struct setting *setting)
{
    bool open = setting->model->attention == ATTENTION_AUTO && setting->model->heads > 0 &&
                !cost_is_measured(setting->cost) && setting->cost->source != COST_CONSTANT;
    for (int d = 0; d < setting->cluster->num_devices && open; d++)
        open = !device_is_host(&setting->cluster->devices[d]);
    return open;
}

/* Check the replicas that divide something, `ways` of them by the key `what`. */
static enum status check_ways(const struct setting *setting, int tensor, const char *what, int ways,
                              struct err *err)
{
    const int groups = tensor_group_list(setting->cluster, tensor, NULL);
    if (cost_is_measured(setting->cost))
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.%s %d: a measured profile has no times of divided %s", what, ways,
                       strcmp(what, "expert") == 0 ? "experts" : "samples");
    if (groups < ways)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.%s %d: cluster '%s' has room for %d replicas at most", what, ways,
                       setting->cluster->name, groups);
    return OK;
}

static enum status check_group(const struct setting *setting, int tensor, struct err *err)
{
    if (tensor > TENSOR_MAX)
        return err_set(err, ERR_INFEASIBLE, "pipeline.tensor must be at most %d, got %d",
                       TENSOR_MAX, tensor);
    if (cost_is_measured(setting->cost))
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.tensor %d: a measured profile has no times of a %d-th of an item",
                       tensor, tensor);
    return OK;
}

/* What of a layout a model does not have yet. */
struct division {
    const struct layout *layout;
    int T, C, X;
    bool divides, spreads, splits, fused;
};

static enum status check_division(const struct setting *setting, const struct division *d,
                                  struct err *err)
{
    const struct layout *layout = d->layout;
    enum status rc = d->divides ? check_group(setting, d->T, err) : OK;
    if (d->spreads)
        THEN(check_ways(setting, d->X, "expert", layout->expert, err));
    if (d->spreads || d->X != d->T)
        THEN(model_experts_check(setting->model, layout, err));
    if (d->splits) {
        THEN(check_ways(setting, d->T, "context", d->C, err));
        THEN(model_context_check(setting->model, d->C, layout->context_kind, d->T, err));
    }
    return rc;
}

/* The costs of a group are those of one device, with times of its own where devices share work. */
static void group_costs(struct tensor_group *l, const struct cost *one, const struct division *d)
{
    l->cost = *one;
    if (!d->divides)
        return;
    l->cost.ctx = l;
    l->cost.item_ns = group_item_ns;
    l->cost.rerun_ns = group_rerun_ns;
    l->cost.beside_ns = NULL;
    l->cost.group_ns = group_collective_ns;
    l->cost.experts_ns = d->spreads && d->X < d->T ? group_experts_ns : NULL;
    l->cost.near_ns_per_byte = NULL;
    l->cost.transfer_ns = one->transfer_ns ? group_transfer_ns : NULL;
    l->cost.allreduce_ns = one->allreduce_ns ? group_allreduce_ns : NULL;
}

/* The parts of a model that a layout divides: each is whole before. */
static struct division division_of(const struct setting *setting, const struct layout *layout)
{
    const struct model *whole = setting->model;
    struct division d = {.layout = layout, .T = 1, .C = layout->context, .fused = fuses(setting)};
    d.divides = layout->tensor > 1 && whole->tensor < 2;
    d.spreads = layout->expert > 1 && whole->expert_ways < 2;
    d.splits = d.C > 1 && whole->context < 2;
    if (d.divides)
        d.T = layout->tensor;
    d.X = layout->expert_tensor > 0 ? layout->expert_tensor : d.T;
    return d;
}

enum status tensor_group_new(const struct setting *setting, const struct layout *layout,
                             struct tensor_group **group, struct err *err)
{
    const struct model *whole = setting->model;
    const struct division d = division_of(setting, layout);
    *group = NULL;
    enum status rc = check_division(setting, &d, err);
    if (rc != OK || (!d.divides && !d.fused && !d.spreads && !d.splits))
        return rc;
    struct tensor_group *l = calloc(1, sizeof *l);
    struct model tokens = {0};
    if (!l)
        return err_nomem(err);
    if (d.splits)
        rc = model_copy(whole, &tokens, err);
    if (rc == OK && d.splits)
        model_divide_tokens(&tokens, d.C);
    l->inner = setting->cost;
    l->whole = setting->cluster;
    l->tensor = d.T;
    THEN(model_shard(d.splits ? &tokens : whole, d.T, layout->sequence_parallel, &l->model, err));
    if (rc == OK && d.spreads)
        model_divide_experts(&l->model, layout->expert, d.X);
    if (rc == OK && d.fused)
        model_set_attention(&l->model,
                            has_flash(setting->cluster) ? ATTENTION_FUSED : ATTENTION_UNFUSED);
    if (d.divides)
        THEN(make_groups(l, setting->cluster, err));
    if (d.spreads && d.X > 1 && d.X < d.T)
        THEN(cluster_copy(setting->cluster, &l->apart, err));
    for (int n = 0; n < l->apart.num_nodes; n++)
        l->apart.uplink_bytes_per_s[n] /= d.X;
    l->apart.pod_uplink_bytes_per_s /= d.X;
    group_costs(l, setting->cost, &d);
    l->setting = (struct setting){&l->model, d.divides ? &l->cluster : setting->cluster, &l->cost};
    if (rc == OK) {
        *group = l;
        l = NULL;
    }
    model_clear(&tokens);
    tensor_group_free(l);
    return rc;
}

void tensor_group_free(struct tensor_group *group)
{
    if (!group)
        return;
    model_clear(&group->model);
    cluster_clear(&group->cluster);
    cluster_clear(&group->apart);
    free(group);
}

struct setting tensor_group_setting(const struct tensor_group *group, const struct setting *setting)
{
    return group ? group->setting : *setting;
}
