/* exec/runtime.c
 *
 * R1  A stage has num_slots slots; a micro-batch takes one at its F (Z) and gives it back after its
 *     B (W), or at once where nothing is kept.
 * R2  Before a forward writes into a slot, all messages that read from that slot have left.
 * R3  A message buffer of an edge is posted for the next micro-batch of the list as soon as it is
 *     free; it is free when the slot of the micro-batch that it was for is.
 * R4  There are num_slots + window buffers an edge and direction; schedule_check() has proved that
 *     no rank waits for ever with `window` messages an edge in flight.
 * R5  Micro-batches without samples (end of an epoch) are skipped alike on all ranks: no compute,
 *     no message. */
#include "exec/runtime.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/units.h"

enum { MAX_TAG = 1 << 30, MIN_WINDOW = 2, LOSS_WORDS = 3 };

enum direction { ACT, GRAD, DIRECTIONS };

/* One receive buffer: backend memory, and host memory where the backend's is not. */
struct buffer {
    float *data, *host;
    struct comm_request request;
    int microbatch; /* -1: free */
};

/* What one edge brings to this rank in one direction. */
struct inbox {
    struct buffer *buffers;
    int num_buffers;
    int *order; /* micro-batches in the order of the list's RECVs */
    int num_order, next;
    int *buffer_of; /* by micro-batch; -1 */
};

/* One edge as this rank sees it. */
struct edge {
    int from, to, peer; /* stages; the other rank, -1: both ends are here */
    bool grad;
    int64_t sample_elems;
    struct inbox inbox[DIRECTIONS];
    struct comm_request *sends[DIRECTIONS]; /* by slot of the sending stage */
    float **send_host[DIRECTIONS];          /* likewise, where the backend's memory is not host */
};

struct stage_state {
    struct stage *stage;
    int num_slots, num_in, num_out;
    int *in, *out;        /* edges that enter and leave, borrowed from the workload */
    bool *busy;           /* by slot */
    int *slot_of;         /* by micro-batch; the last one it had */
    float **in_ptr;       /* scratch, num_in + 1 */
    float **grad_out_ptr; /* scratch, num_out + 1 */
    float **out_ptr;      /* [slot][num_out + 1] */
    float **grad_in_ptr;  /* [slot][num_in + 1] */
    bool *has_r, *has_i;  /* by micro-batch */
    int next_eval_slot;
    float *bucket; /* packed gradients of one bucket */
    int64_t bucket_elems;
};

struct runtime {
    struct runtime_spec spec;
    const struct rank_ops *ops;
    int num_microbatches, window;
    struct edge *edges;
    struct stage_state *stages;
    struct op_time *times;
    double *sums;       /* [replicas * microbatches][LOSS_WORDS] */
    double *item_sumsq; /* num_items */
    bool have_norm;
    bool gradients_final; /* tied tables exchanged in this step */
    double grad_norm;
    float grad_mul;
    int64_t bytes;
};

/* --- construction ----------------------------------------------------------------------------- */

int runtime_num_slots(const struct schedule *full, int stage)
{
    const struct rank_ops *ops = &full->ranks[full->rank_of_stage[stage]];
    int live = 0, peak = 1;
    for (int64_t i = 0; i < ops->num_ops; i++) {
        const struct op *op = &ops->ops[i];
        if (op->stage != stage)
            continue;
        if (op->kind == OP_F)
            live++;
        if (op->kind == OP_B || op->kind == OP_W)
            live--;
        peak = live > peak ? live : peak;
    }
    return peak < full->num_microbatches ? peak + 1 : peak;
}

enum status runtime_groups(const struct comm *comm, const struct plan *plan, int *replica,
                           int *rank, struct comm_group **pipeline, struct comm_group **replicas,
                           struct err *err)
{
    int k = plan->num_ranks, place = -1;
    enum status rc;
    *pipeline = *replicas = NULL;
    for (int i = 0; i < k * plan->num_replicas; i++)
        if (plan->device[i] == comm->rank)
            place = i;
    *replica = place < 0 ? -1 : place / k;
    *rank = place < 0 ? -1 : place % k;
    rc = comm_split(comm, *replica, *rank, pipeline, err);
    if (rc == OK)
        rc = comm_split(comm, *rank, *replica, replicas, err);
    return rc;
}

static void *new_zeroed(struct runtime *rt, int64_t count, size_t size)
{
    int64_t bytes;
    if (!mul_ok(count, (int64_t)size, &bytes))
        return NULL;
    rt->bytes += bytes;
    return calloc(1, bytes ? (size_t)bytes : 1);
}

static enum status inbox_init(struct runtime *rt, struct inbox *inbox, const struct edge *edge,
                              int stage, bool grad, int num_slots, struct err *err)
{
    struct backend *be = rt->spec.backend;
    int64_t elems, bytes;
    int m = rt->num_microbatches;
    if (!mul_ok(edge->sample_elems, rt->spec.plan->microbatches.size, &elems) ||
        !mul_ok(elems, (int64_t)sizeof(float), &bytes))
        return err_set(err, ERR_INPUT, "a message of %lld elements a sample is too large",
                       (long long)edge->sample_elems);
    inbox->num_buffers = num_slots + rt->window < m ? num_slots + rt->window : m;
    inbox->buffers = new_zeroed(rt, inbox->num_buffers, sizeof *inbox->buffers);
    inbox->order = new_zeroed(rt, m, sizeof *inbox->order);
    inbox->buffer_of = new_zeroed(rt, m, sizeof *inbox->buffer_of);
    if (!inbox->buffers || !inbox->order || !inbox->buffer_of)
        return err_nomem(err);
    for (int i = 0; i < m; i++)
        inbox->buffer_of[i] = -1;
    for (int i = 0; i < inbox->num_buffers; i++) {
        struct buffer *buffer = &inbox->buffers[i];
        void *data;
        enum status rc = be->alloc(be, bytes, &data, err);
        if (rc != OK)
            return rc;
        buffer->data = data;
        buffer->microbatch = -1;
        rt->bytes += bytes;
        if (be->host_memory)
            buffer->host = buffer->data;
        else if (!(buffer->host = new_zeroed(rt, bytes, 1)))
            return err_nomem(err);
    }
    /* Edges inside this rank hand over without an op; their order is not needed. */
    for (int64_t i = 0; i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        const struct workload *w = rt->spec.workload;
        if (op->stage != stage || op->kind != (grad ? OP_RECV_GRAD : OP_RECV_ACT))
            continue;
        int index = grad ? w->out_edge[w->out_first[stage] + op->arg]
                         : w->in_edge[w->in_first[stage] + op->arg];
        if (&rt->edges[index] == edge && inbox->num_order < m)
            inbox->order[inbox->num_order++] = op->microbatch;
    }
    return OK;
}

static enum status edge_init(struct runtime *rt, int index, struct err *err)
{
    const struct workload *w = rt->spec.workload;
    const struct stage_edge *from = &w->edges[index];
    struct edge *edge = &rt->edges[index];
    int from_rank = rt->spec.full->rank_of_stage[from->from];
    int to_rank = rt->spec.full->rank_of_stage[from->to];
    int me = rt->spec.rank;
    enum status rc = OK;
    edge->from = from->from;
    edge->to = from->to;
    edge->grad = from->grad;
    edge->peer = from_rank == to_rank ? -1 : from_rank == me ? to_rank : from_rank;
    if (index < w->num_stages - 1)
        edge->sample_elems =
            stage_input_elems(rt->spec.model, rt->spec.plan->first_item[index + 1]);
    else
        edge->sample_elems =
            from->bytes[MB_FULL] / rt->spec.plan->microbatches.size / rt->spec.model->elem_bytes;
    for (int d = 0; rc == OK && d < DIRECTIONS; d++) {
        int sender = d == ACT ? from->from : from->to, receiver = d == ACT ? from->to : from->from;
        struct stage_state *out = &rt->stages[sender], *in = &rt->stages[receiver];
        if (d == GRAD && !edge->grad)
            continue;
        if (out->stage) {
            edge->sends[d] = new_zeroed(rt, out->num_slots, sizeof *edge->sends[d]);
            edge->send_host[d] = new_zeroed(rt, out->num_slots, sizeof *edge->send_host[d]);
            if (!edge->sends[d] || !edge->send_host[d])
                return err_nomem(err);
            for (int s = 0; !rt->spec.backend->host_memory && s < out->num_slots; s++) {
                edge->send_host[d][s] = new_zeroed(
                    rt, edge->sample_elems * rt->spec.plan->microbatches.size, sizeof(float));
                if (!edge->send_host[d][s])
                    return err_nomem(err);
            }
        }
        if (in->stage)
            rc = inbox_init(rt, &edge->inbox[d], edge, receiver, d == GRAD, in->num_slots, err);
    }
    return rc;
}

static enum status stage_init(struct runtime *rt, int index, struct err *err)
{
    const struct workload *w = rt->spec.workload;
    struct stage_state *s = &rt->stages[index];
    int m = rt->num_microbatches;
    s->stage = rt->spec.stages[index];
    if (!s->stage)
        return OK;
    s->num_slots = runtime_num_slots(rt->spec.full, index);
    s->in = w->in_edge + w->in_first[index];
    s->num_in = w->in_first[index + 1] - w->in_first[index];
    s->out = w->out_edge + w->out_first[index];
    s->num_out = w->out_first[index + 1] - w->out_first[index];
    s->busy = new_zeroed(rt, s->num_slots, sizeof *s->busy);
    s->slot_of = new_zeroed(rt, m, sizeof *s->slot_of);
    s->in_ptr = new_zeroed(rt, s->num_in + 1, sizeof *s->in_ptr);
    s->grad_out_ptr = new_zeroed(rt, s->num_out + 1, sizeof *s->grad_out_ptr);
    s->out_ptr = new_zeroed(rt, (int64_t)s->num_slots * (s->num_out + 1), sizeof *s->out_ptr);
    s->grad_in_ptr =
        new_zeroed(rt, (int64_t)s->num_slots * (s->num_in + 1), sizeof *s->grad_in_ptr);
    s->has_r = new_zeroed(rt, m, sizeof *s->has_r);
    s->has_i = new_zeroed(rt, m, sizeof *s->has_i);
    if (!s->busy || !s->slot_of || !s->in_ptr || !s->grad_out_ptr || !s->out_ptr ||
        !s->grad_in_ptr || !s->has_r || !s->has_i)
        return err_nomem(err);
    for (int64_t i = 0; i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        if (op->stage == index && op->kind == OP_R)
            s->has_r[op->microbatch] = true;
        if (op->stage == index && op->kind == OP_I)
            s->has_i[op->microbatch] = true;
    }
    return OK;
}

enum status runtime_new(const struct runtime_spec *spec, struct runtime **runtime, struct err *err)
{
    enum status rc;
    struct runtime *rt = calloc(1, sizeof *rt);
    const struct workload *w = spec->workload;
    int64_t tags;
    if (!rt)
        return err_nomem(err);
    rt->spec = *spec;
    rt->ops = &spec->full->ranks[spec->rank];
    rt->num_microbatches = spec->full->num_microbatches;
    if (!mul_ok((int64_t)w->num_edges * DIRECTIONS + 2, rt->num_microbatches, &tags) ||
        tags > MAX_TAG) {
        rc = err_set(err, ERR_INPUT, "%d edges times %d micro-batches are too many to number",
                     w->num_edges, rt->num_microbatches);
        goto out;
    }
    rc = ERR_INFEASIBLE;
    for (rt->window = MIN_WINDOW; rc == ERR_INFEASIBLE; rt->window *= 2) {
        bool last = rt->window >= rt->num_microbatches;
        rc = schedule_check(spec->full, rt->window, last ? err : NULL);
        if (rc != ERR_INFEASIBLE || last)
            break;
    }
    if (rc != OK)
        goto out;
    rt->stages = new_zeroed(rt, w->num_stages, sizeof *rt->stages);
    rt->edges = new_zeroed(rt, w->num_edges, sizeof *rt->edges);
    rt->times = new_zeroed(rt, rt->ops->num_ops, sizeof *rt->times);
    rt->sums = new_zeroed(rt, (int64_t)spec->plan->num_replicas * rt->num_microbatches * LOSS_WORDS,
                          sizeof *rt->sums);
    rt->item_sumsq = new_zeroed(rt, spec->model->num_items, sizeof *rt->item_sumsq);
    if (!rt->stages || !rt->edges || !rt->times || !rt->sums || !rt->item_sumsq) {
        rc = err_nomem(err);
        goto out;
    }
    for (int s = 0; rc == OK && s < w->num_stages; s++)
        rc = stage_init(rt, s, err);
    for (int e = 0; rc == OK && e < w->num_edges; e++)
        rc = edge_init(rt, e, err);
    if (rc == OK) {
        *runtime = rt;
        rt = NULL;
    }
out:
    runtime_free(rt);
    return rc;
}

void runtime_free(struct runtime *rt)
{
    if (!rt)
        return;
    struct backend *be = rt->spec.backend;
    const struct workload *w = rt->spec.workload;
    for (int e = 0; rt->edges && e < w->num_edges; e++)
        for (int d = 0; d < DIRECTIONS; d++) {
            struct edge *edge = &rt->edges[e];
            struct inbox *inbox = &edge->inbox[d];
            const struct stage_state *from = &rt->stages[d == ACT ? edge->from : edge->to];
            for (int i = 0; inbox->buffers && i < inbox->num_buffers; i++) {
                be->free(be, inbox->buffers[i].data);
                if (!be->host_memory)
                    free(inbox->buffers[i].host);
            }
            for (int s = 0; edge->send_host[d] && s < from->num_slots; s++)
                free(edge->send_host[d][s]);
            free(inbox->buffers);
            free(inbox->order);
            free(inbox->buffer_of);
            free(edge->sends[d]);
            free(edge->send_host[d]);
        }
    for (int i = 0; rt->stages && i < w->num_stages; i++) {
        struct stage_state *s = &rt->stages[i];
        free(s->busy);
        free(s->slot_of);
        free(s->in_ptr);
        free(s->grad_out_ptr);
        free(s->out_ptr);
        free(s->grad_in_ptr);
        free(s->has_r);
        free(s->has_i);
        free(s->bucket);
    }
    free(rt->edges);
    free(rt->stages);
    free(rt->times);
    free(rt->sums);
    free(rt->item_sumsq);
    free(rt);
}

/* --- messages --------------------------------------------------------------------------------- */

static int tag_of(const struct runtime *rt, const struct edge *edge, enum direction d, int mb)
{
    return (int)((edge - rt->edges) * DIRECTIONS + d) * rt->num_microbatches + mb;
}

static int64_t message_bytes(const struct edge *edge, const struct sample_block *block)
{
    return edge->sample_elems * block->num_samples * (int64_t)sizeof(float);
}

/* Post what the list will receive next on this edge, as far as buffers are free (R3). */
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
        rc = comm_irecv(rt->spec.pipeline, inbox->buffers[i].host,
                        message_bytes(edge, &batch->blocks[mb]), edge->peer,
                        tag_of(rt, edge, d, mb), &inbox->buffers[i].request, err);
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
    if (inbox->buffer_of[mb] < 0) /* R4 proves this away */
        return err_set(err, ERR_INFEASIBLE, "no buffer for micro-batch %d from stage %d", mb,
                       d == ACT ? edge->from : edge->to);
    struct buffer *buffer = &inbox->buffers[inbox->buffer_of[mb]];
    rc = comm_wait(&buffer->request, err);
    if (rc == OK && !be->host_memory)
        be->copy_in(be, buffer->data, buffer->host, message_bytes(edge, &batch->blocks[mb]));
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
    return edge->peer < 0 ? OK : post_receives(rt, edge, d, batch, err);
}

static enum status send_message(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                                int slot, const float *data, const struct batch *batch,
                                struct err *err)
{
    struct backend *be = rt->spec.backend;
    int64_t bytes = message_bytes(edge, &batch->blocks[mb]);
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
                             const float *data, const struct batch *batch, struct err *err)
{
    struct inbox *inbox = &edge->inbox[d];
    struct backend *be = rt->spec.backend;
    int i = 0;
    while (i < inbox->num_buffers && inbox->buffers[i].microbatch >= 0)
        i++;
    if (i == inbox->num_buffers)
        return err_set(err, ERR_INFEASIBLE, "no buffer for micro-batch %d between stages %d and %d",
                       mb, edge->from, edge->to);
    inbox->buffers[i].microbatch = mb;
    inbox->buffer_of[mb] = i;
    be->copy(be, inbox->buffers[i].data, data, message_bytes(edge, &batch->blocks[mb]));
    return OK;
}

static float *received(const struct edge *edge, enum direction d, int mb)
{
    const struct inbox *inbox = &edge->inbox[d];
    int i = inbox->buffer_of ? inbox->buffer_of[mb] : -1;
    return i < 0 ? NULL : inbox->buffers[i].data;
}

/* R2: all messages that read from a slot have left. */
static enum status wait_slot(struct runtime *rt, struct stage_state *s, int slot, struct err *err)
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

static enum status run_forward(struct runtime *rt, const struct op *op, const struct batch *batch,
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
    } else if (!holds) {
        /* Nothing is kept: take slots in turn, so that sends overlap the next forward. */
        slot = s->next_eval_slot;
        for (int i = 0; i < s->num_slots && s->busy[slot]; i++)
            slot = (slot + 1) % s->num_slots;
        s->next_eval_slot = (slot + 1) % s->num_slots;
    } else {
        slot = 0;
        while (slot < s->num_slots && s->busy[slot])
            slot++;
        assert(slot < s->num_slots);
        s->busy[slot] = true;
    }
    s->slot_of[mb] = slot;
    rc = wait_slot(rt, s, slot, err);
    if (rc != OK)
        return rc;
    memset(s->in_ptr, 0, (size_t)(s->num_in + 1) * sizeof *s->in_ptr);
    for (int e = 0; e < s->num_in; e++)
        s->in_ptr[in_place(op->stage, e)] = received(&rt->edges[s->in[e]], ACT, mb);
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

static enum status run_backward(struct runtime *rt, const struct op *op, const struct batch *batch,
                                int64_t step, struct err *err)
{
    struct stage_state *s = &rt->stages[op->stage];
    int mb = op->microbatch, slot = s->slot_of[mb];
    enum backward what = op->kind == OP_B   ? BACKWARD_BOTH
                         : op->kind == OP_I ? BACKWARD_INPUT
                                            : BACKWARD_WEIGHT;
    float **grad_in = s->grad_in_ptr + (size_t)slot * (size_t)(s->num_in + 1);
    float scale = batch->num_targets > 0 ? (float)(1.0 / (double)batch->num_targets) : 0.0f;
    enum status rc;
    memset(s->grad_out_ptr, 0, (size_t)(s->num_out + 1) * sizeof *s->grad_out_ptr);
    for (int e = 0; e < s->num_out; e++)
        s->grad_out_ptr[e] = received(&rt->edges[s->out[e]], GRAD, mb);
    rc = stage_backward(s->stage, slot, &batch->blocks[mb], (uint64_t)step, what, scale,
                        s->grad_out_ptr, grad_in, err);
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
    s->busy[slot] = false;
    for (int e = 0; rc == OK && e < s->num_in; e++)
        rc = release(rt, &rt->edges[s->in[e]], ACT, mb, batch, err);
    for (int e = 0; rc == OK && e < s->num_out; e++)
        rc = release(rt, &rt->edges[s->out[e]], GRAD, mb, batch, err);
    return rc;
}

static enum status run_message(struct runtime *rt, const struct op *op, const struct batch *batch,
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

/* --- gradients -------------------------------------------------------------------------------- */

/* The gradients of a stage, last tensor first (the order in which a backward completes them), cut
 * into buckets by bytes; the last bucket takes the rest. Summed by index, so the buckets do not
 * show in the bits. */
static enum status run_allreduce(struct runtime *rt, const struct op *op, struct err *err)
{
    const struct workload *w = rt->spec.workload;
    struct stage_state *s = &rt->stages[op->stage];
    struct backend *be = rt->spec.backend;
    struct param *params = stage_params(s->stage);
    int first = w->first_bucket[op->stage], last = w->first_bucket[op->stage + 1] - 1;
    int64_t from = 0, to, total = 0, at = 0;
    enum status rc = OK;
    for (int i = 0; i < stage_num_params(s->stage); i++)
        total += params[i].grad ? params[i].num_elems : 0;
    for (int b = first; b < first + op->arg; b++)
        from += w->buckets[b].bytes / (int64_t)sizeof(float);
    to = from + w->buckets[first + op->arg].bytes / (int64_t)sizeof(float);
    if (to > total || first + op->arg == last)
        to = total;
    if (from >= to)
        return OK;
    if (s->bucket_elems < to - from) {
        free(s->bucket);
        s->bucket_elems = 0;
        s->bucket = malloc((size_t)(to - from) * sizeof *s->bucket);
        if (!s->bucket)
            return err_nomem(err);
        s->bucket_elems = to - from;
    }
    for (int out = 0; rc == OK && out < 2; out++) {
        at = 0;
        for (int i = stage_num_params(s->stage) - 1; i >= 0; i--) {
            if (!params[i].grad)
                continue;
            int64_t lo = from > at ? from : at, end = at + params[i].num_elems;
            int64_t hi = to < end ? to : end;
            if (lo < hi && !out)
                be->copy_out(be, s->bucket + (lo - from), params[i].grad + (lo - at),
                             (hi - lo) * (int64_t)sizeof(float));
            else if (lo < hi)
                be->copy_in(be, params[i].grad + (lo - at), s->bucket + (lo - from),
                            (hi - lo) * (int64_t)sizeof(float));
            at = end;
        }
        if (!out)
            rc = be->sync(be, err);
        if (rc == OK && !out)
            rc = comm_allreduce_f32(rt->spec.replicas, s->bucket, to - from, err);
    }
    return rc;
}

/* Both ends of a tied token table learn each other's accumulator (stage.h), once a step, when the
 * replicas have been summed. */
static enum status finish_gradients(struct runtime *rt, struct err *err)
{
    struct tied_table table = {0}, head = {0}, tied;
    int table_stage = -1, head_stage = -1, last = rt->spec.workload->num_stages - 1;
    int tag = rt->spec.workload->num_edges * DIRECTIONS * rt->num_microbatches;
    struct backend *be = rt->spec.backend;
    float *out = NULL, *in = NULL;
    enum status rc = OK;
    if (rt->gradients_final)
        return OK;
    rt->gradients_final = true;
    for (int i = 0; i <= last; i++)
        if (rt->stages[i].stage && stage_tied(rt->stages[i].stage, &tied)) {
            if (tied.is_table) {
                table = tied;
                table_stage = i;
            }
            if (tied.is_head) {
                head = tied;
                head_stage = i;
            }
        }
    if ((table_stage < 0 && head_stage < 0) || !(table_stage < 0 ? &head : &table)->table_grad)
        return OK;
    if (table_stage >= 0 && head_stage >= 0) {
        int64_t bytes = table.num_elems * (int64_t)sizeof(float);
        if (table_stage != head_stage) {
            be->copy(be, table.head_grad, head.head_grad, bytes);
            be->copy(be, head.table_grad, table.table_grad, bytes);
            stage_tied_add(rt->stages[head_stage].stage);
        }
        stage_tied_add(rt->stages[table_stage].stage);
        return OK;
    }
    struct tied_table *mine = table_stage >= 0 ? &table : &head;
    int peer = rt->spec.full->rank_of_stage[table_stage >= 0 ? last : 0];
    int64_t bytes = mine->num_elems * (int64_t)sizeof(float);
    struct comm_request send = {0}, recv = {0};
    out = malloc((size_t)bytes);
    in = malloc((size_t)bytes);
    if (!out || !in) {
        rc = err_nomem(err);
        goto out;
    }
    be->copy_out(be, out, mine == &table ? mine->table_grad : mine->head_grad, bytes);
    rc = be->sync(be, err);
    if (rc == OK)
        rc = comm_irecv(rt->spec.pipeline, in, bytes, peer, tag, &recv, err);
    if (rc == OK)
        rc = comm_isend(rt->spec.pipeline, out, bytes, peer, tag, &send, err);
    if (rc == OK)
        rc = comm_wait(&recv, err);
    if (rc == OK)
        rc = comm_wait(&send, err);
    if (rc == OK) {
        be->copy_in(be, mine == &table ? mine->head_grad : mine->table_grad, in, bytes);
        stage_tied_add(rt->stages[mine == &table ? table_stage : head_stage].stage);
        rc = be->sync(be, err);
    }
out:
    free(out);
    free(in);
    return rc;
}

/* Every item's sum of squares comes from one rank of the pipeline; the total is formed in item
 * order, so that no cut shows in its bits. */
static enum status run_norm(struct runtime *rt, struct err *err)
{
    const struct plan *plan = rt->spec.plan;
    int num_items = rt->spec.model->num_items;
    double total = 0, norm;
    enum status rc = finish_gradients(rt, err);
    if (rc != OK || rt->have_norm)
        return rc;
    memset(rt->item_sumsq, 0, (size_t)num_items * sizeof *rt->item_sumsq);
    for (int s = 0; rc == OK && s < plan->num_stages; s++)
        if (rt->stages[s].stage)
            rc = stage_grad_sumsq(rt->stages[s].stage, rt->item_sumsq + plan->first_item[s], err);
    if (rc == OK)
        rc = comm_sum_f64(rt->spec.pipeline, rt->item_sumsq, num_items, err);
    if (rc != OK)
        return rc;
    for (int i = 0; i < num_items; i++) {
        if (!isfinite(rt->item_sumsq[i]))
            return err_set(err, ERR_INFEASIBLE, "the gradient of '%s' is not finite (rank %d)",
                           rt->spec.model->items[i].name, rt->spec.comm->rank);
        total += rt->item_sumsq[i];
    }
    norm = sqrt(total);
    rt->grad_norm = norm;
    rt->have_norm = true;
    rt->grad_mul = 1.0f;
    /* As in torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6), at most 1. */
    double clip = rt->spec.job->train.clip_norm;
    if (clip > 0 && norm + 1e-6 > clip)
        rt->grad_mul = (float)(clip / (norm + 1e-6));
    return OK;
}

/* --- a step ----------------------------------------------------------------------------------- */

/* The loss of all micro-batches of all replicas, everywhere; the sum goes by index. */
static enum status share_losses(struct runtime *rt, const struct comm_group *group,
                                struct loss_sums *sums, struct err *err)
{
    int n = rt->spec.plan->num_replicas * rt->num_microbatches;
    enum status rc = comm_sum_f64(group, rt->sums, n * LOSS_WORDS, err);
    *sums = (struct loss_sums){0};
    for (int i = 0; rc == OK && i < n; i++) {
        const double *one = rt->sums + (size_t)i * LOSS_WORDS;
        sums->loss += one[0];
        sums->count += (int64_t)one[1];
        sums->correct += (int64_t)one[2];
        if (!isfinite(one[0]))
            rc = err_set(err, ERR_INFEASIBLE, "the loss of micro-batch %d of replica %d is %g",
                         i % rt->num_microbatches, i / rt->num_microbatches, one[0]);
    }
    return rc;
}

static bool is_message(enum op_kind kind)
{
    return kind == OP_SEND_ACT || kind == OP_RECV_ACT || kind == OP_SEND_GRAD ||
           kind == OP_RECV_GRAD;
}

static enum status run_op(struct runtime *rt, const struct op *op, const struct batch *batch,
                          int64_t step, double lr, struct err *err)
{
    enum status rc;
    switch ((enum op_kind)op->kind) {
    case OP_F:
    case OP_R:
        return run_forward(rt, op, batch, (uint64_t)step, true, err);
    case OP_Z:
        if (op->microbatch >= 0)
            return run_forward(rt, op, batch, (uint64_t)step, true, err);
        break;
    case OP_B:
    case OP_I:
    case OP_W:
        return run_backward(rt, op, batch, step, err);
    case OP_SEND_ACT:
    case OP_RECV_ACT:
    case OP_SEND_GRAD:
    case OP_RECV_GRAD:
        return run_message(rt, op, batch, err);
    case OP_ALLREDUCE:
        return run_allreduce(rt, op, err);
    case OP_NORM:
        return run_norm(rt, err);
    case OP_UPDATE:
        rc = finish_gradients(rt, err);
        if (rc == OK)
            rc = stage_update(rt->stages[op->stage].stage, (uint64_t)step, lr, rt->grad_mul, err);
        return rc;
    default:
        break;
    }
    return err_set(err, ERR_INFEASIBLE, "this executor has no %s op for the whole batch or cache",
                   op_kind_name((enum op_kind)op->kind));
}

static enum status begin(struct runtime *rt, const struct batch *batch, bool train, struct err *err)
{
    enum status rc = OK;
    size_t n = (size_t)rt->spec.plan->num_replicas * (size_t)rt->num_microbatches;
    memset(rt->sums, 0, n * LOSS_WORDS * sizeof *rt->sums);
    for (int e = 0; rc == OK && e < rt->spec.workload->num_edges; e++)
        for (int d = 0; rc == OK && d < (train ? DIRECTIONS : GRAD); d++) {
            rt->edges[e].inbox[d].next = 0;
            if (rt->edges[e].peer >= 0 && rt->edges[e].inbox[d].num_order > 0)
                rc = post_receives(rt, &rt->edges[e], d, batch, err);
        }
    return rc;
}

static enum status finish_sends(struct runtime *rt, struct err *err)
{
    enum status rc = OK;
    for (int i = 0; rc == OK && i < rt->spec.workload->num_stages; i++)
        for (int slot = 0; rc == OK && rt->stages[i].stage && slot < rt->stages[i].num_slots;
             slot++)
            rc = wait_slot(rt, &rt->stages[i], slot, err);
    return rc;
}

enum status runtime_step(struct runtime *rt, const struct batch *batch, int64_t step, double lr,
                         int64_t vote, struct step_result *result, struct err *err)
{
    const struct comm *comm = rt->spec.comm;
    struct loss_sums sums = {0};
    int64_t span[3], first = 0, last = 0;
    bool losses_known = false;
    enum status rc;
    rt->have_norm = rt->gradients_final = false;
    rt->grad_mul = 1.0f;
    rt->grad_norm = NAN;
    memset(rt->times, 0, (size_t)rt->ops->num_ops * sizeof *rt->times);
    for (int s = 0; s < rt->spec.workload->num_stages; s++)
        if (rt->stages[s].stage)
            stage_zero_grad(rt->stages[s].stage);
    rc = begin(rt, batch, true, err);
    for (int64_t i = 0; rc == OK && i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        struct op_time *time = &rt->times[i];
        bool per_microbatch = op->kind != OP_ALLREDUCE && op->kind != OP_NORM &&
                              op->kind != OP_UPDATE && op->microbatch >= 0;
        if (per_microbatch && batch->blocks[op->microbatch].num_samples == 0) /* R5 */
            continue;
        /* A bad loss must not reach the weights. */
        if (!losses_known && (op->kind == OP_NORM || op->kind == OP_UPDATE)) {
            rc = share_losses(rt, comm->all, &sums, err);
            losses_known = true;
            if (rc != OK)
                break;
        }
        time->start_ns = comm_now_ns(comm);
        rc = run_op(rt, op, batch, step, lr, err);
        if (rc == OK && !is_message(op->kind) && !rt->spec.backend->host_memory)
            rc = rt->spec.backend->sync(rt->spec.backend, err);
        time->end_ns = comm_now_ns(comm);
        if (!first)
            first = time->start_ns;
        last = time->end_ns;
    }
    if (rc == OK && !losses_known)
        rc = share_losses(rt, comm->all, &sums, err);
    if (rc == OK)
        rc = finish_sends(rt, err);
    span[0] = -first;
    span[1] = last;
    span[2] = vote;
    if (rc == OK)
        rc = comm_max_i64(comm->all, span, 3, err);
    if (rc != OK)
        return rc;
    *result = (struct step_result){
        .loss = batch->num_targets > 0 ? sums.loss / (double)batch->num_targets : 0,
        .count = sums.count,
        .correct = sums.correct,
        .grad_norm = rt->grad_norm,
        .start_ns = -span[0],
        .step_ns = span[1] + span[0],
        .vote = span[2]};
    return OK;
}

enum status runtime_eval(struct runtime *rt, const struct batch *batch, struct loss_sums *sums,
                         struct err *err)
{
    enum status rc = begin(rt, batch, false, err);
    for (int64_t i = 0; rc == OK && i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        bool forward = (op->kind == OP_F || op->kind == OP_Z) && op->microbatch >= 0;
        if (!forward && op->kind != OP_SEND_ACT && op->kind != OP_RECV_ACT)
            continue;
        if (batch->blocks[op->microbatch].num_samples == 0)
            continue;
        rc = forward ? run_forward(rt, op, batch, STEP_EVAL, false, err)
                     : run_message(rt, op, batch, err);
    }
    if (rc == OK)
        rc = finish_sends(rt, err);
    if (rc == OK)
        rc = share_losses(rt, rt->spec.comm->all, sums, err);
    return rc;
}

const struct op_time *runtime_times(const struct runtime *rt)
{
    return rt->times;
}

const double *runtime_item_sumsq(const struct runtime *rt)
{
    return rt->have_norm ? rt->item_sumsq : NULL;
}

int64_t runtime_bytes(const struct runtime *rt)
{
    return rt->bytes;
}
