/* config.json of transformers: a table of keys for each model_type, with the defaults that
 * transformers has for absent keys. To add a type, add its table and a row of `types`. */
#include "profiles/model_config.h"

#include <stdio.h>
#include <string.h>

#include "partition/units.h"
#include "profiles/fields.h"

/* A number of the file; null and false are 0, true is 1. fallback > 0: it must be at least 1. */
struct config_key {
    const char *key;
    size_t offset;
    int fallback;
};
#define KEY(key, member, fallback)                                                                 \
    {                                                                                              \
        key, offsetof(struct model_spec, member), fallback                                         \
    }
#define LLAMA_KEYS(kv_heads_)                                                                      \
    KEY("hidden_size", hidden, 4096), KEY("num_hidden_layers", num_layers, 32),                    \
        KEY("num_attention_heads", heads, 32), KEY("intermediate_size", mlp, 11008),               \
        KEY("vocab_size", vocab, 32000), KEY("num_key_value_heads", kv_heads, kv_heads_),          \
        KEY("tie_word_embeddings", tied_head, 0)
#define DEEPSEEK_KEYS                                                                              \
    LLAMA_KEYS(0), KEY("n_routed_experts", experts, 0),                                            \
        KEY("num_experts_per_tok", experts_active, 0),                                             \
        KEY("moe_intermediate_size", expert_mlp, 0), KEY("n_shared_experts", shared_experts, 0),   \
        KEY("first_k_dense_replace", dense_layers, 0)
#define LATENT_KEYS                                                                                \
    KEY("kv_lora_rank", kv_rank, 512), KEY("q_lora_rank", q_rank, 0),                              \
        KEY("qk_nope_head_dim", head_dim, 128), KEY("qk_rope_head_dim", rope_dim, 64),             \
        KEY("v_head_dim", v_dim, 128)

static const struct config_key vit_keys[] = {
    KEY("hidden_size", hidden, 768),       KEY("num_hidden_layers", num_layers, 12),
    KEY("num_attention_heads", heads, 12), KEY("intermediate_size", mlp, 3072),
    KEY("image_size", image, 224),         KEY("patch_size", patch, 16),
    KEY("num_channels", channels, 3),      {NULL, 0, 0}
};
static const struct config_key bert_keys[] = {
    KEY("hidden_size", hidden, 768),
    KEY("num_hidden_layers", num_layers, 12),
    KEY("num_attention_heads", heads, 12),
    KEY("intermediate_size", mlp, 3072),
    KEY("vocab_size", vocab, 30522),
    KEY("max_position_embeddings", max_seq, 512),
    {NULL, 0, 0}
};
static const struct config_key gpt2_keys[] = {
    KEY("n_embd", hidden, 768),      KEY("n_layer", num_layers, 12),    KEY("n_head", heads, 12),
    KEY("vocab_size", vocab, 50257), KEY("n_positions", max_seq, 1024), {NULL, 0, 0}
};
static const struct config_key llama_keys[] = {
    LLAMA_KEYS(0), KEY("head_dim", head_dim, 0), {NULL, 0, 0}
};
static const struct config_key mistral_keys[] = {
    LLAMA_KEYS(8), KEY("head_dim", head_dim, 0), {NULL, 0, 0}
};
static const struct config_key qwen2_keys[] = {
    LLAMA_KEYS(32), {NULL, 0, 0}
};
static const struct config_key mixtral_keys[] = {
    LLAMA_KEYS(8),
    KEY("head_dim", head_dim, 0),
    KEY("num_local_experts", experts, 8),
    KEY("num_experts_per_tok", experts_active, 2),
    {NULL, 0, 0}
};
static const struct config_key deepseek_keys[] = {
    DEEPSEEK_KEYS, {NULL, 0, 0}
};
static const struct config_key deepseek_v2_keys[] = {
    DEEPSEEK_KEYS, LATENT_KEYS, {NULL, 0, 0}
};

static const struct config_type {
    const char *type, *preset; /* dims without a key are the preset's */
    const char *act_key, *act; /* the activation that we have */
    const struct config_key *keys;
} types[] = {
    {"vit",         "vit-b16",   "hidden_act",          "gelu",     vit_keys        },
    {"bert",        "bert-base", "hidden_act",          "gelu",     bert_keys       },
    {"gpt2",        "gpt2",      "activation_function", "gelu_new", gpt2_keys       },
    {"llama",       "llama",     "hidden_act",          "silu",     llama_keys      },
    {"mistral",     "llama",     "hidden_act",          "silu",     mistral_keys    },
    {"qwen2",       "llama",     "hidden_act",          "silu",     qwen2_keys      },
    {"mixtral",     "llama",     "hidden_act",          "silu",     mixtral_keys    },
    {"deepseek",    "llama",     "hidden_act",          "silu",     deepseek_keys   },
    {"deepseek_v2", "llama",     "hidden_act",          "silu",     deepseek_v2_keys},
    {"deepseek_v3", "llama",     "hidden_act",          "silu",     deepseek_v2_keys},
};
enum { NUM_TYPES = sizeof types / sizeof types[0] };

static enum status read_int(const struct json *object, const char *key, int fallback,
                            const char *file, int *value, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    const struct json *json = json_get(object, key);
    int64_t number = fallback;
    if (json && json_type(json) == JSON_BOOL && fallback == 0)
        number = json_true(json);
    else if (json && json_type(json) != JSON_NULL &&
             (!json_int64(json, &number) || number < (fallback > 0) || number > INT32_MAX))
        return fields_refuse(&source, key,
                             fallback > 0 ? "an integer 1..2147483647" : "an integer 0..2147483647",
                             json, err);
    *value = (int)number;
    return OK;
}

/* Number of a classifier's outputs: the size of id2label, else num_labels, else 2 (the default of
 * transformers). */
static enum status read_classes(const struct json *object, const char *file, int *classes,
                                struct err *err)
{
    int labels = json_count(json_get(object, "id2label"));
    if (labels > 0) {
        *classes = labels;
        return OK;
    }
    return read_int(object, "num_labels", 2, file, classes, err);
}

static enum model_task bert_task(const struct json *object)
{
    const char *name = json_string(json_path(object, "architectures.0"));
    if (name && strstr(name, "QuestionAnswering"))
        return TASK_QA;
    return name && strstr(name, "MaskedLM") ? TASK_MLM : TASK_CLASSIFY;
}

/* What a number per key does not say. */
static enum status read_rest(const struct json *object, const char *file, struct model_spec *spec,
                             struct err *err)
{
    const char *type = json_string(json_get(object, "model_type"));
    const char *top_k = json_string(json_get(object, "topk_method"));
    int frequency = 1;
    enum status rc = OK;
    switch (spec->family) {
    case FAMILY_VIT:
        return read_classes(object, file, &spec->classes, err);
    case FAMILY_BERT:
        spec->task = bert_task(object);
        return read_classes(object, file, &spec->classes, err);
    case FAMILY_GPT:
        return read_int(object, "n_inner", spec->hidden <= INT32_MAX / 4 ? 4 * spec->hidden : 0,
                        file, &spec->mlp, err);
    default:
        break;
    }
    spec->qkv_bias = strcmp(type, "qwen2") == 0;
    spec->expert_bias = top_k && strcmp(top_k, "noaux_tc") == 0;
    if (json_true(json_get(object, "attention_bias")))
        return err_set(err, ERR_INPUT, "%s: attention_bias must be false, got true", file);
    rc = read_int(object, "moe_layer_freq", 1, file, &frequency, err);
    if (rc == OK && frequency != 1)
        rc = err_set(err, ERR_INPUT, "%s: moe_layer_freq must be 1, got %d", file, frequency);
    return rc;
}

enum status model_from_config(const struct json *object, const char *file, struct model *model,
                              struct err *err)
{
    const char *type = json_string(json_get(object, "model_type"));
    const struct config_type *found = NULL;
    const char *names[NUM_TYPES];
    char list[160];
    struct model_spec spec;
    for (int t = 0; t < NUM_TYPES; t++) {
        names[t] = types[t].type;
        if (type && strcmp(types[t].type, type) == 0)
            found = &types[t];
    }
    if (!found)
        return err_set(err, ERR_INPUT, "%s: model_type must be one of %s, got '%.40s'", file,
                       join_names(names, NUM_TYPES, list, sizeof list), type ? type : "?");
    const char *act = json_string(json_get(object, found->act_key));
    if (act && strcmp(act, found->act) != 0)
        return err_set(err, ERR_INPUT, "%s: %s must be %s, got '%.40s'", file, found->act_key,
                       found->act, act);
    enum status rc = model_preset(found->preset, &spec, err);
    for (const struct config_key *k = found->keys; k->key && rc == OK; k++)
        rc = read_int(object, k->key, k->fallback, file, (int *)((char *)&spec + k->offset), err);
    if (rc == OK)
        rc = read_rest(object, file, &spec, err);
    if (rc != OK)
        return rc;
    if (spec.max_seq && spec.seq > spec.max_seq)
        spec.seq = spec.max_seq;
    const char *name = json_string(json_get(object, "_name_or_path"));
    snprintf(spec.name, sizeof spec.name, "%.60s", name && *name ? name : found->type);
    return model_build(&spec, model, err);
}
