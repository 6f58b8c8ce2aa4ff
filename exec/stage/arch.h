/* exec/stage/arch.h - what the items of a vit, bert or gpt are made of: tensors, names, shapes,
 * initial values, and how many bytes a micro-batch leaves in each of their stash buffers.
 *
 * Tensors follow Hugging Face's modules (ViTForImageClassification, BertFor..., GPT2LMHeadModel),
 * names included. An item's memory is a few blocks; a checkpoint tensor is a block or a slice of
 * one (query, key and value share a block, so that one GEMM makes all three). */
#ifndef ELAPSE_EXEC_STAGE_ARCH_H
#define ELAPSE_EXEC_STAGE_ARCH_H

#include "exec/base/backend.h"
#include "partition/model.h"
#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_BLOCKS = 8, MAX_TENSORS = 12, MAX_STASH = 8 };

/* Blocks by item kind. */
enum { CLS, POS, PATCH_W, PATCH_B };         /* vit embedding */
enum { WORD, WORD_POS, TYPE, EMB_G, EMB_B }; /* bert and gpt embedding (POS is block 1 for both) */
/* In front those whose gradients lie in PART, in its order. */
enum {
    NORM_G,
    NORM_B,
    OUT_B,
    QKV_B,
    QKV_W,
    OUT_W,
    JOIN_W,
    JOIN_B
};                                       /* attention; NORM_G, NORM_B: norm */
enum { FC2_B = 2, FC1_B, FC1_W, FC2_W }; /* mlp, behind NORM_G and NORM_B */
enum { DENSE_W, DENSE_B, HEAD_G, HEAD_B, HEAD_BIAS, HEAD_TABLE }; /* pooler and heads */

/* Stash buffers by item kind. */
enum { EMB_SUM, EMB_STATS };
enum {
    AT_LN,
    AT_STATS,
    AT_QKV,
    AT_CTX,
    AT_LSE,
    AT_CAT,
    AT_JOIN
}; /* AT_LN: pre-norm output, post-norm sum;
AT_CAT [x, skip], AT_JOIN its linear */
enum { ML_LN, ML_STATS, ML_PRE, ML_GELU };
enum { NO_STATS };
enum { PO_GRAD }; /* pooler: gradient before tanh */
enum { HE_LOGITS, HE_DROP, HE_PRE, HE_ACT, HE_STATS, HE_LN, HE_GRAD };

/* [2, hidden]: this micro-batch's gradients of gamma and beta; on a device behind them, where the
 * backend has them (layernorm_backward()'s sums, linear.dx_sums, attention.dqkv_sums), those of
 * biases: out's or fc2's [hidden], then qkv's [3, hidden] or fc1's [mlp]. */
enum { PART = MAX_STASH - 1 };

struct tensor_spec {
    char name[96];
    int ndim;
    int64_t shape[4], num_elems;
    int block;
    int64_t offset;   /* elements into the block */
    float std, value; /* initial: value + std * normal */
    bool decay;       /* weight decay applies (not to biases and norms) */
};

struct item_spec {
    int num_blocks, num_tensors;
    int64_t block_elems[MAX_BLOCKS]; /* 0: no such block here */
    struct tensor_spec tensors[MAX_TENSORS];
    bool tied; /* block HEAD_TABLE is the table of item 0, block WORD */
};

/* The family's variations on one transformer. */
struct arch {
    enum model_family family;
    enum model_task task;
    bool post_norm, causal, in_out;
    enum act gelu;
    float eps;
    int seq, hidden, heads, mlp, outputs; /* outputs: classes, vocab, or 2 */
    /* Tensor cores want extents and rows of 16 bytes. Under a language model's head the token table
     * has, behind the vocabulary, rows up to a multiple of 8: zero, in no tensor, and so are their
     * logits and gradients. Elements between rows of the logits: a multiple of 64; of other heads,
     * outputs. */
    int table_rows, logit_stride;
};

/* ERR_INPUT for families that exist only in the simulator (uniform, explicit) and for dims that the
 * kernels cannot take (hidden not divisible by heads). */
enum status arch_init(const struct model *model, struct arch *arch, struct err *err);

/* Tensors of item `item`. Time O(tensors). */
void arch_item(const struct model *model, const struct arch *arch, int item,
               struct item_spec *spec);

/* Bytes of each stash buffer for a micro-batch of n samples, and of the item's output (out), with
 * activations of elem_bytes; statistics and PART are fp32 always. on_device: PART has room for
 * gradients of biases. */
void arch_stash(const struct model *model, const struct arch *arch, int item, int64_t n,
                int elem_bytes, bool on_device, int64_t *stash /* MAX_STASH */, int64_t *out);

#ifdef __cplusplus
}
#endif
#endif
