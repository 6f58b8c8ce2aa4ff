/* partition/model.h - a transformer as a chain of sublayers ("items") plus skip edges.
 *
 * A cut never goes inside an item: a transformer layer is two items, attention and MLP, each with
 * its LayerNorm and residual add, so that one tensor [b, seq, hidden] crosses every boundary
 * (PipeTransformer section 3.1). Costs that depend on a device are not here (partition/cost.h). */
#ifndef ELAPSE_PARTITION_MODEL_H
#define ELAPSE_PARTITION_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of a model's dims: stages are 16 bits in an op; with the others no formula of model.c
 * passes 2^127. */
#define MODEL_LAYERS_MAX 65535
#define MODEL_DIM_MAX (1 << 20)
#define MODEL_VOCAB_MAX (1 << 26)
#define MODEL_IMAGE_MAX 65536
#define MODEL_CHANNELS_MAX 1024

enum item_kind {
    ITEM_EMBEDDING, /* patch or token embedding with positions */
    ITEM_ATTENTION, /* LayerNorm, self-attention, residual add */
    ITEM_MLP,       /* LayerNorm, two linears with GELU, residual add */
    ITEM_NORM,      /* final LayerNorm */
    ITEM_POOLER,    /* BERT's first-token dense + tanh */
    ITEM_HEAD,      /* classifier, span or language-model head, with the loss */
    ITEM_OPAQUE,    /* uniform and explicit models: constants instead of dims */
    ITEM_KIND_COUNT
};

/* One item. Sizes are per sample unless model.per_microbatch is set; then act_bytes, stash_bytes
 * and the constant times hold for one micro-batch of whatever size. */
struct item {
    char name[32];
    enum item_kind kind;
    int layer;           /* owning transformer layer 0..num_layers-1; -1 before (embedding),
                            num_layers behind the last */
    int64_t params;      /* count of trainable parameters */
    int64_t tied_params; /* parameters of another item (the embedding) that this one uses too; not
                            in params, but a stage that lacks their owner keeps a copy of them */
    int64_t fwd_flops;   /* multiply-adds count 2; forward, one sample */
    int64_t act_bytes;   /* leaves the item towards the next one */
    int64_t stash_bytes; /* kept from forward to backward */
    /* Constants of ITEM_OPAQUE, ns; 0 for the others, whose time comes from a cost source. */
    int64_t fwd_ns, bwd_input_ns, bwd_weight_ns, update_ns;
    int64_t fwd_stash_ns; /* of fwd_ns, for the stash: a forward that keeps none does without */
    int64_t bwd_rest_ns;  /* of bwd_input_ns, where nobody wants the gradient of the input */
};

/* A tensor that item `from` hands to item `to` beside the chain (from < to). It travels straight
 * from source stage to destination stage; its gradient travels back. */
struct skip_edge {
    int from, to;
    int64_t bytes; /* per sample, or per micro-batch as in struct item */
};

enum model_family { FAMILY_VIT, FAMILY_BERT, FAMILY_GPT, FAMILY_UNIFORM, FAMILY_EXPLICIT };

/* What the head does. */
enum model_task { TASK_CLASSIFY, TASK_QA, TASK_MLM, TASK_CAUSAL_LM };

struct model {
    char name[64];
    enum model_family family;
    enum model_task task;
    int num_layers; /* transformer layers; freezing counts these */
    int num_items;
    struct item *items; /* owned, num_items */
    int num_skips;
    struct skip_edge *skips; /* owned, num_skips; sorted by (from, to) */
    bool per_microbatch;     /* sizes and constant times are per micro-batch, not per sample */
    int elem_bytes;          /* of activations: 4 fp32, 2 bf16 */
    int param_bytes;         /* of one parameter as stored: 4 */
    /* Dims of vit, bert, gpt; 0 where the family has no such thing. */
    int hidden, heads, mlp, seq; /* seq: tokens of one sample, class token included */
    int image, patch, channels;  /* vit: side in pixels, side of a patch, 3 */
    int vocab, max_seq;          /* bert, gpt: rows of the token and position tables */
    int classes;                 /* outputs of a classifier head */
};

/* Build a model from a MODEL text of the command line: a preset, optionally with modifiers
 * ("vit-b16:classes=1000,image=224"), or "uniform:layers=8,fwd=1ms,...". (A JSON file is read by
 * profiles/, which ends in model_build() or model_explicit().) *model must be zeroed or cleared; on
 * OK the caller owns it and releases it with model_clear(). ERR_INPUT names the unknown preset or
 * key and the nearest valid one; sizes are checked for overflow. */
enum status model_parse(const char *text, struct model *model, struct err *err);
/* The next "key=value" of the comma-separated list of modifiers that begins at start, copied into
 * key and value; *list (not at its end) moves on. name is the model's, for errors. ERR_INPUT also
 * for a key that came before. */
enum status model_next_modifier(const char *start, const char **list, const char *name,
                                char key[32], char value[64], struct err *err);

/* The dims from which a transformer family is built; zero means the preset's or family's default.
 */
struct model_spec {
    enum model_family family;
    enum model_task task;
    char name[64];
    int num_layers, hidden, heads, mlp;
    int image, patch, channels, classes;
    int seq, max_seq, vocab;
    int elem_bytes; /* 4 or 2 */
    int unet_skips; /* 1: block i is joined to block num_layers-1-i (U-ViT) */
};

/* Fill spec from a preset's name ("vit-b16"); ERR_INPUT when there is none. */
enum status model_preset(const char *name, struct model_spec *spec, struct err *err);

/* Apply one modifier ("classes", "1000") to spec. */
enum status model_spec_set(struct model_spec *spec, const char *key, const char *value,
                           struct err *err);

/* The item chain of a vit, bert or gpt spec, by the formulas of model.c (sources there). */
enum status model_build(const struct model_spec *spec, struct model *model, struct err *err);

/* A chain given item by item, with skip edges; copies its arguments. Refuses empty chains, negative
 * sizes, edges that do not go forward, overflowing totals. */
enum status model_explicit(const char *name, const struct item *items, int num_items,
                           const struct skip_edge *skips, int num_skips, bool per_microbatch,
                           struct model *model, struct err *err);

/* Deep copy into zeroed *dst. */
enum status model_copy(const struct model *src, struct model *dst, struct err *err);
void model_clear(struct model *model);

/* Preset names, NULL-terminated, for help texts. */
const char *const *model_preset_names(void);
const char *item_kind_name(enum item_kind kind);
const char *model_family_name(enum model_family family);

int64_t model_total_params(const struct model *model);

/* Number of leading items that F = num_frozen_layers freezes: 0 for F = 0, else the embedding and
 * both items of layers 0..F-1. F = num_layers leaves the final norm or pooler and the head. */
int model_frozen_items(const struct model *model, int num_frozen_layers);
/* ERR_INFEASIBLE: F is not 0..num_layers, or leaves no item that could be trained. */
enum status model_check_frozen(const struct model *model, int64_t num_frozen_layers,
                               struct err *err);

/* Bytes that a device holds of one weight: as stored, and below that the rounded copy that kernels
 * read (fp32 masters and bf16 copies: 6). */
int model_weight_bytes(const struct model *model);

/* What a stage reads of a micro-batch beside the tensor that enters it, field by field: bytes of a
 * sample, 0: not read. embeds, head: whether it holds the first, the last item. */
enum block_field {
    BLOCK_IDS,
    BLOCK_IMAGES,
    BLOCK_TOKENS,
    BLOCK_TYPES,
    BLOCK_LENGTHS,
    BLOCK_LABELS,
    BLOCK_ROWS,       /* those that a masked language model predicts */
    BLOCK_ROW_LABELS, /* and what is right there */
    BLOCK_FIELDS
};
void model_block_fields(const struct model *model, bool embeds, bool head,
                        int64_t bytes[BLOCK_FIELDS]);

/* A field's place in a device's copy of them, which begins every one at a multiple of 256 bytes;
 * the copy as a whole. */
static inline int64_t model_block_pad(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}
int64_t model_block_bytes(const struct model *model, bool embeds, bool head, int64_t samples);

/* Masked language models predict this many of `count` tokens: 15 % (Devlin et al. 2018, section
 * 3.1), at least one; 0 of none. */
static inline int64_t model_masked_of(int64_t count)
{
    return count < 1 ? 0 : count < 7 ? 1 : (count * 15 + 50) / 100;
}

#ifdef __cplusplus
}
#endif
#endif
