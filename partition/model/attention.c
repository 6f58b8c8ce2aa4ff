#include "partition/model/attention.h"

#include <stddef.h>

/* Width of the products of all heads: scores and context. */
static int64_t heads_width(const struct model *model)
{
    const int64_t key = model->head_dim + model->rope_dim,
                  value = model->v_dim ? model->v_dim : model->head_dim;
    return model->heads * (key + value);
}

/* The share of one device of a tensor-parallel group, rounded up. */
static int64_t of_device(const struct model *model, int64_t value)
{
    const int ways = model->tensor > 1 ? model->tensor : 1;
    return value / ways + (value % ways != 0);
}

static bool has_core(const struct model *model, int item)
{
    return model->items[item].kind == ITEM_ATTENTION && model->heads > 0;
}

int64_t model_core_flops(const struct model *model, int item)
{
    if (!has_core(model, item))
        return 0;
    const int64_t pairs = model_attention_pairs(model, model->items[item].layer);
    return of_device(model, 2 * pairs * heads_width(model));
}

/* Softmax's output, and with dropout its output and mask: [a, s, s] each. Llama has no dropout, and its
 * items have softmax's output only where a job asks for it (model_set_attention()). Of operators on
 * fp32, softmax keeps its output in fp32, and the product with the values the cast one. */
static int64_t score_bytes(const struct model *model)
{
    const int64_t s = model->seq, e = model->elem_bytes;
    const bool llama = model->family == FAMILY_LLAMA;
    if (llama && !attention_is_unfused(model->attention))
        return 0;
    const int64_t fp32 = llama && e < 4 && model->attention == ATTENTION_EAGER ? 4 : 0;
    return of_device(model, model->heads * s * s *
                                (llama               ? e + fp32
                                 : model->no_dropout ? e
                                                     : 2 * e + 1));
}

void model_drop_nothing(struct model *model)
{
    const int64_t s = model->seq, h = model->hidden, before = score_bytes(model);
    if (model->family != FAMILY_GPT && model->family != FAMILY_VIT && model->family != FAMILY_BERT)
        return;
    model->no_dropout = true;
    for (int i = 0; i < model->num_items; i++) {
        struct item *item = &model->items[i];
        const bool classifies =
            item->kind == ITEM_HEAD && model->task == TASK_CLASSIFY && model->family == FAMILY_BERT;
        if (item->kind == ITEM_EMBEDDING || item->kind == ITEM_ATTENTION || item->kind == ITEM_MLP)
            item->stash_bytes -= s * h; /* the mask of what is added */
        if (item->kind == ITEM_MLP && model->family == FAMILY_VIT)
            item->stash_bytes -= s * model->mlp;
        if (has_core(model, i))
            item->stash_bytes -= before - score_bytes(model);
        item->stash_bytes -= classifies ? h : 0;
    }
}

/* The workspace of operators on fp32 beyond their stash: forward the scores and their fp32 copy,
 * backwards two fp32 gradients in place of the cast probabilities, which are gone by then
 * (Aleph-Alpha/scaling, attention.py, multi_head_attention(); masked_softmax.py). */
static int64_t score_work_bytes(const struct model *model)
{
    const bool casts = model->elem_bytes < 4 && model->attention == ATTENTION_EAGER;
    return casts ? of_device(model, (int64_t)model->heads * model->seq * model->seq *
                                        (8 - model->elem_bytes))
                 : 0;
}

int64_t model_core_stash_bytes(const struct model *model, int item)
{
    return has_core(model, item) && !attention_is_fused(model->attention) ? score_bytes(model) : 0;
}

void model_fuse_attention(struct model *model)
{
    const int64_t kept = of_device(model, (int64_t)model->heads * model->seq * 4);
    if (model->attention != ATTENTION_AUTO)
        return;
    model->attention = ATTENTION_FUSED;
    for (int i = 0; i < model->num_items && score_bytes(model) > 0; i++)
        if (has_core(model, i) && model->items[i].stash_bytes >= score_bytes(model))
            model->items[i].stash_bytes += kept - score_bytes(model);
}

void model_set_attention(struct model *model, enum attention_kind attention)
{
    if (attention_is_fused(attention)) {
        const bool open = model->attention == ATTENTION_AUTO;
        model_fuse_attention(model);
        model->attention = open ? attention : model->attention;
    } else if (model->attention == ATTENTION_AUTO && attention_is_unfused(attention)) {
        model->attention = attention;
        for (int i = 0; i < model->num_items && model->family == FAMILY_LLAMA; i++) {
            if (!has_core(model, i))
                continue;
            model->items[i].stash_bytes += score_bytes(model);
            model->items[i].work_bytes += score_work_bytes(model);
        }
    }
}

const char *const context_kind_names[] = {"ring", "all-gather", "ulysses", NULL};

bool attention_is_unfused(enum attention_kind kind)
{
    return kind == ATTENTION_UNFUSED || kind == ATTENTION_EAGER;
}

bool attention_is_fused(enum attention_kind kind)
{
    return kind == ATTENTION_FUSED || kind == ATTENTION_FLASH1;
}

const char *const attention_kind_names[] = {"auto", "fused", "unfused", "eager", "flash1", NULL};

const char *attention_kind_name(enum attention_kind kind)
{
    return attention_kind_names[kind];
}
