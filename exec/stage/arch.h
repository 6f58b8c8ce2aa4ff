/* exec/stage/arch.h - the parts of every item of a model: its tensors with names, shapes
 * and initial values, and the bytes of its stash buffers for a micro-batch.
 *
 * Tensors follow Hugging Face's modules (ViTForImageClassification, BertFor..., GPT2LMHeadModel,
 * LlamaForCausalLM), names included. The memory of an item is a few blocks. A tensor of a
 * checkpoint is a block or a slice of a block: query, key and value share one, so that one GEMM
 * computes all three. */
#pragma once

#include "exec/base/backend.h"
#include "partition/model/lora.h"
#include "partition/base/status.h"

enum { MAX_BLOCKS = 16, MAX_TENSORS = 20, MAX_STASH = 8 };

/* Blocks of vit's embedding. */
enum { CLS, POS, PATCH_W, PATCH_B };
/* Blocks of the embedding of bert and gpt; POS and WORD_POS are both block 1. */
enum { WORD, WORD_POS, TYPE, EMB_G, EMB_B };
/* Blocks of attention; NORM_G and NORM_B are also those of mlp and norm items. Blocks with
 * gradients in PART come first, in PART's order. */
enum { NORM_G, NORM_B, OUT_B, QKV_B, QKV_W, OUT_W, JOIN_W, JOIN_B };
/* Blocks of a decoder's attention and mlp, after NORM_G: norms of queries and keys; biases and
 * weights of queries, keys and values; gate and up; down. OUT_W as above. */
enum { QK_G = 1, HEADS_B, HEADS_W };
enum { GATE_UP_W = 1, DOWN_W };
/* First block of an item's adapters, after all blocks of the base: A and B of each. */
enum { ADAPTERS = 8 };
/* Blocks of mlp, after NORM_G and NORM_B. */
enum { FC2_B = 2, FC1_B, FC1_W, FC2_W };
enum { DENSE_W, DENSE_B, HEAD_G, HEAD_B, HEAD_BIAS, HEAD_TABLE }; /* pooler and heads */

/* Stash buffers of each kind of item: embedding, attention, mlp, norm, pooler, head. */
enum { EMB_SUM, EMB_STATS };
/* AT_LN: with pre-norm the norm's output, with post-norm its input. AT_CAT: [x, skip]. AT_JOIN: the
 * output of the linear that joins them. */
enum { AT_LN, AT_STATS, AT_QKV, AT_CTX, AT_LSE, AT_CAT, AT_JOIN };
/* A decoder's attention: AT_HEADS is the output of the linear of queries, keys and values, then its
 * gradient; AT_QKV has them turned, and keys and values once for each query head. ML_PRE has gate
 * and up, ML_GELU their product. */
enum { AT_HEADS = AT_CAT, AT_HEAD_STATS = AT_JOIN };
enum { ML_LN, ML_STATS, ML_PRE, ML_GELU };
enum { NO_STATS };
enum { PO_GRAD }; /* pooler: the gradient before tanh */
enum { HE_LOGITS, HE_DROP, HE_PRE, HE_ACT, HE_STATS, HE_LN, HE_GRAD };

/* PART, fp32: sums of this micro-batch. [2, hidden]: the gradients of gamma and beta. On a device
 * the gradients of two biases may follow, if the backend computes them on the way (sums_norm,
 * sums_dx(), sums_dqkv() of exec/base/backend.h): of the last linear (out or fc2, [hidden]), then
 * of the wide one (qkv [3, hidden], or fc1 [mlp]). */
enum { PART = MAX_STASH - 1 };

struct tensor_spec {
    char name[96];
    int ndim;
    int64_t shape[4], num_elems;
    int block;
    int64_t offset;   /* in elements, from the start of the block */
    float std, value; /* initial value of an element: value + std * a normal number */
    float bound;      /* not 0: a uniform number in (-bound, bound) instead */
    bool decay;       /* weight decay applies; false for biases and norms */
};

struct item_spec {
    int num_blocks, num_tensors;
    int64_t block_elems[MAX_BLOCKS]; /* 0: the item does not have this block */
    struct tensor_spec tensors[MAX_TENSORS];
    bool tied; /* block HEAD_TABLE is the same weights as block WORD of item 0 */
};

/* The differences between decoders of the llama family that their dims do not say. A further decoder
 * of these layers is a row of the table in arch.c. */
struct decoder {
    const char *type;       /* of config.json */
    const char *class_name; /* transformers' class with the head */
    enum act gate;
    float plus;           /* of norms: 1 where their weights are kept as differences from 1 */
    bool scale_embedding; /* by sqrt(hidden) */
};

/* The differences between the families. */
struct arch {
    enum model_family family;
    enum model_task task;
    bool post_norm, causal, in_out;
    enum act gelu;
    float eps;
    int seq, hidden, heads, mlp, outputs; /* outputs: number of classes, vocabulary size, or 2 */
    /* Tensor cores need extents and rows that are multiples of 16 bytes. Under the head of a
     * language model the token table is therefore padded to a multiple of 8 rows. The padding rows
     * are zero and belong to no tensor; their logits and gradients stay zero. logit_stride, the
     * elements between rows of the logits, is padded to a multiple of 64 there; for other heads it
     * is `outputs`. */
    int table_rows, logit_stride;
    const struct decoder *decoder; /* NULL: vit, bert, gpt */
    int kv_heads, head_dim;
    int scratch; /* columns of the widest tensor in layer_pass.scratch */
};

/* One adapter of an item. Adapter i has blocks ADAPTERS + 2 i (A) and ADAPTERS + 2 i + 1 (B). */
struct adapter {
    const char *module;     /* within its layer, or within the model for the pooler */
    bool first;             /* of the item's first product (queries, keys, values; gate, up), or of
                               its second one */
    int block;              /* of the base: the product's weights */
    int in, out;            /* columns of x, and of its part of y */
    int64_t column, stride; /* the first column of its part of y; elements between rows of y */
};

/* The name of a text model's token table; static. */
const char *arch_table_name(const struct arch *arch);

/* List the adapters of an item; returns their number, 0 without train.lora. */
int adapters_of(const struct model *model, int item, struct adapter list[LORA_PRODUCTS]);

/* The epsilon of the model's norms: its own, or transformers' default for the family. */
double arch_eps(const struct model *model);
/* ERR_INPUT: the family exists only in the simulator (uniform, explicit), or the kernels cannot
 * compute it (hidden is not divisible by heads). */
enum status arch_init(const struct model *model, struct arch *arch, struct err *err);

/* List the tensors of item `item`. O(tensors). */
void arch_item(const struct model *model, const struct arch *arch, int item,
               struct item_spec *spec);

/* Bytes of each stash buffer, and of the item's output (out), for a micro-batch of n samples with
 * activations of elem_bytes. Statistics and PART are fp32. on_device: PART has space for gradients
 * of biases. */
void arch_stash(const struct model *model, const struct arch *arch, int item, int64_t n,
                int elem_bytes, bool on_device, int64_t *stash /* MAX_STASH */, int64_t *out);
