/* exec/step/ops.c - the compute ops: forward (F, R, Z) and backward (B, I, W) of a stage, the
 * frozen prefix in front of it, and copying images ahead. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exec/step/runtime_state.h"

enum status runtime_prefix(struct runtime *rt, int microbatch, const struct batch *batch,
                           struct err *err)
{
    struct backend *be = rt->spec.backend;
    const struct sample_block *block = &batch->blocks[microbatch];
    void *in[1] = {NULL}, *out[1] = {NULL};
    enum status rc;
    if (rt->prefix_ready[microbatch])
        return OK;
    if (rt->cache && rt->training)
        return runtime_prefix_cached(rt, microbatch, batch, err);
    /* Frozen layers run without dropout, also in training. */
    const struct stage_batch frozen = {.block = block, .step = STEP_EVAL};
    rc = stage_forward(rt->spec.prefix, &frozen, in, out, false, err);
    if (rc == OK) {
        be->copy(be, rt->prefix_out[microbatch], out[0],
                 backend_bytes(be, stage_input_elems(rt->spec.model, rt->spec.plan->first_item[0]) *
                                       block->num_samples));
        rt->prefix_ready[microbatch] = true;
    }
    return rc;
}

/* The slot of a forward that is no second one. Slots are taken in turn, so that the last message out of a slot has
 * time to leave. */
static int take_slot(struct stage_state *s, bool train, bool holds)
{
    int slot = s->next_slot;
    for (int i = 1; i < s->num_slots && s->busy[slot]; i++)
        slot = (slot + 1) % s->num_slots;
    assert(!s->busy[slot] || !train);
    s->next_slot = (slot + 1) % s->num_slots;
    s->busy[slot] |= holds;
    return slot;
}

enum status runtime_forward(struct runtime *rt, const struct op *op, const struct batch *batch,
                            uint64_t step, bool train, struct err *err)
{
    struct stage_state *s = &rt->stages[op->stage];
    const struct sample_block *block = &batch->blocks[op->microbatch];
    const int mb = op->microbatch;
    const bool again = op->kind == OP_R;
    const bool holds = train && op->kind == OP_F; /* the slot stays taken until the backward */
    const bool keep = again || (holds && !s->has_r[mb]);
    const int slot = again ? s->slot_of[mb] : take_slot(s, train, holds);
    s->slot_of[mb] = slot;
    enum status rc = runtime_wait_slot(rt, s, slot, err);
    if (rc != OK)
        return rc;
    memset(s->in_ptr, 0, (size_t)(s->num_in + 1) * sizeof *s->in_ptr);
    for (int e = 0; e < s->num_in; e++)
        s->in_ptr[runtime_in_place(op->stage, e)] = runtime_received(&rt->edges[s->in[e]], ACT, mb);
    if (op->stage == 0 && rt->spec.prefix && !boundary_begins(rt)) {
        rc = runtime_prefix(rt, mb, batch, err);
        if (rc != OK)
            return rc;
        s->in_ptr[0] = rt->prefix_out[mb];
    }
    const struct stage_batch pass = {.block = block, .slot = slot, .step = step};
    struct stage_taps taps;
    if (rt->part)
        boundary_tap(rt, op->stage, mb, &taps);
    rc = stage_forward(s->stage, &pass, s->in_ptr,
                       s->out_ptr + (size_t)slot * (size_t)(s->num_out + 1), keep, err);
    stage_tap(s->stage, NULL);
    if (rc != OK)
        return rc;
    if (!again && stage_loss_out(s->stage, slot, &rt->losses[mb]) && rt->losses_out)
        rt->spec.backend->event_record(rt->spec.backend, rt->losses_out);
    for (int e = 0; rc == OK && e < s->num_in && !holds && !again; e++)
        rc = runtime_release(rt, &rt->edges[s->in[e]], ACT, mb, batch, err);
    for (int e = 0; rc == OK && e < s->num_out && !again; e++)
        if (rt->edges[s->out[e]].peer < 0)
            rc = runtime_hand_over(rt, &rt->edges[s->out[e]], ACT, mb,
                                   s->out_ptr[(size_t)slot * (size_t)(s->num_out + 1) + (size_t)e],
                                   batch, err);
    return rc;
}

enum status runtime_backward(struct runtime *rt, const struct op *op, const struct batch *batch,
                             int64_t step, struct err *err)
{
    struct stage_state *s = &rt->stages[op->stage];
    int mb = op->microbatch, slot = s->slot_of[mb];
    enum backward what = op->kind == OP_B   ? BACKWARD_BOTH
                         : op->kind == OP_I ? BACKWARD_INPUT
                                            : BACKWARD_WEIGHT;
    void **grad_in = s->grad_in_ptr + (size_t)slot * (size_t)(s->num_in + 1);
    float scale = batch->num_targets > 0 ? (float)(1.0 / (double)batch->num_targets) : 0.0f;
    enum status rc;
    memset(s->grad_out_ptr, 0, (size_t)(s->num_out + 1) * sizeof *s->grad_out_ptr);
    for (int e = 0; e < s->num_out; e++)
        s->grad_out_ptr[e] = runtime_received(&rt->edges[s->out[e]], GRAD, mb);
    const bool ahead = runtime_reduce_ahead(rt, op);
    struct final_grads of = {rt, op->stage};
    stage_on_grad(s->stage, ahead ? runtime_reduce_item : NULL, &of);
    const struct stage_batch pass = {.block = &batch->blocks[mb],
                                     .slot = slot,
                                     .step = (uint64_t)step,
                                     .grad_scale = scale,
                                     .left_out = runtime_left_out(rt, op->stage, mb),
                                     .completes = s->tree || mb == rt->num_microbatches - 1};
    rc = stage_backward(s->stage, &pass, what, s->grad_out_ptr, grad_in, err);
    stage_on_grad(s->stage, NULL, NULL);
    if (rc != OK)
        return rc;
    /* The input's gradient leaves after B or I, or after a W that did the work of both. */
    if (what != BACKWARD_WEIGHT || !s->has_i[mb])
        for (int e = 0; rc == OK && e < s->num_in; e++) {
            struct edge *edge = &rt->edges[s->in[e]];
            if (edge->peer < 0 && edge->grad)
                rc = runtime_hand_over(rt, edge, GRAD, mb, grad_in[runtime_in_place(op->stage, e)],
                                       batch, err);
        }
    if (rc != OK || what == BACKWARD_INPUT)
        return rc;
    runtime_tree_add(rt, s, mb, ahead);
    s->busy[slot] = false;
    for (int e = 0; rc == OK && e < s->num_in; e++)
        rc = runtime_release(rt, &rt->edges[s->in[e]], ACT, mb, batch, err);
    for (int e = 0; rc == OK && e < s->num_out; e++)
        rc = runtime_release(rt, &rt->edges[s->out[e]], GRAD, mb, batch, err);
    return rc;
}

static bool reads_input(const struct op *op)
{
    return (op->kind == OP_Z || op->kind == OP_F) && (op->microbatch < 0 || op->stage == 0);
}

enum status runtime_reads_init(struct runtime *rt, struct err *err)
{
    const int m = rt->num_microbatches;
    struct stage *reader = rt->spec.prefix ? rt->spec.prefix : rt->stages[0].stage;
    if (!reader || !stage_uploads(reader))
        return OK;
    bool *listed = calloc((size_t)m, sizeof *listed);
    rt->reads = calloc((size_t)m, sizeof *rt->reads);
    if (!listed || !rt->reads) {
        free(listed);
        return err_nomem(err);
    }
    for (int64_t i = 0; i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        for (int mb = 0; mb < m && reads_input(op); mb++)
            if ((op->microbatch < 0 || op->microbatch == mb) && !listed[mb]) {
                listed[mb] = true;
                rt->reads[rt->num_reads++] = mb;
            }
    }
    free(listed);
    rt->reader = reader;
    return OK;
}

/* The next block of the batch that holds samples, from rt->reads[at] on; NULL: none. */
static const struct sample_block *next_read(const struct runtime *rt, const struct batch *batch,
                                            int at)
{
    for (; at < rt->num_reads; at++)
        if (batch->blocks[rt->reads[at]].num_samples > 0)
            return &batch->blocks[rt->reads[at]];
    return NULL;
}

void runtime_upload(struct runtime *rt, const struct op *op, const struct batch *batch)
{
    for (int i = rt->reads_done; reads_input(op) && i < rt->num_reads; i++)
        if (op->microbatch < 0 || op->microbatch == rt->reads[i])
            rt->reads_done = i + 1;
    const struct sample_block *block = next_read(rt, batch, rt->reads_done);
    if (!block && (batch = loader_peek(batch->loader)))
        block = next_read(rt, batch, 0);
    if (block)
        stage_upload(rt->reader, block);
}
