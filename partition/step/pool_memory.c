#include "partition/step/pool_memory.h"

#include "partition/base/units.h"

enum { WIDE_TENSORS = 3, SCRATCH_TENSORS = 2, READ_AHEAD = 2 };

/* The most micro-batches that a stage holds at once, from F on. from_r: those that are recomputed
 * count from R on. */
static int most_live(const struct schedule *full, int stage, bool from_r)
{
    const struct rank_ops *list = &full->ranks[full->rank_of_stage[stage]];
    int live = 0, peak = 1;
    for (int64_t i = 0; i < list->num_ops; i++) {
        const struct op op = list->ops[i];
        if (op.stage != stage)
            continue;
        live += op.kind == (from_r && schedule_recomputes(full, op) ? OP_R : OP_F);
        live -= op.kind == OP_B || op.kind == OP_W;
        peak = live > peak ? live : peak;
    }
    return peak;
}

int pool_slots(const struct schedule *full, int stage)
{
    const int peak = most_live(full, stage, false);
    return peak < full->num_microbatches ? peak + 1 : peak;
}

int64_t pool_scratch_cols(const struct model *model)
{
    int64_t cols = model->hidden;
    if (model->family != FAMILY_LLAMA && model->lora.rank == 0)
        return cols;
    const int64_t heads = (int64_t)model->heads * model->head_dim;
    cols = model->mlp > cols ? model->mlp : cols;
    return heads > cols ? heads : cols;
}

int64_t pool_angle_bytes(const struct model *model)
{
    return model->family == FAMILY_LLAMA ? 4 * (int64_t)model->head_dim : 0;
}

static bool add_product(int64_t *sum, int64_t a, int64_t b)
{
    int64_t product;
    return mul_ok(a, b, &product) && add_ok(*sum, product, sum);
}

/* The work space of the items [first, end), for one sample. */
static bool work_bytes(const struct model *model, const int64_t *stash_bytes, int first, int end,
                       int64_t *work)
{
    const int64_t row = (int64_t)model->seq * model->elem_bytes;
    int64_t most = 0;
    for (int i = first; i < end; i++)
        most = stash_bytes[i] > most ? stash_bytes[i] : most;
    *work = most;
    return add_product(work, row, WIDE_TENSORS * (int64_t)model->hidden) &&
           add_product(work, row, SCRATCH_TENSORS * pool_scratch_cols(model)) &&
           (first > 0 || !model_has_images(model) ||
            add_product(work, row, (int64_t)model->channels * model->patch * model->patch));
}

/* Bytes that a device copies from the host for a stage of items [first, end): slots and ahead. */
static bool add_blocks(const struct model *model, const struct plan *plan, int first, int end,
                       int slots, int64_t *sum)
{
    const bool cached = plan->frozen == FROZEN_CACHED, images = model_has_images(model);
    const int copies = slots + (first == 0 && images && !cached);
    return add_product(
        sum, copies,
        model_block_bytes(model, first == 0, end == model->num_items, plan->microbatches.size));
}

/* The pools of a prefix outside the pipeline. The workload counts its weights. */
static bool prefix_pool(const struct model *model, const struct plan *plan,
                        const int64_t *stash_bytes, bool on_device, int64_t *sum)
{
    const int end = plan->first_item[0];
    const int ahead = plan->frozen == FROZEN_CACHED && !on_device ? READ_AHEAD : 0;
    int64_t work = 0;
    if (end == 0)
        return true;
    bool fits = work_bytes(model, stash_bytes, 0, end, &work) &&
                (!on_device || add_blocks(model, plan, 0, end, 1, sum));
    return fits &&
           add_product(&work, model->items[end - 1].act_bytes,
                       1 + ahead + (int64_t)plan->microbatches.count) &&
           add_product(sum, work, plan->microbatches.size) &&
           add_product(sum, model->seq, pool_angle_bytes(model));
}

/* Weights, slots and work space of a stage. A frozen item keeps nothing, except that the last one
 * keeps what it hands to the first that trains. */
static bool stage_pool(const struct model *model, const struct schedule *full,
                       const struct workload *w, const struct plan *plan,
                       const int64_t *stash_bytes, int s, int slots, int64_t *sum)
{
    const struct stage_cost *stage = &w->stages[s];
    const int first = plan->first_item[s], end = plan->first_item[s + 1];
    const int frozen = model_frozen_items(model, plan->num_frozen_layers);
    const int64_t samples = plan->microbatches.size;
    const int stashes = recompute_by_stage(plan->recompute) ? most_live(full, s, true) : slots;
    int64_t stash = 0, work = 0;
    bool fits = add_ok(*sum, stage->weight_bytes, sum) && add_ok(*sum, stage->frozen_bytes, sum) &&
                add_ok(*sum, stage->grad_bytes, sum) && add_ok(*sum, stage->optim_bytes, sum) &&
                add_ok(*sum, stage->tree_bytes, sum) && add_ok(*sum, stage->lagged_bytes, sum) &&
                add_product(sum, model->seq, pool_angle_bytes(model)) &&
                work_bytes(model, stash_bytes, first, end, &work);
    for (int i = first; i < end && fits; i++) {
        if (i >= frozen)
            fits = add_ok(stash, stash_bytes[i], &stash);
        if (fits && i + 1 >= frozen && i + 1 < end)
            fits = add_ok(stash, model->items[i].act_bytes, &stash);
    }
    return fits && mul_ok(stash, stashes, &stash) && add_ok(work, stash, &work) &&
           add_product(&work, model->items[end - 1].act_bytes, slots) &&
           (first == 0 || add_product(&work, model->items[first - 1].act_bytes, slots)) &&
           add_product(sum, work, samples);
}

enum status pool_memory(const struct model *model, const struct schedule *full,
                        const struct workload *workload, const struct plan *plan,
                        const int64_t *stash_bytes, bool on_device, int64_t *memory_bytes,
                        struct err *err)
{
    bool fits = true;
    for (int k = 0; k < full->num_ranks; k++)
        memory_bytes[k] = workload->context_bytes;
    fits = prefix_pool(model, plan, stash_bytes, on_device, &memory_bytes[full->rank_of_stage[0]]);
    for (int s = 0; s < full->num_stages && fits; s++) {
        int64_t *sum = &memory_bytes[full->rank_of_stage[s]];
        const int slots = pool_slots(full, s);
        fits = stage_pool(model, full, workload, plan, stash_bytes, s, slots, sum) &&
               (!on_device ||
                add_blocks(model, plan, plan->first_item[s], plan->first_item[s + 1], slots, sum));
    }
    for (int e = 0; e < workload->num_edges && fits; e++) {
        const struct stage_edge *edge = &workload->edges[e];
        const int ends[] = {edge->to, edge->from};
        for (int back = 0; back < (edge->grad ? 2 : 1) && fits; back++) {
            int64_t buffers = pool_slots(full, ends[back]) + MESSAGE_WINDOW;
            if (buffers > full->num_microbatches)
                buffers = full->num_microbatches;
            fits = add_product(&memory_bytes[full->rank_of_stage[ends[back]]], buffers,
                               edge->bytes[MB_FULL]);
        }
    }
    return fits ? OK
                : err_set(err, ERR_INPUT, "memory of model '%s' in %d stages overflows",
                          model->name, full->num_stages);
}
