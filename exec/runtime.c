#include "exec/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/runtime_state.h"
#include "partition/units.h"

enum { MAX_TAG = 1 << 30, MIN_WINDOW = 2 };

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

enum status runtime_groups_open(const struct comm *comm, const struct plan *plan,
                                struct runtime_groups *groups, struct err *err)
{
    int k = plan->num_ranks, place = -1;
    struct runtime_groups got = {0};
    enum status rc;
    for (int i = 0; i < k * plan->num_replicas; i++)
        if (plan->device[i] == comm->rank)
            place = i;
    got.replica = place < 0 ? -1 : place / k;
    got.rank = place < 0 ? -1 : place % k;
    rc = comm_split(comm, place < 0 ? -1 : 0, comm->rank, &got.active, err);
    if (rc == OK)
        rc = comm_split(comm, got.replica, got.rank, &got.pipeline, err);
    if (rc == OK)
        rc = comm_split(comm, got.rank, got.replica, &got.replicas, err);
    if (rc == OK)
        *groups = got;
    else
        runtime_groups_clear(&got);
    return rc;
}

void runtime_groups_clear(struct runtime_groups *groups)
{
    comm_group_free(groups->active);
    comm_group_free(groups->pipeline);
    comm_group_free(groups->replicas);
    *groups = (struct runtime_groups){.replica = -1, .rank = -1};
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
        !mul_ok(elems, be->elem_bytes, &bytes))
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
                edge->send_host[d][s] =
                    new_zeroed(rt, edge->sample_elems * rt->spec.plan->microbatches.size,
                               (size_t)rt->spec.backend->elem_bytes);
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
    if (rt->spec.job->train.reduction == REDUCTION_CANONICAL) {
        enum status rc = runtime_tree_init(rt, s, err);
        if (rc != OK)
            return rc;
    }
    for (int64_t i = 0; i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        if (op->stage == index && op->kind == OP_R)
            s->has_r[op->microbatch] = true;
        if (op->stage == index && op->kind == OP_I)
            s->has_i[op->microbatch] = true;
    }
    return OK;
}

/* Room for the prefix's output of a whole step. */
static enum status prefix_init(struct runtime *rt, struct err *err)
{
    const struct plan *plan = rt->spec.plan;
    struct backend *be = rt->spec.backend;
    int64_t elems, bytes;
    int m = rt->num_microbatches;
    if (!rt->spec.prefix)
        return OK;
    if (!mul_ok(stage_input_elems(rt->spec.model, plan->first_item[0]), plan->microbatches.size,
                &elems) ||
        !mul_ok(elems, be->elem_bytes, &bytes))
        return err_set(err, ERR_INPUT, "the frozen prefix's output is too large");
    rt->prefix_out = new_zeroed(rt, m, sizeof *rt->prefix_out);
    rt->prefix_ready = new_zeroed(rt, m, sizeof *rt->prefix_ready);
    if (!rt->prefix_out || !rt->prefix_ready)
        return err_nomem(err);
    for (int i = 0; i < m; i++) {
        void *data;
        enum status rc = be->alloc(be, bytes, &data, err);
        if (rc != OK)
            return rc;
        rt->prefix_out[i] = data;
        rt->bytes += bytes;
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
    if (rc == OK)
        rc = prefix_init(rt, err);
    if (rc == OK)
        rc = runtime_reduce_init(rt, err);
    if (rc == OK)
        rc = runtime_cache_init(rt, err);
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
    runtime_cache_clear(rt);
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
        for (int t = 0; s->tree && t < s->tree_depth; t++)
            be->free(be, s->tree[t]);
        free(s->tree);
    }
    for (int m = 0; rt->prefix_out && m < rt->num_microbatches; m++)
        be->free(be, rt->prefix_out[m]);
    runtime_reduce_clear(rt);
    free(rt->prefix_out);
    free(rt->prefix_ready);
    free(rt->edges);
    free(rt->stages);
    free(rt->times);
    free(rt->sums);
    free(rt->item_sumsq);
    free(rt);
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
        return runtime_forward(rt, op, batch, (uint64_t)step, true, err);
    case OP_Z:
        if (op->microbatch >= 0)
            return runtime_forward(rt, op, batch, (uint64_t)step, true, err);
        rc = OK;
        for (int m = 0; rc == OK && m < rt->num_microbatches; m++)
            if (batch->blocks[m].num_samples > 0)
                rc = runtime_prefix(rt, m, batch, err);
        return rc;
    case OP_C:
        return runtime_prefix(rt, op->microbatch, batch, err);
    case OP_P: /* what made the prefix's output has put it already */
        return OK;
    case OP_B:
    case OP_I:
    case OP_W:
        return runtime_backward(rt, op, batch, step, err);
    case OP_SEND_ACT:
    case OP_RECV_ACT:
    case OP_SEND_GRAD:
    case OP_RECV_GRAD:
        return runtime_message(rt, op, batch, err);
    case OP_ALLREDUCE:
        return runtime_reduce_ready(rt, op, err);
    case OP_NORM:
        return runtime_norm(rt, err);
    case OP_UPDATE:
        rc = runtime_finish_gradients(rt, err);
        if (rc == OK)
            rc = stage_update(rt->stages[op->stage].stage, (uint64_t)step, lr, rt->grad_mul, err);
        return rc;
    default:
        break;
    }
    return err_set(err, ERR_SYSTEM, "this executor has no %s op",
                   op_kind_name((enum op_kind)op->kind));
}

static enum status begin(struct runtime *rt, const struct batch *batch, bool train, struct err *err)
{
    enum status rc = OK;
    size_t n = (size_t)rt->spec.plan->num_replicas * (size_t)rt->num_microbatches;
    memset(rt->sums, 0, n * LOSS_WORDS * sizeof *rt->sums);
    rt->training = train;
    if (rt->prefix_ready)
        memset(rt->prefix_ready, 0, (size_t)rt->num_microbatches * sizeof *rt->prefix_ready);
    for (int e = 0; rc == OK && e < rt->spec.workload->num_edges; e++)
        for (int d = 0; rc == OK && d < (train ? DIRECTIONS : GRAD); d++) {
            rt->edges[e].inbox[d].next = 0;
            if (rt->edges[e].peer >= 0 && rt->edges[e].inbox[d].num_order > 0)
                rc = runtime_post_receives(rt, &rt->edges[e], d, batch, err);
        }
    return rc;
}

static enum status finish_sends(struct runtime *rt, struct err *err)
{
    enum status rc = OK;
    for (int i = 0; rc == OK && i < rt->spec.workload->num_stages; i++)
        for (int slot = 0; rc == OK && rt->stages[i].stage && slot < rt->stages[i].num_slots;
             slot++)
            rc = runtime_wait_slot(rt, &rt->stages[i], slot, err);
    return rc;
}

/* The forward ops of the list, without what a backward needs. */
static enum status forward_only(struct runtime *rt, const struct batch *batch, struct err *err)
{
    enum status rc = begin(rt, batch, false, err);
    for (int64_t i = 0; rc == OK && i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        bool forward = (op->kind == OP_F || op->kind == OP_Z) && op->microbatch >= 0;
        if (!forward && op->kind != OP_SEND_ACT && op->kind != OP_RECV_ACT)
            continue;
        if (batch->blocks[op->microbatch].num_samples == 0)
            continue;
        rc = forward ? runtime_forward(rt, op, batch, STEP_EVAL, false, err)
                     : runtime_message(rt, op, batch, err);
        if (rc == OK && forward && rt->on_eval && op->stage == rt->spec.plan->num_stages - 1)
            rc = rt->on_eval(rt->on_eval_ctx, rt->stages[op->stage].stage,
                             &batch->blocks[op->microbatch], err);
    }
    return rc == OK ? finish_sends(rt, err) : rc;
}

/* After a bad loss, known to all: the micro-batches once more, forward only and without dropout, to
 * find the first item whose output is not finite. It is the head where no output below it is. */
static void name_bad_item(struct runtime *rt, const struct batch *batch, struct err *err)
{
    const int num_stages = rt->spec.workload->num_stages, none = rt->spec.model->num_items;
    const int64_t ranks = rt->spec.comm->size;
    struct err ignored = {0}, was = err ? *err : (struct err){0};
    int bad = rt->stages[num_stages - 1].stage ? none - 1 : none;
    if (finish_sends(rt, &ignored) != OK)
        return;
    for (int s = 0; s < num_stages; s++)
        if (rt->stages[s].stage)
            stage_watch(rt->stages[s].stage, &bad);
    if (rt->spec.prefix)
        stage_watch(rt->spec.prefix, &bad);
    enum status rc = forward_only(rt, batch, &ignored);
    for (int s = 0; s < num_stages; s++)
        if (rt->stages[s].stage)
            stage_watch(rt->stages[s].stage, NULL);
    if (rt->spec.prefix)
        stage_watch(rt->spec.prefix, NULL);
    int64_t first = -(bad * ranks + rt->spec.comm->rank); /* the lowest wins */
    if (rc != OK || comm_max_i64(rt->spec.active, &first, 1, &ignored) != OK || !err)
        return;
    *err = (struct err){0};
    err_set(err, was.status, "%s, first in '%s' (rank %lld)", was.msg,
            rt->spec.model->items[-first / ranks].name, (long long)(-first % ranks));
}

enum status runtime_step(struct runtime *rt, const struct batch *batch, int64_t step, double lr,
                         int64_t vote, struct step_result *result, struct err *err)
{
    const struct comm *comm = rt->spec.comm;
    struct loss_sums sums = {0};
    int64_t span[3], first = 0, last = 0;
    bool losses_known = false, bad_loss = false;
    enum status rc;
    rt->have_norm = rt->gradients_final = false;
    rt->grad_mul = 1.0f;
    rt->grad_norm = NAN;
    memset(rt->times, 0, (size_t)rt->ops->num_ops * sizeof *rt->times);
    for (int s = 0; s < rt->spec.workload->num_stages; s++)
        if (rt->stages[s].stage) {
            stage_zero_grad(rt->stages[s].stage);
            rt->stages[s].tree_top = 0;
        }
    rc = begin(rt, batch, true, err);
    if (rc == OK)
        rc = runtime_reduce_begin(rt, err);
    for (int64_t i = 0; rc == OK && i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        struct op_time *time = &rt->times[i];
        bool per_microbatch = op->kind != OP_ALLREDUCE && op->kind != OP_NORM &&
                              op->kind != OP_UPDATE && op->microbatch >= 0;
        if (per_microbatch && batch->blocks[op->microbatch].num_samples == 0) { /* R5, R6 */
            if (op->kind == OP_B || op->kind == OP_W)
                runtime_tree_add(rt, &rt->stages[op->stage], op->microbatch, false);
            continue;
        }
        /* A bad loss must not reach the weights. */
        if (!losses_known && (op->kind == OP_NORM || op->kind == OP_UPDATE)) {
            rc = runtime_reduce_advance(rt, true, err);
            if (rc == OK)
                rc = share_losses(rt, rt->spec.active, &sums, err);
            losses_known = true;
            bad_loss = rc == ERR_INFEASIBLE;
        } else {
            comm_progress(rt->spec.pipeline);
            rc = runtime_reduce_advance(rt, false, err);
        }
        if (rc != OK)
            break;
        const int64_t start = comm_now_ns(comm);
        rc = run_op(rt, op, batch, step, lr, err);
        if (rc == OK && !is_message(op->kind) && !rt->spec.backend->host_memory)
            rc = rt->spec.backend->sync(rt->spec.backend, err);
        last = comm_now_ns(comm);
        if (!first)
            first = start;
        if (op->kind != OP_ALLREDUCE) /* those have times of their own */
            *time = (struct op_time){start, last};
    }
    if (rc == OK) /* a list that ends without UPDATE */
        rc = runtime_reduce_advance(rt, true, err);
    if (rc == OK && !losses_known)
        rc = share_losses(rt, rt->spec.active, &sums, err);
    runtime_cache_flush(rt);
    if (rc == ERR_INFEASIBLE && bad_loss)
        name_bad_item(rt, batch, err);
    if (rc == OK)
        rc = finish_sends(rt, err);
    span[0] = -first;
    span[1] = last;
    span[2] = vote;
    if (rc == OK)
        rc = comm_max_i64(rt->spec.active, span, 3, err);
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
    enum status rc = forward_only(rt, batch, err);
    return rc == OK ? share_losses(rt, rt->spec.active, sums, err) : rc;
}

void runtime_on_eval(struct runtime *rt, runtime_eval_hook hook, void *ctx)
{
    rt->on_eval = hook;
    rt->on_eval_ctx = ctx;
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
