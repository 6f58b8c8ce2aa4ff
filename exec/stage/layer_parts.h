/* exec/stage/layer_parts.h - what every layer's code shares: an item of a stage, a pass over it,
 * and small steps of such passes. */
#ifndef ELAPSE_EXEC_STAGE_LAYER_PARTS_H
#define ELAPSE_EXEC_STAGE_LAYER_PARTS_H

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

/* The dropout of one place in an item; p 0: off. */
enum dropout_site { SITE_EMBED, SITE_PROBS, SITE_ATTENTION, SITE_MLP, SITE_HEAD };
struct dropout layer_dropout(const struct layer *l, const struct layer_pass *p,
                             enum dropout_site site, int64_t rows_per_sample);
/* dy, or its masked copy in scratch[1] where dropout is on. */
const void *layer_masked(const struct layer *l, const struct layer_pass *p, enum dropout_site site,
                         const void *dy);
/* A piece of the stash's PART: `num` sums of this micro-batch that belong to an accumulator. */
struct layer_part {
    int64_t num;
    float *grad; /* NULL: the piece is skipped */
};
/* Add the pieces, in their order, to their accumulators. */
void layer_add_parts(const struct layer_pass *p, const struct layer_part *parts, int num);
/* The pieces of a norm alone: gamma and beta, whose accumulators are blocks `block`, block + 1. */
void layer_add_norm(const struct layer *l, const struct layer_pass *p, int block);

#ifdef __cplusplus
}
#endif
#endif
