#include "exec/stage/adapters.h"

/* A as a linear from x to the rank. */
static struct linear inner(const struct layer_pass *p, const struct adapter *a)
{
    return (struct linear){.rows = p->batch->num_samples * p->arch->seq,
                           .in = a->in,
                           .out = p->model->lora.rank,
                           .fresh = p->fresh};
}

/* B backwards, as a linear from y to the rank: its forward is dy B, and the gradient of its input is
 * z B^T with a scale, added to what is there. So B needs no kernel of its own. */
static struct linear outer(const struct layer_pass *p, const struct adapter *a)
{
    return (struct linear){.rows = p->batch->num_samples * p->arch->seq,
                           .in = a->out,
                           .out = p->model->lora.rank,
                           .in_out = true,
                           .x_stride = a->stride,
                           .fresh = p->fresh};
}

static void product(const struct layer_pass *p, const struct linear *l, const void *x,
                    const void *w, void *y)
{
    p->be->linear_forward(p->be, l, x, w, NULL, ACT_NONE, NULL, NULL, NULL, y);
}

static void add_product(const struct layer_pass *p, const struct linear *l, const void *z,
                        const void *w, void *y)
{
    p->be->linear_backward_input(p->be, l, z, w, p->model->lora.scale, ACT_NONE, NULL, y, y);
}

void adapters_forward(const struct layer *l, const struct layer_pass *p, bool first, const void *x,
                      void *y)
{
    struct adapter list[ITEM_ADAPTERS];
    const int num = adapters_of(p->model, p->arch, l->item, list);
    for (int i = 0; i < num; i++) {
        void *const *w = &l->low[ADAPTERS + 2 * i];
        const struct linear a = inner(p, &list[i]), b = outer(p, &list[i]);
        if (list[i].first != first)
            continue;
        product(p, &a, x, w[0], p->scratch[1]);
        add_product(p, &b, p->scratch[1], w[1], backend_at(p->be, y, list[i].column));
    }
}

void adapters_backward_input(const struct layer *l, const struct layer_pass *p, bool first,
                             const void *dy, void *dx)
{
    struct adapter list[ITEM_ADAPTERS];
    const int num = adapters_of(p->model, p->arch, l->item, list);
    for (int i = 0; i < num; i++) {
        void *const *w = &l->low[ADAPTERS + 2 * i];
        const struct linear a = inner(p, &list[i]), b = outer(p, &list[i]);
        if (list[i].first != first)
            continue;
        product(p, &b, backend_at_const(p->be, dy, list[i].column), w[1], p->scratch[1]);
        add_product(p, &a, p->scratch[1], w[0], dx);
    }
}

void adapters_backward_weight(const struct layer *l, const struct layer_pass *p, bool first,
                              const void *dy, const void *x)
{
    struct backend *be = p->be;
    struct adapter list[ITEM_ADAPTERS];
    const int num = adapters_of(p->model, p->arch, l->item, list);
    const float scale = p->model->lora.scale;
    for (int i = 0; i < num; i++) {
        const int block = ADAPTERS + 2 * i;
        const struct linear a = inner(p, &list[i]), b = outer(p, &list[i]);
        const void *part = backend_at_const(be, dy, list[i].column);
        if (list[i].first != first)
            continue;
        product(p, &a, x, l->low[block], p->scratch[1]);
        be->linear_backward_weight(be, &b, p->scratch[1], part, scale, l->g[block + 1], NULL);
        product(p, &b, part, l->low[block + 1], p->scratch[1]);
        be->linear_backward_weight(be, &a, p->scratch[1], x, scale, l->g[block], NULL);
    }
}

void adapter_merge(int64_t out, int64_t in, int rank, float scale, const float *a, const float *b,
                   float *w)
{
    for (int64_t o = 0; o < out; o++)
        for (int r = 0; r < rank; r++) {
            const float part = scale * b[o * rank + r];
            for (int64_t i = 0; i < in; i++)
                w[o * in + i] += part * a[r * in + i];
        }
}
