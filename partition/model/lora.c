#include "partition/model/lora.h"

#include <math.h>

bool model_has_adapter(const struct model *model, int item, bool first)
{
    const enum item_kind kind = model->items[item].kind;
    const int targets = model->lora.targets;
    if (model->lora.rank == 0)
        return false;
    if (kind == ITEM_ATTENTION)
        return targets == LORA_ALL || targets == LORA_ATTENTION || (targets == LORA_QKV && first);
    return kind == ITEM_MLP && (targets == LORA_ALL || targets == LORA_MLP);
}

double model_base_bytes_per_param(const struct model *model)
{
    static const double bytes[LORA_BASE_COUNT] = {
        [LORA_BASE_INT8] = 1, [LORA_BASE_NF4] = 4.127 / 8};
    return model->lora.base != LORA_BASE_SAME       ? bytes[model->lora.base]
           : model->elem_bytes < model->param_bytes ? model_weight_bytes(model) - model->param_bytes
                                                    : model->param_bytes;
}

int64_t model_base_bytes(const struct model *model, int item)
{
    return (int64_t)ceil((double)model->items[item].base_params *
                         model_base_bytes_per_param(model));
}

/* Parameters of the adapters of an attention or MLP item. */
static int64_t adapter_params(const struct model *model, int i)
{
    const int64_t h = model->hidden, d = model->head_dim > 0 ? model->head_dim : h / model->heads;
    const int64_t keys = model->kv_heads > 0 ? model->kv_heads : model->heads;
    const bool attention = model->items[i].kind == ITEM_ATTENTION;
    const int64_t first = attention ? (model->heads + 2 * keys) * d
                                    : (int64_t)model->mlp * (model->gated_mlp ? 2 : 1);
    const int64_t second = attention ? model->heads * d : model->mlp;
    return model->lora.rank * ((model_has_adapter(model, i, true) ? h + first : 0) +
                               (model_has_adapter(model, i, false) ? second + h : 0));
}

static enum status check(const struct model *model, int rank, enum lora_targets targets,
                         struct err *err)
{
    const bool mlp = targets == LORA_ALL || targets == LORA_MLP;
    if (model->heads == 0)
        return err_set(err, ERR_INFEASIBLE, "train.lora: model '%s' has no such layers",
                       model->name);
    if (model->kv_rank > 0 && targets != LORA_MLP)
        return err_set(
            err, ERR_INFEASIBLE,
            "train.lora: attention of model '%s' is latent, its adapters are not modelled",
            model->name);
    if (mlp && model->experts > 0)
        return err_set(
            err, ERR_INFEASIBLE,
            "train.lora.targets: layers of model '%s' have experts, no MLP that adapters "
            "are modelled of; attention and qkv are",
            model->name);
    if (rank > model->hidden)
        return err_set(err, ERR_INFEASIBLE,
                       "train.lora.rank must be at most the width %d of model '%s', got %d",
                       model->hidden, model->name, rank);
    return OK;
}

enum status model_set_lora(struct model *model, int rank, enum lora_targets targets,
                           enum lora_base base, struct err *err)
{
    if (rank == 0)
        return OK;
    const enum status rc = check(model, rank, targets, err);
    if (rc != OK)
        return rc;
    model->lora.rank = rank;
    model->lora.targets = (int)targets;
    model->lora.base = (int)base;
    model->lora.scale = 1.0f;
    for (int i = 0; i < model->num_items; i++) {
        struct item *item = &model->items[i];
        const bool adapts = model_has_adapter(model, i, true) || model_has_adapter(model, i, false);
        item->base_params = item->params;
        item->params = adapts ? adapter_params(model, i) : 0;
        item->fwd_flops += 2 * item->params * model->seq;
    }
    return OK;
}
