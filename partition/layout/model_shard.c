/* The parts of an item that are divided by T, and those that are not.
 *
 * replicated() says it for each kind of item: the part of its parameters, flops and stash that every
 * device of a group holds as a whole. The rest is divided. model_exchanges() lists the collectives.
 * Notation as in model.c: s tokens, h hidden, m MLP width, a heads, V vocabulary, e bytes of an
 * element.
 *
 * With dropout, GELU, e = 2 and unfused attention the sums over a layer are those of Korthikanti et
 * al. 2022, table 2: sh(10 + 24/T + 5as/(hT)) bytes a sample, and sh(34/T + 5as/(hT)) with
 * sequence_parallel, plus 8s bytes for the statistics of each norm, which the paper leaves out. */
#include "partition/layout/model_shard.h"

#include <math.h>

#include "partition/model/attention.h"
#include "partition/model/expert_parts.h"
#include "partition/model/framework.h"
#include "partition/model/lora.h"

/* Parameters, flops and stash of an item that every device of a group holds. tokens: the part of the
 * stash that sequence_parallel divides. */
struct replicated {
    int64_t params, flops, tokens_bytes;
};

/* The stash that a device holds for all tokens: inputs of the norms and of the first linear, the
 * statistics of the norms, and except for llama the mask of the dropout after the second linear. */
static int64_t token_stash(const struct model *model, enum item_kind kind)
{
    const int64_t s = model->seq, h = model->hidden, norms = model_item_norms(model, kind);
    const int64_t mask = model->family == FAMILY_LLAMA || model->no_dropout ? 0 : s * h;
    const int64_t statistics = model->rms_norm ? 4 * s : 8 * s;
    const int64_t tensors = norms > 0 ? 1 + norms : 0;
    return tensors * s * h * model->elem_bytes + mask +
           norms * (statistics + model_norm_extra_bytes(model));
}

/* Parameters of an attention or MLP item that every device has: the norms, and the bias of the
 * linear after the sum over the group. */
static int64_t same_params(const struct model *model, enum item_kind kind)
{
    const struct block *block = &model->block;
    const bool llama = model->family == FAMILY_LLAMA;
    const bool bias = !llama || (kind == ITEM_ATTENTION ? block->out_bias
                                 : kind == ITEM_STATE   ? model->state.out_bias > 0
                                                        : block->mlp_bias);
    const int64_t heads =
        kind == ITEM_ATTENTION && block->qk_norm == QK_NORM_HEAD ? 2 * (int64_t)model->head_dim : 0;
    return model_item_norms(model, kind) * model_norm_params(model) + (bias ? model->hidden : 0) +
           heads;
}

/* Latent attention compresses queries and keys before it divides them by heads. */
static void add_latent(const struct model *model, struct replicated *got)
{
    const int64_t h = model->hidden, s = model->seq, q = model->q_rank, c = model->kv_rank;
    if (c == 0)
        return;
    const int64_t weights = h * q + h * (c + model->rope_dim);
    got->params += weights + q + c;
    got->flops += 2 * s * weights;
    got->tokens_bytes += 2 * s * (q + c) * model->elem_bytes;
}

/* A layer of experts has a router, and a copy of each token for each expert that it uses. */
static void add_router(const struct model *model, const struct item *item, struct replicated *got)
{
    const int64_t h = model->hidden, s = model->seq, n = model->experts;
    if (!model_item_has_experts(model, (int)(item - model->items)))
        return;
    got->params += h * n + (model->expert_bias ? n : 0);
    got->flops += 2 * s * h * n;
    got->tokens_bytes += model_expert_tokens(model, s * model->experts_active) *
                         model_expert_tensors(model) * h * model->elem_bytes;
}

/* Whether each device of a group gathers all logits. */
static bool whole_logits(const struct model *model)
{
    return model->framework && model->framework->whole_logits && model->task == TASK_CAUSAL_LM;
}

static struct replicated replicated(const struct model *model, int index)
{
    const struct item *item = &model->items[index];
    const int64_t h = model->hidden, s = model->seq;
    /* with adapters the weights of the model are the base */
    const int64_t params = model_item_is_base(model, index) ? item->base_params : item->params;
    struct replicated got = {.params = same_params(model, item->kind),
                             .tokens_bytes = token_stash(model, item->kind)};
    switch (item->kind) {
    case ITEM_ATTENTION:
        add_latent(model, &got);
        if (model_joins_skip(model, index)) {
            got.params += 2 * h * h + h;
            got.flops = 4 * s * h * h;
            got.tokens_bytes += 2 * s * h * model->elem_bytes;
        }
        break;
    case ITEM_MLP:
        add_router(model, item, &got);
        break;
    case ITEM_STATE:
        got.params += model_state_work(model).shared_params;
        break;
    case ITEM_EMBEDDING: /* the token table is divided, everything else is not */
        got.params = params - (int64_t)model->vocab * h;
        got.flops = item->fwd_flops;
        got.tokens_bytes = item->stash_bytes;
        break;
    case ITEM_HEAD:
        got.params = params;
        got.flops = item->fwd_flops;
        got.tokens_bytes = item->stash_bytes;
        if (model->task == TASK_CAUSAL_LM) { /* an untied table is divided, and logits usually */
            got.params = 0;
            got.flops = 0;
            got.tokens_bytes = whole_logits(model) ? item->stash_bytes : s * h * model->elem_bytes;
        } else if (model->task == TASK_MLM) { /* the dense layer in front of the table is not */
            const int64_t p = model_masked_of(s);
            got.params = params - model->vocab;
            got.flops = 2 * p * h * h;
            got.tokens_bytes = 4 * p * h * model->elem_bytes + 8 * p;
        }
        break;
    default:
        got.params = params;
        got.flops = item->fwd_flops;
        got.tokens_bytes = item->stash_bytes;
        break;
    }
    got.tokens_bytes +=
        model_narrow_bytes(model, index, true) - model_unkept_bytes(model, index, true);
    return got;
}

static int64_t share(int64_t value, int64_t ways)
{
    return value / ways + (value % ways != 0);
}

/* A device's part of a size of which `whole` bytes are not divided. */
static int64_t divided(int64_t value, int64_t whole, int64_t ways)
{
    if (whole > value) /* an item without the parts that its kind usually has */
        whole = value;
    return whole + share(value - whole, ways);
}

/* Whether the tokens of an item's norm and dropout are divided. A head, a pooler and a classifier
 * see all tokens; the embedding's dropout follows its reduce-scatter. */
static bool by_tokens(const struct model *part, const struct item *item)
{
    return part->sequence_parallel && item->kind != ITEM_POOLER &&
           (item->kind != ITEM_HEAD || part->task == TASK_CAUSAL_LM);
}

/* Whether a group has more devices than the model has heads of keys and values. */
static bool exceeds_keys(const struct model *model, int tensor)
{
    const bool grouped = model->family == FAMILY_LLAMA && model->kv_rank == 0;
    return grouped && model->kv_heads > 0 && tensor > model->kv_heads;
}

/* Devices of a group that hold each head of keys and values. */
static int key_copies(const struct model *model, int tensor)
{
    return exceeds_keys(model, tensor) ? tensor / model->kv_heads : 1;
}

/* Parameters of one head of keys and values: the linears from hidden to both. */
static int64_t key_head_params(const struct model *model)
{
    return 2 * ((int64_t)model->hidden + (model->qkv_bias ? 1 : 0)) * model->head_dim;
}

/* The share of one head of keys and values in an item. */
struct key_head {
    int64_t params, flops, stash_bytes;
};
static struct key_head key_head(const struct model *model)
{
    const int64_t s = model->seq, h = model->hidden, d = model->head_dim;
    return (struct key_head){key_head_params(model), 2 * s * 2 * h * d,
                             2 * s * d * model->elem_bytes};
}

static void shard_item(struct model *part, const struct model *whole, int index)
{
    struct item *item = &part->items[index];
    const int T = part->tensor;
    const struct replicated same = replicated(whole, index);
    const int64_t tokens =
        item->stash_bytes < same.tokens_bytes ? item->stash_bytes : same.tokens_bytes;
    struct key_head one = {0};
    if (item->kind == ITEM_ATTENTION && key_copies(whole, T) > 1)
        one = key_head(whole);
    const int64_t all = whole->kv_heads; /* of which a device holds one, if it is counted apart */
    if (model_item_is_base(whole, index)) {
        struct lora_product list[LORA_PRODUCTS];
        const int num = lora_products(whole, index, list);
        int64_t kept =
            0; /* the input's half of the first product's adapters, the output's of the second */
        for (int i = 0; i < num; i++)
            kept += list[i].adapted ? (int64_t)whole->lora.rank * whole->hidden : 0;
        item->params = divided(item->params, kept, T);
        item->base_params =
            divided(item->base_params - all * one.params, same.params, T) + one.params;
    } else {
        item->params = divided(item->params - all * one.params, same.params, T) + one.params;
    }
    item->tied_params = share(item->tied_params, T);
    item->fwd_flops = divided(item->fwd_flops - all * one.flops, same.flops, T) + one.flops;
    if (item->kind != ITEM_HEAD || !whole_logits(whole))
        item->work_bytes = share(item->work_bytes, T);
    item->stash_bytes = share(item->stash_bytes - tokens - all * one.stash_bytes, T) +
                        one.stash_bytes + (by_tokens(part, item) ? share(tokens, T) : tokens);
    if (part->sequence_parallel && item->kind != ITEM_POOLER)
        item->act_bytes = share(item->act_bytes, T);
}

enum status model_shard_check(const struct model *model, int tensor, bool sequence_parallel,
                              struct err *err)
{
    const struct {
        const char *what;
        int value;
    } dims[] = {
        {"heads",         model->heads      },
        {"heads of keys", exceeds_keys(model, tensor) ? 0 : model->kv_heads},
        {"mlp",               model->mlp                            },
        {"mlp of an expert",               model->experts ? model->expert_mlp : 0},
        {"seq (sequence_parallel)",               sequence_parallel ? model->seq : 0                     },
        {"heads of states",               model->state.heads},
        {"heads of their keys",               model->state.groups                 },
    };
    if (tensor < 2)
        return OK;
    if (model->family == FAMILY_UNIFORM || model->family == FAMILY_EXPLICIT)
        return err_set(err, ERR_INFEASIBLE, "pipeline.tensor %d: model '%s' has no heads to divide",
                       tensor, model->name);
    if (model->family == FAMILY_COMPOSED)
        return err_set(err, ERR_INFEASIBLE, "pipeline.tensor %d: model '%s' cannot be divided",
                       tensor, model->name);
    if (model->tensor > 1)
        return err_set(err, ERR_INFEASIBLE, "model '%s' is divided already", model->name);
    /* Megatron-LM divides the heads of Mamba-2 (MambaMixer) and of gated delta nets (GatedDeltaNet in
     * megatron/core/ssm). Mamba's time steps, B and C come from all channels, which would take a sum
     * more a layer (Dao and Gu 2024, section 8.1). */
    if (model->state.kind == MIXER_MAMBA || model->state.kind == MIXER_LIGHTNING ||
        model->state.beside_attention)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.tensor %d: no framework divides the %s of model '%s'", tensor,
                       model->state.beside_attention      ? "state-space heads beside attention"
                       : model->state.kind == MIXER_MAMBA ? "channels of Mamba layers"
                                                          : "lightning attention",
                       model->name);
    if (exceeds_keys(model, tensor) && tensor % model->kv_heads != 0)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.tensor %d is not a multiple of heads of keys %d of model '%s'",
                       tensor, model->kv_heads, model->name);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value % tensor != 0)
            return err_set(err, ERR_INFEASIBLE,
                           "pipeline.tensor %d does not divide %s %d of model '%s'", tensor,
                           dims[i].what, dims[i].value, model->name);
    return OK;
}

enum status model_shard(const struct model *whole, int tensor, bool sequence_parallel,
                        struct model *part, struct err *err)
{
    struct model got = {0};
    enum status rc = model_shard_check(whole, tensor, sequence_parallel, err);
    THEN(model_copy(whole, &got, err));
    if (rc != OK)
        return rc;
    model_drop_untied(&got); /* setting_at() has chosen before */
    if (tensor > 1) {
        got.tensor = tensor;
        got.sequence_parallel = sequence_parallel;
        for (int i = 0; i < got.num_items; i++)
            shard_item(&got, whole, i);
        for (int i = 0; sequence_parallel && i < got.num_skips; i++)
            got.skips[i].bytes = share(got.skips[i].bytes, tensor);
    }
    *part = got;
    return OK;
}

/* --- experts ---------------------------------------------------------------------------------- */

/* Devices that divide each expert, of a group of `tensor`. */
static int expert_tensor_of(int expert_tensor, int tensor)
{
    return expert_tensor > 0 ? expert_tensor : tensor > 1 ? tensor : 1;
}

/* Each group of E X devices is whole groups of T, so that experts have copies on replicas only. */
static enum status check_expert_tensor(const struct model *model, const struct layout *layout,
                                       struct err *err)
{
    const int T = layout->tensor > 1 ? layout->tensor : 1;
    const int E = layout->expert > 1 ? layout->expert : 1;
    const int X = expert_tensor_of(layout->expert_tensor, T);
    if (X == T)
        return OK;
    if (X > T || T % X != 0)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.expert_tensor %d does not divide pipeline.tensor %d", X, T);
    if ((int64_t)E * X % T != 0)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.expert %d times pipeline.expert_tensor %d is not a multiple of "
                       "pipeline.tensor %d",
                       E, X, T);
    if (!layout->sequence_parallel)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.expert_tensor %d below pipeline.tensor %d needs "
                       "pipeline.sequence_parallel",
                       X, T);
    if (model_is_parallel(model))
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.expert_tensor %d: attention and experts of model '%s' run in "
                       "parallel",
                       X, model->name);
    return OK;
}

enum status model_experts_check(const struct model *model, const struct layout *layout,
                                struct err *err)
{
    const int expert = layout->expert;
    if (expert < 2)
        return check_expert_tensor(model, layout, err);
    if (model->experts == 0)
        return err_set(err, ERR_INFEASIBLE, "pipeline.expert %d: model '%s' has no experts", expert,
                       model->name);
    if (model->experts % expert != 0)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.expert %d does not divide the %d experts of model '%s'", expert,
                       model->experts, model->name);
    return check_expert_tensor(model, layout, err);
}

/* Parameters that one of `ways` devices has of an expert: gate, up and down. */
static int64_t one_expert_params(const struct model *part, int ways)
{
    const int64_t width = share(part->expert_mlp, ways);
    const int64_t linears = part->gated_mlp ? 3 : 2, h = part->hidden;
    return linears * h * width + (part->block.expert_mlp_bias ? (linears - 1) * width + h : 0);
}

void model_divide_experts(struct model *part, int expert, int expert_tensor)
{
    const int T = expert_tensor_of(0, part->tensor), X = expert_tensor_of(expert_tensor, T);
    const int64_t elsewhere = part->experts * one_expert_params(part, T) -
                              part->experts / expert * one_expert_params(part, X);
    part->expert_ways = expert;
    part->expert_tensor = X;
    for (int i = 0; i < part->num_items; i++)
        if (model_item_has_experts(part, i))
            *(part->lora.rank > 0 ? &part->items[i].base_params : &part->items[i].params) -=
                elsewhere;
}

int64_t model_expert_params(const struct model *part, int item)
{
    const int ways = part->expert_ways > 1 ? part->expert_ways : 1;
    const int X = expert_tensor_of(part->expert_tensor, part->tensor);
    return model_item_has_experts(part, item) && part->lora.rank == 0
               ? part->experts / ways * one_expert_params(part, X)
               : 0;
}

/* Bytes of the copies of a sample's tokens, so many of each. */
static int64_t copies_bytes(const struct model *part, double copies)
{
    const int64_t tokens = share(part->seq, part->sequence_parallel ? part->tensor : 1);
    return model_expert_tokens(part, (int64_t)ceil((double)tokens * copies)) * part->hidden *
           part->elem_bytes;
}

int64_t model_expert_bytes(const struct model *part)
{
    const int W = part->expert_ways > 1 ? part->expert_ways : 1;
    return copies_bytes(part,
                        part->sends_once ? model_expert_parts(part, W) : part->experts_active);
}

int64_t model_expert_node_bytes(const struct model *part, int nodes)
{
    return copies_bytes(part, model_expert_parts(part, nodes));
}

/* --- tokens ----------------------------------------------------------------------------------- */

enum status model_context_check(const struct model *model, int context, enum context_kind kind,
                                int tensor, struct err *err)
{
    const int ways = tensor > 1 ? tensor : 1;
    if (context < 2)
        return OK;
    if (model->heads == 0 || model->task != TASK_CAUSAL_LM)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.context %d: model '%s' is not a causal language model", context,
                       model->name);
    if (model->num_skips > 0)
        return err_set(err, ERR_INFEASIBLE, "pipeline.context %d: model '%s' has skip edges",
                       context, model->name);
    if (model->state.kind != MIXER_NONE)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.context %d: the states of model '%s' pass from token to token",
                       context, model->name);
    if (attention_is_unfused(model->attention))
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.context %d needs fused attention, train.attention is %s", context,
                       attention_kind_name(model->attention));
    const int64_t tokens = model_sample_tokens(model);
    if (tokens % (2 * (int64_t)context) != 0)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.context %d: two chunks a device do not divide the %lld tokens of "
                       "model '%s'",
                       context, (long long)tokens, model->name);
    const int keys = model->kv_heads > 0 && model->kv_rank == 0 ? model->kv_heads : model->heads;
    if (kind == CONTEXT_ULYSSES &&
        (model->heads / ways % context != 0 || keys / ways % context != 0))
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.context %d (ulysses) does not divide the %d heads and %d heads of "
                       "keys of model '%s'%s",
                       context, model->heads / ways, keys / ways, model->name,
                       ways > 1 ? " on a device of a group" : "");
    return OK;
}

void model_divide_tokens(struct model *model, int context)
{
    model_fuse_attention(model);
    model->seq /= context;
    model->context = context;
    for (int i = 0; i < model->num_items; i++) {
        struct item *item = &model->items[i];
        item->fwd_flops = share(item->fwd_flops, context);
        item->stash_bytes = share(item->stash_bytes, context);
        item->act_bytes = share(item->act_bytes, context);
        item->work_bytes = share(item->work_bytes, context);
        item->moved_bytes = share(item->moved_bytes, context);
    }
}

/* Bytes of `heads` heads whose keys (or queries) and values (or outputs) one device has. */
static int64_t head_bytes(const struct model *part, int heads)
{
    const int64_t width = part->head_dim > 0 ? part->head_dim : part->hidden / part->heads;
    const int64_t both = part->kv_rank > 0 ? width + part->rope_dim + part->v_dim : 2 * width;
    return share(heads, part->tensor > 1 ? part->tensor : 1) * both * part->seq * part->elem_bytes;
}

int64_t model_key_bytes(const struct model *part)
{
    const bool grouped = part->kv_heads > 0 && part->kv_rank == 0;
    return head_bytes(part, grouped ? part->kv_heads : part->heads);
}

int64_t model_query_bytes(const struct model *part)
{
    return head_bytes(part, part->heads);
}

/* --- what the group exchanges ----------------------------------------------------------------- */

/* Bytes of a whole [s, h] tensor. */
static int64_t tensor_bytes(const struct model *model)
{
    return (int64_t)model->seq * model->hidden * model->elem_bytes;
}

/* An attention or MLP item sums [s, h] once in each direction. With sequence_parallel the sum is a
 * reduce-scatter after the item and an all-gather in front of it. The backward gathers the input
 * once more for the gradient of the first linear's weights, while the gradient of its input is
 * computed. Where attention and MLP run in parallel, their outputs are summed as one in the MLP
 * item. If they share a norm, the input is gathered, and its gradient summed, in the attention item
 * only. */
static int layer_exchanges(const struct model *part, enum item_kind kind, bool backward,
                           struct exchange *to)
{
    const int64_t bytes = tensor_bytes(part), gathered = model_gathered_bytes(part);
    const bool attention = kind != ITEM_MLP;
    if (model_is_parallel(part)) {
        const bool input = attention || part->block.places == NORMS_PARALLEL_TWO;
        const bool tokens = part->sequence_parallel;
        int n = 0;
        if (!tokens) {
            if (backward ? input : !attention)
                to[n++] = (struct exchange){COLLECTIVE_ALLREDUCE, 1, bytes, false, 0};
            return n;
        }
        if (backward ? !attention : input)
            to[n++] = (struct exchange){COLLECTIVE_ALLGATHER, 1, gathered, false, 0};
        if (backward ? input : !attention)
            to[n++] = (struct exchange){COLLECTIVE_REDUCE_SCATTER, 1, bytes, false, 0};
        if (backward && input)
            to[n++] = (struct exchange){COLLECTIVE_ALLGATHER, 1, gathered, true, 0};
        return n;
    }
    if (!part->sequence_parallel) {
        const struct framework *framework = part->framework;
        const bool twice = framework && framework->splits_gate && part->gated_mlp;
        to[0] = (struct exchange){COLLECTIVE_ALLREDUCE, backward && !attention && twice ? 2 : 1,
                                  bytes, false, 0};
        return 1;
    }
    to[0] = (struct exchange){COLLECTIVE_ALLGATHER, 1, gathered, false, 0};
    to[1] = (struct exchange){COLLECTIVE_REDUCE_SCATTER, 1, bytes, false, 0};
    to[2] = (struct exchange){COLLECTIVE_ALLGATHER, 1, gathered, true, 0};
    return backward ? 3 : 2;
}

/* An item of experts of which X < T devices of the group divide each: they gather their tokens alone.
 * The whole group has the shared experts. */
static int expert_exchanges(const struct model *part, bool backward, struct exchange *to)
{
    const int X = part->expert_tensor;
    int n = part->shared_experts > 0 ? layer_exchanges(part, ITEM_MLP, backward, to) : 0;
    const int end = n + (X > 1 ? layer_exchanges(part, ITEM_MLP, backward, to + n) : 0);
    for (; n < end; n++) {
        to[n].bytes = share(to[n].bytes * X, part->tensor);
        to[n].devices = X;
    }
    return n;
}

/* The embedding sums the rows that the devices found. Its backward needs the gradient of all
 * tokens. */
static int embedding_exchanges(const struct model *part, bool backward, struct exchange *to)
{
    const int64_t bytes = tensor_bytes(part);
    const bool tokens = part->sequence_parallel;
    if (part->vocab == 0 || (backward && !tokens))
        return 0;
    to[0] = (struct exchange){!tokens    ? COLLECTIVE_ALLREDUCE
                              : backward ? COLLECTIVE_ALLGATHER
                                         : COLLECTIVE_REDUCE_SCATTER,
                              1, bytes, false, 0};
    return 1;
}

/* The language-model head takes the maximum, the sum and the wanted logit of each token over the
 * devices: three all-reduces of fp32 (Megatron-LM's vocab-parallel cross entropy), or gathers all
 * logits. The gradient of its input is summed. */
static int head_exchanges(const struct model *part, bool backward, struct exchange *to)
{
    const bool tokens = part->sequence_parallel && part->task == TASK_CAUSAL_LM;
    const int64_t s = part->task == TASK_MLM ? model_masked_of(part->seq) : part->seq,
                  bytes = s * part->hidden * part->elem_bytes;
    int n = 0;
    if (part->task != TASK_CAUSAL_LM && part->task != TASK_MLM)
        return 0;
    if (!backward) {
        if (tokens)
            to[n++] = (struct exchange){COLLECTIVE_ALLGATHER, 1, bytes, false, 0};
        to[n++] = whole_logits(part)
                      ? (struct exchange){COLLECTIVE_ALLGATHER, 1,
                                          s * part->vocab * part->elem_bytes, false, 0}
                      : (struct exchange){COLLECTIVE_ALLREDUCE, 3, 4 * s, false, 0};
        return n;
    }
    to[n++] = (struct exchange){tokens ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALLREDUCE, 1, bytes,
                                false, 0};
    if (tokens)
        to[n++] = (struct exchange){COLLECTIVE_ALLGATHER, 1, bytes, true, 0};
    return n;
}

/* The devices that hold a head of keys and values together sum its gradients, once a step. */
static int update_exchanges(const struct model *part, int item, struct exchange *to)
{
    const int copies = key_copies(part, part->tensor);
    if (copies < 2 || part->items[item].kind != ITEM_ATTENTION || part->lora.rank > 0)
        return 0;
    to[0] = (struct exchange){COLLECTIVE_ALLREDUCE, 1,
                              key_head_params(part) * model_grad_bytes(part), false, copies};
    return 1;
}

int model_exchanges(const struct model *part, int item, enum pass pass,
                    struct exchange exchanges[MODEL_EXCHANGES_MAX])
{
    const bool backward = pass == PASS_BWD_INPUT || pass == PASS_BWD_REST;
    if (part->tensor > 1 && pass == PASS_UPDATE)
        return update_exchanges(part, item, exchanges);
    if (part->tensor < 2 || (!backward && pass != PASS_FWD && pass != PASS_FWD_NOGRAD))
        return 0;
    switch (part->items[item].kind) {
    case ITEM_ATTENTION:
    case ITEM_MLP:
    case ITEM_STATE:
        if (part->expert_tensor > 0 && part->expert_tensor < part->tensor &&
            model_item_has_experts(part, item))
            return expert_exchanges(part, backward, exchanges);
        return layer_exchanges(part, part->items[item].kind, backward, exchanges);
    case ITEM_EMBEDDING:
        return embedding_exchanges(part, backward, exchanges);
    case ITEM_HEAD:
        return head_exchanges(part, backward, exchanges);
    default:
        return 0;
    }
}
