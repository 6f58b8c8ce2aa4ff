#include "exec/stage/adapters.h"

/* What the passes of an item's adapters share. */
struct sides {
    struct adapter list[LORA_PRODUCTS];
    int num;
    struct linear a, b;
};

/* A is a linear from x to the rank. B backwards is a linear from y to the rank: its forward is dy B, and
 * the gradient of its input is z B^T with a scale, added to what is there. So B needs no kernel of its
 * own. The pooler reads the first token of each sample. */
static struct sides sides_of(const struct layer *l, const struct layer_pass *p)
{
    const int64_t n = p->batch->num_samples, seq = p->arch->seq;
    const bool pooler = l->kind == ITEM_POOLER;
    struct sides s;
    s.num = adapters_of(p->model, l->item, s.list);
    s.a = (struct linear){.rows = pooler ? n : n * seq,
                          .out = p->model->lora.rank,
                          .x_stride = pooler ? seq * p->arch->hidden : 0,
                          .fresh = p->fresh};
    s.b = s.a;
    s.b.in_out = true;
    return s;
}

static void set_widths(struct sides *s, const struct adapter *adapter)
{
    s->a.in = adapter->in;
    s->b.in = adapter->out;
    s->b.x_stride = adapter->stride;
}

static void product(const struct layer_pass *p, const struct linear *l, const void *x,
                    const void *w, void *y)
{
    p->be->linear_forward(p->be, l, x, w, NULL, ACT_NONE, NULL, NULL, NULL, y);
}

/* Both directions are a product to the rank and one back, whose result is added: forward by A, then B,
 * from x to y; backward by B, then A, from dy to dx. */
static void add_adapter(const struct layer *l, const struct layer_pass *p, bool first,
                        bool backward, const void *from, void *to)
{
    struct sides s = sides_of(l, p);
    for (int i = 0; i < s.num; i++) {
        void *const *w = &l->low[ADAPTERS + 2 * i];
        const int64_t column = s.list[i].column;
        const struct linear *in = backward ? &s.b : &s.a, *out = backward ? &s.a : &s.b;
        void *sum = backend_at(p->be, to, backward ? 0 : column);
        if (s.list[i].first != first)
            continue;
        set_widths(&s, &s.list[i]);
        product(p, in, backend_at_const(p->be, from, backward ? column : 0), w[backward],
                p->scratch[1]);
        p->be->linear_backward_input(p->be, out, p->scratch[1], w[!backward], p->model->lora.scale,
                                     ACT_NONE, NULL, sum, sum);
    }
}

bool adapters_on(const struct layer *l, const struct layer_pass *p, bool first)
{
    const struct sides s = sides_of(l, p);
    for (int i = 0; i < s.num; i++)
        if (s.list[i].first == first)
            return true;
    return false;
}

void adapters_forward(const struct layer *l, const struct layer_pass *p, bool first, const void *x,
                      void *y)
{
    add_adapter(l, p, first, false, x, y);
}

void adapters_backward_input(const struct layer *l, const struct layer_pass *p, bool first,
                             const void *dy, void *dx)
{
    add_adapter(l, p, first, true, dy, dx);
}

void adapters_backward_weight(const struct layer *l, const struct layer_pass *p, bool first,
                              const void *dy, const void *x)
{
    struct backend *be = p->be;
    struct sides s = sides_of(l, p);
    const float scale = p->model->lora.scale;
    for (int i = 0; i < s.num; i++) {
        const int block = ADAPTERS + 2 * i;
        const void *part = backend_at_const(be, dy, s.list[i].column);
        if (s.list[i].first != first)
            continue;
        set_widths(&s, &s.list[i]);
        product(p, &s.a, x, l->low[block], p->scratch[1]);
        be->linear_backward_weight(be, &s.b, p->scratch[1], part, scale, l->g[block + 1], NULL);
        product(p, &s.b, part, l->low[block + 1], p->scratch[1]);
        be->linear_backward_weight(be, &s.a, p->scratch[1], x, scale, l->g[block], NULL);
    }
}

void adapter_merge(int64_t out, int64_t in, bool in_out, int rank, float scale, const float *a,
                   const float *b, float *w)
{
    const int64_t row = in_out ? 1 : in, column = in_out ? out : 1;
    for (int64_t o = 0; o < out; o++)
        for (int r = 0; r < rank; r++) {
            const float part = scale * b[o * rank + r];
            for (int64_t i = 0; i < in; i++)
                w[o * row + i * column] += part * a[r * in + i];
        }
}
