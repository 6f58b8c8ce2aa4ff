/* The passes of embedding items: patches (vit), or tables of tokens, positions and types (bert,
 * gpt), or of tokens (decoders). */
#include "exec/stage/embed.h"

#include <math.h>
#include <stddef.h>

static struct patches patches_of(const struct layer_pass *p)
{
    return (struct patches){.num_samples = p->batch->num_samples,
                            .channels = p->model->channels,
                            .image = p->model->image,
                            .patch = p->model->patch,
                            .hidden = p->arch->hidden};
}

static struct tokens tokens_of(const struct layer_pass *p)
{
    const int64_t n = p->batch->num_samples;
    return (struct tokens){.num_samples = p->past ? 1 : n,
                           .seq = p->past ? (int)n : p->arch->seq,
                           .hidden = p->arch->hidden,
                           .vocab = p->model->vocab,
                           .scale = p->arch->decoder && p->arch->decoder->scale_embedding
                                        ? sqrtf((float)p->arch->hidden)
                                        : 0.0f,
                           .ids = p->batch->tokens,
                           .types = p->batch->types};
}

/* The projection of patches: a convolution of p x p with stride p is a GEMM over patches. The class
 * token's row of patches is zero, and patch_finish() overwrites its output. */
static struct linear projection(const struct layer_pass *p)
{
    return (struct linear){.rows = p->batch->num_samples * p->arch->seq,
                           .in = p->model->channels * p->model->patch * p->model->patch,
                           .out = p->arch->hidden};
}

void embedding_forward(const struct layer *l, const struct layer_pass *p)
{
    struct backend *be = p->be;
    const int64_t rows = p->batch->num_samples * p->arch->seq;
    if (p->arch->family == FAMILY_VIT) {
        const struct patches patches = patches_of(p);
        const struct linear proj = projection(p);
        be->patchify(be, &patches, p->batch->images, p->cols);
        be->linear_forward(be, &proj, p->cols, l->low[PATCH_W], l->low[PATCH_B], ACT_NONE, NULL,
                           NULL, NULL, p->y);
        be->patch_finish(be, &patches, l->low[CLS], l->low[POS], p->y);
    } else {
        const struct tokens tokens = tokens_of(p);
        const bool bert = p->arch->family == FAMILY_BERT;
        const void *places = p->arch->decoder ? NULL : l->low[WORD_POS];
        if (places && p->past)
            places = backend_at_const(be, places, (int64_t)p->past->num * p->arch->hidden);
        be->tokens_forward(be, &tokens, l->low[WORD], places, bert ? l->low[TYPE] : NULL,
                           bert ? p->stash[EMB_SUM] : p->y);
        if (bert) {
            const struct layernorm norm = layer_norm_of(p, l->w[EMB_G], l->w[EMB_B]);
            be->layernorm_forward(be, &norm, p->stash[EMB_SUM], p->y, p->stash[EMB_STATS]);
        }
    }
    if (p->dropout > 0.0f) {
        const struct dropout drop = layer_dropout(l, p, SITE_EMBED, p->arch->seq);
        be->dropout(be, rows, p->arch->hidden, &drop, p->y, p->y);
    }
}

void embedding_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                              void *dx)
{
    (void)dx; /* its input has no gradient */
    if (p->arch->family != FAMILY_BERT)
        return;
    dy = layer_masked(l, p, SITE_EMBED, dy);
    const struct layernorm norm = layer_norm_of(p, l->w[EMB_G], l->w[EMB_B]);
    p->be->layernorm_backward(p->be, &norm, dy, p->stash[EMB_SUM], p->stash[EMB_STATS], NULL,
                              p->stash[EMB_SUM], p->stash[PART]);
}

void embedding_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy)
{
    struct backend *be = p->be;
    if (!l->g[0]) /* only adapters train */
        return;
    if (p->arch->family == FAMILY_BERT) {
        const struct tokens tokens = tokens_of(p);
        be->tokens_backward(be, &tokens, p->stash[EMB_SUM], l->g[WORD], l->g[WORD_POS], l->g[TYPE]);
        layer_add_norm(l, p, EMB_G);
        return;
    }
    dy = layer_masked(l, p, SITE_EMBED, dy);
    if (p->arch->family == FAMILY_VIT) {
        const struct patches patches = patches_of(p);
        const struct linear proj = projection(p);
        be->patchify(be, &patches, p->batch->images, p->cols);
        be->patch_backward(be, &patches, dy, l->g[CLS], l->g[POS], l->g[PATCH_B]);
        be->linear_backward_weight(be, &proj, dy, p->cols, 1.0f, l->g[PATCH_W], NULL);
    } else {
        const struct tokens tokens = tokens_of(p);
        be->tokens_backward(be, &tokens, dy, l->g[WORD], p->arch->decoder ? NULL : l->g[WORD_POS],
                            NULL);
    }
}
