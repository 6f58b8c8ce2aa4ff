/* exec/weights/hf_names.c - checks and loads weights under Hugging Face's names. Read hf_check()
 * first; hf_load() loads what it has accepted. */
#include "exec/weights/hf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/stage/arch.h"
#include "profiles/job/model_config.h"

enum { NAME_BYTES = 128 };

/* --- names ------------------------------------------------------------------------------------ */

static bool starts(const char *text, const char *head)
{
    return strncmp(text, head, strlen(head)) == 0;
}

/* The old name of a norm's tensor, from the first TensorFlow exports. */
static bool old_norm_name(const char *name, char *old)
{
    size_t n = strlen(name);
    bool weight = n > 17 && strcmp(name + n - 17, ".LayerNorm.weight") == 0;
    bool bias = n > 15 && strcmp(name + n - 15, ".LayerNorm.bias") == 0;
    if (!weight && !bias)
        return false;
    snprintf(old, NAME_BYTES, "%.*s.%s", (int)(n - (weight ? 7 : 5)), name,
             weight ? "gamma" : "beta");
    return true;
}

/* The other name of a tensor that two modules share. transformers writes such a tensor once, under
 * either name. */
static const struct {
    const char *ours, *other;
} shared_names[] = {
    {"transformer.wte.weight",                 "lm_head.weight"                },
    {"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"},
    {"cls.predictions.bias",                   "cls.predictions.decoder.bias"  },
    {"model.embed_tokens.weight",              "lm_head.weight"                },
};
enum { NUM_SHARED = sizeof shared_names / sizeof *shared_names };

/* Whether the model's head shares tensors: it may have a table of its own. */
static bool shares(const struct model *model)
{
    return model->tied_head && (model->task == TASK_MLM || model->task == TASK_CAUSAL_LM);
}

static const char *shared_name(const struct model *model, const char *ours)
{
    for (int i = 0; i < NUM_SHARED && shares(model); i++)
        if (strcmp(ours, shared_names[i].ours) == 0)
            return shared_names[i].other;
    return NULL;
}

/* Find our tensor `name` under its own name, without the base model's prefix, or with the norms' old
 * names. */
static bool find_own(const struct weights *weights, const char *name, struct weights_tensor *found)
{
    char old[NAME_BYTES];
    const char *names[4] = {name, NULL, NULL, NULL};
    if (starts(name, "bert.") || starts(name, "vit.") || starts(name, "transformer.") ||
        starts(name, "model."))
        names[1] = strchr(name, '.') + 1;
    if (old_norm_name(name, old)) {
        names[2] = old;
        names[3] = names[1] ? old + (names[1] - name) : NULL;
    }
    for (int i = 0; i < 4; i++)
        if (names[i] && weights_find(weights, names[i], found))
            return true;
    return false;
}

/* Like find_own(), and else under the name of the module that shares it. A masked model's head with a table
 * of its own adds the bias beside that table, and transformers 5 keeps the other one without using it. */
static bool hf_find(const struct weights *weights, const struct model *model, const char *name,
                    struct weights_tensor *found)
{
    const char *other = shared_name(model, name);
    if (!model->tied_head && strcmp(name, "cls.predictions.bias") == 0 &&
        weights_find(weights, "cls.predictions.decoder.bias", found))
        return true;
    return find_own(weights, name, found) || (other && weights_find(weights, other, found));
}

/* --- shapes ----------------------------------------------------------------------------------- */

static bool is_head(const char *name)
{
    return starts(name, "classifier.") || starts(name, "qa_outputs.") ||
           starts(name, "cls.predictions.") || starts(name, "bert.pooler.");
}

static bool same_shape(int ndim, const int64_t *shape, const struct tensor_info *info)
{
    bool same = ndim == info->ndim;
    for (int d = 0; same && d < ndim; d++)
        same = shape[d] == info->shape[d];
    return same;
}

/* Whether only the number of classes differs, which is the first dimension. */
static bool other_classes(const struct tensor_spec *want, const struct tensor_info *info)
{
    bool same = starts(want->name, "classifier.") && want->ndim == info->ndim;
    for (int d = 1; same && d < want->ndim; d++)
        same = want->shape[d] == info->shape[d];
    return same;
}

/* GPT-2's linears are transformers' Conv1D, [in, out]. Other tools write [out, in]. The first
 * linear is never square, so its shape tells how all of them lie. */
static bool linears_turned(const struct weights *weights, const struct model *model)
{
    struct weights_tensor found;
    return model->family == FAMILY_GPT &&
           hf_find(weights, model, "transformer.h.0.attn.c_attn.weight", &found) &&
           found.info.ndim == 2 && found.info.shape[0] == 3 * (int64_t)model->hidden &&
           found.info.shape[1] == model->hidden;
}

static bool is_linear(const char *name)
{
    return strstr(name, ".c_attn.weight") || strstr(name, ".c_proj.weight") ||
           strstr(name, ".c_fc.weight");
}

/* Refuse a file with more layers than the model. */
static enum status check_layers(const struct weights *weights, const char *path,
                                const struct model *model, struct err *err)
{
    const char *form = model->family == FAMILY_GPT     ? "transformer.h.%d.attn.c_attn.weight"
                       : model->family == FAMILY_LLAMA ? "model.layers.%d.self_attn.o_proj.weight"
                       : model->family == FAMILY_VIT
                           ? "vit.encoder.layer.%d.attention.output.dense.weight"
                           : "bert.encoder.layer.%d.attention.output.dense.weight";
    char whole[NAME_BYTES];
    struct weights_tensor found;
    snprintf(whole, sizeof whole, form, model->num_layers);
    if (hf_find(weights, model, whole, &found))
        return err_set(err, ERR_INPUT, "'%s' holds more than the %d layers of model '%s': '%s'",
                       path, model->num_layers, model->name, found.name);
    return OK;
}

/* Refuse a file in which one tensor of ours has two values. Only heads that predict tokens share. */
static enum status check_shared(const struct weights *weights, const char *path, int shared,
                                struct err *err)
{
    struct weights_tensor a, b;
    float *values = NULL;
    enum status rc = OK;
    if (!weights_find(weights, shared_names[shared].other, &b) ||
        !find_own(weights, shared_names[shared].ours, &a))
        return OK;
    bool same = same_shape(a.info.ndim, a.info.shape, &b.info);
    if (same) {
        values = malloc((size_t)a.info.num_elems * 2 * sizeof *values + 1);
        if (!values)
            return err_nomem(err);
        rc = safetensors_read(a.file, a.name, &a.info, values, err);
        THEN(safetensors_read(b.file, b.name, &b.info, values + a.info.num_elems, err));
        same = rc == OK && memcmp(values, values + a.info.num_elems,
                                  (size_t)a.info.num_elems * sizeof *values) == 0;
    }
    free(values);
    if (rc == OK && !same)
        rc = err_set(err, ERR_INPUT, "'%s': '%s' differs from '%s', they must be tied", path,
                     b.name, a.name);
    return rc;
}

/* Whether a tensor of the model has this name, with or without the base model's prefix. */
static bool is_ours(const void *ctx, const char *name)
{
    const struct model *model = ctx;
    struct arch arch;
    bool ours = false;
    if (arch_init(model, &arch, NULL) != OK)
        return false;
    for (int i = 0; !ours && i < model->num_items; i++) {
        struct item_spec spec;
        arch_item(model, &arch, i, &spec);
        for (int t = 0; !ours && t < spec.num_tensors; t++)
            ours = strcmp(spec.tensors[t].name, name) == 0 ||
                   strcmp(strchr(spec.tensors[t].name, '.') + 1, name) == 0;
    }
    return ours;
}

/* Check one tensor: it can be loaded, it starts fresh (*fresh), or it is an error. */
static enum status check_tensor(const struct weights *weights, const char *path,
                                const struct model *model, const struct tensor_spec *want,
                                bool turned, bool fresh_head, bool *fresh, struct err *err)
{
    char wanted[96], got[96];
    struct weights_tensor found;
    int64_t shape[4];
    *fresh = false;
    if (!hf_find(weights, model, want->name, &found)) {
        *fresh = fresh_head && is_head(want->name);
        if (*fresh)
            return OK;
        const char *near = weights_nearest(weights, want->name, is_ours, model);
        err_set(err, ERR_INPUT, "'%s' has no tensor '%s'", path, want->name);
        if (near)
            err_hint(err, "the nearest name is '%.100s'", near);
        return ERR_INPUT;
    }
    memcpy(shape, want->shape, sizeof shape);
    if (turned && is_linear(want->name)) {
        shape[0] = want->shape[1];
        shape[1] = want->shape[0];
    }
    if (same_shape(want->ndim, shape, &found.info))
        return OK;
    *fresh = fresh_head && other_classes(want, &found.info);
    if (*fresh)
        return OK;
    tensor_shape_text(want->ndim, shape, wanted, sizeof wanted);
    tensor_shape_text(found.info.ndim, found.info.shape, got, sizeof got);
    return err_set(err, ERR_INPUT, "'%s': tensor '%s' has shape [%s], the model wants [%s]", path,
                   found.name, got, wanted);
}

enum status hf_check(const struct weights *weights, const char *path, const struct model *model,
                     bool fresh_head, struct hf_import *import, struct err *err)
{
    struct hf_import got = {0};
    struct arch arch;
    char first[NAME_BYTES] = "";
    enum status rc = arch_init(model, &arch, err);
    bool turned = rc == OK && linears_turned(weights, model);
    THEN(check_layers(weights, path, model, err));
    for (int i = 0; rc == OK && i < model->num_items; i++) {
        struct item_spec spec;
        arch_item(model, &arch, i, &spec);
        for (int t = 0; rc == OK && t < spec.num_tensors; t++) {
            bool fresh;
            if (spec.tied && spec.tensors[t].block == HEAD_TABLE)
                continue; /* checked with the embedding */
            if (spec.tensors[t].block >= ADAPTERS)
                continue; /* the base's weights have no adapters, these start fresh */
            rc = check_tensor(weights, path, model, &spec.tensors[t], turned, fresh_head, &fresh,
                              err);
            if (fresh && got.num_fresh++ == 0)
                snprintf(first, sizeof first, "%s", spec.tensors[t].name);
            got.num_loaded += !fresh;
        }
    }
    for (int i = 0; rc == OK && shares(model) && i < NUM_SHARED; i++)
        rc = check_shared(weights, path, i, err);
    if (got.num_fresh)
        snprintf(got.note, sizeof got.note,
                 "%d of %d tensors keep their initial values, because the file has none of their "
                 "name and shape: %s%s",
                 got.num_fresh, got.num_fresh + got.num_loaded, first,
                 got.num_fresh > 1 ? ", ..." : "");
    if (rc == OK && import)
        *import = got;
    return rc;
}

/* --- loading ---------------------------------------------------------------------------------- */

static void turn(const float *from, float *to, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
}

/* order: of classes, or NULL. */
static enum status load_param(const struct weights *weights, const struct model *model,
                              struct param *param, bool turned, const int *order,
                              struct backend *be, struct err *err)
{
    struct weights_tensor found;
    const struct tensor_info *info = &found.info;
    float *values, *from;
    enum status rc;
    /* A run that begins with a frozen prefix: its head's own table begins as the file's shared one. */
    const char *const name = model->tied_head && param->began_as ? param->began_as : param->name;
    if (!hf_find(weights, model, name, &found) || info->num_elems != param->num_elems)
        return OK; /* it starts fresh, as hf_check() has reported */
    values = malloc((size_t)info->num_elems * 2 * sizeof *values + 1);
    if (!values)
        return err_nomem(err);
    from = values;
    rc = safetensors_read(found.file, found.name, info, values, err);
    if (rc == OK && turned && is_linear(param->name)) {
        from = values + info->num_elems;
        turn(values, from, info->shape[0], info->shape[1]);
    } else if (rc == OK && order && hf_is_of_classes(model, param->name)) {
        from = values + info->num_elems;
        hf_order_rows(values, from, model->classes, info->num_elems / model->classes, order);
    }
    if (rc == OK) {
        be->copy_in(be, param->weight, from, info->num_elems * (int64_t)sizeof *from);
        rc = be->sync(be, err);
    }
    free(values);
    return rc;
}

/* Check the config.json beside the weights, if there is one. */
static enum status check_config(const struct weights *weights, const struct model *model,
                                struct err *err)
{
    struct json *config = NULL;
    char *path = NULL;
    enum status rc = OK;
    if (asprintf(&path, "%s/config.json", weights_folder(weights)) < 0)
        return err_nomem(err);
    if (access(path, F_OK) == 0)
        rc = json_read_file(path, &config, err);
    if (rc == OK && json_type(config) == JSON_OBJECT)
        rc = model_config_check(config, path, model, arch_eps(model), err);
    json_free(config);
    free(path);
    return rc;
}

enum status hf_load(const char *path, const struct model *model, const struct class_names *classes,
                    const struct stage_list *list, bool fresh_head, struct hf_import *import,
                    struct err *err)
{
    struct hf_import got = {0};
    struct weights *weights = NULL;
    int *order = NULL;
    enum status rc = weights_open(path, &weights, err);
    bool turned = false;
    THEN(check_config(weights, model, err));
    THEN(hf_check(weights, path, model, fresh_head, &got, err));
    THEN(hf_class_order(weights_folder(weights), classes, &order, got.classes, sizeof got.classes,
                        err));
    if (rc == OK)
        turned = linears_turned(weights, model);
    for (int s = 0; rc == OK && s < list->num_stages; s++) {
        struct param *params = list->stages[s] ? stage_params(list->stages[s]) : NULL;
        for (int i = 0; rc == OK && params && i < stage_num_params(list->stages[s]); i++)
            rc = load_param(weights, model, &params[i], turned, order, list->backend, err);
        if (rc == OK && params)
            stage_round_weights(list->stages[s]);
    }
    if (rc == OK && import)
        *import = got;
    free(order);
    weights_close(weights);
    return rc;
}
