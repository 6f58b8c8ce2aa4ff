/* Tensors, shapes and stash sizes of the families (arch.h).
 *
 * arch_init() sets what differs between the families. arch_item() lists the tensors of an item:
 * tensor() appends one to a block, and the *_spec() functions call it in the order in which tensors
 * lie in their blocks. arch_stash() must agree with the passes in layers.c, embed.c and heads.c. To
 * add a family, start with arch_init() and embedding_spec(). */
#include "exec/stage/arch.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "partition/model/lora.h"
#include "partition/step/pool_memory.h"

static const struct decoder decoders[] = {
    {"llama",   "LlamaForCausalLM",   ACT_SILU,      0.0f, false},
    {"mistral", "MistralForCausalLM", ACT_SILU,      0.0f, false},
    {"qwen2",   "Qwen2ForCausalLM",   ACT_SILU,      0.0f, false},
    {"qwen3",   "Qwen3ForCausalLM",   ACT_SILU,      0.0f, false},
    {"gemma",   "GemmaForCausalLM",   ACT_GELU_TANH, 1.0f, true },
};

double arch_eps(const struct model *model)
{
    if (model->norm_eps > 0.0)
        return model->norm_eps;
    return model->family == FAMILY_LLAMA ? 1e-6 : model->family == FAMILY_GPT ? 1e-5 : 1e-12;
}

/* The first feature of the model that the decoders' kernels do not compute; NULL: they compute all. */
static const char *not_computed(const struct model *m)
{
    const struct block *b = &m->block;
    const struct {
        bool has;
        const char *what;
    } rows[] = {
        {m->state.kind != MIXER_NONE,       "state-space layers"                 },
        {m->experts > 0,                    "experts"                            },
        {m->kv_rank > 0,                    "latent attention"                   },
        {b->norm != NORM_FORM_RMS,          "layer norms"                        },
        {b->places != NORMS_BEFORE,         "norms in other places"              },
        {b->positions != POSITIONS_ROTARY,  "positions other than rotary ones"   },
        {b->qk_norm == QK_NORM_FULL,        "norms over all queries"             },
        {b->out_bias || b->mlp_bias,        "biases after attention"             },
        {b->plain_mlp,                      "an MLP without gate"                },
        {b->head_bias || b->embedding_norm, "a bias or norm of its tables"       },
        {b->softcap || b->sinks,            "capped logits or sinks"             },
        {m->turns.kind == ROPE_OTHER,       "another scaling of rotary positions"},
        {m->head_dim % 2,                   "heads of an odd width"              },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].has)
            return rows[i].what;
    return NULL;
}

/* Set what a decoder has; ERR_INPUT names what the kernels do not compute. */
static enum status init_decoder(const struct model *m, struct arch *a, struct err *err)
{
    const struct block *b = &m->block;
    /* A preset or modifiers without a type: that of transformers which has these layers. */
    const char *type = b->qk_norm == QK_NORM_HEAD ? "qwen3"
                       : m->qkv_bias              ? "qwen2"
                       : b->window > 0            ? "mistral"
                                                  : "llama";
    if (m->type && strcmp(m->type, "llama") != 0)
        type = m->type;
    const char *no = not_computed(m);
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
        if (strcmp(decoders[i].type, type) == 0)
            a->decoder = &decoders[i];
    if (!no && !a->decoder)
        no = "a type that elapse-exec does not have";
    if (no) {
        err_set(err, ERR_INPUT, "model '%s' of type %s can be simulated, not trained: it has %s",
                m->name, type, no);
        err_hint(err, "types that train: llama, mistral, qwen2, qwen3, gemma");
        return ERR_INPUT;
    }
    a->causal = true;
    a->outputs = m->vocab;
    a->kv_heads = m->kv_heads;
    a->head_dim = m->head_dim;
    return OK;
}

enum status arch_init(const struct model *model, struct arch *arch, struct err *err)
{
    struct arch a = {.family = model->family,
                     .task = model->task,
                     .seq = model->seq,
                     .hidden = model->hidden,
                     .heads = model->heads,
                     .mlp = model->mlp,
                     .scratch = (int)pool_scratch_cols(model),
                     .gelu = ACT_GELU_ERF,
                     .eps = (float)arch_eps(model)};
    switch (model->family) {
    case FAMILY_VIT:
        a.outputs = model->classes;
        break;
    case FAMILY_BERT:
        a.post_norm = true;
        a.outputs = model->task == TASK_QA    ? 2
                    : model->task == TASK_MLM ? model->vocab
                                              : model->classes;
        break;
    case FAMILY_GPT:
        a.causal = a.in_out = true;
        a.gelu = ACT_GELU_TANH;
        a.outputs = model->vocab;
        break;
    case FAMILY_LLAMA: {
        const enum status rc = init_decoder(model, &a, err);
        if (rc != OK)
            return rc;
        break;
    }
    case FAMILY_COMPOSED:
    case FAMILY_UNIFORM:
    case FAMILY_EXPLICIT:
    case FAMILY_COUNT:
        return err_set(err, ERR_INPUT, "model '%s': family %s can be simulated, not trained",
                       model->name, model_family_name(model->family));
    }
    a.table_rows = model->vocab;
    a.logit_stride = a.outputs;
    if (a.task == TASK_MLM || a.task == TASK_CAUSAL_LM) {
        a.table_rows = (model->vocab + 7) / 8 * 8;
        a.logit_stride = (a.outputs + 63) / 64 * 64;
    }
    if (a.heads < 1 || (!a.decoder && a.hidden % a.heads != 0))
        return err_set(err, ERR_INPUT, "model '%s': hidden %d is not a multiple of its %d heads",
                       model->name, a.hidden, a.heads);
    *arch = a;
    return OK;
}

/* Appends a tensor to a block. The first tensor of a block starts at offset 0, later ones follow
 * it. */
static struct tensor_spec *tensor(struct item_spec *spec, int block, float std, float value,
                                  int ndim, const int64_t *shape, const char *name, ...)
    __attribute__((format(printf, 7, 8)));
static struct tensor_spec *tensor(struct item_spec *spec, int block, float std, float value,
                                  int ndim, const int64_t *shape, const char *name, ...)
{
    struct tensor_spec *t = &spec->tensors[spec->num_tensors++];
    va_list args;
    va_start(args, name);
    vsnprintf(t->name, sizeof t->name, name, args);
    va_end(args);
    t->ndim = ndim;
    t->num_elems = 1;
    for (int i = 0; i < ndim; i++) {
        t->shape[i] = shape[i];
        t->num_elems *= shape[i];
    }
    t->block = block;
    t->offset = spec->block_elems[block];
    t->std = std;
    t->value = value;
    t->decay = ndim >= 2;
    spec->block_elems[block] += t->num_elems;
    if (block >= spec->num_blocks)
        spec->num_blocks = block + 1;
    return t;
}
#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void norm_pair(struct item_spec *spec, int block, int64_t h, const char *prefix)
{
    tensor(spec, block, 0.0f, 1.0f, SHAPE(h), "%s.weight", prefix);
    tensor(spec, block + 1, 0.0f, 0.0f, SHAPE(h), "%s.bias", prefix);
}

static void dense_pair(struct item_spec *spec, int weight, int bias, bool in_out, int64_t in,
                       int64_t out, float std, const char *prefix)
{
    if (in_out)
        tensor(spec, weight, std, 0.0f, SHAPE(in, out), "%s.weight", prefix);
    else
        tensor(spec, weight, std, 0.0f, SHAPE(out, in), "%s.weight", prefix);
    tensor(spec, bias, 0.0f, 0.0f, SHAPE(out), "%s.bias", prefix);
}

/* A token table, and in its block the padding rows after it (arch.table_rows). */
static void table_spec(const struct model *m, const struct arch *a, struct item_spec *spec,
                       int block, const char *name)
{
    tensor(spec, block, 0.02f, 0.0f, SHAPE(m->vocab, a->hidden), "%s", name);
    spec->block_elems[block] += (int64_t)(a->table_rows - m->vocab) * a->hidden;
}

const char *arch_table_name(const struct arch *a)
{
    return a->family == FAMILY_GPT    ? "transformer.wte.weight"
           : a->family == FAMILY_BERT ? "bert.embeddings.word_embeddings.weight"
                                      : "model.embed_tokens.weight";
}

static void embedding_spec(const struct model *m, const struct arch *a, struct item_spec *spec)
{
    const int64_t h = a->hidden;
    const float std = 0.02f;
    switch (a->family) {
    case FAMILY_VIT:
        tensor(spec, CLS, std, 0.0f, SHAPE(1, 1, h), "vit.embeddings.cls_token");
        tensor(spec, POS, std, 0.0f, SHAPE(1, a->seq, h), "vit.embeddings.position_embeddings");
        tensor(spec, PATCH_W, std, 0.0f, SHAPE(h, m->channels, m->patch, m->patch),
               "vit.embeddings.patch_embeddings.projection.weight");
        tensor(spec, PATCH_B, 0.0f, 0.0f, SHAPE(h),
               "vit.embeddings.patch_embeddings.projection.bias");
        break;
    case FAMILY_BERT:
        table_spec(m, a, spec, WORD, arch_table_name(a));
        tensor(spec, WORD_POS, std, 0.0f, SHAPE(m->max_seq, h),
               "bert.embeddings.position_embeddings.weight");
        tensor(spec, TYPE, std, 0.0f, SHAPE(2, h), "bert.embeddings.token_type_embeddings.weight");
        norm_pair(spec, EMB_G, h, "bert.embeddings.LayerNorm");
        break;
    case FAMILY_LLAMA:
        table_spec(m, a, spec, WORD, arch_table_name(a));
        break;
    default:
        table_spec(m, a, spec, WORD, arch_table_name(a));
        tensor(spec, WORD_POS, std, 0.0f, SHAPE(m->max_seq, h), "transformer.wpe.weight");
        break;
    }
}

int adapters_of(const struct model *model, int item, struct adapter list[LORA_PRODUCTS])
{
    struct lora_product products[LORA_PRODUCTS];
    const int all = model->lora.rank > 0 ? lora_products(model, item, products) : 0;
    const bool decoder = model->family == FAMILY_LLAMA;
    int64_t columns[2] = {0};
    int num = 0;
    for (int i = 0; i < all; i++)
        columns[products[i].first] += products[i].out;
    for (int i = 0; i < all; i++) {
        const struct lora_product *p = &products[i];
        if (!p->adapted)
            continue;
        list[num] = (struct adapter){.module = p->module,
                                     .first = p->first,
                                     .in = (int)p->in,
                                     .out = (int)p->out,
                                     .column = p->column,
                                     .stride = columns[p->first]};
        switch (model->items[item].kind) {
        case ITEM_ATTENTION:
            list[num].block = !p->first ? OUT_W : decoder ? HEADS_W : QKV_W;
            break;
        case ITEM_MLP:
            list[num].block = decoder ? (p->first ? GATE_UP_W : DOWN_W) : p->first ? FC1_W : FC2_W;
            break;
        default:
            list[num].block = DENSE_W;
            break;
        }
        num++;
    }
    return num;
}

/* The name of a transformer layer of the model, without a dot at its end. */
static void layer_name(const struct arch *a, int layer, char name[64])
{
    snprintf(name, 64, "%s.%d",
             a->decoder                ? "model.layers"
             : a->family == FAMILY_GPT ? "transformer.h"
             : a->family == FAMILY_VIT ? "vit.encoder.layer"
                                       : "bert.encoder.layer",
             layer);
}

/* A [rank, in] and B [out, rank] of each adapter. A begins as torch's linears do, uniform in +-1 /
 * sqrt(in) (what kaiming_uniform_() with a = sqrt(5) comes to), B at zero, so that the first step
 * starts from the base. */
static void adapters_spec(const struct model *m, const struct arch *a, int item,
                          struct item_spec *spec)
{
    struct adapter list[LORA_PRODUCTS];
    const int num = adapters_of(m, item, list);
    char layer[64] = "bert"; /* has the pooler */
    if (m->items[item].kind != ITEM_POOLER)
        layer_name(a, m->items[item].layer, layer);
    for (int i = 0; i < num; i++) {
        const int64_t in = list[i].in, out = list[i].out, rank = m->lora.rank;
        char name[80];
        snprintf(name, sizeof name, "%.40s.%.36s", layer, list[i].module);
        tensor(spec, ADAPTERS + 2 * i, 0.0f, 0.0f, SHAPE(rank, in), "%s.lora_A.weight", name)
            ->bound = 1.0f / sqrtf((float)in);
        tensor(spec, ADAPTERS + 2 * i + 1, 0.0f, 0.0f, SHAPE(out, rank), "%s.lora_B.weight", name);
    }
}

/* A vector of a decoder's norm. */
static void rms_spec(const struct arch *a, struct item_spec *spec, int block, int64_t n,
                     const char *prefix, const char *name)
{
    tensor(spec, block, 0.0f, 1.0f - a->decoder->plus, SHAPE(n), "%s%s.weight", prefix, name);
}

static void decoder_attention_spec(const struct model *m, const struct arch *a, int layer,
                                   struct item_spec *spec)
{
    static const char *const names[] = {"q", "k", "v"};
    const int64_t query = (int64_t)a->heads * a->head_dim, key = (int64_t)a->kv_heads * a->head_dim;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "model.layers.%d.", layer);
    rms_spec(a, spec, NORM_G, a->hidden, prefix, "input_layernorm");
    for (int i = 0; i < 2 && m->block.qk_norm == QK_NORM_HEAD; i++)
        rms_spec(a, spec, QK_G, a->head_dim, prefix, i ? "self_attn.k_norm" : "self_attn.q_norm");
    for (int i = 0; i < 3; i++) {
        tensor(spec, HEADS_W, 0.02f, 0.0f, SHAPE(i ? key : query, a->hidden),
               "%sself_attn.%s_proj.weight", prefix, names[i]);
        if (m->qkv_bias)
            tensor(spec, HEADS_B, 0.0f, 0.0f, SHAPE(i ? key : query), "%sself_attn.%s_proj.bias",
                   prefix, names[i]);
    }
    tensor(spec, OUT_W, 0.02f, 0.0f, SHAPE(a->hidden, query), "%sself_attn.o_proj.weight", prefix);
}

static void decoder_mlp_spec(const struct arch *a, int layer, struct item_spec *spec)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "model.layers.%d.", layer);
    rms_spec(a, spec, NORM_G, a->hidden, prefix, "post_attention_layernorm");
    tensor(spec, GATE_UP_W, 0.02f, 0.0f, SHAPE(a->mlp, a->hidden), "%smlp.gate_proj.weight",
           prefix);
    tensor(spec, GATE_UP_W, 0.02f, 0.0f, SHAPE(a->mlp, a->hidden), "%smlp.up_proj.weight", prefix);
    tensor(spec, DOWN_W, 0.02f, 0.0f, SHAPE(a->hidden, a->mlp), "%smlp.down_proj.weight", prefix);
}

static void attention_spec(const struct model *m, const struct arch *a, int layer,
                           struct item_spec *spec)
{
    const int64_t h = a->hidden;
    const float std = 0.02f;
    static const char *const vit_qkv[] = {"query", "key", "value"};
    char prefix[64], name[96];
    if (a->decoder) {
        decoder_attention_spec(m, a, layer, spec);
        return;
    }
    layer_name(a, layer, prefix);
    if (a->family == FAMILY_GPT) {
        snprintf(name, sizeof name, "%s.ln_1", prefix);
        norm_pair(spec, NORM_G, h, name);
        snprintf(name, sizeof name, "%s.attn.c_attn", prefix);
        dense_pair(spec, QKV_W, QKV_B, true, h, 3 * h, std, name);
        snprintf(name, sizeof name, "%s.attn.c_proj", prefix);
        /* Radford et al. 2019: residual projections start smaller, by a factor of sqrt(2 layers).
         */
        dense_pair(spec, OUT_W, OUT_B, true, h, h, std / sqrtf(2.0f * (float)m->num_layers), name);
        return;
    }
    const bool vit = a->family == FAMILY_VIT;
    snprintf(name, sizeof name, "%s.%s", prefix,
             vit ? "layernorm_before" : "attention.output.LayerNorm");
    norm_pair(spec, NORM_G, h, name);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.attention.%s.%s", prefix, vit ? "attention" : "self",
                 vit_qkv[i]);
        dense_pair(spec, QKV_W, QKV_B, false, h, h, std, name);
    }
    snprintf(name, sizeof name, "%s.attention.output.dense", prefix);
    dense_pair(spec, OUT_W, OUT_B, false, h, h, std, name);
}

static void mlp_spec(const struct model *m, const struct arch *a, int layer, struct item_spec *spec)
{
    const int64_t h = a->hidden, wide = a->mlp;
    const bool gpt = a->family == FAMILY_GPT, vit = a->family == FAMILY_VIT;
    const float std = 0.02f;
    char prefix[64], name[96];
    layer_name(a, layer, prefix);
    snprintf(name, sizeof name, "%s.%s", prefix,
             gpt   ? "ln_2"
             : vit ? "layernorm_after"
                   : "output.LayerNorm");
    norm_pair(spec, NORM_G, h, name);
    snprintf(name, sizeof name, "%s.%s", prefix, gpt ? "mlp.c_fc" : "intermediate.dense");
    dense_pair(spec, FC1_W, FC1_B, gpt, h, wide, std, name);
    snprintf(name, sizeof name, "%s.%s", prefix, gpt ? "mlp.c_proj" : "output.dense");
    dense_pair(spec, FC2_W, FC2_B, gpt, wide, h,
               gpt ? std / sqrtf(2.0f * (float)m->num_layers) : std, name);
}

static void head_spec(const struct model *m, const struct arch *a, struct item_spec *spec)
{
    const int64_t h = a->hidden;
    const float std = 0.02f;
    switch (a->task) {
    case TASK_CLASSIFY:
        dense_pair(spec, DENSE_W, DENSE_B, false, h, a->outputs, std, "classifier");
        break;
    case TASK_QA:
        dense_pair(spec, DENSE_W, DENSE_B, false, h, 2, std, "qa_outputs");
        break;
    case TASK_MLM:
        dense_pair(spec, DENSE_W, DENSE_B, false, h, h, std, "cls.predictions.transform.dense");
        norm_pair(spec, HEAD_G, h, "cls.predictions.transform.LayerNorm");
        tensor(spec, HEAD_BIAS, 0.0f, 0.0f, SHAPE(m->vocab), "cls.predictions.bias");
        break;
    case TASK_CAUSAL_LM:
        break;
    }
    if (a->task == TASK_MLM || a->task == TASK_CAUSAL_LM) {
        table_spec(m, a, spec, HEAD_TABLE,
                   m->tied_head               ? arch_table_name(a)
                   : a->family == FAMILY_BERT ? "cls.predictions.decoder.weight"
                                              : "lm_head.weight");
        spec->tied = m->tied_head;
    }
}

void arch_item(const struct model *model, const struct arch *arch, int item, struct item_spec *spec)
{
    memset(spec, 0, sizeof *spec);
    const struct item *it = &model->items[item];
    switch (it->kind) {
    case ITEM_EMBEDDING:
        embedding_spec(model, arch, spec);
        break;
    case ITEM_ATTENTION:
        attention_spec(model, arch, it->layer, spec);
        if (model_joins_skip(model, item)) {
            /* U-ViT (Bao et al. 2023): long skips are joined by concatenation and a linear. */
            char name[96];
            snprintf(name, sizeof name, "vit.encoder.layer.%d.skip_linear", it->layer);
            dense_pair(spec, JOIN_W, JOIN_B, false, 2 * (int64_t)arch->hidden, arch->hidden, 0.02f,
                       name);
        }
        break;
    case ITEM_MLP:
        if (arch->decoder)
            decoder_mlp_spec(arch, it->layer, spec);
        else
            mlp_spec(model, arch, it->layer, spec);
        break;
    case ITEM_NORM:
        if (arch->decoder)
            rms_spec(arch, spec, NORM_G, arch->hidden, "", "model.norm");
        else
            norm_pair(spec, NORM_G, arch->hidden,
                      arch->family == FAMILY_GPT ? "transformer.ln_f" : "vit.layernorm");
        break;
    case ITEM_POOLER:
        dense_pair(spec, DENSE_W, DENSE_B, false, arch->hidden, arch->hidden, 0.02f,
                   "bert.pooler.dense");
        break;
    case ITEM_HEAD:
        head_spec(model, arch, spec);
        break;
    case ITEM_OPAQUE:
    case ITEM_STATE:
    case ITEM_KIND_COUNT:
        break;
    }
    adapters_spec(model, arch, item, spec);
}

/* Attention of a decoder, on `rows` tokens. */
static void decoder_stash(const struct model *model, const struct arch *arch, int64_t rows,
                          int64_t e, int64_t *stash)
{
    const int64_t f = sizeof(float), h = arch->hidden;
    const int64_t query = rows * arch->heads * arch->head_dim * e;
    const int64_t heads = rows * (arch->heads + arch->kv_heads);
    stash[AT_LN] = rows * h * e;
    stash[AT_STATS] = rows * f;
    stash[AT_HEADS] = query + 2 * rows * arch->kv_heads * arch->head_dim * e;
    stash[AT_HEAD_STATS] = model->block.qk_norm == QK_NORM_HEAD ? heads * f : 0;
    stash[AT_QKV] = 3 * query;
    stash[AT_CTX] = query;
    stash[AT_LSE] = rows * arch->heads * f;
    stash[PART] = (h + 2 * arch->head_dim) * f;
}

static void head_stash(const struct arch *arch, int64_t n, int64_t e, int64_t *stash)
{
    const int64_t f = sizeof(float), h = arch->hidden;
    if (arch->task == TASK_CLASSIFY) {
        stash[HE_LOGITS] = n * arch->outputs * e;
        stash[HE_DROP] = n * h * e;
    } else if (arch->task == TASK_MLM) {
        const int64_t masked = n * model_masked_of(arch->seq);
        stash[HE_PRE] = stash[HE_ACT] = stash[HE_LN] = stash[HE_GRAD] = masked * h * e;
        stash[HE_LOGITS] = masked * arch->logit_stride * e;
        stash[HE_STATS] = 2 * masked * f;
        stash[PART] = 2 * h * f;
    } else {
        stash[HE_LOGITS] = n * arch->seq * arch->logit_stride * e;
    }
}

void arch_stash(const struct model *model, const struct arch *arch, int item, int64_t n,
                int elem_bytes, bool on_device, int64_t *stash, int64_t *out)
{
    const int64_t f = sizeof(float), e = elem_bytes, rows = n * arch->seq;
    const int64_t h = arch->hidden, wide = rows * h * e, stats = 2 * rows * f, part = 2 * h * f;
    memset(stash, 0, MAX_STASH * sizeof *stash);
    *out = wide;
    switch (model->items[item].kind) {
    case ITEM_EMBEDDING:
        if (arch->family == FAMILY_BERT) {
            stash[EMB_SUM] = wide;
            stash[EMB_STATS] = stats;
            stash[PART] = part;
        }
        break;
    case ITEM_ATTENTION:
        if (arch->decoder) {
            decoder_stash(model, arch, rows, e, stash);
            break;
        }
        stash[AT_LN] = wide;
        stash[AT_STATS] = stats;
        stash[AT_QKV] = 3 * wide;
        stash[AT_CTX] = wide;
        stash[AT_LSE] = rows * arch->heads * f;
        if (model_joins_skip(model, item)) {
            stash[AT_CAT] = 2 * wide;
            stash[AT_JOIN] = wide;
        }
        stash[PART] = part + (on_device ? 4 * h * f : 0);
        break;
    case ITEM_MLP:
        stash[ML_LN] = wide;
        stash[ML_STATS] = stats;
        stash[ML_PRE] = stash[ML_GELU] = rows * arch->mlp * e;
        if (arch->decoder)
            stash[ML_PRE] *= 2;
        stash[PART] = part + (on_device ? (h + arch->mlp) * f : 0);
        break;
    case ITEM_NORM:
        stash[NO_STATS] = stats;
        stash[PART] = part;
        break;
    case ITEM_POOLER:
        stash[PO_GRAD] = n * h * e;
        *out = n * h * e;
        break;
    case ITEM_HEAD:
        *out = 0;
        head_stash(arch, n, e, stash);
        break;
    case ITEM_OPAQUE:
    case ITEM_STATE:
    case ITEM_KIND_COUNT:
        break;
    }
}
