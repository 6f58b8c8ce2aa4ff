/* exec/step/run_step.c - one step: the walk over the rank's op list.
 *
 * runtime_step() runs the ops in order; between them it lets messages and sums move on. Before the
 * first op that uses final gradients it waits for the sums and shares the losses. At its end it
 * waits for messages and for the device, and combines times and votes of all ranks. An evaluation
 * runs the forward ops of the same list. */
#include <math.h>
#include <string.h>

#include "exec/base/watch.h"
#include "exec/step/runtime_state.h"

/* Give every rank the losses of all micro-batches of all replicas. The sum goes by index, so all
 * ranks get the same bits. */
static enum status share_losses(struct runtime *rt, const struct comm_group *group,
                                struct loss_sums *sums, struct err *err)
{
    const int n = rt->spec.plan->num_pipelines * rt->num_microbatches;
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
    THEN(comm_sum_f64(group, rt->sums, n * LOSS_WORDS, err));
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

/* Without a NORM op before it, the update sums the gradients' squares as it reads them. */
static void update(struct runtime *rt, int stage, uint64_t step, double lr)
{
    struct stage_state *s = &rt->stages[stage];
    s->summed = !rt->have_norm;
    stage_update(s->stage, step, lr, rt->grad_mul, s->summed);
}

void runtime_apf(struct runtime *rt, const struct apf_rule *rule)
{
    for (int s = 0; s < rt->spec.workload->num_stages; s++)
        if (rt->stages[s].stage)
            stage_apf(rt->stages[s].stage, rule);
}

void runtime_held(const struct runtime *rt, double *held, double *all)
{
    for (int s = 0; s < rt->spec.workload->num_stages; s++)
        if (rt->stages[s].stage)
            stage_held(rt->stages[s].stage, held, all);
}

void runtime_anneal(struct runtime *rt, int end_item, double share)
{
    for (int s = 0; s < rt->spec.workload->num_stages; s++)
        if (rt->stages[s].stage)
            stage_anneal(rt->stages[s].stage, end_item, share);
}

/* The frozen prefix of all micro-batches. */
static enum status run_prefixes(struct runtime *rt, const struct batch *batch, struct err *err)
{
    enum status rc = OK;
    for (int m = 0; rc == OK && m < rt->num_microbatches; m++)
        if (batch->blocks[m].num_samples > 0)
            rc = runtime_prefix(rt, m, batch, err);
    return rc;
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
        return op->microbatch >= 0 ? runtime_forward(rt, op, batch, (uint64_t)step, true, err)
                                   : run_prefixes(rt, batch, err);
    case OP_C:
        return runtime_prefix(rt, op->microbatch, batch, err);
    case OP_P: /* runtime_prefix() has put the output into the cache already */
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

/* Run one op and note when it begins and ends: by the clock, or by marks on the device's lanes (a
 * send marks its end itself). The reducer times an ALLREDUCE, whose sum runs during other ops.
 * *span covers the ops so far, by the clock. */
static enum status run_timed(struct runtime *rt, const struct op *op, const struct batch *batch,
                             int64_t step, double lr, struct op_time *span, struct err *err)
{
    struct backend *be = rt->spec.backend;
    const int64_t i = op - rt->ops->ops;
    struct op_time time = {0};
    enum status rc;
    watch_op(op_kind_name((enum op_kind)op->kind), op->stage, op->microbatch);
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

/* The end of a step on a device: wait for everything, then read the clock, which gives marks a
 * time. */
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
    size_t n = (size_t)rt->spec.plan->num_pipelines * (size_t)rt->num_microbatches;
    memset(rt->sums, 0, n * LOSS_WORDS * sizeof *rt->sums);
    memset(rt->losses, 0, (size_t)rt->num_microbatches * sizeof *rt->losses);
    rt->training = train;
    rt->reads_done = 0;
    if (rt->prefix_ready)
        memset(rt->prefix_ready, 0, (size_t)rt->num_microbatches * sizeof *rt->prefix_ready);
    return runtime_post_first(rt, batch, train, err);
}

/* Run the forward ops of the list and keep nothing for a backward. */
static enum status forward_only(struct runtime *rt, const struct batch *batch, struct err *err)
{
    enum status rc = begin(rt, batch, false, err);
    for (int64_t i = 0; rc == OK && i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        bool forward = (op->kind == OP_F || op->kind == OP_Z) && op->microbatch >= 0;
        if (!forward && op->kind != OP_SEND_ACT && op->kind != OP_RECV_ACT)
            continue;
        if (op->stage < rt->first_stage + (boundary_begins(rt) && op->kind == OP_RECV_ACT))
            continue; /* the evaluation begins above */
        if (batch->blocks[op->microbatch].num_samples == 0)
            continue;
        if (rt->marks) {
            rt->mark = &rt->marks[i];
            rt->spec.backend->event_record(rt->spec.backend, rt->mark->from);
        }
        rc = forward ? runtime_forward(rt, op, batch, STEP_EVAL, false, err)
                     : runtime_message(rt, op, batch, err);
        THEN(runtime_progress(rt, err));
        if (rc == OK && forward && rt->on_eval && op->stage == rt->spec.plan->num_stages - 1)
            rc = rt->on_eval(rt->on_eval_ctx, rt->stages[op->stage].stage,
                             &batch->blocks[op->microbatch], err);
    }
    return rc == OK ? runtime_finish_sends(rt, err) : rc;
}

/* After a bad loss, which all ranks know of: run the micro-batches once more, forward only and
 * without dropout, to find the first item whose output is not finite. If there is none below the
 * head, the head is named. */
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

/* Called once a step before the first op that uses final gradients: finish the sums over replicas
 * and check the loss, because a bad loss must not reach the weights. */
static enum status before_weights(struct runtime *rt, struct loss_sums *sums, bool *bad_loss,
                                  struct err *err)
{
    enum status rc = runtime_await(rt, NULL, err);
    THEN(runtime_reduce_advance(rt, true, err));
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
    runtime_choose(rt, batch, step);
    rc = begin(rt, batch, true, err);
    THEN(runtime_reduce_begin(rt, err));
    for (int64_t i = 0; rc == OK && i < rt->ops->num_ops; i++) {
        const struct op *op = &rt->ops->ops[i];
        const bool weights = op->kind >= OP_TIED; /* and NORM, UPDATE */
        const bool per_microbatch = op->kind != OP_ALLREDUCE && !weights && op->microbatch >= 0;
        if (per_microbatch &&
            batch->blocks[op->microbatch].num_samples == 0) { /* an empty micro-batch */
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
            THEN(runtime_reduce_advance(rt, false, err));
        }
        THEN(run_timed(rt, op, batch, step, lr, &span, err));
        if (rc == OK && rt->reader)
            runtime_upload(rt, op, batch);
    }
    if (rc == OK && !rt->losses_known) /* a list that ends without UPDATE */
        rc = before_weights(rt, &sums, &bad_loss, err);
    rc = runtime_cache_flush(rt, rc, err);
    if (bad_loss)
        name_bad_item(rt, batch, err);
    THEN(runtime_finish_sends(rt, err));
    if (rc == OK && rt->marks)
        rc = end_on_device(rt, &span, err);
    if (rc == OK && !rt->have_norm) /* updates do not change the gradients */
        rc = runtime_norm(rt, err);
    /* A rank of frozen stages runs no op if its replica has no samples. */
    int64_t most[4] = {span.start_ns ? -span.start_ns : -INT64_MAX, span.end_ns, vote,
                       rc == OK && loader_next(batch->loader, NULL) != OK};
    THEN(comm_max_i64(rt->spec.active, most, 4, err));
    if (rc != OK)
        return rc;
    *result = (struct step_result){
        .loss = batch->num_targets > 0 ? sums.loss / (double)batch->num_targets : 0,
        .count = sums.count,
        .correct = sums.correct,
        .grad_norm = rt->grad_norm,
        .start_ns = -most[0],
        .step_ns = most[1] + most[0],
        .vote = most[2],
        .next_fails = most[3] > 0};
    return OK;
}

enum status runtime_eval(struct runtime *rt, const struct batch *batch, struct loss_sums *sums,
                         struct err *err)
{
    const struct eval_part all = {0};
    return runtime_eval_part(rt, batch, &all, sums, err);
}

enum status runtime_eval_part(struct runtime *rt, const struct batch *batch,
                              const struct eval_part *part, struct loss_sums *sums, struct err *err)
{
    rt->not_finite = false;
    boundary_part(rt, part);
    enum status rc = forward_only(rt, batch, err);
    THEN(runtime_settle(rt, err));
    boundary_part(rt, NULL);
    return rc == OK ? share_losses(rt, rt->spec.active, sums, err) : rc;
}

int runtime_num_blocks(const struct runtime *rt)
{
    return rt->spec.plan->num_pipelines * rt->num_microbatches;
}

struct loss_sums runtime_block(const struct runtime *rt, int block)
{
    const double *one = rt->sums + (size_t)block * LOSS_WORDS;
    return (struct loss_sums){.loss = one[0], .count = (int64_t)one[1], .correct = (int64_t)one[2]};
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
