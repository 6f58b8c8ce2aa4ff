/* The presets of models, and the parser of MODEL texts with their modifiers. A preset is a struct
 * model_spec whose dims come from the paper's table; a modifier overwrites one field of it. Read
 * struct model_spec in model.h first. */
#include "partition/model.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/units.h"

#define VIT(preset, layers_, hidden_, heads_, mlp_, patch_)                                        \
    {                                                                                              \
        .family = FAMILY_VIT, .task = TASK_CLASSIFY, .name = preset, .num_layers = layers_,        \
        .hidden = hidden_, .heads = heads_, .mlp = mlp_, .image = 224, .patch = patch_,            \
        .channels = 3, .classes = 1000, .elem_bytes = 4                                            \
    }
#define BERT(preset, layers_, hidden_, heads_, mlp_)                                               \
    {                                                                                              \
        .family = FAMILY_BERT, .task = TASK_CLASSIFY, .name = preset, .num_layers = layers_,       \
        .hidden = hidden_, .heads = heads_, .mlp = mlp_, .classes = 2, .seq = 128, .max_seq = 512, \
        .vocab = 30522, .elem_bytes = 4                                                            \
    }
#define GPT(preset, layers_, hidden_, heads_, seq_)                                                \
    {                                                                                              \
        .family = FAMILY_GPT, .task = TASK_CAUSAL_LM, .name = preset, .num_layers = layers_,       \
        .hidden = hidden_, .heads = heads_, .mlp = 4 * (hidden_), .seq = seq_, .max_seq = seq_,    \
        .vocab = 50257, .elem_bytes = 4                                                            \
    }

static const struct model_spec presets[] = {
  /* Dosovitskiy et al. 2021, table 1 (B, L, H); Touvron et al. 2021, table 1 (Ti, S). */
    VIT("vit-b16", 12, 768, 12, 3072, 16),
    VIT("vit-b32", 12, 768, 12, 3072, 32),
    VIT("vit-b8", 12, 768, 12, 3072, 8),
    VIT("vit-ti16", 12, 192, 3, 768, 16),
    VIT("vit-s16", 12, 384, 6, 1536, 16),
    VIT("vit-s32", 12, 384, 6, 1536, 32),
    VIT("vit-l16", 24, 1024, 16, 4096, 16),
    VIT("vit-l32", 24, 1024, 16, 4096, 32),
    VIT("vit-h14", 32, 1280, 16, 5120, 14),
 /* ViT-Ti on 32x32 images with patches of 4: small enough to train on CIFAR on a laptop. */
    {.family = FAMILY_VIT,
     .task = TASK_CLASSIFY,
     .name = "vit-tiny",
     .num_layers = 12,
     .hidden = 192,
     .heads = 3,
     .mlp = 768,
     .image = 32,
     .patch = 4,
     .channels = 3,
     .classes = 10,
     .elem_bytes = 4},
 /* Devlin et al. 2019, section 3; Wang et al. 2020 (MiniLM) as in all-MiniLM-L6-v2. */
    BERT("bert-base", 12, 768, 12, 3072),
    BERT("bert-large", 24, 1024, 16, 4096),
    BERT("minilm-l6", 6, 384, 12, 1536),
 /* Radford et al. 2019, table 2. */
    GPT("gpt2", 12, 768, 12, 1024),
    GPT("gpt2-medium", 24, 1024, 16, 1024),
    GPT("gpt2-large", 36, 1280, 20, 1024),
    GPT("gpt2-xl", 48, 1600, 25, 1024),
 /* Brown et al. 2020, table 2.1. Two of its rows do not multiply out (XL: 24 heads of 128 in
  * 2048; 13B: hidden 5140). These presets use 16 heads and 5120, because hidden must equal heads
  * times head size. */
    GPT("gpt3-125m", 12, 768, 12, 2048),
    GPT("gpt3-350m", 24, 1024, 16, 2048),
    GPT("gpt3-760m", 24, 1536, 16, 2048),
    GPT("gpt3-1.3b", 24, 2048, 16, 2048),
    GPT("gpt3-2.7b", 32, 2560, 32, 2048),
    GPT("gpt3-6.7b", 32, 4096, 32, 2048),
    GPT("gpt3-13b", 40, 5120, 40, 2048),
    GPT("gpt3-175b", 96, 12288, 96, 2048),
};

enum { NUM_PRESETS = sizeof presets / sizeof presets[0] };

/* Names of MODEL texts: all presets, and last "uniform", which is not a preset. */
static const char *const preset_names[] = {
    "vit-b16",     "vit-b32",    "vit-b8",   "vit-ti16",  "vit-s16",    "vit-s32",   "vit-l16",
    "vit-l32",     "vit-h14",    "vit-tiny", "bert-base", "bert-large", "minilm-l6", "gpt2",
    "gpt2-medium", "gpt2-large", "gpt2-xl",  "gpt3-125m", "gpt3-350m",  "gpt3-760m", "gpt3-1.3b",
    "gpt3-2.7b",   "gpt3-6.7b",  "gpt3-13b", "gpt3-175b", "uniform",    NULL};

enum { NUM_NAMES = sizeof preset_names / sizeof preset_names[0] - 1 };
_Static_assert(NUM_NAMES == NUM_PRESETS + 1, "one name a preset, and uniform");

const char *const *model_preset_names(void)
{
    return preset_names;
}

enum status model_preset(const char *name, struct model_spec *spec, struct err *err)
{
    const char *near;
    enum status rc;
    for (int i = 0; i < NUM_PRESETS; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *spec = presets[i];
            return OK;
        }
    }
    near = nearest_name(name, preset_names, NUM_NAMES);
    rc = err_set(err, ERR_INPUT, "unknown model '%s'%s%s%s", name, near ? "; did you mean '" : "",
                 near ? near : "", near ? "'?" : "");
    err_hint(err, "models: vit-ti16 vit-s16 vit-s32 vit-b8 vit-b16 vit-b32 vit-l16 vit-l32 "
                  "vit-h14 vit-tiny bert-base bert-large minilm-l6 gpt2[-medium|-large|-xl] "
                  "gpt3-125m..gpt3-175b uniform, or a JSON file");
    return rc;
}

enum { VIT_ONLY = 1, BERT_ONLY = 2, GPT_ONLY = 4, TEXT = BERT_ONLY | GPT_ONLY, ALL = 7 };

struct modifier {
    const char *key;
    int families; /* VIT_ONLY | ... */
    size_t offset;
    int min, max;
};

/* clang-format off */
static const struct modifier modifiers[] = {
    {"layers",     ALL,                  offsetof(struct model_spec, num_layers), 1, MODEL_LAYERS_MAX},
    {"hidden",     ALL,                  offsetof(struct model_spec, hidden),     1, MODEL_DIM_MAX},
    {"heads",      ALL,                  offsetof(struct model_spec, heads),      1, MODEL_DIM_MAX},
    {"mlp",        ALL,                  offsetof(struct model_spec, mlp),        1, MODEL_DIM_MAX},
    {"classes",    VIT_ONLY | BERT_ONLY, offsetof(struct model_spec, classes),    1, MODEL_VOCAB_MAX},
    {"image",      VIT_ONLY,             offsetof(struct model_spec, image),      1, MODEL_IMAGE_MAX},
    {"patch",      VIT_ONLY,             offsetof(struct model_spec, patch),      1, MODEL_IMAGE_MAX},
    {"channels",   VIT_ONLY,             offsetof(struct model_spec, channels),   1, MODEL_CHANNELS_MAX},
    {"unet_skips", VIT_ONLY,             offsetof(struct model_spec, unet_skips), 0, 1},
    {"seq",        TEXT,                 offsetof(struct model_spec, seq),        1, MODEL_DIM_MAX},
    {"max_seq",    TEXT,                 offsetof(struct model_spec, max_seq),    1, MODEL_DIM_MAX},
    {"vocab",      TEXT,                 offsetof(struct model_spec, vocab),      1, MODEL_VOCAB_MAX},
    {"task",       BERT_ONLY,            0,                                       0, 0},
    {"dtype",      ALL,                  0,                                       0, 0},
};
/* clang-format on */

enum { NUM_MODIFIERS = sizeof modifiers / sizeof modifiers[0] };

static enum status refuse_key(const struct model_spec *spec, int family, const char *key,
                              struct err *err)
{
    const char *names[NUM_MODIFIERS], *near;
    char list[200];
    int n = 0;
    enum status rc;
    for (int i = 0; i < NUM_MODIFIERS; i++)
        if (modifiers[i].families & family)
            names[n++] = modifiers[i].key;
    near = nearest_name(key, names, n);
    rc = err_set(err, ERR_INPUT, "model '%s' has no key '%s'%s%s%s", spec->name, key,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    err_hint(err, "keys of a %s: %s", model_family_name(spec->family),
             join_names(names, n, list, sizeof list));
    return rc;
}

static enum status set_task(struct model_spec *spec, const char *value, struct err *err)
{
    if (strcmp(value, "classify") == 0)
        spec->task = TASK_CLASSIFY;
    else if (strcmp(value, "qa") == 0)
        spec->task = TASK_QA;
    else if (strcmp(value, "mlm") == 0)
        spec->task = TASK_MLM;
    else
        return err_set(err, ERR_INPUT, "model '%s': task must be classify, qa or mlm, got '%s'",
                       spec->name, value);
    return OK;
}

static enum status set_dtype(struct model_spec *spec, const char *value, struct err *err)
{
    if (strcmp(value, "fp32") == 0)
        spec->elem_bytes = 4;
    else if (strcmp(value, "bf16") == 0)
        spec->elem_bytes = 2;
    else
        return err_set(err, ERR_INPUT, "model '%s': dtype must be fp32 or bf16, got '%s'",
                       spec->name, value);
    return OK;
}

enum status model_spec_set(struct model_spec *spec, const char *key, const char *value,
                           struct err *err)
{
    int family = spec->family == FAMILY_VIT    ? VIT_ONLY
                 : spec->family == FAMILY_BERT ? BERT_ONLY
                 : spec->family == FAMILY_GPT  ? GPT_ONLY
                                               : 0;
    const struct modifier *modifier = NULL;
    char what[96];
    int64_t number;
    enum status rc;
    for (int i = 0; i < NUM_MODIFIERS; i++)
        if ((modifiers[i].families & family) && strcmp(modifiers[i].key, key) == 0)
            modifier = &modifiers[i];
    if (!modifier)
        return refuse_key(spec, family, key, err);
    if (strcmp(key, "task") == 0)
        return set_task(spec, value, err);
    if (strcmp(key, "dtype") == 0)
        return set_dtype(spec, value, err);
    snprintf(what, sizeof what, "model '%s': %s", spec->name, key);
    rc = parse_int(value, what, modifier->min, modifier->max, &number, err);
    if (rc == OK)
        *(int *)((char *)spec + modifier->offset) = (int)number;
    return rc;
}

enum status model_next_modifier(const char *start, const char **list, const char *name,
                                char key[32], char value[64], struct err *err)
{
    const char *end = strchrnul(*list, ','), *equals = memchr(*list, '=', (size_t)(end - *list));
    if (!equals || equals == *list || equals + 1 == end || equals - *list >= 32 ||
        end - equals > 64)
        return err_set(err, ERR_INPUT, "model '%s': expected key=value, got '%.*s'", name,
                       (int)(end - *list > 80 ? 80 : end - *list), *list);
    memcpy(key, *list, (size_t)(equals - *list));
    key[equals - *list] = '\0';
    memcpy(value, equals + 1, (size_t)(end - equals - 1));
    value[end - equals - 1] = '\0';
    if (*end && !end[1])
        return err_set(err, ERR_INPUT, "model '%s': nothing behind the last comma", name);
    for (const char *other = start; other < *list; other = strchr(other, ',') + 1)
        if (strncmp(other, *list, (size_t)(equals + 1 - *list)) == 0)
            return err_set(err, ERR_INPUT, "model '%s': %s given twice", name, key);
    *list = *end ? end + 1 : end;
    return OK;
}

/* "layers=8,fwd=1ms,...": equal opaque items, one per layer, constants per micro-batch. */
static enum status parse_uniform(const char *list, struct model *model, struct err *err)
{
    static const char *const keys[] = {"layers",    "fwd",    "bwd_input", "bwd_weight", "bwd_rest",
                                       "fwd_stash", "update", "act",       "stash",      "params"};
    enum { NUM_KEYS = sizeof keys / sizeof keys[0] };
    struct item item = {.kind = ITEM_OPAQUE,
                        .fwd_ns = 1000000,
                        .bwd_input_ns = 1000000,
                        .bwd_weight_ns = 1000000,
                        .act_bytes = 1 << 20,
                        .stash_bytes = -1,
                        .params = 1000000};
    int64_t layers = 8;
    struct item *items = NULL;
    const char *const start = list;
    enum status rc = OK;
    while (*list) {
        char key[32], value[64], what[64];
        rc = model_next_modifier(start, &list, "uniform", key, value, err);
        if (rc != OK)
            return rc;
        snprintf(what, sizeof what, "model 'uniform': %s", key);
        if (strcmp(key, "layers") == 0)
            rc = parse_int(value, what, 1, MODEL_LAYERS_MAX, &layers, err);
        else if (strcmp(key, "fwd") == 0)
            rc = parse_ns(value, what, &item.fwd_ns, err);
        else if (strcmp(key, "bwd_input") == 0)
            rc = parse_ns(value, what, &item.bwd_input_ns, err);
        else if (strcmp(key, "bwd_weight") == 0)
            rc = parse_ns(value, what, &item.bwd_weight_ns, err);
        else if (strcmp(key, "bwd_rest") == 0)
            rc = parse_ns(value, what, &item.bwd_rest_ns, err);
        else if (strcmp(key, "fwd_stash") == 0)
            rc = parse_ns(value, what, &item.fwd_stash_ns, err);
        else if (strcmp(key, "update") == 0)
            rc = parse_ns(value, what, &item.update_ns, err);
        else if (strcmp(key, "act") == 0)
            rc = parse_bytes(value, what, &item.act_bytes, err);
        else if (strcmp(key, "stash") == 0)
            rc = parse_bytes(value, what, &item.stash_bytes, err);
        else if (strcmp(key, "params") == 0)
            rc = parse_int(value, what, 0, INT64_MAX, &item.params, err);
        else {
            const char *near = nearest_name(key, keys, NUM_KEYS);
            char all[128];
            rc = err_set(err, ERR_INPUT, "model 'uniform' has no key '%s'%s%s%s", key,
                         near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
            err_hint(err, "keys: %s", join_names(keys, NUM_KEYS, all, sizeof all));
        }
        if (rc != OK)
            return rc;
    }
    if (item.stash_bytes < 0)
        item.stash_bytes = item.act_bytes;
    items = calloc((size_t)layers, sizeof *items);
    if (!items)
        return err_nomem(err);
    for (int i = 0; i < layers; i++) {
        items[i] = item;
        items[i].layer = i;
        snprintf(items[i].name, sizeof items[i].name, "layer%d", i);
    }
    rc = model_explicit("uniform", items, (int)layers, NULL, 0, true, model, err);
    if (rc == OK)
        model->family = FAMILY_UNIFORM;
    free(items);
    return rc;
}

enum status model_parse(const char *text, struct model *model, struct err *err)
{
    struct model_spec spec;
    const char *list = strchrnul(text, ':');
    size_t length = (size_t)(list - text);
    char name[64];
    enum status rc;
    if (length == 0 || length >= sizeof name)
        return err_set(err, ERR_INPUT, "'%.80s' does not start with the name of a model", text);
    memcpy(name, text, length);
    name[length] = '\0';
    if (*list == ':')
        list++;
    if (strcmp(name, "uniform") == 0)
        return parse_uniform(list, model, err);
    const char *const start = list;
    rc = model_preset(name, &spec, err);
    while (rc == OK && *list) {
        char key[32], value[64];
        rc = model_next_modifier(start, &list, name, key, value, err);
        if (rc == OK)
            rc = model_spec_set(&spec, key, value, err);
    }
    return rc == OK ? model_build(&spec, model, err) : rc;
}
