/* Item chains of the transformer families, by formula. resolve() replaces zero dims by defaults and
 * checks them, the fill functions write one item each, model_build() makes the chain. The llama
 * family has its formulas in model_llama.c, chains from files are made in model_explicit.c. Read
 * model.h first, then the formulas here.
 *
 * Notation: s tokens of a sample, h hidden, m MLP width, a heads, c classes, V vocabulary, p patch
 * side, e bytes of an activation element.
 *
 * params: the layers as published (ViT: Dosovitskiy et al. 2021; BERT: Devlin et al. 2019; GPT-2:
 *   Radford et al. 2019). Every linear has a bias, a LayerNorm has 2h parameters, and ViT's patch
 *   embedding is a convolution with bias plus class token and positions. The heads of GPT and of
 *   masked BERT share the token table. It counts once, in the embedding; tied_params has its size.
 * fwd_flops: the matrix products, a multiply-add is 2 (Narayanan et al. 2021, appendix): attention
 *   8sh^2 + 4s^2h, MLP 4shm. Norms, GELU, softmax and table look-ups are memory-bound and count 0;
 *   a roofline charges their bytes.
 * act_bytes: [s, h] crosses every boundary, [h] leaves the pooler, nothing leaves the head.
 * stash_bytes: the tensors that PyTorch's autograd would keep per sample with dropout on. A mask
 *   takes a byte per element, LayerNorm's mean and rstd are fp32 (8s):
 *     attention  LayerNorm input, QKV input, Q, K, V, output projection's input: 6 [s, h]; softmax
 *                and its dropout's output: 2 [a, s, s]; masks of both dropouts: [a, s, s] + [s, h]
 *     MLP        LayerNorm input, first linear's input: 2 [s, h]; GELU input, second linear's
 *                input: 2 [s, m]; dropout masks: [s, h], and [s, m] in ViT, which drops after GELU
 *   BERT has its LayerNorm after the residual add (post-LN): other tensors, equal sizes. ViT-B/16
 *   fp32: 14.8 MB per layer and image; about 15.1 MB measured on PipeTransformer's system.
 * U-ViT (Bao et al. 2023): the attention item that a long skip enters starts with a linear from
 *   the concatenation [s, 2h] to [s, h], whose input is kept. */
#include "partition/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/model/model_items.h"
#include "partition/model/packing.h"

bool item_store(wide value, int64_t *out)
{
    if (value < 0 || value > INT64_MAX)
        return false;
    *out = (int64_t)value;
    return true;
}

bool item_fill(struct item *item, enum item_kind kind, int layer, const char *name, wide params,
               wide fwd_flops, wide act_bytes, wide stash_bytes)
{
    *item = (struct item){.kind = kind, .layer = layer};
    snprintf(item->name, sizeof item->name, "%s", name);
    return item_store(params, &item->params) && item_store(fwd_flops, &item->fwd_flops) &&
           item_store(act_bytes, &item->act_bytes) && item_store(stash_bytes, &item->stash_bytes);
}

static bool fill_embedding(const struct model *model, struct item *item)
{
    wide s = model->seq, h = model->hidden, e = model->elem_bytes;
    if (model->family == FAMILY_VIT) {
        wide n = s - 1, patch_elems = (wide)model->channels * model->patch * model->patch;
        /* kept: the patches, and the mask of the dropout after the positions */
        return item_fill(item, ITEM_EMBEDDING, -1, "embedding", patch_elems * h + h + n * h + h + h,
                         2 * n * patch_elems * h, s * h * e, n * patch_elems * e + s * h);
    }
    wide tables = (wide)model->vocab + model->max_seq;
    if (model->family == FAMILY_GPT) /* kept: token ids (8 B), dropout mask */
        return item_fill(item, ITEM_EMBEDDING, -1, "embedding", tables * h, 0, s * h * e,
                         8 * s + s * h);
    /* BERT also has token types and a LayerNorm */
    return item_fill(item, ITEM_EMBEDDING, -1, "embedding", (tables + 2) * h + 2 * h, 0, s * h * e,
                     16 * s + s * h * e + 8 * s + s * h);
}

static bool fill_attention(const struct model *model, int layer, bool joins_skip, struct item *item)
{
    wide s = model->seq, h = model->hidden, a = model->heads, e = model->elem_bytes;
    wide params = 4 * (h * h + h) + 2 * h;
    wide flops = 8 * s * h * h + 4 * s * s * h;
    wide stash = 6 * s * h * e + 8 * s + s * h + a * s * s * (2 * e + 1);
    char name[32];
    if (joins_skip) {
        params += 2 * h * h + h;
        flops += 4 * s * h * h;
        stash += 2 * s * h * e;
    }
    snprintf(name, sizeof name, "attn%d", layer);
    return item_fill(item, ITEM_ATTENTION, layer, name, params, flops, s * h * e, stash);
}

static bool fill_mlp(const struct model *model, int layer, struct item *item)
{
    wide s = model->seq, h = model->hidden, m = model->mlp, e = model->elem_bytes;
    wide stash = 2 * s * h * e + 8 * s + s * h + 2 * s * m * e;
    char name[32];
    if (model->family == FAMILY_VIT)
        stash += s * m;
    snprintf(name, sizeof name, "mlp%d", layer);
    return item_fill(item, ITEM_MLP, layer, name, 2 * h * m + m + h + 2 * h, 4 * s * h * m,
                     s * h * e, stash);
}

/* Write the items after the last layer: a norm or pooler if the model has one, and the head. */
static bool fill_tail(const struct model *model, struct item *item, int *count)
{
    int behind = model->num_layers;
    wide s = model->seq, h = model->hidden, c = model->classes, vocab = model->vocab;
    wide e = model->elem_bytes, p = model_masked_of(model->seq);
    bool ok = true;
    int n = 0;
    if (model->family == FAMILY_VIT || model->family == FAMILY_GPT)
        ok = item_fill(&item[n++], ITEM_NORM, behind, "norm", 2 * h, 0, s * h * e,
                       s * h * e + 8 * s);
    else if (model->task == TASK_CLASSIFY) /* kept: the first token and the output of tanh */
        ok = item_fill(&item[n++], ITEM_POOLER, behind, "pooler", h * h + h, 2 * h * h, h * e,
                       2 * h * e);
    struct item *head = &item[n++];
    switch (model->task) {
    case TASK_CLASSIFY: /* kept: input, log-probabilities; BERT: also its dropout's mask */
        ok = ok && item_fill(head, ITEM_HEAD, behind, "head", h * c + c, 2 * h * c, 0,
                             h * e + c * e + (model->family == FAMILY_BERT ? h : 0));
        break;
    case TASK_QA: /* start and end of the span, per token */
        ok = ok && item_fill(head, ITEM_HEAD, behind, "head", 2 * h + 2, 4 * s * h, 0,
                             s * h * e + 2 * s * e);
        break;
    case TASK_MLM: /* dense, GELU, LayerNorm, the token table transposed, an output bias; runs only
                      on the tokens to predict */
        ok = ok &&
             item_fill(head, ITEM_HEAD, behind, "head", h * h + h + 2 * h + vocab,
                       2 * p * h * h + 2 * p * h * vocab, 0, 4 * p * h * e + 8 * p + p * vocab * e);
        break;
    case TASK_CAUSAL_LM:
        ok = ok && item_fill(head, ITEM_HEAD, behind, "head", 0, 2 * s * h * vocab, 0,
                             s * h * e + s * vocab * e);
        break;
    }
    if (ok && model->tied_head)
        ok = item_store(vocab * h, &head->tied_params);
    *count = n;
    return ok;
}

enum status model_check_dims(const char *name, const struct dim *dims, int num_dims,
                             struct err *err)
{
    for (int i = 0; i < num_dims; i++)
        if (dims[i].value < 1 || dims[i].value > dims[i].max)
            return err_set(err, ERR_INPUT, "model '%s': %s must be 1..%d, got %d", name,
                           dims[i].name, dims[i].max, dims[i].value);
    return OK;
}

/* The usual width of an MLP: 4 h. With a gate two thirds of that, to have as many parameters,
 * rounded up to a multiple of 256 (Touvron et al. 2023). */
static int mlp_of(const struct model_spec *spec)
{
    if (spec->family != FAMILY_LLAMA)
        return 4 * spec->hidden;
    return (8 * spec->hidden / 3 + 255) / 256 * 256;
}

#define OR_BASE(field) (spec->field ? spec->field : base->field)

static enum status resolve_images(const struct model_spec *spec, const struct model_spec *base,
                                  struct model *model, struct err *err)
{
    enum status rc;
    model->image = OR_BASE(image);
    model->patch = OR_BASE(patch);
    model->channels = OR_BASE(channels);
    model->classes = OR_BASE(classes);
    struct dim vit[] = {
        {"image",    model->image,    MODEL_IMAGE_MAX   },
        {"patch",    model->patch,    MODEL_IMAGE_MAX   },
        {"channels", model->channels, MODEL_CHANNELS_MAX},
        {"classes",  model->classes,  MODEL_VOCAB_MAX   }
    };
    if ((rc = model_check_dims(spec->name, vit, 4, err)) != OK)
        return rc;
    if (model->image % model->patch)
        return err_set(err, ERR_INPUT, "model '%s': image %d is not a multiple of patch %d",
                       spec->name, model->image, model->patch);
    int side = model->image / model->patch;
    if (side > 1023)
        return err_set(err, ERR_INPUT, "model '%s': %d x %d patches, limit 1023 x 1023", spec->name,
                       side, side);
    model->seq = side * side + 1;
    return OK;
}

static enum status resolve_text(const struct model_spec *spec, const struct model_spec *base,
                                struct model *model, struct err *err)
{
    model->vocab = OR_BASE(vocab);
    model->max_seq = OR_BASE(max_seq);
    model->seq = spec->seq ? spec->seq : base->seq < model->max_seq ? base->seq : model->max_seq;
    model->classes = model->task == TASK_CLASSIFY ? OR_BASE(classes)
                     : model->task == TASK_QA     ? 2
                                                  : 0;
    struct dim text[] = {
        {"vocab",   model->vocab,                        MODEL_VOCAB_MAX},
        {"max_seq", model->max_seq,                      MODEL_DIM_MAX  },
        {"seq",     model->seq,                          model->max_seq },
        {"classes", model->classes ? model->classes : 1, MODEL_VOCAB_MAX}
    };
    const enum status rc = model_check_dims(spec->name, text, 4, err);
    if (rc != OK && model->seq > model->max_seq)
        err_hint(err, "raise max_seq for more positions");
    return rc;
}

/* Copy the dims into the model, zeros replaced by the family's first preset, and check them. */
static enum status resolve(const struct model_spec *spec, struct model *model, struct err *err)
{
    const char *first = model_family_traits(spec->family)->first_preset;
    struct model_spec preset;
    const struct model_spec *const base = &preset;
    enum status rc;
    if (!first)
        return err_set(err, ERR_INPUT, "model '%s': family '%s' is not built from dims", spec->name,
                       model_family_name(spec->family));
    rc = model_preset(first, &preset, err);
    if (rc != OK)
        return rc;
    snprintf(model->name, sizeof model->name, "%s",
             spec->name[0] ? spec->name : model_family_name(spec->family));
    model->family = spec->family;
    /* only BERT has a choice: ViT classifies, GPT predicts tokens */
    model->task = spec->family == FAMILY_BERT ? spec->task : base->task;
    model->num_layers = OR_BASE(num_layers);
    model->hidden = OR_BASE(hidden);
    model->heads = OR_BASE(heads);
    model->mlp = spec->mlp                                               ? spec->mlp
                 : spec->hidden > 0 && spec->hidden <= MODEL_DIM_MAX / 4 ? mlp_of(spec)
                                                                         : base->mlp;
    model->elem_bytes = OR_BASE(elem_bytes);
    model->dtype = spec->dtype;
    model->norm_eps = spec->norm_eps;
    model->param_bytes = 4;
    model->tensor = model->expert_ways = 1;
    model->kv_heads = model->heads;
    model->tied_head = model->task == TASK_MLM || model->task == TASK_CAUSAL_LM;
    struct dim dims[] = {
        {"layers", model->num_layers, MODEL_LAYERS_MAX},
        {"hidden", model->hidden,     MODEL_DIM_MAX   },
        {"heads",  model->heads,      MODEL_DIM_MAX   },
        {"mlp",    model->mlp,        MODEL_DIM_MAX   }
    };
    if ((rc = model_check_dims(spec->name, dims, 4, err)) != OK)
        return rc;
    if (model->elem_bytes != 2 && model->elem_bytes != 4)
        return err_set(err, ERR_INPUT, "model '%s': an activation has 2 or 4 bytes, got %d",
                       spec->name, model->elem_bytes);
    if (spec->family == FAMILY_LLAMA)
        return llama_resolve(spec, base, model, err);
    if (model->hidden % model->heads)
        return err_set(err, ERR_INPUT, "model '%s': hidden %d is not a multiple of heads %d",
                       spec->name, model->hidden, model->heads);
    model->head_dim = model->hidden / model->heads;
    if (spec->family == FAMILY_VIT)
        return resolve_images(spec, base, model, err);
    return resolve_text(spec, base, model, err);
}

#undef OR_BASE

enum status model_check_totals(const struct model *model, struct err *err)
{
    wide params = 0, flops = 0, act = 0, stash = 0, work = 0, ns = 0, skip = 0;
    for (int i = 0; i < model->num_items; i++) {
        const struct item *item = &model->items[i];
        params += (wide)item->params + item->tied_params;
        flops += item->fwd_flops;
        act += item->act_bytes;
        stash += item->stash_bytes;
        work += item->work_bytes;
        ns += (wide)item->fwd_ns + item->bwd_input_ns + item->bwd_weight_ns + item->update_ns;
    }
    for (int i = 0; i < model->num_skips; i++)
        skip += model->skips[i].bytes;
    /* 16 bytes a parameter: weight, gradient, two optimizer moments */
    const char *what = params > INT64_MAX / 16 ? "params"
                       : flops > INT64_MAX     ? "fwd_flops"
                       : act > INT64_MAX       ? "act_bytes"
                       : stash > INT64_MAX     ? "stash_bytes"
                       : work > INT64_MAX      ? "work_bytes"
                       : ns > INT64_MAX        ? "times"
                       : skip > INT64_MAX      ? "skips' bytes"
                                               : NULL;
    if (what)
        return err_set(err, ERR_INPUT, "model '%s': the sum of its %s overflows", model->name,
                       what);
    return OK;
}

static bool fill_by_letter(const struct model *model, int layer, char letter, struct item *item)
{
    return letter == 'M'   ? state_fill(model, layer, item)
           : letter == '*' ? llama_fill_attention(model, layer, item)
                           : llama_fill_mlp(model, layer, item);
}

enum status model_build(const struct model_spec *spec, struct model *model, struct err *err)
{
    struct model got = {0};
    bool ok;
    if (spec->family == FAMILY_COMPOSED)
        return composed_build(spec, model, err);
    enum status rc = resolve(spec, &got, err);
    if (rc != OK)
        goto out;
    int num_skips = spec->unet_skips ? got.num_layers / 2 : 0;
    got.items = calloc(2 * (size_t)got.num_layers + 3, sizeof *got.items);
    got.skips = num_skips ? calloc((size_t)num_skips, sizeof *got.skips) : NULL;
    if (!got.items || (num_skips && !got.skips)) {
        rc = err_nomem(err);
        goto out;
    }
    const bool llama = got.family == FAMILY_LLAMA;
    struct item *item = got.items;
    ok = llama ? llama_fill_embedding(&got, item++) : fill_embedding(&got, item++);
    for (int layer = 0; ok && layer < got.num_layers; layer++) {
        bool joins = num_skips > 0 && layer >= got.num_layers - num_skips;
        for (int i = 0; ok && i < got.layer_items; i++, item++)
            ok = fill_by_letter(&got, layer, got.pattern[layer * got.layer_items + i], item);
        if (*got.pattern)
            continue;
        ok = llama ? llama_fill_attention(&got, layer, item++)
                   : fill_attention(&got, layer, joins, item++);
        ok = ok && (llama ? llama_fill_mlp(&got, layer, item++) : fill_mlp(&got, layer, item++));
    }
    int tail = 2;
    ok = ok && (llama ? llama_fill_tail(&got, item) : fill_tail(&got, item, &tail));
    if (!ok) {
        rc = err_set(err, ERR_INPUT, "model '%s': the size of an item overflows", got.name);
        goto out;
    }
    got.num_items = (int)(item - got.items) + tail;
    got.num_skips = num_skips;
    for (int i = 0; i < num_skips; i++) /* output of block i into block num_layers-1-i */
        got.skips[i] = (struct skip_edge){.from = 2 * i + 2,
                                          .to = 2 * (got.num_layers - 1 - i) + 1,
                                          .bytes = got.items[0].act_bytes};
    rc = model_check_totals(&got, err);
    if (rc != OK)
        goto out;
    *model = got;
    got = (struct model){0};
out:
    model_clear(&got);
    return rc;
}

enum status model_copy(const struct model *src, struct model *dst, struct err *err)
{
    struct model got = *src;
    got.untied = src->untied ? calloc(1, sizeof *got.untied) : NULL;
    got.items = malloc((size_t)src->num_items * sizeof *got.items + 1);
    got.skips = src->num_skips ? malloc((size_t)src->num_skips * sizeof *got.skips) : NULL;
    got.times = src->num_times ? calloc((size_t)src->num_times, sizeof *got.times) : NULL;
    got.pieces = src->num_pieces ? malloc((size_t)src->num_pieces * sizeof *got.pieces) : NULL;
    bool whole = got.items && (got.skips || !src->num_skips) && (got.times || !src->num_times) &&
                 (got.pieces || !src->num_pieces) && (got.untied || !src->untied);
    for (int t = 0; t < src->num_times && whole; t++) {
        const size_t size = (size_t)src->times[t].num_rows * sizeof *src->times[t].rows;
        got.times[t] = src->times[t];
        got.times[t].rows = malloc(size);
        whole = got.times[t].rows;
        if (whole)
            memcpy(got.times[t].rows, src->times[t].rows, size);
    }
    if (whole && src->untied)
        whole = model_copy(src->untied, got.untied, err) == OK;
    if (!whole) {
        model_clear(&got);
        return err_nomem(err);
    }
    if (src->num_items)
        memcpy(got.items, src->items, (size_t)src->num_items * sizeof *got.items);
    if (src->num_skips)
        memcpy(got.skips, src->skips, (size_t)src->num_skips * sizeof *got.skips);
    if (src->num_pieces)
        memcpy(got.pieces, src->pieces, (size_t)src->num_pieces * sizeof *got.pieces);
    *dst = got;
    return OK;
}

void model_untie(struct model *model)
{
    struct item *head = &model->items[model->num_items - 1];
    if (head->tied_params == 0)
        return;
    head->params += head->tied_params; /* model_check_totals() has added them up */
    head->tied_params = 0;
    model->tied_head = false;
    model->was_tied = true;
}

enum status model_let_head_go_on(struct model *model, struct err *err)
{
    if (model->items[model->num_items - 1].tied_params == 0 || model->lora.rank > 0)
        return OK;
    struct model *untied = calloc(1, sizeof *untied);
    enum status rc = untied ? model_copy(model, untied, err) : err_nomem(err);
    if (rc != OK) {
        free(untied);
        return rc;
    }
    model_untie(untied);
    model->untied = untied;
    return OK;
}

void model_drop_untied(struct model *model)
{
    if (model->untied)
        model_clear(model->untied);
    free(model->untied);
    model->untied = NULL;
}

void model_clear(struct model *model)
{
    model_drop_untied(model);
    for (int t = 0; t < model->num_times && model->times; t++)
        free(model->times[t].rows);
    free(model->times);
    free(model->items);
    free(model->skips);
    free(model->pieces);
    *model = (struct model){0};
}

const char *const item_kind_names[] = {"embedding", "attention", "mlp",         "norm", "pooler",
                                       "head",      "opaque",    "state-space", NULL};

const char *item_kind_name(enum item_kind kind)
{
    return (unsigned)kind < ITEM_KIND_COUNT ? item_kind_names[kind] : "?";
}

const char *model_family_name(enum model_family family)
{
    return (unsigned)family < FAMILY_COUNT ? model_family_traits(family)->name : "?";
}

/* clang-format off */
const struct family_traits *model_family_traits(enum model_family family)
{
    static const struct family_traits traits[FAMILY_COUNT] = {
        [FAMILY_VIT] = {.name = "vit", .first_preset = "vit-b16", .trainable = true, .images = true,
                        .embedding = "patch", .attention = "full", .mlp = "erf", .norm = ""},
        [FAMILY_BERT] = {.name = "bert", .first_preset = "bert-base", .trainable = true, .post_norm = true,
                         .embedding = "bert", .attention = "full", .mlp = "erf", .norm = ""},
        [FAMILY_GPT] = {.name = "gpt", .first_preset = "gpt2", .trainable = true,
                        .embedding = "gpt", .attention = "causal", .mlp = "tanh", .norm = ""},
        [FAMILY_LLAMA] = {.name = "llama", .first_preset = "llama", .trainable = true, .embedding = "llama",
                          .attention = "grouped", .mlp = "swiglu", .norm = "rms"},
        [FAMILY_COMPOSED] = {.name = "composed", .first_preset = "t5-base", .embedding = "composed",
                             .attention = "composed", .mlp = "composed", .norm = "composed"},
        [FAMILY_UNIFORM] = {.name = "uniform"},
        [FAMILY_EXPLICIT] = {.name = "explicit"},
    };
    return &traits[family];
}
/* clang-format on */

bool model_has_images(const struct model *model)
{
    return model->family == FAMILY_COMPOSED ? model->image > 0
                                            : model_family_traits(model->family)->images;
}

bool model_items_alike(const struct model *model, int one, int other)
{
    const struct item *a = &model->items[one], *b = &model->items[other];
    return a->kind != ITEM_OPAQUE && a->kind == b->kind && a->params == b->params &&
           a->base_params == b->base_params && a->tied_params == b->tied_params &&
           a->fwd_flops == b->fwd_flops && a->act_bytes == b->act_bytes &&
           a->stash_bytes == b->stash_bytes && a->work_bytes == b->work_bytes;
}

bool model_joins_skip(const struct model *model, int item)
{
    for (int i = 0; i < model->num_skips; i++)
        if (model->skips[i].to == item)
            return true;
    return false;
}

int64_t model_total_params(const struct model *model)
{
    int64_t total = 0; /* cannot overflow: model_check_totals() */
    for (int i = 0; i < model->num_items; i++)
        total += model->items[i].params;
    return total;
}

bool model_item_has_experts(const struct model *model, int item)
{
    const int layer = model->items[item].layer;
    return model->items[item].kind == ITEM_MLP && model_layer_has_experts(model, layer);
}

bool model_layer_has_experts(const struct model *model, int layer)
{
    const int every = model->block.moe_every > 1 ? model->block.moe_every : 1;
    if (*model->pattern)
        return layer >= 0 && layer < model->num_layers &&
               model->pattern[(layer + 1) * model->layer_items - 1] == 'E';
    return model->experts > 0 && layer >= model->dense_layers && (layer + 1) % every == 0;
}

bool model_is_parallel(const struct model *model)
{
    return model->block.places == NORMS_PARALLEL || model->block.places == NORMS_PARALLEL_TWO;
}

int model_item_norms(const struct model *model, enum item_kind kind)
{
    if (model->block.places == NORMS_AROUND)
        return 2;
    return model->block.places == NORMS_PARALLEL && kind == ITEM_MLP ? 0 : 1;
}

int64_t model_norm_params(const struct model *model)
{
    if (model->block.norm == NORM_FORM_BARE)
        return 0;
    const bool bias = !model->rms_norm && model->block.norm != NORM_FORM_WEIGHT;
    return (bias ? 2 : 1) * (int64_t)model->hidden;
}

int model_window(const struct model *model, int layer)
{
    const struct block *block = &model->block;
    const bool full = block->window >= model_sample_tokens(model) || layer < block->window_from ||
                      (block->full_every > 0 && (layer + 1) % block->full_every == 0);
    return full ? 0 : block->window;
}

int64_t model_attention_pairs(const struct model *model, int layer)
{
    const int64_t s = model_sample_tokens(model), w = model_window(model, layer);
    if (model->packing.apart) /* a token of padding sees itself */
        return (int64_t)(model_document_pairs(model, layer) +
                         ((double)s - model->packing.tokens) * model->seq / (double)s);
    const int64_t pairs = w > 0 ? s * (2 * w - 1) - w * (w - 1) : s * s;
    return model->context > 1 ? pairs / model->context : pairs;
}

int model_frozen_items(const struct model *model, int num_frozen_layers)
{
    int n = 0;
    if (num_frozen_layers > 0)
        while (n < model->num_items && model->items[n].layer < num_frozen_layers)
            n++;
    return n;
}

double model_weight_share(const struct model *model, int item, int num_frozen_layers)
{
    const double dense = model->task == TASK_MLM ? model->hidden : 0;
    if (num_frozen_layers == 0 || model->items[item].tied_params == 0 || model->vocab == 0 ||
        model->lora.rank > 0) /* with adapters the table trains in no pass */
        return 1;
    return dense / (dense + model->vocab);
}

int64_t model_weight_ns(const struct model *model, int item, int num_frozen_layers, int64_t ns)
{
    return (int64_t)((double)ns * model_weight_share(model, item, num_frozen_layers));
}

enum status model_check_frozen(const struct model *model, int64_t num_frozen_layers,
                               struct err *err)
{
    if (num_frozen_layers < 0 || num_frozen_layers > model->num_layers)
        return err_set(err, ERR_INFEASIBLE, "frozen must be 0..%d for model '%s', got %lld",
                       model->num_layers, model->name, (long long)num_frozen_layers);
    if (model_frozen_items(model, (int)num_frozen_layers) >= model->num_items)
        return err_set(err, ERR_INFEASIBLE, "%d frozen layers leave nothing of model '%s' to train",
                       (int)num_frozen_layers, model->name);
    return OK;
}

void model_block_fields(const struct model *model, bool embeds, bool head,
                        int64_t bytes[BLOCK_FIELDS])
{
    const bool images = model_has_images(model);
    const bool causal = model->task == TASK_CAUSAL_LM; /* each stage masks between documents */
    const int64_t each = images ? 0 : 4 * (int64_t)model->seq;
    const int64_t labels = model->task == TASK_CLASSIFY ? 1
                           : model->task == TASK_QA     ? 2
                                                        : model->seq;
    const int64_t rows = head && model->task == TASK_MLM ? model_masked_of(model->seq) : 0;
    bytes[BLOCK_IDS] = 8;
    bytes[BLOCK_IMAGES] =
        embeds && images ? 4 * (int64_t)model->channels * model->image * model->image : 0;
    bytes[BLOCK_TOKENS] = embeds ? each : 0;
    bytes[BLOCK_TYPES] = embeds || causal ? each : 0;
    bytes[BLOCK_LENGTHS] = images ? 0 : 4;
    bytes[BLOCK_LABELS] = head ? 4 * labels : 0;
    bytes[BLOCK_ROWS] = bytes[BLOCK_ROW_LABELS] = 4 * rows;
}

int64_t model_block_bytes(const struct model *model, bool embeds, bool head, int64_t samples)
{
    int64_t fields[BLOCK_FIELDS], all = 0;
    model_block_fields(model, embeds, head, fields);
    for (int i = 0; i < BLOCK_FIELDS; i++)
        all += model_block_pad(fields[i] * samples);
    return all;
}

int model_weight_bytes(const struct model *model)
{
    if (model->weight_bytes_per_param > 0)
        return model->weight_bytes_per_param;
    return model->param_bytes + (model->elem_bytes < model->param_bytes ? model->elem_bytes : 0);
}

int model_grad_bytes(const struct model *model)
{
    return model->grad_bytes_per_param > 0 ? model->grad_bytes_per_param : model->param_bytes;
}
