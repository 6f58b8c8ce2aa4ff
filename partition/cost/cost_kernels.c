/* The cost source of kernel lists. item_ns() adds up what kernels.h lists and device_curves.h times,
 * and remembers answers: a planner asks for the equal layers of a model millions of times. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/cost/cost.h"
#include "partition/cost/device_curves.h"
#include "partition/cost/kernels.h"
#include "partition/model/attention.h"
#include "partition/model/framework.h"
#include "partition/base/units.h"

/* All that a list and its times depend on, apart from the options. */
struct question {
    const struct device_curve *curve;
    const struct framework *framework;
    int64_t samples, params, base_params, fwd_flops, stash_bytes, act_bytes;
    int32_t kind, pass, family, task, seq, hidden, heads, kv_heads, head_dim, mlp, vocab;
    double expert_load;
    int32_t experts, experts_active, expert_mlp, shared_experts, expert_ways;
    int32_t kv_rank, q_rank, rope_dim, v_dim;
    int32_t expert_groups, groups_active;
    int32_t elem_bytes, tensor, flags, window, block, context, lora, adapted, expert_tensor;
};

enum { NUM_SLOTS = 1 << 10, NUM_PROBES = 4 };

struct kernel_costs {
    struct cost_options options;
    /* Answers at mix(question) mod NUM_SLOTS and the places after it; curve NULL: an empty slot.
     * Where all places are taken the first is used again. */
    struct question questions[NUM_SLOTS];
    int64_t answers[NUM_SLOTS];
};

struct kernel_costs *kernel_costs_new(const struct cost_options *options)
{
    struct kernel_costs *costs = calloc(1, sizeof *costs);
    if (costs)
        costs->options = *options;
    return costs;
}

void kernel_costs_free(struct kernel_costs *costs)
{
    free(costs);
}

const struct cost_options *kernel_costs_options(const struct kernel_costs *costs)
{
    return &costs->options;
}

enum { PASS_RERUN = PASS_COUNT }; /* and a value of enum rerun on top, in struct question */

static struct question question_of(const struct model *model, int item, int pass, int64_t samples,
                                   const struct device_curve *curve)
{
    const struct item *it = &model->items[item];
    struct question q;
    memset(&q, 0, sizeof q); /* also the padding, because questions are compared by memcmp() */
    q.curve = curve;
    q.framework = model->framework;
    q.samples = samples;
    q.params = it->params;
    q.fwd_flops = it->fwd_flops;
    q.stash_bytes = it->stash_bytes;
    q.act_bytes = it->act_bytes;
    q.kind = (int32_t)it->kind;
    q.pass = pass;
    q.family = (int32_t)model->family;
    q.task = (int32_t)model->task;
    q.seq = model->seq;
    q.hidden = model->hidden;
    q.heads = model->heads;
    q.kv_heads = model->kv_heads;
    q.head_dim = model->head_dim;
    q.mlp = model->mlp;
    q.vocab = model->vocab + model->classes;
    q.experts = model->experts;
    q.experts_active = model->experts_active;
    q.expert_mlp = model->expert_mlp;
    q.shared_experts = model->shared_experts;
    q.expert_ways = model->expert_ways;
    q.expert_tensor = model->expert_tensor;
    q.expert_groups = model->expert_groups;
    q.groups_active = model->groups_active;
    q.kv_rank = model->kv_rank;
    q.q_rank = model->q_rank;
    q.rope_dim = model->rope_dim;
    q.v_dim = model->v_dim;
    q.elem_bytes = model->elem_bytes;
    q.tensor = model->tensor;
    q.flags = model->sequence_parallel | model->gated_mlp << 1 | model->rope << 2 |
              model->per_microbatch << 3 | attention_is_unfused(model->attention) << 4 |
              model->eager_norm << 5 | model->eager_rope << 6 | model->eager_activation << 7;
    q.flags |= model->overlaps_tensor << 11 | (model->attention == ATTENTION_EAGER) << 12 |
               (model->attention == ATTENTION_FLASH1) << 13 | model->sends_once << 24 |
               model->gathers_fp8 << 25;
    q.base_params = it->base_params;
    q.expert_load = model->expert_load;
    q.lora = model->lora.rank << 5 | model->lora.fused_qkv << 4 | model->lora.dropout << 3 |
             model->lora.head << 2 | model->lora.base;
    q.adapted = model->lora.targets;
    q.context = model->context;
    q.window = model_window(model, it->layer);
    q.block = (int32_t)model->block.norm | (int32_t)model->block.places << 2 |
              (int32_t)model->block.qk_norm << 5 | (int32_t)model->block.positions << 7 |
              model->block.out_bias << 9 | model->block.mlp_bias << 10 |
              model->block.embedding_norm << 11 | model->block.softcap << 12 |
              model_item_has_experts(model, item) << 13 | model->block.expert_mlp_bias << 14 |
              model->block.expert_clamp << 15 | (model_grad_bytes(model) == 2) << 16;
    return q;
}

static size_t slot_of(const struct question *q)
{
    uint64_t words[sizeof *q / 8], hash = 0;
    memcpy(words, q, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = mix64(hash ^ words[i]);
    return (size_t)(hash % NUM_SLOTS);
}
_Static_assert(sizeof(struct question) % 8 == 0, "slot_of() reads whole words");

/* The slot that holds the answer, or the one to write it to. */
static size_t find_slot(const struct kernel_costs *costs, const struct question *q, bool *known)
{
    const size_t first = slot_of(q);
    *known = false;
    for (size_t i = 0; i < NUM_PROBES; i++) {
        const size_t slot = (first + i) % NUM_SLOTS;
        if (!costs->questions[slot].curve)
            return slot;
        if (memcmp(&costs->questions[slot], q, sizeof *q) == 0) {
            *known = true;
            return slot;
        }
    }
    return first;
}

/* How often the host launches something for a list of kernels: those outside CUDA graphs, and a graph
 * of the others. One graph of a step launches none. */
static int64_t count_launches(const struct kernel *list, int count, enum item_kind kind,
                              enum graph_parts graphs)
{
    const bool graph = (graphs == GRAPHS_LAYERS && kind == ITEM_ATTENTION) ||
                       (graphs != GRAPHS_NONE && kind == ITEM_MLP);
    int64_t got = 0;
    bool replays = false;
    if (graphs == GRAPHS_STEP)
        return 0;
    for (int i = 0; i < count; i++)
        if (graph && !list[i].dynamic)
            replays = true;
        else
            got += list[i].launches > 1 ? list[i].launches : 1;
    return got + replays;
}

/* The host launches one kernel after the other, ahead of the device where it can. The optimizer's
 * kernels take many tensors at once, so launching them is not counted: launches is 0. */
static double list_ns(const struct device_curve *curve, double wide, const struct roofline *roof,
                      const struct kernel *list, int count, int64_t launches,
                      const struct framework *framework, const struct cost_options *options)
{
    const double compute = options->compute > 0 ? options->compute : 1;
    const double launch = options->launch > 0 ? options->launch : 1;
    const double host_us =
        framework && framework->launch_us > 0 ? framework->launch_us : curve->host_us;
    double device = 0;
    for (int i = 0; i < count; i++) {
        const bool narrow = list[i].narrow && list[i].kind == KERNEL_MATMUL;
        const double peak = narrow         ? roofline_narrow_peak(roof, options->narrow)
                            : list[i].fp32 ? roof->fp32_flops_per_s
                                           : wide;
        device += device_kernel_ns(curve, peak, roof->mem_bytes_per_s, &list[i]) * compute;
    }
    return fmax(device, (double)launches * host_us * 1e3 * launch);
}

static enum status find_curve(const struct device *device, const struct model *model,
                              const struct device_curve **curve, struct err *err)
{
    char names[160];
    int count = 0;
    *curve = device_curve_of(device);
    if (*curve)
        return OK;
    while (shipped_curve_names[count])
        count++;
    err_set(err, ERR_INFEASIBLE,
            "no kernel curve for device kind '%s', so no kernel costs of model '%s'", device->kind,
            model->name);
    err_hint(err, "known kinds: %s; or '--cost roofline'",
             join_names(shipped_curve_names, count, names, sizeof names));
    return ERR_INFEASIBLE;
}

static enum status pass_ns(struct kernel_costs *costs, const struct model *model, int item,
                           int pass, int64_t samples, const struct device *device, int64_t *ns,
                           struct err *err)
{
    const struct item *it = &model->items[item];
    const struct device_curve *curve;
    struct kernel list[KERNELS_MAX];
    bool known;
    const enum status rc = find_curve(device, model, &curve, err);
    if (rc != OK)
        return rc;
    if (it->kind == ITEM_OPAQUE && it->fwd_flops == 0 && it->fwd_ns > 0)
        return err_set(err, ERR_INFEASIBLE,
                       "no flops for item '%s' of model '%s', so it has no kernel costs", it->name,
                       model->name);
    const struct question q = question_of(model, item, pass, samples, curve);
    const size_t slot = find_slot(costs, &q, &known);
    if (known) {
        *ns = costs->answers[slot];
        return OK;
    }
    const struct roofline *roof = device_roofline(device);
    const double peak = roofline_peak(roof, model, &costs->options);
    if (!(peak > 0))
        return roofline_no_peak(roof, err);
    const enum status narrow = roofline_check_narrow(roof, &costs->options, err);
    if (narrow != OK)
        return narrow;
    const int count =
        pass >= PASS_RERUN
            ? kernels_of_rerun(model, item, (enum rerun)(pass - PASS_RERUN), samples,
                               &costs->options, list)
            : kernels_of(model, item, (enum pass)pass, samples, &costs->options, list);
    const int64_t launches =
        pass == PASS_UPDATE ? 0 : count_launches(list, count, it->kind, costs->options.graphs);
    const double got =
        list_ns(curve, peak, roof, list, count, launches, model->framework, &costs->options) /
        costs->options.efficiency;
    if (!(got < 9e18))
        return err_set(err, ERR_INPUT, "time of item '%s' overflows: %g ns for %lld samples",
                       it->name, got, (long long)samples);
    *ns = (int64_t)ceil(got);
    costs->questions[slot] = q;
    costs->answers[slot] = *ns;
    return OK;
}

static enum status kernels_item_ns(const void *ctx, const struct model *model, int item,
                                   enum pass pass, int64_t samples, const struct device *device,
                                   int64_t *ns, bool *extrapolated, struct err *err)
{
    (void)extrapolated;
    return pass_ns((struct kernel_costs *)ctx, model, item, pass, samples, device, ns, err);
}

static enum status kernels_rerun_ns(const void *ctx, const struct model *model, int item,
                                    enum rerun rerun, int64_t samples, const struct device *device,
                                    int64_t *ns, bool *extrapolated, struct err *err)
{
    (void)extrapolated;
    return pass_ns((struct kernel_costs *)ctx, model, item, PASS_RERUN + (int)rerun, samples,
                   device, ns, err);
}

/* Asked for collectives of a group, as often as a pass of an item, and not remembered. */
static enum status kernels_beside_ns(const void *ctx, const struct model *model, int item,
                                     enum pass pass, int64_t samples, const struct device *device,
                                     enum collective kind, int64_t *ns, struct err *err)
{
    const struct kernel_costs *costs = ctx;
    const enum kernel_beside beside = kind == COLLECTIVE_ALLGATHER        ? BESIDE_GATHER
                                      : kind == COLLECTIVE_REDUCE_SCATTER ? BESIDE_SCATTER
                                                                          : BESIDE_NOTHING;
    const struct device_curve *curve;
    struct kernel list[KERNELS_MAX];
    const enum status rc = find_curve(device, model, &curve, err);
    *ns = 0;
    if (rc != OK || beside == BESIDE_NOTHING)
        return rc;
    const struct roofline *roof = device_roofline(device);
    const double peak = roofline_peak(roof, model, &costs->options);
    const int n = kernels_of(model, item, pass, samples, &costs->options, list);
    int count = 0;
    for (int i = 0; i < n; i++)
        if (list[i].beside == beside)
            list[count++] = list[i];
    const double got =
        list_ns(curve, peak, roof, list, count, 0, model->framework, &costs->options) /
        costs->options.efficiency;
    *ns = got < 9e18 ? (int64_t)got : INT64_MAX;
    return OK;
}

void cost_kernels(struct cost *cost, struct kernel_costs *costs)
{
    *cost = (struct cost){.source = COST_KERNELS,
                          .ctx = costs,
                          .item_ns = kernels_item_ns,
                          .rerun_ns = kernels_rerun_ns,
                          .beside_ns = kernels_beside_ns};
    snprintf(cost->label, sizeof cost->label, "kernel curves of published measurements");
    if (costs->options.efficiency != 1)
        snprintf(cost->label, sizeof cost->label,
                 "kernel curves of published measurements at %g of their speed",
                 costs->options.efficiency);
}
