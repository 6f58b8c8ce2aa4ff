/* The passes of attention, mlp and norm items, and the dispatch by kind of item. Embeddings are in
 * embed.c, poolers and heads in heads.c, decoders of the llama family in decoder.c.
 *
 * Each kind has three functions: forward, backward_input, backward_weight (layers.h describes the
 * two halves). With pre-norm (vit, gpt) the norm is the item's first step, with post-norm (bert)
 * its last. Gradients of norms and biases that kernels sum on the way are collected in the stash
 * buffer PART and added by add_item(). Read mlp_forward() and mlp_backward_input() first: attention
 * has the same shape. */
#include "exec/stage/layers.h"

#include <stddef.h>

#include "exec/stage/adapters.h"
#include "exec/stage/decoder.h"
#include "exec/stage/embed.h"
#include "exec/stage/heads.h"

static struct linear dense(const struct layer_pass *p, int in, int out)
{
    return (struct linear){.rows = p->batch->num_samples * p->arch->seq,
                           .in = in,
                           .out = out,
                           .in_out = p->arch->in_out,
                           .fresh = p->fresh,
                           .alone = p->past != NULL};
}

static struct attention heads(const struct layer_pass *p)
{
    return (struct attention){.num_samples = p->batch->num_samples,
                              .seq = p->arch->seq,
                              .heads = p->arch->heads,
                              .head_dim = p->arch->hidden / p->arch->heads,
                              .causal = p->arch->causal,
                              .lengths = p->batch->lengths,
                              .starts =
                                  p->arch->causal && p->batch->documents ? p->batch->types : NULL};
}

static void norm_forward(const struct layer *l, const struct layer_pass *p, const void *x, float *y,
                         float *stats)
{
    const struct layernorm norm = layer_norm_of(p, l->w[NORM_G], l->w[NORM_B]);
    p->be->layernorm_forward(p->be, &norm, x, y, stats);
}

/* The place in PART, after gamma and beta, where the norm's backward puts this micro-batch's
 * gradient of the bias of the item's last linear layer. Without dropout the backward has that
 * gradient at no cost. With pre-norm the linear's output is the residual, so the bias gradient
 * is the column sums of `add`; with post-norm it is those of dx. NULL: layer_backward_weight()
 * must sum. */
static float *last_sums(const struct layer_pass *p)
{
    const bool has = p->be->sums_norm && p->dropout == 0.0f;
    return has ? (float *)p->stash[PART] + 2 * p->arch->hidden : NULL;
}

static void norm_backward(const struct layer *l, const struct layer_pass *p, const void *dy,
                          const void *x, const float *stats, const void *add, void *dx)
{
    struct layernorm norm = layer_norm_of(p, l->w[NORM_G], l->w[NORM_B]);
    norm.sums = l->kind != ITEM_NORM && last_sums(p);
    p->be->layernorm_backward(p->be, &norm, dy, x, stats, add, dx, p->stash[PART]);
}

/* Adds all of PART to the accumulators of an item. `last`: block of the last linear's bias. `wide`:
 * block of the wide linear's bias, of which PART has `num` elements (0: none). */
static void add_item(const struct layer *l, const struct layer_pass *p, int last, int wide,
                     int64_t num)
{
    const int h = p->arch->hidden;
    const struct layer_part parts[] = {
        {h,   l->g[NORM_G]                    },
        {h,   l->g[NORM_B]                    },
        {h,   last_sums(p) ? l->g[last] : NULL},
        {num, num > 0 ? l->g[wide] : NULL     }
    };
    layer_add_parts(p, parts, 4);
}

/* --- attention ------------------------------------------------------------------------------ */

/* U-ViT: the linear from [x, skip] back to the width of x. */
static struct linear join_linear(const struct layer_pass *p)
{
    return dense(p, 2 * p->arch->hidden, p->arch->hidden);
}

static void join_backward_input(const struct layer *l, const struct layer_pass *p, void *dx)
{
    const struct linear join = join_linear(p);
    if (!dx && !p->skip_dx)
        return;
    p->be->linear_backward_input(p->be, &join, p->stash[AT_JOIN], l->low[JOIN_W], 1.0f, ACT_NONE,
                                 NULL, NULL, p->wide);
    p->be->split(p->be, join.rows, p->arch->hidden, p->wide, dx, p->skip_dx);
}

static void attention_forward(const struct layer *l, const struct layer_pass *p)
{
    struct backend *be = p->be;
    const int h = p->arch->hidden;
    void *const *st = p->stash;
    const struct linear qkv = dense(p, h, 3 * h), out = dense(p, h, h);
    const struct attention a = heads(p);
    const struct dropout probs = layer_dropout(l, p, SITE_PROBS, 0);
    const struct dropout drop = layer_dropout(l, p, SITE_ATTENTION, p->arch->seq);
    const void *x = p->x, *in = x;
    if (l->joins) {
        const struct linear join = join_linear(p);
        be->join(be, join.rows, h, x, p->skip, st[AT_CAT]);
        be->linear_forward(be, &join, st[AT_CAT], l->low[JOIN_W], l->low[JOIN_B], ACT_NONE, NULL,
                           NULL, NULL, st[AT_JOIN]);
        x = st[AT_JOIN];
    }
    if (!p->arch->post_norm) {
        norm_forward(l, p, x, st[AT_LN], st[AT_STATS]);
        in = st[AT_LN];
    }
    be->linear_forward(be, &qkv, in, l->low[QKV_W], l->low[QKV_B], ACT_NONE, NULL, NULL, NULL,
                       st[AT_QKV]);
    adapters_forward(l, p, true, in, st[AT_QKV]);
    layer_attend(p, &a, a.heads, &probs);
    be->linear_forward(be, &out, st[AT_CTX], l->low[OUT_W], l->low[OUT_B], ACT_NONE, x, &drop, NULL,
                       p->arch->post_norm ? st[AT_LN] : p->y);
    adapters_forward(l, p, false, st[AT_CTX], p->arch->post_norm ? st[AT_LN] : p->y);
    if (p->arch->post_norm)
        norm_forward(l, p, st[AT_LN], p->y, st[AT_STATS]);
}

/* The place in PART, after last_sums(), where attention's backward puts the gradient of qkv's
 * bias. NULL: it does not sum. */
static float *qkv_sums(const struct layer_pass *p, const struct attention *a,
                       const struct dropout *probs)
{
    const bool has = p->be->sums_dqkv && p->be->sums_dqkv(p->be, a, probs);
    return has ? (float *)p->stash[PART] + 3 * p->arch->hidden : NULL;
}

static void *dqkv_of(const struct layer_pass *p)
{
    return p->aside ? p->aside : p->stash[AT_QKV];
}

static void attention_backward_input(const struct layer *l, const struct layer_pass *p,
                                     const void *dy, void *dx)
{
    struct backend *be = p->be;
    const int h = p->arch->hidden;
    void *const *st = p->stash;
    const struct linear qkv = dense(p, h, 3 * h), out = dense(p, h, h);
    struct attention a = heads(p);
    const struct dropout probs = layer_dropout(l, p, SITE_PROBS, 0);
    void *dqkv = dqkv_of(p);
    a.dqkv_sums = qkv_sums(p, &a, &probs);
    if (p->arch->post_norm) {
        norm_backward(l, p, dy, st[AT_LN], st[AT_STATS], NULL, st[AT_LN]);
        dy = st[AT_LN];
    }
    const void *dout = layer_masked(l, p, SITE_ATTENTION, dy);
    be->linear_backward_input(be, &out, dout, l->low[OUT_W], 1.0f, ACT_NONE, NULL, NULL,
                              p->scratch[0]);
    adapters_backward_input(l, p, false, dout, p->scratch[0]);
    be->attention_backward(be, &a, st[AT_QKV], &probs, st[AT_CTX], st[AT_LSE], p->scratch[0], dqkv);
    if (p->arch->post_norm) {
        if (dx) {
            be->linear_backward_input(be, &qkv, dqkv, l->low[QKV_W], 1.0f, ACT_NONE, NULL, dy, dx);
            adapters_backward_input(l, p, true, dqkv, dx);
        }
        return;
    }
    be->linear_backward_input(be, &qkv, dqkv, l->low[QKV_W], 1.0f, ACT_NONE, NULL, NULL,
                              p->scratch[0]);
    adapters_backward_input(l, p, true, dqkv, p->scratch[0]);
    if (l->joins) {
        norm_backward(l, p, p->scratch[0], st[AT_JOIN], st[AT_STATS], dy, st[AT_JOIN]);
        join_backward_input(l, p, dx);
        return;
    }
    norm_backward(l, p, p->scratch[0], p->x, st[AT_STATS], dy, dx);
}

static void attention_backward_weight(const struct layer *l, const struct layer_pass *p,
                                      const void *dy)
{
    struct backend *be = p->be;
    const int h = p->arch->hidden;
    void *const *st = p->stash;
    const struct linear qkv = dense(p, h, 3 * h), out = dense(p, h, h);
    const struct attention a = heads(p);
    const struct dropout probs = layer_dropout(l, p, SITE_PROBS, 0);
    const float *sums = qkv_sums(p, &a, &probs);
    const void *dout = layer_masked(l, p, SITE_ATTENTION, p->arch->post_norm ? st[AT_LN] : dy);
    const void *in = p->arch->post_norm ? p->x : st[AT_LN];
    adapters_backward_weight(l, p, false, dout, st[AT_CTX]);
    adapters_backward_weight(l, p, true, dqkv_of(p), in);
    if (model_item_is_base(p->model, l->item)) /* which has no gradients at all */
        return;
    be->linear_backward_weight(be, &out, dout, st[AT_CTX], 1.0f, l->g[OUT_W],
                               last_sums(p) ? NULL : l->g[OUT_B]);
    be->linear_backward_weight(be, &qkv, dqkv_of(p), in, 1.0f, l->g[QKV_W],
                               sums ? NULL : l->g[QKV_B]);
    if (l->joins) {
        const struct linear join = join_linear(p);
        be->linear_backward_weight(be, &join, st[AT_JOIN], st[AT_CAT], 1.0f, l->g[JOIN_W],
                                   l->g[JOIN_B]);
    }
    add_item(l, p, OUT_B, QKV_B, sums ? 3 * h : 0);
}

/* --- mlp ------------------------------------------------------------------------------------ */

/* The place in PART, after last_sums(), where the GELU's backward puts the gradient of fc1's
 * bias. NULL: it does not sum. */
static float *wide_sums(const struct layer_pass *p)
{
    const bool has = p->be->sums_dx && p->be->sums_dx(p->be, p->arch->gelu);
    return has ? (float *)p->stash[PART] + 3 * p->arch->hidden : NULL;
}

static void mlp_forward(const struct layer *l, const struct layer_pass *p)
{
    struct backend *be = p->be;
    const int h = p->arch->hidden, wide = p->arch->mlp;
    void *const *st = p->stash;
    const struct linear fc1 = dense(p, h, wide), fc2 = dense(p, wide, h);
    const struct dropout drop = layer_dropout(l, p, SITE_MLP, p->arch->seq);
    const void *in = p->x;
    if (!p->arch->post_norm) {
        norm_forward(l, p, p->x, st[ML_LN], st[ML_STATS]);
        in = st[ML_LN];
    }
    if (adapters_on(l, p, true)) {
        be->linear_forward(be, &fc1, in, l->low[FC1_W], l->low[FC1_B], ACT_NONE, NULL, NULL, NULL,
                           st[ML_PRE]);
        adapters_forward(l, p, true, in, st[ML_PRE]);
        be->act_forward(be, fc1.rows * wide, p->arch->gelu, st[ML_PRE], st[ML_GELU]);
    } else {
        be->linear_forward(be, &fc1, in, l->low[FC1_W], l->low[FC1_B], p->arch->gelu, NULL, NULL,
                           st[ML_PRE], st[ML_GELU]);
    }
    be->linear_forward(be, &fc2, st[ML_GELU], l->low[FC2_W], l->low[FC2_B], ACT_NONE, p->x, &drop,
                       NULL, p->arch->post_norm ? st[ML_LN] : p->y);
    adapters_forward(l, p, false, st[ML_GELU], p->arch->post_norm ? st[ML_LN] : p->y);
    if (p->arch->post_norm)
        norm_forward(l, p, st[ML_LN], p->y, st[ML_STATS]);
}

static void mlp_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                               void *dx)
{
    struct backend *be = p->be;
    const int h = p->arch->hidden, wide = p->arch->mlp;
    void *const *st = p->stash;
    const struct linear fc1 = dense(p, h, wide);
    struct linear fc2 = dense(p, wide, h);
    fc2.dx_sums = wide_sums(p);
    if (p->arch->post_norm) {
        norm_backward(l, p, dy, st[ML_LN], st[ML_STATS], NULL, st[ML_LN]);
        dy = st[ML_LN];
    }
    const void *dout = layer_masked(l, p, SITE_MLP, dy);
    if (adapters_on(l, p, false)) {
        fc2.dx_sums = NULL;
        be->linear_backward_input(be, &fc2, dout, l->low[FC2_W], 1.0f, ACT_NONE, NULL, NULL,
                                  p->scratch[0]);
        adapters_backward_input(l, p, false, dout, p->scratch[0]);
        be->act_backward(be, fc2.rows * wide, p->arch->gelu, st[ML_PRE], p->scratch[0], st[ML_PRE]);
    } else {
        be->linear_backward_input(be, &fc2, dout, l->low[FC2_W], 1.0f, p->arch->gelu, st[ML_PRE],
                                  NULL, st[ML_PRE]);
    }
    if (p->arch->post_norm) {
        if (dx) {
            be->linear_backward_input(be, &fc1, st[ML_PRE], l->low[FC1_W], 1.0f, ACT_NONE, NULL, dy,
                                      dx);
            adapters_backward_input(l, p, true, st[ML_PRE], dx);
        }
        return;
    }
    be->linear_backward_input(be, &fc1, st[ML_PRE], l->low[FC1_W], 1.0f, ACT_NONE, NULL, NULL,
                              p->scratch[0]);
    adapters_backward_input(l, p, true, st[ML_PRE], p->scratch[0]);
    norm_backward(l, p, p->scratch[0], p->x, st[ML_STATS], dy, dx);
}

static void mlp_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy)
{
    struct backend *be = p->be;
    const int h = p->arch->hidden, wide = p->arch->mlp;
    void *const *st = p->stash;
    const struct linear fc1 = dense(p, h, wide), fc2 = dense(p, wide, h);
    const void *dout = layer_masked(l, p, SITE_MLP, p->arch->post_norm ? st[ML_LN] : dy);
    const void *in = p->arch->post_norm ? p->x : st[ML_LN];
    adapters_backward_weight(l, p, false, dout, st[ML_GELU]);
    adapters_backward_weight(l, p, true, st[ML_PRE], in);
    if (model_item_is_base(p->model, l->item))
        return;
    be->linear_backward_weight(be, &fc2, dout, st[ML_GELU], 1.0f, l->g[FC2_W],
                               last_sums(p) ? NULL : l->g[FC2_B]);
    const float *sums = wide_sums(p);
    be->linear_backward_weight(be, &fc1, st[ML_PRE], in, 1.0f, l->g[FC1_W],
                               sums ? NULL : l->g[FC1_B]);
    add_item(l, p, FC2_B, FC1_B, sums ? wide : 0);
}

/* --- final norm ------------------------------------------------------------------------------ */

static void final_forward(const struct layer *l, const struct layer_pass *p)
{
    norm_forward(l, p, p->x, p->y, p->stash[NO_STATS]);
}

static void final_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                                 void *dx)
{
    norm_backward(l, p, dy, p->x, p->stash[NO_STATS], NULL, dx);
}

static void final_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy)
{
    (void)dy;
    layer_add_norm(l, p, NORM_G);
}

/* --- dispatch ------------------------------------------------------------------------------- */

/* arch_init() refuses models with items of other kinds. */
struct passes {
    void (*forward)(const struct layer *l, const struct layer_pass *p);
    void (*backward_input)(const struct layer *l, const struct layer_pass *p, const void *dy,
                           void *dx);
    void (*backward_weight)(const struct layer *l, const struct layer_pass *p, const void *dy);
};
static const struct passes kinds[ITEM_KIND_COUNT] = {
    [ITEM_EMBEDDING] = {embedding_forward, embedding_backward_input, embedding_backward_weight},
    [ITEM_ATTENTION] = {attention_forward, attention_backward_input, attention_backward_weight},
    [ITEM_MLP] = {mlp_forward,       mlp_backward_input,       mlp_backward_weight      },
    [ITEM_NORM] = {final_forward,     final_backward_input,     final_backward_weight    },
    [ITEM_POOLER] = {pooler_forward,    pooler_backward_input,    pooler_backward_weight   },
    [ITEM_HEAD] = {head_forward,      head_backward_input,      head_backward_weight     },
};

/* Items of decoders whose passes differ. */
static const struct passes decoder_kinds[ITEM_KIND_COUNT] = {
    [ITEM_ATTENTION] = {decoder_attention_forward, decoder_attention_backward_input,
                        decoder_attention_backward_weight                                                        },
    [ITEM_MLP] = {decoder_mlp_forward,       decoder_mlp_backward_input,       decoder_mlp_backward_weight },
    [ITEM_NORM] = {decoder_norm_forward,      decoder_norm_backward_input,      decoder_norm_backward_weight},
};

static const struct passes *passes_of(const struct layer *l, const struct layer_pass *p)
{
    const bool own = p->arch->decoder && decoder_kinds[l->kind].forward;
    return own ? &decoder_kinds[l->kind] : &kinds[l->kind];
}

void layer_forward(const struct layer *l, const struct layer_pass *p)
{
    passes_of(l, p)->forward(l, p);
}

void layer_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                          void *dx)
{
    passes_of(l, p)->backward_input(l, p, dy, dx);
}

void layer_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy)
{
    passes_of(l, p)->backward_weight(l, p, dy);
}

bool layer_writes(const struct layer *l)
{
    return l->kind != ITEM_EMBEDDING;
}

bool layer_in_place(const struct layer *l, const struct arch *arch)
{
    return l->kind == ITEM_NORM ||
           (!arch->post_norm && (l->kind == ITEM_ATTENTION || l->kind == ITEM_MLP));
}
