/* Llama-type layers: RMSNorm, linear of queries, keys and values, rotary positions, attention,
 * linear, residual add; RMSNorm, gate and up, their gated product, down, residual add. The norm is
 * always the first step. Read decoder_mlp_forward() and decoder_mlp_backward_input() first. */
#include "exec/stage/decoder.h"

#include <stddef.h>

#include "exec/stage/adapters.h"

static int64_t rows_of(const struct layer_pass *p)
{
    return p->batch->num_samples * p->arch->seq;
}

static struct linear dense(const struct layer_pass *p, int in, int out)
{
    return (struct linear){
        .rows = rows_of(p), .in = in, .out = out, .fresh = p->fresh, .alone = p->past != NULL};
}

static struct rmsnorm norm_of(const struct layer_pass *p)
{
    return (struct rmsnorm){.rows = rows_of(p),
                            .cols = p->arch->hidden,
                            .eps = p->arch->eps,
                            .plus = p->arch->decoder->plus};
}

static void norm_forward(const struct layer *l, const struct layer_pass *p, void *y, float *stats)
{
    const struct rmsnorm norm = norm_of(p);
    p->be->rmsnorm_forward(p->be, &norm, p->x, l->w[NORM_G], y, stats);
}

static void norm_backward(const struct layer *l, const struct layer_pass *p, const void *dy,
                          const float *stats, const void *add, void *dx)
{
    const struct rmsnorm norm = norm_of(p);
    p->be->rmsnorm_backward(p->be, &norm, dy, p->x, stats, l->w[NORM_G], add, dx, p->stash[PART]);
}

/* --- attention ------------------------------------------------------------------------------ */

static int query_cols(const struct arch *a)
{
    return a->heads * a->head_dim;
}

static struct linear heads_linear(const struct layer_pass *p)
{
    const struct arch *a = p->arch;
    return dense(p, a->hidden, query_cols(a) + 2 * a->kv_heads * a->head_dim);
}

static struct rotary rotary_of(const struct layer *l, const struct layer_pass *p)
{
    const struct arch *a = p->arch;
    const int64_t n = p->batch->num_samples;
    return (struct rotary){.num_samples = p->past ? 1 : n,
                           .seq = p->past ? (int)n : a->seq,
                           .heads = a->heads,
                           .kv_heads = a->kv_heads,
                           .head_dim = a->head_dim,
                           .angles =
                               p->angles + (p->past ? (int64_t)p->past->num * a->head_dim : 0),
                           .gamma = p->model->block.qk_norm == QK_NORM_HEAD ? l->w[QK_G] : NULL,
                           .eps = a->eps,
                           .plus = a->decoder->plus};
}

static struct attention attention_of(const struct layer *l, const struct layer_pass *p)
{
    return (struct attention){.num_samples = p->batch->num_samples,
                              .seq = p->arch->seq,
                              .heads = p->arch->heads,
                              .head_dim = p->arch->head_dim,
                              .causal = true,
                              .window = model_window(p->model, p->model->items[l->item].layer),
                              .lengths = p->batch->lengths,
                              .starts = p->batch->documents ? p->batch->types : NULL};
}

void decoder_attention_forward(const struct layer *l, const struct layer_pass *p)
{
    struct backend *be = p->be;
    void *const *st = p->stash;
    const struct linear heads = heads_linear(p),
                        out = dense(p, query_cols(p->arch), p->arch->hidden);
    const struct rotary rotary = rotary_of(l, p);
    const struct attention a = attention_of(l, p);
    const struct dropout probs = layer_dropout(l, p, SITE_PROBS, 0);
    const struct dropout drop = layer_dropout(l, p, SITE_ATTENTION, p->arch->seq);
    norm_forward(l, p, st[AT_LN], st[AT_STATS]);
    be->linear_forward(be, &heads, st[AT_LN], l->low[HEADS_W],
                       p->model->qkv_bias ? l->low[HEADS_B] : NULL, ACT_NONE, NULL, NULL, NULL,
                       st[AT_HEADS]);
    adapters_forward(l, p, true, st[AT_LN], st[AT_HEADS]);
    be->rotary_forward(be, &rotary, st[AT_HEADS], st[AT_QKV], st[AT_HEAD_STATS]);
    layer_attend(p, &a, p->arch->kv_heads, &probs);
    be->linear_forward(be, &out, st[AT_CTX], l->low[OUT_W], NULL, ACT_NONE, p->x, &drop, NULL,
                       p->y);
    adapters_forward(l, p, false, st[AT_CTX], p->y);
}

void decoder_attention_backward_input(const struct layer *l, const struct layer_pass *p,
                                      const void *dy, void *dx)
{
    struct backend *be = p->be;
    void *const *st = p->stash;
    const struct linear heads = heads_linear(p),
                        out = dense(p, query_cols(p->arch), p->arch->hidden);
    const struct rotary rotary = rotary_of(l, p);
    const struct attention a = attention_of(l, p);
    const struct dropout probs = layer_dropout(l, p, SITE_PROBS, 0);
    const void *dout = layer_masked(l, p, SITE_ATTENTION, dy);
    void *dqkv = p->aside ? p->aside : st[AT_QKV];
    be->linear_backward_input(be, &out, dout, l->low[OUT_W], 1.0f, ACT_NONE, NULL, NULL,
                              p->scratch[0]);
    adapters_backward_input(l, p, false, dout, p->scratch[0]);
    be->attention_backward(be, &a, st[AT_QKV], &probs, st[AT_CTX], st[AT_LSE], p->scratch[0], dqkv);
    be->rotary_backward(be, &rotary, dqkv, st[AT_HEADS], st[AT_HEAD_STATS], st[AT_HEADS],
                        (float *)st[PART] + p->arch->hidden);
    be->linear_backward_input(be, &heads, st[AT_HEADS], l->low[HEADS_W], 1.0f, ACT_NONE, NULL, NULL,
                              p->scratch[0]);
    adapters_backward_input(l, p, true, st[AT_HEADS], p->scratch[0]);
    norm_backward(l, p, p->scratch[0], st[AT_STATS], dy, dx);
}

void decoder_attention_backward_weight(const struct layer *l, const struct layer_pass *p,
                                       const void *dy)
{
    struct backend *be = p->be;
    void *const *st = p->stash;
    const struct linear heads = heads_linear(p),
                        out = dense(p, query_cols(p->arch), p->arch->hidden);
    const bool normed = p->model->block.qk_norm == QK_NORM_HEAD;
    const struct layer_part parts[] = {
        {p->arch->hidden,       l->g[NORM_G]              },
        {2 * p->arch->head_dim, normed ? l->g[QK_G] : NULL}
    };
    const void *dout = layer_masked(l, p, SITE_ATTENTION, dy);
    adapters_backward_weight(l, p, false, dout, st[AT_CTX]);
    adapters_backward_weight(l, p, true, st[AT_HEADS], st[AT_LN]);
    if (model_item_is_base(p->model, l->item)) /* which has no gradients at all */
        return;
    be->linear_backward_weight(be, &out, dout, st[AT_CTX], 1.0f, l->g[OUT_W], NULL);
    be->linear_backward_weight(be, &heads, st[AT_HEADS], st[AT_LN], 1.0f, l->g[HEADS_W],
                               p->model->qkv_bias ? l->g[HEADS_B] : NULL);
    layer_add_parts(p, parts, 2);
}

/* --- mlp ------------------------------------------------------------------------------------ */

void decoder_mlp_forward(const struct layer *l, const struct layer_pass *p)
{
    struct backend *be = p->be;
    void *const *st = p->stash;
    const int h = p->arch->hidden, wide = p->arch->mlp;
    const struct linear gate_up = dense(p, h, 2 * wide), down = dense(p, wide, h);
    const struct dropout drop = layer_dropout(l, p, SITE_MLP, p->arch->seq);
    norm_forward(l, p, st[ML_LN], st[ML_STATS]);
    be->linear_forward(be, &gate_up, st[ML_LN], l->low[GATE_UP_W], NULL, ACT_NONE, NULL, NULL, NULL,
                       st[ML_PRE]);
    adapters_forward(l, p, true, st[ML_LN], st[ML_PRE]);
    be->gate_forward(be, rows_of(p), wide, p->arch->decoder->gate, st[ML_PRE], st[ML_GELU]);
    be->linear_forward(be, &down, st[ML_GELU], l->low[DOWN_W], NULL, ACT_NONE, p->x, &drop, NULL,
                       p->y);
    adapters_forward(l, p, false, st[ML_GELU], p->y);
}

void decoder_mlp_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                                void *dx)
{
    struct backend *be = p->be;
    void *const *st = p->stash;
    const int h = p->arch->hidden, wide = p->arch->mlp;
    const struct linear gate_up = dense(p, h, 2 * wide), down = dense(p, wide, h);
    const void *dout = layer_masked(l, p, SITE_MLP, dy);
    be->linear_backward_input(be, &down, dout, l->low[DOWN_W], 1.0f, ACT_NONE, NULL, NULL,
                              p->scratch[0]);
    adapters_backward_input(l, p, false, dout, p->scratch[0]);
    be->gate_backward(be, rows_of(p), wide, p->arch->decoder->gate, st[ML_PRE], p->scratch[0],
                      st[ML_PRE]);
    be->linear_backward_input(be, &gate_up, st[ML_PRE], l->low[GATE_UP_W], 1.0f, ACT_NONE, NULL,
                              NULL, p->scratch[0]);
    adapters_backward_input(l, p, true, st[ML_PRE], p->scratch[0]);
    norm_backward(l, p, p->scratch[0], st[ML_STATS], dy, dx);
}

void decoder_mlp_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy)
{
    struct backend *be = p->be;
    void *const *st = p->stash;
    const int h = p->arch->hidden, wide = p->arch->mlp;
    const struct linear gate_up = dense(p, h, 2 * wide), down = dense(p, wide, h);
    const struct layer_part part = {h, l->g[NORM_G]};
    const void *dout = layer_masked(l, p, SITE_MLP, dy);
    adapters_backward_weight(l, p, false, dout, st[ML_GELU]);
    adapters_backward_weight(l, p, true, st[ML_PRE], st[ML_LN]);
    if (model_item_is_base(p->model, l->item))
        return;
    be->linear_backward_weight(be, &down, dout, st[ML_GELU], 1.0f, l->g[DOWN_W], NULL);
    be->linear_backward_weight(be, &gate_up, st[ML_PRE], st[ML_LN], 1.0f, l->g[GATE_UP_W], NULL);
    layer_add_parts(p, &part, 1);
}

/* --- final norm ------------------------------------------------------------------------------ */

void decoder_norm_forward(const struct layer *l, const struct layer_pass *p)
{
    norm_forward(l, p, p->y, p->stash[NO_STATS]);
}

void decoder_norm_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                                 void *dx)
{
    norm_backward(l, p, dy, p->stash[NO_STATS], NULL, dx);
}

void decoder_norm_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy)
{
    const struct layer_part part = {p->arch->hidden, l->g[NORM_G]};
    (void)dy;
    layer_add_parts(p, &part, 1);
}
