#include "exec/stage/layer_parts.h"

#include "exec/base/rng.h"

struct dropout layer_dropout(const struct layer *l, const struct layer_pass *p,
                             enum dropout_site site, int64_t rows_per_sample)
{
    return (struct dropout){.p = p->dropout,
                            .key = rng_key(p->seed, p->step, (uint64_t)l->item, site),
                            .ids = p->batch->ids,
                            .rows_per_sample = rows_per_sample};
}

const void *layer_masked(const struct layer *l, const struct layer_pass *p, enum dropout_site site,
                         const void *dy)
{
    if (p->dropout == 0.0f)
        return dy;
    const struct dropout drop = layer_dropout(l, p, site, p->arch->seq);
    p->be->dropout(p->be, p->batch->num_samples * p->arch->seq, p->arch->hidden, &drop, dy,
                   p->scratch[1]);
    return p->scratch[1];
}

/* Adds this micro-batch's sums to their accumulator; fresh: writes them. */
static void add_sums(const struct layer_pass *p, int64_t num, const float *sums, float *grad)
{
    if (p->fresh)
        p->be->copy(p->be, grad, sums, num * (int64_t)sizeof *grad);
    else
        p->be->accumulate(p->be, num, sums, grad);
}

/* The sums lie in a row; parts whose accumulators do too are added in one call. */
void layer_add_parts(const struct layer_pass *p, const struct layer_part *parts, int num)
{
    const float *sums = p->stash[PART];
    for (int i = 0; i < num;) {
        float *grad = parts[i].grad;
        int64_t elems = parts[i++].num;
        while (grad && i < num && parts[i].grad == grad + elems)
            elems += parts[i++].num;
        if (grad)
            add_sums(p, elems, sums, grad);
        sums += elems;
    }
}

void layer_add_norm(const struct layer *l, const struct layer_pass *p, int block)
{
    const int h = p->arch->hidden;
    const struct layer_part parts[] = {
        {h, l->g[block]    },
        {h, l->g[block + 1]}
    };
    layer_add_parts(p, parts, 2);
}
