/* exec/stage/layer_parts.h - code that the passes of all items share: an item of a stage, a pass
 * over it, and small steps of such passes. */
#pragma once

#include "exec/stage/arch.h"

/* A micro-batch in backend memory; fields as in struct sample_block. */
struct batch_refs {
    int64_t num_samples;
    const int64_t *ids;
    const float *images;
    const int32_t *tokens, *types, *lengths, *labels;
    bool documents; /* types are starts of documents (struct sample_block) */
    /* Masked language models: the rows of [n * seq] that have a label, in ascending order, and
     * their labels. At most n * model_masked_of(seq). The head computes only these rows. */
    int64_t num_rows;
    const int32_t *rows, *row_labels;
};

/* One item of a stage. */
struct layer {
    int item;
    enum item_kind kind;
    bool frozen;
    bool joins; /* attention: a linear joins a skip tensor to x (U-ViT) */
    /* Blocks. w: the fp32 master. low: its compute copy in the backend's dtype; in fp32 the master
     * itself. g: the fp32 gradient; NULL if frozen. */
    float *w[MAX_BLOCKS];
    void *low[MAX_BLOCKS];
    float *g[MAX_BLOCKS];
};

/* The rows of one sequence that passes before this one have read; text is generated so. */
struct past {
    int num;              /* rows */
    float *keys, *values; /* attention: [context, kv_heads, head_dim], fp32 in host memory. The pass
                             adds its own rows */
};

struct layer_pass {
    struct backend *be;
    const struct model *model;
    const struct arch *arch;
    const struct batch_refs *batch;
    uint64_t seed, step;
    float dropout;   /* probability of this pass; 0 in evaluation and for frozen items */
    float smoothing; /* label smoothing */
    /* The tensors below have elements of the backend's dtype; statistics and PART in the stash are
     * fp32. */
    void *scratch[2]; /* [rows, arch->scratch] each */
    void *cols;       /* vit: [rows, channels * patch^2] */
    void *const *stash;
    const float *angles; /* decoders: [seq, head_dim / 2, 2], of struct rotary */
    void *wide;          /* [rows, 2 hidden]; used only where a skip joins */
    /* As large as AT_QKV: receives attention's dqkv and keeps it until layer_backward_weight(). NULL:
     * dqkv overwrites qkv. */
    void *aside;
    const void *x;
    const void *skip; /* the tensor that joins x, or NULL */
    void *skip_dx;    /* gradient of skip; NULL: not needed */
    void *y;
    struct xent_sums *sums; /* heads only; backend memory */
    float grad_scale;       /* heads only: multiplies the gradient of the loss */
    bool fresh; /* layer_backward_weight() writes the item's accumulators instead of adding */
    /* Forward only, of causal models without dropout and adapters. The batch's samples, of one row
     * each (arch->seq 1), come next in this sequence. NULL: samples are independent. */
    const struct past *past;
};

/* The norm of all tokens of a pass. */
struct layernorm layer_norm_of(const struct layer_pass *p, const float *gamma, const float *beta);

/* The dropout of one site of an item; p is 0 if it is off. */
enum dropout_site { SITE_EMBED, SITE_PROBS, SITE_ATTENTION, SITE_MLP, SITE_HEAD };
struct dropout layer_dropout(const struct layer *l, const struct layer_pass *p,
                             enum dropout_site site, int64_t rows_per_sample);
/* dy itself, or with dropout its masked copy in scratch[1]. */
const void *layer_masked(const struct layer *l, const struct layer_pass *p, enum dropout_site site,
                         const void *dy);
/* From st[AT_QKV], which has each key and value heads / kv_heads times, to st[AT_CTX] and, without
 * `past`, st[AT_LSE]. */
void layer_attend(const struct layer_pass *p, const struct attention *a, int kv_heads,
                  const struct dropout *probs);
/* A piece of the stash buffer PART: `num` sums of this micro-batch, and their accumulator. */
struct layer_part {
    int64_t num;
    float *grad; /* accumulator; NULL: the piece is skipped */
};
/* Add the pieces to their accumulators, or write them if p->fresh. `parts` lists PART in its order.
 */
void layer_add_parts(const struct layer_pass *p, const struct layer_part *parts, int num);
/* Add only the pieces of a norm: gamma and beta, with accumulators in blocks `block` and block + 1.
 */
void layer_add_norm(const struct layer *l, const struct layer_pass *p, int block);
