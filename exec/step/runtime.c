#include "exec/step/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/step/runtime_state.h"
#include "partition/pool_memory.h"
#include "partition/units.h"

/* --- construction ----------------------------------------------------------------------------- */

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

void *runtime_new_zeroed(struct runtime *rt, int64_t count, size_t size)
{
    int64_t bytes;
    if (!mul_ok(count, (int64_t)size, &bytes))
        return NULL;
    rt->bytes += bytes;
    return calloc(1, bytes ? (size_t)bytes : 1);
}

static enum status stage_init(struct runtime *rt, int index, struct err *err)
{
    const struct workload *w = rt->spec.workload;
    struct stage_state *s = &rt->stages[index];
    int m = rt->num_microbatches;
    s->stage = rt->spec.stages[index];
    if (!s->stage)
        return OK;
    s->num_slots = pool_slots(rt->spec.full, index);
    s->in = w->in_edge + w->in_first[index];
    s->num_in = w->in_first[index + 1] - w->in_first[index];
    s->out = w->out_edge + w->out_first[index];
    s->num_out = w->out_first[index + 1] - w->out_first[index];
    s->busy = runtime_new_zeroed(rt, s->num_slots, sizeof *s->busy);
    s->slot_of = runtime_new_zeroed(rt, m, sizeof *s->slot_of);
    s->in_ptr = runtime_new_zeroed(rt, s->num_in + 1, sizeof *s->in_ptr);
    s->grad_out_ptr = runtime_new_zeroed(rt, s->num_out + 1, sizeof *s->grad_out_ptr);
    s->out_ptr =
        runtime_new_zeroed(rt, (int64_t)s->num_slots * (s->num_out + 1), sizeof *s->out_ptr);
    s->grad_in_ptr =
        runtime_new_zeroed(rt, (int64_t)s->num_slots * (s->num_in + 1), sizeof *s->grad_in_ptr);
    s->has_r = runtime_new_zeroed(rt, m, sizeof *s->has_r);
    s->has_i = runtime_new_zeroed(rt, m, sizeof *s->has_i);
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
    rt->prefix_out = runtime_new_zeroed(rt, m, sizeof *rt->prefix_out);
    rt->prefix_ready = runtime_new_zeroed(rt, m, sizeof *rt->prefix_ready);
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

/* What the host reads at the end of a step, and what times ops on a device. */
static enum status marks_init(struct runtime *rt, struct err *err)
{
    struct backend *be = rt->spec.backend;
    const int64_t bytes = rt->num_microbatches * (int64_t)sizeof *rt->losses;
    void *losses = NULL;
    enum status rc = be->alloc_host(be, bytes, &losses, err);
    rt->losses = losses;
    rt->bytes += bytes;
    if (rc != OK || !runtime_on_device(rt))
        return rc;
    rt->marks = runtime_new_zeroed(rt, rt->ops->num_ops, sizeof *rt->marks);
    if (!rt->marks)
        return err_nomem(err);
    rc = be->event_new(be, &rt->losses_out, err);
    if (rc == OK)
        rc = be->event_new(be, &rt->anchor, err);
    for (int64_t i = 0; rc == OK && i < rt->ops->num_ops; i++) {
        rc = be->event_new(be, &rt->marks[i].from, err);
        if (rc == OK)
            rc = be->event_new(be, &rt->marks[i].to, err);
    }
    return rc;
}

static void marks_clear(struct runtime *rt)
{
    struct backend *be = rt->spec.backend;
    be->free_host(be, rt->losses);
    if (!runtime_on_device(rt))
        return;
    be->event_free(be, rt->losses_out);
    be->event_free(be, rt->anchor);
    for (int64_t i = 0; rt->marks && i < rt->ops->num_ops; i++) {
        be->event_free(be, rt->marks[i].from);
        be->event_free(be, rt->marks[i].to);
    }
    free(rt->marks);
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
        tags > spec->comm->max_tag) {
        rc = err_set(err, ERR_INPUT, "%d edges times %d micro-batches are too many to number",
                     w->num_edges, rt->num_microbatches);
        goto out;
    }
    for (rt->window = MESSAGE_WINDOW;; rt->window *= 2) {
        struct err why = {0};
        rc = schedule_check(spec->full, rt->window, &why);
        if (rc == ERR_INFEASIBLE && rt->window < rt->num_microbatches)
            continue;
        if (rc != OK)
            err_copy(err, &why);
        break;
    }
    if (rc != OK)
        goto out;
    rt->stages = runtime_new_zeroed(rt, w->num_stages, sizeof *rt->stages);
    rt->edges = runtime_new_zeroed(rt, w->num_edges, sizeof *rt->edges);
    rt->times = runtime_new_zeroed(rt, rt->ops->num_ops, sizeof *rt->times);
    rt->sums = runtime_new_zeroed(
        rt, (int64_t)spec->plan->num_replicas * rt->num_microbatches * LOSS_WORDS,
        sizeof *rt->sums);
    rt->item_sumsq = runtime_new_zeroed(rt, spec->model->num_items, sizeof *rt->item_sumsq);
    if (!rt->stages || !rt->edges || !rt->times || !rt->sums || !rt->item_sumsq) {
        rc = err_nomem(err);
        goto out;
    }
    for (int s = 0; rc == OK && s < w->num_stages; s++)
        rc = stage_init(rt, s, err);
    if (rc == OK)
        rc = runtime_edges_init(rt, err);
    if (rc == OK)
        rc = marks_init(rt, err);
    if (rc == OK)
        rc = prefix_init(rt, err);
    if (rc == OK)
        rc = runtime_reduce_init(rt, err);
    if (rc == OK)
        rc = runtime_cache_init(rt, err);
    if (rc == OK)
        rc = runtime_reads_init(rt, err);
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
    runtime_edges_clear(rt);
    marks_clear(rt);
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
    free(rt->reads);
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
    const int n = rt->spec.plan->num_replicas * rt->num_microbatches;
    const size_t mine = (size_t)rt->spec.replica * (size_t)rt->num_microbatches;
    const bool head = rt->stages[rt->spec.workload->num_stages - 1].stage;
    enum status rc = runtime_await(rt, rt->losses_out, err);
    if (rc == OK && rt->spec.nccl)
        rc = nccl_check(rt->spec.nccl, err);
    for (int m = 0; rc == OK && head && m < rt->num_microbatches; m++) {
        double *one = rt->sums + (mine + (size_t)m) * LOSS_WORDS;
        one[0] = rt->losses[m].loss;
        one[1] = (double)rt->losses[m].count;
        one[2] = (double)rt->losses[m].correct;
    }
    if (rc == OK)
        rc = comm_sum_f64(group, rt->sums, n * LOSS_WORDS, err);
    *sums = (struct loss_sums){0};
    for (int i = 0; rc == OK && i < n; i++) {
        const double *one = rt->sums + (size_t)i * LOSS_WORDS;
        sums->loss += one[0];
        sums->count += (int64_t)one[1];
        sums->correct += (int64_t)one[2];
        if (!isfinite(one[0])) /* a NaN's sign says nothing */
            rc = err_set(err, ERR_INFEASIBLE, "the loss of micro-batch %d of replica %d is %g",
                         i % rt->num_microbatches, i / rt->num_microbatches,
                         isnan(one[0]) ? fabs(one[0]) : one[0]);
        rt->not_finite = rc != OK;
    }
    return rc;
}

static bool is_send(enum op_kind kind)
{
    return kind == OP_SEND_ACT || kind == OP_SEND_GRAD;
}

/* Where no NORM came before it, it sums squares while it has the gradients. */
static void update(struct runtime *rt, int stage, uint64_t step, double lr)
{
    struct stage_state *s = &rt->stages[stage];
    s->summed = !rt->have_norm;
    stage_update(s->stage, step, lr, rt->grad_mul, s->summed);
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
    case OP_TIED:
        return runtime_finish_gradients(rt, err);
    case OP_NORM:
        return runtime_norm(rt, err);
    case OP_UPDATE:
        rc = runtime_finish_gradients(rt, err);
        if (rc == OK)
            update(rt, op->stage, (uint64_t)step, lr);
        return rc;
    default:
        break;
    }
    return err_set(err, ERR_SYSTEM, "this executor has no %s op",
                   op_kind_name((enum op_kind)op->kind));
}

/* One op, between its two places in time: of the clock, or on the lanes of the device (a send marks
 * its end itself). Those of an ALLREDUCE are where its sum is. span grows by it, on the clock. */
static enum status run_timed(struct runtime *rt, const struct op *op, const struct batch *batch,
                             int64_t step, double lr, struct op_time *span, struct err *err)
{
    struct backend *be = rt->spec.backend;
    const int64_t i = op - rt->ops->ops;
    struct op_time time = {0};
    enum status rc;
    if (!rt->marks) {
        time.start_ns = comm_now_ns(rt->spec.comm);
        rc = run_op(rt, op, batch, step, lr, err);
        time.end_ns = comm_now_ns(rt->spec.comm);
        if (op->kind != OP_ALLREDUCE)
            rt->times[i] = time;
        *span = (struct op_time){span->start_ns ? span->start_ns : time.start_ns, time.end_ns};
        return rc;
    }
    if (op->kind == OP_ALLREDUCE)
        return run_op(rt, op, batch, step, lr, err);
    rt->mark = &rt->marks[i];
    rt->mark->set = true;
    be->event_record(be, rt->mark->from);
    if (be->range_push)
        be->range_push(be, op_kind_name((enum op_kind)op->kind), op->microbatch);
    rc = run_op(rt, op, batch, step, lr, err);
    if (be->range_pop)
        be->range_pop(be);
    if (!is_send(op->kind))
        be->event_record(be, rt->mark->to);
    return rc;
}

static int64_t clock_at(const struct runtime *rt, struct backend_event *event)
{
    struct backend *be = rt->spec.backend;
    return rt->anchor_ns - be->event_ns(be, event, rt->anchor);
}

/* The end of a step on a device: everything has ended, which ties its places to the clock. */
static enum status end_on_device(struct runtime *rt, struct op_time *span, struct err *err)
{
    int64_t first = 0;
    if (rt->reader)
        stage_upload_end(rt->reader);
    enum status rc = runtime_settle(rt, err);
    rt->anchor_ns = span->start_ns = span->end_ns = comm_now_ns(rt->spec.comm);
    while (first < rt->ops->num_ops && !rt->marks[first].set)
        first++;
    if (rc == OK && first < rt->ops->num_ops)
        span->start_ns = clock_at(rt, rt->marks[first].from);
    return rc;
}

static enum status begin(struct runtime *rt, const struct batch *batch, bool train, struct err *err)
{
    size_t n = (size_t)rt->spec.plan->num_replicas * (size_t)rt->num_microbatches;
    memset(rt->sums, 0, n * LOSS_WORDS * sizeof *rt->sums);
    memset(rt->losses, 0, (size_t)rt->num_microbatches * sizeof *rt->losses);
    rt->training = train;
    rt->reads_done = 0;
    if (rt->prefix_ready)
        memset(rt->prefix_ready, 0, (size_t)rt->num_microbatches * sizeof *rt->prefix_ready);
    return runtime_post_first(rt, batch, train, err);
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
        if (rt->marks) {
            rt->mark = &rt->marks[i];
            rt->spec.backend->event_record(rt->spec.backend, rt->mark->from);
        }
        rc = forward ? runtime_forward(rt, op, batch, STEP_EVAL, false, err)
                     : runtime_message(rt, op, batch, err);
        if (rc == OK)
            rc = runtime_progress(rt, err);
        if (rc == OK && forward && rt->on_eval && op->stage == rt->spec.plan->num_stages - 1)
            rc = rt->on_eval(rt->on_eval_ctx, rt->stages[op->stage].stage,
                             &batch->blocks[op->microbatch], err);
    }
    return rc == OK ? runtime_finish_sends(rt, err) : rc;
}

/* After a bad loss, known to all: the micro-batches once more, forward only and without dropout, to
 * find the first item whose output is not finite. It is the head where no output below it is. */
static void name_bad_item(struct runtime *rt, const struct batch *batch, struct err *err)
{
    const int num_stages = rt->spec.workload->num_stages, none = rt->spec.model->num_items;
    const int64_t ranks = rt->spec.comm->size;
    struct err ignored = {0}, was = err ? *err : (struct err){0};
    int bad = rt->stages[num_stages - 1].stage ? none - 1 : none;
    if (runtime_finish_sends(rt, &ignored) != OK)
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

/* A bad loss must not reach the weights. */
static enum status before_weights(struct runtime *rt, struct loss_sums *sums, bool *bad_loss,
                                  struct err *err)
{
    enum status rc = runtime_await(rt, NULL, err);
    if (rc == OK)
        rc = runtime_reduce_advance(rt, true, err);
    if (rc == OK) {
        rc = share_losses(rt, rt->spec.active, sums, err);
        *bad_loss = rt->not_finite;
    }
    rt->losses_known = true;
    return rc;
}

static void clear_step(struct runtime *rt)
{
    rt->have_norm = rt->gradients_final = rt->losses_known = rt->not_finite = false;
    rt->grad_mul = 1.0f;
    rt->grad_norm = NAN;
    memset(rt->item_sumsq, 0, (size_t)rt->spec.model->num_items * sizeof *rt->item_sumsq);
    memset(rt->times, 0, (size_t)rt->ops->num_ops * sizeof *rt->times);
    for (int64_t i = 0; rt->marks && i < rt->ops->num_ops; i++)
        rt->marks[i].set = false;
    for (int s = 0; s < rt->spec.workload->num_stages; s++)
        if (rt->stages[s].stage) {
            stage_begin_grad(rt->stages[s].stage);
            rt->stages[s].summed = false;
            rt->stages[s].tree_top = 0;
        }
}

enum status runtime_step(struct runtime *rt, const struct batch *batch, int64_t step, double lr,
                         int64_t vote, struct step_result *result, struct err *err)
{
    struct loss_sums sums = {0};
    struct op_time span = {0};
    bool bad_loss = false;
    enum status rc;
    clear_step(rt);
    rc = begin(rt, batch, true, err);
    if (rc == OK)
        rc = runtime_reduce_begin(rt, err);
    for (int64_t i = 0; rc == OK && i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        const bool weights = op->kind >= OP_TIED; /* and NORM, UPDATE */
        const bool per_microbatch = op->kind != OP_ALLREDUCE && !weights && op->microbatch >= 0;
        if (per_microbatch && batch->blocks[op->microbatch].num_samples == 0) { /* R5, R6 */
            if (op->kind == OP_B || op->kind == OP_W) {
                stage_skip_grad(rt->stages[op->stage].stage);
                runtime_tree_add(rt, &rt->stages[op->stage], op->microbatch, false);
            }
            continue;
        }
        if (weights && !rt->losses_known) {
            rc = before_weights(rt, &sums, &bad_loss, err);
        } else {
            rc = runtime_progress(rt, err);
            if (rc == OK)
                rc = runtime_reduce_advance(rt, false, err);
        }
        if (rc == OK)
            rc = run_timed(rt, op, batch, step, lr, &span, err);
        if (rc == OK && rt->reader)
            runtime_upload(rt, op, batch);
    }
    if (rc == OK && !rt->losses_known) /* a list that ends without UPDATE */
        rc = before_weights(rt, &sums, &bad_loss, err);
    rc = runtime_cache_flush(rt, rc, err);
    if (bad_loss)
        name_bad_item(rt, batch, err);
    if (rc == OK)
        rc = runtime_finish_sends(rt, err);
    if (rc == OK && rt->marks)
        rc = end_on_device(rt, &span, err);
    if (rc == OK && !rt->have_norm) /* the updates have left the gradients as they were */
        rc = runtime_norm(rt, err);
    /* A rank of frozen stages runs no op where its replica has no samples. */
    int64_t most[3] = {span.start_ns ? -span.start_ns : -INT64_MAX, span.end_ns, vote};
    if (rc == OK)
        rc = comm_max_i64(rt->spec.active, most, 3, err);
    if (rc != OK)
        return rc;
    *result = (struct step_result){
        .loss = batch->num_targets > 0 ? sums.loss / (double)batch->num_targets : 0,
        .count = sums.count,
        .correct = sums.correct,
        .grad_norm = rt->grad_norm,
        .start_ns = -most[0],
        .step_ns = most[1] + most[0],
        .vote = most[2]};
    return OK;
}

enum status runtime_eval(struct runtime *rt, const struct batch *batch, struct loss_sums *sums,
                         struct err *err)
{
    rt->not_finite = false;
    enum status rc = forward_only(rt, batch, err);
    if (rc == OK)
        rc = runtime_settle(rt, err);
    return rc == OK ? share_losses(rt, rt->spec.active, sums, err) : rc;
}

bool runtime_not_finite(const struct runtime *rt)
{
    return rt->not_finite;
}

void runtime_on_eval(struct runtime *rt, runtime_eval_hook hook, void *ctx)
{
    rt->on_eval = hook;
    rt->on_eval_ctx = ctx;
}

const struct op_time *runtime_times(struct runtime *rt)
{
    for (int64_t i = 0; rt->marks && i < rt->ops->num_ops; i++)
        if (rt->marks[i].set) {
            rt->times[i].start_ns = clock_at(rt, rt->marks[i].from);
            rt->times[i].end_ns = clock_at(rt, rt->marks[i].to);
            rt->marks[i].set = false;
        }
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
