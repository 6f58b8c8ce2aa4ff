/* The costs that a layout adds to a stage: items that run again inside the backward, gathers
 * of a tensor-parallel group, and gathers and reduce-scatters of shards between replicas. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/layout/model_shard.h"
#include "partition/model/attention.h"
#include "partition/model/framework.h"
#include "partition/model/lora.h"
#include "partition/step/recompute_fit.h"
#include "partition/step/workload_build.h"

/* --- recompute inside the backward ------------------------------------------------------------ */

/* The end of the unit that starts at an item: items of one layer belong together, others stand
 * alone. Layers are what recompute runs again and what shards gather at once. */
static int unit_end(const struct model *model, int first, int end)
{
    const int layer = model->items[first].layer;
    int i = first + 1;
    while (layer >= 0 && layer < model->num_layers && i < end && model->items[i].layer == layer)
        i++;
    return i;
}

void builder_find_again(struct builder *b, int s)
{
    const int end = b->plan->first_item[s + 1];
    int left = b->plan->recompute == RECOMPUTE_LAYER ? b->plan->recompute_layers[s] : 0;
    int first = builder_first_active(b, s);
    while (first < end && !recompute_in_layer(b->model, first))
        first++;
    b->again_first = b->again_end = first;
    while (left-- > 0 && b->again_end < end && recompute_in_layer(b->model, b->again_end))
        b->again_end = unit_end(b->model, b->again_end, end);
}

/* Bytes of what enters an item: the output of the item before it, and skip tensors. */
static int64_t input_bytes(const struct model *model, int item)
{
    int64_t bytes = item > 0 ? model->items[item - 1].act_bytes : 0;
    for (int i = 0; i < model->num_skips; i++)
        if (model->skips[i].to == item)
            bytes = add_saturated(bytes, model->skips[i].bytes);
    return bytes;
}

/* A recomputed layer keeps only its input, with the layer's first item. */
int64_t builder_kept_bytes(const struct builder *b, int item)
{
    const int64_t stash = b->model->items[item].stash_bytes;
    if (builder_runs_again(b, item)) {
        const bool starts = item == b->again_first ||
                            b->model->items[item - 1].layer != b->model->items[item].layer;
        return starts ? input_bytes(b->model, item) : 0;
    }
    const enum rerun parts = recompute_parts(b->plan->recompute);
    return parts == RERUN_COUNT ? stash : stash - model_rerun_bytes(b->model, item, parts);
}

/* The most that a backward holds beyond the stash it began with, for one sample. It goes down the
 * stage and frees stash as it goes, so a layer that runs again late finds some of its room free. */
static int64_t again_bytes(const struct builder *b, int s)
{
    const int end = b->plan->first_item[s + 1], active = builder_first_active(b, s);
    int64_t most = 0, freed = 0, unit = 0;
    for (int i = end - 1; i >= active; i--) {
        const int64_t kept = builder_kept_bytes(b, i);
        if (builder_runs_again(b, i) || b->plan->recompute == RECOMPUTE_OP) {
            unit = add_saturated(unit, b->model->items[i].stash_bytes - kept);
            if (i == active || i == b->again_first ||
                b->model->items[i - 1].layer != b->model->items[i].layer) {
                most = unit - freed > most ? unit - freed : most;
                unit = 0;
            }
        } else {
            const int64_t part = b->model->items[i].stash_bytes - kept;
            most = part - freed > most ? part - freed : most;
        }
        freed = add_saturated(freed, kept);
    }
    return most;
}

/* --- shards ----------------------------------------------------------------------------------- */

/* Replicas in a row that divide something among themselves: all, or a group of them (HSDP). */
static int sharers(const struct builder *b)
{
    return b->plan->layout.shard_group > 1 ? b->plan->layout.shard_group : b->got.num_pipelines;
}

static bool shards(const struct builder *b, enum shard_mode from)
{
    const bool alone =
        b->plan->layout.shard == SHARD_WEIGHTS && framework_shards_alone(b->model->framework);
    return (b->got.num_pipelines > 1 || alone) && b->plan->layout.shard >= from;
}

static int64_t part_of(int64_t value, int64_t ways)
{
    return value / ways + (value % ways != 0);
}

int64_t builder_share(const struct builder *b, enum shard_mode from, int64_t all, int64_t experts)
{
    const int64_t ways = shards(b, from) ? sharers(b) : 1;
    const int64_t fewer = shards(b, from) ? ways / layout_expert_span(&b->plan->layout) : 1;
    return part_of(all - experts, ways) + part_of(experts, fewer);
}

int64_t builder_expert_params(const struct builder *b, int item)
{
    return layout_expert_span(&b->plan->layout) > 1 ? model_expert_params(b->model, item) : 0;
}

/* Parameters of an item that replicas divide. Experts that no other replica has stay whole. */
static int64_t divided_params(const struct builder *b, int item)
{
    const bool alone = layout_expert_span(&b->plan->layout) == b->got.num_pipelines;
    return b->model->items[item].params - (alone ? builder_expert_params(b, item) : 0);
}

/* The most bytes of whole weights and gradients that a stage has beside its shares: under
 * SHARD_WEIGHTS the weights of the unit that runs and of the next one, which are gathered ahead;
 * the gradients of the unit whose backward ends. */
static void shard_bytes(const struct builder *b, int s, int64_t *weights, int64_t *grads)
{
    const int end = b->plan->first_item[s + 1];
    const int elem = b->model->elem_bytes;
    int64_t before = 0;
    *weights = *grads = 0;
    for (int i = b->plan->first_item[s], next; i < end; i = next) {
        int64_t params = 0, bytes = 0;
        next = unit_end(b->model, i, end);
        for (int j = i; j < next; j++) {
            params = add_saturated(params, divided_params(b, j));
            bytes = add_saturated(bytes, model_base_bytes(b->model, j));
        }
        bytes = add_saturated(bytes, mul_saturated(params, elem));
        const int64_t two = add_saturated(bytes, before);
        const int64_t own =
            i >= b->num_frozen_items ? mul_saturated(params, model_grad_bytes(b->model)) : 0;
        *weights = two > *weights && shards(b, SHARD_WEIGHTS) ? two : *weights;
        *grads = own > *grads && shards(b, SHARD_GRADIENTS) ? own : *grads;
        before = bytes;
    }
}

static int64_t longer(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Bytes that attention's messages take on a device, for one sample: two blocks of a ring; all keys
 * and values; or what goes out and comes in. Backwards gradients are beside them. */
static int64_t context_bytes(const struct builder *b)
{
    const int64_t own = model_key_bytes(b->model), C = layout_context(&b->plan->layout);
    if (C < 2)
        return 0;
    return b->plan->layout.context_kind == CONTEXT_ALLGATHER ? C * own
           : b->plan->layout.context_kind == CONTEXT_ULYSSES
               ? 2 * (own + model_query_bytes(b->model))
               : 2 * own;
}

bool builder_work_bytes(const struct builder *b, int s, struct stage_cost *stage)
{
    const int end = b->plan->first_item[s + 1];
    const int64_t again = again_bytes(b, s);
    int64_t work[2] = {0, 0}, weights, grads;
    bool fits = true;
    for (int i = b->plan->first_item[s]; i < end; i++) {
        const bool attends = b->model->items[i].kind == ITEM_ATTENTION;
        const int64_t own = b->model->items[i].work_bytes, sent = attends ? context_bytes(b) : 0;
        work[0] = longer(work[0], own + sent);
        work[1] = longer(work[1], own + 2 * sent);
    }
    shard_bytes(b, s, &weights, &grads);
    for (int mb = 0; mb < MB_SIZES; mb++) {
        const int64_t samples = builder_samples(b, mb);
        int64_t *bytes[2] = {&stage->work_bytes[0][mb], &stage->work_bytes[1][mb]}, back;
        fits = fits && builder_scale(b, work[0], samples, bytes[0]) &&
               add_ok(work[1], again, &back) && builder_scale(b, back, samples, bytes[1]) &&
               add_to(bytes[0], weights) && add_to(bytes[1], weights) && add_to(bytes[1], grads);
    }
    return fits;
}

/* Bytes, of `size` for each parameter of an item, that count for a collective of all replicas
 * (builder_reduced_bytes()). */
static bool counted_bytes(const struct builder *b, int item, int64_t size, int64_t *bytes)
{
    const int64_t E = layout_expert_span(&b->plan->layout), n = b->got.num_pipelines;
    const int64_t apart = builder_expert_params(b, item);
    int64_t experts;
    if (!mul_ok(apart, size, &experts) || !mul_ok(experts, n - E, &experts) ||
        !mul_ok(b->model->items[item].params - apart, size, bytes))
        return false;
    return apart == 0 || add_to(bytes, experts / (n - 1));
}

/* Time of a collective over the replicas of stage s that divide something; a reduce-scatter of groups
 * is followed by the all-reduce of their copies. */
static int64_t replicas_ns(struct builder *b, int s, enum collective kind, int64_t bytes)
{
    const int rank = b->got.rank_of_stage[s];
    if (bytes == 0 || b->got.num_pipelines == 1)
        return 0;
    if (b->ring_rank != rank + 1) {
        memset(b->collectives, 0, sizeof b->collectives);
        b->ring_rank = rank + 1;
    }
    const uint64_t hash = ((uint64_t)bytes * 0x9E3779B97F4A7C15u) >> 40;
    struct collective_memo *memo = &b->collectives[(hash + (unsigned)kind) % COLLECTIVE_MEMOS];
    if (!memo->known || memo->kind != kind || memo->bytes != bytes)
        *memo = (struct collective_memo){
            .known = true,
            .kind = kind,
            .bytes = bytes,
            .ns = sites_collective_ns(b->got.sites, &b->got.setting, rank, kind, bytes)};
    return memo->ns;
}

/* Time to read `read` bytes and write `written`, where the framework copies shards and costs are
 * those of kernels. */
static int64_t shard_copy_ns(const struct builder *b, int64_t read, int64_t written)
{
    const struct framework *framework = b->model->framework;
    const struct device_curve *curve = device_curve_of(b->device);
    if (!framework || !framework->copies_shards || b->cost->source != COST_KERNELS || !curve)
        return 0;
    const double rate = device_roofline(b->device)->mem_bytes_per_s * curve->bandwidth;
    return device_ns(b->device, (int64_t)ceil(((double)read + (double)written) / rate * 1e9));
}

struct unit {
    struct item_times sum;
    int64_t gather_ns, reduce_ns;
};

/* The host fetches the weights of each item, and the device waits for it where it is the faster one. `again` of the
 * items run again inside the backward, which fetches them once more. */
static void wait_for_hooks(const struct builder *b, int items, int again, struct unit *unit)
{
    const struct framework *framework = b->model->framework;
    const double each = framework && b->cost->source == COST_KERNELS ? framework->hook_us * 1e3 : 0;
    const int64_t host = (int64_t)(items * each);
    unit->sum.forward = longer(unit->sum.forward, host);
    unit->sum.again = unit->sum.again > 0 ? longer(unit->sum.again, host) : 0;
    unit->sum.input = longer(unit->sum.input, (int64_t)((items + again) * each));
}

/* The unit [first, next) of a stage. Gathers bring weights as kernels read them, reduce-scatters
 * carry gradients of param_bytes. */
static bool make_unit(struct builder *b, int s, int first, int next, struct unit *unit)
{
    const bool trains = first >= b->num_frozen_items;
    int64_t gathered = 0, reduced = 0, bytes[2];
    int again = 0;
    bool fits = true;
    *unit = (struct unit){0};
    for (int i = first; i < next && fits; i++) {
        const struct item_times *t = &b->item_ns[i];
        again += builder_runs_again(b, i);
        fits = counted_bytes(b, i, b->model->elem_bytes, &bytes[0]) &&
               builder_reduced_bytes(b, i, &bytes[1]) && add_to(&gathered, bytes[0]) &&
               add_to(&gathered, model_base_bytes(b->model, i)) && add_to(&reduced, bytes[1]);
        fits = fits && add_to(&unit->sum.forward, t->forward) &&
               add_to(&unit->sum.again, t->again) && add_to(&unit->sum.input, t->input) &&
               add_to(&unit->sum.weight, t->weight);
    }
    if (shards(b, SHARD_WEIGHTS))
        unit->gather_ns = replicas_ns(b, s, COLLECTIVE_ALLGATHER, gathered);
    if (trains)
        unit->reduce_ns = replicas_ns(b, s, COLLECTIVE_REDUCE_SCATTER, reduced);
    if (fits && shards(b, SHARD_WEIGHTS)) {
        const int64_t out = shard_copy_ns(b, gathered, gathered);
        fits = add_to(&unit->sum.forward, out) && add_to(&unit->sum.again, out) &&
               add_to(&unit->sum.input, out);
        wait_for_hooks(b, next - first, again, unit);
    }
    if (fits && trains)
        fits = add_to(&unit->sum.weight, shard_copy_ns(b, gathered, reduced));
    return fits && unit->gather_ns <= STEP_NS_MAX && unit->reduce_ns <= STEP_NS_MAX;
}

/* Compute with transfers during it, which may take a share of the device from it. */
static int64_t beside(const struct builder *b, int64_t compute, int64_t transfers)
{
    const struct framework *framework = b->model->framework;
    if (framework && framework->gathers_take_share)
        compute += (int64_t)ceil(b->got.overlap_share * (double)transfers);
    return longer(compute, transfers);
}

/* Add the backward of a unit to *ns. The weights of the unit below are gathered during the
 * backward; with gathers_late the gather starts when the backward has ended. */
static bool add_backward(const struct builder *b, int64_t compute, int64_t reduced, int64_t gather,
                         int64_t *ns)
{
    const struct framework *framework = b->model->framework;
    const bool late = framework && framework->gathers_late;
    return add_to(ns, beside(b, compute, reduced + (late ? 0 : gather))) &&
           add_to(ns, late ? gather : 0);
}

/* One unit after the other. While a unit computes, the weights of the next are gathered and the
 * gradients of the one before are reduced, one transfer after the other. The first gather and the
 * last reduce-scatter have nothing to overlap with. (PyTorch FSDP with backward prefetch; DeepSpeed
 * ZeRO-2 and -3. All of it happens for each micro-batch: what is divided has no room to wait.) */
bool builder_overlap(struct builder *b, int s, struct op_times *times)
{
    const int first = b->plan->first_item[s], end = b->plan->first_item[s + 1];
    struct unit now, next = {0};
    bool fits = true;
    if (!shards(b, SHARD_GRADIENTS))
        return true;
    *times = (struct op_times){0};
    for (int i = first, after; i < end && fits; i = after) {
        after = unit_end(b->model, i, end);
        if (i == first)
            fits = make_unit(b, s, i, after, &now) && add_to(&times->forward, now.gather_ns) &&
                   add_to(&times->again, now.gather_ns) && add_to(&times->weight, now.reduce_ns) &&
                   add_to(&times->both, now.reduce_ns);
        next = (struct unit){0};
        if (fits && after < end)
            fits = make_unit(b, s, after, unit_end(b->model, after, end), &next);
        /* Backwards the next unit came before: this one's gather overlaps with its compute. */
        fits = fits && add_to(&times->forward, beside(b, now.sum.forward, next.gather_ns)) &&
               add_to(&times->again, beside(b, now.sum.again, next.gather_ns));
        const int64_t below = i > first ? b->below_gather_ns : 0;
        b->below_gather_ns = now.gather_ns;
        fits = fits && add_backward(b, now.sum.input, 0, below, &times->input) &&
               add_backward(b, now.sum.weight, next.reduce_ns, 0, &times->weight) &&
               add_backward(b, now.sum.input + now.sum.weight, next.reduce_ns, below, &times->both);
        if (fits && after == end)
            fits = add_to(&times->input, now.gather_ns) && add_to(&times->both, now.gather_ns);
        now = next;
    }
    return fits;
}

/* --- the group of a rank ---------------------------------------------------------------------- */

int builder_message_parts(const struct builder *b)
{
    const struct framework *framework = b->model->framework;
    if (b->model->sequence_parallel || (framework && framework->sends_whole))
        return 1;
    return b->model->tensor > 1 ? b->model->tensor : 1;
}

bool builder_gather_ns(struct builder *b, int s, int mb, bool grad, int64_t *ns)
{
    const struct workload *w = &b->got;
    const int *first = grad ? w->out_first : w->in_first;
    const int *edges = grad ? w->out_edge : w->in_edge;
    const int device = (int)(b->device - b->cluster->devices);
    *ns = 0;
    if (!b->cost->group_ns || builder_message_parts(b) == 1)
        return true;
    for (int i = first[s]; i < first[s + 1]; i++) {
        const struct stage_edge *edge = &w->edges[edges[i]];
        if (w->rank_of_stage[edge->from] != w->rank_of_stage[edge->to] && (!grad || edge->grad) &&
            !add_to(ns, b->cost->group_ns(b->cost->ctx, COLLECTIVE_ALLGATHER, device,
                                          edge->held_bytes[mb])))
            return false;
    }
    return true;
}

/* --- experts that replicas divide ------------------------------------------------------------- */

/* An all-to-all of `bytes` of each of n devices, or of their tensor-parallel groups. */
static int64_t alltoall_ns(const struct builder *b, const int *devices, int n, int64_t bytes)
{
    return b->cost->experts_ns
               ? b->cost->experts_ns(b->cost->ctx, devices, n, bytes)
               : cost_collective_ns(b->cost, b->cluster, COLLECTIVE_ALLTOALL, devices, n, bytes);
}

/* The end of a run of devices of one node that begins at `first`. */
static int node_end(const struct builder *b, const int *devices, int n, int first)
{
    const struct device *all = b->cluster->devices;
    int end = first + 1;
    while (end < n && all[devices[end]].node == all[devices[first]].node)
        end++;
    return end;
}

/* The time of a dispatcher. One that sends tokens once sends a token to each node with experts of it once, to the
 * device at the sender's place in that node, which passes it on inside the node (DeepSeek-V3, section 3.2.2). Both parts
 * are added up: HybridEP, called from PyTorch with 4,096 tokens of 7,168 numbers in bf16 and 16 SMs, takes 2.2, 4.2 and
 * 7.0 ms on 16, 32 and 64 H100 (README_Hybrid-EP of deepseek-ai/DeepEP, means of dispatch and combine), the sum is
 * 2.2, 4.5 and 6.9. Its kernels alone hide some of it (1.7, 3.7, 6.2 ms), and so do DeepEP's on H800 (2.6, 3.0, 4.3 ms,
 * its README, where the sum is 3.0, 4.9 and 6.4). */
static int64_t dispatch_ns(const struct builder *b, const int *devices, int n, int64_t samples,
                           int64_t bytes)
{
    int64_t longest = 0, between;
    int nodes = 0;
    for (int first = 0; first < n; first = node_end(b, devices, n, first))
        nodes++;
    if (!b->model->sends_once || nodes < 2)
        return alltoall_ns(b, devices, n, bytes);
    for (int first = 0, end; first < n; first = end) {
        end = node_end(b, devices, n, first);
        longest = longer(longest, alltoall_ns(b, devices + first, end - first, bytes));
    }
    if (!mul_ok(model_expert_node_bytes(b->model, nodes), samples, &between))
        return INT64_MAX;
    return add_saturated(longest, alltoall_ns(b, devices, n, between));
}

/* Groups of all replicas do the same at once and the slowest is what all wait for, at the latest
 * where they sum gradients. */
enum status builder_experts_ns(struct builder *b, int64_t samples, int64_t *ns)
{
    const int E = layout_expert_span(&b->plan->layout), R = b->got.num_pipelines;
    int64_t bytes, longest = 0;
    *ns = 0;
    if (layout_expert(&b->plan->layout) < 2)
        return OK;
    struct experts_memo *memo = &b->experts[samples == builder_samples(b, MB_LAST)];
    if (memo->known && memo->rank == b->rank && memo->samples == samples) {
        *ns = memo->ns;
        return OK;
    }
    if (!mul_ok(model_expert_bytes(b->model), samples, &bytes))
        return builder_overflow(b, "tokens of experts");
    int *devices = malloc((size_t)E * sizeof *devices);
    if (!devices)
        return err_nomem(b->err);
    for (int first = 0; first < R; first += E) {
        for (int i = 0; i < E; i++)
            devices[i] = b->plan->device[(int64_t)(first + i) * b->plan->num_ranks + b->rank];
        longest = longer(longest, dispatch_ns(b, devices, E, samples, bytes));
    }
    free(devices);
    if (!mul_ok(longest, 2, ns) || *ns > STEP_NS_MAX)
        return builder_overflow(b, "all-to-alls");
    *memo = (struct experts_memo){true, b->rank, samples, *ns};
    return OK;
}

/* --- tokens that replicas divide -------------------------------------------------------------- */

/* The longest time of an all-to-all of C replicas in a row on the current rank. */
static enum status context_trade_ns(struct builder *b, int64_t bytes, int64_t *ns)
{
    const int C = layout_context(&b->plan->layout), R = b->got.num_pipelines;
    int *devices = malloc((size_t)C * sizeof *devices);
    if (!devices)
        return err_nomem(b->err);
    *ns = 0;
    for (int first = 0; first < R; first += C) {
        for (int i = 0; i < C; i++)
            devices[i] = b->plan->device[(int64_t)(first + i) * b->plan->num_ranks + b->rank];
        *ns = longer(
            *ns, cost_collective_ns(b->cost, b->cluster, COLLECTIVE_ALLTOALL, devices, C, bytes));
    }
    free(devices);
    return OK;
}

/* Times of what the kind sends for a number of samples: all keys and values gathered by a ring; those
 * and their gradients; for ulysses the all-to-alls of queries, keys and values, and of outputs. */
static enum status context_times(struct builder *b, int64_t samples, struct context_memo *memo)
{
    const int C = layout_context(&b->plan->layout);
    const int64_t own = model_key_bytes(b->model);
    const int64_t half = model_query_bytes(b->model) / 2; /* queries or outputs */
    int64_t all, both, in, out, second;
    *memo = (struct context_memo){.known = true, .rank = b->rank, .samples = samples};
    if (!mul_ok(own, samples, &all) || !mul_ok(all, C, &all) || !add_ok(all, all, &both) ||
        !mul_ok(own + half, samples, &in) || !mul_ok(half, samples, &out))
        return builder_overflow(b, "keys and values");
    if (b->plan->layout.context_kind == CONTEXT_ULYSSES) {
        enum status rc = context_trade_ns(b, in, &memo->trade_ns);
        THEN(context_trade_ns(b, out, &second));
        if (rc != OK)
            return rc;
        memo->trade_ns = add_saturated(memo->trade_ns, second);
    } else {
        const struct setting setting = {b->model, b->cluster, b->cost};
        memo->gather_ns =
            sites_context_ns(b->got.sites, &setting, b->rank, COLLECTIVE_ALLGATHER, all);
        if (b->plan->layout.context_kind != CONTEXT_ALLGATHER)
            memo->both_ns =
                sites_context_ns(b->got.sites, &setting, b->rank, COLLECTIVE_ALLGATHER, both);
    }
    return memo->gather_ns <= STEP_NS_MAX && memo->both_ns <= STEP_NS_MAX &&
                   memo->trade_ns <= STEP_NS_MAX
               ? OK
               : builder_overflow(b, "messages of attention");
}

/* The backward of fused attention has 5 products for the forward's 2 (Dao 2023). */
static int64_t backward_core_ns(int64_t core)
{
    return core / 2 * 5;
}

/* The exposed time of a ring of `hops` messages, `all` in total, that overlap hops + 1 equal parts
 * of compute. */
static int64_t ring_exposed_ns(int64_t all, int64_t core, int hops)
{
    const int64_t hop = all / hops, part = core / (hops + 1);
    return hop > part ? (hop - part) * hops : 0;
}

/* Ring: C - 1 hops of keys and values, each during the scores of the block that is there. Backwards
 * each hop also has the gradients of the block, which make one more hop home. All-gather: keys and
 * values are gathered in both directions, and their gradients reduce-scattered, all exposed (Llama
 * 3, section 3.3.2). Ulysses: in each direction an all-to-all in front of the core and one after it.
 */
enum status builder_context_ns(struct builder *b, int item, int64_t samples, int64_t ns[2])
{
    const int hops = layout_context(&b->plan->layout) - 1;
    ns[0] = ns[1] = 0;
    if (hops == 0 || b->model->items[item].kind != ITEM_ATTENTION)
        return OK;
    struct context_memo *memo = &b->context[samples == builder_samples(b, MB_LAST)];
    enum status rc = OK;
    if (!memo->known || memo->rank != b->rank || memo->samples != samples)
        rc = context_times(b, samples, memo);
    if (rc != OK)
        return rc;
    switch (b->plan->layout.context_kind) {
    case CONTEXT_ALLGATHER:
        ns[0] = memo->gather_ns;
        ns[1] = 2 * memo->gather_ns;
        return OK;
    case CONTEXT_ULYSSES:
        ns[0] = ns[1] = memo->trade_ns;
        return OK;
    case CONTEXT_RING:
    case CONTEXT_KIND_COUNT:
        break;
    }
    int64_t core;
    rc = cost_rerun_ns(b->cost, b->model, item, RERUN_CORE, samples, b->device, &core,
                       &b->got.extrapolated, b->err);
    core = device_ns(b->device, core);
    ns[0] = ring_exposed_ns(memo->gather_ns, core, hops);
    ns[1] = ring_exposed_ns(memo->both_ns, backward_core_ns(core), hops) + memo->gather_ns / hops;
    return rc;
}

bool builder_reduced_bytes(const struct builder *b, int item, int64_t *bytes)
{
    const struct framework *framework = b->model->framework;
    const bool fp32 = framework && framework->sums_whole;
    return counted_bytes(b, item, fp32 ? 4 : model_grad_bytes(b->model), bytes);
}

bool builder_update_ns(struct builder *b, int s, int64_t experts_ns, int64_t *ns)
{
    int64_t gathered = 0, bytes;
    if (!shards(b, SHARD_OPTIMIZER))
        return true;
    *ns = builder_share(b, SHARD_OPTIMIZER, *ns, experts_ns);
    for (int i = builder_first_active(b, s); i < b->plan->first_item[s + 1]; i++)
        if (!counted_bytes(b, i, b->model->elem_bytes, &bytes) || !add_to(&gathered, bytes))
            return false;
    if (b->plan->first_item[s] > 0 && b->plan->first_item[s + 1] == b->model->num_items &&
        (!mul_ok(builder_tied_params(b), b->model->elem_bytes, &bytes) ||
         !add_to(&gathered, bytes)))
        return false;
    return shards(b, SHARD_WEIGHTS) ||
           add_to(ns, replicas_ns(b, s, COLLECTIVE_ALLGATHER, gathered));
}
