/* Items of the llama family and its kin, by formula. struct block says how a kin differs. Read
 * model.c first; its notation holds here.
 *
 * s tokens of a sample, h hidden, a heads, g heads of keys and values, d width of a head, m MLP
 * width, V vocabulary, e bytes of an activation element; E experts, k of them active, f their width,
 * S shared experts; latent attention: q and c ranks of queries and of keys and values, r width with
 * positions, v width of values.
 *
 * params (Touvron et al. 2023; Mistral: Jiang et al. 2023; Qwen2.5 report 2024; Mixtral: Jiang et
 *   al. 2024; DeepSeek-V2 and -V3 reports 2024): linears have no bias, except queries, keys and
 *   values in Qwen. RMSNorm has h parameters.
 *     attention  h a d + 2 h g d + a d h, and with biases a d + 2 g d
 *     latent     queries h q + q + q a (d + r), or h a (d + r) without a rank; keys and values
 *                h (c + r) + c + c a (d + v); output a v h. Both ranks have an RMSNorm.
 *     MLP        3 h m: gate, up, down
 *     experts    router h E (and E with a bias), E x 3 h f, shared 3 h S f
 * fwd_flops: the matrix products, a multiply-add is 2, as in model.c: two per weight and token (of
 *   the experts, the k active and the shared ones), and scores and context 4 s^2 a d, latent
 *   2 s^2 a (d + r + v). The masked half of the scores counts, as in Narayanan et al. 2021.
 * stash_bytes: what a training framework keeps per sample with fused attention, RMSNorm and SwiGLU,
 *   and no dropout. RMSNorm's 1 / rms and the logarithm of attention's row sums are fp32.
 *     attention  norm input, QKV input: 2 [s, h]; queries, output of attention: 2 [s, a d]; keys and
 *                values: 2 [s, g d]; 4 s + 4 a s
 *     latent     2 [s, h]; queries before and after their norm: 2 [s, q]; the same of keys and
 *                values: 2 [s, c]; queries and keys: 2 [s, a (d + r)]; values and output: 2 [s, a v]
 *     MLP        norm input, first linears' input: 2 [s, h]; gate, up, product: 3 [s, m]; 4 s
 *     experts    2 [s, h]; router's probabilities [s, E] fp32; per active expert the token, gate, up,
 *                product and output: 2 [s, h] + 3 [s, f], and 12 bytes of index and weight; shared
 *                3 [s, S f]
 *     variants   a norm after attention or MLP keeps one more [s, h]; norms of queries and keys keep
 *                both before it; an MLP that shares the norm of attention keeps no [s, h]; without a
 *                gate 2 [s, m]; LayerNorm has mean and 1 / deviation: 8 s. Between attention and MLP
 *                of a parallel layer two tensors pass: the sum so far and the input of the MLP
 *     head       input [s, h] and the logits [s, V], which the loss keeps in fp32 */
#include "partition/model/model_items.h"

#include <math.h>
#include <stdio.h>

#include "partition/base/units.h"

static bool latent(const struct model *model)
{
    return model->kv_rank > 0;
}

bool llama_fill_embedding(const struct model *model, struct item *item)
{
    wide s = model->seq, h = model->hidden, e = model->elem_bytes;
    const bool table = model->block.positions == POSITIONS_TABLE;
    const wide rows = (wide)model->vocab + (table ? model->max_seq + 2 : 0);
    const bool norm = model->block.embedding_norm;
    return item_fill(item, ITEM_EMBEDDING, -1, "embedding",
                     rows * h + (norm ? model_norm_params(model) : 0), 0, s * h * e,
                     8 * s + (norm ? s * h * e + 8 * s : 0));
}

/* Weights of products, other parameters, stashed numbers per token apart from the hidden ones, and
 * products of scores and context per pair of tokens. */
struct attention_size {
    wide weights, others, kept, per_pair;
};

/* Tensors [s, h] that an item keeps: the input of its first linears, and what its norms read. */
static wide hidden_kept(const struct model *model, enum item_kind kind)
{
    const int norms = model_item_norms(model, kind);
    return norms > 0 ? 1 + norms : 0;
}

static wide norm_statistics(const struct model *model)
{
    return model->rms_norm ? 4 : 8;
}

static struct attention_size grouped_size(const struct model *model)
{
    const struct block *block = &model->block;
    wide h = model->hidden, query = (wide)model->heads * model->head_dim;
    wide key = (wide)model->kv_heads * model->head_dim;
    wide others = model->qkv_bias ? query + 2 * key : 0;
    others += (block->out_bias ? h : 0) + (block->sinks ? model->heads : 0);
    others += block->qk_norm == QK_NORM_HEAD   ? 2 * model->head_dim
              : block->qk_norm == QK_NORM_FULL ? query + key
                                               : 0;
    const wide gate = block->gated_heads ? query : 0; /* kept, and the product with the output */
    return (struct attention_size){.weights = 2 * h * query + 2 * h * key + h * gate,
                                   .others = others,
                                   .kept = 2 * query + 2 * key + 2 * gate +
                                           (block->qk_norm != QK_NORM_NONE ? query + key : 0),
                                   .per_pair = 2 * query};
}

static struct attention_size latent_size(const struct model *model)
{
    const wide h = model->hidden, a = model->heads, q = model->q_rank, c = model->kv_rank;
    wide key = a * (model->head_dim + model->rope_dim), value = a * model->v_dim;
    wide queries = q > 0 ? h * q + q * key : h * key;
    return (struct attention_size){.weights = queries + h * (c + model->rope_dim) +
                                              c * (a * model->head_dim + value) + value * h,
                                   .others = q + c,
                                   .kept = 2 * q + 2 * c + 2 * key + 2 * value,
                                   .per_pair = key + value};
}

bool llama_fill_attention(const struct model *model, int layer, struct item *item)
{
    wide s = model->seq, h = model->hidden, e = model->elem_bytes;
    const struct attention_size size = latent(model) ? latent_size(model) : grouped_size(model);
    const wide norms = model_item_norms(model, ITEM_ATTENTION);
    const wide kept = size.kept + hidden_kept(model, ITEM_ATTENTION) * h;
    char name[32];
    snprintf(name, sizeof name, "attn%d", layer);
    return item_fill(item, ITEM_ATTENTION, layer, name,
                     size.weights + size.others + norms * model_norm_params(model),
                     2 * s * size.weights +
                         2 * (wide)model_attention_pairs(model, layer) * size.per_pair,
                     (model_is_parallel(model) ? 2 : 1) * s * h * e,
                     s * kept * e + norms * norm_statistics(model) * s + 4 * s * model->heads);
}

bool llama_fill_mlp(const struct model *model, int layer, struct item *item)
{
    wide s = model->seq, h = model->hidden, m = model->mlp, e = model->elem_bytes;
    const struct block *block = &model->block;
    const wide linears = block->plain_mlp ? 2 : 3, norms = model_item_norms(model, ITEM_MLP);
    const wide tokens = hidden_kept(model, ITEM_MLP) * h;
    wide weights = linears * h * m, used = weights, kept = (tokens + linears * m) * e;
    wide biases = block->mlp_bias ? (linears - 1) * m + h : 0;
    char name[32];
    if (model_layer_has_experts(model, layer)) {
        wide f = model->expert_mlp, experts = model->experts, active = model->experts_active;
        wide shared = model->shared_experts * f;
        weights = h * experts + linears * h * (experts * f + shared);
        used = h * experts + linears * h * (active * f + shared);
        kept = (tokens + active * (2 * h + linears * f) + linears * shared) * e + 4 * experts +
               12 * active;
        biases = model->expert_bias ? experts : 0;
        biases += block->shared_gate ? h : 0;
        biases += block->expert_mlp_bias ? experts * ((linears - 1) * f + h) : 0;
    }
    snprintf(name, sizeof name, "mlp%d", layer);
    return item_fill(item, ITEM_MLP, layer, name,
                     weights + biases + norms * model_norm_params(model), 2 * s * used, s * h * e,
                     s * kept + norms * norm_statistics(model) * s);
}

int64_t model_expert_tokens(const struct model *model, int64_t tokens)
{
    return model->expert_load > 1 ? (int64_t)fmin(ceil((double)tokens * model->expert_load), 9e18)
                                  : tokens;
}

void model_set_expert_load(struct model *model, double load)
{
    const int64_t chosen = (int64_t)model->seq * model->experts_active;
    const int64_t linears = model->block.plain_mlp ? 2 : 3;
    model->expert_load = load;
    const int64_t more = model_expert_tokens(model, chosen) - chosen;
    for (int i = 0; i < model->num_items; i++)
        if (model_item_has_experts(model, i))
            model->items[i].stash_bytes = add_saturated(
                model->items[i].stash_bytes,
                mul_saturated(more, (2 * model->hidden + linears * model->expert_mlp) *
                                        model->elem_bytes));
}

bool llama_fill_tail(const struct model *model, struct item item[2])
{
    const int behind = model->num_layers;
    wide s = model->seq, h = model->hidden, vocab = model->vocab, e = model->elem_bytes;
    const wide head = (model->tied_head ? 0 : h * vocab) + (model->block.head_bias ? vocab : 0);
    bool ok = item_fill(&item[0], ITEM_NORM, behind, "norm", model_norm_params(model), 0, s * h * e,
                        s * h * e + norm_statistics(model) * s) &&
              item_fill(&item[1], ITEM_HEAD, behind, "head", head, 2 * s * h * vocab, 0,
                        s * h * e + 4 * s * vocab + (model->block.softcap ? 4 * s * vocab : 0));
    return ok && (!model->tied_head || item_store(h * vocab, &item[1].tied_params));
}

/* Each group has the same number of experts, and those that a token chooses have enough for it. */
static enum status check_expert_groups(const struct model *model, const char *name, struct err *err)
{
    const int groups = model->expert_groups, active = model->groups_active;
    if (groups <= 1)
        return OK;
    if (groups > model->experts || model->experts % groups != 0)
        return err_set(err, ERR_INPUT,
                       "model '%s': experts %d is not a multiple of expert_groups %d", name,
                       model->experts, groups);
    if (active < 1 || active > groups || model->experts / groups * active < model->experts_active)
        return err_set(err, ERR_INPUT,
                       "model '%s': groups_active must be 1..%d and have %d experts, got %d", name,
                       groups, model->experts_active, active);
    return OK;
}

static enum status check_experts(const struct model *model, const char *name, struct err *err)
{
    if (model->experts == 0) {
        if (model->experts_active || model->expert_mlp || model->shared_experts ||
            model->dense_layers || model->expert_bias || model->expert_groups)
            return err_set(err, ERR_INPUT,
                           "model '%s': experts_active, expert_mlp, expert_groups, shared_experts, "
                           "dense_layers and expert_bias need experts",
                           name);
        return OK;
    }
    const struct dim dims[] = {
        {"experts",        model->experts,        MODEL_EXPERTS_MAX},
        {"experts_active", model->experts_active, model->experts   },
        {"expert_mlp",     model->expert_mlp,     MODEL_DIM_MAX    },
    };
    enum status rc = model_check_dims(name, dims, 3, err);
    if (rc == OK && (model->shared_experts < 0 || model->shared_experts > MODEL_EXPERTS_MAX))
        rc = err_set(err, ERR_INPUT, "model '%s': shared_experts must be 0..%d, got %d", name,
                     MODEL_EXPERTS_MAX, model->shared_experts);
    if (rc == OK && (model->dense_layers < 0 || model->dense_layers >= model->num_layers))
        rc = err_set(err, ERR_INPUT, "model '%s': dense_layers must be 0..%d, got %d", name,
                     model->num_layers - 1, model->dense_layers);
    THEN(check_expert_groups(model, name, err));
    return rc;
}

static enum status check_heads(const struct model *model, const char *name, struct err *err)
{
    const struct dim dims[] = {
        {"kv_heads", model->kv_heads, model->heads },
        {"head_dim", model->head_dim, MODEL_DIM_MAX},
        {"rope_dim", model->rope_dim, MODEL_DIM_MAX},
        {"v_dim",    model->v_dim,    MODEL_DIM_MAX},
    };
    enum status rc = model_check_dims(name, dims, latent(model) ? 4 : 2, err);
    if (rc != OK)
        return rc;
    if (model->heads % model->kv_heads)
        return err_set(err, ERR_INPUT, "model '%s': heads %d is not a multiple of kv_heads %d",
                       name, model->heads, model->kv_heads);
    if (!latent(model) && (model->q_rank || model->rope_dim || model->v_dim))
        return err_set(err, ERR_INPUT, "model '%s': q_rank, rope_dim and v_dim need kv_rank", name);
    if (latent(model) && (model->kv_rank > MODEL_DIM_MAX || model->q_rank < 0 ||
                          model->q_rank > MODEL_DIM_MAX || model->qkv_bias))
        return err_set(err, ERR_INPUT,
                       "model '%s': latent attention takes ranks up to %d and no qkv_bias", name,
                       MODEL_DIM_MAX);
    return OK;
}

enum status llama_resolve(const struct model_spec *spec, const struct model_spec *base,
                          struct model *model, struct err *err)
{
    model->vocab = spec->vocab ? spec->vocab : base->vocab;
    model->seq = spec->seq ? spec->seq : base->seq;
    model->kv_heads = spec->kv_heads ? spec->kv_heads : model->heads;
    model->block = spec->block;
    model->type = spec->type;
    model->turns = spec->turns;
    model->gated_mlp = !spec->block.plain_mlp;
    model->rms_norm = spec->block.norm == NORM_FORM_RMS;
    model->rope = spec->block.positions == POSITIONS_ROTARY;
    model->max_seq = spec->block.positions == POSITIONS_TABLE ? spec->max_seq : 0;
    model->qkv_bias = spec->qkv_bias;
    model->tied_head = spec->tied_head;
    model->kv_rank = spec->kv_rank;
    model->q_rank = spec->q_rank;
    model->rope_dim = spec->rope_dim;
    model->v_dim = spec->v_dim;
    model->experts = spec->experts;
    model->experts_active = spec->experts_active;
    model->expert_mlp = spec->expert_mlp ? spec->expert_mlp : spec->experts ? model->mlp : 0;
    model->expert_groups = spec->expert_groups;
    model->groups_active = spec->groups_active;
    model->shared_experts = spec->shared_experts;
    model->dense_layers = spec->dense_layers;
    model->expert_bias = spec->expert_bias;
    const struct dim dims[] = {
        {"vocab", model->vocab, MODEL_VOCAB_MAX},
        {"seq",   model->seq,   MODEL_DIM_MAX  }
    };
    enum status rc = model_check_dims(spec->name, dims, 2, err);
    if (rc != OK)
        return rc;
    model->head_dim = spec->head_dim;
    if (!spec->head_dim && model->hidden % model->heads)
        return err_set(
            err, ERR_INPUT,
            "model '%s': hidden %d is not a multiple of heads %d, and head_dim is not given",
            spec->name, model->hidden, model->heads);
    if (!spec->head_dim)
        model->head_dim = model->hidden / model->heads;
    rc = check_heads(model, spec->name, err);
    THEN(check_experts(model, spec->name, err));
    return rc == OK ? state_resolve(spec, model, err) : rc;
}
