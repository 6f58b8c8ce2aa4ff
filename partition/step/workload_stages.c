/* The costs of each stage: the times of its ops, its bytes.
 *
 * Items are asked for one pass at a time (builder_item_ns()) and summed up, for a full micro-batch
 * and for the last one. Read workload_build_stages() first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/model/lora.h"
#include "partition/step/stage_memo.h"
#include "partition/step/workload_build.h"

static bool same_speed(const struct device *a, const struct device *b)
{
    return a == b || (a->speed == b->speed && a->link_bytes_per_s == b->link_bytes_per_s &&
                      strcmp(a->kind, b->kind) == 0);
}

/* Whether a time that was asked before is the time of this item. */
static bool memo_holds(const struct builder *b, const struct item_memo *memo, int item,
                       int64_t samples)
{
    return memo->known && memo->samples == samples && memo->distance == b->distance &&
           same_speed(memo->device, b->device) &&
           (memo->item == item || model_items_alike(b->model, memo->item, item));
}

enum status builder_item_ns(struct builder *b, int item, enum pass pass, int64_t samples,
                            int64_t *ns)
{
    struct item_memo *memo = &b->memo[b->model->items[item].kind][pass]
                                     [samples == b->plan->microbatches.size ? MB_FULL : MB_LAST];
    if (memo_holds(b, memo, item, samples)) {
        memo->item =
            item; /* the next call is mostly for an item of this stage, and one comparison finds it */
        memo->device = b->device;
        *ns = memo->ns;
        return OK;
    }
    enum status rc = cost_item_ns(b->cost, b->model, item, pass, samples, b->device, b->distance,
                                  ns, &b->got.extrapolated, b->err);
    if (rc != OK)
        return rc;
    *ns = device_ns(b->device, *ns);
    if (pass == PASS_BWD_WEIGHT)
        *ns = model_weight_ns(b->model, item, b->plan->num_frozen_layers, *ns);
    if (*ns < 0 || *ns > STEP_NS_MAX) {
        return err_set(b->err, ERR_INPUT, "item %d of model '%s' takes %lld ns, must be 0..2^60",
                       item, b->model->name, (long long)*ns);
    }
    *memo = (struct item_memo){true, item, b->device, samples, b->distance, *ns};
    return OK;
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* Bytes that the cache holds of a sample (or micro-batch): the frozen prefix's output and the skip
 * tensors that leave the prefix. */
static bool cached_bytes(const struct builder *b, int64_t *bytes)
{
    *bytes = b->model->items[b->num_frozen_items - 1].act_bytes;
    for (int i = 0; i < b->model->num_skips; i++) {
        const struct skip_edge *skip = &b->model->skips[i];
        if (skip->from < b->num_frozen_items && skip->to >= b->num_frozen_items &&
            !model_skip_repeats(b->model, i, b->num_frozen_items) && !add_to(bytes, skip->bytes))
            return false;
    }
    return true;
}

/* The parameters of a stage by what is kept of them. */
struct stage_params {
    int64_t base; /* bytes of a frozen base beside adapters */
    int64_t trainable, frozen;
    int64_t experts[2]; /* frozen, trainable */
};

static bool count_params(const struct builder *b, int s, struct stage_params *n)
{
    const struct model *model = b->model;
    const int first = b->plan->first_item[s], end = b->plan->first_item[s + 1];
    bool fits = true;
    *n = (struct stage_params){0};
    for (int i = s == 0 ? 0 : first; i < end && fits; i++) { /* a prefix outside is rank 0's */
        const struct item *item = &model->items[i];
        fits = add_to(&n->experts[i >= b->num_frozen_items], builder_expert_params(b, i)) &&
               add_to(i < b->num_frozen_items ? &n->frozen : &n->trainable, item->params) &&
               add_to(&n->base, model_base_bytes(model, i));
        /* A stage that holds the table's owner, the first item, uses the table in place. */
        if (item->tied_params > 0 && first > 0) {
            const int64_t copy =
                (int64_t)ceil((double)item->tied_params * model_base_bytes_per_param(model));
            fits = fits && (model->lora.rank > 0
                                ? add_to(&n->base, copy)
                                : add_to(b->num_frozen_items > 0 ? &n->frozen : &n->trainable,
                                         item->tied_params));
        }
    }
    return fits;
}

/* Numbers of gradients that a stage holds, and of those that it sums up by a tree. Table and head sum up a gradient
 * each. Where they are apart each stage also takes in the other's. */
static bool count_grads(const struct builder *b, int s, int64_t trainable, int64_t *grads,
                        int64_t *sums)
{
    const bool has_table = b->plan->first_item[s] == 0,
               has_head = b->plan->first_item[s + 1] == b->model->num_items;
    const int64_t tied = builder_one_table(b) ? 0 : builder_tied_params(b);
    return add_ok(trainable, has_table || has_head ? tied : 0, grads) &&
           add_ok(trainable, has_table && has_head ? tied : 0, sums);
}

/* Bytes that a stage holds all the time (memory-1). */
static bool fixed_bytes(const struct builder *b, int s, struct stage_cost *stage)
{
    const struct model *model = b->model;
    const struct plan *plan = b->plan;
    struct stage_params n;
    int depth = 0;
    while (plan->canonical && ((int64_t)1 << depth) < plan->microbatches.count)
        depth++;
    const int copy = model_weight_bytes(model) - model->param_bytes;
    int64_t masters, copies, frozen_bytes, grads, sums;
    if (!count_params(b, s, &n) || !count_grads(b, s, n.trainable, &grads, &sums) ||
        !mul_ok(n.trainable, model->param_bytes, &masters) || !mul_ok(n.trainable, copy, &copies) ||
        !mul_ok(n.frozen, model_weight_bytes(model), &frozen_bytes) ||
        !mul_ok(grads, model_grad_bytes(model), &stage->grad_bytes) ||
        !mul_ok(sums, model_grad_bytes(model), &sums) || !mul_ok(sums, depth, &stage->tree_bytes) ||
        !mul_ok(n.trainable, plan->optim_bytes_per_param, &stage->optim_bytes))
        return false;
    if (plan->lagged && n.trainable > 0 && /* the copy is in fp32, and not sharded */
        (!mul_ok(n.trainable, 4, &stage->lagged_bytes) ||
         !add_to(&stage->lagged_bytes, LAG_ROOM_BYTES)))
        return false;
    /* Masters beside narrow copies belong to the optimizer; alone they are what kernels read. */
    masters = builder_share(b, copy > 0 ? SHARD_OPTIMIZER : SHARD_WEIGHTS, masters,
                            n.experts[1] * model->param_bytes);
    copies = builder_share(b, SHARD_WEIGHTS, copies, n.experts[1] * copy);
    stage->frozen_bytes =
        builder_share(b, SHARD_WEIGHTS, frozen_bytes, n.experts[0] * model_weight_bytes(model)) +
        builder_share(b, SHARD_WEIGHTS, n.base, 0);
    stage->grad_bytes = builder_share(b, SHARD_GRADIENTS, stage->grad_bytes,
                                      n.experts[1] * model_grad_bytes(model));
    stage->optim_bytes = builder_share(b, SHARD_OPTIMIZER, stage->optim_bytes,
                                       n.experts[1] * plan->optim_bytes_per_param);
    if (plan->layout.offload) {
        stage->optim_bytes = 0;
        masters = copy > 0 ? 0 : masters;
    }
    return add_ok(masters, copies, &stage->weight_bytes);
}

/* The bytes that a stage holds of a micro-batch. */
static bool flowing_bytes(const struct builder *b, int s, struct stage_cost *stage)
{
    const struct model *model = b->model;
    const int first = b->plan->first_item[s], end = b->plan->first_item[s + 1];
    const bool reads = s == 0 && b->plan->frozen == FROZEN_CACHED;
    int64_t stash = 0, copied = 0, input = first > 0 ? model->items[first - 1].act_bytes : 0;
    bool fits = true;
    for (int i = builder_first_active(b, s); i < end; i++)
        fits = fits && add_to(&stash, builder_kept_bytes(b, i));
    for (int i = 0; i < model->num_skips; i++) {
        const struct skip_edge *skip = &model->skips[i];
        if (skip->to >= first && skip->to < end && skip->from < first &&
            !model_skip_repeats(model, i, first))
            fits = fits && add_to(&input, skip->bytes);
    }
    if (reads || s == b->got.cache_write_stage)
        fits = fits && cached_bytes(b, &copied);
    for (int mb = 0; mb < MB_SIZES; mb++) {
        const int64_t samples = builder_samples(b, mb);
        fits = fits && builder_scale(b, stash, samples, &stage->stash_bytes[mb]) &&
               builder_scale(b, input, samples, &stage->input_bytes[mb]) &&
               builder_scale(b, copied, samples, &stage->copy_bytes[mb]);
    }
    return fits && builder_work_bytes(b, s, stage);
}

/* --- times ------------------------------------------------------------------------------------ */

/* The time of preparing samples on the device's own cores. */
static int64_t input_time(const struct builder *b, int64_t samples)
{
    const double ns = b->cost->input_ns_per_sample * (double)samples;
    return ns > 0 && ns < (double)STEP_NS_MAX ? device_ns(b->device, llround(ns)) : 0;
}

/* The cost of every op apart from its passes: its overhead, and a launch where that blocks. */
static bool op_extra(const struct builder *b, int64_t *extra)
{
    *extra = 0;
    return (!b->got.host_blocking || mul_ok(b->cluster->host_op_ns, b->plan->num_ranks, extra)) &&
           add_to(extra, b->cost->op_overhead_ns);
}

/* Time of C or P: the host's share and the copy. copy_ns_per_byte 0: by the device's copy rate. */
static bool cache_ns(const struct builder *b, int64_t per_sample_ns, int64_t samples, int64_t bytes,
                     double copy_ns_per_byte, int64_t *ns)
{
    const double copy = device_is_host(b->device) || copy_ns_per_byte == 0
                            ? device_copy_ns(b->device, bytes)
                            : copy_ns_per_byte * (double)bytes;
    return mul_ok(per_sample_ns, samples, ns) && *ns <= STEP_NS_MAX && copy < (double)STEP_NS_MAX &&
           add_to(ns, (int64_t)ceil(copy)) && add_to(ns, b->cost->op_overhead_ns);
}

/* The forward that F runs. What is recomputed keeps no stash either, until R. */
static enum pass forward_pass(const struct builder *b, int item, int mb)
{
    const enum recompute_mode again = b->plan->recompute;
    return item < b->num_frozen_items || builder_runs_again(b, item) || recompute_every(again) ||
                   (again == RECOMPUTE_EXCEPT_LAST && mb == MB_FULL)
               ? PASS_FWD_NOGRAD
               : PASS_FWD;
}

/* Add one pass over an item to a sum. */
static enum status add_pass(struct builder *b, int item, enum pass pass, int64_t samples,
                            int64_t *sum)
{
    int64_t ns;
    const enum status rc = builder_item_ns(b, item, pass, samples, &ns);
    return rc != OK ? rc : add_to(sum, ns) ? OK : builder_overflow(b, "times");
}

/* The forward that runs again inside the backward of an item: all of it, or parts. */
static enum status add_again(struct builder *b, int item, int64_t samples, int64_t *sum)
{
    const enum rerun parts = recompute_parts(b->plan->recompute);
    int64_t ns = 0;
    enum status rc = OK;
    if (builder_runs_again(b, item))
        rc = builder_item_ns(b, item, PASS_FWD, samples, &ns);
    else if (parts != RERUN_COUNT)
        rc = cost_rerun_ns(b->cost, b->model, item, parts, samples, b->device, &ns,
                           &b->got.extrapolated, b->err);
    if (rc == OK && !builder_runs_again(b, item))
        ns = device_ns(b->device, ns);
    return rc != OK ? rc : add_to(sum, ns) ? OK : builder_overflow(b, "times");
}

/* The messages of an item's forward and backward between replicas. Where the core or the layer runs
 * again, so do the forward's messages. */
static bool add_exchanges(const struct builder *b, int item, bool trains, const int64_t ns[2],
                          struct item_times *t)
{
    /* An op's list saves fused attention; experts run again. */
    const bool core =
        b->plan->recompute ==
        (b->model->items[item].kind == ITEM_ATTENTION ? RECOMPUTE_SELECTIVE : RECOMPUTE_OP);
    return add_to(&t->forward, ns[0]) && add_to(&t->again, ns[0]) &&
           (!trains || add_to(&t->input, ns[1])) &&
           (!trains || !(builder_runs_again(b, item) || core) || add_to(&t->input, ns[0]));
}

enum status builder_exchanges(struct builder *b, int item, int64_t samples, int64_t experts,
                              int64_t ns[2])
{
    const enum status rc = builder_context_ns(b, item, samples, ns);
    if (rc == OK && model_item_has_experts(b->model, item))
        ns[0] = ns[1] = experts;
    return rc;
}

/* The part of a layer's all-to-alls that passes of another micro-batch do not hide, per direction. As
 * in time-1b, computing c beside all-to-alls of x takes c + share x, and at least x. The first forward
 * and the last backward have no other micro-batch beside them; both are counted in the last one. */
static int64_t exposed_experts_ns(const struct builder *b, const struct item_times *t, int mb,
                                  int64_t experts)
{
    if (!b->model->overlaps_experts || mb == MB_LAST)
        return experts;
    const int64_t both = 2 * experts, compute = t->forward + t->input + t->weight;
    const int64_t taken = (int64_t)ceil(b->got.overlap_share * (double)both);
    return ((both - compute > taken ? both - compute : taken) + 1) / 2;
}

/* The passes over the items of a stage for one micro-batch, into b->item_ns. R begins at the
 * stage's input, so it runs frozen items too. */
static enum status item_passes(struct builder *b, int s, int mb)
{
    const int first = b->plan->first_item[s], end = b->plan->first_item[s + 1];
    const int active = builder_first_active(b, s);
    const int64_t samples = builder_samples(b, mb);
    int64_t exchanged, ns[2];
    enum status rc = builder_experts_ns(b, samples, &exchanged);
    for (int i = first; i < end && rc == OK; i++) {
        const bool trains = i >= active;
        struct item_times *t = &b->item_ns[i];
        *t = (struct item_times){0};
        rc = add_pass(b, i, forward_pass(b, i, mb), samples, &t->forward);
        THEN(add_pass(b, i, trains ? PASS_FWD : PASS_FWD_NOGRAD, samples, &t->again));
        if (rc == OK && trains)
            rc = add_pass(b, i, builder_input_pass(b, i), samples, &t->input);
        if (rc == OK && trains)
            rc = add_again(b, i, samples, &t->input);
        if (rc == OK && trains)
            rc = add_pass(b, i, PASS_BWD_WEIGHT, samples, &t->weight);
        THEN(builder_exchanges(b, i, samples, exposed_experts_ns(b, t, mb, exchanged), ns));
        if (rc == OK && !add_exchanges(b, i, trains, ns, t))
            rc = builder_overflow(b, "times");
    }
    return rc;
}

/* The sums of b->item_ns over a stage. */
static bool sum_passes(const struct builder *b, int s, struct op_times *sum)
{
    bool fits = true;
    *sum = (struct op_times){0};
    for (int i = b->plan->first_item[s]; i < b->plan->first_item[s + 1] && fits; i++) {
        const struct item_times *t = &b->item_ns[i];
        fits = add_to(&sum->forward, t->forward) && add_to(&sum->again, t->again) &&
               add_to(&sum->input, t->input) && add_to(&sum->weight, t->weight);
    }
    return fits && add_ok(sum->input, sum->weight, &sum->both);
}

/* The weights that the group gathers before a pass that needs all of them. */
static bool add_gathers(struct builder *b, int s, int mb, struct op_times *sum)
{
    int64_t acts = 0, grads = 0;
    return builder_gather_ns(b, s, mb, false, &acts) && builder_gather_ns(b, s, mb, true, &grads) &&
           add_to(&sum->forward, acts) && add_to(&sum->input, grads) && add_to(&sum->both, grads);
}

/* The all-to-alls in F and in B that another pass can hide (time-1b), unless others hide them. */
static bool hidden_times(struct builder *b, int s, int mb, struct stage_cost *stage)
{
    int64_t exchanged, experts[2] = {0, 0};
    if (b->model->overlaps_experts)
        return true;
    if (builder_experts_ns(b, builder_samples(b, mb), &exchanged) != OK)
        return false;
    for (int i = b->plan->first_item[s]; exchanged > 0 && i < b->plan->first_item[s + 1]; i++) {
        const bool has = model_item_has_experts(b->model, i);
        experts[0] += has;
        experts[1] += has ? 1 + builder_runs_again(b, i) : 0;
    }
    return mul_ok(exchanged, experts[0], &stage->hidden_ns[0][mb]) &&
           mul_ok(exchanged, experts[1], &stage->hidden_ns[1][mb]);
}

/* F I W B R and Z of one micro-batch. */
static enum status pass_times(struct builder *b, int s, int mb, struct stage_cost *stage)
{
    struct op_times sum;
    enum status rc = item_passes(b, s, mb);
    if (rc != OK)
        return rc;
    bool fits = sum_passes(b, s, &sum);
    stage->weight_ns[mb] = sum.weight;
    fits = fits && builder_overlap(b, s, &sum) && add_gathers(b, s, mb, &sum);
    /* Where messages of shards overlap, they may take longer than the passes that they overlap. */
    if (stage->weight_ns[mb] > sum.both - sum.input)
        stage->weight_ns[mb] = sum.both > sum.input ? sum.both - sum.input : 0;
    if (stage->weight_ns[mb] > sum.weight)
        stage->weight_ns[mb] = sum.weight;
    if (b->got.i_folded_into_w && s == b->got.num_frozen_stages) {
        fits = fits && add_to(&sum.weight, sum.input);
        sum.input = 0;
    }
    fits = fits && hidden_times(b, s, mb, stage);
    int64_t extra = 0;
    if (b->plan->first_item[s] == 0) /* during the first stage's forward, on its cores */
        fits = fits && add_to(&sum.forward, input_time(b, builder_samples(b, mb)));
    fits = fits && op_extra(b, &extra) && add_to(&sum.forward, extra) &&
           add_to(&sum.again, extra) && add_to(&sum.input, extra) && add_to(&sum.weight, extra) &&
           add_to(&sum.both, extra);
    const double split = b->model->split_backward * (double)sum.both;
    if (s > b->got.num_frozen_stages && split > 0)
        fits = fits && split < (double)STEP_NS_MAX && add_to(&sum.weight, llround(split));
    stage->op_ns[OP_F][mb] = stage->op_ns[OP_Z][mb] = sum.forward;
    stage->op_ns[OP_R][mb] = sum.again;
    stage->op_ns[OP_I][mb] = sum.input;
    stage->op_ns[OP_W][mb] = sum.weight;
    stage->op_ns[OP_B][mb] = sum.both;
    return fits ? OK : builder_overflow(b, "times");
}

/* UPDATE on the host: gradients go there, the host's memory is read and written once for each
 * number of gradient, master, states and narrow copy, and new weights come back, one after the
 * other. The devices of a node share its memory. `ns` and `experts`, of which divided experts take
 * a part, are of a device that divides nothing. */
static bool offload_time(const struct builder *b, int s, int64_t *ns, int64_t *experts)
{
    const struct model *model = b->model;
    const int64_t states = b->plan->optim_bytes_per_param;
    const double all = b->cluster->host_mem_bytes_per_s > 0 ? b->cluster->host_mem_bytes_per_s
                                                            : HOST_MEM_BYTES_PER_S;
    double params = 0, of_experts = 0, neighbours = 0;
    for (int i = builder_first_active(b, s); i < b->plan->first_item[s + 1]; i++) {
        params += (double)model->items[i].params;
        of_experts += (double)builder_expert_params(b, i);
    }
    for (int d = 0; d < b->cluster->num_devices; d++)
        neighbours += b->cluster->devices[d].node == b->device->node;
    const double touched = model_grad_bytes(model) + 2.0 * model->param_bytes +
                           2.0 * (double)states +
                           (model->elem_bytes < model->param_bytes ? model->elem_bytes : 0);
    const double moved = model_grad_bytes(model) + model->elem_bytes;
    const double each = (moved / b->device->copy_bytes_per_s + touched * neighbours / all) * 1e9;
    if (params * each > (double)STEP_NS_MAX)
        return false;
    *ns = (int64_t)ceil(params * each);
    *experts = (int64_t)(of_experts * each);
    return true;
}

/* UPDATE. Without weights there is one only where the model says that it takes time. */
static enum status update_time(struct builder *b, int s, struct stage_cost *stage)
{
    const int end = b->plan->first_item[s + 1];
    const int64_t state = b->plan->optim_bytes_per_param / 4;
    int64_t update = 0, experts = 0;
    enum status rc = OK;
    for (int i = builder_first_active(b, s); i < end && rc == OK; i++) {
        const int64_t before = update, params = b->model->items[i].params;
        rc = add_pass(b, i, PASS_UPDATE, state, &update);
        if (builder_expert_params(b, i) > 0)
            experts += (int64_t)((double)(update - before) * (double)builder_expert_params(b, i) /
                                 (double)params);
    }
    /* The last stage's UPDATE takes in its copy of a tied table. That takes what the first item's
       does, which is little else. */
    if (rc == OK && b->plan->first_item[s] > 0 && end == b->model->num_items &&
        builder_tied_params(b) > 0)
        rc = add_pass(b, 0, PASS_UPDATE, state, &update);
    if (rc == OK && b->plan->layout.offload)
        rc = offload_time(b, s, &update, &experts) ? OK : builder_overflow(b, "times");
    if (rc == OK && (update > 0 || stage->weight_bytes > 0)) {
        rc = builder_update_ns(b, s, experts, &update) && add_to(&update, b->cost->op_overhead_ns)
                 ? OK
                 : builder_overflow(b, "times");
        stage->op_ns[OP_UPDATE][MB_FULL] = stage->op_ns[OP_UPDATE][MB_LAST] = update;
    }
    return rc;
}

/* C and P of one micro-batch. */
static enum status cache_times(struct builder *b, int s, int mb, struct stage_cost *stage)
{
    const int64_t samples = builder_samples(b, mb), bytes = stage->copy_bytes[mb];
    bool fits = true;
    if (s == 0 && b->plan->frozen == FROZEN_CACHED) {
        const int64_t read_ns = b->cost->cache_read_ns;
        fits = cache_ns(b, b->got.host_blocking ? read_ns : 0, samples, bytes,
                        b->cost->copy_in_ns_per_byte, &stage->op_ns[OP_C][mb]);
        if (fits && !b->got.host_blocking)
            fits = mul_ok(read_ns, b->plan->batch, &b->got.cache_read_ns) &&
                   b->got.cache_read_ns <= STEP_NS_MAX;
    }
    if (s == b->got.cache_write_stage) {
        fits = fits && cache_ns(b, b->cost->cache_write_ns, samples, bytes,
                                b->cost->copy_out_ns_per_byte, &stage->op_ns[OP_P][mb]);
    }
    return fits ? OK : builder_overflow(b, "times");
}

/* The serial forward of the frozen prefix over the whole batch, and its way into the cache. */
static enum status whole_batch_times(struct builder *b, struct stage_cost *stage)
{
    const struct plan *plan = b->plan;
    int64_t forward = 0, extra = 0, cached, exchanged;
    enum status rc = builder_experts_ns(b, plan->batch, &exchanged);
    bool fits = true;
    /* Constants per micro-batch hold once for each micro-batch. */
    const int64_t times = b->model->per_microbatch ? plan->microbatches.count : 1;
    for (int i = 0; i < b->num_frozen_items && rc == OK; i++) {
        int64_t ns, sent[2] = {0, 0};
        rc = builder_item_ns(b, i, PASS_FWD_NOGRAD, plan->batch, &ns);
        THEN(builder_exchanges(b, i, plan->batch, exchanged, sent));
        fits = fits && rc == OK && mul_ok(ns, times, &ns) && add_to(&forward, ns) &&
               add_to(&forward, sent[0]);
    }
    if (rc != OK)
        return rc;
    fits = fits && add_to(&forward, input_time(b, plan->batch)) && op_extra(b, &extra) &&
           add_to(&forward, extra);
    stage->whole_batch_ns[0] = forward;
    if (plan->cache_write) {
        fits = fits && cached_bytes(b, &cached) &&
               mul_ok(cached, b->model->per_microbatch ? times : plan->batch,
                      &stage->host_copy_bytes_whole) &&
               cache_ns(b, b->cost->cache_write_ns, plan->batch, stage->host_copy_bytes_whole,
                        b->cost->copy_out_ns_per_byte, &stage->whole_batch_ns[1]);
    }
    return fits ? OK : builder_overflow(b, "times");
}

/* Lengthen the ops of a stage by the processor time of its messages to and from other ranks
 * (time-3c). */
static bool add_messages(const struct builder *b, int s, struct stage_cost *stage)
{
    static const enum op_kind ops[2][2] = {
        {OP_F, OP_Z},
        {OP_B, OP_I}
    }; /* activations, gradients */
    const struct workload *w = &b->got;
    const double rate = b->cluster->message_host_bytes_per_s;
    bool fits = true;
    if (b->cluster->message_host_ns == 0 && rate == 0)
        return true;
    for (int e = 0; e < w->num_edges; e++) {
        const struct stage_edge *edge = &w->edges[e];
        if ((edge->from != s && edge->to != s) ||
            w->rank_of_stage[edge->from] == w->rank_of_stage[edge->to])
            continue;
        for (int mb = 0; mb < MB_SIZES; mb++) {
            const double copy = rate > 0 ? (double)edge->bytes[mb] / rate * 1e9 : 0;
            fits = fits && copy < (double)STEP_NS_MAX;
            for (int i = 0; i < 2 * (1 + edge->grad) && fits; i++)
                fits = add_to(&stage->op_ns[ops[i / 2][i % 2]][mb],
                              b->cluster->message_host_ns + (int64_t)ceil(copy));
        }
    }
    return fits;
}

/* One stage on the current device. */
static enum status build_stage(struct builder *b, int s, struct stage_cost *stage)
{
    const struct plan *plan = b->plan;
    const bool equal = plan->microbatches.last_size == plan->microbatches.size &&
                       plan->recompute != RECOMPUTE_EXCEPT_LAST && !b->model->overlaps_experts;
    builder_find_again(b, s);
    enum status rc = fixed_bytes(b, s, stage) && flowing_bytes(b, s, stage)
                         ? OK
                         : builder_overflow(b, "params, act_bytes, stash_bytes or work_bytes");
    for (int mb = 0; mb < (equal ? 1 : MB_SIZES) && rc == OK; mb++) {
        rc = pass_times(b, s, mb, stage);
        THEN(cache_times(b, s, mb, stage));
    }
    for (int kind = 0; kind < OP_KIND_COUNT && equal; kind++)
        stage->op_ns[kind][MB_LAST] = stage->op_ns[kind][MB_FULL];
    if (equal)
        stage->weight_ns[MB_LAST] = stage->weight_ns[MB_FULL];
    for (int back = 0; back < 2 && equal; back++)
        stage->hidden_ns[back][MB_LAST] = stage->hidden_ns[back][MB_FULL];
    THEN(update_time(b, s, stage));
    if (rc == OK && s == 0 && plan->frozen == FROZEN_FIRST)
        rc = whole_batch_times(b, stage);
    return rc;
}

/* Build a stage, or take its costs from an earlier cut of the plan, which hold where the distances of
 * stash do not count. */
static enum status find_stage(struct builder *b, int s, int class_index, struct stage_cost *stage)
{
    struct workload *w = &b->got;
    if (!w->memo || w->distances)
        return build_stage(b, s, stage);
    struct stage_memo_entry *entry = stage_memo_find(w->memo, b->plan, s, class_index);
    const bool before = w->extrapolated;
    enum status rc = OK;
    if (!entry->known) {
        w->extrapolated = false;
        entry->cost = (struct stage_cost){0};
        rc = build_stage(b, s, &entry->cost);
        entry->known = rc == OK;
        entry->extrapolated = w->extrapolated;
    }
    *stage = entry->cost;
    w->extrapolated = before || entry->extrapolated;
    return rc;
}

/* --- the longest step that could come of it --------------------------------------------------- */

/* Add what a stage's ops take, one after the other. */
static bool add_ops(const struct workload *w, const struct stage_cost *stage, int64_t *step)
{
    static const enum op_kind each[] = {OP_F, OP_R, OP_I, OP_W, OP_C, OP_P};
    bool fits = true;
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        int64_t all;
        fits = fits && mul_ok(stage->op_ns[each[i]][MB_FULL], w->num_microbatches, &all) &&
               add_to(step, all);
    }
    return fits && add_to(step, stage->whole_batch_ns[0]) &&
           add_to(step, stage->whole_batch_ns[1]) && add_to(step, stage->op_ns[OP_UPDATE][MB_FULL]);
}

/* Add messages and launches, as if each waited for the one before. */
static bool add_waits(const struct builder *b, int class_index, int64_t *step)
{
    const struct workload *w = &b->got;
    int64_t once = 0, all = 0;
    bool fits = true;
    for (int e = 0; e < w->num_edges; e++) {
        for (int grad = 0; grad < 2; grad++) {
            const int64_t full = workload_edge_ns(w, class_index, e, grad, MB_FULL),
                          last = workload_edge_ns(w, class_index, e, grad, MB_LAST);
            fits = fits && add_to(&once, full > last ? full : last);
        }
    }
    fits = fits && mul_ok(once, (int64_t)w->num_microbatches * w->num_pipelines, &all) &&
           add_to(step, all) && mul_ok(workload_tied_ns(w, class_index), w->num_pipelines, &all) &&
           add_to(step, all);
    if (!w->host_blocking) {
        /* F R I W C P of each stage and micro-batch; Z, P and UPDATE of the batch */
        const int64_t launches = w->num_stages * (6 * (int64_t)w->num_microbatches + 3);
        fits = fits && mul_ok(b->cluster->host_op_ns, launches, &all) && add_to(step, all);
    }
    return fits;
}

enum status workload_build_bytes(struct builder *b, const bool *ranks)
{
    struct workload *w = &b->got;
    for (int i = 0; i < w->num_classes * w->num_stages; i++) {
        const int s = i % w->num_stages;
        if (!ranks[w->rank_of_stage[s]])
            continue;
        builder_find_again(b, s);
        if (!flowing_bytes(b, s, &w->stages[i]))
            return builder_overflow(b, "stash_bytes or work_bytes");
    }
    return OK;
}

/* A replica of a class. */
static int replica_of(const struct workload *w, int class_index)
{
    int replica = 0;
    while (w->class_of_replica[replica] != class_index)
        replica++;
    return replica;
}

enum status workload_build_stage(struct builder *b, int class_index, int stage,
                                 struct stage_cost *cost)
{
    struct workload *w = &b->got;
    if (!b->item_ns)
        b->item_ns = malloc((size_t)b->model->num_items * sizeof *b->item_ns);
    if (!b->item_ns)
        return err_nomem(b->err);
    if (w->class_of_replica[b->replica] != class_index)
        b->replica = replica_of(w, class_index);
    b->rank = w->rank_of_stage[stage];
    b->device = builder_device(b, b->replica, b->rank);
    b->distance = w->distances ? w->distances[stage] : STASH_FAR;
    const enum status rc = find_stage(b, stage, class_index, cost);
    return rc != OK || add_messages(b, stage, cost) ? rc : builder_overflow(b, "messages");
}

enum status workload_build_stages(struct builder *b)
{
    struct workload *w = &b->got;
    w->stages = calloc((size_t)w->num_classes * (size_t)w->num_stages, sizeof *w->stages);
    if (!w->stages)
        return err_nomem(b->err);
    for (int c = 0; c < w->num_classes; c++) {
        int64_t step = 0;
        bool fits = true;
        for (int s = 0; s < w->num_stages; s++) {
            struct stage_cost *stage = &w->stages[(int64_t)c * w->num_stages + s];
            const enum status rc = workload_build_stage(b, c, s, stage);
            if (rc != OK)
                return rc;
            fits = fits && add_ops(w, stage, &step);
        }
        if (!fits || !add_waits(b, c, &step) || step > STEP_NS_MAX) {
            return err_set(b->err, ERR_INPUT, "a step of model '%s' is longer than 2^60 ns",
                           b->model->name);
        }
    }
    return OK;
}
