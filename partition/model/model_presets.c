/* The presets of models, and the parser of MODEL texts with their modifiers. A preset is a struct
 * model_spec whose dims come from the paper's table; a modifier overwrites one field of it. Read
 * struct model_spec in model.h first. */
#include "partition/model/model.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "partition/model/model_items.h"

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

#define LLAMA(preset, layers_, hidden_, heads_, kv_heads_, mlp_, vocab_, seq_)                     \
    .family = FAMILY_LLAMA, .task = TASK_CAUSAL_LM, .name = preset, .num_layers = layers_,         \
    .hidden = hidden_, .heads = heads_, .kv_heads = kv_heads_, .mlp = mlp_, .vocab = vocab_,       \
    .seq = seq_, .elem_bytes = 4
#define COMPOSED(preset, type_, hidden_, heads_, mlp_, layers_)                                    \
    .family = FAMILY_COMPOSED, .name = preset, .type = type_, .hidden = hidden_, .heads = heads_,  \
    .mlp = mlp_, .num_layers = layers_, .elem_bytes = 4
#define T5(preset, hidden_, heads_, head_dim_, mlp_, layers_)                                      \
    COMPOSED(preset, "t5", hidden_, heads_, mlp_, layers_), .head_dim = head_dim_, .vocab = 32128, \
                                                            .seq = 114, .buckets = 32,             \
                                                            .encoder = {layers_, 512}
#define WHISPER(preset, hidden_, heads_, layers_, mels, vocab_)                                    \
    COMPOSED(preset, "whisper", hidden_, heads_, 4 * (hidden_), layers_),                          \
        .channels = mels, .vocab = vocab_, .seq = 448, .max_seq = 448, .tied_head = 1,             \
        .encoder = {layers_, 1500}
#define IMAGES(image_, patch_, classes_)                                                           \
    .image = image_, .patch = patch_, .channels = 3, .classes = classes_
#define SWIN(preset, hidden_, heads_, third)                                                       \
    COMPOSED(preset, "swin", hidden_, heads_, 4 * (hidden_), 0), IMAGES(224, 4, 1000),             \
        .block.window = 7, .depths = {2, 2, third, 2}
#define CLIP(preset, type_, hidden_, heads_, layers_, patch_, text, text_heads, text_layers,       \
             width)                                                                                \
    COMPOSED(preset, type_, hidden_, heads_, 4 * (hidden_), layers_), IMAGES(224, patch_, 0),      \
        .vocab = 49408, .project = width,                                                          \
        .encoder = {text_layers, 77, text, text_heads, 4 * (text)}
#define CLIP_TOWERS(preset, ...)                                                                   \
    {CLIP(preset, "clip", __VA_ARGS__)},                                                           \
        {CLIP(preset "-vision", "clip_vision_model", __VA_ARGS__)},                                \
    {                                                                                              \
        CLIP(preset "-text", "clip_text_model", __VA_ARGS__)                                       \
    }
#define DIT(preset, hidden_, heads_, layers_, patch_)                                              \
    COMPOSED(preset, "dit", hidden_, heads_, 4 * (hidden_), layers_),                              \
        .image = 256, .patch = patch_, .channels = 4, .classes = 1000
#define EXPERTS(experts_, active, width, shared, dense)                                            \
    .experts = experts_, .experts_active = active, .expert_mlp = width, .shared_experts = shared,  \
    .dense_layers = dense
#define LATENT(q_rank_)                                                                            \
    .q_rank = q_rank_, .kv_rank = 512, .head_dim = 128, .rope_dim = 64, .v_dim = 128

/* clang-format off */
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
 /* Touvron et al. 2023, LLaMA, table 2, and Llama 2; Grattafiori et al. 2024 (Llama 3), table 3,
  * and the released config.json of Llama 3.2. "llama" is Llama 2 7B under the family's name. */
    {LLAMA("llama", 32, 4096, 32, 0, 11008, 32000, 4096)},
    {LLAMA("llama1-30b", 60, 6656, 52, 0, 17920, 32000, 2048)},
    {LLAMA("llama1-65b", 80, 8192, 64, 0, 22016, 32000, 2048)},
    {LLAMA("llama2-7b", 32, 4096, 32, 0, 11008, 32000, 4096)},
    {LLAMA("llama2-13b", 40, 5120, 40, 0, 13824, 32000, 4096)},
    {LLAMA("llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096)},
    {LLAMA("llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192), .turns.theta = 5e5},
    {LLAMA("llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192), .turns.theta = 5e5},
    {LLAMA("llama3-405b", 126, 16384, 128, 8, 53248, 128256, 8192), .turns.theta = 5e5},
    {LLAMA("llama3.2-1b", 16, 2048, 32, 8, 8192, 128256, 8192), .tied_head = 1, .turns = {ROPE_LLAMA3, 5e5, 32, 8192, .low = 1, .high = 4}},
    {LLAMA("llama3.2-3b", 28, 3072, 24, 8, 8192, 128256, 8192), .tied_head = 1, .turns = {ROPE_LLAMA3, 5e5, 32, 8192, .low = 1, .high = 4}},
 /* Jiang et al. 2023 (Mistral 7B), table 1, and 2024 (Mixtral), table 1; config.json of 8x22B.
  * Mistral's window is its seq of 4096 tokens here. */
    {LLAMA("mistral-7b", 32, 4096, 32, 8, 14336, 32000, 4096)},
    {LLAMA("mistral-nemo-12b", 40, 5120, 32, 8, 14336, 131072, 4096), .head_dim = 128, .turns.theta = 1e6},
    {LLAMA("mistral-small-24b", 40, 5120, 32, 8, 32768, 131072, 4096), .head_dim = 128, .turns.theta = 1e8},
    {LLAMA("mistral-large-123b", 88, 12288, 96, 8, 28672, 32768, 4096), .turns.theta = 1e6},
    {LLAMA("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 4096), EXPERTS(8, 2, 14336, 0, 0)},
    {LLAMA("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32000, 4096), EXPERTS(8, 2, 16384, 0, 0)},
 /* Qwen2.5 report (2024), table 1, and the released config.json. */
    {LLAMA("qwen2.5-0.5b", 24, 896, 14, 2, 4864, 151936, 4096), .qkv_bias = 1, .tied_head = 1, .turns.theta = 1e6},
    {LLAMA("qwen2.5-1.5b", 28, 1536, 12, 2, 8960, 151936, 4096), .qkv_bias = 1, .tied_head = 1, .turns.theta = 1e6},
    {LLAMA("qwen2.5-3b", 36, 2048, 16, 2, 11008, 151936, 4096), .qkv_bias = 1, .tied_head = 1, .turns.theta = 1e6},
    {LLAMA("qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064, 4096), .qkv_bias = 1, .turns.theta = 1e6},
    {LLAMA("qwen2.5-14b", 48, 5120, 40, 8, 13824, 152064, 4096), .qkv_bias = 1, .turns.theta = 1e6},
    {LLAMA("qwen2.5-32b", 64, 5120, 40, 8, 27648, 152064, 4096), .qkv_bias = 1, .turns.theta = 1e6},
    {LLAMA("qwen2.5-72b", 80, 8192, 64, 8, 29568, 152064, 4096), .qkv_bias = 1, .turns.theta = 1e6},
 /* DeepSeekMoE 16B (Dai et al. 2024), DeepSeek-V2 and V2-Lite (2024), DeepSeek-V3 (2024, section
  * 4.2; without its module that predicts a second token). */
    {LLAMA("deepseek-moe-16b", 28, 2048, 16, 0, 10944, 102400, 4096), EXPERTS(64, 6, 1408, 2, 1)},
    {LLAMA("deepseek-v2-lite", 27, 2048, 16, 0, 10944, 102400, 4096), LATENT(0),
     EXPERTS(64, 6, 1408, 2, 1)},
    {LLAMA("deepseek-v2", 60, 5120, 128, 0, 12288, 102400, 4096), LATENT(1536),
     EXPERTS(160, 6, 1536, 2, 1), .expert_groups = 8, .groups_active = 3},
    {LLAMA("deepseek-v3", 61, 7168, 128, 0, 18432, 129280, 4096), LATENT(1536),
     EXPERTS(256, 8, 2048, 1, 3), .expert_groups = 8, .groups_active = 4, .expert_bias = 1},
 /* Dims of the released config.json files (tests/golden/hf_configs.json); model_types.c says what
  * the layers are. */
    {LLAMA("qwen3-0.6b", 28, 1024, 16, 8, 3072, 151936, 4096), .type = "qwen3", .head_dim = 128, .tied_head = 1, .turns.theta = 1e6},
    {LLAMA("qwen3-1.7b", 28, 2048, 16, 8, 6144, 151936, 4096), .type = "qwen3", .head_dim = 128, .tied_head = 1, .turns.theta = 1e6},
    {LLAMA("qwen3-4b", 36, 2560, 32, 8, 9728, 151936, 4096), .type = "qwen3", .head_dim = 128, .tied_head = 1, .turns.theta = 1e6},
    {LLAMA("qwen3-8b", 36, 4096, 32, 8, 12288, 151936, 4096), .type = "qwen3", .head_dim = 128, .turns.theta = 1e6},
    {LLAMA("qwen3-14b", 40, 5120, 40, 8, 17408, 151936, 4096), .type = "qwen3", .head_dim = 128, .turns.theta = 1e6},
    {LLAMA("qwen3-32b", 64, 5120, 64, 8, 25600, 151936, 4096), .type = "qwen3", .head_dim = 128, .turns.theta = 1e6},
    {LLAMA("qwen3-30b-a3b", 48, 2048, 32, 4, 6144, 151936, 4096), .type = "qwen3_moe", .head_dim = 128,
        EXPERTS(128, 8, 768, 0, 0), .turns.theta = 1e6},
    {LLAMA("qwen3-235b-a22b", 94, 4096, 64, 4, 12288, 151936, 4096), .type = "qwen3_moe", .head_dim = 128,
        EXPERTS(128, 8, 1536, 0, 0), .turns.theta = 1e6},
    {LLAMA("gemma-2b", 18, 2048, 8, 1, 16384, 256000, 4096), .type = "gemma", .head_dim = 256, .tied_head = 1},
    {LLAMA("gemma-7b", 28, 3072, 16, 16, 24576, 256000, 4096), .type = "gemma", .head_dim = 256, .tied_head = 1},
    {LLAMA("gemma2-2b", 26, 2304, 8, 4, 9216, 256000, 4096), .type = "gemma2", .head_dim = 256, .tied_head = 1, .block.window = 4096},
    {LLAMA("gemma2-9b", 42, 3584, 16, 8, 14336, 256000, 4096), .type = "gemma2", .head_dim = 256, .tied_head = 1, .block.window = 4096},
    {LLAMA("gemma2-27b", 46, 4608, 32, 16, 36864, 256000, 4096), .type = "gemma2", .head_dim = 128, .tied_head = 1, .block.window = 4096},
    {LLAMA("gemma3-1b", 26, 1152, 4, 1, 6912, 262144, 4096), .type = "gemma3_text", .head_dim = 256, .tied_head = 1, .block.window = 512},
    {LLAMA("gemma3-4b", 34, 2560, 8, 4, 10240, 262208, 4096), .type = "gemma3_text", .head_dim = 256, .tied_head = 1, .block.window = 1024},
    {LLAMA("gemma3-12b", 48, 3840, 16, 8, 15360, 262208, 4096), .type = "gemma3_text", .head_dim = 256,
        .tied_head = 1, .block.window = 1024},
    {LLAMA("gemma3-27b", 62, 5376, 32, 16, 21504, 262208, 4096), .type = "gemma3_text", .head_dim = 128,
        .tied_head = 1, .block.window = 1024},
    {LLAMA("phi-2", 32, 2560, 32, 0, 10240, 51200, 2048), .type = "phi"},
    {LLAMA("phi3-mini", 32, 3072, 32, 0, 8192, 32064, 4096), .type = "phi3"},
    {LLAMA("phi3-medium", 40, 5120, 40, 10, 17920, 32064, 4096), .type = "phi3"},
    {LLAMA("phi-4", 40, 5120, 40, 10, 17920, 100352, 4096), .type = "phi3"},
    {LLAMA("gpt-neox-20b", 44, 6144, 64, 0, 24576, 50432, 2048), .type = "gpt_neox"},
    {LLAMA("pythia-1b", 16, 2048, 8, 0, 8192, 50304, 2048), .type = "gpt_neox"},
    {LLAMA("pythia-2.8b", 32, 2560, 32, 0, 10240, 50304, 2048), .type = "gpt_neox"},
    {LLAMA("pythia-6.9b", 32, 4096, 32, 0, 16384, 50432, 2048), .type = "gpt_neox"},
    {LLAMA("pythia-12b", 36, 5120, 40, 0, 20480, 50688, 2048), .type = "gpt_neox"},
    {LLAMA("opt-1.3b", 24, 2048, 32, 0, 8192, 50272, 2048), .type = "opt", .tied_head = 1, .max_seq = 2048},
    {LLAMA("opt-6.7b", 32, 4096, 32, 0, 16384, 50272, 2048), .type = "opt", .tied_head = 1, .max_seq = 2048},
    {LLAMA("opt-13b", 40, 5120, 40, 0, 20480, 50272, 2048), .type = "opt", .tied_head = 1, .max_seq = 2048},
    {LLAMA("opt-30b", 48, 7168, 56, 0, 28672, 50272, 2048), .type = "opt", .tied_head = 1, .max_seq = 2048},
    {LLAMA("opt-66b", 64, 9216, 72, 0, 36864, 50272, 2048), .type = "opt", .tied_head = 1, .max_seq = 2048},
    {LLAMA("falcon-7b", 32, 4544, 71, 1, 18176, 65024, 2048), .type = "falcon", .tied_head = 1},
    {LLAMA("falcon-40b", 60, 8192, 128, 8, 32768, 65024, 2048), .type = "falcon", .tied_head = 1, .block.places = NORMS_PARALLEL_TWO},
    {LLAMA("bloom-7b1", 30, 4096, 32, 0, 16384, 250880, 2048), .type = "bloom", .tied_head = 1},
    {LLAMA("bloom", 70, 14336, 112, 0, 57344, 250880, 2048), .type = "bloom", .tied_head = 1},
    {LLAMA("starcoder2-3b", 30, 3072, 24, 2, 12288, 49152, 4096), .type = "starcoder2", .tied_head = 1, .block.window = 4096},
    {LLAMA("starcoder2-7b", 32, 4608, 36, 4, 18432, 49152, 4096), .type = "starcoder2", .tied_head = 1, .block.window = 4096},
    {LLAMA("starcoder2-15b", 40, 6144, 48, 4, 24576, 49152, 4096), .type = "starcoder2", .tied_head = 1, .block.window = 4096},
    {LLAMA("olmo-7b", 32, 4096, 32, 0, 11008, 50304, 2048), .type = "olmo"},
    {LLAMA("olmo2-7b", 32, 4096, 32, 0, 11008, 100352, 4096), .type = "olmo2"},
    {LLAMA("olmo2-13b", 40, 5120, 40, 0, 13824, 100352, 4096), .type = "olmo2"},
    {LLAMA("olmo2-32b", 64, 5120, 40, 8, 27648, 100352, 4096), .type = "olmo2"},
    {LLAMA("granite3.1-8b", 40, 4096, 32, 8, 12800, 49155, 4096), .type = "granite", .tied_head = 1},
    {LLAMA("command-r", 40, 8192, 64, 0, 22528, 256000, 4096), .type = "cohere", .tied_head = 1},
    {LLAMA("command-r-plus", 64, 12288, 96, 8, 33792, 256000, 4096), .type = "cohere", .tied_head = 1, .block.qk_norm = QK_NORM_FULL},
    {LLAMA("gpt-oss-20b", 24, 2880, 64, 8, 2880, 201088, 4096), .type = "gpt_oss", .head_dim = 64,
        .block.window = 128, EXPERTS(32, 4, 2880, 0, 0)},
    {LLAMA("gpt-oss-120b", 36, 2880, 64, 8, 2880, 201088, 4096), .type = "gpt_oss", .head_dim = 64,
        .block.window = 128, EXPERTS(128, 4, 2880, 0, 0)},
    {LLAMA("glm4-9b", 40, 4096, 32, 2, 13696, 151552, 4096), .type = "glm4", .head_dim = 128},
    {LLAMA("tinyllama-1.1b", 22, 2048, 32, 4, 5632, 32000, 2048)},
    {LLAMA("smollm2-135m", 30, 576, 9, 3, 1536, 49152, 4096), .tied_head = 1, .turns.theta = 1e5},
    {LLAMA("smollm2-360m", 32, 960, 15, 5, 2560, 49152, 4096), .tied_head = 1, .turns.theta = 1e5},
    {LLAMA("smollm2-1.7b", 24, 2048, 32, 0, 8192, 49152, 4096), .tied_head = 1, .turns.theta = 1.3e5},
    {LLAMA("codellama-34b", 48, 8192, 64, 8, 22016, 32000, 4096), .turns.theta = 1e6},
    {LLAMA("yi-34b", 60, 7168, 56, 8, 20480, 64000, 4096), .turns.theta = 5e6},
    {LLAMA("deepseek-67b", 95, 8192, 64, 8, 22016, 102400, 4096)},
 /* Raffel et al. 2020, sections 2.1 and 3.1.4 (114 tokens of targets for 512 of a corrupted text),
  * and the released config.json; version 1.1 has a gate and a head of its own. */
    {T5("t5-base", 768, 12, 64, 3072, 12), .tied_head = 1, .block.plain_mlp = true},
    {T5("t5-small", 512, 8, 64, 2048, 6), .tied_head = 1, .block.plain_mlp = true},
    {T5("t5-large", 1024, 16, 64, 4096, 24), .tied_head = 1, .block.plain_mlp = true},
    {T5("t5-3b", 1024, 32, 128, 16384, 24), .tied_head = 1, .block.plain_mlp = true},
    {T5("t5-11b", 1024, 128, 128, 65536, 24), .tied_head = 1, .block.plain_mlp = true},
    {T5("flan-t5-small", 512, 6, 64, 1024, 8)},
    {T5("flan-t5-base", 768, 12, 64, 2048, 12)},
    {T5("flan-t5-large", 1024, 16, 64, 2816, 24)},
    {T5("flan-t5-xl", 2048, 32, 64, 5120, 24)},
    {T5("flan-t5-xxl", 4096, 64, 64, 10240, 24)},
 /* Radford et al. 2022, table 1, and the released config.json. */
    {WHISPER("whisper-tiny", 384, 6, 4, 80, 51865)},
    {WHISPER("whisper-base", 512, 8, 6, 80, 51865)},
    {WHISPER("whisper-small", 768, 12, 12, 80, 51865)},
    {WHISPER("whisper-medium", 1024, 16, 24, 80, 51865)},
    {WHISPER("whisper-large", 1280, 20, 32, 80, 51865)},
    {WHISPER("whisper-large-v3", 1280, 20, 32, 128, 51866)},
 /* The text parts of Llama 3.2 Vision: config.json; 4 tiles of 1601 tokens are an image. */
    {COMPOSED("llama3.2-11b-vision", "mllama_text_model", 4096, 32, 14336, 40), .kv_heads = 8, .vocab = 128256,
     .seq = 4096, .cross_first = 3, .cross_every = 5, .encoder.seq = 6404},
    {COMPOSED("llama3.2-90b-vision", "mllama_text_model", 8192, 64, 28672, 100), .kv_heads = 8, .vocab = 128256,
     .seq = 4096, .cross_first = 3, .cross_every = 5, .encoder.seq = 6404},
 /* Touvron et al. 2021, table 1, with the distillation token (without it they are the ViTs); Liu et
  * al. 2021, section 3.3; Radford et al. 2021, table 20; Peebles and Xie 2023, table 1. */
    {COMPOSED("deit-ti16-distilled", "deit", 192, 3, 768, 12), IMAGES(224, 16, 1000), .teacher = 1},
    {COMPOSED("deit-s16-distilled", "deit", 384, 6, 1536, 12), IMAGES(224, 16, 1000), .teacher = 1},
    {COMPOSED("deit-b16-distilled", "deit", 768, 12, 3072, 12), IMAGES(224, 16, 1000), .teacher = 1},
    {SWIN("swin-t", 96, 3, 6)},
    {SWIN("swin-s", 96, 3, 18)},
    {SWIN("swin-b", 128, 4, 18)},
    {SWIN("swin-l", 192, 6, 18)},
    CLIP_TOWERS("clip-vit-b32", 768, 12, 12, 32, 512, 8, 12, 512),
    CLIP_TOWERS("clip-vit-b16", 768, 12, 12, 16, 512, 8, 12, 512),
    CLIP_TOWERS("clip-vit-l14", 1024, 16, 24, 14, 768, 12, 12, 768),
    {DIT("dit-s/2", 384, 6, 12, 2)},
    {DIT("dit-b/2", 768, 12, 12, 2)},
    {DIT("dit-l/2", 1024, 16, 24, 2)},
    {DIT("dit-xl/2", 1152, 16, 28, 2)},
    {LLAMA("kimi-k2", 61, 7168, 64, 0, 18432, 163840, 4096), LATENT(1536), EXPERTS(384, 8, 2048, 1, 1), .expert_bias = 1},
};
/* clang-format on */

enum { NUM_PRESETS = sizeof presets / sizeof presets[0] };

const char *model_preset_name(int i)
{
    return i < NUM_PRESETS ? presets[i].name : i == NUM_PRESETS ? "uniform" : NULL;
}

/* Common names of models that have another name here. Both sides are compared by plain_name(). */
static const char *const aliases[][2] = {
    {"llama3.1-8b",                      "llama3-8b"          },
    {"llama3.1-70b",                     "llama3-70b"         },
    {"llama3.1-405b",                    "llama3-405b"        },
    {"llama3.3-70b",                     "llama3-70b"         },
    {"llama-30b",                        "llama1-30b"         },
    {"llama-65b",                        "llama1-65b"         },
    {"vit-ti",                           "vit-ti16"           },
    {"vit-s",                            "vit-s16"            },
    {"vit-b",                            "vit-b16"            },
    {"vit-l",                            "vit-l16"            },
    {"vit-h",                            "vit-h14"            },
    {"vit-base-patch16-224",             "vit-b16"            },
    {"vit-base-patch32-224",             "vit-b32"            },
    {"vit-large-patch16-224",            "vit-l16"            },
    {"vit-large-patch32-224",            "vit-l32"            },
    {"vit-huge-patch14-224-in21k",       "vit-h14"            },
    {"deit-ti16",                        "vit-ti16"           },
    {"deit-s16",                         "vit-s16"            },
    {"deit-b16",                         "vit-b16"            },
    {"deit-base-patch16-224",            "vit-b16"            },
    {"deit-small-patch16-224",           "vit-s16"            },
    {"deit-tiny-patch16-224",            "vit-ti16"           },
    {"deit-base-distilled-patch16-224",  "deit-b16-distilled" },
    {"deit-small-distilled-patch16-224", "deit-s16-distilled" },
    {"deit-tiny-distilled-patch16-224",  "deit-ti16-distilled"},
    {"swin-tiny-patch4-window7-224",     "swin-t"             },
    {"swin-small-patch4-window7-224",    "swin-s"             },
    {"swin-base-patch4-window7-224",     "swin-b"             },
    {"swin-large-patch4-window7-224",    "swin-l"             },
    {"clip-vit-base-patch32",            "clip-vit-b32"       },
    {"clip-vit-base-patch16",            "clip-vit-b16"       },
    {"clip-vit-large-patch14",           "clip-vit-l14"       },
    {"t5-v1.1-base",                     "flan-t5-base"       },
    {"t5-v1.1-large",                    "flan-t5-large"      },
    {"t5-v1.1-xl",                       "flan-t5-xl"         },
    {"t5-v1.1-xxl",                      "flan-t5-xxl"        },
    {"whisper-large-v2",                 "whisper-large"      },
    {"dit-xl-2-256",                     "dit-xl/2"           },
    {"dit-xl",                           "dit-xl/2"           },
    {"bert-base-uncased",                "bert-base"          },
    {"bert-large-uncased",               "bert-large"         },
    {"all-minilm-l6-v2",                 "minilm-l6"          },
    {"gpt3",                             "gpt3-175b"          },
    {"deepseek-v2-lite-chat",            "deepseek-v2-lite"   },
    {"olmo-2-1124-7b",                   "olmo2-7b"           },
    {"olmo-2-0325-32b",                  "olmo2-32b"          },
    {"c4ai-command-r-v01",               "command-r"          },
    {"phi-3-mini-4k",                    "phi3-mini"          },
    {"phi-3-medium-4k",                  "phi3-medium"        },
    {"glm-4-9b-0414",                    "glm4-9b"            },
    {"llama1-7b",                        "llama2-7b"          },
    {"llama1-13b",                       "llama2-13b"         },
    {"qwen2-0.5b",                       "qwen2.5-0.5b"       },
    {"qwen2-1.5b",                       "qwen2.5-1.5b"       },
    {"qwen2-7b",                         "qwen2.5-7b"         },
    {"qwen2-72b",                        "qwen2.5-72b"        },
    {"deepseek-r1",                      "deepseek-v3"        },
    {"deepseek-llm-67b",                 "deepseek-67b"       },
    {"phi-3.5-mini",                     "phi3-mini"          },
    {"tinyllama",                        "tinyllama-1.1b"     },
    {"mistral-nemo",                     "mistral-nemo-12b"   },
    {"mistral-nemo-base-2407",           "mistral-nemo-12b"   },
    {"mistral-small",                    "mistral-small-24b"  },
    {"mistral-small-24b-base-2501",      "mistral-small-24b"  },
    {"mistral-large",                    "mistral-large-123b" },
    {"mistral-large-instruct-2407",      "mistral-large-123b" },
    {"olmo-2-1124-13b",                  "olmo2-13b"          },
    {"bloom-176b",                       "bloom"              },
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Write a name without its owner ("meta-llama/"), in small letters, without '-', '_' and a '.' that
 * is not in a number (opt-1.3b is not opt-13b), and without the endings of checkpoints that share
 * the dims of their base model. */
static void plain_name(const char *name, char out[64])
{
    static const char *const endings[] = {"instruct", "base", "chat", "hf",  "it",  "pt",
                                          "v0.1",     "v0.2", "v0.3", "v01", "2507"};
    const char *slash = strrchr(name, '/');
    size_t n = 0;
    for (const char *c = slash ? slash + 1 : name; *c && n < 63; c++)
        if (*c == '.' ? n > 0 && is_digit(c[-1]) && is_digit(c[1]) : !strchr("-_", *c))
            out[n++] = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    out[n] = '\0';
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t k = strlen(endings[i]);
        if (n > k + 4 && strcmp(out + n - k, endings[i]) == 0) {
            out[n -= k] = '\0';
            i = (size_t)-1; /* another ending may stand before it */
        }
    }
    if (strncmp(out, "metallama", 9) == 0)
        memmove(out, out + 4, n - 3);
}

/* The preset of a name as people type it; NULL: none. */
static const struct model_spec *preset_of(const char *name)
{
    char plain[64], other[64];
    for (int i = 0; i < NUM_PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    plain_name(name, plain);
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        plain_name(aliases[i][0], other);
        if (strcmp(plain, other) == 0)
            return preset_of(aliases[i][1]);
    }
    for (int i = 0; i < NUM_PRESETS; i++) {
        plain_name(presets[i].name, other);
        if (strcmp(plain, other) == 0)
            return &presets[i];
    }
    return NULL;
}

enum status model_preset(const char *name, struct model_spec *spec, struct err *err)
{
    const char *near;
    enum status rc;
    const struct model_spec *preset = preset_of(name);
    if (preset) {
        *spec = *preset;
        if (spec->type && spec->family == FAMILY_LLAMA)
            model_type_apply(model_type_find(spec->type), spec);
        return OK;
    }
    const char *names[NUM_PRESETS + 1];
    for (int i = 0; i <= NUM_PRESETS; i++)
        names[i] = model_preset_name(i);
    near = nearest_name(name, names, NUM_PRESETS + 1);
    rc = err_set(err, ERR_INPUT, "unknown model '%s'%s%s%s", name, near ? "; did you mean '" : "",
                 near ? near : "", near ? "'?" : "");
    err_hint(err, "'elapse help model' lists the models; a config.json of Hugging Face or a JSON "
                  "file of yours is one too");
    return rc;
}

/* The families that have a key. */
enum {
    VIT_ONLY = 1 << FAMILY_VIT,
    BERT_ONLY = 1 << FAMILY_BERT,
    LLAMA_ONLY = 1 << FAMILY_LLAMA,
    COMPOSED_ONLY = 1 << FAMILY_COMPOSED,
    TABLES = BERT_ONLY | 1 << FAMILY_GPT, /* a table of positions */
    TEXT = TABLES | LLAMA_ONLY,
    ALL = VIT_ONLY | TEXT | COMPOSED_ONLY
};

#define KEY(families, ...)                                                                         \
    {                                                                                              \
        families, MEMBER(model_spec, __VA_ARGS__)                                                  \
    }
#define DIM(name_, families, path, min_, max_, help_)                                              \
    KEY(families, name_, INT, path, help_, .min = (min_), .max = (max_))
#define CHOICE(name_, path, words, help_)                                                          \
    KEY(LLAMA_ONLY, name_, NAME, path, help_, .names = (words))
static const char *const norm_words[] = {"rms", "layer", "weight", "bare", NULL};
static const char *const qk_norm_words[] = {"none", "head", "full", NULL};
static const char *const task_words[] = {"classify", "qa", "mlm", NULL};
static const char *const dtype_words[] = {"fp32", "bf16",  "tf32",  "fp16",
                                          "fp8",  "mxfp8", "nvfp4", NULL};
/* clang-format off */
static const struct model_key modifiers[] = {
    DIM("layers", ALL, num_layers, 1, MODEL_LAYERS_MAX, "transformer layers"),
    DIM("hidden", ALL, hidden, 1, MODEL_DIM_MAX, "width of the residual stream"),
    DIM("heads", ALL, heads, 1, MODEL_DIM_MAX, "attention heads"),
    DIM("mlp", ALL, mlp, 1, MODEL_DIM_MAX, "width of the MLP"),
    DIM("classes", VIT_ONLY | BERT_ONLY | COMPOSED_ONLY, classes, 1, MODEL_VOCAB_MAX, "classes of the head"),
    DIM("image", VIT_ONLY | COMPOSED_ONLY, image, 1, MODEL_IMAGE_MAX, "side of the image, pixels"),
    DIM("patch", VIT_ONLY | COMPOSED_ONLY, patch, 1, MODEL_IMAGE_MAX, "side of a patch, pixels"),
    DIM("channels", VIT_ONLY | COMPOSED_ONLY, channels, 1, MODEL_CHANNELS_MAX, "channels of the image"),
    DIM("unet_skips", VIT_ONLY, unet_skips, 0, 1, "1: early layers feed late ones, as in U-ViT"),
    DIM("seq", TEXT | COMPOSED_ONLY, seq, 1, MODEL_DIM_MAX, "tokens of a sample; T5, Whisper: of its decoder"),
    DIM("encoder_seq", COMPOSED_ONLY, encoder.seq, 1, MODEL_DIM_MAX,
        "tokens of the encoder, of CLIP's text, of the images that Llama Vision reads"),
    DIM("encoder_layers", COMPOSED_ONLY, encoder.layers, 1, MODEL_LAYERS_MAX, "layers of the encoder, or of CLIP's text tower"),
    DIM("max_seq", TABLES, max_seq, 1, MODEL_DIM_MAX, "rows of the position table"),
    DIM("vocab", TEXT | COMPOSED_ONLY, vocab, 1, MODEL_VOCAB_MAX, "rows of the token table"),
    DIM("kv_heads", LLAMA_ONLY, kv_heads, 1, MODEL_DIM_MAX, "heads of keys and values [heads]"),
    DIM("head_dim", LLAMA_ONLY, head_dim, 1, MODEL_DIM_MAX, "width of a head [hidden / heads]"),
    DIM("qkv_bias", LLAMA_ONLY, qkv_bias, 0, 1, "1: queries, keys and values have biases"),
    DIM("tied_head", LLAMA_ONLY, tied_head, 0, 1, "1: the head uses the token table"),
    DIM("experts", LLAMA_ONLY, experts, 0, MODEL_EXPERTS_MAX, "experts of a layer"),
    DIM("experts_active", LLAMA_ONLY, experts_active, 1, MODEL_EXPERTS_MAX, "experts that a token uses"),
    DIM("expert_mlp", LLAMA_ONLY, expert_mlp, 1, MODEL_DIM_MAX, "width of an expert [mlp]"),
    DIM("expert_groups", LLAMA_ONLY, expert_groups, 0, MODEL_EXPERTS_MAX, "groups of experts, of which a token chooses some [0: none]"),
    DIM("groups_active", LLAMA_ONLY, groups_active, 0, MODEL_EXPERTS_MAX, "groups that a token chooses"),
    DIM("shared_experts", LLAMA_ONLY, shared_experts, 0, MODEL_EXPERTS_MAX, "experts that every token uses"),
    DIM("dense_layers", LLAMA_ONLY, dense_layers, 0, MODEL_LAYERS_MAX, "first layers without experts"),
    DIM("expert_bias", LLAMA_ONLY, expert_bias, 0, 1, "1: the router has a bias"),
    DIM("kv_rank", LLAMA_ONLY, kv_rank, 0, MODEL_DIM_MAX, "latent attention as in DeepSeek-V2: rank of keys and values"),
    DIM("q_rank", LLAMA_ONLY, q_rank, 0, MODEL_DIM_MAX, "rank of queries"),
    DIM("rope_dim", LLAMA_ONLY, rope_dim, 0, MODEL_DIM_MAX, "width of a head's rotated part"),
    DIM("v_dim", LLAMA_ONLY, v_dim, 0, MODEL_DIM_MAX, "width of a head's values"),
    DIM("window", LLAMA_ONLY | COMPOSED_ONLY, block.window, 0, MODEL_DIM_MAX, "tokens that a query sees; 0: all before it"),
    DIM("full_every", LLAMA_ONLY, block.full_every, 0, MODEL_LAYERS_MAX,
        "n: every n-th layer sees all tokens, the others their window [0: none]"),
    DIM("moe_every", LLAMA_ONLY, block.moe_every, 0, MODEL_LAYERS_MAX, "n: every n-th layer has experts [0: all]"),
    CHOICE("norm", block.norm, norm_words, "RMSNorm, LayerNorm, LayerNorm without a bias, without parameters"),
    CHOICE("qk_norm", block.qk_norm, qk_norm_words, "norms of queries and keys: over each head, or over all"),
    DIM("plain_mlp", LLAMA_ONLY, block.plain_mlp, 0, 1, "1: two linears, without a gate"),
    DIM("out_bias", LLAMA_ONLY, block.out_bias, 0, 1, "1: the linear after attention has a bias"),
    DIM("mlp_bias", LLAMA_ONLY, block.mlp_bias, 0, 1, "1: the linears of the MLP have biases"),
    KEY(BERT_ONLY, "task", NAME, task, "what the head does", .names = task_words),
    KEY(ALL, "dtype", NAME, elem_bytes, "of activations and products; a job's train.dtype goes before", .names = dtype_words),
};

/* The keys of a MODEL text of equal layers. */
struct uniform {
    int64_t layers;
    struct item item;
};
#define UNIFORM(...) {1 << FAMILY_UNIFORM, MEMBER(uniform, __VA_ARGS__, )}
static const struct model_key uniform_keys[] = {
    UNIFORM("layers", INT, layers, "layers, one item each [8]", .min = 1, .max = MODEL_LAYERS_MAX),
    UNIFORM("fwd", NS, item.fwd_ns, "forward [1ms]"),
    UNIFORM("bwd_input", NS, item.bwd_input_ns, "backward for the input [1ms]"),
    UNIFORM("bwd_weight", NS, item.bwd_weight_ns, "backward for the weights [1ms]"),
    UNIFORM("bwd_rest", NS, item.bwd_rest_ns, "in place of bwd_input after a frozen prefix, if no item needs the input's gradient [0]"),
    UNIFORM("fwd_stash", NS, item.fwd_stash_ns, "part of fwd that frozen layers save, because they keep no stash [0]"),
    UNIFORM("update", NS, item.update_ns, "optimizer step [0]"),
    UNIFORM("act", BYTES, item.act_bytes, "leaves the layer [1MiB]"),
    UNIFORM("stash", BYTES, item.stash_bytes, "is kept for the backward [act]"),
    UNIFORM("params", INT, item.params, "parameters [1000000]"),
};
/* clang-format on */

enum {
    NUM_MODIFIERS = sizeof modifiers / sizeof modifiers[0],
    NUM_UNIFORM = sizeof uniform_keys / sizeof uniform_keys[0]
};

const struct model_key *model_key_at(int i)
{
    if (i < NUM_MODIFIERS)
        return &modifiers[i];
    return i < NUM_MODIFIERS + NUM_UNIFORM ? &uniform_keys[i - NUM_MODIFIERS] : NULL;
}

static bool has_key(const struct model_spec *spec, const struct model_key *key)
{
    return (key->families & 1 << spec->family) &&
           (spec->family != FAMILY_COMPOSED || composed_has_key(spec->type, key->row.name));
}

static enum status refuse_key(const struct model_spec *spec, const char *key, struct err *err)
{
    const char *names[NUM_MODIFIERS], *near;
    char list[400];
    int n = 0;
    enum status rc;
    for (int i = 0; i < NUM_MODIFIERS; i++)
        if (has_key(spec, &modifiers[i]))
            names[n++] = modifiers[i].row.name;
    near = nearest_name(key, names, n);
    rc = err_set(err, ERR_INPUT, "model '%s' has no key '%s'%s%s%s", spec->name, key,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    err_hint(err, "keys of a %s: %s", model_family_name(spec->family),
             join_names(names, n, list, sizeof list));
    return rc;
}

enum status model_spec_set(struct model_spec *spec, const char *key, const char *value,
                           struct err *err)
{
    const struct member *row = NULL;
    char what[96];
    for (int i = 0; i < NUM_MODIFIERS; i++)
        if (has_key(spec, &modifiers[i]) && strcmp(modifiers[i].row.name, key) == 0)
            row = &modifiers[i].row;
    if (!row)
        return refuse_key(spec, key, err);
    if (row->max == 1 && strcmp(value, "true") == 0)
        value = "1";
    if (row->max == 1 && strcmp(value, "false") == 0)
        value = "0";
    snprintf(what, sizeof what, "model '%s': %s", spec->name, key);
    const enum status rc = member_parse(row, what, value, spec, err);
    if (rc == OK && row->names == dtype_words) {
        spec->dtype = dtype_words[spec->elem_bytes]; /* it holds the place of the name */
        spec->elem_bytes = strstr(spec->dtype, "32") ? 4 : 2;
    }
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
        return err_set(err, ERR_INPUT, "model '%s': nothing after the last comma", name);
    for (const char *other = start; other < *list; other = strchr(other, ',') + 1)
        if (strncmp(other, *list, (size_t)(equals + 1 - *list)) == 0)
            return err_set(err, ERR_INPUT, "model '%s': %s given twice", name, key);
    *list = *end ? end + 1 : end;
    return OK;
}

static enum status set_uniform(struct uniform *uniform, const char *key, const char *value,
                               struct err *err)
{
    const char *names[NUM_UNIFORM];
    char what[64], all[128];
    for (int i = 0; i < NUM_UNIFORM; i++) {
        const struct member *row = &uniform_keys[i].row;
        names[i] = row->name;
        if (strcmp(row->name, key) != 0)
            continue;
        snprintf(what, sizeof what, "model 'uniform': %s", key);
        return member_parse(row, what, value, uniform, err);
    }
    const char *near = nearest_name(key, names, NUM_UNIFORM);
    enum status rc = err_set(err, ERR_INPUT, "model 'uniform' has no key '%s'%s%s%s", key,
                             near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    err_hint(err, "keys: %s", join_names(names, NUM_UNIFORM, all, sizeof all));
    return rc;
}

/* "layers=8,fwd=1ms,...": equal opaque items, one per layer, constants per micro-batch. */
static enum status parse_uniform(const char *list, struct model *model, struct err *err)
{
    struct uniform uniform = {
        .layers = 8,
        .item = {.kind = ITEM_OPAQUE,
                 .fwd_ns = 1000000,
                 .bwd_input_ns = 1000000,
                 .bwd_weight_ns = 1000000,
                 .act_bytes = 1 << 20,
                 .stash_bytes = -1,
                 .params = 1000000}
    };
    struct item *items = NULL;
    const char *const start = list;
    enum status rc = OK;
    while (*list) {
        char key[32], value[64];
        rc = model_next_modifier(start, &list, "uniform", key, value, err);
        THEN(set_uniform(&uniform, key, value, err));
        if (rc != OK)
            return rc;
    }
    struct item item = uniform.item;
    const int64_t layers = uniform.layers;
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
    const char *list = text + strcspn(text, ":,"); /* "gpt2,seq=512" means "gpt2:seq=512" */
    size_t length = (size_t)(list - text);
    char name[64];
    enum status rc;
    if (length == 0 || length >= sizeof name)
        return err_set(err, ERR_INPUT, "'%.80s' does not start with the name of a model", text);
    memcpy(name, text, length);
    name[length] = '\0';
    if (*list)
        list++;
    if (strcmp(name, "uniform") == 0)
        return parse_uniform(list, model, err);
    const char *const start = list;
    rc = model_preset(name, &spec, err);
    while (rc == OK && *list) {
        char key[32], value[64];
        rc = model_next_modifier(start, &list, name, key, value, err);
        THEN(model_spec_set(&spec, key, value, err));
    }
    return rc == OK ? model_build(&spec, model, err) : rc;
}
