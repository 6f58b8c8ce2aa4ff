#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exec/runtime_state.h"

/* --- messages --------------------------------------------------------------------------------- */

static int tag_of(const struct runtime *rt, const struct edge *edge, enum direction d, int mb)
{
    return (int)((edge - rt->edges) * DIRECTIONS + d) * rt->num_microbatches + mb;
}

static int64_t message_bytes(const struct runtime *rt, const struct edge *edge,
                             const struct sample_block *block)
{
    return backend_bytes(rt->spec.backend, edge->sample_elems * block->num_samples);
}

/* Post what the list will receive next on this edge, as far as buffers are free (R3). */
enum status runtime_post_receives(struct runtime *rt, struct edge *edge, enum direction d,
                                  const struct batch *batch, struct err *err)
{
    struct inbox *inbox = &edge->inbox[d];
    enum status rc = OK;
    while (rc == OK && inbox->next < inbox->num_order) {
        int mb = inbox->order[inbox->next], i = 0;
        if (batch->blocks[mb].num_samples == 0) {
            inbox->next++;
            continue;
        }
        while (i < inbox->num_buffers && inbox->buffers[i].microbatch >= 0)
            i++;
        if (i == inbox->num_buffers)
            break;
        inbox->buffers[i].microbatch = mb;
        inbox->buffer_of[mb] = i;
        inbox->next++;
        rc = comm_irecv(rt->spec.pipeline, inbox->buffers[i].host,
                        message_bytes(rt, edge, &batch->blocks[mb]), edge->peer,
                        tag_of(rt, edge, d, mb), &inbox->buffers[i].request, err);
    }
    return rc;
}

static enum status receive(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                           const struct batch *batch, struct err *err)
{
    struct inbox *inbox = &edge->inbox[d];
    struct backend *be = rt->spec.backend;
    enum status rc = runtime_post_receives(rt, edge, d, batch, err);
    if (rc != OK)
        return rc;
    if (inbox->buffer_of[mb] < 0) /* R4 proves this away */
        return err_set(err, ERR_SYSTEM, "no buffer for micro-batch %d from stage %d", mb,
                       d == ACT ? edge->from : edge->to);
    struct buffer *buffer = &inbox->buffers[inbox->buffer_of[mb]];
    rc = comm_wait(&buffer->request, err);
    if (rc == OK && !be->host_memory)
        be->copy_in(be, buffer->data, buffer->host, message_bytes(rt, edge, &batch->blocks[mb]));
    return rc;
}

/* The buffer of micro-batch mb is free again; use it for the next message. */
static enum status release(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                           const struct batch *batch, struct err *err)
{
    struct inbox *inbox = &edge->inbox[d];
    int i = inbox->buffer_of ? inbox->buffer_of[mb] : -1;
    if (i < 0)
        return OK;
    inbox->buffers[i].microbatch = -1;
    inbox->buffer_of[mb] = -1;
    return edge->peer < 0 ? OK : runtime_post_receives(rt, edge, d, batch, err);
}

static enum status send_message(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                                int slot, const void *data, const struct batch *batch,
                                struct err *err)
{
    struct backend *be = rt->spec.backend;
    int64_t bytes = message_bytes(rt, edge, &batch->blocks[mb]);
    enum status rc;
    if (!be->host_memory) {
        be->copy_out(be, edge->send_host[d][slot], data, bytes);
        rc = be->sync(be, err);
        if (rc != OK)
            return rc;
        data = edge->send_host[d][slot];
    }
    return comm_isend(rt->spec.pipeline, data, bytes, edge->peer, tag_of(rt, edge, d, mb),
                      &edge->sends[d][slot], err);
}

/* Hand over inside the rank: a copy, so that the sender's slot is free. */
static enum status hand_over(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                             const void *data, const struct batch *batch, struct err *err)
{
    struct inbox *inbox = &edge->inbox[d];
    struct backend *be = rt->spec.backend;
    int i = 0;
    while (i < inbox->num_buffers && inbox->buffers[i].microbatch >= 0)
        i++;
    if (i == inbox->num_buffers)
        return err_set(err, ERR_SYSTEM, "no buffer for micro-batch %d between stages %d and %d", mb,
                       edge->from, edge->to);
    inbox->buffers[i].microbatch = mb;
    inbox->buffer_of[mb] = i;
    be->copy(be, inbox->buffers[i].data, data, message_bytes(rt, edge, &batch->blocks[mb]));
    return OK;
}

static void *received(const struct edge *edge, enum direction d, int mb)
{
    const struct inbox *inbox = &edge->inbox[d];
    int i = inbox->buffer_of ? inbox->buffer_of[mb] : -1;
    return i < 0 ? NULL : inbox->buffers[i].data;
}

/* R2: all messages that read from a slot have left. */
enum status runtime_wait_slot(struct runtime *rt, struct stage_state *s, int slot, struct err *err)
{
    enum status rc = OK;
    for (int e = 0; rc == OK && e < s->num_out; e++)
        rc = comm_wait(&rt->edges[s->out[e]].sends[ACT][slot], err);
    for (int e = 0; rc == OK && e < s->num_in; e++)
        if (rt->edges[s->in[e]].sends[GRAD])
            rc = comm_wait(&rt->edges[s->in[e]].sends[GRAD][slot], err);
    return rc;
}

/* --- compute ops ------------------------------------------------------------------------------ */

/* Entry e of the stage's in[] (out[]) array: [0] is the chain's, skip edges behind it. The first
 * stage has no chain input. */
static int in_place(int stage, int e)
{
    return stage == 0 ? e + 1 : e;
}

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
    /* Frozen layers run without dropout, in training as in evaluation. */
    rc = stage_forward(rt->spec.prefix, 0, block, STEP_EVAL, in, out, false, NULL, err);
    if (rc == OK) {
        be->copy(be, rt->prefix_out[microbatch], out[0],
                 backend_bytes(be, stage_input_elems(rt->spec.model, rt->spec.plan->first_item[0]) *
                                       block->num_samples));
        rt->prefix_ready[microbatch] = true;
    }
    return rc;
}

enum status runtime_forward(struct runtime *rt, const struct op *op, const struct batch *batch,
                            uint64_t step, bool train, struct err *err)
{
    struct stage_state *s = &rt->stages[op->stage];
    const struct sample_block *block = &batch->blocks[op->microbatch];
    int mb = op->microbatch, slot;
    bool keep = train && op->kind == OP_F && !s->has_r[mb], again = op->kind == OP_R;
    bool holds = train && op->kind == OP_F; /* the slot stays taken until the backward */
    struct loss_sums loss = {0};
    enum status rc;
    if (again) {
        slot = s->slot_of[mb];
        keep = true;
    } else {
        /* In turn, so that a slot rests while the last message that reads from it leaves. */
        slot = s->next_slot;
        for (int i = 1; i < s->num_slots && s->busy[slot]; i++)
            slot = (slot + 1) % s->num_slots;
        assert(!s->busy[slot] || !train);
        s->next_slot = (slot + 1) % s->num_slots;
        s->busy[slot] |= holds;
    }
    s->slot_of[mb] = slot;
    rc = runtime_wait_slot(rt, s, slot, err);
    if (rc != OK)
        return rc;
    memset(s->in_ptr, 0, (size_t)(s->num_in + 1) * sizeof *s->in_ptr);
    for (int e = 0; e < s->num_in; e++)
        s->in_ptr[in_place(op->stage, e)] = received(&rt->edges[s->in[e]], ACT, mb);
    if (op->stage == 0 && rt->spec.prefix) { /* R7 */
        rc = runtime_prefix(rt, mb, batch, err);
        if (rc != OK)
            return rc;
        s->in_ptr[0] = rt->prefix_out[mb];
    }
    rc = stage_forward(s->stage, slot, block, step, s->in_ptr,
                       s->out_ptr + (size_t)slot * (size_t)(s->num_out + 1), keep, &loss, err);
    if (rc != OK)
        return rc;
    double *sums =
        rt->sums +
        ((size_t)rt->spec.replica * (size_t)rt->num_microbatches + (size_t)mb) * LOSS_WORDS;
    if (op->stage == rt->spec.workload->num_stages - 1 && !again) {
        sums[0] = loss.loss;
        sums[1] = (double)loss.count;
        sums[2] = (double)loss.correct;
    }
    for (int e = 0; rc == OK && e < s->num_in && !holds && !again; e++)
        rc = release(rt, &rt->edges[s->in[e]], ACT, mb, batch, err);
    for (int e = 0; rc == OK && e < s->num_out && !again; e++)
        if (rt->edges[s->out[e]].peer < 0)
            rc = hand_over(rt, &rt->edges[s->out[e]], ACT, mb,
                           s->out_ptr[(size_t)slot * (size_t)(s->num_out + 1) + (size_t)e], batch,
                           err);
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
        s->grad_out_ptr[e] = received(&rt->edges[s->out[e]], GRAD, mb);
    const bool ahead = runtime_reduce_ahead(rt, op);
    struct final_grads of = {rt, op->stage};
    stage_on_grad(s->stage, ahead ? runtime_reduce_item : NULL, &of);
    rc = stage_backward(s->stage, slot, &batch->blocks[mb], (uint64_t)step, what, scale,
                        s->grad_out_ptr, grad_in, err);
    stage_on_grad(s->stage, NULL, NULL);
    if (rc != OK)
        return rc;
    /* The gradient for the input leaves after B or I, or after a W that did both. */
    if (what != BACKWARD_WEIGHT || !s->has_i[mb])
        for (int e = 0; rc == OK && e < s->num_in; e++) {
            struct edge *edge = &rt->edges[s->in[e]];
            if (edge->peer < 0 && edge->grad)
                rc = hand_over(rt, edge, GRAD, mb, grad_in[in_place(op->stage, e)], batch, err);
        }
    if (rc != OK || what == BACKWARD_INPUT)
        return rc;
    runtime_tree_add(rt, s, mb, ahead);
    s->busy[slot] = false;
    for (int e = 0; rc == OK && e < s->num_in; e++)
        rc = release(rt, &rt->edges[s->in[e]], ACT, mb, batch, err);
    for (int e = 0; rc == OK && e < s->num_out; e++)
        rc = release(rt, &rt->edges[s->out[e]], GRAD, mb, batch, err);
    return rc;
}

enum status runtime_message(struct runtime *rt, const struct op *op, const struct batch *batch,
                            struct err *err)
{
    struct stage_state *s = &rt->stages[op->stage];
    int mb = op->microbatch, slot = s->slot_of[mb], arg = op->arg;
    size_t at = (size_t)slot;
    switch (op->kind) {
    case OP_RECV_ACT:
        return receive(rt, &rt->edges[s->in[arg]], ACT, mb, batch, err);
    case OP_RECV_GRAD:
        return receive(rt, &rt->edges[s->out[arg]], GRAD, mb, batch, err);
    case OP_SEND_ACT:
        return send_message(rt, &rt->edges[s->out[arg]], ACT, mb, slot,
                            s->out_ptr[at * (size_t)(s->num_out + 1) + (size_t)arg], batch, err);
    default:
        return send_message(
            rt, &rt->edges[s->in[arg]], GRAD, mb, slot,
            s->grad_in_ptr[at * (size_t)(s->num_in + 1) + (size_t)in_place(op->stage, arg)], batch,
            err);
    }
}
