#include "exec/weights/adapter_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/weights/safetensors.h"
#include "exec/stage/arch.h"
#include "partition/base/safe_text.h"
#include "profiles/json/json.h"

#define CONFIG_FILE "adapter_config.json"
#define WEIGHTS_FILE "adapter_model.safetensors"

void adapter_file_name(const char *ours, bool later, char name[ADAPTER_NAME_BYTES])
{
    static const char vit[] = "vit.encoder.layer.";
    const char *lora = strstr(ours, ".lora_");
    if (later && lora && strncmp(ours, vit, sizeof vit - 1) == 0) {
        const char *number = ours + sizeof vit - 1, *dot = strchr(number, '.');
        char module[ADAPTER_NAME_BYTES];
        snprintf(module, sizeof module, "%.*s", (int)(lora - dot - 1), dot + 1);
        snprintf(name, ADAPTER_NAME_BYTES, "base_model.model.vit.layers.%.*s.%.60s%.40s",
                 (int)(dot - number), number, lora_later_name(module), lora);
        return;
    }
    snprintf(name, ADAPTER_NAME_BYTES, "base_model.model.%.120s", ours);
}

static enum status path_in(const char *dir, const char *name, char **path, struct err *err)
{
    return asprintf(path, "%s/%s", dir, name) < 0 ? (*path = NULL, err_nomem(err)) : OK;
}

enum status adapter_files_refuse(const char *path, struct err *err)
{
    char *config = NULL;
    enum status rc = path_in(path, CONFIG_FILE, &config, err);
    if (rc == OK && access(config, F_OK) == 0) {
        rc = err_set(err, ERR_INPUT, "'%s' holds adapters, not the weights that they change", path);
        err_hint(err, "name the base's folder, and --adapter %s", SHELL_PATH(path));
    }
    free(config);
    return rc;
}

/* --- adapter_config.json ---------------------------------------------------------------------- */

/* Whether a value asks for nothing: absent, null, false, an empty object or list, "none". */
static bool is_nothing(const struct json *value)
{
    const char *text = json_string(value);
    switch (value ? json_type(value) : JSON_NULL) {
    case JSON_NULL:
        return true;
    case JSON_BOOL:
        return !json_true(value);
    case JSON_ARRAY:
    case JSON_OBJECT:
        return json_count(value) == 0;
    case JSON_STRING:
        return strcmp(text, "none") == 0;
    case JSON_NUMBER:
        break;
    }
    return false;
}

/* The names of a list, joined by commas. */
static enum status read_targets(const struct json *list, const char *path, struct lora_ask *ask,
                                struct err *err)
{
    size_t n = 0;
    for (const struct json *v = json_type(list) == JSON_ARRAY ? json_first(list) : NULL; v;
         v = json_next(v)) {
        const char *name = json_string(v);
        if (!name || n + strlen(name) + 2 > sizeof ask->targets)
            return err_set(err, ERR_INPUT,
                           "'%s': target_modules must be names of at most %zu "
                           "characters together",
                           path, sizeof ask->targets - 1);
        n +=
            (size_t)snprintf(ask->targets + n, sizeof ask->targets - n, "%s%s", n ? "," : "", name);
    }
    return n > 0 ? OK
                 : err_set(err, ERR_INPUT,
                           "'%s': target_modules must be a list of names, no pattern", path);
}

/* init_lora_weights that leave the base as it is. The others (pissa, olora, corda, loftq, lora_ga, ...)
 * take their first product away from the base, which only peft's own base then has. */
static bool keeps_base(const struct json *init)
{
    static const char *const names[] = {"gaussian", "eva", "orthogonal", "true", "false"};
    const char *name = json_string(init);
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return !name && (!init || json_type(init) == JSON_BOOL || json_type(init) == JSON_NULL);
}

/* Keys that change nothing in what adapters compute: where they are from, what trained them, and
 * settings of a way to begin. Those of read_config() and keys that ask for nothing apart, any other
 * is refused: peft has new ones in each version. */
static bool is_harmless(const char *key)
{
    static const char *const keys[] = {"peft_type",
                                       "task_type",
                                       "base_model_name_or_path",
                                       "revision",
                                       "auto_mapping",
                                       "peft_version",
                                       "inference_mode",
                                       "lora_dropout",
                                       "r",
                                       "lora_alpha",
                                       "target_modules",
                                       "use_rslora",
                                       "rank_pattern",
                                       "alpha_pattern",
                                       "modules_to_save",
                                       "init_lora_weights",
                                       "megatron_core",
                                       "runtime_config",
                                       "qalora_group_size",
                                       "eva_config",
                                       "loftq_config",
                                       "corda_config",
                                       "fan_in_fan_out",
                                       "ensure_weight_tying",
                                       "bias"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

/* A pattern of ranks or alphas may name the values that all adapters have. */
static enum status check_pattern(const struct json *config, const char *key, double all,
                                 const char *path, struct err *err)
{
    const struct json *pattern = json_get(config, key);
    if (is_nothing(pattern))
        return OK;
    for (const struct json *m = json_type(pattern) == JSON_OBJECT ? json_first(pattern) : NULL; m;
         m = json_next(m))
        if (json_number(m) != all)
            return err_set(err, ERR_INPUT,
                           "'%s': %s asks for another value of '%.60s', and all adapters have one "
                           "here",
                           path, key, json_key(m));
    return json_type(pattern) == JSON_OBJECT
               ? OK
               : err_set(err, ERR_INPUT, "'%s': %s must be an object", path, key);
}

static enum status check_keys(const struct json *config, const char *path, struct err *err)
{
    const char *type = json_string(json_get(config, "peft_type"));
    const struct json *init = json_get(config, "init_lora_weights");
    const char *bias = json_string(json_get(config, "bias"));
    if (json_type(config) != JSON_OBJECT || !type || strcmp(type, "LORA") != 0)
        return err_set(err, ERR_INPUT, "'%s': peft_type must be LORA, got %s", path,
                       type ? type : "none");
    if (!keeps_base(init)) {
        err_set(
            err, ERR_INPUT,
            "'%s': init_lora_weights %.40s changed the weights of the base, which are not these",
            path, json_string(init) ? json_string(init) : "of this kind");
        err_hint(err, "let peft convert it: save_pretrained() with "
                      "path_initial_model_for_weight_conversion");
        return ERR_INPUT;
    }
    for (const struct json *m = json_first(config); m; m = json_next(m))
        if (!is_harmless(json_key(m)) && !is_nothing(m))
            return err_set(err, ERR_INPUT, "'%s': %.60s asks for more than adapters here have",
                           path, json_key(m));
    return !bias || strcmp(bias, "none") == 0
               ? OK
               : err_set(err, ERR_INPUT, "'%s': bias asks for more than adapters here have", path);
}

static enum status read_config(const struct json *config, const char *path, struct lora_ask *ask,
                               struct err *err)
{
    const struct json *saved = json_get(config, "modules_to_save");
    int64_t rank = 0;
    enum status rc = check_keys(config, path, err);
    if (rc != OK)
        return rc;
    if (!json_int64(json_get(config, "r"), &rank) || rank < 1 || rank > INT32_MAX)
        return err_set(err, ERR_INPUT, "'%s': r must be an integer from 1", path);
    ask->rank = (int)rank;
    ask->alpha = json_number(json_get(config, "lora_alpha"));
    if (!(ask->alpha > 0.0) || !isfinite(ask->alpha))
        return err_set(err, ERR_INPUT, "'%s': lora_alpha must be a number above 0", path);
    rc = check_pattern(config, "rank_pattern", (double)rank, path, err);
    THEN(check_pattern(config, "alpha_pattern", ask->alpha, path, err));
    if (rc != OK)
        return rc;
    if (json_true(json_get(config, "use_rslora"))) /* alpha / sqrt(r) */
        ask->alpha *= sqrt((double)rank);
    for (const struct json *m = is_nothing(saved) ? NULL : json_first(saved); m; m = json_next(m)) {
        const char *name = json_string(m);
        if (name && strcmp(name, "score") == 0)
            continue; /* peft lists it beside "classifier" for models of any kind */
        if (!name || (strcmp(name, "classifier") != 0 && strcmp(name, "qa_outputs") != 0))
            return err_set(err, ERR_INPUT,
                           "'%s': modules_to_save may be classifier or qa_outputs, got %s", path,
                           name ? name : "no name");
        ask->head = true;
    }
    return read_targets(json_get(config, "target_modules"), path, ask, err);
}

enum status adapter_files_ask(const char *dir, struct lora_ask *ask, struct err *err)
{
    struct json *config = NULL;
    char *path = NULL;
    *ask = (struct lora_ask){0};
    enum status rc = path_in(dir, CONFIG_FILE, &path, err);
    THEN(json_read_file(path, &config, err));
    THEN(read_config(config, path, ask, err));
    json_free(config);
    free(path);
    return rc;
}

/* --- adapter_model.safetensors ---------------------------------------------------------------- */

static bool is_trained(const struct model *model, int item, const char *name)
{
    return strstr(name, ".lora_") || (model->lora.head && model->items[item].kind == ITEM_HEAD);
}

/* Find our tensor under its name of peft, with modules named as in transformers 4 or 5. */
static bool find(const struct safetensors *file, const char *ours, char name[ADAPTER_NAME_BYTES],
                 struct tensor_info *info)
{
    adapter_file_name(ours, true, name);
    if (safetensors_find(file, name, info))
        return true;
    adapter_file_name(ours, false, name);
    return safetensors_find(file, name, info);
}

/* Whether a tensor of the file is one of the model's. */
static bool is_wanted(const struct model *model, const struct arch *arch, const char *theirs)
{
    for (int i = 0; i < model->num_items; i++) {
        struct item_spec spec;
        arch_item(model, arch, i, &spec);
        for (int t = 0; t < spec.num_tensors; t++)
            for (int later = 0; later < 2; later++) {
                char name[ADAPTER_NAME_BYTES];
                adapter_file_name(spec.tensors[t].name, later, name);
                if (is_trained(model, i, spec.tensors[t].name) && strcmp(name, theirs) == 0)
                    return true;
            }
    }
    return false;
}

static enum status check_tensors(const struct safetensors *file, const struct model *model,
                                 struct err *err)
{
    const char *path = safetensors_path(file);
    struct arch arch;
    enum status rc = arch_init(model, &arch, err);
    for (int i = 0; rc == OK && i < model->num_items; i++) {
        struct item_spec spec;
        arch_item(model, &arch, i, &spec);
        for (int t = 0; rc == OK && t < spec.num_tensors; t++) {
            const struct tensor_spec *want = &spec.tensors[t];
            char name[ADAPTER_NAME_BYTES], wanted[96], got[96];
            struct tensor_info info;
            if (!is_trained(model, i, want->name))
                continue;
            if (!find(file, want->name, name, &info)) {
                rc = err_set(err, ERR_INPUT, "'%s' has no tensor '%s'", path, name);
            } else if (info.ndim != want->ndim ||
                       memcmp(info.shape, want->shape, (size_t)want->ndim * sizeof *want->shape) !=
                           0) {
                tensor_shape_text(want->ndim, want->shape, wanted, sizeof wanted);
                tensor_shape_text(info.ndim, info.shape, got, sizeof got);
                rc = err_set(err, ERR_INPUT,
                             "'%s': tensor '%s' has shape [%s], the model wants [%s]", path, name,
                             got, wanted);
            }
        }
    }
    for (int i = 0; rc == OK && i < safetensors_count(file); i++)
        if (strcmp(safetensors_name(file, i), "__metadata__") != 0 &&
            !is_wanted(model, &arch, safetensors_name(file, i)))
            rc = err_set(err, ERR_INPUT, "'%s': the model has no place for tensor '%.100s'", path,
                         safetensors_name(file, i));
    return rc;
}

/* order: of the rows of a head of classes, or NULL. */
static enum status load_param(const struct safetensors *file, const struct param *param,
                              const struct model *model, const int *order, struct backend *be,
                              struct err *err)
{
    char name[ADAPTER_NAME_BYTES];
    struct tensor_info info;
    float *values = malloc((size_t)param->num_elems * 2 * sizeof *values + 1), *from = values;
    enum status rc = values ? OK : err_nomem(err);
    find(file, param->name, name, &info);
    THEN(safetensors_read(file, name, &info, values, err));
    if (rc == OK && order && hf_is_of_classes(model, param->name)) {
        from = values + param->num_elems;
        hf_order_rows(values, from, model->classes, param->num_elems / model->classes, order);
    }
    if (rc == OK) {
        be->copy_in(be, param->weight, from, param->num_elems * (int64_t)sizeof *values);
        rc = be->sync(be, err);
    }
    free(values);
    return rc;
}

enum status adapter_files_load(const char *dir, const char *base, const struct class_names *classes,
                               const struct model *model, const struct stage_list *list,
                               struct err *err)
{
    struct safetensors *file = NULL;
    char *path = NULL, note[8];
    int *order = NULL;
    enum status rc = path_in(dir, WEIGHTS_FILE, &path, err);
    THEN(safetensors_open(path, &file, err));
    THEN(check_tensors(file, model, err));
    THEN(hf_class_order(base, classes, &order, note, sizeof note, err));
    for (int s = 0; rc == OK && s < list->num_stages; s++) {
        struct param *params = list->stages[s] ? stage_params(list->stages[s]) : NULL;
        for (int i = 0; rc == OK && params && i < stage_num_params(list->stages[s]); i++)
            if (is_trained(model, params[i].item, params[i].name))
                rc = load_param(file, &params[i], model, order, list->backend, err);
        if (rc == OK && params)
            stage_round_weights(list->stages[s]);
    }
    safetensors_close(file);
    free(order);
    free(path);
    return rc;
}
