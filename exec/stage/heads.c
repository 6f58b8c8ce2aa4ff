/* The passes of poolers and heads; a head also computes the loss.
 *
 * head_forward() computes logits for the task (classify, qa, mlm, causal-lm), and xent() replaces
 * them by the gradient of the summed loss. So head_backward_input() and head_backward_weight()
 * start from st[HE_LOGITS]. The heads of language models multiply by the token table, which they
 * share with the embedding (table_of()). Read head_forward() first. */
#include "exec/stage/heads.h"

#include <stddef.h>

#include "exec/stage/adapters.h"

/* A linear over the first token of every sample: its rows are seq * hidden elements apart. */
static struct linear first_tokens(const struct layer_pass *p, int out)
{
    return (struct linear){.rows = p->batch->num_samples,
                           .in = p->arch->hidden,
                           .out = out,
                           .x_stride = (int64_t)p->arch->seq * p->arch->hidden,
                           .fresh = p->fresh};
}

static struct linear all_tokens(const struct layer_pass *p, int out)
{
    return (struct linear){.rows = p->batch->num_samples * p->arch->seq,
                           .in = p->arch->hidden,
                           .out = out,
                           .fresh = p->fresh};
}

static struct linear masked_tokens(const struct layer_pass *p, int out)
{
    return (struct linear){
        .rows = p->batch->num_rows, .in = p->arch->hidden, .out = out, .fresh = p->fresh};
}

/* The token table as a linear, over all tokens or only the masked ones. */
static struct linear table_of(const struct layer_pass *p)
{
    struct linear table = p->arch->task == TASK_MLM ? masked_tokens(p, p->arch->table_rows)
                                                    : all_tokens(p, p->arch->table_rows);
    table.y_stride = p->arch->logit_stride;
    return table;
}

/* --- BERT's pooler: tanh of a dense layer over the first token ------------------------------- */

void pooler_forward(const struct layer *l, const struct layer_pass *p)
{
    const struct linear lin = first_tokens(p, p->arch->hidden);
    const bool adapted = adapters_on(l, p, true);
    p->be->linear_forward(p->be, &lin, p->x, l->low[DENSE_W], l->low[DENSE_B],
                          adapted ? ACT_NONE : ACT_TANH, NULL, NULL, NULL, p->y);
    if (adapted) {
        adapters_forward(l, p, true, p->x, p->y);
        p->be->act_forward(p->be, lin.rows * lin.out, ACT_TANH, p->y, p->y);
    }
}

void pooler_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                           void *dx)
{
    struct backend *be = p->be;
    const struct linear lin = first_tokens(p, p->arch->hidden);
    void *grad = p->stash[PO_GRAD];
    be->act_backward(be, lin.rows * lin.out, ACT_TANH, p->y, dy, grad);
    if (dx) {
        be->zero(be, dx, backend_bytes(be, lin.rows * lin.x_stride));
        be->linear_backward_input(be, &lin, grad, l->low[DENSE_W], 1.0f, ACT_NONE, NULL, NULL, dx);
        adapters_backward_input(l, p, true, grad, dx);
    }
}

void pooler_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy)
{
    (void)dy; /* PO_GRAD comes from it */
    const struct linear lin = first_tokens(p, p->arch->hidden);
    adapters_backward_weight(l, p, true, p->stash[PO_GRAD], p->x);
    if (model_item_is_base(p->model, l->item))
        return;
    p->be->linear_backward_weight(p->be, &lin, p->stash[PO_GRAD], p->x, 1.0f, l->g[DENSE_W],
                                  l->g[DENSE_B]);
}

/* --- heads ----------------------------------------------------------------------------------- */

/* The classifier. ViT reads the first token of the last norm; BERT the pooled vector, after
 * dropout. */
static struct linear classifier(const struct layer_pass *p)
{
    struct linear lin = first_tokens(p, p->arch->outputs);
    if (p->arch->family == FAMILY_BERT)
        lin.x_stride = 0;
    return lin;
}

static bool drops_input(const struct layer_pass *p)
{
    return p->arch->family == FAMILY_BERT && p->dropout > 0.0f;
}

/* The logits of the masked tokens: a layer of their own, then the table. */
static void masked_forward(const struct layer *l, const struct layer_pass *p,
                           const struct linear *lin)
{
    struct backend *be = p->be;
    void *const *st = p->stash;
    const struct linear table = table_of(p);
    be->gather_rows(be, lin->rows, lin->in, p->batch->rows, p->x, p->scratch[0]);
    be->linear_forward(be, lin, p->scratch[0], l->low[DENSE_W], l->low[DENSE_B], ACT_GELU_ERF, NULL,
                       NULL, st[HE_PRE], st[HE_ACT]);
    const struct layernorm norm = {.rows = lin->rows,
                                   .cols = lin->out,
                                   .gamma = l->w[HEAD_G],
                                   .beta = l->w[HEAD_B],
                                   .eps = p->arch->eps};
    be->layernorm_forward(be, &norm, st[HE_ACT], st[HE_LN], st[HE_STATS]);
    be->linear_forward(be, &table, st[HE_LN], l->low[HEAD_TABLE], l->low[HEAD_BIAS], ACT_NONE, NULL,
                       NULL, NULL, st[HE_LOGITS]);
}

void head_forward(const struct layer *l, const struct layer_pass *p)
{
    struct backend *be = p->be;
    void *const *st = p->stash;
    const int64_t n = p->batch->num_samples, rows = n * p->arch->seq;
    struct xent loss = {.rows = rows,
                        .classes = p->arch->outputs,
                        .group = 1,
                        .group_stride = p->arch->logit_stride,
                        .class_stride = 1,
                        .smoothing = p->smoothing};
    const int32_t *labels = p->batch->labels;
    switch (p->arch->task) {
    case TASK_CLASSIFY: {
        const struct linear lin = classifier(p);
        const void *x = p->x;
        if (drops_input(p)) {
            const struct dropout drop = layer_dropout(l, p, SITE_HEAD, 1);
            be->dropout(be, n, p->arch->hidden, &drop, x, st[HE_DROP]);
            x = st[HE_DROP];
        }
        be->linear_forward(be, &lin, x, l->low[DENSE_W], l->low[DENSE_B], ACT_NONE, NULL, NULL,
                           NULL, st[HE_LOGITS]);
        loss.rows = n;
        break;
    }
    case TASK_QA: {
        const struct linear lin = all_tokens(p, 2);
        be->linear_forward(be, &lin, p->x, l->low[DENSE_W], l->low[DENSE_B], ACT_NONE, NULL, NULL,
                           NULL, st[HE_LOGITS]);
        /* Two rows a sample, start and end, with the positions as classes. */
        loss = (struct xent){.rows = 2 * n,
                             .classes = p->arch->seq,
                             .group = 2,
                             .group_stride = 2 * (int64_t)p->arch->seq,
                             .row_stride = 1,
                             .class_stride = 2,
                             .smoothing = p->smoothing};
        break;
    }
    case TASK_MLM: {
        const struct linear lin = masked_tokens(p, p->arch->hidden);
        if (lin.rows == 0) {
            be->zero(be, p->sums, sizeof *p->sums);
            return;
        }
        loss.rows = lin.rows;
        labels = p->batch->row_labels;
        masked_forward(l, p, &lin);
        break;
    }
    case TASK_CAUSAL_LM: {
        const struct linear table = table_of(p);
        be->linear_forward(be, &table, p->x, l->low[HEAD_TABLE], NULL, ACT_NONE, NULL, NULL, NULL,
                           st[HE_LOGITS]);
        break;
    }
    }
    be->xent(be, &loss, labels, st[HE_LOGITS], p->sums);
}

/* The input's half of masked_forward(). */
static void masked_backward_input(const struct layer *l, const struct layer_pass *p,
                                  const struct linear *lin, int64_t rows, void *dx)
{
    struct backend *be = p->be;
    void *const *st = p->stash;
    const struct linear table = table_of(p);
    be->linear_backward_input(be, &table, st[HE_LOGITS], l->low[HEAD_TABLE], p->grad_scale,
                              ACT_NONE, NULL, NULL, p->scratch[0]);
    const struct layernorm norm = {.rows = lin->rows, .cols = lin->out, .gamma = l->w[HEAD_G]};
    be->layernorm_backward(be, &norm, p->scratch[0], st[HE_ACT], st[HE_STATS], NULL, st[HE_GRAD],
                           st[PART]);
    be->act_backward(be, lin->rows * lin->out, ACT_GELU_ERF, st[HE_PRE], st[HE_GRAD], st[HE_GRAD]);
    if (dx) {
        be->linear_backward_input(be, lin, st[HE_GRAD], l->low[DENSE_W], 1.0f, ACT_NONE, NULL, NULL,
                                  p->scratch[0]);
        be->scatter_rows(be, rows, lin->rows, lin->in, p->batch->rows, p->scratch[0], dx);
    }
}

void head_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                         void *dx)
{
    const float scale = p->grad_scale;
    (void)dy;
    struct backend *be = p->be;
    void *const *st = p->stash;
    const int64_t n = p->batch->num_samples;
    switch (p->arch->task) {
    case TASK_CLASSIFY: {
        const struct linear lin = classifier(p);
        if (!dx)
            return;
        if (lin.x_stride)
            be->zero(be, dx, backend_bytes(be, n * lin.x_stride));
        be->linear_backward_input(be, &lin, st[HE_LOGITS], l->low[DENSE_W], scale, ACT_NONE, NULL,
                                  NULL, dx);
        if (drops_input(p)) {
            const struct dropout drop = layer_dropout(l, p, SITE_HEAD, 1);
            be->dropout(be, n, p->arch->hidden, &drop, dx, dx);
        }
        break;
    }
    case TASK_QA: {
        const struct linear lin = all_tokens(p, 2);
        if (dx)
            be->linear_backward_input(be, &lin, st[HE_LOGITS], l->low[DENSE_W], scale, ACT_NONE,
                                      NULL, NULL, dx);
        break;
    }
    case TASK_MLM: {
        const struct linear lin = masked_tokens(p, p->arch->hidden);
        const int64_t rows = n * p->arch->seq;
        if (lin.rows == 0) {
            if (dx)
                be->zero(be, dx, backend_bytes(be, rows * lin.in));
            return;
        }
        masked_backward_input(l, p, &lin, rows, dx);
        break;
    }
    case TASK_CAUSAL_LM: {
        const struct linear table = table_of(p);
        if (dx)
            be->linear_backward_input(be, &table, st[HE_LOGITS], l->low[HEAD_TABLE], scale,
                                      ACT_NONE, NULL, NULL, dx);
        break;
    }
    }
}

/* Gradients of a micro-batch without masked tokens: zero, which matters only if the accumulators
 * are fresh. */
static void add_nothing(const struct layer *l, const struct layer_pass *p)
{
    struct item_spec spec;
    if (!p->fresh)
        return;
    arch_item(p->model, p->arch, l->item, &spec);
    for (int b = 0; b < spec.num_blocks; b++)
        if (l->g[b])
            p->be->zero(p->be, l->g[b], spec.block_elems[b] * (int64_t)sizeof *l->g[b]);
}

void head_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy)
{
    const float scale = p->grad_scale;
    (void)dy;
    struct backend *be = p->be;
    void *const *st = p->stash;
    if (model_item_is_base(p->model, l->item)) /* only adapters train */
        return;
    switch (p->arch->task) {
    case TASK_CLASSIFY: {
        const struct linear lin = classifier(p);
        be->linear_backward_weight(be, &lin, st[HE_LOGITS], drops_input(p) ? st[HE_DROP] : p->x,
                                   scale, l->g[DENSE_W], l->g[DENSE_B]);
        break;
    }
    case TASK_QA: {
        const struct linear lin = all_tokens(p, 2);
        be->linear_backward_weight(be, &lin, st[HE_LOGITS], p->x, scale, l->g[DENSE_W],
                                   l->g[DENSE_B]);
        break;
    }
    case TASK_MLM: {
        const struct linear lin = masked_tokens(p, p->arch->hidden);
        const struct linear table = table_of(p);
        if (lin.rows == 0) {
            add_nothing(l, p);
            return;
        }
        be->gather_rows(be, lin.rows, lin.in, p->batch->rows, p->x, p->scratch[0]);
        be->linear_backward_weight(be, &lin, st[HE_GRAD], p->scratch[0], 1.0f, l->g[DENSE_W],
                                   l->g[DENSE_B]);
        layer_add_norm(l, p, HEAD_G);
        /* The table's gradient is NULL if it is frozen with the embedding. */
        be->linear_backward_weight(be, &table, st[HE_LOGITS], st[HE_LN], scale, l->g[HEAD_TABLE],
                                   l->g[HEAD_BIAS]);
        break;
    }
    case TASK_CAUSAL_LM: {
        const struct linear table = table_of(p);
        if (l->g[HEAD_TABLE])
            be->linear_backward_weight(be, &table, st[HE_LOGITS], p->x, scale, l->g[HEAD_TABLE],
                                       NULL);
        break;
    }
    }
}
