#include "partition/model/rerun.h"

#include "partition/base/units.h"
#include "partition/model/attention.h"
#include "partition/model/framework.h"

/* Bytes or elements of a size that a tensor-parallel group divides. */
static int64_t divided(const struct model *model, int64_t value)
{
    const int ways = model->tensor > 1 ? model->tensor : 1;
    return value / ways + (value % ways != 0);
}

/* Those of a size [tokens, h], which a group divides by tokens or not at all. */
static int64_t by_tokens(const struct model *model, int64_t value)
{
    return model->sequence_parallel ? divided(model, value) : value;
}

static bool has_layers(const struct model *model)
{
    return model->family == FAMILY_LLAMA || model->family == FAMILY_GPT ||
           model->family == FAMILY_BERT || model->family == FAMILY_VIT;
}

struct widths {
    int64_t query, key, value, out; /* of all heads; out: what attention gives */
};

static struct widths widths_of(const struct model *model)
{
    const int64_t a = model->heads, keys = model->kv_heads > 0 ? model->kv_heads : a;
    const int64_t d = model->head_dim > 0 ? model->head_dim : model->hidden / a;
    if (model->kv_rank > 0)
        return (struct widths){a * (d + model->rope_dim), a * (d + model->rope_dim),
                               a * model->v_dim, a * model->v_dim};
    return (struct widths){a * d, keys * d, keys * d, a * d};
}

static int64_t mlp_width(const struct model *model, int item)
{
    return model_item_has_experts(model, item) ? (int64_t)model->shared_experts * model->expert_mlp
                                               : model->mlp;
}

static int list_attention(const struct model *model, struct rerun_product *list)
{
    const struct widths w = widths_of(model);
    const int64_t h = model->hidden, q = model->q_rank, c = model->kv_rank;
    int n = 0;
    if (c > 0) {
        if (q > 0)
            list[n++] = (struct rerun_product){.in = h, .out = q};
        list[n++] = (struct rerun_product){.in = q > 0 ? q : h, .out = divided(model, w.query)};
        list[n++] = (struct rerun_product){.in = h, .out = c + model->rope_dim};
        list[n++] = (struct rerun_product){
            .in = c, .out = divided(model, (int64_t)model->heads * model->head_dim + w.value)};
    } else if (model->family == FAMILY_LLAMA) {
        list[n++] = (struct rerun_product){.in = h, .out = divided(model, w.query)};
        list[n++] = (struct rerun_product){.in = h, .out = divided(model, w.key)};
        list[n++] = (struct rerun_product){.in = h, .out = divided(model, w.value)};
    } else {
        list[n++] =
            (struct rerun_product){.in = h, .out = divided(model, w.query + w.key + w.value)};
    }
    list[n++] = (struct rerun_product){.in = divided(model, w.out), .out = h};
    return n;
}

static int list_mlp(const struct model *model, int item, struct rerun_product *list)
{
    const int64_t h = model->hidden, m = divided(model, mlp_width(model, item));
    int n = 0;
    if (m == 0)
        return 0;
    for (int i = 0; i < (model->gated_mlp ? 2 : 1); i++)
        list[n++] = (struct rerun_product){.in = h, .out = m};
    list[n++] = (struct rerun_product){.in = m, .out = h};
    return n;
}

int model_rerun_products(const struct model *model, int item, enum rerun rerun,
                         struct rerun_product list[RERUN_PRODUCTS])
{
    const bool attention = model->items[item].kind == ITEM_ATTENTION;
    int n, before = 0;
    if (!has_layers(model) || (!attention && model->items[item].kind != ITEM_MLP))
        return 0;
    if (attention) {
        n = list_attention(model, list);
    } else {
        before = list_attention(model, list);
        n = list_mlp(model, item, list);
    }
    const bool latent = model->kv_rank > 0 && attention;
    for (int i = 0; i < n; i++)
        switch (rerun) {
        case RERUN_NORMS: /* from ranks to heads */
            list[i].again = latent && ((i == n - 4 && model->q_rank > 0) || i == n - 2);
            break;
        case RERUN_OPS: /* nobody needs the output of the layer's last product */
            list[i].again = (before + i) % 2 == 1 && (attention || i < n - 1);
            break;
        default:
            list[i].again = false;
            break;
        }
    return n;
}

/* Bytes of an element of a product's input: narrow formats keep such inputs narrow. */
static int64_t input_bytes(const struct model *model, int64_t elements)
{
    return model->kept_32nds > 0 ? elements * model->kept_32nds / 32 : elements * model->elem_bytes;
}

/* What norms, activations and the linears from ranks to heads give. */
static int64_t norm_bytes(const struct model *model, int item)
{
    const int64_t s = model->seq, h = model->hidden, e = model->elem_bytes;
    const bool attention = model->items[item].kind == ITEM_ATTENTION;
    const struct widths w = widths_of(model);
    int64_t sum = 0;
    if (model_item_norms(model, model->items[item].kind) > 0)
        sum += by_tokens(
            model, (model_item_has_experts(model, item) ? s * h * e : input_bytes(model, s * h)) +
                       model_norm_extra_bytes(model));
    if (attention && model->kv_rank > 0)
        sum += by_tokens(model, input_bytes(model, s * ((int64_t)model->q_rank + model->kv_rank))) +
               divided(model, s * (w.query + w.key + w.value) * e);
    else if (attention && model->block.qk_norm != QK_NORM_NONE)
        sum += divided(model, s * (w.query + w.key) * e);
    if (attention)
        return sum;
    sum += divided(model, input_bytes(model, s * mlp_width(model, item)));
    if (model_item_has_experts(model, item))
        sum += divided(model,
                       input_bytes(model, model_expert_tokens(model, s * model->experts_active) *
                                              model->expert_mlp));
    return sum;
}

/* What is kept beside every second product: the layer's input, fused attention's output and the logarithms of its
 * sums, and a device's part of each sum over the group. */
static int64_t op_kept_bytes(const struct model *model, int item)
{
    const int64_t s = model->seq, e = model->elem_bytes, hidden = s * model->hidden * e;
    const bool attention = model->items[item].kind == ITEM_ATTENTION;
    struct rerun_product list[RERUN_PRODUCTS];
    const int n = model_rerun_products(model, item, RERUN_OPS, list);
    int64_t kept = model->tensor > 1 ? divided(model, hidden) : 0;
    if (attention) {
        kept += by_tokens(model, hidden);
        if (!attention_is_unfused(model->attention))
            kept += divided(model, s * (widths_of(model).out * e + 4 * (int64_t)model->heads));
    }
    for (int i = 0; i < n; i++) /* the layer's last product is saved if its turn has come */
        if (!list[i].again && (attention || i < n - 1 || (n > 1 && list[i - 1].again)))
            kept += s * list[i].out * e;
    return kept;
}

int64_t model_rerun_bytes(const struct model *model, int item, enum rerun rerun)
{
    const enum item_kind kind = model->items[item].kind;
    const int64_t stash = model->items[item].stash_bytes;
    if (rerun == RERUN_CORE)
        return model_core_stash_bytes(model, item);
    if (!has_layers(model) || (kind != ITEM_ATTENTION && kind != ITEM_MLP))
        return 0;
    const int64_t got =
        rerun == RERUN_NORMS ? norm_bytes(model, item) : stash - op_kept_bytes(model, item);
    return got < 0 ? 0 : got < stash ? got : stash;
}

int64_t model_rerun_flops(const struct model *model, int item, enum rerun rerun)
{
    struct rerun_product list[RERUN_PRODUCTS];
    int64_t sum = 0;
    if (rerun == RERUN_CORE)
        return model_core_flops(model, item);
    const int n = model_rerun_products(model, item, rerun, list);
    for (int i = 0; i < n; i++)
        sum += list[i].again ? 2 * model->seq * list[i].in * list[i].out : 0;
    if (rerun == RERUN_OPS && n > 0 && model->items[item].kind == ITEM_ATTENTION &&
        attention_is_unfused(model->attention))
        sum += model_core_flops(model, item);
    if (rerun == RERUN_OPS && model_item_has_experts(model, item))
        sum += divided(model, 2 * model_expert_tokens(model, model->seq * model->experts_active) *
                                  (model->gated_mlp ? 3 : 2) * model->hidden * model->expert_mlp);
    return sum;
}
