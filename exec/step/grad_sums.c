/* exec/step/grad_sums.c - gradients between the backward and the update: canonical sums over
 * micro-batches, tied token tables, the norm.
 *
 * Under train.reduction canonical the gradient of each micro-batch is completed before it is added.
 * Sums form by the tree that halves [0, R * M) at midpoints. A rank's part [r * M, (r + 1) * M) is
 * a node of that tree because R is a power of two, so the sum over the replicas finishes the tree.
 * The stack stage_state.tree holds sums that wait for their right half. */
#include <math.h>
#include <stdlib.h>

#include "exec/step/runtime_state.h"

/* --- canonical sums ----------------------------------------------------------------------------
 */

enum status runtime_tree_init(struct runtime *rt, struct stage_state *s, struct err *err)
{
    struct backend *be = rt->spec.backend;
    const int num_items = stage_num_items(s->stage);
    int depth = 0;
    for (int i = 0; i < num_items; i++) {
        int64_t elems;
        stage_grad_block(s->stage, i, &elems);
        s->grad_elems += elems;
    }
    while (s->grad_elems > 0 && ((int64_t)1 << depth) < rt->num_microbatches)
        depth++;
    if (depth == 0)
        return OK;
    s->tree = calloc((size_t)depth, sizeof *s->tree);
    if (!s->tree)
        return err_nomem(err);
    s->tree_depth = depth;
    for (int i = 0; i < depth; i++) {
        void *data;
        enum status rc = be->alloc(be, s->grad_elems * (int64_t)sizeof(float), &data, err);
        if (rc != OK)
            return rc;
        s->tree[i] = data;
        rt->bytes += s->grad_elems * (int64_t)sizeof(float);
    }
    return OK;
}

/* Count the tree nodes over [0, n) that end with leaf m: leaf m completes their sums. */
static int nodes_ending(int m, int n)
{
    int low = 0, high = n, count = 0;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        count += high == m + 1;
        if (m < middle)
            high = middle;
        else
            low = middle;
    }
    return count;
}

void runtime_tree_fold(struct runtime *rt, struct stage_state *s, int microbatch, int item)
{
    struct backend *be = rt->spec.backend;
    const int num_nodes = nodes_ending(microbatch, rt->num_microbatches);
    int64_t elems, before = 0;
    for (int i = 0; i < item; i++) {
        stage_grad_block(s->stage, i, &elems);
        before += elems;
    }
    float *grad = stage_grad_block(s->stage, item, &elems);
    for (int n = 1; grad && n <= num_nodes; n++)
        be->accumulate(be, elems, s->tree[s->tree_top - n] + before, grad);
}

void runtime_tree_add(struct runtime *rt, struct stage_state *s, int microbatch, bool folded)
{
    struct backend *be = rt->spec.backend;
    const int num_items = stage_num_items(s->stage);
    const bool last = microbatch == rt->num_microbatches - 1;
    if (!s->tree)
        return;
    for (int i = 0; i < num_items && !folded; i++)
        runtime_tree_fold(rt, s, microbatch, i);
    s->tree_top -= nodes_ending(microbatch, rt->num_microbatches);
    if (last)
        return;
    float *keep = s->tree[s->tree_top++];
    for (int i = 0; i < num_items; i++) {
        int64_t elems;
        const float *grad = stage_grad_block(s->stage, i, &elems);
        if (grad)
            be->copy(be, keep, grad, elems * (int64_t)sizeof(float));
        keep += elems;
    }
    stage_begin_grad(s->stage);
}

/* From device to device, ordered after everything issued so far and before everything that follows.
 */
static enum status exchange_by_link(struct runtime *rt, const struct tied_table *mine,
                                    struct stage *stage, struct err *err)
{
    struct backend *be = rt->spec.backend;
    struct nccl_group *link = rt->spec.links->tied;
    struct backend_lane *lane = nccl_group_lane(link);
    const int64_t bytes = mine->num_elems * (int64_t)sizeof(float);
    be->event_record(be, rt->anchor);
    be->lane_wait(be, lane, rt->anchor);
    enum status rc = nccl_exchange(link, mine->is_table ? mine->table_grad : mine->head_grad,
                                   mine->is_table ? mine->head_grad : mine->table_grad, bytes, err);
    be->lane_record(be, lane, rt->anchor);
    be->lane_wait(be, NULL, rt->anchor);
    stage_tied_add(stage);
    return rc;
}

/* Like exchange_by_link(), but through host memory. peer: a rank of the pipeline. */
static enum status exchange_by_host(struct runtime *rt, const struct tied_table *mine,
                                    struct stage *stage, int peer, struct err *err)
{
    struct backend *be = rt->spec.backend;
    const int tag = rt->spec.workload->num_edges * DIRECTIONS * rt->num_microbatches;
    const int64_t bytes = mine->num_elems * (int64_t)sizeof(float);
    struct comm_request send = {0}, recv = {0};
    float *own = mine->is_table ? mine->table_grad : mine->head_grad,
          *other = mine->is_table ? mine->head_grad : mine->table_grad;
    float *staged = be->host_memory ? NULL : malloc(2 * (size_t)bytes);
    float *out = staged ? staged : own, *in = staged ? staged + mine->num_elems : other;
    enum status rc = be->host_memory || staged ? OK : err_nomem(err);
    if (rc == OK && staged) {
        be->copy_out(be, out, own, bytes);
        rc = be->sync(be, err);
    }
    THEN(comm_irecv(rt->spec.pipeline, in, bytes, peer, tag, &recv, err));
    THEN(comm_isend(rt->spec.pipeline, out, bytes, peer, tag, &send, err));
    THEN(comm_wait(&recv, err));
    THEN(comm_wait(&send, err));
    if (rc == OK && staged)
        be->copy_in(be, other, in, bytes);
    if (rc == OK) {
        stage_tied_add(stage);
        rc = be->sync(be, err);
    }
    if (!send.active && !recv.active) /* after a failure messages may still use the memory */
        free(staged);
    return rc;
}

/* Once a step, after the sum over replicas, the two ends of a tied token table give each other
 * their accumulators (struct tied_table). */
enum status runtime_finish_gradients(struct runtime *rt, struct err *err)
{
    struct tied_table table = {0}, head = {0}, tied;
    int table_stage = -1, head_stage = -1, last = rt->spec.workload->num_stages - 1;
    struct backend *be = rt->spec.backend;
    if (rt->gradients_final)
        return OK;
    rt->gradients_final = true;
    runtime_rescale(rt);
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
    struct stage *stage = rt->stages[table_stage >= 0 ? table_stage : head_stage].stage;
    if (rt->spec.links)
        return exchange_by_link(rt, mine, stage, err);
    const int peer = rt->spec.full->rank_of_stage[table_stage >= 0 ? last : 0];
    return exchange_by_host(rt, mine, stage, peer, err);
}

/* The rank, in the message group, that holds an item of this pipeline. */
static int rank_of_item(const struct runtime *rt, int item)
{
    const struct plan *plan = rt->spec.plan;
    int stage = 0;
    while (plan->first_item[stage + 1] <= item)
        stage++;
    return plan->device[rt->spec.replica * plan->num_ranks + rt->spec.full->rank_of_stage[stage]];
}

/* One rank of the pipeline has the sum of squares of each item. The total is formed in item order,
 * so its bits do not depend on the cut. */
enum status runtime_norm(struct runtime *rt, struct err *err)
{
    const struct plan *plan = rt->spec.plan;
    int num_items = rt->spec.model->num_items;
    double total = 0, norm;
    enum status rc = runtime_finish_gradients(rt, err);
    if (rc != OK || rt->have_norm)
        return rc;
    for (int s = 0; rc == OK && s < plan->num_stages; s++) {
        const struct stage_state *at = &rt->stages[s];
        double *sumsq = rt->item_sumsq + plan->first_item[s];
        if (at->stage && at->summed)
            stage_update_sumsq(at->stage, sumsq);
        else if (at->stage)
            rc = stage_grad_sumsq(at->stage, sumsq, err);
    }
    if (rc == OK && rt->spec.nccl)
        rc = nccl_check(rt->spec.nccl, err);
    THEN(comm_sum_f64(rt->spec.pipeline, rt->item_sumsq, num_items, err));
    if (rc != OK)
        return rc;
    for (int i = 0; i < num_items; i++) {
        rt->not_finite = !isfinite(rt->item_sumsq[i]);
        if (rt->not_finite)
            return err_set(err, ERR_INFEASIBLE, "the gradient of '%s' is not finite (rank %d)",
                           rt->spec.model->items[i].name, rank_of_item(rt, i));
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
