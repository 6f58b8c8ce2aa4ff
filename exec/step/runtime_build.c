/* exec/step/runtime_build.c - makes and frees a runtime, and the groups of ranks that a plan needs.
 */
#include <stdlib.h>

#include "exec/step/runtime_state.h"
#include "partition/step/pool_memory.h"
#include "partition/base/units.h"

enum status runtime_groups_open(const struct comm *comm, const struct plan *plan,
                                struct runtime_groups *groups, struct err *err)
{
    int k = plan->num_ranks, place = -1;
    struct runtime_groups got = {0};
    enum status rc;
    for (int i = 0; i < k * plan->num_pipelines; i++)
        if (plan->device[i] == comm->rank)
            place = i;
    got.replica = place < 0 ? -1 : place / k;
    got.rank = place < 0 ? -1 : place % k;
    rc = comm_split(comm, place < 0 ? -1 : 0, comm->rank, &got.active, err);
    THEN(comm_split(comm, got.replica, got.rank, &got.pipeline, err));
    THEN(comm_split(comm, got.rank, got.replica, &got.replicas, err));
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
    if (rt->arrays.failed)
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

/* Allocate the prefix's output of a whole step. */
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
    if (rt->arrays.failed)
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

/* Allocate the losses that the host reads at the end of a step and, on a device, the marks that
 * time ops. */
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
    THEN(be->event_new(be, &rt->anchor, err));
    for (int64_t i = 0; rc == OK && i < rt->ops->num_ops; i++) {
        rc = be->event_new(be, &rt->marks[i].from, err);
        THEN(be->event_new(be, &rt->marks[i].to, err));
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
        rt, (int64_t)spec->plan->num_pipelines * rt->num_microbatches * LOSS_WORDS,
        sizeof *rt->sums);
    rt->item_sumsq = runtime_new_zeroed(rt, spec->model->num_items, sizeof *rt->item_sumsq);
    if (rt->arrays.failed) {
        rc = err_nomem(err);
        goto out;
    }
    for (int s = 0; rc == OK && s < w->num_stages; s++)
        rc = stage_init(rt, s, err);
    THEN(runtime_edges_init(rt, err));
    THEN(marks_init(rt, err));
    THEN(prefix_init(rt, err));
    THEN(runtime_reduce_init(rt, err));
    THEN(runtime_cache_init(rt, err));
    THEN(runtime_reads_init(rt, err));
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
        for (int t = 0; s->tree && t < s->tree_depth; t++)
            be->free(be, s->tree[t]);
        free(s->tree);
    }
    for (int m = 0; rt->prefix_out && m < rt->num_microbatches; m++)
        be->free(be, rt->prefix_out[m]);
    runtime_reduce_clear(rt);
    free(rt->reads);
    arrays_clear(&rt->arrays);
    free(rt);
}
