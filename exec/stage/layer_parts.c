#include "exec/stage/layer_parts.h"

#include <string.h>

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

/* The keys and values of the pass join those before it; its queries see all up to their own. */
static void attend_to_past(const struct layer_pass *p, const struct attention *a, int kv_heads)
{
    const struct past *past = p->past;
    const int d = a->head_dim, rows = (int)a->num_samples, width = a->heads * d;
    const float *qkv = p->stash[AT_QKV];
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < kv_heads; h++) {
            const float *key = qkv + (3 * (int64_t)r + 1) * width + h * (a->heads / kv_heads) * d;
            const int64_t at = ((int64_t)(past->num + r) * kv_heads + h) * d;
            memcpy(past->keys + at, key, (size_t)d * sizeof *key);
            memcpy(past->values + at, key + width, (size_t)d * sizeof *key);
        }
    const struct cached_attention cached = {rows, past->num, a->heads,   kv_heads,
                                            d,    a->window, past->keys, past->values};
    p->be->attention_cached(p->be, &cached, qkv, p->stash[AT_CTX]);
}

void layer_attend(const struct layer_pass *p, const struct attention *a, int kv_heads,
                  const struct dropout *probs)
{
    if (p->past)
        attend_to_past(p, a, kv_heads);
    else
        p->be->attention_forward(p->be, a, p->stash[AT_QKV], probs, p->stash[AT_CTX],
                                 p->stash[AT_LSE]);
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

struct layernorm layer_norm_of(const struct layer_pass *p, const float *gamma, const float *beta)
{
    return (struct layernorm){.rows = p->batch->num_samples * p->arch->seq,
                              .cols = p->arch->hidden,
                              .gamma = gamma,
                              .beta = beta,
                              .eps = p->arch->eps};
}
