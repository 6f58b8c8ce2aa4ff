/* exec/step/messages.c - carries activations and their gradients between ranks.
 *
 * Each edge of the plan has receive buffers in both directions (inbox), posted in the order of the
 * list, and for each slot of the sending stage a place for the message that leaves it (outgoing).
 * On a host-memory backend MPI reads and writes backend memory. On a device a message is either
 * staged through pinned host memory or sent by NCCL (enum carriage). The rules slot-* and lane-* of
 * runtime_state.h say who waits for whom. Read runtime_message() first, the four message ops; then
 * receive(), send_message() and the waits. */
#include <stdlib.h>
#include <string.h>

#include "exec/step/runtime_state.h"
#include "partition/base/units.h"

static int tag_of(const struct runtime *rt, const struct edge *edge, enum direction d, int mb)
{
    return (int)((edge - rt->edges) * DIRECTIONS + d) * rt->num_microbatches + mb;
}

static int64_t message_bytes(const struct runtime *rt, const struct edge *edge,
                             const struct sample_block *block)
{
    return backend_bytes(rt->spec.backend, edge->sample_elems * block->num_samples);
}

/* --- construction ----------------------------------------------------------------------------- */

/* List the micro-batches in the order in which the receiver posts them: the order of its own list,
 * or with links that of the sender's list (lane-3). Edges inside this rank have no message ops. */
static void list_order(struct runtime *rt, struct inbox *inbox, const struct edge *edge,
                       enum direction d)
{
    const struct workload *w = rt->spec.workload;
    const bool theirs = rt->spec.links;
    const int sender = d == ACT ? edge->from : edge->to,
              receiver = d == ACT ? edge->to : edge->from;
    const int stage = theirs ? sender : receiver;
    const enum op_kind kind =
        d == ACT ? (theirs ? OP_SEND_ACT : OP_RECV_ACT) : (theirs ? OP_SEND_GRAD : OP_RECV_GRAD);
    const bool leaves = kind == OP_SEND_ACT || kind == OP_RECV_GRAD; /* as the edge does */
    const struct rank_ops *ops =
        edge->peer < 0 || !theirs ? rt->ops : &rt->spec.full->ranks[edge->peer];
    for (int64_t i = 0; i < ops->num_ops; i++) {
        const struct op *op = &ops->ops[i];
        if (op->stage != stage || op->kind != kind)
            continue;
        int index = leaves ? w->out_edge[w->out_first[stage] + op->arg]
                           : w->in_edge[w->in_first[stage] + op->arg];
        if (&rt->edges[index] == edge && inbox->num_order < rt->num_microbatches)
            inbox->order[inbox->num_order++] = op->microbatch;
    }
}

static enum status buffer_init(struct runtime *rt, struct buffer *buffer, bool inside,
                               int64_t bytes, struct err *err)
{
    struct backend *be = rt->spec.backend;
    enum status rc = be->alloc(be, bytes, &buffer->data, err);
    buffer->microbatch = -1;
    if (rc != OK)
        return rc;
    rt->bytes += bytes;
    if (!runtime_on_device(rt) || inside) {
        buffer->host = buffer->data;
        return OK;
    }
    rc = be->event_new(be, &buffer->arrived, err);
    THEN(be->event_new(be, &buffer->freed, err));
    if (rc == OK) {
        rc = be->alloc_host(be, bytes, &buffer->host, err);
        rt->bytes += bytes;
    }
    return rc;
}

static enum status inbox_init(struct runtime *rt, struct edge *edge, enum direction d,
                              int num_slots, int64_t bytes, struct err *err)
{
    struct inbox *inbox = &edge->inbox[d];
    const int m = rt->num_microbatches, most = num_slots + rt->window; /* slot-2 */
    enum status rc = OK;
    inbox->num_buffers = most < m ? most : m;
    inbox->buffers = runtime_new_zeroed(rt, inbox->num_buffers, sizeof *inbox->buffers);
    inbox->order = runtime_new_zeroed(rt, m, sizeof *inbox->order);
    inbox->buffer_of = runtime_new_zeroed(rt, m, sizeof *inbox->buffer_of);
    if (rt->arrays.failed)
        return err_nomem(err);
    for (int i = 0; i < m; i++)
        inbox->buffer_of[i] = -1;
    for (int i = 0; rc == OK && i < inbox->num_buffers; i++)
        rc = buffer_init(rt, &inbox->buffers[i], edge->peer < 0, bytes, err);
    list_order(rt, inbox, edge, d);
    return rc;
}

static enum status outbox_init(struct runtime *rt, struct edge *edge, enum direction d,
                               int num_slots, int64_t bytes, struct err *err)
{
    struct backend *be = rt->spec.backend;
    enum status rc = OK;
    edge->out[d] = runtime_new_zeroed(rt, num_slots, sizeof *edge->out[d]);
    if (!edge->out[d])
        return err_nomem(err);
    for (int s = 0; rc == OK && s < num_slots; s++) {
        edge->out[d][s].peer = edge->peer;
        if (runtime_on_device(rt) && edge->peer >= 0) {
            rc = be->alloc_host(be, bytes, &edge->out[d][s].host, err);
            rt->bytes += bytes;
        }
    }
    return rc;
}

static enum status edge_init(struct runtime *rt, int index, struct err *err)
{
    const struct workload *w = rt->spec.workload;
    const struct stage_edge *from = &w->edges[index];
    const int64_t size = rt->spec.plan->microbatches.size;
    struct edge *edge = &rt->edges[index];
    int from_rank = rt->spec.full->rank_of_stage[from->from];
    int to_rank = rt->spec.full->rank_of_stage[from->to];
    int me = rt->spec.rank;
    int64_t elems, bytes;
    enum status rc = OK;
    edge->from = from->from;
    edge->to = from->to;
    edge->grad = from->grad;
    edge->peer = from_rank == to_rank ? -1 : from_rank == me ? to_rank : from_rank;
    if (index < w->num_stages - 1)
        edge->sample_elems =
            stage_input_elems(rt->spec.model, rt->spec.plan->first_item[index + 1]);
    else
        edge->sample_elems = from->bytes[MB_FULL] / size / rt->spec.model->elem_bytes;
    if (!mul_ok(edge->sample_elems, size, &elems) ||
        !mul_ok(elems, rt->spec.backend->elem_bytes, &bytes))
        return err_set(err, ERR_INPUT, "a message of %lld elements a sample is too large",
                       (long long)edge->sample_elems);
    for (int d = 0; rc == OK && d < DIRECTIONS; d++) {
        int sender = d == ACT ? from->from : from->to, receiver = d == ACT ? from->to : from->from;
        const struct stage_state *out = &rt->stages[sender], *in = &rt->stages[receiver];
        if (d == GRAD && !edge->grad)
            continue;
        if (rt->spec.links && edge->peer >= 0)
            edge->link[d] = rt->spec.links->edges[index * DIRECTIONS + d];
        if (out->stage)
            rc = outbox_init(rt, edge, d, out->num_slots, bytes, err);
        if (rc == OK && in->stage)
            rc = inbox_init(rt, edge, d, in->num_slots, bytes, err);
    }
    return rc;
}

enum status runtime_edges_init(struct runtime *rt, struct err *err)
{
    struct backend *be = rt->spec.backend;
    enum status rc = OK;
    if (runtime_on_device(rt)) {
        rc = be->lane_new(be, &rt->lane_in, err);
        THEN(be->lane_new(be, &rt->lane_out, err));
    }
    for (int e = 0; rc == OK && e < rt->spec.workload->num_edges; e++)
        rc = edge_init(rt, e, err);
    return rc;
}

static void buffer_clear(const struct runtime *rt, struct buffer *buffer)
{
    struct backend *be = rt->spec.backend;
    if (buffer->host != buffer->data)
        be->free_host(be, buffer->host);
    be->free(be, buffer->data);
    if (runtime_on_device(rt)) {
        be->event_free(be, buffer->arrived);
        be->event_free(be, buffer->freed);
    }
}

void runtime_edges_clear(struct runtime *rt)
{
    struct backend *be = rt->spec.backend;
    for (int e = 0; rt->edges && e < rt->spec.workload->num_edges; e++)
        for (int d = 0; d < DIRECTIONS; d++) {
            struct edge *edge = &rt->edges[e];
            struct inbox *inbox = &edge->inbox[d];
            const struct stage_state *from = &rt->stages[d == ACT ? edge->from : edge->to];
            for (int i = 0; inbox->buffers && i < inbox->num_buffers; i++)
                buffer_clear(rt, &inbox->buffers[i]);
            for (int s = 0; edge->out[d] && s < from->num_slots; s++)
                be->free_host(be, edge->out[d][s].host);
        }
    if (runtime_on_device(rt)) {
        be->lane_free(be, rt->lane_in);
        be->lane_free(be, rt->lane_out);
    }
}

/* --- waiting ---------------------------------------------------------------------------------- */

enum status runtime_progress(struct runtime *rt, struct err *err)
{
    struct backend *be = rt->spec.backend;
    enum status rc = rt->spec.nccl ? nccl_check(rt->spec.nccl, err) : OK;
    comm_progress(rt->spec.pipeline);
    while (rc == OK && rt->first_waits && be->event_done(be, rt->first_waits->left)) {
        struct outgoing *out = rt->first_waits;
        rt->first_waits = out->next;
        out->waits = false;
        rc = comm_isend(rt->spec.pipeline, out->host, out->bytes, out->peer, out->tag,
                        &out->request, err);
    }
    return rc;
}

/* A device that has failed reports every event as done. The failure is checked here, because other
 * ranks would wait for this one's messages. */
static enum status await_place(struct runtime *rt, struct backend_event *event, struct err *err)
{
    struct backend *be = rt->spec.backend;
    enum status rc = OK;
    while (rc == OK && !be->event_done(be, event))
        rc = runtime_progress(rt, err);
    return rc == OK ? be->failure(be, err) : rc;
}

enum status runtime_await(struct runtime *rt, struct backend_event *event, struct err *err)
{
    enum status rc = event ? await_place(rt, event, err) : OK;
    while (rc == OK && rt->first_waits) /* a collective that follows would hold the sends back */
        rc = runtime_progress(rt, err);
    return rc;
}

enum status runtime_settle(struct runtime *rt, struct err *err)
{
    struct backend *be = rt->spec.backend;
    enum status rc = OK;
    if (runtime_on_device(rt)) {
        be->event_record(be, rt->anchor);
        rc = runtime_await(rt, rt->anchor, err);
    }
    THEN(be->sync(be, err));
    return rc == OK && rt->spec.nccl ? nccl_check(rt->spec.nccl, err) : rc;
}

/* Wait for a request of MPI; other messages continue meanwhile. */
static enum status wait_request(struct runtime *rt, struct comm_request *request, struct err *err)
{
    enum status rc = OK;
    bool done = false;
    if (rt->carriage == CARRY_HOST)
        return comm_wait(request, err);
    while (rc == OK && !done) {
        rc = comm_test(request, &done, err);
        if (rc == OK && !done)
            rc = runtime_progress(rt, err);
        if (rc == OK && !done) /* the peer may wait for a device of this rank that has failed */
            rc = rt->spec.backend->failure(rt->spec.backend, err);
    }
    return rc;
}

/* Wait until the host memory of a message has been sent. */
static enum status depart(struct runtime *rt, struct outgoing *out, struct err *err)
{
    enum status rc = OK;
    while (rc == OK && out->waits)
        rc = runtime_progress(rt, err);
    return rc == OK ? wait_request(rt, &out->request, err) : rc;
}

/* Make work that is issued next wait for the message out of this slot. */
static enum status clear_slot(struct runtime *rt, struct outgoing *sends, int slot, struct err *err)
{
    struct backend *be = rt->spec.backend;
    if (!sends)
        return OK;
    if (rt->carriage == CARRY_HOST)
        return comm_wait(&sends[slot].request, err);
    if (sends[slot].left)
        be->lane_wait(be, NULL, sends[slot].left);
    return OK;
}

enum status runtime_wait_slot(struct runtime *rt, struct stage_state *s, int slot, struct err *err)
{
    enum status rc = OK;
    for (int e = 0; rc == OK && e < s->num_out; e++)
        rc = clear_slot(rt, rt->edges[s->out[e]].out[ACT], slot, err);
    for (int e = 0; rc == OK && e < s->num_in; e++)
        rc = clear_slot(rt, rt->edges[s->in[e]].out[GRAD], slot, err);
    return rc;
}

enum status runtime_finish_sends(struct runtime *rt, struct err *err)
{
    enum status rc = OK;
    for (int i = 0; rc == OK && i < rt->spec.workload->num_edges * DIRECTIONS; i++) {
        struct edge *edge = &rt->edges[i / DIRECTIONS];
        const int d = i % DIRECTIONS;
        const int num_slots = rt->stages[d == ACT ? edge->from : edge->to].num_slots;
        for (int slot = 0; rc == OK && edge->out[d] && slot < num_slots; slot++) {
            rc = clear_slot(rt, edge->out[d], slot, err);
            THEN(depart(rt, &edge->out[d][slot], err));
            edge->out[d][slot].left = NULL;
        }
    }
    return rc;
}

/* --- receiving -------------------------------------------------------------------------------- */

static enum status post(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                        struct buffer *buffer, int64_t bytes, struct err *err)
{
    struct backend *be = rt->spec.backend;
    enum status rc = OK;
    if (rt->carriage == CARRY_LINKS) {
        struct backend_lane *lane = nccl_group_lane(edge->link[d]);
        be->lane_wait(be, lane, buffer->freed);
        rc = nccl_recv(edge->link[d], buffer->data, bytes, err);
        be->lane_record(be, lane, buffer->arrived);
        return rc;
    }
    if (rt->carriage == CARRY_STAGED) /* the copy that still reads this host memory */
        rc = await_place(rt, buffer->arrived, err);
    return rc == OK ? comm_irecv(rt->spec.pipeline, buffer->host, bytes, edge->peer,
                                 tag_of(rt, edge, d, mb), &buffer->request, err)
                    : rc;
}

/* Post the next receives of this edge, as far as buffers are free (slot-2). */
static enum status post_receives(struct runtime *rt, struct edge *edge, enum direction d,
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
        rc = post(rt, edge, d, mb, &inbox->buffers[i], message_bytes(rt, edge, &batch->blocks[mb]),
                  err);
    }
    return rc;
}

static bool has_plan_sizes(const struct runtime *rt, const struct batch *batch)
{
    const struct microbatches *m = &rt->spec.plan->microbatches;
    bool same = batch->blocks[m->count - 1].num_samples == m->last_size;
    for (int mb = 0; mb < m->count - 1; mb++)
        same = same && batch->blocks[mb].num_samples == m->size;
    return same;
}

enum status runtime_post_first(struct runtime *rt, const struct batch *batch, bool train,
                               struct err *err)
{
    enum status rc = OK;
    const bool fresh = rt->passes[train] < NEW_PASSES;
    const bool links = rt->spec.links && !fresh && has_plan_sizes(rt, batch); /* lane-4 */
    rt->passes[train] += fresh;
    rt->carriage = !runtime_on_device(rt) ? CARRY_HOST : links ? CARRY_LINKS : CARRY_STAGED;
    for (int e = 0; rc == OK && e < rt->spec.workload->num_edges; e++)
        for (int d = 0; rc == OK && d < (train ? DIRECTIONS : GRAD); d++) {
            rt->edges[e].inbox[d].next = 0;
            if (boundary_begins(rt) && rt->edges[e].to <= rt->first_stage)
                continue; /* no message comes there */
            if (rt->edges[e].peer >= 0 && rt->edges[e].inbox[d].num_order > 0)
                rc = post_receives(rt, &rt->edges[e], d, batch, err);
        }
    return rc;
}

static enum status receive(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                           const struct batch *batch, struct err *err)
{
    struct inbox *inbox = &edge->inbox[d];
    struct backend *be = rt->spec.backend;
    enum status rc = post_receives(rt, edge, d, batch, err);
    if (rc != OK)
        return rc;
    if (inbox->buffer_of[mb] < 0) /* a bug: slot-2 excludes it */
        return err_set(err, ERR_SYSTEM, "no buffer for micro-batch %d from stage %d", mb,
                       d == ACT ? edge->from : edge->to);
    struct buffer *buffer = &inbox->buffers[inbox->buffer_of[mb]];
    if (rt->carriage != CARRY_LINKS)
        rc = wait_request(rt, &buffer->request, err);
    if (rc != OK || rt->carriage == CARRY_HOST)
        return rc;
    if (rt->carriage == CARRY_STAGED) {
        be->lane_wait(be, rt->lane_in, buffer->freed);
        be->lane_copy_in(be, rt->lane_in, buffer->data, buffer->host,
                         message_bytes(rt, edge, &batch->blocks[mb]));
        be->lane_record(be, rt->lane_in, buffer->arrived);
    }
    be->lane_wait(be, NULL, buffer->arrived);
    return OK;
}

enum status runtime_release(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                            const struct batch *batch, struct err *err)
{
    struct inbox *inbox = &edge->inbox[d];
    struct backend *be = rt->spec.backend;
    int i = inbox->buffer_of ? inbox->buffer_of[mb] : -1;
    if (i < 0)
        return OK;
    inbox->buffers[i].microbatch = -1;
    inbox->buffer_of[mb] = -1;
    if (edge->peer < 0)
        return OK;
    if (rt->carriage != CARRY_HOST)
        be->event_record(be, inbox->buffers[i].freed);
    return post_receives(rt, edge, d, batch, err);
}

enum status runtime_hand_over(struct runtime *rt, struct edge *edge, enum direction d, int mb,
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

void *runtime_received(const struct edge *edge, enum direction d, int mb)
{
    const struct inbox *inbox = &edge->inbox[d];
    int i = inbox->buffer_of ? inbox->buffer_of[mb] : -1;
    return i < 0 ? NULL : inbox->buffers[i].data;
}

/* --- sending ---------------------------------------------------------------------------------- */

/* The message leaves on a lane of its own, after everything that the device was given so far. The
 * op's mark says when it has left. */
static enum status send_from_device(struct runtime *rt, const struct edge *edge, enum direction d,
                                    struct outgoing *out, const void *data, int64_t bytes, int tag,
                                    struct err *err)
{
    struct backend *be = rt->spec.backend;
    const bool staged = rt->carriage == CARRY_STAGED;
    struct backend_lane *lane = staged ? rt->lane_out : nccl_group_lane(edge->link[d]);
    enum status rc = staged ? depart(rt, out, err) : OK; /* the last message's host memory */
    if (rc != OK)
        return rc;
    be->lane_wait(be, lane, rt->mark->from);
    if (staged)
        be->lane_copy_out(be, lane, out->host, data, bytes);
    else
        rc = nccl_send(edge->link[d], data, bytes, err);
    be->lane_record(be, lane, rt->mark->to);
    out->left = rt->mark->to;
    if (staged) {
        out->bytes = bytes;
        out->tag = tag;
        out->waits = true;
        out->next = NULL;
        *(rt->first_waits ? &rt->last_waits->next : &rt->first_waits) = out;
        rt->last_waits = out;
    }
    return rc;
}

static enum status send_message(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                                int slot, const void *data, const struct batch *batch,
                                struct err *err)
{
    struct outgoing *out = &edge->out[d][slot];
    const int64_t bytes = message_bytes(rt, edge, &batch->blocks[mb]);
    const int tag = tag_of(rt, edge, d, mb);
    if (rt->carriage != CARRY_HOST)
        return send_from_device(rt, edge, d, out, data, bytes, tag, err);
    return comm_isend(rt->spec.pipeline, data, bytes, edge->peer, tag, &out->request, err);
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
            s->grad_in_ptr[at * (size_t)(s->num_in + 1) + (size_t)runtime_in_place(op->stage, arg)],
            batch, err);
    }
}
