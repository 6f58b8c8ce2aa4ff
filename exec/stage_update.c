#include "exec/stage_internal.h"

void stage_zero_grad(struct stage *stage)
{
    struct backend *be = stage->spec.backend;
    for (int i = 0; i < stage->num_items; i++)
        if (stage->grads[i])
            be->zero(be, stage->grads[i], stage->block_elems[i] * (int64_t)sizeof(float));
}

bool stage_tied(struct stage *stage, struct tied_table *tied)
{
    const struct model *m = stage->spec.model;
    if (!stage_shares_table(m) || !(stage->has_table || stage->has_head) ||
        stage->spec.num_frozen_items > 0)
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

enum status stage_grad_sumsq(struct stage *stage, double *per_item_sumsq, struct err *err)
{
    struct backend *be = stage->spec.backend;
    for (int i = 0; i < stage->num_items; i++)
        per_item_sumsq[i] = 0.0;
    for (int t = 0; t < stage->num_params; t++) {
        const struct param *p = &stage->params[t];
        double sum = 0.0;
        if (p->frozen || p->tied_copy)
            continue;
        enum status rc = be->sumsq(be, p->num_elems, p->grad, &sum, err);
        if (rc != OK)
            return rc;
        per_item_sumsq[p->item - stage->spec.first_item] += sum;
    }
    return OK;
}

static void update_tensor(struct stage *stage, int t, uint64_t step, double lr, float grad_mul)
{
    struct backend *be = stage->spec.backend;
    const struct job *job = stage->spec.job;
    const struct param *p = &stage->params[t];
    const double decay = stage->decay[t] ? job->train.optimizer.weight_decay : 0.0;
    if (job->train.optimizer.kind == OPTIMIZER_SGD) {
        const struct sgd o = {.lr = (float)lr,
                              .momentum = (float)job->train.optimizer.momentum,
                              .weight_decay = (float)decay,
                              .grad_mul = grad_mul};
        be->sgd(be, p->num_elems, &o, p->grad, p->weight, p->state[0]);
        return;
    }
    const struct adam o = {.lr = lr,
                           .beta1 = job->train.optimizer.beta1,
                           .beta2 = job->train.optimizer.beta2,
                           .eps = job->train.optimizer.eps,
                           .weight_decay = decay,
                           .grad_mul = grad_mul,
                           .step = (int64_t)step + 1};
    if (job->train.optimizer.kind == OPTIMIZER_LAMB)
        be->lamb(be, p->num_elems, &o, p->grad, p->weight, p->state[0], p->state[1]);
    else
        be->adamw(be, p->num_elems, &o, p->grad, p->weight, p->state[0], p->state[1]);
}

enum status stage_update(struct stage *stage, uint64_t step, double lr, float grad_mul,
                         struct err *err)
{
    struct backend *be = stage->spec.backend;
    stage_clock_start(stage);
    for (int t = 0; t < stage->num_params; t++) {
        const struct param *p = &stage->params[t];
        const int item = p->item - stage->spec.first_item;
        if (!p->frozen)
            update_tensor(stage, t, step, lr, grad_mul);
        if (t + 1 == stage->num_params || p[1].item != p->item) {
            if (!stage->layers[item].frozen)
                stage_round_item(stage, item);
            stage_clock_lap(stage, item, PASS_UPDATE);
        }
    }
    return be->sync(be, err);
}
