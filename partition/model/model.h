/* partition/model/model.h - a transformer as a chain of sublayers ("items") plus skip edges.
 *
 * A transformer layer is two items, attention and MLP, each with its LayerNorm and residual add. A
 * cut falls only between items, so one tensor [b, seq, hidden] crosses every boundary
 * (PipeTransformer section 3.1). partition/cost/cost.h has the costs that depend on a device. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/member.h"
#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of a model's dims. Layers are limited because an op stores its stage in 16 bits. The other
 * limits keep every formula of model.c below 2^127. */
#define MODEL_LAYERS_MAX 65535
#define MODEL_DIM_MAX (1 << 20)
#define MODEL_VOCAB_MAX (1 << 26)
#define MODEL_IMAGE_MAX 65536
#define MODEL_CHANNELS_MAX 1024
#define MODEL_EXPERTS_MAX 65536
#define SWIN_STAGES 4
#define PACKING_LENGTHS 16
#define MODEL_PATTERN_SIZE 512

enum item_kind {
    ITEM_EMBEDDING, /* patch or token embedding with positions */
    ITEM_ATTENTION, /* LayerNorm, self-attention, residual add */
    ITEM_MLP,       /* LayerNorm, two linears with GELU, residual add */
    ITEM_NORM,      /* final LayerNorm */
    ITEM_POOLER,    /* BERT's first-token dense + tanh */
    ITEM_HEAD,      /* classifier, span or language-model head, with the loss */
    ITEM_OPAQUE,    /* uniform and explicit models: constants instead of dims */
    ITEM_STATE,     /* norm, a layer that carries a state from token to token, residual add */
    ITEM_KIND_COUNT
};

/* One item. Sizes are per sample. If model.per_microbatch is set, act_bytes, stash_bytes and the
 * constant times are per micro-batch instead, for any micro-batch size. */
struct item {
    char name[32];
    enum item_kind kind;
    int layer;           /* owning transformer layer 0..num_layers-1; -1 for the embedding,
                            num_layers for items after the last layer */
    int64_t params;      /* number of trainable parameters */
    int64_t base_params; /* frozen parameters beside them (lora.h); 0 without adapters */
    int64_t tied_params; /* parameters of the embedding that this item uses too. params does not
                            count them; a stage without the embedding holds a copy */
    int64_t fwd_flops;   /* forward of one sample; a multiply-add is 2 */
    int64_t act_bytes;   /* output, sent to the next item */
    int64_t stash_bytes; /* kept from forward to backward */
    int64_t work_bytes;  /* transient workspace: in use during the item's passes only */
    int64_t moved_bytes; /* ITEM_OPAQUE: to and from device memory in a forward; 0: stash and act */
    /* Constant times of ITEM_OPAQUE; 0 for other kinds, which a cost source knows. */
    int64_t fwd_ns, bwd_input_ns, bwd_weight_ns, update_ns;
    int64_t fwd_stash_ns; /* the part of fwd_ns that a forward without stash saves */
    int64_t bwd_rest_ns;  /* replaces bwd_input_ns if no item below needs the input's gradient */
    int first_times, num_times;  /* ITEM_OPAQUE: its tables in model.times, which replace fwd_ns,
                                   bwd_input_ns and bwd_weight_ns */
    int first_piece, num_pieces; /* FAMILY_COMPOSED: what it computes, in model.pieces */
};

enum piece_kind {
    PIECE_LINEAR,     /* [rows, in] by [in, out] */
    PIECE_CORE,       /* attention: each of `rows` queries meets `keys` keys; groups of queries have
                        keys of their own. in: width of a head; out: heads of keys */
    PIECE_NORM,       /* of [rows, in] */
    PIECE_ACTIVATION, /* of [rows, in] */
    PIECE_GATE,       /* [rows, 2 in] to [rows, in] */
    PIECE_ADD,        /* a sum of two tensors [rows, in] */
    PIECE_MOVE,       /* a pass over [rows, in] each way: a copy, a shift and scale */
    PIECE_TABLE,      /* `rows` rows of a table, of width in */
    PIECE_LOSS,       /* cross entropy of [rows, in] */
    PIECE_NUMBERS     /* parameters only */
};
enum piece_input {
    PIECE_INPUT_CHAIN, /* of the item itself, which keeps it for the backward */
    PIECE_INPUT_SKIP,  /* of another item, by a skip; the stage holds it once */
    PIECE_INPUT_DATA   /* of the sample; it has no gradient */
};
/* An operation of an item. Numbers are of one sample; those that a kind does not name are 0. */
struct model_piece {
    enum piece_kind kind;
    enum piece_input input;
    bool causal;
    int64_t rows, in, out, keys, groups, heads;
    int64_t params;
};

/* Times of an item by micro-batch size on one kind of device. */
struct time_row {
    int64_t samples;
    int64_t fwd_ns, bwd_input_ns, bwd_weight_ns;
};
struct time_table {
    char kind[32]; /* as in struct device */
    int num_rows;
    struct time_row *rows; /* owned; samples ascend, and no time falls */
};

/* A tensor that item `from` sends to item `to` outside the chain (from < to). It goes directly from
 * source stage to destination stage; its gradient goes back the same way. Edges of one item with
 * equal bytes are one tensor, which a stage receives and holds once. */
struct skip_edge {
    int from, to;
    int64_t bytes; /* per sample, or per micro-batch as in struct item */
};

enum model_family {
    FAMILY_VIT,
    FAMILY_BERT,
    FAMILY_GPT,
    FAMILY_LLAMA,    /* also its kin: Mistral, Qwen, and with experts Mixtral, DeepSeek */
    FAMILY_COMPOSED, /* T5, Whisper, Swin and others, whose items are lists of pieces */
    FAMILY_UNIFORM,
    FAMILY_EXPLICIT,
    FAMILY_COUNT
};

/* Traits of a family that its formulas do not contain. */
struct family_traits {
    const char *name;
    const char *first_preset; /* the dims of a model that gives only its family; NULL: not made of
                                 dims */
    bool trainable;           /* elapse-exec has its layers */
    bool images;              /* its input is images, not tokens */
    bool post_norm;           /* the LayerNorm is after the residual add */
    /* Variants of the item kinds in the keys of profiles: items with other formulas or kernels have
     * other names. The head's variant is its task. */
    const char *embedding, *attention, *mlp, *norm;
};
const struct family_traits *model_family_traits(enum model_family family);

/* Whether the stash of an attention item has its score matrices. */
enum attention_kind {
    ATTENTION_AUTO, /* it has; layouts for GPUs that are not measured take them out (tensor_group.h) */
    ATTENTION_FUSED,   /* it has not: one kernel computes attention and runs its core again */
    ATTENTION_UNFUSED, /* it has; Megatron-LM's softmax kernel where that takes the shape */
    ATTENTION_EAGER,   /* it has; softmax is PyTorch's operators on fp32 */
    ATTENTION_FLASH1,  /* as ATTENTION_FUSED, by the slower kernels before FlashAttention-2 */
    ATTENTION_KIND_COUNT
};

enum norm_form {
    NORM_FORM_RMS,
    NORM_FORM_LAYER,  /* LayerNorm with a weight and a bias */
    NORM_FORM_WEIGHT, /* LayerNorm with a weight only */
    NORM_FORM_BARE    /* LayerNorm without parameters */
};
/* The places of the norms in a layer. */
enum norm_places {
    NORMS_BEFORE,       /* one before attention and one before the MLP */
    NORMS_AFTER,        /* one after each, before the residual add */
    NORMS_AROUND,       /* before and after each */
    NORMS_PARALLEL,     /* attention and MLP read the output of one norm, and their sum is added */
    NORMS_PARALLEL_TWO, /* as NORMS_PARALLEL, but each has a norm of its own */
};
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD, /* a norm over each head of queries and of keys; the heads share its weights */
    QK_NORM_FULL  /* as many weights as queries and keys have numbers */
};
enum position_kind {
    POSITIONS_ROTARY,
    POSITIONS_TABLE, /* max_seq + 2 rows, as OPT has them */
    POSITIONS_ALIBI, /* a bias of the scores, without parameters */
    POSITIONS_NONE
};

/* Layers that carry a state from token to token in the place of attention (model_state.c). */
enum mixer_kind {
    MIXER_NONE,
    MIXER_MAMBA,    /* a state per channel, by a scan (Gu and Dao 2023) */
    MIXER_MAMBA2,   /* a state per head, by products of chunks (Dao and Gu 2024) */
    MIXER_DELTA,    /* as MIXER_MAMBA2, updated by the gated delta rule (Yang et al. 2024) */
    MIXER_LIGHTNING /* linear attention with a decay per head (Qin et al. 2024) */
};
/* The dims of ITEM_STATE; ints, because they are keys of config.json. */
struct state_space {
    int kind;            /* of enum mixer_kind */
    int heads, head_dim; /* of values; Mamba: as many heads of width 1 as channels */
    int groups;          /* heads of keys and queries, which Mamba-2 calls B and C */
    int state;           /* width of these, and of the state of a channel */
    int conv;            /* tokens that the convolution sees; 0: there is none */
    int chunk;           /* tokens that are computed at once; Mamba: 0 */
    int rank;            /* Mamba: of the time steps */
    int conv_bias, bias, out_bias;
    int norm;             /* a norm before the last linear */
    int inner_norms;      /* Mamba: norms of the time steps, B and C (Jamba) */
    int beside_attention; /* the item has attention too, which reads the same norm (Falcon-H1) */
};

/* The differences of a FAMILY_LLAMA decoder's layers from Llama's, which are all zeros. */
struct block {
    enum norm_form norm;
    enum norm_places places;
    enum qk_norm qk_norm;
    enum position_kind positions;
    bool out_bias, mlp_bias; /* the linears after attention, and those of the MLP, have a bias */
    bool plain_mlp;          /* two linears with an activation between them, no gate */
    bool embedding_norm;     /* a norm after the token table */
    bool head_bias;
    bool softcap;          /* the logits are capped by tanh */
    bool sinks;            /* a number per head that takes part in the softmax */
    bool expert_mlp_bias;  /* the linears of an expert have a bias */
    bool expert_clamp;     /* gate and up of an expert are clamped before they are multiplied */
    bool shared_gate;      /* a number for each token multiplies what the shared expert adds */
    bool gated_heads;      /* attention's output is multiplied by a gate as wide as the queries */
    int window;            /* tokens that a query sees, itself included; 0: all before it */
    int full_every;        /* of that many layers the last one has no window; 0: all have it */
    int window_from;       /* layers before this one have no window */
    int moe_every;         /* of that many layers the last one has experts; 0: 1 */
    enum mixer_kind mixer; /* of layers that have no attention */
};

/* Rotary positions turn by theta^(-2 i / head_dim) a token. The kind says how a context longer
 * than that of the first training changes this (transformers' rope_type). */
enum rope_kind {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_OTHER /* one that elapse-exec does not compute; costs do not depend on it */
};
struct rope {
    enum rope_kind kind;
    double theta;                 /* 0: 10000 */
    double factor;                /* of the context */
    int original;                 /* tokens of the first training's context: llama3, yarn */
    double low, high;             /* llama3: low_freq_factor and high_freq_factor */
    double fast, slow, attention; /* yarn: beta_fast, beta_slow, and what cosine and sine are
                                     multiplied by; 0: 32, 1, by factor */
};

/* The task of the head. */
enum model_task { TASK_CLASSIFY, TASK_QA, TASK_MLM, TASK_CAUSAL_LM };

struct framework; /* framework.h */

struct model {
    char name[64];
    enum model_family family;
    enum model_task task;
    int num_layers; /* transformer layers; freezing counts these */
    int num_items;
    struct item *items; /* owned, num_items */
    int num_skips;
    struct skip_edge *skips; /* owned, num_skips; sorted by (from, to) */
    int num_times;
    struct time_table *times; /* owned; explicit models: see model_add_times() */
    int num_pieces;
    struct model_piece *pieces; /* owned; FAMILY_COMPOSED */
    bool per_microbatch;        /* sizes and constant times are per micro-batch, not per sample */
    int elem_bytes;             /* bytes of an activation element: 4 fp32, 2 bf16 */
    const char *dtype;          /* that of the model's text (static), for its job; NULL: none */
    int param_bytes;            /* bytes of a stored parameter: 4 */
    int weight_bytes_per_param, grad_bytes_per_param; /* explicit models; 0: by the dtype */
    /* Explicit models: what the framework that was measured takes beside the items' times. */
    int64_t op_overhead_ns; /* its own time per op of a schedule */
    double split_backward;  /* a stage's backward in two ops takes this share longer than in one.
                               The first stage that trains has no input's half to compute. */
    double norm_eps;        /* epsilon of the norms; 0: the family's default */
    char note[512];         /* keys of its config.json or job that have no effect; "": none */
    /* Dims of the families; 0 if the family has no such dim. */
    int hidden, heads, mlp, seq; /* seq: tokens of one sample, class token included */
    int image, patch, channels;  /* vit: side in pixels, side of a patch, 3 */
    int vocab, max_seq;          /* bert, gpt: rows of the token and position tables */
    int classes;                 /* outputs of a classifier head */
    int kv_heads;                /* heads of keys and values; heads unless queries are grouped */
    int head_dim;                /* width of a head, hidden / heads in most families */
    bool gated_mlp;              /* SwiGLU: a gate beside the first linear, and no biases */
    bool rms_norm;               /* RMSNorm: a weight and no bias */
    bool rope;                   /* rotary positions in place of a table */
    bool qkv_bias;               /* the linears of queries, keys and values have a bias */
    bool tied_head;              /* the head uses the token table of the embedding */
    bool was_tied;               /* model_untie() has given the head a table of its own */
    /* Owned. NULL: the prefix takes no table from the head, or the table freezes with the prefix for
     * both. Otherwise the model of plans with a frozen prefix: model_at(). */
    struct model *untied;
    /* Latent attention (DeepSeek-V2, section 2.1): keys and values of all heads come from kv_rank
     * numbers of a token, and queries from q_rank unless that is 0. A head of queries and keys has
     * head_dim numbers and rope_dim more with positions; one of values has v_dim. kv_rank 0: no
     * latent attention. */
    int kv_rank, q_rank, rope_dim, v_dim;
    /* Mixture of experts; 0 in dense models. */
    int experts, experts_active; /* experts of a layer; of these, how many a token uses */
    int expert_mlp;              /* width of one expert */
    /* Experts lie in groups, of which a token chooses some, and its experts among theirs
     * (DeepSeek-V3); 0 and 1: no groups. */
    int expert_groups, groups_active;
    int shared_experts; /* experts that every token uses too */
    int dense_layers;   /* that many first layers have the dense MLP instead */
    bool expert_bias;   /* the router adds a bias per expert (DeepSeek-V3) */
    struct block block;
    const char *type; /* the decoder's as model_type_find() has it, static; NULL: llama */
    struct rope turns;
    struct state_space state;
    /* A letter for each item of the layers, layer_items a layer: M state-space, * attention, - MLP,
     * E MLP of experts. "": each layer is attention and MLP. */
    char pattern[MODEL_PATTERN_SIZE];
    int layer_items;
    enum attention_kind attention;
    /* The framework that launches the kernels (model_set_framework()); NULL: the lists of kernels.c
     * as they are. */
    const struct framework *framework;
    bool eager_norm, eager_rope, eager_activation; /* by several kernels, not one */
    bool no_dropout;                               /* nothing is dropped (model_drop_nothing()) */
    bool fp8_activation; /* SwiGLU of a dense MLP keeps its input in fp8 (model_keep_fp8()) */
    int kept_32nds;   /* of a byte, for an element of the narrow inputs of products that layers keep
                       (model_keep_narrow()); 0: they keep none */
    bool gathers_fp8; /* of tensor parallelism, in front of products (model_gathered_bytes()) */
    /* model_set_overlap(): collectives of tensor parallelism overlap the products that they feed or
     * follow, and all-to-alls of experts the passes of another micro-batch. */
    bool overlaps_tensor, overlaps_experts;
    /* A token goes to each device that has some of its experts once, not once for each expert. */
    bool sends_once;
    /* The items hold the share of one of `tensor` devices. The dims above are those of the whole
     * model. 1 (or 0, in a model made by hand): not divided. */
    int tensor;
    bool sequence_parallel; /* the group also divides the tokens of norms and dropout */
    double expert_load;     /* tokens of the device with most of them over the mean; 0: 1 */
    int expert_ways;        /* the experts of a layer lie on as many devices */
    int expert_tensor;      /* devices that divide each expert; 0: those of the group */
    struct {
        int rank, targets, base; /* lora.h; rank 0: there are no adapters */
        float scale;             /* of what they add */
        bool head;               /* the head trains beside them */
        bool dropout;            /* of each adapter's input */
        bool fused_qkv;          /* one adapter for queries, keys and values */
    } lora;
    int context; /* seq is the share of one of as many devices, which meet the keys of all
                               tokens; 0 and 1: it is the whole sample */
    /* Samples are rows of documents (packing.h). */
    struct {
        double documents; /* of a row, on average; 0: a sample is one document of seq tokens */
        double tokens;    /* of them; the rest of the row is padding */
        /* of the documents that equal parts of the tokens lie in */
        double lengths[PACKING_LENGTHS];
        bool apart; /* attention's kernels take the documents one by one */
    } packing;
};

/* Build a model from a MODEL text of the command line: a preset, optionally with modifiers
 * ("vit-b16:classes=1000,image=224"), or "uniform:layers=8,fwd=1ms,...". (profiles/ reads JSON
 * files and calls model_build() or model_explicit().) *model must be zeroed or cleared; on OK the
 * caller owns it and releases it with model_clear(). ERR_INPUT names the unknown preset or key and
 * the nearest valid one, or the size that overflows. */
enum status model_parse(const char *text, struct model *model, struct err *err);
/* Copy the next "key=value" of a comma-separated list of modifiers into key and value, and move
 * *list after it. start is the beginning of the list; *list must not be at its end. name is the
 * model's name for errors. ERR_INPUT: malformed, or a key that the list already had. */
enum status model_next_modifier(const char *start, const char **list, const char *name,
                                char key[32], char value[64], struct err *err);

/* The dims from which model_build() makes a model; zero means the family's default. */
struct model_spec {
    enum model_family family;
    enum model_task task;
    char name[64];
    int num_layers, hidden, heads, mlp;
    int image, patch, channels, classes;
    int seq, max_seq, vocab;
    int elem_bytes;    /* 4 or 2 */
    const char *dtype; /* a data type of a job that the text names (static); NULL: none */
    double norm_eps;   /* as in struct model */
    int unet_skips;    /* 1: block i is joined to block num_layers-1-i (U-ViT) */
    /* llama; as in struct model */
    int kv_heads, head_dim, qkv_bias, tied_head;
    int kv_rank, q_rank, rope_dim, v_dim;
    int experts, experts_active, expert_mlp, shared_experts, dense_layers, expert_bias;
    int expert_groups, groups_active;
    struct block block;
    const char *type; /* the decoder's, as model_type_find() has it; NULL: another family.
                         FAMILY_COMPOSED: the model_type of model_composed.c */
    struct rope turns;
    struct state_space state;
    char pattern[MODEL_PATTERN_SIZE];
    int layer_items;
    /* FAMILY_COMPOSED. The dims above are those of the decoder, of the only tower, or of CLIP's
     * vision tower. */
    struct {
        int layers, seq; /* seq: also the tokens of images that a decoder reads */
        int hidden, heads,
            mlp; /* CLIP's text tower; T5's and Whisper's encoder is as the decoder */
    } encoder;
    int buckets;                  /* T5: rows of the table of relative positions */
    int cross_first, cross_every; /* mllama: layers that read images */
    int depths[SWIN_STAGES];      /* layers of each stage */
    int project;                  /* CLIP: width that both towers end in */
    int teacher;                  /* DeiT: 1: a second classifier, for the teacher's answer */
};

/* A kind of decoder, named as transformers' model_type: what its layers are, without dims. */
struct model_type {
    const char *name;
    struct block block;
    int qkv_bias, expert_bias; /* as in struct model_spec */
};
/* NULL: there is none of that name. */
const struct model_type *model_type_find(const char *name);
/* Set what the type fixes. Dims stay, and so do
 * the window, places and qk_norm that the spec has already. */
void model_type_apply(const struct model_type *type, struct model_spec *spec);

/* Fill spec from a preset's name ("vit-b16"); ERR_INPUT when there is none. */
enum status model_preset(const char *name, struct model_spec *spec, struct err *err);

/* Apply one modifier ("classes", "1000") to spec. */
enum status model_spec_set(struct model_spec *spec, const char *key, const char *value,
                           struct err *err);

/* Build the item chain of a spec. model.c and model_llama.c have the formulas and their sources. */
enum status model_build(const struct model_spec *spec, struct model *model, struct err *err);

/* Build a model from a given chain of items and skip edges; copies its arguments. ERR_INPUT: an
 * empty chain, a negative size, an edge that does not go forward, an overflowing total. */
enum status model_explicit(const char *name, const struct item *items, int num_items,
                           const struct skip_edge *skips, int num_skips, bool per_microbatch,
                           struct model *model, struct err *err);

/* Set the bytes of a weight and of a gradient; 0 leaves what the dtype says. */
void model_set_bytes(struct model *model, int weight_bytes, int grad_bytes);

/* Give an item a table of times on a kind of device; copies rows. Items get their tables in
 * ascending order. ERR_INPUT: no rows, samples that do not ascend, a time that is negative or
 * falls, a kind that the item has already. */
enum status model_add_times(struct model *model, int item, const char *kind,
                            const struct time_row *rows, int num_rows, struct err *err);
/* The item's table for a kind; NULL: none. */
const struct time_table *model_time_table(const struct model *model, int item, const char *kind);

/* Give the head a table of its own: it had that of the embedding. No effect on other models. */
void model_untie(struct model *model);
/* Make model->untied, an untied copy, for freeze.head alone. Call it when everything else of the model is
 * set. No effect without a shared table, or with adapters, where the table trains for neither. */
enum status model_let_head_go_on(struct model *model, struct err *err);
void model_drop_untied(struct model *model);
/* The model of a plan with this many frozen layers. */
static inline const struct model *model_at(const struct model *model, int num_frozen_layers)
{
    return num_frozen_layers > 0 && model->untied ? model->untied : model;
}

/* Deep copy into zeroed *dst. */
enum status model_copy(const struct model *src, struct model *dst, struct err *err);
void model_clear(struct model *model);

/* The name of preset i, in the order of help texts, "uniform" last; NULL past the end. */
const char *model_preset_name(int i);

struct model_key {
    int families;      /* 1 << FAMILY_VIT | ...: those that have it */
    struct member row; /* of struct model_spec; its help is one line */
};
/* The keys by index, those of FAMILY_UNIFORM last; NULL past the end. */
const struct model_key *model_key_at(int i);
extern const char *const item_kind_names[]; /* by value, NULL-terminated */
const char *item_kind_name(enum item_kind kind);
const char *model_family_name(enum model_family family);

/* Whether two items have equal kinds and sizes, as every layer of most models. Their passes take
 * equal times on equal devices. Always false for ITEM_OPAQUE, whose times are its own. */
bool model_items_alike(const struct model *model, int one, int other);

/* Whether a skip edge ends at an item. */
bool model_joins_skip(const struct model *model, int item);

int64_t model_total_params(const struct model *model);
/* Norms of an attention or MLP item, apart from those of queries and keys, and their parameters. */
int model_item_norms(const struct model *model, enum item_kind kind);
int64_t model_norm_params(const struct model *model);
/* Whether attention and MLP of a layer read the same input (NORMS_PARALLEL, NORMS_PARALLEL_TWO). */
bool model_is_parallel(const struct model *model);
/* Tokens that a query of a layer sees at most; 0: all before it. */
int model_window(const struct model *model, int layer);
/* Tokens of a whole sample, of which the devices of model.context have a part each. */
static inline int64_t model_sample_tokens(const struct model *model)
{
    return (int64_t)model->seq * (model->context > 1 ? model->context : 1);
}
/* Pairs of a query and a key that a layer's attention computes for a sample. Masked pairs after the
 * query count too (Narayanan et al. 2021), so that a full layer has seq^2 pairs, and of documents
 * that kernels take one by one the sum of their squares. Devices that divide the tokens of a sample
 * have an equal part each. */
int64_t model_attention_pairs(const struct model *model, int layer);
/* So many tokens that choose experts, on the device that has most of them: tokens x expert_load,
 * rounded up. */
int64_t model_expert_tokens(const struct model *model, int64_t tokens);
/* Set expert_load, at least 1, and what the items keep for it. Call it once, before the model is
 * divided. */
void model_set_expert_load(struct model *model, double load);
/* Whether skip i is the tensor that items from `first` on already get by the skip before it. */
static inline bool model_skip_repeats(const struct model *model, int i, int first)
{
    const struct skip_edge *skip = &model->skips[i];
    return i > 0 && skip[-1].from == skip->from && skip[-1].bytes == skip->bytes &&
           skip[-1].to >= first;
}
/* Of an ITEM_STATE of the undivided model: flops of its linears for a sample, forward; parameters
 * of the norms that heads share. */
struct state_work {
    double linears;
    int64_t shared_params;
};
struct state_work model_state_work(const struct model *model);
/* Forward flops of the linears of an item that lists them (FAMILY_COMPOSED, ITEM_STATE); 0 for other
 * items. */
int64_t model_product_flops(const struct model *model, const struct item *item);
/* Whether its samples are images, not texts. */
bool model_has_images(const struct model *model);
/* Whether an item is an MLP of experts. */
bool model_item_has_experts(const struct model *model, int item);

/* Number of leading items that F = num_frozen_layers freezes: 0 for F = 0, else the embedding and
 * both items of layers 0..F-1. With F = num_layers, the final norm or pooler and the head still
 * train. */
int model_frozen_items(const struct model *model, int num_frozen_layers);
/* The share that F = num_frozen_layers leaves of an item's backward for weights: a head that shares its table
 * computes no gradient of it while the embedding is frozen. By the flops of the head's products. The other: of
 * `ns`, the time of that backward. */
double model_weight_share(const struct model *model, int item, int num_frozen_layers);
int64_t model_weight_ns(const struct model *model, int item, int num_frozen_layers, int64_t ns);
/* Check F. ERR_INFEASIBLE: F is not 0..num_layers, or no item is left to train. */
enum status model_check_frozen(const struct model *model, int64_t num_frozen_layers,
                               struct err *err);

/* Bytes that a device holds per weight: the stored value plus, if activations are narrower, the
 * rounded copy that kernels read. For example 6: an fp32 master and a bf16 copy. */
int model_weight_bytes(const struct model *model);
/* Bytes of a gradient per weight, in memory and in the all-reduce. */
int model_grad_bytes(const struct model *model);

/* Input data: the fields of a micro-batch that a stage reads apart from the activation that enters
 * it. / */
enum block_field {
    BLOCK_IDS,
    BLOCK_IMAGES,
    BLOCK_TOKENS,
    BLOCK_TYPES, /* of tokens; of causal models starts of documents */
    BLOCK_LENGTHS,
    BLOCK_LABELS,
    BLOCK_ROWS,       /* indices of the tokens that a masked language model predicts */
    BLOCK_ROW_LABELS, /* the correct tokens there */
    BLOCK_FIELDS
};
/* Bytes per sample of each field that a stage reads; 0: not read. embeds, head: whether the stage
 * holds the model's first or last item. */
void model_block_fields(const struct model *model, bool embeds, bool head,
                        int64_t bytes[BLOCK_FIELDS]);

/* Size of a field in a device's copy of the input data. Each field starts at a multiple of 256
 * bytes. */
static inline int64_t model_block_pad(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}
/* Size of a device's copy of all fields of `samples` samples. */
int64_t model_block_bytes(const struct model *model, bool embeds, bool head, int64_t samples);

/* The number of `count` tokens that a masked language model predicts: 15 % (Devlin et al. 2018,
 * section 3.1), at least one unless count is 0. */
static inline int64_t model_masked_of(int64_t count)
{
    return count < 1 ? 0 : count < 7 ? 1 : (count * 15 + 50) / 100;
}

#ifdef __cplusplus
}
#endif
