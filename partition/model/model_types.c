/* The families of decoders: one row for each model_type of transformers. Presets and config.json
 * both take it from here, and add dims only. Sources: modeling_<type>.py of transformers, and the
 * reports of the models. A row lists how the layers differ from Llama's (struct block). */
#include "partition/model/model.h"

#include <string.h>

/* clang-format off */
static const struct model_type types[] = {
  /* name, layers, biases of queries, keys and values, bias of the router */
    {"llama", {0}, 0, 0},
    {"mistral", {0}, 0, 0},
    {"mixtral", {0}, 0, 0},
    {"deepseek", {0}, 0, 0},
    {"deepseek_v2", {0}, 0, 0},
    {"deepseek_v3", {0}, 0, 1},
    {"granite", {0}, 0, 0},
    {"gemma", {0}, 0, 0},
    {"phi3", {0}, 0, 0},
    {"qwen2", {0}, 1, 0},
    {"qwen3", {.qk_norm = QK_NORM_HEAD}, 0, 0},
    {"qwen3_moe", {.qk_norm = QK_NORM_HEAD}, 0, 0},
    {"glm4", {.places = NORMS_AROUND}, 1, 0},
    {"gemma2", {.places = NORMS_AROUND, .softcap = true, .full_every = 2}, 0, 0},
    {"gemma3_text", {.places = NORMS_AROUND, .qk_norm = QK_NORM_HEAD, .full_every = 6}, 0, 0},
    {"olmo", {.norm = NORM_FORM_BARE}, 0, 0},
    {"olmo2", {.places = NORMS_AFTER, .qk_norm = QK_NORM_FULL}, 0, 0},
    {"cohere", {.norm = NORM_FORM_WEIGHT, .places = NORMS_PARALLEL}, 0, 0},
    {"gpt_oss", {.out_bias = true, .sinks = true, .expert_mlp_bias = true, .expert_clamp = true, .full_every = 2}, 1, 1},
    {"phi", {.norm = NORM_FORM_LAYER, .places = NORMS_PARALLEL, .out_bias = true, .mlp_bias = true, .plain_mlp = true,
        .head_bias = true}, 1, 0},
    {"gpt_neox", {.norm = NORM_FORM_LAYER, .places = NORMS_PARALLEL_TWO, .out_bias = true, .mlp_bias = true, .plain_mlp = true}, 1, 0},
    {"starcoder2", {.norm = NORM_FORM_LAYER, .out_bias = true, .mlp_bias = true, .plain_mlp = true}, 1, 0},
    {"opt", {.norm = NORM_FORM_LAYER, .positions = POSITIONS_TABLE, .out_bias = true, .mlp_bias = true, .plain_mlp = true}, 1, 0},
    {"bloom", {.norm = NORM_FORM_LAYER, .positions = POSITIONS_ALIBI, .out_bias = true, .mlp_bias = true,
        .plain_mlp = true, .embedding_norm = true}, 1, 0},
    {"kimi_k2", {0}, 0, 1},
    {"smollm3", {0}, 0, 0},
    {"seed_oss", {0}, 1, 0},
    {"ernie4_5", {0}, 0, 0},
    {"olmo3", {.places = NORMS_AFTER, .qk_norm = QK_NORM_FULL, .full_every = 4}, 0, 0},
    {"exaone4", {.places = NORMS_AFTER, .qk_norm = QK_NORM_HEAD, .full_every = 4}, 0, 0},
    {"glm4_moe", {0}, 0, 1},
    {"dots1", {.qk_norm = QK_NORM_HEAD}, 0, 1},
    {"glm", {0}, 1, 0},
    {"hunyuan_v1_dense", {.qk_norm = QK_NORM_HEAD}, 0, 0},
    {"qwen2_moe", {.shared_gate = true}, 1, 0},
    {"olmoe", {.qk_norm = QK_NORM_FULL}, 0, 0},
    {"granitemoe", {0}, 0, 0},
    {"minimax_m2", {.qk_norm = QK_NORM_FULL}, 0, 1},
    {"llama4_text", {0}, 0, 0},
    {"nemotron", {.norm = NORM_FORM_LAYER, .plain_mlp = true}, 0, 0},
    {"stablelm", {.norm = NORM_FORM_LAYER}, 0, 0},
    {"arcee", {.plain_mlp = true}, 0, 0},
    {"exaone", {0}, 0, 0},
    {"helium", {0}, 0, 0},
    {"hyperclovax", {.places = NORMS_AROUND}, 0, 0},
    {"ministral3", {0}, 0, 0},
    {"mellum", {.qk_norm = QK_NORM_HEAD}, 0, 0},
    {"nanochat", {.norm = NORM_FORM_BARE, .plain_mlp = true, .softcap = true}, 0, 0},
    {"vaultgemma", {.softcap = true, .full_every = 2}, 0, 0},
    {"internlm3", {0}, 0, 0},
    {"iquestcoder", {0}, 0, 0},
    {"jais2", {.norm = NORM_FORM_LAYER, .out_bias = true, .mlp_bias = true, .plain_mlp = true}, 1, 0},
    {"youtu", {0}, 0, 0},
    {"glm4_moe_lite", {0}, 0, 1},
    {"ernie4_5_moe", {0}, 0, 1},
    {"flex_olmo", {.places = NORMS_AFTER, .qk_norm = QK_NORM_FULL}, 0, 0},
    {"granitemoeshared", {0}, 0, 0},
    {"solar_open", {0}, 0, 1},
    {"phimoe", {.norm = NORM_FORM_LAYER}, 0, 0},
    {"cohere2", {.norm = NORM_FORM_WEIGHT, .places = NORMS_PARALLEL, .full_every = 4}, 0, 0},
    {"exaone_moe", {.qk_norm = QK_NORM_HEAD, .full_every = 4}, 0, 1},
    {"gptj", {.norm = NORM_FORM_LAYER, .places = NORMS_PARALLEL, .mlp_bias = true, .plain_mlp = true, .head_bias = true}, 0, 0},
    {"codegen", {.norm = NORM_FORM_LAYER, .places = NORMS_PARALLEL, .mlp_bias = true, .plain_mlp = true, .head_bias = true}, 0, 0},
    {"sarvam_mla", {0}, 0, 1},
    {"sarvam_moe", {.qk_norm = QK_NORM_HEAD}, 0, 1},
    {"hy_v3", {.qk_norm = QK_NORM_HEAD}, 0, 1},
    {"falcon", {.norm = NORM_FORM_LAYER, .places = NORMS_PARALLEL, .plain_mlp = true}, 0, 0},
    {"nemotron_h", {.positions = POSITIONS_NONE, .plain_mlp = true, .mixer = MIXER_MAMBA2}, 0, 1},
    {"granitemoehybrid", {.positions = POSITIONS_NONE, .mixer = MIXER_MAMBA2}, 0, 0},
    {"bamba", {.mixer = MIXER_MAMBA2}, 0, 0},
    {"falcon_h1", {.mixer = MIXER_MAMBA2}, 0, 0},
    {"mamba2", {.positions = POSITIONS_NONE, .mixer = MIXER_MAMBA2}, 0, 0},
    {"jamba", {.positions = POSITIONS_NONE, .mixer = MIXER_MAMBA}, 0, 0},
    {"mamba", {.positions = POSITIONS_NONE, .mixer = MIXER_MAMBA}, 0, 0},
    {"falcon_mamba", {.positions = POSITIONS_NONE, .mixer = MIXER_MAMBA}, 0, 0},
    {"qwen3_next", {.qk_norm = QK_NORM_HEAD, .shared_gate = true, .gated_heads = true, .mixer = MIXER_DELTA}, 0, 0},
    {"qwen3_5_text", {.qk_norm = QK_NORM_HEAD, .gated_heads = true, .mixer = MIXER_DELTA}, 0, 0},
    {"qwen3_5_moe_text", {.qk_norm = QK_NORM_HEAD, .shared_gate = true, .gated_heads = true, .mixer = MIXER_DELTA}, 0, 0},
    {"minimax", {.mixer = MIXER_LIGHTNING}, 0, 0},
};
/* clang-format on */

const struct model_type *model_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

void model_type_apply(const struct model_type *type, struct model_spec *spec)
{
    const struct block own = spec->block;
    spec->type = type->name;
    spec->block = type->block;
    if (own.window)
        spec->block.window = own.window;
    if (own.places)
        spec->block.places = own.places;
    if (own.qk_norm)
        spec->block.qk_norm = own.qk_norm;
    spec->qkv_bias = type->qkv_bias;
    spec->expert_bias = type->expert_bias;
    spec->state.kind = (int)type->block.mixer;
}
