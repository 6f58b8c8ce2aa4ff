/* The table of a search: prefix sums of bytes, and of times for each device type, micro-batch size,
 * recompute and stash distance that a candidate needed so far. Read planner_bound.h first. */
#include "partition/search/planner_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/layout/tensor_group.h"
#include "partition/layout/model_shard.h"
#include "partition/model/lora.h"
#include "partition/model/attention.h"
#include "partition/step/recompute_fit.h"
#include "partition/base/units.h"

/* bound_times_of() refuses a chain whose times add up to more ns, so that sums cannot overflow. */
#define MAX_CHAIN_NS (INT64_MAX / 16)
/* Number of prefix sums in struct bound_times. */
enum { BOUND_SUMS = 6, BOUND_PASSES = 5 /* without `rerun` */ };

static bool same_type(const struct device *a, const struct device *b)
{
    return a->speed == b->speed && strcmp(a->kind, b->kind) == 0;
}

/* Whether the groups of two devices exchange at one speed. The uplinks count if groups are several
 * nodes. */
static bool same_group(const struct planner_problem *problem, const struct device *a,
                       const struct device *b)
{
    const struct cluster *cluster = problem->setting.cluster;
    const double *uplink = cluster->uplink_bytes_per_s;
    const int last = bound_tensor(problem->setting.model) - 1;
    return problem->setting.model->tensor < 2 ||
           ((cluster_pod(cluster, a->node) == cluster_pod(cluster, a[last].node)) ==
                (cluster_pod(cluster, b->node) == cluster_pod(cluster, b[last].node)) &&
            a->link_bytes_per_s == b->link_bytes_per_s && device_nic(a) == device_nic(b) &&
            uplink[a->node] == uplink[b->node]);
}

static enum status find_types(struct bound_table *table, struct err *err)
{
    const struct cluster *cluster = table->problem->setting.cluster;
    const struct model *model = table->problem->setting.model;
    const int num_groups = tensor_group_list(cluster, bound_tensor(model), table->type_of_device);
    for (int g = num_groups - 1; g >= 0; g--) { /* the list of first devices, each in its place */
        const int d = table->type_of_device[g];
        table->type_of_device[g] = 0;
        table->type_of_device[d] = -1;
    }
    for (int d = 0; d < cluster->num_devices; d++) {
        int type = 0;
        if (table->type_of_device[d] == 0) /* not the first of its group */
            continue;
        while (type < table->num_types &&
               !(same_type(&cluster->devices[d], &cluster->devices[table->device_of_type[type]]) &&
                 same_group(table->problem, &cluster->devices[d],
                            &cluster->devices[table->device_of_type[type]])))
            type++;
        if (type == table->num_types) {
            if (type == 1024)
                return err_set(err, ERR_INPUT,
                               "cluster: more than 1024 different kinds and speeds of device");
            table->device_of_type[table->num_types++] = d;
        }
        table->type_of_device[d] = type;
    }
    return OK;
}

/* The bytes that a replica always holds of an active or frozen item: undivided bytes, and bytes
 * that the replicas divide under the problem's shard mode. */
static bool fixed_bytes(const struct bound_table *table, int index, bool active, int64_t *whole,
                        int64_t *split)
{
    const struct planner_problem *problem = table->problem;
    const struct model *model = problem->setting.model;
    const enum shard_mode shard = problem->layout.shard;
    const bool away = problem->layout.offload;
    const int copy = model_weight_bytes(model) - model->param_bytes;
    const struct {
        int64_t bytes_per_param;
        enum shard_mode from;
    } parts[] = {
  /* masters beside narrow copies belong to the optimizer (workload_stages.c) */
        {away && active && copy > 0 ? 0 : model->param_bytes,
         copy > 0 && active ? SHARD_OPTIMIZER : SHARD_WEIGHTS                  },
        {copy,                                                 SHARD_WEIGHTS   },
        {active ? model_grad_bytes(model) : 0,                 SHARD_GRADIENTS },
        {active && !away ? problem->optim_bytes_per_param : 0, SHARD_OPTIMIZER },
        {active && problem->lagged ? 4 : 0,                    SHARD_MODE_COUNT}, /* nobody divides it */
    };
    const int64_t base = model_base_bytes(model, index);
    /* R/E replicas share divided experts. That is E times as much as a share of all R. */
    const int64_t params = model->items[index].params,
                  more = mul_saturated(model_expert_params(model, index),
                                       layout_expert_span(&problem->layout) - 1);
    *whole = shard < SHARD_WEIGHTS ? base : 0;
    *split = shard < SHARD_WEIGHTS ? 0 : base;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const bool divided = shard >= parts[i].from;
        int64_t bytes, *sum = divided ? split : whole;
        if (!mul_ok(add_saturated(params, divided ? more : 0), parts[i].bytes_per_param, &bytes) ||
            !add_ok(*sum, bytes, sum))
            return false;
    }
    return true;
}

/* The least that an active item keeps when RECOMPUTE_LAYER runs its layer again: its first item the
 * layer's input, unless a frozen prefix hands that over. */
static int64_t least_kept_bytes(const struct bound_table *table, int i)
{
    const struct model *model = table->problem->setting.model;
    const struct item *item = &model->items[i];
    if (!recompute_in_layer(model, i))
        return item->stash_bytes;
    if (i == 0 || model->items[i - 1].layer == item->layer)
        return 0;
    return bound_min(model->items[i - 1].act_bytes, item->stash_bytes);
}

static enum status sum_bytes(struct bound_table *table, struct err *err)
{
    const struct planner_problem *problem = table->problem;
    const struct model *model = problem->setting.model;
    for (int i = 0; i < model->num_items; i++) {
        const struct item *item = &model->items[i];
        bool active = i >= table->num_frozen_items;
        /* With divided experts the rings of their gradients are shorter, or there are none. */
        const int64_t reduced =
            item->params -
            (layout_expert_span(&problem->layout) > 1 ? model_expert_params(model, i) : 0);
        int64_t gradients, whole, split;
        if (!fixed_bytes(table, i, active, &whole, &split) ||
            !mul_ok(reduced, model_grad_bytes(model), &gradients) ||
            !add_ok(table->whole_bytes[i], whole, &table->whole_bytes[i + 1]) ||
            !add_ok(table->split_bytes[i], split, &table->split_bytes[i + 1]) ||
            !add_ok(table->stash_bytes[i], active ? item->stash_bytes : 0,
                    &table->stash_bytes[i + 1]))
            return err_set(err, ERR_INPUT, "sizes of model '%s' overflow at item '%s'", model->name,
                           item->name);
        table->grad_bytes[i + 1] = table->grad_bytes[i] + (active ? gradients : 0);
        for (int p = 0; p < RERUN_COUNT; p++) {
            const int64_t part = active ? model_rerun_bytes(model, i, (enum rerun)p) : 0;
            table->part_bytes[p][i + 1] =
                table->part_bytes[p][i] + (active ? item->stash_bytes - part : 0);
            table->has_part[p] |= part > 0;
        }
        table->layer_bytes[i + 1] =
            table->layer_bytes[i] + (active ? least_kept_bytes(table, i) : 0);
    }
    return OK;
}

enum status bound_table_init(struct bound_table *table, const struct planner_problem *problem,
                             struct err *err)
{
    enum status rc;
    size_t entries = (size_t)problem->setting.model->num_items + 1;
    size_t devices = (size_t)problem->setting.cluster->num_devices;
    *table = (struct bound_table){
        .problem = problem,
        .num_frozen_items = model_frozen_items(problem->setting.model, problem->num_frozen_layers),
        .type_of_device = calloc(devices, sizeof *table->type_of_device),
        .device_of_type = calloc(devices, sizeof *table->device_of_type),
        .whole_bytes = calloc(entries, sizeof *table->whole_bytes),
        .split_bytes = calloc(entries, sizeof *table->split_bytes),
        .grad_bytes = calloc(entries, sizeof *table->grad_bytes),
        .stash_bytes = calloc(entries, sizeof *table->stash_bytes),
        .part_bytes[RERUN_CORE] = calloc(entries, sizeof(int64_t)),
        .part_bytes[RERUN_NORMS] = calloc(entries, sizeof(int64_t)),
        .part_bytes[RERUN_OPS] = calloc(entries, sizeof(int64_t)),
        .layer_bytes = calloc(entries, sizeof *table->layer_bytes)};
    if (!table->type_of_device || !table->device_of_type || !table->whole_bytes ||
        !table->split_bytes || !table->grad_bytes || !table->stash_bytes ||
        !table->part_bytes[RERUN_CORE] || !table->part_bytes[RERUN_NORMS] ||
        !table->part_bytes[RERUN_OPS] || !table->layer_bytes) {
        rc = err_nomem(err);
        goto out;
    }
    rc = find_types(table, err);
    THEN(sum_bytes(table, err));
out:
    if (rc != OK)
        bound_table_clear(table);
    return rc;
}

void bound_table_clear(struct bound_table *table)
{
    for (int i = 0; i < table->room_times; i++) {
        if (table->times[i])
            free(table->times[i]->fwd);
        free(table->times[i]);
    }
    free(table->times);
    free(table->type_of_device);
    free(table->device_of_type);
    free(table->whole_bytes);
    free(table->split_bytes);
    free(table->grad_bytes);
    free(table->stash_bytes);
    for (int p = 0; p < RERUN_COUNT; p++)
        free(table->part_bytes[p]);
    free(table->layer_bytes);
    *table = (struct bound_table){0};
}

/* Add the parts that run again, at the device's nominal speed. */
static enum status add_core(struct bound_table *table, const struct bound_times *times, int item,
                            const struct device *device, int64_t *ns, struct err *err)
{
    const struct setting *setting = &table->problem->setting;
    int64_t core;
    const enum rerun parts = (enum rerun)(times->again_mode - AGAIN_PARTS);
    const enum status rc = cost_rerun_ns(setting->cost, setting->model, item, parts, times->samples,
                                         device, &core, &table->extrapolated, err);
    if (rc == OK)
        *ns = add_saturated(*ns, core);
    return rc;
}

/* Enter what item i adds when its layer runs again. Without AGAIN_LAYER nothing runs again so. */
static void add_rerun(const struct bound_table *table, struct bound_times *times, int i, int64_t ns)
{
    const int64_t saved = table->stash_bytes[i + 1] - table->stash_bytes[i] -
                          table->layer_bytes[i + 1] + table->layer_bytes[i];
    times->rerun[i + 1] = times->rerun[i] + ns; /* a sum of forwards, which fill_times() checks */
    if (saved > 0)
        times->rerun_ns_per_byte = fmin(times->rerun_ns_per_byte, (double)ns / (double)saved);
}

static enum status fill_times(struct bound_table *table, struct bound_times *times, struct err *err)
{
    const struct planner_problem *problem = table->problem;
    const struct device *device =
        &problem->setting.cluster->devices[table->device_of_type[times->type]];
    const int nf = table->num_frozen_items;
    const bool keeps = times->again_mode == AGAIN_NEVER || times->again_mode >= AGAIN_PARTS;
    times->rerun_ns_per_byte = INFINITY;
    for (int i = 0; i < problem->setting.model->num_items; i++) {
        const bool active = i >= nf;
        const bool again =
            i >= 2 && i - 2 > nf && model_items_alike(problem->setting.model, i, i - 2);
        const struct {
            int64_t *sum;
            enum pass pass;
            bool runs;
        } parts[BOUND_PASSES] = {
            {times->fwd,        active && keeps ? PASS_FWD : PASS_FWD_NOGRAD,       true            },
            {times->again,      PASS_FWD,                                           active && !keeps},
            {times->bwd_input,  i == nf && nf > 0 ? PASS_BWD_REST : PASS_BWD_INPUT, active          },
            {times->bwd_weight, PASS_BWD_WEIGHT,                                    active          },
            {times->update,     PASS_UPDATE,
             active && problem->layout.shard == SHARD_NONE && !problem->layout.offload              },
        };
        int64_t rerun = again ? times->rerun[i - 1] - times->rerun[i - 2] : 0;
        for (int j = 0; j < BOUND_PASSES; j++) {
            /* For an update, cost_item_ns() takes the number of optimizer states (cost.h). */
            const int64_t samples =
                parts[j].pass == PASS_UPDATE ? problem->optim_bytes_per_param / 4 : times->samples;
            int64_t ns = 0, *const sum = parts[j].sum + i;
            if (again) { /* every layer of most models */
                ns = sum[-1] - sum[-2];
            } else if (parts[j].runs) {
                enum status rc =
                    cost_item_ns(problem->setting.cost, problem->setting.model, i, parts[j].pass,
                                 samples, device, times->distance, &ns, &table->extrapolated, err);
                if (rc != OK)
                    return rc;
                if (parts[j].sum == times->bwd_input && times->again_mode >= AGAIN_PARTS) {
                    rc = add_core(table, times, i, device, &ns, err);
                    if (rc != OK)
                        return rc;
                }
                if (device->speed != 1)
                    ns = (int64_t)fmin(floor((double)ns / device->speed), 9e18);
                if (parts[j].pass == PASS_BWD_WEIGHT)
                    ns = model_weight_ns(problem->setting.model, i, problem->num_frozen_layers, ns);
                /* A layer runs a second time or not, as the cut's memory needs. Without, it takes
                 * PASS_FWD once, and forwards before others wait no longer than the shorter of
                 * PASS_FWD and PASS_FWD_NOGRAD: near stash (stash-distance) may shorten only the
                 * first. */
                if (parts[j].sum == times->again && times->again_mode == AGAIN_LAYER) {
                    rerun = times->fwd[i + 1] - times->fwd[i];
                    times->fwd[i + 1] -= bound_max(rerun - ns, 0);
                    ns = bound_max(ns - rerun, 0);
                }
            }
            if (!add_ok(sum[0], ns, &sum[1]) || sum[1] > MAX_CHAIN_NS)
                return err_set(err, ERR_INPUT, "times of model '%s' overflow at item '%s'",
                               problem->setting.model->name, problem->setting.model->items[i].name);
        }
        add_rerun(table, times, i,
                  active && recompute_in_layer(problem->setting.model, i) ? rerun : 0);
    }
    if (isinf(times->rerun_ns_per_byte)) /* nothing can be given up */
        times->rerun_ns_per_byte = 0;
    return OK;
}

/* The slot of a key's sums in a hash table of `room` entries, or the free slot where they
 * belong. */
static int slot_of(struct bound_times *const *times, int room, const struct bound_times *key)
{
    const uint64_t hash = ((uint64_t)key->samples * 64 + (uint64_t)key->type * 4 +
                           (uint64_t)key->again_mode + (uint64_t)key->distance * 31) *
                          0x9E3779B97F4A7C15u;
    int at = (int)(hash >> 32 & (unsigned)(room - 1));
    while (times[at] &&
           !(times[at]->type == key->type && times[at]->samples == key->samples &&
             times[at]->again_mode == key->again_mode && times[at]->distance == key->distance))
        at = (at + 1) & (room - 1);
    return at;
}

/* Make room for one more. */
static enum status grow_times(struct bound_table *table, struct err *err)
{
    const int room = table->room_times ? 2 * table->room_times : 64;
    if (2 * table->num_times < table->room_times)
        return OK;
    struct bound_times **grown = calloc((size_t)room, sizeof *grown);
    if (!grown)
        return err_nomem(err);
    for (int i = 0; i < table->room_times; i++)
        if (table->times[i])
            grown[slot_of(grown, room, table->times[i])] = table->times[i];
    free(table->times);
    table->times = grown;
    table->room_times = room;
    return OK;
}

enum status bound_times_of(struct bound_table *table, int type, int64_t samples,
                           enum bound_again again, int64_t distance,
                           const struct bound_times **times, struct err *err)
{
    if (!table->problem->setting.cost->near_ns_per_byte)
        distance = STASH_FAR;
    struct bound_times key = {
        .type = type, .samples = samples, .again_mode = again, .distance = distance};
    enum status rc = grow_times(table, err);
    if (rc != OK)
        return rc;
    const int slot = slot_of(table->times, table->room_times, &key);
    *times = table->times[slot];
    if (*times)
        return OK;
    const size_t entries = (size_t)table->problem->setting.model->num_items + 1;
    struct bound_times *fresh = malloc(sizeof *fresh);
    int64_t *block = calloc(entries * BOUND_SUMS, sizeof *block);
    if (!fresh || !block) {
        free(fresh);
        free(block);
        return err_nomem(err);
    }
    key.fwd = block;
    key.again = block + entries;
    key.bwd_input = block + 2 * entries;
    key.bwd_weight = block + 3 * entries;
    key.update = block + 4 * entries;
    key.rerun = block + 5 * entries;
    *fresh = key;
    rc = fill_times(table, fresh, err);
    if (rc != OK) {
        free(block);
        free(fresh);
        return rc;
    }
    table->times[slot] = fresh;
    table->num_times++;
    *times = fresh;
    return OK;
}
