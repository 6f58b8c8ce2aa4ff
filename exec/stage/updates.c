/* exec/stage/updates.c - accumulators, tied tables, the norm's sums, and the optimizer's step. */
#include <stdlib.h>
#include <string.h>

#include "exec/stage/layers.h"
#include "exec/stage/params.h"

static void zero_grad(struct stage *stage, int i)
{
    struct backend *be = stage->spec.backend;
    if (stage->grads[i])
        be->zero(be, stage->grads[i], stage->block_elems[i] * (int64_t)sizeof(float));
}

void stage_begin_grad(struct stage *stage)
{
    for (int i = 0; i < stage->num_items; i++) {
        stage->fresh[i] = layer_writes(&stage->layers[i]);
        if (!stage->fresh[i])
            zero_grad(stage, i);
    }
}

void stage_skip_item(struct stage *stage, int i)
{
    if (stage->fresh[i])
        zero_grad(stage, i);
    stage->fresh[i] = false;
}

void stage_skip_grad(struct stage *stage)
{
    for (int i = 0; i < stage->num_items; i++)
        stage_skip_item(stage, i);
}

void stage_scale_grad(struct stage *stage, int i, float factor)
{
    struct backend *be = stage->spec.backend;
    if (stage->grads[i])
        be->scale(be, stage->block_elems[i], factor, stage->grads[i]);
}

void stage_counted(struct stage *stage, const bool *counted, bool table)
{
    stage->counted = counted;
    stage->table_counted = table;
}

bool stage_tied(struct stage *stage, struct tied_table *tied)
{
    const struct model *m = stage->spec.model;
    if (!stage_shares_table(m) || !(stage->has_table || stage->has_head) ||
        !params_table_trains(stage))
        return false;
    struct layer *table = &stage->layers[0], *head = &stage->layers[stage->num_items - 1];
    *tied = (struct tied_table){
        .is_table = stage->has_table,
        .is_head = stage->has_head,
        .num_elems = (int64_t)m->vocab * m->hidden,
        .weight = stage->has_table ? table->w[WORD] : head->w[HEAD_TABLE],
        .table_grad = stage->has_table ? table->g[WORD] : stage->tied_other,
        .head_grad = stage->has_head ? head->g[HEAD_TABLE] : stage->tied_other,
    };
    return true;
}

void stage_tied_add(struct stage *stage)
{
    struct tied_table tied;
    if (stage_tied(stage, &tied))
        stage->spec.backend->accumulate(stage->spec.backend, tied.num_elems, tied.head_grad,
                                        tied.table_grad);
}

/* All tensors in one call, because the host waits for the result and the device runs dry meanwhile.
 */
enum status stage_grad_sumsq(struct stage *stage, double *per_item_sumsq, struct err *err)
{
    struct backend *be = stage->spec.backend;
    const size_t most = (size_t)stage->num_params + 1;
    const float **grad = calloc(most, sizeof *grad);
    int64_t *num = calloc(most, sizeof *num);
    double *sums = calloc(most, sizeof *sums);
    int *item = calloc(most, sizeof *item), count = 0;
    enum status rc = grad && num && sums && item ? OK : err_nomem(err);
    for (int i = 0; i < stage->num_items; i++)
        per_item_sumsq[i] = 0.0;
    for (int t = 0; t < stage->num_params && rc == OK; t++) {
        const struct param *p = &stage->params[t];
        if (p->frozen || p->tied_copy)
            continue;
        grad[count] = p->grad;
        num[count] = p->num_elems;
        item[count++] = p->item - stage->spec.first_item;
    }
    if (rc == OK && count > 0)
        rc = be->sumsq_many(be, count, num, grad, sums, err);
    for (int i = 0; i < count && rc == OK; i++)
        per_item_sumsq[item[i]] += sums[i];
    free(grad);
    free(num);
    free(sums);
    free(item);
    return rc;
}

static struct update_rule rule_of(const struct job *job, uint64_t step, double lr, float grad_mul)
{
    return (struct update_rule){
        .kind = job->train.optimizer.kind,
        .sgd = {.lr = (float)lr,
                .momentum = (float)job->train.optimizer.momentum,
                .weight_decay = (float)job->train.optimizer.weight_decay,
                .grad_mul = grad_mul     },
        .adam = { .lr = lr,
                .beta1 = job->train.optimizer.beta1,
                .beta2 = job->train.optimizer.beta2,
                .eps = job->train.optimizer.eps,
                .weight_decay = job->train.optimizer.weight_decay,
                .grad_mul = grad_mul,
                .step = (int64_t)step + 1}
    };
}

/* The compute copy of a parameter; NULL where kernels read the parameter itself. */
static void *low_of(const struct stage *stage, const struct param *p)
{
    const int i = p->item - stage->spec.first_item;
    return stage->low[i] == (void *)stage->weights[i]
               ? NULL
               : backend_at(stage->spec.backend, stage->low[i], p->weight - stage->weights[i]);
}

static struct update update_of(const struct stage *stage, int t)
{
    const struct param *p = &stage->params[t];
    return (struct update){
        .num = p->num_elems,
        .grad = p->grad,
        .weight = p->weight,
        .state = {p->state[0], p->state[1]},
        .low = low_of(stage, p),
        .decay = stage->decay[t],
    };
}

void stage_anneal(struct stage *stage, int end_item, double share)
{
    stage->anneal_end = end_item;
    stage->anneal = share;
}

/* The shared token table, or the head's copy of it. */
static bool is_table(const struct stage *stage, const struct param *p)
{
    return p->tied_copy || (stage->has_table && stage_shares_table(stage->spec.model) &&
                            p->weight == stage->layers[0].w[WORD]);
}

/* Both copies of a tied table must take the same step, so the head's follows the embedding's
 * item. A head that goes on alone does not anneal. */
static double share_of_rate(const struct stage *stage, const struct param *p)
{
    if (stage->spec.model->untied && stage->anneal_end > 0 && is_table(stage, p))
        return 1;
    return (p->tied_copy ? 0 : p->item) < stage->anneal_end ? stage->anneal : 1;
}

static bool is_counted(const struct stage *stage, const struct param *p)
{
    if (!stage->counted)
        return true;
    return is_table(stage, p) ? stage->table_counted
                              : stage->counted[p->item - stage->spec.first_item];
}

void stage_apf(struct stage *stage, const struct apf_rule *rule)
{
    stage->apf = *rule;
}

/* begin: the weights are the initial ones. */
static void step_apf(struct stage *stage, bool begin)
{
    struct backend *be = stage->spec.backend;
    const int first = params_num_moments(stage->spec.job);
    for (int t = 0; t < stage->num_params; t++) {
        const struct param *p = &stage->params[t];
        struct apf_update u = {.num = p->num_elems, .weight = p->weight};
        if (p->frozen)
            continue;
        if (begin) {
            be->copy(be, p->state[first + APF_BEFORE], p->weight,
                     p->num_elems * (int64_t)sizeof(float));
            continue;
        }
        memcpy(u.state, p->state + first, sizeof u.state);
        u.low = low_of(stage, p);
        u.held = stage->apf.check ? &stage->held[t] : NULL;
        be->apf(be, &stage->apf, &u);
    }
}

void stage_held(const struct stage *stage, double *held, double *all)
{
    for (int t = 0; t < stage->num_params; t++) {
        const struct param *p = &stage->params[t];
        *held += p->frozen || p->tied_copy ? 0 : stage->held[t];
        *all += p->frozen || p->tied_copy ? 0 : (double)p->num_elems;
    }
}

/* Tensors go to the backend in groups. On a device a group is two launches (MAX_TENSORS in
 * exec/cuda/cuda_optim.cu). */
enum { GROUP = 96 };

/* A group has one learning rate. While items are timed, each item is updated by a call of its
 * own. */
void stage_update(struct stage *stage, uint64_t step, double lr, float grad_mul, bool sums)
{
    struct backend *be = stage->spec.backend;
    struct update group[GROUP];
    int count = 0;
    const bool apf = stage->spec.job->freeze.policy == FREEZE_APF;
    if (apf && step == 0)
        step_apf(stage, true);
    stage_clock_start(stage);
    for (int t = 0; t < stage->num_params; t++) {
        const struct param *p = &stage->params[t];
        const bool last = t + 1 == stage->num_params, item_ends = last || p[1].item != p->item;
        const double share = share_of_rate(stage, p);
        stage->sumsq[t] = 0;
        if (!p->frozen && is_counted(stage, p)) {
            group[count] = update_of(stage, t);
            if (sums && !p->tied_copy)
                group[count].sumsq = &stage->sumsq[t];
            count++;
        }
        if (count == GROUP || last || (item_ends && stage->item_ns) ||
            share_of_rate(stage, p + 1) != share) {
            const struct update_rule rule = rule_of(stage->spec.job, step, lr * share, grad_mul);
            be->update(be, &rule, count, group);
            count = 0;
        }
        if (item_ends)
            stage_clock_lap(stage, p->item - stage->spec.first_item, PASS_UPDATE);
    }
    if (apf)
        step_apf(stage, false);
}

void stage_update_sumsq(const struct stage *stage, double *per_item_sumsq)
{
    for (int i = 0; i < stage->num_items; i++)
        per_item_sumsq[i] = 0.0;
    for (int t = 0; t < stage->num_params; t++) {
        const struct param *p = &stage->params[t];
        if (!p->frozen && !p->tied_copy)
            per_item_sumsq[p->item - stage->spec.first_item] += stage->sumsq[t];
    }
}
