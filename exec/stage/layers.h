/* exec/stage/layers.h - the passes of one item over one micro-batch, as calls into a backend.
 *
 * Backward comes in two halves that share nothing but the stash: layer_backward_input() turns the
 * gradient of the output into that of the input and leaves in the stash what the weights need
 * (gradients overwrite what they replace: dqkv over qkv where it goes to no place of its own, the
 * GELU's over its input, the sum's over the sum); layer_backward_weight() adds to the accumulators,
 * or writes them where they hold nothing yet (layer_pass.fresh).
 * One after the other is the full backward: the same calls on the same operands, so the same bits.
 */
#ifndef ELAPSE_EXEC_STAGE_LAYERS_H
#define ELAPSE_EXEC_STAGE_LAYERS_H

#include "exec/stage/arch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A micro-batch in backend memory (fields as struct sample_block). */
struct batch_refs {
    int64_t num_samples;
    const int64_t *ids;
    const float *images;
    const int32_t *tokens, *types, *lengths, *labels;
    /* Masked language models: the rows of [n * seq] that have a label, ascending, and those labels;
     * at most n * model_masked_of(seq). The head computes these rows only. */
    int64_t num_rows;
    const int32_t *rows, *row_labels;
};

/* One item of a stage. */
struct layer {
    int item;
    enum item_kind kind;
    bool frozen;
    bool joins; /* attention: a skip tensor enters and is joined to x by a linear (U-ViT) */
    /* Blocks: the fp32 master, its compute copy (in fp32 the master itself; elements of the
     * backend's dtype otherwise), the fp32 gradient (NULL when frozen). */
    float *w[MAX_BLOCKS];
    void *low[MAX_BLOCKS];
    float *g[MAX_BLOCKS];
};

struct layer_pass {
    struct backend *be;
    const struct model *model;
    const struct arch *arch;
    const struct batch_refs *batch;
    uint64_t seed, step;
    float dropout;   /* of this pass: 0 in evaluation and for frozen items */
    float smoothing; /* of labels */
    /* Elements of the backend's dtype; in the stash statistics and PART are fp32. */
    void *scratch[2]; /* [rows, hidden] each */
    void *cols;       /* vit: [rows, channels * patch^2] */
    void *const *stash;
    void *wide; /* [rows, 2 hidden], where a skip joins */
    /* [rows, 3 hidden], where attention's dqkv goes and stays until the weights' half; NULL: over
     * qkv. */
    void *aside;
    const void *x;
    const void *skip; /* the tensor that joins x, or NULL */
    void *skip_dx;    /* its gradient; NULL: not wanted */
    void *y;
    struct xent_sums *sums; /* backend memory; heads only */
    bool fresh;             /* the weights' half writes all accumulators of the item */
};

void layer_forward(const struct layer *l, const struct layer_pass *p);

/* dx NULL: nobody below wants it. A pre-norm item's dx may be its x. scale multiplies the loss's
 * gradient (heads). */
void layer_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                          float scale, void *dx);
void layer_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy,
                           float scale);

/* Whether the weights' half may be fresh. Not that of an embedding, which adds to rows of a table:
 * its accumulators must be zero before the first. */
bool layer_writes(const struct layer *l);

/* Whether dx may overwrite x: the weights' half reads the norm's output, not x. */
bool layer_in_place(const struct layer *l, const struct arch *arch);

/* Shared by the files of layers (embed.c, heads.c, layers.c): the dropout of one site of an item (p
 * 0: off), and the pieces that live in files of their own. */
enum dropout_site { SITE_EMBED, SITE_PROBS, SITE_ATTENTION, SITE_MLP, SITE_HEAD };
struct dropout layer_dropout(const struct layer *l, const struct layer_pass *p,
                             enum dropout_site site, int64_t rows_per_sample);
/* dy, or its masked copy in scratch[1] where dropout is on. */
const void *layer_masked(const struct layer *l, const struct layer_pass *p, enum dropout_site site,
                         const void *dy);
/* The stash's PART to the accumulators of gamma and beta in blocks `block` and block + 1. */
void layer_add_norm(const struct layer *l, const struct layer_pass *p, int block);

void embedding_forward(const struct layer *l, const struct layer_pass *p);
void embedding_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy);
void embedding_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy);
void pooler_forward(const struct layer *l, const struct layer_pass *p);
void pooler_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                           void *dx);
void pooler_backward_weight(const struct layer *l, const struct layer_pass *p);
void head_forward(const struct layer *l, const struct layer_pass *p);
void head_backward_input(const struct layer *l, const struct layer_pass *p, float scale, void *dx);
void head_backward_weight(const struct layer *l, const struct layer_pass *p, float scale);

#ifdef __cplusplus
}
#endif
#endif
