/* Models from JSON: explicit chains of items, Hugging Face's config.json, and objects with a preset
 * or dims. model_from_json() at the end decides which of them a value is. Read the tables of keys
 * first. */
#include "profiles/job/job_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "profiles/job/hub_model.h"
#include "profiles/job/job_parts.h"
#include "profiles/job/model_config.h"

/* --- explicit chains -------------------------------------------------------------------------- */

#define ITEM(key, type, member, help) MEMBER(item, key, type, member, help)
/* clang-format off */
static const struct member item_fields[] = {
    ITEM("name", TEXT, name, "of the item [item and its index]"),
    MEMBER(item, "layer", INT, layer, "owning layer, ascending; -1: before the first [its index]", .min = -1, .max = MODEL_LAYERS_MAX),
    ITEM("params", INT, params, "trainable parameters [0]"),
    ITEM("fwd_flops", INT, fwd_flops, "operations of a forward, for costs by device [0]"),
    ITEM("act_bytes", BYTES, act_bytes, "leaves the item [0]"),
    ITEM("stash_bytes", BYTES, stash_bytes, "kept for backward [act_bytes]"),
    ITEM("work_bytes", BYTES, work_bytes, "transient workspace of a pass [0]"),
    ITEM("bytes", BYTES, moved_bytes, "to and from memory in a forward [act and stash]"),
    MEMBER_OWN("times", "in place of the times below, by kind of device: {KIND: [[microbatch, fwd_ns, bwd_input_ns, bwd_weight_ns], ...]}"),
    ITEM("fwd_ns", NS, fwd_ns, "forward [0]"),
    ITEM("bwd_input_ns", NS, bwd_input_ns, "backward for the input [0]"),
    ITEM("bwd_weight_ns", NS, bwd_weight_ns, "backward for the weights [0]"),
    ITEM("bwd_rest_ns", NS, bwd_rest_ns, "replaces bwd_input_ns after a frozen prefix, if no item needs the input's gradient [0]"),
    ITEM("fwd_stash_ns", NS, fwd_stash_ns, "part of fwd_ns that frozen items save, because they keep no stash [0]"),
    ITEM("update_ns", NS, update_ns, "optimizer step [0]"),
};
static const struct member skip_fields[] = {
    MEMBER(skip_edge, "from", INT, from, "index of the item that hands the tensor on", .max = INT32_MAX),
    MEMBER(skip_edge, "to", INT, to, "index of the item that takes it", .max = INT32_MAX),
    MEMBER(skip_edge, "bytes", BYTES, bytes, "size of the tensor"),
};
/* clang-format on */
enum {
    NUM_ITEM_FIELDS = sizeof item_fields / sizeof *item_fields,
    NUM_SKIP_FIELDS = sizeof skip_fields / sizeof *skip_fields
};

struct chain_head {
    char name[64];
    char family[16];
    bool per_microbatch;
    int layers;
    int weight_bytes, grad_bytes; /* 0: by the dtype */
    int64_t op_overhead_ns;
    double split_backward;
};
/* clang-format off */
static const struct member chain_fields[] = {
    MEMBER(chain_head, "layers", INT, layers,
        "that can freeze; items of later ones are the tail [the last item's layer + 1]", .min = 1, .max = MODEL_LAYERS_MAX),
    MEMBER(chain_head, "name", TEXT, name, "of the model, for people [explicit]"),
    MEMBER(chain_head, "family", TEXT, family, "explicit; not needed where there are items"),
    MEMBER(chain_head, "per_microbatch", BOOL, per_microbatch, "sizes and times are per micro-batch, not per sample [false]"),
    MEMBER(chain_head, "weight_bytes_per_param", INT, weight_bytes, "of a weight on a device [4, with bf16 6]", .min = 1, .max = 64),
    MEMBER(chain_head, "grad_bytes_per_param", INT, grad_bytes, "of a gradient [4]", .min = 1, .max = 64),
    MEMBER(chain_head, "op_overhead_ns", NS, op_overhead_ns, "the framework's own time per op of a schedule [0]"),
    MEMBER(chain_head, "split_backward", REAL, split_backward,
        "a stage's backward in two ops takes this share longer than in one [0]", .max = 10),
    MEMBER_OWN("items", "the chain: an array of objects"),
    MEMBER_OWN("skips", "tensors that pass by items: an array of objects"),
};
/* clang-format on */
enum { NUM_CHAIN_FIELDS = sizeof chain_fields / sizeof *chain_fields };

static enum status array_rows(const struct json *object, const char *key, const char *file,
                              const char *prefix, bool wanted, int *count, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = prefix};
    const struct json *array = json_get(object, key);
    *count = 0;
    if (!array && !wanted)
        return OK;
    if (json_type(array) != JSON_ARRAY)
        return fields_refuse(&source, key, "an array", array, err);
    *count = json_count(array);
    return OK;
}

static bool read_ns(const struct json *json, int64_t *ns)
{
    return json_string(json) ? parse_ns(json_string(json), "time", ns, NULL) == OK
                             : json_int64(json, ns);
}

/* Read the table of one kind into the item. */
static enum status read_table(const struct json *table, const struct fields_source *source,
                              struct model *model, int item, struct err *err)
{
    const char *kind = json_key(table);
    const int n = json_type(table) == JSON_ARRAY ? json_count(table) : 0;
    struct time_row *rows = calloc((size_t)n + 1, sizeof *rows);
    enum status rc = rows ? OK : err_nomem(err);
    int i = 0;
    if (rc == OK && json_type(table) != JSON_ARRAY)
        rc = fields_refuse(source, kind,
                           "an array of [microbatch, fwd_ns, bwd_input_ns, "
                           "bwd_weight_ns]",
                           table, err);
    for (const struct json *m = json_first(table); rc == OK && m; m = json_next(m), i++)
        if (json_type(m) != JSON_ARRAY || json_count(m) != 4 ||
            !json_int64(json_at(m, 0), &rows[i].samples) ||
            !read_ns(json_at(m, 1), &rows[i].fwd_ns) ||
            !read_ns(json_at(m, 2), &rows[i].bwd_input_ns) ||
            !read_ns(json_at(m, 3), &rows[i].bwd_weight_ns))
            rc = fields_refuse(source, kind,
                               "rows [microbatch, fwd_ns, bwd_input_ns, "
                               "bwd_weight_ns]",
                               m, err);
    THEN(model_add_times(model, item, kind, rows, n, err));
    free(rows);
    return rc;
}

static enum status read_times(const struct json *items, const char *file, const char *prefix,
                              struct model *model, struct err *err)
{
    enum status rc = OK;
    int i = 0;
    for (const struct json *m = json_first(items); m && rc == OK; m = json_next(m), i++) {
        const struct json *times = json_get(m, "times");
        char at[128];
        snprintf(at, sizeof at, "%s%sitems[%d].times", prefix, *prefix ? "." : "", i);
        const struct fields_source source = {.file = file, .prefix = at};
        if (times && (json_type(times) != JSON_OBJECT || json_count(times) == 0))
            return err_set(err, ERR_INPUT, "%s: %s must be an object with a kind at least", file,
                           at);
        for (const struct json *t = json_first(times); times && t && rc == OK; t = json_next(t))
            rc = read_table(t, &source, model, i, err);
    }
    return rc;
}

/* Read the rows of "items" or "skips" into an array of rows of `size` bytes. */
static enum status read_chain_rows(const struct json *object, const char *key, const char *file,
                                   const char *prefix, const struct member *fields, int num_fields,
                                   void *rows, size_t size, struct err *err)
{
    int i = 0;
    enum status rc = OK;
    for (struct json *m = json_first(json_get(object, key)); rc == OK && m; m = json_next(m), i++) {
        char at[128];
        snprintf(at, sizeof at, "%s%s%s[%d]", prefix, *prefix ? "." : "", key, i);
        const struct fields_source here = {.file = file, .prefix = at};
        rc = fields_read(fields, num_fields, m, &here, (char *)rows + (size_t)i * size, err);
    }
    return rc;
}

static enum status read_chain(const struct json *object, const char *file, const char *prefix,
                              struct model *model, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = prefix};
    struct chain_head head = {.name = "explicit"};
    struct item *items = NULL;
    struct skip_edge *skips = NULL;
    int num_items, num_skips;
    enum status rc = fields_read(chain_fields, NUM_CHAIN_FIELDS, object, &source, &head, err);
    THEN(array_rows(object, "items", file, prefix, true, &num_items, err));
    THEN(array_rows(object, "skips", file, prefix, false, &num_skips, err));
    if (rc != OK)
        return rc;
    items = calloc((size_t)num_items + 1, sizeof *items);
    skips = calloc((size_t)num_skips + 1, sizeof *skips);
    if (!items || !skips) {
        rc = err_nomem(err);
        goto out;
    }
    for (int i = 0; i < num_items; i++) {
        items[i] = (struct item){.kind = ITEM_OPAQUE, .layer = i, .stash_bytes = -1};
        snprintf(items[i].name, sizeof items[i].name, "item%d", i);
    }
    rc = read_chain_rows(object, "items", file, prefix, item_fields, NUM_ITEM_FIELDS, items,
                         sizeof *items, err);
    THEN(read_chain_rows(object, "skips", file, prefix, skip_fields, NUM_SKIP_FIELDS, skips,
                         sizeof *skips, err));
    if (rc != OK)
        goto out;
    for (int i = 0; i < num_items; i++)
        if (items[i].stash_bytes < 0)
            items[i].stash_bytes = items[i].act_bytes;
    rc = model_explicit(head.name, items, num_items, skips, num_skips, head.per_microbatch, model,
                        err);
    if (rc == OK) {
        model_set_bytes(model, head.weight_bytes, head.grad_bytes);
        model->op_overhead_ns = head.op_overhead_ns;
        model->split_backward = head.split_backward;
        rc = read_times(json_get(object, "items"), file, prefix, model, err);
        if (rc != OK)
            model_clear(model);
    }
    if (rc == OK && head.layers > model->num_layers) {
        rc = err_set(err, ERR_INPUT, "%s: model '%s' has items of %d layers, layers is %d", file,
                     head.name, model->num_layers, head.layers);
        model_clear(model);
    } else if (rc == OK && head.layers > 0) {
        model->num_layers = head.layers;
    }
out:
    free(items);
    free(skips);
    return rc;
}

/* --- any MODEL -------------------------------------------------------------------------------- */

/* Write a JSON value as the text of a modifier: 10 -> "10", "qa" -> "qa". */
static enum status modifier_text(const struct json *value, char *buf, size_t size, struct err *err)
{
    char *text = NULL;
    const char *string = json_string(value);
    enum status rc = string ? OK : json_text(value, false, &text, err);
    if (rc == OK)
        snprintf(buf, size, "%s", string ? string : text);
    free(text);
    return rc;
}

static enum status prefix_error(const char *file, const char *key, enum status rc,
                                const struct err *inner, struct err *err)
{
    if (rc != OK) {
        err_set(err, rc, "%s: %s: %s", file, key, inner->msg);
        if (*inner->hint)
            err_hint(err, "%s", inner->hint);
    }
    return rc;
}

/* Read {"family": "uniform", "layers": 8, "fwd": "1ms"}. The keys are those of the command line. */
static enum status read_uniform(const struct json *object, struct model *model, struct err *err)
{
    char text[512] = "uniform", value[96];
    size_t used = strlen(text);
    char separator = ':';
    for (struct json *m = json_first(object); m; m = json_next(m)) {
        if (strcmp(json_key(m), "family") == 0 || strcmp(json_key(m), "preset") == 0 ||
            strcmp(json_key(m), "name") == 0)
            continue;
        enum status rc = modifier_text(m, value, sizeof value, err);
        if (rc != OK)
            return rc;
        int wrote =
            snprintf(text + used, sizeof text - used, "%c%s=%s", separator, json_key(m), value);
        if (wrote < 0 || (size_t)wrote >= sizeof text - used)
            return err_set(err, ERR_INPUT, "model 'uniform': too many or too long keys");
        used += (size_t)wrote;
        separator = ',';
    }
    return model_parse(text, model, err);
}

static enum status read_family(const struct json *object, const char *file, const char *key,
                               int elem_bytes, struct model *model, struct err *err);

/* The preset is a MODEL text with modifiers: "vit-b16:classes=10", "uniform:...". Read it as an object
 * with the modifiers as keys; keys that the object itself has count more. */
static enum status read_modified(const struct json *object, const char *preset, const char *file,
                                 const char *key, int elem_bytes, struct model *model,
                                 struct err *err)
{
    char head[64], word[32], value[64];
    struct err inner = {0};
    snprintf(head, sizeof head, "%.*s", (int)strcspn(preset, ":,"), preset);
    const char *const start = strpbrk(preset, ":,") + 1;
    struct json *copy = json_object_new();
    json_add_string(copy, "preset", head);
    enum status rc = OK;
    for (const char *list = start; rc == OK && *list;) {
        rc = model_next_modifier(start, &list, head, word, value, &inner);
        if (rc == OK && (strcmp(word, "preset") == 0 || strcmp(word, "family") == 0))
            rc = err_set(&inner, ERR_INPUT, "model '%s' has no key '%s'", head, word);
        if (rc == OK)
            json_add_string(copy, word, value);
    }
    for (struct json *m = json_first(object); m && rc == OK; m = json_next(m))
        if (strcmp(json_key(m), "preset") != 0)
            json_add_copy(copy, json_key(m), m);
    THEN(json_check(copy, &inner));
    rc = rc == OK ? read_family(copy, file, key, elem_bytes, model, err)
                  : prefix_error(file, key, rc, &inner, err);
    json_free(copy);
    return rc;
}

/* Read {"family": ..., "preset": ..., dims}. */
static enum status read_family(const struct json *object, const char *file, const char *key,
                               int elem_bytes, struct model *model, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = key};
    const struct json *family_json = json_get(object, "family");
    const struct json *preset_json = json_get(object, "preset");
    const char *family = json_string(family_json), *preset = json_string(preset_json);
    struct err inner = {0};
    struct model_spec spec;
    enum status rc;
    int f = -1;
    for (int i = 0; family && i < FAMILY_COUNT; i++)
        if (strcmp(model_family_name((enum model_family)i), family) == 0)
            f = i;
    if (family_json && f < 0)
        return fields_refuse(&source, "family", "vit|bert|gpt|llama|uniform|explicit", family_json,
                             err);
    if (preset_json && !preset)
        return fields_refuse(&source, "preset", "a text", preset_json, err);
    if (f == FAMILY_UNIFORM || (preset && strcmp(preset, "uniform") == 0))
        return prefix_error(file, key, read_uniform(object, model, &inner), &inner, err);
    if (preset && strpbrk(preset, ":,"))
        return read_modified(object, preset, file, key, elem_bytes, model, err);
    if (!preset && f < 0)
        return err_set(err, ERR_INPUT, "%s: %s must have a preset, a family or items", file, key);
    rc = model_preset(preset ? preset : model_family_traits((enum model_family)f)->first_preset,
                      &spec, &inner);
    if (rc != OK)
        return prefix_error(file, key, rc, &inner, err);
    if (f >= 0 && (int)spec.family != f)
        return err_set(err, ERR_INPUT, "%s: %s.family must be '%s' as preset '%s', got '%s'", file,
                       key, model_family_name(spec.family), preset, family);
    if (!preset)
        snprintf(spec.name, sizeof spec.name, "%s", family);
    for (struct json *m = json_first(object); m && rc == OK; m = json_next(m)) {
        char value[96];
        if (strcmp(json_key(m), "family") == 0 || strcmp(json_key(m), "preset") == 0)
            continue;
        rc = modifier_text(m, value, sizeof value, &inner);
        if (rc == OK && strcmp(json_key(m), "name") == 0)
            snprintf(spec.name, sizeof spec.name, "%.63s", value);
        else if (rc == OK)
            rc = model_spec_set(&spec, json_key(m), value, &inner);
    }
    if (elem_bytes)
        spec.elem_bytes = elem_bytes;
    THEN(model_build(&spec, model, &inner));
    return prefix_error(file, key, rc, &inner, err);
}

/* Read a JSON file as Python writes it: of its numbers that JSON has not, Infinity is null and NaN 0. */
static enum status read_python_json(const char *path, struct json **root, struct err *err)
{
    static const char *const words[][2] = {
        {"-Infinity", "null     "},
        {"Infinity",  "null    " },
        {"NaN",       "0  "      },
    };
    char *text = NULL;
    bool quoted = false;
    enum status rc = file_read_text(path, &text, err);
    for (char *c = text; rc == OK && *c; c++) {
        quoted = quoted != (*c == '"');
        if (quoted && *c == '\\' && c[1])
            c++;
        for (size_t i = 0; i < sizeof words / sizeof *words && !quoted; i++)
            if (strncmp(c, words[i][0], strlen(words[i][0])) == 0)
                memcpy(c, words[i][1], strlen(words[i][1]));
    }
    THEN(json_parse(text, path, root, err));
    free(text);
    return rc;
}

/* Load a file, and for a configuration of transformers the tokens of a sample, which it does not
 * hold. seq: text or number, NULL: not given. */
static enum status load_model_file(const char *path, const struct json *seq, int elem_bytes,
                                   struct model *model, struct err *err)
{
    const struct fields_source source = {.file = path, .prefix = ""};
    struct json *root = NULL;
    int64_t length = 0;
    enum status rc = read_python_json(path, &root, err);
    if (rc == OK && json_type(root) != JSON_OBJECT)
        rc = err_set(err, ERR_INPUT, "%s: must be an object, got %s", path,
                     json_type_name(json_type(root)));
    if (rc == OK && seq) {
        struct json *object = json_get(root, "text_config") ? json_get(root, "text_config") : root;
        const char *text = json_string(seq);
        if (text ? parse_int(text, "seq", 1, MODEL_DIM_MAX, &length, NULL) != OK
                 : !json_int64(seq, &length) || length < 1 || length > MODEL_DIM_MAX)
            rc = fields_refuse(&source, "seq", "a number of tokens", seq, err);
        else if (!json_get(root, "model_type"))
            rc = err_set(err, ERR_INPUT, "%s: seq may stand next to a config.json only", path);
        else if (json_get(object, "seq"))
            rc = err_set(err, ERR_INPUT, "%s: has a seq of its own", path);
        else
            json_add_int(object, "seq", length);
        THEN(json_check(root, err));
    }
    THEN(model_from_json(root, &source, elem_bytes, model, err));
    json_free(root);
    return rc;
}

/* Whether a MODEL text is a file: its name, or the id of a model of the hub. */
static bool names_file(const char *text)
{
    return path_is_json(text) || hub_is_id(text, strlen(text));
}

/* The path of such a text, for the caller to free. */
static enum status model_path(const char *dir, const char *text, char **path, struct err *err)
{
    if (!path_is_json(text))
        return hub_config_path(text, path, err);
    *path = path_join(dir, text);
    return *path ? OK : err_nomem(err);
}

/* Length of the file's name in "FILE.json:seq=N" or "ORG/NAME:seq=N"; 0: the text is no such name. */
static size_t config_with_seq(const char *text)
{
    const char *colon = strrchr(text, ':');
    if (!colon || strncmp(colon, ":seq=", 5) != 0)
        return 0;
    const size_t length = (size_t)(colon - text);
    const bool found =
        (length > 5 && strncmp(colon - 5, ".json", 5) == 0) || hub_is_id(text, length);
    return found ? length : 0;
}

/* Load the file of {"preset": "FILE.json", "seq": N}. */
static enum status load_preset_file(const struct json *object, const struct fields_source *source,
                                    int elem_bytes, struct model *model, struct err *err)
{
    for (const struct json *m = json_first(object); m; m = json_next(m))
        if (strcmp(json_key(m), "preset") != 0 && strcmp(json_key(m), "seq") != 0)
            return err_set(err, ERR_INPUT,
                           "%s: %s.%s: only seq may stand next to the name of a file", source->file,
                           source->prefix, json_key(m));
    char *path = NULL;
    enum status rc = model_path(source->dir, json_string(json_get(object, "preset")), &path, err);
    THEN(load_model_file(path, json_get(object, "seq"), elem_bytes, model, err));
    free(path);
    return rc;
}

/* Load "FILE.json:seq=N"; `length` bytes of the text are the file's name. */
static enum status load_named_file(const char *text, size_t length,
                                   const struct fields_source *source, int elem_bytes,
                                   struct model *model, struct err *err)
{
    char *name = strndup(text, length);
    struct json *object = json_object_new();
    enum status rc = name ? OK : err_nomem(err);
    if (rc == OK) {
        json_add_string(object, "preset", name);
        json_add_string(object, "seq", text + length + strlen(":seq="));
        rc = json_check(object, err);
    }
    THEN(load_preset_file(object, source, elem_bytes, model, err));
    json_free(object);
    free(name);
    return rc;
}

enum status model_from_json(const struct json *value, const struct fields_source *source,
                            int elem_bytes, struct model *model, struct err *err)
{
    const char *file = source->file, *key = source->prefix;
    const char *text = json_string(value);
    enum status rc;
    if (text && names_file(text)) {
        char *path = NULL;
        rc = model_path(source->dir, text, &path, err);
        THEN(load_model_file(path, NULL, elem_bytes, model, err));
        free(path);
        return rc;
    }
    if (text && config_with_seq(text))
        return load_named_file(text, config_with_seq(text), source, elem_bytes, model, err);
    if (text) {
        /* A text is short for {"preset": text}. */
        struct json *object = json_object_new();
        struct err inner = {0};
        json_add_string(object, "preset", text);
        rc = json_check(object, err);
        if (rc == OK && strncmp(text, "uniform", 7) == 0)
            rc = prefix_error(file, key, model_parse(text, model, &inner), &inner, err);
        else if (rc == OK)
            rc = read_family(object, file, key, elem_bytes, model, err);
        json_free(object);
        return rc;
    }
    if (json_type(value) != JSON_OBJECT)
        return fields_refuse(source, "", "a MODEL text or an object", value, err);
    if (json_get(value, "_class_name"))
        return err_set(err, ERR_INPUT, "%s: the '%.60s' of diffusers is not modelled", file,
                       json_string(json_get(value, "_class_name"))
                           ? json_string(json_get(value, "_class_name"))
                           : "model");
    if (json_get(value, "model_type"))
        return model_from_config(value, file, elem_bytes, model, err);
    const char *family = json_string(json_get(value, "family"));
    const char *preset = json_string(json_get(value, "preset"));
    if (preset && names_file(preset))
        return load_preset_file(value, source, elem_bytes, model, err);
    if (json_get(value, "items") || (family && strcmp(family, "explicit") == 0))
        return read_chain(value, file, key, model, err);
    return read_family(value, file, *key ? key : "model", elem_bytes, model, err);
}

enum status model_load(const char *text, struct model *model, struct err *err)
{
    const struct fields_source source = {.file = text, .prefix = ""};
    if (config_with_seq(text))
        return load_named_file(text, config_with_seq(text), &source, 0, model, err);
    if (!names_file(text))
        return model_parse(text, model, err);
    char *path = NULL;
    enum status rc = model_path(NULL, text, &path, err);
    THEN(load_model_file(path, NULL, 0, model, err));
    free(path);
    return rc;
}

void model_keys_each(enum key_table table, key_visitor *visit, void *ctx)
{
    if (table == KEYS_CHAIN)
        fields_each(chain_fields, NUM_CHAIN_FIELDS, visit, ctx);
    else if (table == KEYS_ITEM)
        fields_each(item_fields, NUM_ITEM_FIELDS, visit, ctx);
    else
        fields_each(skip_fields, NUM_SKIP_FIELDS, visit, ctx);
}
