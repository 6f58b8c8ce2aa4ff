/* exec/step/allreduce.c - sums gradients over replicas while the backward still runs.
 *
 * The ALLREDUCE ops of a rank's list form a queue in the order of the list. An op may start when
 * its bucket is final: when the stage's last backward has passed its items, at the latest where the
 * list has the op. One sum is in flight at a time; it moves on between items and between ops, and
 * the rest is waited for before NORM and UPDATE. Sums are formed by index, so the bits depend
 * neither on the buckets nor on timing. Read runtime_reduce_advance() first. */
#include <stdlib.h>

#include "exec/step/runtime_state.h"

struct reducer {
    int num_sums;
    int64_t *op; /* [num_sums] positions in the list; in one allocation with the struct */
    /* Counts of this step. Through the host, started - ended is 0 or 1. */
    int ready, started, ended;
    int64_t most;  /* elements of the largest bucket */
    float *bucket; /* packed gradients of the sum in flight; belongs to the group */
    struct comm_reduce sum;
    struct nccl_block *blocks; /* owned; gradients of the sum in flight, where summed in place */
};

static const struct op *op_of(const struct runtime *rt, int sum)
{
    return &rt->ops->ops[rt->reducer->op[sum]];
}

/* NCCL sums gradients in device memory. A canonical sum has an order of its own, so it goes through
 * the host. */
static bool sums_in_place(const struct runtime *rt)
{
    return rt->spec.nccl && rt->spec.job->train.reduction != REDUCTION_CANONICAL;
}

/* First item of the op's bucket, counted from the stage's first. */
static int first_item(const struct runtime *rt, const struct op *op)
{
    const struct workload *w = rt->spec.workload;
    return w->buckets[w->first_bucket[op->stage] + op->arg].first_item -
           rt->spec.plan->first_item[op->stage];
}

/* The items of the stage that a bucket holds: [*first, *end). The last one takes the rest. */
static void items_of(const struct runtime *rt, const struct op *op, int *first, int *end)
{
    const struct workload *w = rt->spec.workload;
    struct op before = *op;
    const bool last = w->first_bucket[op->stage] + op->arg + 1 == w->first_bucket[op->stage + 1];
    *first = last ? 0 : first_item(rt, op);
    *end = stage_num_items(rt->stages[op->stage].stage);
    if (before.arg > 0) {
        before.arg--;
        *end = first_item(rt, &before);
    }
}

static int64_t bucket_elems(const struct runtime *rt, const struct op *op)
{
    int64_t total = 0, elems;
    int first, end;
    items_of(rt, op, &first, &end);
    for (int i = first; i < end; i++) {
        stage_grad_block(rt->stages[op->stage].stage, i, &elems);
        total += elems;
    }
    return total;
}

enum status runtime_reduce_init(struct runtime *rt, struct err *err)
{
    int64_t num = 0;
    for (int64_t i = 0; i < rt->ops->num_ops; i++)
        num += rt->ops->ops[i].kind == OP_ALLREDUCE;
    struct reducer *r = calloc(1, sizeof *r + (size_t)num * sizeof *r->op);
    if (!r)
        return err_nomem(err);
    rt->reducer = r;
    r->op = (int64_t *)(void *)(r + 1);
    for (int64_t i = 0; i < rt->ops->num_ops; i++)
        if (rt->ops->ops[i].kind == OP_ALLREDUCE) {
            r->op[r->num_sums++] = i;
            const int64_t elems = bucket_elems(rt, &rt->ops->ops[i]);
            r->most = elems > r->most ? elems : r->most;
        }
    return OK;
}

void runtime_reduce_clear(struct runtime *rt)
{
    if (rt->reducer)
        free(rt->reducer->blocks);
    free(rt->reducer);
    rt->reducer = NULL;
}

enum status runtime_reduce_begin(struct runtime *rt, struct err *err)
{
    struct reducer *r = rt->reducer;
    r->ready = r->started = r->ended = 0;
    return r->num_sums > 0 && r->most > 0 && !sums_in_place(rt)
               ? comm_sum_buffer(rt->spec.replicas, r->most, &r->bucket, err)
               : OK;
}

/* Gradients into the bucket, or back. */
static enum status pack(struct runtime *rt, const struct op *op, bool back, struct err *err)
{
    struct backend *be = rt->spec.backend;
    float *at = rt->reducer->bucket;
    int64_t elems;
    int first, end;
    items_of(rt, op, &first, &end);
    for (int i = end - 1; i >= first; i--) {
        float *grad = stage_grad_block(rt->stages[op->stage].stage, i, &elems);
        if (grad && back)
            be->copy_in(be, grad, at, elems * (int64_t)sizeof *grad);
        else if (grad)
            be->copy_out(be, at, grad, elems * (int64_t)sizeof *grad);
        at += elems;
    }
    return back ? OK : be->sync(be, err); /* the host is about to read the bucket */
}

static enum status start_in_place(struct runtime *rt, const struct op *op, struct err *err)
{
    struct reducer *r = rt->reducer;
    int first, end, n = 0;
    items_of(rt, op, &first, &end);
    if (!r->blocks)
        r->blocks = calloc((size_t)rt->spec.model->num_items, sizeof *r->blocks);
    if (!r->blocks)
        return err_nomem(err);
    for (int i = end - 1; i >= first; i--) {
        struct nccl_block *block = &r->blocks[n];
        block->values = stage_grad_block(rt->stages[op->stage].stage, i, &block->count);
        n += block->values != NULL;
    }
    struct backend *be = rt->spec.backend;
    struct backend_lane *lane = nccl_group_lane(rt->spec.links->replicas);
    struct op_mark *mark = &rt->marks[op - rt->ops->ops];
    be->event_record(be, mark->from);
    be->lane_wait(be, lane, mark->from);
    const enum status rc = nccl_sum(rt->spec.links->replicas, r->blocks, n, err);
    be->lane_record(be, lane, mark->to);
    mark->set = true;
    return rc;
}

static enum status start_next(struct runtime *rt, struct err *err)
{
    struct reducer *r = rt->reducer;
    const struct op *op = op_of(rt, r->started);
    const bool canonical = rt->spec.job->train.reduction == REDUCTION_CANONICAL;
    enum status rc;
    rt->times[r->op[r->started]].start_ns = comm_now_ns(rt->spec.comm);
    r->started++;
    rc = pack(rt, op, false, err);
    return rc == OK ? comm_allreduce_start(rt->spec.replicas, r->bucket, bucket_elems(rt, op),
                                           canonical, &r->sum, err)
                    : rc;
}

static enum status end_one(struct runtime *rt, struct err *err)
{
    struct reducer *r = rt->reducer;
    enum status rc = pack(rt, op_of(rt, r->ended), true, err);
    rt->times[r->op[r->ended]].end_ns = comm_now_ns(rt->spec.comm);
    r->ended++;
    return rc;
}

/* Issue all sums that are ready; their lane runs them one after the other. With wait, work that is
 * issued next on the main lane waits for them. */
static enum status advance_in_place(struct runtime *rt, bool wait, struct err *err)
{
    struct reducer *r = rt->reducer;
    struct backend *be = rt->spec.backend;
    enum status rc = OK;
    for (; rc == OK && r->started < r->ready; r->started++)
        rc = start_in_place(rt, op_of(rt, r->started), err);
    if (wait && r->ended < r->started)
        be->lane_wait(be, NULL, rt->marks[r->op[r->started - 1]].to);
    if (wait)
        r->ended = r->started;
    return rc;
}

enum status runtime_reduce_advance(struct runtime *rt, bool wait, struct err *err)
{
    struct reducer *r = rt->reducer;
    enum status rc = OK;
    bool done = true;
    if (sums_in_place(rt))
        return advance_in_place(rt, wait, err);
    while (rc == OK && done && r->ended < r->ready) {
        if (r->started == r->ended)
            rc = start_next(rt, err);
        if (rc == OK)
            rc =
                wait ? comm_allreduce_wait(&r->sum, err) : comm_allreduce_test(&r->sum, &done, err);
        if (rc == OK && done)
            rc = end_one(rt, err);
    }
    return rc;
}

enum status runtime_reduce_ready(struct runtime *rt, const struct op *op, struct err *err)
{
    struct reducer *r = rt->reducer;
    while (r->ready < r->num_sums && r->op[r->ready] <= op - rt->ops->ops)
        r->ready++;
    return runtime_reduce_advance(rt, false, err);
}

bool runtime_reduce_ahead(const struct runtime *rt, const struct op *op)
{
    const struct reducer *r = rt->reducer;
    return op->microbatch == rt->num_microbatches - 1 && op->kind != OP_I &&
           r->ready < r->num_sums && op_of(rt, r->ready)->stage == op->stage &&
           (rt->spec.backend->host_memory || sums_in_place(rt));
}

enum status runtime_reduce_item(void *ctx, int item, struct err *err)
{
    struct final_grads *of = ctx;
    struct runtime *rt = of->rt;
    struct reducer *r = rt->reducer;
    struct stage_state *s = &rt->stages[of->stage];
    if (s->tree)
        runtime_tree_fold(rt, s, rt->num_microbatches - 1, item);
    while (r->ready < r->num_sums && op_of(rt, r->ready)->stage == of->stage &&
           first_item(rt, op_of(rt, r->ready)) >= item)
        r->ready++;
    return runtime_reduce_advance(rt, false, err);
}
