#include "partition/model/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "partition/model/framework.h"

const char *const lora_base_names[] = {"same", "int8", "nf4", "gptq", NULL};

/* --- products --------------------------------------------------------------------------------- */

/* A further product is a row. Rows of one item stand in the order of the product's columns. A bit of
 * model.lora.targets is the row of this table. */
enum width { HIDDEN, QUERY, KEY, HEADS, WIDE };
static const struct {
    enum model_family family;
    enum item_kind kind;
    bool first;
    const char *module;
    enum width in, out;
    const char *later; /* its name in transformers 5, where that is another */
} products[] = {
    {FAMILY_LLAMA, ITEM_ATTENTION, true,  "self_attn.q_proj",          HIDDEN, QUERY,  NULL              },
    {FAMILY_LLAMA, ITEM_ATTENTION, true,  "self_attn.k_proj",          HIDDEN, KEY,    NULL              },
    {FAMILY_LLAMA, ITEM_ATTENTION, true,  "self_attn.v_proj",          HIDDEN, KEY,    NULL              },
    {FAMILY_LLAMA, ITEM_ATTENTION, false, "self_attn.o_proj",          QUERY,  HIDDEN, NULL              },
    {FAMILY_LLAMA, ITEM_MLP,       true,  "mlp.gate_proj",             HIDDEN, WIDE,   NULL              },
    {FAMILY_LLAMA, ITEM_MLP,       true,  "mlp.up_proj",               HIDDEN, WIDE,   NULL              },
    {FAMILY_LLAMA, ITEM_MLP,       false, "mlp.down_proj",             WIDE,   HIDDEN, NULL              },
    {FAMILY_GPT,   ITEM_ATTENTION, true,  "attn.c_attn",               HIDDEN, HEADS,  NULL              },
    {FAMILY_GPT,   ITEM_ATTENTION, false, "attn.c_proj",               QUERY,  HIDDEN, NULL              },
    {FAMILY_GPT,   ITEM_MLP,       true,  "mlp.c_fc",                  HIDDEN, WIDE,   NULL              },
    {FAMILY_GPT,   ITEM_MLP,       false, "mlp.c_proj",                WIDE,   HIDDEN, NULL              },
    {FAMILY_BERT,  ITEM_ATTENTION, true,  "attention.self.query",      HIDDEN, QUERY,  NULL              },
    {FAMILY_BERT,  ITEM_ATTENTION, true,  "attention.self.key",        HIDDEN, KEY,    NULL              },
    {FAMILY_BERT,  ITEM_ATTENTION, true,  "attention.self.value",      HIDDEN, KEY,    NULL              },
    {FAMILY_BERT,  ITEM_ATTENTION, false, "attention.output.dense",    QUERY,  HIDDEN, NULL              },
    {FAMILY_BERT,  ITEM_MLP,       true,  "intermediate.dense",        HIDDEN, WIDE,   NULL              },
    {FAMILY_BERT,  ITEM_MLP,       false, "output.dense",              WIDE,   HIDDEN, NULL              },
    {FAMILY_BERT,  ITEM_POOLER,    true,  "pooler.dense",              HIDDEN, HIDDEN, NULL              },
    {FAMILY_VIT,   ITEM_ATTENTION, true,  "attention.attention.query", HIDDEN, QUERY,
     "attention.q_proj"                                                                                  },
    {FAMILY_VIT,   ITEM_ATTENTION, true,  "attention.attention.key",   HIDDEN, KEY,    "attention.k_proj"},
    {FAMILY_VIT,   ITEM_ATTENTION, true,  "attention.attention.value", HIDDEN, KEY,
     "attention.v_proj"                                                                                  },
    {FAMILY_VIT,   ITEM_ATTENTION, false, "attention.output.dense",    QUERY,  HIDDEN,
     "attention.o_proj"                                                                                  },
    {FAMILY_VIT,   ITEM_MLP,       true,  "intermediate.dense",        HIDDEN, WIDE,   "mlp.fc1"         },
    {FAMILY_VIT,   ITEM_MLP,       false, "output.dense",              WIDE,   HIDDEN, "mlp.fc2"         },
};
enum { NUM_PRODUCTS = sizeof products / sizeof *products };
_Static_assert(NUM_PRODUCTS < 31, "a bit of model.lora.targets for each product");

/* Whether the model has the products of a row of the table. */
static bool has_row(const struct model *model, int row)
{
    if (products[row].kind == ITEM_POOLER && model->task != TASK_CLASSIFY)
        return false;
    return products[row].family == model->family &&
           (model->gated_mlp || strcmp(products[row].module, "mlp.gate_proj") != 0);
}

static int64_t width_of(const struct model *model, enum width width)
{
    const int64_t d = model->head_dim > 0 ? model->head_dim : model->hidden / model->heads;
    const int64_t query = model->heads * d;
    const int64_t key = (model->kv_heads > 0 ? model->kv_heads : model->heads) * d;
    switch (width) {
    case HIDDEN:
        return model->hidden;
    case QUERY:
        return query;
    case KEY:
        return key;
    case HEADS:
        return query + 2 * key;
    case WIDE:
        break;
    }
    return model->mlp;
}

int lora_products(const struct model *model, int item, struct lora_product list[LORA_PRODUCTS])
{
    const bool fused = (model->framework && model->framework->fuses_adapters) ||
                       (model->lora.fused_qkv && model->items[item].kind == ITEM_ATTENTION);
    int64_t columns[2] = {0};
    int num = 0;
    for (int row = 0; model->heads > 0 && row < NUM_PRODUCTS; row++) {
        const bool first = products[row].first;
        if (products[row].kind != model->items[item].kind || !has_row(model, row))
            continue;
        const struct lora_product got = {.module = products[row].module,
                                         .first = first,
                                         .adapted = model->lora.targets >> row & 1,
                                         .in = width_of(model, products[row].in),
                                         .out = width_of(model, products[row].out),
                                         .column = columns[first]};
        columns[first] += got.out;
        if (fused && num > 0 && list[num - 1].first == first) {
            list[num - 1].out += got.out;
            list[num - 1].adapted |= got.adapted;
        } else {
            list[num++] = got;
        }
    }
    return num;
}

const char *lora_later_name(const char *module)
{
    for (int row = 0; row < NUM_PRODUCTS; row++)
        if (products[row].later && strcmp(products[row].module, module) == 0)
            return products[row].later;
    return module;
}

/* --- targets ---------------------------------------------------------------------------------- */

/* Whether a module's name is the word, or ends in it after a dot. */
static bool is_named(const char *module, const char *word, size_t length)
{
    const size_t n = strlen(module);
    return n >= length && strncmp(module + n - length, word, length) == 0 &&
           (n == length || module[n - length - 1] == '.');
}

static bool is_word(const char *name, const char *word, size_t length)
{
    return strlen(name) == length && strncmp(name, word, length) == 0;
}

/* The rows that a word of the targets names, as bits. */
static int rows_named(const struct model *model, const char *word, size_t length)
{
    const bool all = is_word("all", word, length), qkv = is_word("qkv", word, length);
    const bool attention = all || is_word("attention", word, length);
    const bool mlp = all || is_word("mlp", word, length);
    int rows = 0;
    for (int row = 0; row < NUM_PRODUCTS; row++)
        if (has_row(model, row) &&
            ((attention && products[row].kind == ITEM_ATTENTION) ||
             (mlp && products[row].kind == ITEM_MLP) ||
             (qkv && products[row].kind == ITEM_ATTENTION && products[row].first) ||
             is_named(products[row].module, word, length) ||
             (products[row].later && is_named(products[row].later, word, length))))
            rows |= 1 << row;
    return rows;
}

static void hint_names(const struct model *model, struct err *err)
{
    char names[400] = "";
    for (int row = 0; row < NUM_PRODUCTS; row++)
        if (has_row(model, row)) {
            const size_t n = strlen(names);
            snprintf(names + n, sizeof names - n, ", %s", products[row].module);
        }
    err_hint(err, "names: all, attention, qkv, mlp, and products or their endings%s", names);
}

static enum status find_targets(const struct model *model, const char *text, int *targets,
                                struct err *err)
{
    static const char head[] = "cls.predictions.transform.dense";
    *targets = 0;
    for (const char *word = text;; word++) {
        word += strspn(word, " ");
        const size_t length = strcspn(word, ", ");
        const int rows = rows_named(model, word, length);
        if (rows && model->task == TASK_MLM && is_named(head, word, length))
            return err_set(err, ERR_INFEASIBLE,
                           "train.lora.targets: '%.*s' also names %s, which takes no adapter",
                           (int)length, word, head);
        if (!rows) {
            err_set(err, ERR_INPUT, "train.lora.targets: '%.*s' names no product of model '%s'",
                    (int)length, word, model->name);
            hint_names(model, err);
            return ERR_INPUT;
        }
        *targets |= rows;
        word += strcspn(word, ",");
        if (*word == '\0')
            return OK;
    }
}

/* --- the model -------------------------------------------------------------------------------- */

/* A base in a narrow format has no 2-byte copy: MLPerf's LoRA of Llama 2 70B with one scale a tensor runs on
 * 141 GB without tensor parallelism (v5.1, 8 H200), which two copies of a weight would fill. MXFP8 scales rows
 * and columns apart, and needs both. */
static double narrow_base_bytes(const struct model *model)
{
    const bool narrow =
        model->kept_32nds > 0 && model->framework && model->framework->keeps_narrow_weights;
    return narrow ? model->kept_32nds * (model->kept_32nds == 33 ? 2 : 1) / 32.0 : 0;
}

double model_base_bytes_per_param(const struct model *model)
{
    static const double bytes[LORA_BASE_COUNT] = {
        [LORA_BASE_INT8] = 1, [LORA_BASE_NF4] = 4.127 / 8, [LORA_BASE_GPTQ] = (4 + 20.0 / 128) / 8};
    const double narrow = narrow_base_bytes(model);
    return model->lora.base != LORA_BASE_SAME       ? bytes[model->lora.base]
           : narrow > 0                             ? narrow
           : model->elem_bytes < model->param_bytes ? model_weight_bytes(model) - model->param_bytes
                                                    : model->param_bytes;
}

int64_t model_base_bytes(const struct model *model, int item)
{
    return (int64_t)ceil((double)model->items[item].base_params *
                         model_base_bytes_per_param(model));
}

bool model_item_is_base(const struct model *model, int item)
{
    return model->lora.rank > 0 && !(model->lora.head && model->items[item].kind == ITEM_HEAD);
}

bool model_drops_inputs(const struct model *model, int item)
{
    const enum item_kind kind = model->items[item].kind;
    return model_item_is_base(model, item) && model->framework && model->kv_rank == 0 &&
           model->framework != framework_of(FRAMEWORK_OURS) &&
           (kind == ITEM_ATTENTION || kind == ITEM_MLP) && !model_item_has_experts(model, item);
}

/* The norm's output goes, which the first product read, and by eager operators the normalised tensor, which the
 * gradient of the norm's weights read; of an MLP what the second product read. Attention needs its own output. */
/* What dropout keeps of the inputs of adapters: of first products (tokens), or of second ones. */
static int64_t dropped_bytes(const struct model *model, int item, bool tokens)
{
    struct lora_product list[LORA_PRODUCTS];
    const int num = model->lora.dropout ? lora_products(model, item, list) : 0;
    int64_t bytes = 0;
    for (int i = 0; i < num; i++)
        if (list[i].adapted && list[i].first == tokens)
            bytes += (int64_t)model->seq * list[i].in * (model->elem_bytes + 1);
    return bytes;
}

static int64_t unneeded_bytes(const struct model *model, int item, bool tokens)
{
    struct lora_product list[LORA_PRODUCTS];
    const int64_t norms = model_item_norms(model, model->items[item].kind);
    const int64_t one = (int64_t)model->seq * model->elem_bytes;
    bool first = false, second = false;
    if (!model_drops_inputs(model, item))
        return 0;
    const int num = lora_products(model, item, list);
    for (int i = 0; i < num; i++)
        *(list[i].first ? &first : &second) |= list[i].adapted && !model->lora.dropout;
    if (tokens)
        return norms > 0 ? one * model->hidden *
                               (!first + (model->eager_norm && model->rms_norm ? norms : 0))
                         : 0;
    return model->items[item].kind == ITEM_MLP && !second ? one * model->mlp : 0;
}

int64_t model_unkept_bytes(const struct model *model, int item, bool tokens)
{
    return unneeded_bytes(model, item, tokens) - dropped_bytes(model, item, tokens);
}

int64_t model_adapter_flops(const struct model *model, int item)
{
    const int rows = model->items[item].kind == ITEM_POOLER ? 1 : model->seq;
    return model_item_is_base(model, item) ? 2 * model->items[item].params * rows : 0;
}

/* Parameters of the adapters of an item. */
static int64_t adapter_params(const struct model *model, int item)
{
    struct lora_product list[LORA_PRODUCTS];
    const int num = lora_products(model, item, list);
    int64_t sum = 0;
    for (int i = 0; i < num; i++)
        sum += list[i].adapted ? list[i].in + list[i].out : 0;
    return model->lora.rank * sum;
}

static bool targets_kind(const struct model *model, int targets, enum item_kind kind)
{
    for (int row = 0; row < NUM_PRODUCTS; row++)
        if (targets >> row & 1 && has_row(model, row) && products[row].kind == kind)
            return true;
    return false;
}

static enum status check(const struct model *model, int rank, int targets, struct err *err)
{
    if (model->kv_rank > 0 && targets_kind(model, targets, ITEM_ATTENTION))
        return err_set(
            err, ERR_INFEASIBLE,
            "train.lora: attention of model '%s' is latent, its adapters are not modelled",
            model->name);
    if (model->experts > 0 && targets_kind(model, targets, ITEM_MLP))
        return err_set(
            err, ERR_INFEASIBLE,
            "train.lora.targets: layers of model '%s' have experts, no MLP that adapters "
            "are modelled of; attention and qkv are",
            model->name);
    if (model->state.kind != MIXER_NONE)
        return err_set(
            err, ERR_INFEASIBLE,
            "train.lora: adapters of state-space layers, as model '%s' has them, are not "
            "modelled",
            model->name);
    if (rank > model->hidden)
        return err_set(err, ERR_INFEASIBLE,
                       "train.lora.rank must be at most the width %d of model '%s', got %d",
                       model->hidden, model->name, rank);
    return OK;
}

static void change_narrow(struct model *model, int sign)
{
    for (int i = 0; i < model->num_items; i++)
        model->items[i].stash_bytes +=
            sign * (model_narrow_bytes(model, i, true) + model_narrow_bytes(model, i, false));
}

enum status model_set_lora(struct model *model, const struct lora_ask *ask, struct err *err)
{
    int targets = 0;
    if (ask->rank == 0)
        return OK;
    if (model->heads == 0 || !rows_named(model, "all", 3))
        return err_set(err, ERR_INFEASIBLE, "train.lora: model '%s' has no such layers",
                       model->name);
    enum status rc = find_targets(model, ask->targets, &targets, err);
    THEN(check(model, ask->rank, targets, err));
    if (rc != OK)
        return rc;
    change_narrow(model, -1);
    model->lora.rank = ask->rank;
    model->lora.targets = targets;
    model->lora.dropout = ask->dropout > 0;
    model->lora.fused_qkv = ask->fused_qkv;
    model->lora.base = (int)ask->base;
    model->lora.scale = ask->alpha > 0.0 ? (float)(ask->alpha / ask->rank) : 1.0f;
    model->lora.head = ask->head && (model->task == TASK_CLASSIFY || model->task == TASK_QA);
    for (int i = 0; i < model->num_items; i++) {
        struct item *item = &model->items[i];
        if (!model_item_is_base(model, i))
            continue;
        item->base_params = item->params;
        item->params = adapter_params(model, i);
        item->fwd_flops += model_adapter_flops(model, i);
        item->stash_bytes -=
            model_unkept_bytes(model, i, true) + model_unkept_bytes(model, i, false);
    }
    change_narrow(model, 1);
    return OK;
}
