/* config.json of transformers: a table of keys for each model_type, with the defaults that
 * transformers has for absent keys. Every other key is in one of three tables: `rules` has those
 * that are refused unless they say what we compute, `unmodelled` those that change something that
 * we leave out, `harmless` those that change neither parameters nor mathematics. To add a type, add
 * a row of `types`, and its other keys to these three. */
#include "profiles/job/model_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "profiles/json/fields.h"

/* A number of the file; null and false are 0, true is 1. fallback > 0: it must be at least 1. ON: a
 * flag that is set unless the file says false. KEEP: another name of a key, read only if it is
 * there. */
enum { ON = -1, KEEP = -2 };

struct config_key {
    const char *key;
    size_t offset;
    int fallback;
};
#define KEY(key, member, fallback)                                                                 \
    {                                                                                              \
        key, offsetof(struct model_spec, member), fallback                                         \
    }
#define WINDOW(tokens) KEY("sliding_window", block.window, tokens)
#define WINDOW_FROM_28 KEY("max_window_layers", block.window_from, 28)
#define TOP_K(n) KEY("num_experts_per_tok", experts_active, n)
#define LOCAL_EXPERTS(n) KEY("num_local_experts", experts, n)
#define EXPERT_MLP(width) KEY("moe_intermediate_size", expert_mlp, width)
#define VOCAB(n) KEY("vocab_size", vocab, n)
#define TIED(is) KEY("tie_word_embeddings", tied_head, is)
#define SIZES(hidden_, layers_, heads_)                                                            \
    KEY("hidden_size", hidden, hidden_), KEY("num_hidden_layers", num_layers, layers_),            \
        KEY("num_attention_heads", heads, heads_)
#define IMAGES(image_, patch_, channels_)                                                          \
    KEY("image_size", image, image_), KEY("patch_size", patch, patch_),                            \
        KEY("num_channels", channels, channels_)
#define DECODER_KEYS(hidden_, layers_, heads_, mlp_, vocab_, kv_heads_, head_dim_, tied)           \
    SIZES(hidden_, layers_, heads_), KEY("intermediate_size", mlp, mlp_), VOCAB(vocab_),           \
        KEY("num_key_value_heads", kv_heads, kv_heads_), KEY("head_dim", head_dim, head_dim_),     \
        TIED(tied)
#define LLAMA_KEYS(kv_heads_)                                                                      \
    SIZES(4096, 32, 32), KEY("intermediate_size", mlp, 11008), VOCAB(32000),                       \
        KEY("num_key_value_heads", kv_heads, kv_heads_), TIED(0)
#define GROUP_KEYS KEY("n_group", expert_groups, 0), KEY("topk_group", groups_active, 0)
#define DEEPSEEK_KEYS                                                                              \
    LLAMA_KEYS(0), KEY("n_routed_experts", experts, 0), TOP_K(0), EXPERT_MLP(0), GROUP_KEYS,       \
        KEY("n_shared_experts", shared_experts, 0), KEY("first_k_dense_replace", dense_layers, 0)
#define LATENT_KEYS                                                                                \
    KEY("kv_lora_rank", kv_rank, 512), KEY("q_lora_rank", q_rank, 0),                              \
        KEY("qk_nope_head_dim", head_dim, 128), KEY("qk_rope_head_dim", rope_dim, 64),             \
        KEY("v_head_dim", v_dim, 128)
#define ROUTED_KEYS                                                                                \
    KEY("n_routed_experts", experts, 0), TOP_K(0), EXPERT_MLP(1408), GROUP_KEYS,                   \
        KEY("n_shared_experts", shared_experts, 0), KEY("first_k_dense_replace", dense_layers, 0), \
        KEY("attention_bias", qkv_bias, 0)
#define N_SIZES(hidden_, layers_, heads_)                                                          \
    KEY("n_embd", hidden, hidden_), KEY("n_layer", num_layers, layers_),                           \
        KEY("n_head", heads, heads_)
#define GPTJ_KEYS N_SIZES(4096, 28, 16), VOCAB(50400), TIED(0)
#define HYBRID_KEYS(hidden_, layers_, heads_, mlp_, vocab_, kv_heads_, tied)                       \
    DECODER_KEYS(hidden_, layers_, heads_, mlp_, vocab_, kv_heads_, 0, tied)
#define MAMBA_KEYS(state_)                                                                         \
    KEY("mamba_d_state", state.state, state_), KEY("mamba_d_conv", state.conv, 4),                 \
        KEY("mamba_conv_bias", state.conv_bias, ON), KEY("mamba_proj_bias", state.bias, 0)
#define MAMBA2_KEYS                                                                                \
    MAMBA_KEYS(256), KEY("mamba_n_heads", state.heads, 128),                                       \
        KEY("mamba_n_groups", state.groups, 1), KEY("mamba_chunk_size", state.chunk, 256)
#define PURE_MAMBA_KEYS(state_, tied)                                                              \
    KEY("num_hidden_layers", num_layers, 32), KEY("n_layer", num_layers, KEEP),                    \
        KEY("vocab_size", vocab, 50280), KEY("state_size", state.state, state_),                   \
        KEY("conv_kernel", state.conv, 4), KEY("use_conv_bias", state.conv_bias, ON),              \
        KEY("use_bias", state.bias, 0), TIED(tied)
#define DELTA_KEYS(heads_)                                                                         \
    KEY("linear_num_value_heads", state.heads, heads_),                                            \
        KEY("linear_num_key_heads", state.groups, 16),                                             \
        KEY("linear_key_head_dim", state.state, 128),                                              \
        KEY("linear_value_head_dim", state.head_dim, 128),                                         \
        KEY("linear_conv_kernel_dim", state.conv, 4), KEY("attention_bias", qkv_bias, 0)
#define VIT_KEYS SIZES(768, 12, 12), KEY("intermediate_size", mlp, 3072), IMAGES(224, 16, 3)
/* Rows of `types`. */
#define KEYS(...)                                                                                  \
    (const struct config_key[])                                                                    \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            NULL, 0, 0                                                                             \
        }                                                                                          \
    }
#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define DECODER(type, acts, eps_key, ...)                                                          \
    {                                                                                              \
        type, "llama", "hidden_act", acts, eps_key, NULL, KEYS(__VA_ARGS__)                        \
    }

static const char *const gelu_erf[] = {"gelu", NULL};
static const char *const gelu_tanh[] = {"gelu_new", "gelu_pytorch_tanh", NULL};
static const char *const gelu_any[] = {"gelu_pytorch_tanh", "gelu", "gelu_new", NULL};
static const char *const relu[] = {"relu", NULL};
static const char *const t5_acts[] = {"relu", "gated-gelu", "gated-silu", NULL};
static const char *const clip_acts[] = {"quick_gelu", "gelu", NULL};
static const char *const silu[] = {"silu", "swish", NULL};
static const char *const relu2[] = {"relu2", NULL};
/* Types whose text part alone is read. */
static const char *const with_texts[] = {"gemma3", "mllama",  "mistral3",
                                         "llama4", "qwen3_5", "qwen3_5_moe"};
/* Types that resemble one of ours, with the part of their layers that is not modelled. */
static const struct {
    const char *type, *lacks;
} unlike[] = {
    {"olmo_hybrid",     "gated delta nets"              },
    {"lara_mini",       "gated delta nets"              },
    {"kimi_linear",     "delta attention layers"        },
    {"bailing_hybrid",  "delta attention layers"        },
    {"axk1",            "norms after experts"           },
    {"gpt_bigcode",     "position table"                },
    {"cwm",             "windows after a full layer"    },
    {"xlstm",           "recurrent cells"               },
    {"lfm2_moe",        "short convolutions"            },
    {"lfm3",            "short convolutions"            },
    {"longcat_flash",   "experts beside two attentions" },
    {"glm_moe_dsa",     "sparse attention's indexer"    },
    {"deepseek_v4",     "compressed sparse attention"   },
    {"gemma3n",         "per-layer embeddings and AltUp"},
    {"gemma4_text",     "per-layer embeddings"          },
    {"gemma4",          "per-layer embeddings"          },
    {"apertus",         "xIELU activations"             },
    {"afmoe",           "gated attention outputs"       },
    {"diffllama",       "differences of two attentions" },
    {"bitnet",          "norms inside attention and MLP"},
    {"zamba",           "Mamba layers"                  },
    {"zamba2",          "Mamba-2 layers"                },
    {"lfm2",            "short convolutions"            },
    {"recurrent_gemma", "recurrent layers"              },
    {"rwkv",            "recurrent layers"              },
    {"deepseek_v32",    "sparse attention's indexer"    },
    {"gemma3n_text",    "per-layer embeddings and AltUp"},
};

/* clang-format off */
static const struct config_type {
    const char *type, *preset; /* dims without a key are the preset's */
    const char *act_key;       /* of the activation */
    const char *const *acts;   /* the names of the activation that we have */
    const char *eps_key;       /* NULL: the family is not trained, so the value is not used */
    const char *const *heads;  /* classes that we compute; NULL: every ...ForCausalLM */
    const struct config_key *keys;
} types[] = {
    {"vit", "vit-b16", "hidden_act", gelu_erf, "layer_norm_eps",
     WORDS("ViTForImageClassification", "ViTModel"),
     KEYS(VIT_KEYS)},
    {"bert", "bert-base", "hidden_act", gelu_erf, "layer_norm_eps",
     WORDS("BertForSequenceClassification", "BertForQuestionAnswering", "BertForMaskedLM",
           "BertForPreTraining", "BertModel"),
     KEYS(SIZES(768, 12, 12), KEY("intermediate_size", mlp, 3072), VOCAB(30522),
          KEY("max_position_embeddings", max_seq, 512))},
    {"gpt2", "gpt2", "activation_function", gelu_tanh, "layer_norm_epsilon",
     WORDS("GPT2LMHeadModel", "GPT2Model"),
     KEYS(N_SIZES(768, 12, 12), VOCAB(50257), KEY("n_positions", max_seq, 1024))},
    DECODER("llama", silu, "rms_norm_eps", LLAMA_KEYS(0), KEY("head_dim", head_dim, 0)),
    DECODER("mistral", silu, "rms_norm_eps", LLAMA_KEYS(8), KEY("head_dim", head_dim, 0),
            WINDOW(4096)),
    DECODER("qwen2", silu, "rms_norm_eps", LLAMA_KEYS(32), KEY("head_dim", head_dim, 0),
            WINDOW(4096), WINDOW_FROM_28),
    DECODER("mixtral", silu, NULL, LLAMA_KEYS(8), KEY("head_dim", head_dim, 0), WINDOW(0),
            LOCAL_EXPERTS(8), TOP_K(2)),
    DECODER("deepseek", silu, NULL, DEEPSEEK_KEYS),
    DECODER("deepseek_v2", silu, NULL, DEEPSEEK_KEYS, LATENT_KEYS),
    DECODER("deepseek_v3", silu, NULL, DEEPSEEK_KEYS, LATENT_KEYS),
    DECODER("granite", silu, NULL, LLAMA_KEYS(0), KEY("head_dim", head_dim, 0)),
    DECODER("qwen3", silu, "rms_norm_eps", DECODER_KEYS(4096, 32, 32, 22016, 151936, 32, 128, 0),
            WINDOW(0), WINDOW_FROM_28),
    DECODER("qwen3_moe", silu, NULL, DECODER_KEYS(2048, 24, 32, 6144, 151936, 4, 0, 0), WINDOW(0),
            LOCAL_EXPERTS(128), KEY("num_experts", experts, KEEP), TOP_K(8), EXPERT_MLP(768),
            KEY("decoder_sparse_step", block.moe_every, 1)),
    DECODER("glm4", silu, NULL, DECODER_KEYS(4096, 40, 32, 13696, 151552, 2, 128, 0),
            KEY("attention_bias", qkv_bias, ON)),
    DECODER("gemma", gelu_any, "rms_norm_eps",
            DECODER_KEYS(3072, 28, 16, 24576, 256000, 16, 256, ON)),
    {"gemma2", "llama", "hidden_activation", gelu_any, NULL, NULL,
     KEYS(DECODER_KEYS(2304, 26, 8, 9216, 256000, 4, 256, ON), WINDOW(4096))},
    {"gemma3_text", "llama", "hidden_activation", gelu_any, NULL, NULL,
     KEYS(DECODER_KEYS(2304, 26, 8, 9216, 262208, 4, 256, ON), WINDOW(4096),
          KEY("sliding_window_pattern", block.full_every, KEEP),
          KEY("_sliding_window_pattern", block.full_every, KEEP))},
    DECODER("olmo", silu, NULL, DECODER_KEYS(4096, 32, 32, 11008, 50304, 0, 0, 0)),
    DECODER("olmo2", silu, NULL, DECODER_KEYS(4096, 32, 32, 11008, 50304, 0, 0, 0)),
    DECODER("cohere", silu, NULL, DECODER_KEYS(8192, 40, 64, 22528, 256000, 0, 0, ON)),
    DECODER("gpt_oss", silu, NULL, DECODER_KEYS(2880, 36, 64, 2880, 201088, 8, 64, 0), WINDOW(128),
            LOCAL_EXPERTS(128), TOP_K(4), KEY("experts_per_token", experts_active, KEEP)),
    DECODER("phi", gelu_any, NULL, DECODER_KEYS(2048, 24, 32, 8192, 51200, 0, 0, 0)),
    DECODER("phi3", silu, NULL, DECODER_KEYS(3072, 32, 32, 8192, 32064, 0, 0, 0), WINDOW(0)),
    DECODER("gpt_neox", gelu_any, NULL, DECODER_KEYS(6144, 44, 64, 24576, 50432, 0, 0, 0)),
    DECODER("starcoder2", gelu_any, NULL, DECODER_KEYS(3072, 30, 24, 12288, 49152, 2, 0, ON),
            WINDOW(0)),
    {"opt", "llama", "activation_function", relu, NULL, NULL,
     KEYS(SIZES(768, 12, 12), KEY("ffn_dim", mlp, 3072), VOCAB(50272),
          KEY("max_position_embeddings", max_seq, 2048), TIED(ON))},
    DECODER("bloom", gelu_any, NULL, KEY("hidden_size", hidden, 64), KEY("n_embed", hidden, KEEP),
            KEY("n_layer", num_layers, 2), KEY("num_hidden_layers", num_layers, KEEP),
            KEY("n_head", heads, 8), KEY("num_attention_heads", heads, KEEP), VOCAB(250880),
            TIED(ON)),
    {"falcon", "llama", "activation", gelu_any, NULL, NULL,
     KEYS(KEY("hidden_size", hidden, 4544), KEY("num_hidden_layers", num_layers, 32),
          KEY("n_layer", num_layers, KEEP), KEY("num_attention_heads", heads, 71),
          KEY("n_head", heads, KEEP), VOCAB(65024), TIED(ON))},
    DECODER("kimi_k2", silu, NULL, DEEPSEEK_KEYS, LATENT_KEYS),
    DECODER("smollm3", silu, NULL, DECODER_KEYS(2048, 36, 16, 11008, 128256, 4, 0, ON)),
    DECODER("seed_oss", silu, NULL, DECODER_KEYS(4096, 64, 80, 27648, 155136, 8, 128, 0),
            KEY("attention_bias", qkv_bias, ON)),
    DECODER("ernie4_5", silu, NULL, DECODER_KEYS(1024, 18, 16, 3072, 103424, 2, 128, ON)),
    DECODER("olmo3", silu, NULL, DECODER_KEYS(4096, 32, 32, 11008, 50304, 0, 0, 0), WINDOW(4096)),
    DECODER("exaone4", silu, NULL, DECODER_KEYS(4096, 32, 32, 16384, 102400, 32, 0, 0),
            WINDOW(4096), KEY("sliding_window_pattern", block.full_every, KEEP)),
    DECODER("glm4_moe", silu, NULL, DECODER_KEYS(4096, 46, 96, 10944, 151552, 8, 0, 0),
            ROUTED_KEYS),
    DECODER("dots1", silu, NULL, DECODER_KEYS(4608, 62, 32, 10944, 152064, 32, 0, 0), ROUTED_KEYS),
    DECODER("glm", silu, NULL, DECODER_KEYS(4096, 40, 32, 13696, 151552, 2, 128, 0),
            KEY("attention_bias", qkv_bias, ON)),
    DECODER("hunyuan_v1_dense", silu, NULL, DECODER_KEYS(4096, 32, 32, 11008, 290943, 0, 0, 0)),
    DECODER("qwen2_moe", silu, NULL, DECODER_KEYS(2048, 24, 16, 5632, 151936, 16, 0, 0),
            WINDOW(4096), WINDOW_FROM_28, KEY("num_experts", experts, 60), TOP_K(4),
            EXPERT_MLP(1408), KEY("shared_expert_intermediate_size", shared_experts, 5632),
            KEY("decoder_sparse_step", block.moe_every, 1), KEY("qkv_bias", qkv_bias, ON)),
    DECODER("olmoe", silu, NULL, DECODER_KEYS(2048, 16, 16, 2048, 50304, 0, 0, 0),
            KEY("num_experts", experts, 64), TOP_K(8)),
    DECODER("granitemoe", silu, NULL, DECODER_KEYS(4096, 32, 32, 11008, 32000, 0, 0, 0),
            LOCAL_EXPERTS(8), TOP_K(2)),
    DECODER("minimax_m2", silu, NULL, DECODER_KEYS(3072, 62, 48, 1536, 200064, 8, 128, 0),
            LOCAL_EXPERTS(256), TOP_K(8)),
    DECODER("llama4_text", silu, NULL, SIZES(5120, 48, 40), KEY("num_key_value_heads", kv_heads, 8),
            KEY("head_dim", head_dim, 128), KEY("intermediate_size", expert_mlp, 8192),
            KEY("intermediate_size_mlp", mlp, 16384), VOCAB(202048), TIED(0), LOCAL_EXPERTS(16),
            TOP_K(1), KEY("interleave_moe_layer_step", block.moe_every, 1)),
    DECODER("nemotron", relu2, NULL, DECODER_KEYS(6144, 32, 48, 24576, 256000, 0, 0, 0)),
    DECODER("stablelm", silu, NULL, DECODER_KEYS(2560, 32, 32, 6912, 50304, 32, 0, 0),
            KEY("use_qkv_bias", qkv_bias, 0)),
    DECODER("arcee", relu2, NULL, DECODER_KEYS(2560, 32, 32, 18432, 32000, 0, 0, 0)),
    DECODER("exaone", silu, NULL, DECODER_KEYS(4096, 32, 32, 16384, 102400, 32, 0, 0),
            KEY("num_layers", num_layers, KEEP)),
    DECODER("helium", silu, NULL, DECODER_KEYS(2560, 24, 20, 7040, 48000, 20, 128, 0)),
    DECODER("hyperclovax", silu, NULL, LLAMA_KEYS(0), KEY("head_dim", head_dim, 0)),
    DECODER("ministral3", silu, NULL, DECODER_KEYS(4096, 34, 32, 14336, 131072, 8, 128, 0), WINDOW(0)),
    DECODER("mellum", silu, NULL, DECODER_KEYS(2304, 28, 32, 7168, 98304, 4, 128, 0), WINDOW(1024),
            LOCAL_EXPERTS(64), KEY("num_experts", experts, KEEP), TOP_K(8), EXPERT_MLP(896)),
    DECODER("nanochat", relu2, NULL, DECODER_KEYS(768, 12, 6, 8192, 50304, 0, 0, 0)),
    {"vaultgemma", "llama", "hidden_activation", gelu_any, NULL, NULL,
     KEYS(DECODER_KEYS(2304, 26, 8, 9216, 256000, 4, 256, ON), WINDOW(4096))},
    DECODER("internlm3", silu, NULL, DECODER_KEYS(4096, 32, 32, 11008, 128512, 0, 0, 0)),
    DECODER("iquestcoder", silu, NULL, DECODER_KEYS(5120, 80, 40, 27648, 76800, 8, 128, 0)),
    DECODER("jais2", relu2, NULL, DECODER_KEYS(3328, 32, 26, 26624, 150272, 0, 0, 0)),
    DECODER("youtu", silu, NULL, DECODER_KEYS(2048, 32, 16, 6144, 128256, 16, 0, ON), LATENT_KEYS),
    DECODER("glm4_moe_lite", silu, NULL, DEEPSEEK_KEYS, LATENT_KEYS),
    DECODER("ernie4_5_moe", silu, NULL, DECODER_KEYS(2560, 28, 20, 12288, 103424, 4, 0, ON),
            KEY("moe_num_experts", experts, 64), KEY("moe_k", experts_active, 6), EXPERT_MLP(1536),
            KEY("moe_num_shared_experts", shared_experts, 2),
            KEY("moe_layer_start_index", dense_layers, 1)),
    DECODER("flex_olmo", silu, NULL, DECODER_KEYS(4096, 32, 32, 11008, 100352, 0, 0, 0),
            KEY("num_experts", experts, 7), TOP_K(5)),
    DECODER("granitemoeshared", silu, NULL, DECODER_KEYS(4096, 32, 32, 11008, 32000, 0, 0, 0),
            LOCAL_EXPERTS(8), TOP_K(2)),
    DECODER("solar_open", silu, NULL, DECODER_KEYS(4096, 48, 64, 10240, 196608, 8, 128, 0),
            ROUTED_KEYS),
    DECODER("phimoe", silu, NULL, DECODER_KEYS(4096, 32, 32, 6400, 32064, 8, 0, 0), WINDOW(0),
            LOCAL_EXPERTS(16), TOP_K(2)),
    DECODER("cohere2", silu, NULL, DECODER_KEYS(8192, 40, 64, 22528, 256000, 0, 0, ON), WINDOW(4096),
            KEY("sliding_window_pattern", block.full_every, KEEP)),
    DECODER("exaone_moe", silu, NULL, DECODER_KEYS(4096, 32, 32, 16384, 102400, 32, 0, 0),
            WINDOW(4096), KEY("sliding_window_pattern", block.full_every, KEEP),
            KEY("num_experts", experts, 64), TOP_K(8), EXPERT_MLP(1024),
            KEY("num_shared_experts", shared_experts, 1),
            KEY("first_k_dense_replace", dense_layers, 1)),
    {"gptj", "llama", "activation_function", gelu_any, NULL, NULL, KEYS(GPTJ_KEYS)},
    {"codegen", "llama", "activation_function", gelu_any, NULL, NULL, KEYS(GPTJ_KEYS)},
    DECODER("sarvam_mla", silu, NULL, DEEPSEEK_KEYS, LATENT_KEYS),
    DECODER("sarvam_moe", silu, NULL, DECODER_KEYS(4096, 19, 64, 8192, 262144, 4, 0, 0), ROUTED_KEYS),
    DECODER("hy_v3", silu, NULL, DECODER_KEYS(4096, 80, 64, 13312, 120832, 8, 128, 0),
            KEY("num_experts", experts, 192), TOP_K(8), EXPERT_MLP(1536),
            KEY("num_shared_experts", shared_experts, 1),
            KEY("first_k_dense_replace", dense_layers, KEEP)),
    {"nemotron_h", "llama", "mlp_hidden_act", relu2, NULL, NULL,
     KEYS(DECODER_KEYS(4096, 4, 32, 21504, 131072, 8, 128, 0), KEY("attention_head_dim", head_dim, KEEP),
          KEY("mamba_num_heads", state.heads, 128), KEY("mamba_head_dim", state.head_dim, 64),
          KEY("n_groups", state.groups, 8), KEY("mamba_n_groups", state.groups, KEEP),
          KEY("ssm_state_size", state.state, 128), KEY("conv_kernel", state.conv, 4),
          KEY("mamba_d_conv", state.conv, KEEP), KEY("use_conv_bias", state.conv_bias, ON),
          KEY("mamba_conv_bias", state.conv_bias, KEEP), KEY("chunk_size", state.chunk, 128),
          KEY("mamba_chunk_size", state.chunk, KEEP), KEY("use_bias", state.bias, 0),
          KEY("n_routed_experts", experts, 8), TOP_K(2), EXPERT_MLP(7688),
          KEY("moe_shared_expert_intermediate_size", shared_experts, 7688))},
    DECODER("granitemoehybrid", silu, NULL, HYBRID_KEYS(4096, 32, 32, 11008, 32000, 0, 0), MAMBA2_KEYS,
            LOCAL_EXPERTS(0), TOP_K(0), KEY("intermediate_size", expert_mlp, 11008),
            KEY("shared_intermediate_size", mlp, 1024)),
    DECODER("bamba", silu, NULL, HYBRID_KEYS(4096, 32, 32, 14336, 128000, 8, 0), MAMBA2_KEYS),
    DECODER("falcon_h1", silu, NULL, HYBRID_KEYS(4096, 32, 32, 14336, 128000, 8, 0), MAMBA2_KEYS,
            KEY("mamba_rms_norm", state.norm, 0), KEY("projectors_bias", state.out_bias, 0)),
    DECODER("mamba2", silu, NULL, KEY("hidden_size", hidden, 4096), PURE_MAMBA_KEYS(128, 0),
            KEY("num_heads", state.heads, 128), KEY("head_dim", state.head_dim, 64),
            KEY("n_groups", state.groups, 8), KEY("chunk_size", state.chunk, 256)),
    DECODER("jamba", silu, NULL, HYBRID_KEYS(4096, 32, 32, 14336, 65536, 8, 0), MAMBA_KEYS(16),
            KEY("num_experts", experts, 16), TOP_K(2)),
    DECODER("mamba", silu, NULL, KEY("hidden_size", hidden, 768), KEY("d_model", hidden, KEEP),
            PURE_MAMBA_KEYS(16, ON)),
    DECODER("falcon_mamba", silu, NULL, KEY("hidden_size", hidden, 768), PURE_MAMBA_KEYS(16, ON)),
    DECODER("qwen3_next", silu, NULL, DECODER_KEYS(2048, 48, 16, 5632, 151936, 2, 256, 0), DELTA_KEYS(32),
            KEY("num_experts", experts, 512), TOP_K(10), EXPERT_MLP(512),
            KEY("shared_expert_intermediate_size", shared_experts, 512),
            KEY("decoder_sparse_step", block.moe_every, 1)),
    DECODER("qwen3_5_text", silu, NULL, DECODER_KEYS(4096, 32, 16, 12288, 248320, 4, 256, 0), DELTA_KEYS(32)),
    DECODER("qwen3_5_moe_text", silu, NULL, DECODER_KEYS(2048, 40, 16, 512, 248320, 2, 256, 0),
            DELTA_KEYS(32), KEY("num_experts", experts, 256), TOP_K(8), EXPERT_MLP(512),
            KEY("shared_expert_intermediate_size", shared_experts, 512)),
    DECODER("minimax", silu, NULL, HYBRID_KEYS(4096, 32, 32, 14336, 32000, 8, 0), WINDOW(0),
            LOCAL_EXPERTS(8), TOP_K(2), KEY("block_size", state.chunk, 256)),
    {"t5", "t5-base", "feed_forward_proj", t5_acts, NULL,
     WORDS("T5ForConditionalGeneration", "T5WithLMHeadModel"),
     KEYS(KEY("d_model", hidden, 512), KEY("d_kv", head_dim, 64), KEY("d_ff", mlp, 2048),
          KEY("num_heads", heads, 8), KEY("num_layers", encoder.layers, 6), VOCAB(32128),
          KEY("relative_attention_num_buckets", buckets, 32), TIED(ON))},
    {"whisper", "whisper-base", "activation_function", gelu_any, NULL,
     WORDS("WhisperForConditionalGeneration"),
     KEYS(KEY("d_model", hidden, 384), KEY("encoder_layers", encoder.layers, 4),
          KEY("decoder_layers", num_layers, 4), KEY("encoder_attention_heads", heads, 6),
          KEY("encoder_ffn_dim", mlp, 1536), VOCAB(51865), KEY("num_mel_bins", channels, 80),
          KEY("max_source_positions", encoder.seq, 1500),
          KEY("max_target_positions", max_seq, 448))},
    {"mllama_text_model", "llama3.2-11b-vision", "hidden_act", silu, NULL, NULL,
     KEYS(SIZES(4096, 40, 32), KEY("num_key_value_heads", kv_heads, 8),
          KEY("intermediate_size", mlp, 14336), VOCAB(128256), TIED(0))},
    {"deit", "deit-b16-distilled", "hidden_act", gelu_erf, NULL,
     WORDS("DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"),
     KEYS(VIT_KEYS)},
    {"swin", "swin-t", "hidden_act", gelu_erf, NULL,
     WORDS("SwinForImageClassification"),
     KEYS(KEY("embed_dim", hidden, 96), IMAGES(224, 4, 3), KEY("window_size", block.window, 7))},
    {"clip", "clip-vit-b32", "hidden_act", clip_acts, NULL,
     WORDS("CLIPModel"),
     KEYS(KEY("projection_dim", project, 512))},
    {"clip_vision_model", "clip-vit-b32-vision", "hidden_act", clip_acts, NULL,
     WORDS("CLIPVisionModelWithProjection"),
     KEYS(SIZES(768, 12, 12), KEY("intermediate_size", mlp, 3072), IMAGES(224, 32, 3),
          KEY("projection_dim", project, 512))},
    {"clip_text_model", "clip-vit-b32-text", "hidden_act", clip_acts, NULL,
     WORDS("CLIPTextModelWithProjection"),
     KEYS(KEY("hidden_size", encoder.hidden, 512), KEY("num_hidden_layers", encoder.layers, 12),
          KEY("num_attention_heads", encoder.heads, 8), KEY("intermediate_size", encoder.mlp, 2048),
          VOCAB(49408), KEY("max_position_embeddings", encoder.seq, 77),
          KEY("projection_dim", project, 512))},
};
/* clang-format on */
enum { NUM_TYPES = sizeof types / sizeof types[0] };

/* Keys that change parameters or mathematics, with the values that we compute. */
/* clang-format off */
static const struct config_rule {
    const char *types; /* those that have the key, a space around each; NULL: all */
    const char *key;
    const char *allowed; /* JSON texts, a space around each; every other value is refused */
} rules[] = {
    {" bert vit gpt2 llama mistral qwen2 mixtral ", "is_decoder", " false null "},
    {" t5 whisper ", "is_encoder_decoder", " true "},
    {" swin ", "use_absolute_embeddings", " false "},
    {" swin ", "mlp_ratio", " 4 4.0 "},
    {NULL, "is_encoder_decoder", " false null "},
    {NULL, "add_cross_attention", " false null "},
    {NULL, "pruned_heads", " {} null "},
    {" bert vit gpt2 ", "quantization_config", " null "},
    {" bert vit ", "problem_type", " \"single_label_classification\" null "},
    {" bert ", "position_embedding_type", " \"absolute\" null "},
    {" bert ", "type_vocab_size", " 2 "},
    {" vit deit swin ", "qkv_bias", " true "},
    {" gpt2 ", "scale_attn_weights", " true "},
    {" gpt2 ", "scale_attn_by_inverse_layer_idx", " false null "},
    {" llama deepseek deepseek_v2 deepseek_v3 granite qwen3 qwen3_moe gemma gemma2 gemma3_text "
     "olmo olmo2 olmo3 cohere phi3 smollm3 kimi_k2 hunyuan_v1_dense olmoe granitemoe llama4_text "
     "nemotron arcee exaone helium hyperclovax ministral3 mellum nanochat vaultgemma "
     "internlm3 iquestcoder youtu glm4_moe_lite flex_olmo granitemoeshared phimoe cohere2 "
     "sarvam_mla ", "attention_bias", " false null "},
    {" exaone helium hyperclovax internlm3 iquestcoder hy_v3 ", "mlp_bias", " false null "},
    {" internlm3 ", "qkv_bias", " false null "},
    {" internlm3 ", "bias", " false null "},
    {" hyperclovax ", "use_post_norm", " true "},
    {" granitemoeshared ", "shared_intermediate_size", " 0 null "},
    {" jais2 ", "mlp_bias", " true "},
    {" jais2 ", "attention_bias", " true "},
    {" phimoe ", "lm_head_bias", " false null "},
    {" ernie4_5_moe ", "use_bias", " false null "},
    {" ernie4_5_moe ", "moe_layer_interval", " 1 "},
    {" llama granite smollm3 seed_oss nemotron arcee ", "mlp_bias", " false null "},
    {" deepseek deepseek_v2 deepseek_v3 kimi_k2 glm4_moe dots1 ", "moe_layer_freq", " 1 null "},
    {" gpt_oss gpt_neox ", "attention_bias", " true "},
    {" seed_oss ", "attention_out_bias", " false null "},
    {" ernie4_5 ", "use_bias", " false null "},
    {" stablelm ", "qk_layernorm", " false null "},
    {" stablelm ", "use_parallel_residual", " false null "},
    {" qwen3_moe qwen2_moe ", "mlp_only_layers", " [] null "},
    {" phi ", "qk_layernorm", " false null "},
    {" starcoder2 ", "use_bias", " true "},
    {" opt ", "do_layer_norm_before", " true "},
    {" opt ", "enable_bias", " true "},
    {" opt ", "layer_norm_elementwise_affine", " true "},
    {" opt ", "_remove_final_layer_norm", " false null "},
    {" bloom ", "apply_residual_connection_post_layernorm", " false null "},
    {" falcon ", "alibi", " false null "},
    {" falcon ", "parallel_attn", " true "},
    {" falcon ", "bias", " false null "},
    {" nemotron_h ", "moe_latent_size", " null "},
    {" nemotron_h granitemoehybrid bamba falcon_h1 ", "attention_bias", " false null "},
    {" nemotron_h bamba falcon_h1 ", "mlp_bias", " false null "},
    {" qwen3_next ", "mlp_only_layers", " [] null "},
    {" gemma gemma2 gemma3_text ", "use_bidirectional_attention", " false null "},
};
/* clang-format on */
enum { NUM_RULES = sizeof rules / sizeof rules[0] };

/* Keys whose effect is left out of the model: a value other than null, false, 0 is noted. */
static const char *const unmodelled[] = {"auto_map", "clip_qkv", "num_nextn_predict_layers",
                                         "num_mtp_layers", "quantization_config"};
enum { NUM_UNMODELLED = sizeof unmodelled / sizeof unmodelled[0] };

/* Keys that change neither parameters nor what a training step computes: where files come from, how
 * they are stored, rates of dropout (the job has its own), generation, extra outputs,
 * and constants of families that are simulated only. */
static const char *const harmless[] = {
    "model_type", "architectures", "_name_or_path", "name_or_path", "_commit_hash", "torch_dtype",
    "dtype", "transformers_version", "_attn_implementation", "attn_implementation",
    "_attn_implementation_autoset", "use_cache", "initializer_range", "initializer_factor",
    "gradient_checkpointing", "torchscript", "use_bfloat16", "tf_legacy_loss",
    "chunk_size_feed_forward", "output_attentions", "output_hidden_states", "output_past",
    "return_dict", "finetuning_task", "task_specific_params", "id2label", "label2id", "num_labels",
    "_num_labels", "tokenizer_class", "prefix", "cross_attention_hidden_size", "custom_pipelines",
    "directionality",
    /* tokens and generation */
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
    "do_sample", "early_stopping", "max_length", "min_length", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens", "tie_encoder_decoder", "tie_word_embeddings",
    /* dropout */
    "attention_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob", "hidden_dropout",
    "classifier_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop",
    /* vit: masked images, and the pooler that a classifier does not use */
    "encoder_stride", "pooler_output_size", "pooler_act",
    /* bert: of the released files; the pooler's are of a TensorFlow model that was never published */
    "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type",
    /* gpt2: summaries are of heads that are refused; the upcast is one of accuracy only */
    "n_ctx", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "reorder_and_upcast_attn",
    /* llama and its kin */
    "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "rope_interleave",
    "partial_rotary_factor", "max_position_embeddings", "pretraining_tp", "max_window_layers",
    "use_sliding_window", "layer_types", "router_aux_loss_coef", "router_jitter_noise",
    "output_router_logits", "n_group", "topk_group", "topk_method", "scoring_func",
    "norm_topk_prob", "routed_scaling_factor", "seq_aux", "aux_loss_alpha", "ep_size",
    "qk_head_dim", "head_dim", "use_mla", "attention_bias", "layer_norm_eps", "layer_norm_epsilon",
    "norm_epsilon", "embedding_multiplier", "logits_scaling", "residual_multiplier",
    "attention_multiplier", "logit_scale", "query_pre_attn_scalar", "attn_logit_softcapping",
    "cache_implementation", "hidden_act", "hidden_activation", "rope_local_base_freq", "rotary_pct",
    "rotary_emb_base", "original_max_position_embeddings", "initial_context_length", "swiglu_limit",
    "swiglu_alpha", "num_local_experts", "embedding_dropout", "residual_dropout", "embd_layer_norm",
    "dropout", "layerdrop", "activation_dropout", "init_std", "skip_bias_add", "skip_bias_add_qkv",
    "slow_but_exact", "offset_alibi", "masked_softmax_fusion", "bias_dropout_fusion",
    "unk_token_id", "seq_length", "apply_query_key_layer_scaling", "attention_softmax_in_fp32",
    "layer_norm_elementwise_affine", "no_rope_layers", "no_rope_layer_interval",
    "attn_temperature_tuning", "floor_scale", "attn_scale", "for_llm_compressor", "moe_layers",
    "use_qk_norm", "attention_chunk_size", "norm_eps", "use_mtp", "rotary_dim",
    "input_jitter_noise", "embedding_initializer_range", "router_scaling_factor",
    "enable_moe_fp32_combine", "moe_norm_min",
    /* t5, whisper, swin, clip: dropout, how spectrograms are masked, constants; n_positions limits
     * nothing, num_hidden_layers of whisper is encoder_layers once more */
    "dropout_rate", "dense_act_fn", "is_gated_act", "relative_attention_max_distance",
    "n_positions", "num_hidden_layers", "scale_embedding", "encoder_layerdrop", "decoder_layerdrop",
    "classifier_proj_size", "use_weighted_layer_sum", "apply_spec_augment", "mask_time_prob",
    "mask_time_length", "mask_time_min_masks", "mask_feature_prob", "mask_feature_length",
    "mask_feature_min_masks", "median_filter_width", "drop_path_rate", "hidden_size", "num_layers",
    "out_features", "out_indices", "stage_names", "logit_scale_init_value", "vision_config_dict",
    "text_config_dict", "is_composition", "problem_type", "is_decoder", "scale_decoder_outputs",
    /* state-space layers: starting values, limits, types of numbers in inference, multipliers */
    "time_step_min", "time_step_max", "time_step_limit", "time_step_floor", "time_step_scale",
    "time_step_init_scheme", "mamba_dt_min", "mamba_dt_max", "mamba_dt_limit",
    "mamba_dt_init_floor", "residual_in_fp32", "rescale_prenorm_residual", "rescale_layer",
    "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "num_logits_to_keep", "use_mamba_kernels",
    "use_mambapy", "use_associative_scan", "use_falcon_mambapy", "mamba_hidden_act", "mamba_act",
    "ssm_cfg", "mamba_num_groups", "norm_before_gate", "mamba_norm_before_gate", "mamba_use_mlp",
    "moe_shared_expert_overlap", "n_shared_experts", "mtp_layers_block_type",
    "mtp_hybrid_override_pattern", "lm_head_multiplier", "mlp_multipliers", "key_multiplier",
    "attention_out_multiplier", "attention_in_multiplier", "ssm_multipliers", "ssm_in_multiplier",
    "ssm_out_multiplier", "mlp_expansion_factor", "z_loss_coefficient", "rms_norm", "mixer_rms_eps",
    "full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor",
    "linear_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor", "attn_output_gate",
    "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
    /* of ours: read_length() */
    "seq"};
/* Keys that read_decoder() and read_composed() read. */
static const struct {
    const char *types, *key;
} decoder_keys[] = {
    {" gpt_neox ",                                                                        "use_parallel_residual"   },
    {" cohere glm4_moe ",                                                                 "use_qk_norm"             },
    {" gemma2 gemma3_text vaultgemma nanochat ",                                          "final_logit_softcapping" },
    {" falcon ",                                                                          "new_decoder_architecture"},
    {" falcon ",                                                                          "num_ln_in_parallel_attn" },
    {" falcon ",                                                                          "multi_query"             },
    {" falcon ",                                                                          "num_kv_heads"            },
    {" falcon ",                                                                          "ffn_hidden_size"         },
    {" opt ",                                                                             "word_embed_proj_dim"     },
    {" gemma2 gemma3_text gpt_oss qwen2 qwen3 olmo3 exaone4 mellum vaultgemma cohere2 "
     "exaone_moe ",                                                                  "layer_types"             },
    {" mellum glm4_moe_lite exaone_moe hy_v3 qwen2_moe qwen3_moe sarvam_mla sarvam_moe ",
     "mlp_layer_types"                                                                                              },
    {" ernie4_5_moe ",                                                                    "moe_layer_end_index"     },
    {" qwen2 qwen3 qwen3_moe qwen2_moe smollm3 ",                                         "use_sliding_window"      },
    {" t5 ",                                                                              "num_decoder_layers"      },
    {" whisper ",                                                                         "decoder_attention_heads" },
    {" whisper ",                                                                         "decoder_ffn_dim"         },
    {" mllama_text_model ",                                                               "cross_attention_layers"  },
    {" swin ",                                                                            "depths"                  },
    {" swin ",                                                                            "num_heads"               },
    {" clip ",                                                                            "vision_config"           },
    {" clip ",                                                                            "text_config"             },
    {" nemotron_h ",                                                                      "hybrid_override_pattern" },
    {" nemotron_h bamba ",                                                                "layers_block_type"       },
    {" nemotron_h granitemoehybrid qwen3_next qwen3_5_text qwen3_5_moe_text minimax ",
     "layer_types"                                                                                                  },
    {" qwen3_next qwen3_5_text qwen3_5_moe_text ",                                        "full_attention_interval" },
    {" bamba ",                                                                           "attn_layer_indices"      },
    {" granitemoehybrid bamba falcon_h1 ",                                                "mamba_d_head"            },
    {" granitemoehybrid bamba falcon_h1 jamba ",                                          "mamba_expand"            },
    {" mamba mamba2 falcon_mamba nemotron_h ",                                            "expand"                  },
    {" falcon_h1 ",                                                                       "mamba_d_ssm"             },
    {" granitemoehybrid ",                                                                "position_embedding_type" },
    {" jamba ",                                                                           "mamba_dt_rank"           },
    {" mamba falcon_mamba mamba2 ",                                                       "time_step_rank"          },
    {" mamba falcon_mamba ",                                                              "intermediate_size"       },
    {" jamba ",                                                                           "attn_layer_period"       },
    {" jamba ",                                                                           "attn_layer_offset"       },
    {" jamba ",                                                                           "expert_layer_period"     },
    {" jamba ",                                                                           "expert_layer_offset"     },
};
enum { NUM_DECODER_KEYS = sizeof decoder_keys / sizeof decoder_keys[0] };

enum { NUM_HARMLESS = sizeof harmless / sizeof harmless[0] };

static enum status read_int(const struct json *object, const char *key, int fallback,
                            const char *file, int *value, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    const struct json *json = json_get(object, key);
    int64_t number = fallback == ON ? 1 : fallback;
    /* Where no layer has a window, transformers 5 writes 0. */
    const int least = fallback > 0 && strcmp(key, "sliding_window") != 0;
    if (fallback == KEEP && !json)
        return OK;
    if (json && json_type(json) == JSON_BOOL && fallback <= 0)
        number = json_true(json);
    else if (json && json_type(json) != JSON_NULL &&
             (!json_int64(json, &number) || number < least || number > INT32_MAX))
        return fields_refuse(&source, key,
                             least > 0 ? "an integer 1..2147483647" : "an integer 0..2147483647",
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

static bool is_one_of(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Whether a list of words with a space around each has the word. */
static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
        if (at > list && at[-1] == ' ' && at[n] == ' ')
            return true;
    return false;
}

static const struct config_rule *rule_of(const char *type, const char *key)
{
    for (int r = 0; r < NUM_RULES; r++)
        if (strcmp(rules[r].key, key) == 0 && (!rules[r].types || has_word(rules[r].types, type)))
            return &rules[r];
    return NULL;
}

/* Refuse a value that is not among those that we compute. */
static enum status check_rule(const struct config_rule *rule, const struct json *value,
                              const char *file, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    char limit[80], *text = NULL;
    enum status rc = json_text(value, false, &text, err);
    if (rc == OK && !has_word(rule->allowed, text)) {
        snprintf(limit, sizeof limit, "%.*s", (int)strcspn(rule->allowed + 1, " "),
                 rule->allowed + 1);
        rc = fields_refuse(&source, rule->key, limit, value, err);
    }
    free(text);
    return rc;
}

static bool is_set(const struct json *value)
{
    int64_t number;
    return json_type(value) != JSON_NULL && !(json_type(value) == JSON_BOOL && !json_true(value)) &&
           !(json_int64(value, &number) && number == 0);
}

/* Append a key to a list of at most `size` bytes. A list that is full, or a first key that is cut,
 * ends in "...". */
static void add_key(char *list, size_t size, const char *key)
{
    const size_t used = strlen(list);
    if (used + strlen(key) + 8 < size)
        snprintf(list + used, size - used, "%s%s", used ? ", " : "", key);
    else if (used == 0)
        snprintf(list, size, "%.*s...", (int)size - 4, key);
    else if (used + 6 < size && (used < 3 || strcmp(list + used - 3, "...") != 0))
        snprintf(list + used, size - used, ", ...");
}

static bool reads_key(const struct config_type *type, const char *key)
{
    bool read = strcmp(key, type->act_key) == 0 || strcmp(key, "n_inner") == 0 ||
                (type->eps_key && strcmp(key, type->eps_key) == 0);
    for (const struct config_key *k = type->keys; k->key && !read; k++)
        read = strcmp(k->key, key) == 0;
    for (int i = 0; i < NUM_DECODER_KEYS && !read; i++)
        read = strcmp(decoder_keys[i].key, key) == 0 && has_word(decoder_keys[i].types, type->type);
    return read;
}

/* Check every key that no table of `types` reads, and note those that have no effect here. */
static enum status check_others(const struct json *object, const struct config_type *type,
                                const char *file, char *note, size_t size, struct err *err)
{
    char left_out[80] = "", unknown[80] = "";
    for (const struct json *m = json_first(object); m; m = json_next(m)) {
        const char *key = json_key(m);
        const struct config_rule *rule = rule_of(type->type, key);
        const bool read = reads_key(type, key);
        if (rule) {
            enum status rc = check_rule(rule, m, file, err);
            if (rc != OK)
                return rc;
        } else if (!read && is_one_of(key, unmodelled, NUM_UNMODELLED)) {
            if (is_set(m))
                add_key(left_out, sizeof left_out, key);
        } else if (!read && !is_one_of(key, harmless, NUM_HARMLESS)) {
            add_key(unknown, sizeof unknown, key);
        }
    }
    *note = '\0';
    if (*left_out || *unknown)
        snprintf(note, size, "%.60s: %s%s%s%s%s", file, *left_out ? "not modelled: " : "", left_out,
                 *left_out && *unknown ? "; " : "", *unknown ? "unknown keys, not used: " : "",
                 unknown);
    return OK;
}

static const struct config_type *type_named(const char *type)
{
    for (int t = 0; type && t < NUM_TYPES; t++)
        if (strcmp(types[t].type, type) == 0)
            return &types[t];
    return NULL;
}

static const struct config_type *type_of(const struct json *object)
{
    return type_named(json_string(json_get(object, "model_type")));
}

/* Refuse another activation than the type's. */
static enum status check_activation(const struct json *object, const struct config_type *type,
                                    const char *file, struct err *err)
{
    const char *act = json_string(json_get(object, type->act_key));
    int n = 0;
    while (type->acts[n])
        n++;
    if (!act || is_one_of(act, type->acts, n))
        return OK;
    return err_set(err, ERR_INPUT, "%s: %s must be %s, got '%.40s'", file, type->act_key,
                   type->acts[0], act);
}

/* Refuse a class of transformers whose head we do not compute. */
static enum status check_head(const struct json *object, const struct config_type *type,
                              const char *file, struct err *err)
{
    const char *name = json_string(json_path(object, "architectures.0"));
    char list[200];
    int n = 0;
    if (!name)
        return OK;
    const size_t length = strlen(name);
    if (!type->heads) {
        if (strstr(name, "ForCausalLM") || (length > 5 && strcmp(name + length - 5, "Model") == 0))
            return OK;
        return err_set(err, ERR_INPUT, "%s: architectures must be a ...ForCausalLM, got '%.60s'",
                       file, name);
    }
    while (type->heads[n])
        n++;
    if (is_one_of(name, type->heads, n))
        return OK;
    return err_set(err, ERR_INPUT, "%s: architectures must be one of %s, got '%.60s'", file,
                   join_names(type->heads, n, list, sizeof list), name);
}

/* A number above 0; *eps stays as it is where the file has none. */
static enum status read_above_0(const struct json *object, const char *key, const char *file,
                                double *value, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    const struct json *json = key ? json_get(object, key) : NULL;
    if (!json || json_type(json) == JSON_NULL)
        return OK;
    if (!isfinite(*value = json_number(json)) || *value <= 0.0)
        return fields_refuse(&source, key, "a number above 0", json, err);
    return OK;
}

static enum rope_kind rope_kind(const char *name)
{
    static const struct {
        const char *name;
        enum rope_kind kind;
    } kinds[] = {
        {"default", ROPE_PLAIN },
        {"linear",  ROPE_LINEAR},
        {"llama3",  ROPE_LLAMA3},
        {"yarn",    ROPE_YARN  },
    };
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(name, kinds[i].name) == 0)
            return kinds[i].kind;
    return name ? ROPE_OTHER : ROPE_PLAIN;
}

/* The object with the scaling of rotary positions, and its type; NULL: there is none. */
static const struct json *rope_object(const struct json *object, const char **name)
{
    const struct json *params = json_get(object, "rope_parameters");
    *name = NULL;
    if (!params || json_type(params) != JSON_OBJECT)
        params = json_get(object, "rope_scaling");
    if (!params || json_type(params) != JSON_OBJECT)
        return NULL;
    const struct json *type = json_get(params, "rope_type");
    if (!type)
        type = json_get(params, "type");
    *name = type ? json_string(type) : NULL;
    return params;
}

/* Rotary positions: transformers 5 has all in rope_parameters, before it rope_theta stood beside
 * rope_scaling. The formulas of the scalings are in exec/stage/rope.c. */
static enum status read_rope(const struct json *object, const char *file, struct rope *rope,
                             struct err *err)
{
    const char *name;
    const struct json *const params = rope_object(object, &name);
    double original = 0.0, part = 1.0, scale = 0.0, all = 0.0;
    *rope = (struct rope){0};
    enum status rc = read_above_0(object, "rope_theta", file, &rope->theta, err);
    THEN(read_above_0(object, "max_position_embeddings", file, &original, err));
    THEN(read_above_0(object, "partial_rotary_factor", file, &part, err));
    const struct {
        const char *key;
        double *value;
    } keys[] = {
        {"rope_theta",                       &rope->theta    },
        {"partial_rotary_factor",            &part           },
        {"factor",                           &rope->factor   },
        {"original_max_position_embeddings", &original       },
        {"low_freq_factor",                  &rope->low      },
        {"high_freq_factor",                 &rope->high     },
        {"beta_fast",                        &rope->fast     },
        {"beta_slow",                        &rope->slow     },
        {"attention_factor",                 &rope->attention},
        {"mscale",                           &scale          },
        {"mscale_all_dim",                   &all            },
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys && rc == OK && params; i++)
        rc = read_above_0(params, keys[i].key, file, keys[i].value, err);
    if (rc != OK)
        return rc;
    const struct json *truncate = params ? json_get(params, "truncate") : NULL;
    rope->kind = rope_kind(name);
    if (part != 1.0 || (truncate && !json_true(truncate)))
        rope->kind = ROPE_OTHER;
    if (rope->kind == ROPE_PLAIN || rope->kind == ROPE_OTHER) {
        *rope = (struct rope){.kind = rope->kind, .theta = rope->theta};
        return OK;
    }
    if (rope->factor < 1.0 || original < 1.0 || original > INT32_MAX ||
        (rope->kind == ROPE_LLAMA3 && rope->high <= rope->low))
        return err_set(err, ERR_INPUT,
                       "%s: rope type %.20s needs a factor of at least 1, "
                       "original_max_position_embeddings and, for llama3, low_freq_factor below "
                       "high_freq_factor",
                       file, name);
    rope->original = (int)original;
    if (rope->kind == ROPE_YARN && rope->attention == 0.0 && scale > 0.0 && all > 0.0 &&
        rope->factor > 1.0)
        rope->attention =
            (0.1 * scale * log(rope->factor) + 1.0) / (0.1 * all * log(rope->factor) + 1.0);
    return OK;
}

static enum model_task bert_task(const struct json *object)
{
    const char *name = json_string(json_path(object, "architectures.0"));
    if (name && strstr(name, "QuestionAnswering"))
        return TASK_QA;
    return name && strstr(name, "MaskedLM") ? TASK_MLM : TASK_CLASSIFY;
}

/* Read the layers that have a window: the list must repeat, as block.full_every and window_from can
 * say. */
static enum status read_layer_types(const struct json *list, const char *file,
                                    struct model_spec *spec, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    struct block *block = &spec->block;
    int first = -1, full = -1, i = 0;
    if (json_type(list) != JSON_ARRAY || json_count(list) == 0)
        return OK;
    for (const struct json *m = json_first(list); m; m = json_next(m), i++) {
        const char *name = json_string(m);
        const bool windowed = name && strcmp(name, "sliding_attention") == 0;
        if (!windowed && !(name && strcmp(name, "full_attention") == 0))
            return fields_refuse(&source, "layer_types", "sliding_attention or full_attention", m,
                                 err);
        if (windowed && first < 0)
            first = i;
        if (!windowed && first >= 0 && full < 0)
            full = i;
    }
    if (i != spec->num_layers)
        return err_set(err, ERR_INPUT, "%s: layer_types must have %d layers, got %d", file,
                       spec->num_layers, i);
    if (first < 0)
        block->window = 0;
    block->full_every = full < 0 ? 0 : full + 1;
    block->window_from = first < 0 ? 0 : first;
    i = 0;
    for (const struct json *m = json_first(list); m; m = json_next(m), i++) {
        const bool all = first < 0 || i < block->window_from ||
                         (block->full_every > 0 && (i + 1) % block->full_every == 0);
        if (all != (strcmp(json_string(m), "full_attention") == 0))
            return err_set(
                err, ERR_INPUT,
                "%s: layer_types must repeat after each full_attention, layer %d does not", file,
                i);
    }
    return OK;
}

static enum status read_falcon(const struct json *object, const char *file, struct model_spec *spec,
                               struct err *err)
{
    const bool is_new = json_true(json_get(object, "new_decoder_architecture"));
    const struct json *query = json_get(object, "multi_query");
    int norms = 2;
    enum status rc =
        read_int(object, "ffn_hidden_size", spec->hidden <= INT32_MAX / 4 ? 4 * spec->hidden : 0,
                 file, &spec->mlp, err);
    spec->kv_heads = query && !json_true(query) ? 0 : 1;
    if (rc == OK && is_new)
        rc = read_int(object, "num_kv_heads", spec->heads, file, &spec->kv_heads, err);
    if (rc == OK && is_new && json_type(json_get(object, "num_ln_in_parallel_attn")) == JSON_NUMBER)
        rc = read_int(object, "num_ln_in_parallel_attn", 2, file, &norms, err);
    if (rc == OK && is_new && norms == 2)
        spec->block.places = NORMS_PARALLEL_TWO;
    return rc;
}

/* The width of a shared expert as a number of experts. */
static enum status share_experts(const char *file, struct model_spec *spec, struct err *err)
{
    const int width = spec->shared_experts;
    if (width % spec->expert_mlp != 0)
        return err_set(
            err, ERR_INPUT,
            "%s: the shared expert of model_type '%s' must be a multiple of an expert's width "
            "%d, got %d",
            file, spec->type, spec->expert_mlp, width);
    spec->shared_experts = width / spec->expert_mlp;
    return OK;
}

/* Read the layers whose MLP has experts: all after the first dense ones. */
static enum status read_mlp_types(const struct json *list, const char *file,
                                  struct model_spec *spec, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    int dense = 0, i = 0;
    if (json_type(list) != JSON_ARRAY || json_count(list) == 0)
        return OK;
    for (const struct json *m = json_first(list); m; m = json_next(m), i++) {
        const char *name = json_string(m);
        const bool is_dense = name && strcmp(name, "dense") == 0;
        if ((is_dense && i > dense) || !(is_dense || (name && strcmp(name, "sparse") == 0)))
            return fields_refuse(&source, "mlp_layer_types", "dense layers, then sparse ones", m,
                                 err);
        dense += is_dense;
    }
    if (i != spec->num_layers)
        return err_set(err, ERR_INPUT, "%s: mlp_layer_types must have %d layers, got %d", file,
                       spec->num_layers, i);
    spec->dense_layers = dense;
    if (dense == i)
        spec->experts = 0;
    return OK;
}

/* --- hybrids ---------------------------------------------------------------------------------- */

/* The letter of a layer's first item (MODEL_PATTERN_SIZE); 0: no such layer. */
static char mixer_letter(const char *name)
{
    static const struct {
        const char *name;
        char letter;
    } words[] = {
        {"linear_attention", 'M'},
        {"mamba",            'M'},
        {"full_attention",   '*'},
        {"attention",        '*'},
        {"mlp",              '-'},
        {"moe",              'E'},
    };
    for (size_t i = 0; name && i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].name, name) == 0)
            return words[i].letter;
    return 0;
}

/* The first item of each layer, by a list of names; absent: letters stay as they are. *num is how
 * many there are. */
static enum status read_mixers(const struct json *object, const char *key, const char *file,
                               char *letters, int *num, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    const struct json *list = json_get(object, key);
    int n = 0;
    if (!list || json_type(list) == JSON_NULL)
        return OK;
    for (const struct json *m = json_first(list); m; m = json_next(m), n++) {
        const char letter = mixer_letter(json_string(m));
        if (!letter || n >= MODEL_PATTERN_SIZE / 2 - 1)
            return fields_refuse(&source, key, "names of layers, fewer than 256", m, err);
        letters[n] = letter;
    }
    letters[n] = '\0';
    *num = n;
    return OK;
}

/* Nemotron-H: a layer is one item. */
static enum status read_nemotron(const struct json *object, const char *file,
                                 struct model_spec *spec, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    const char *pattern = json_string(json_get(object, "hybrid_override_pattern"));
    int n = 0;
    enum status rc = read_mixers(object, "layers_block_type", file, spec->pattern, &n, err);
    if (n == 0)
        THEN(read_mixers(object, "layer_types", file, spec->pattern, &n, err));
    if (n == 0 && pattern) {
        n = (int)strlen(pattern);
        if (n >= MODEL_PATTERN_SIZE || (int)strspn(pattern, "M*-E") != n)
            return fields_refuse(&source, "hybrid_override_pattern", "letters M, *, - and E",
                                 json_get(object, "hybrid_override_pattern"), err);
        memcpy(spec->pattern, pattern, (size_t)n + 1);
    }
    if (n == 0)
        n = (int)strlen(strcpy(spec->pattern, "ME*-"));
    spec->num_layers = n;
    spec->layer_items = 1;
    spec->state.norm = 1;
    spec->state.out_bias = spec->state.bias;
    if (!strchr(spec->pattern, 'E'))
        spec->experts = spec->experts_active = spec->expert_mlp = spec->shared_experts =
            spec->expert_bias = 0;
    else
        rc = rc == OK ? share_experts(file, spec, err) : rc;
    return rc;
}

/* "auto", absent or a number. */
static enum status read_auto(const struct json *object, const char *key, const char *file,
                             int fallback, int *value, struct err *err)
{
    const char *text = json_string(json_get(object, key));
    *value = fallback;
    return text && strcmp(text, "auto") == 0 ? OK
                                             : read_int(object, key, fallback, file, value, err);
}

/* Width of the channels of Mamba layers, and of a head. */
static enum status read_mamba(const struct json *object, const char *type, const char *file,
                              struct model_spec *spec, struct err *err)
{
    struct state_space *t = &spec->state;
    const bool pure = strstr(type, "mamba") && strcmp(type, "bamba") != 0;
    int expand = 2, width = 0;
    enum status rc = read_int(object, pure ? "expand" : "mamba_expand", 2, file, &expand, err);
    if (rc == OK && (expand > 64 || spec->hidden > MODEL_DIM_MAX))
        return err_set(err, ERR_INPUT, "%s: an expansion of %d x %d is too wide", file, expand,
                       spec->hidden);
    width = expand * spec->hidden;
    t->out_bias = strcmp(type, "falcon_h1") == 0 ? t->out_bias : t->bias;
    if (t->kind == MIXER_MAMBA) {
        if (pure)
            THEN(read_int(object, "intermediate_size", width, file, &width, err));
        t->heads = width;
        t->head_dim = t->groups = 1;
        THEN(read_auto(object, pure ? "time_step_rank" : "mamba_dt_rank", file,
                       (spec->hidden + 15) / 16, &t->rank, err));
        t->inner_norms = strcmp(type, "jamba") == 0;
        return rc;
    }
    if (strcmp(type, "falcon_h1") == 0) {
        int own = 1024;
        THEN(read_int(object, "mamba_d_ssm", 1024, file, &own, err));
        const struct json *given = json_get(object, "mamba_d_ssm");
        width = given && json_type(given) == JSON_NULL ? width : own;
        t->beside_attention = 1;
    } else {
        t->norm = 1;
    }
    if (!pure && rc == OK && t->heads > 0)
        rc = read_auto(object, "mamba_d_head", file, width / t->heads, &t->head_dim, err);
    if (rc == OK && (int64_t)t->heads * t->head_dim != width)
        rc = err_set(err, ERR_INPUT, "%s: %d heads of states of width %d are not the width %d",
                     file, t->heads, t->head_dim, width);
    return rc;
}

/* The first item of each layer of a hybrid whose layers are two items, or of Mamba's, which are
 * one. */
static enum status read_letters(const struct json *object, const char *type, const char *file,
                                struct model_spec *spec, char *letters, struct err *err)
{
    const bool jamba = strcmp(type, "jamba") == 0, delta = spec->state.kind == MIXER_DELTA;
    int period = jamba ? 8 : delta ? 4 : strcmp(type, "minimax") == 0 ? 2 : 0, offset = 4;
    int num = spec->num_layers;
    const struct json *at = json_get(object, "attn_layer_indices");
    enum status rc = OK;
    if (jamba) {
        rc = read_int(object, "attn_layer_period", 8, file, &period, err);
        if (json_get(object, "attn_layer_offset") && rc == OK)
            rc = read_int(object, "attn_layer_offset", 0, file, &offset, err);
    } else if (delta) {
        rc = read_int(object, "full_attention_interval", 4, file, &period, err);
        offset = period - 1;
    } else {
        offset = 0;
    }
    if (rc == OK && num >= MODEL_PATTERN_SIZE / 2)
        rc = err_set(err, ERR_INPUT, "%s: a hybrid has at most %d layers, got %d", file,
                     MODEL_PATTERN_SIZE / 2 - 1, num);
    for (int i = 0; rc == OK && i < num; i++)
        letters[i] = period > 0 && i % period == offset ? '*' : 'M';
    letters[rc == OK ? num : 0] = '\0';
    for (const struct json *m = json_first(at); m && rc == OK; m = json_next(m)) {
        int64_t layer;
        if (json_int64(m, &layer) && layer >= 0 && layer < num)
            letters[layer] = '*';
    }
    if (!jamba)
        THEN(read_mixers(object, "layer_types", file, letters, &num, err));
    if (rc == OK && num != spec->num_layers)
        rc = err_set(err, ERR_INPUT, "%s: layer_types must have %d layers, got %d", file,
                     spec->num_layers, num);
    return rc;
}

static void read_granite(const struct json *object, struct model_spec *spec)
{
    const char *positions = json_string(json_get(object, "position_embedding_type"));
    if (positions && strcmp(positions, "rope") == 0)
        spec->block.positions = POSITIONS_ROTARY;
    spec->experts = json_get(object, "num_local_experts") ? spec->experts : 8;
    spec->experts_active = json_get(object, "num_experts_per_tok") ? spec->experts_active : 2;
    spec->shared_experts = spec->experts > 0 ? spec->mlp : 0;
}

/* A mixer's letter for each layer, and where the layers have an MLP its letter: E for experts. */
static void write_pattern(const char *letters, bool pure, int every, int first,
                          struct model_spec *spec)
{
    for (int i = 0; letters[i]; i++) {
        char *to = spec->pattern + i * spec->layer_items;
        to[0] = letters[i];
        if (!pure)
            to[1] = spec->experts > 0 && i % every == first ? 'E' : '-';
        to[spec->layer_items] = '\0';
    }
}

/* Read the layers of a hybrid, whose type has a mixer (model_types.c). */
static enum status read_hybrid(const struct json *object, const char *type, const char *file,
                               struct model_spec *spec, struct err *err)
{
    struct state_space *t = &spec->state;
    char letters[MODEL_PATTERN_SIZE / 2] = "";
    int every = spec->block.moe_every > 1 ? spec->block.moe_every : 1, first = every - 1;
    if (strcmp(type, "nemotron_h") == 0)
        return read_nemotron(object, file, spec, err);
    const bool jamba = strcmp(type, "jamba") == 0;
    const bool pure = strstr(type, "mamba") && strcmp(type, "bamba") != 0;
    enum status rc = read_letters(object, type, file, spec, letters, err);
    if (t->kind == MIXER_DELTA)
        t->chunk = 64; /* of flash-linear-attention */
    else if (t->kind != MIXER_LIGHTNING)
        THEN(read_mamba(object, type, file, spec, err));
    if (t->kind == MIXER_LIGHTNING) {
        t->heads = t->groups = spec->heads;
        t->head_dim = t->state = spec->head_dim    ? spec->head_dim
                                 : spec->heads > 0 ? spec->hidden / spec->heads
                                                   : 0;
    }
    if (strcmp(type, "granitemoehybrid") == 0)
        read_granite(object, spec);
    if (jamba) {
        THEN(read_int(object, "expert_layer_period", 2, file, &every, err));
        first = 1;
        if (json_get(object, "expert_layer_offset"))
            THEN(read_int(object, "expert_layer_offset", 0, file, &first, err));
        if (spec->experts == 1)
            spec->experts = 0;
    }
    if (rc == OK && spec->experts > 0 && spec->shared_experts > 0)
        rc = share_experts(file, spec, err);
    if (spec->experts == 0)
        spec->experts_active = spec->expert_mlp = spec->shared_experts = 0;
    spec->layer_items = pure ? 1 : 2;
    if (rc == OK)
        write_pattern(letters, pure, every, first, spec);
    return rc;
}

static bool is_type(const char *type, const char *name)
{
    return strcmp(type, name) == 0;
}

/* What keys say of a decoder's blocks beside numbers. */
static void read_block(const struct json *object, const char *type, struct block *block)
{
    const struct json *parallel = json_get(object, "use_parallel_residual");
    const struct json *cap = json_get(object, "final_logit_softcapping");
    const struct json *window = json_get(object, "sliding_window");
    const bool qk_norm = json_true(json_get(object, "use_qk_norm"));
    if (window && !is_set(window))
        block->window = 0;
    if (strncmp(type, "qwen", 4) == 0 && !json_true(json_get(object, "use_sliding_window")))
        block->window = 0;
    if (is_type(type, "gpt_neox") && parallel && !json_true(parallel))
        block->places = NORMS_BEFORE;
    if (is_type(type, "cohere") && qk_norm)
        block->qk_norm = QK_NORM_FULL;
    if (is_type(type, "glm4_moe") && qk_norm)
        block->qk_norm = QK_NORM_HEAD;
    if (cap && strstr(type, "gemma"))
        block->softcap = is_set(cap);
}

/* The MLP's width, the experts and the layers that have them, where keys do not give them alone. */
static enum status read_mlp(const struct json *object, const char *type, const char *file,
                            struct model_spec *spec, struct err *err)
{
    const struct json *last = json_get(object, "moe_layer_end_index");
    const int four = spec->hidden <= INT32_MAX / 4 ? 4 * spec->hidden : 0;
    enum status rc = OK;
    int64_t at = 0;
    if (is_type(type, "qwen2_moe"))
        rc = share_experts(file, spec, err);
    if (is_type(type, "llama4_text"))
        spec->shared_experts = 1;
    if (is_type(type, "gptj") || is_type(type, "codegen"))
        rc = read_int(object, "n_inner", four, file, &spec->mlp, err);
    if (is_type(type, "bloom"))
        spec->mlp = four;
    if (is_type(type, "ernie4_5_moe") && last && json_int64(last, &at) && at != -1 &&
        at != spec->num_layers - 1)
        rc = err_set(err, ERR_INPUT, "%s: moe_layer_end_index must be the last layer, %d, got %lld",
                     file, spec->num_layers - 1, (long long)at);
    THEN(read_mlp_types(json_get(object, "mlp_layer_types"), file, spec, err));
    return rc;
}

/* Read the settings of a decoder that are not one number per key. */
static enum status read_decoder(const struct json *object, const char *type, const char *file,
                                struct model_spec *spec, struct err *err)
{
    const struct json *project = json_get(object, "word_embed_proj_dim");
    int64_t width = 0;
    read_block(object, type, &spec->block);
    enum status rc = read_mlp(object, type, file, spec, err);
    if (is_type(type, "falcon"))
        THEN(read_falcon(object, file, spec, err));
    if (rc == OK && is_type(type, "opt") && project && json_int64(project, &width) &&
        width != spec->hidden)
        rc = err_set(err, ERR_INPUT, "%s: word_embed_proj_dim must be hidden_size %d, got %lld",
                     file, spec->hidden, (long long)width);
    if (spec->state.kind != MIXER_NONE)
        return rc == OK ? read_hybrid(object, type, file, spec, err) : rc;
    for (int i = 0; i < NUM_DECODER_KEYS && rc == OK && spec->block.window > 0; i++)
        if (strcmp(decoder_keys[i].key, "layer_types") == 0 &&
            has_word(decoder_keys[i].types, type))
            rc = read_layer_types(json_get(object, "layer_types"), file, spec, err);
    return rc;
}

/* Lists of numbers: swin's depths and heads by stage, which double from stage to stage. */
static enum status read_stages(const struct json *object, const char *file, struct model_spec *spec,
                               struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    const struct json *depths = json_get(object, "depths"), *heads = json_get(object, "num_heads");
    const int n = json_count(depths);
    if (depths && (json_type(depths) != JSON_ARRAY || n < 1 || n > SWIN_STAGES))
        return fields_refuse(&source, "depths", "an array of 1 to 4 numbers", depths, err);
    for (int i = 0; i < SWIN_STAGES && depths; i++) {
        int64_t depth = 0;
        if (i < n && (!json_int64(json_at(depths, i), &depth) || depth < 1 || depth > 1000))
            return fields_refuse(&source, "depths", "numbers 1..1000", depths, err);
        spec->depths[i] = (int)depth;
    }
    for (int i = 0; heads && i < json_count(heads); i++) {
        int64_t count;
        if (!json_int64(json_at(heads, i), &count) || count < 1 || count > 1000 ||
            (i > 0 && count != (int64_t)spec->heads << i))
            return fields_refuse(&source, "num_heads", "numbers that double", heads, err);
        if (i == 0)
            spec->heads = (int)count;
    }
    spec->mlp = spec->hidden <= INT32_MAX / 4 ? 4 * spec->hidden : 0;
    return OK;
}

/* mllama's layers that read images: every fifth from the fourth on, or so. */
static enum status read_cross_layers(const struct json *list, const char *file,
                                     struct model_spec *spec, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    int64_t first = 0, second = 0, at;
    if (!list)
        return OK;
    if (!json_int64(json_at(list, 0), &first) || first < 0 || first >= spec->num_layers)
        return fields_refuse(&source, "cross_attention_layers", "layers of the model", list, err);
    if (!json_int64(json_at(list, 1), &second))
        second = spec->num_layers;
    for (int i = 0; i < json_count(list); i++)
        if (!json_int64(json_at(list, i), &at) || second <= first ||
            at != first + i * (second - first) || first >= second - first)
            return fields_refuse(&source, "cross_attention_layers", "one layer of each n", list,
                                 err);
    if (first + json_count(list) * (second - first) < spec->num_layers)
        return fields_refuse(&source, "cross_attention_layers", "layers up to the last ones", list,
                             err);
    spec->cross_first = (int)first;
    spec->cross_every = (int)(second - first);
    return OK;
}

static enum status read_keys(const struct json *object, const struct config_key *keys,
                             const char *file, struct model_spec *spec, struct err *err)
{
    enum status rc = OK;
    for (const struct config_key *k = keys; k->key && rc == OK; k++)
        rc = read_int(object, k->key, k->fallback, file, (int *)((char *)spec + k->offset), err);
    return rc;
}

/* The settings of FAMILY_COMPOSED that are not one number per key. */
static enum status read_composed(const struct json *object, const char *type, const char *file,
                                 struct model_spec *spec, struct err *err)
{
    const char *head = json_string(json_path(object, "architectures.0"));
    enum status rc = OK;
    if (strcmp(type, "t5") == 0) {
        const char *act = json_string(json_get(object, "feed_forward_proj"));
        const struct json *layers = json_get(object, "num_decoder_layers");
        spec->block.plain_mlp = !act || strncmp(act, "gated-", 6) != 0;
        spec->num_layers = spec->encoder.layers;
        if (layers && json_type(layers) != JSON_NULL)
            rc = read_int(object, "num_decoder_layers", 1, file, &spec->num_layers, err);
    } else if (strcmp(type, "whisper") == 0) {
        const struct fields_source source = {.file = file, .prefix = ""};
        int heads = 0, mlp = 0;
        rc = read_int(object, "decoder_attention_heads", spec->heads, file, &heads, err);
        THEN(read_int(object, "decoder_ffn_dim", spec->mlp, file, &mlp, err));
        if (rc == OK && heads != spec->heads)
            rc = fields_refuse(&source, "decoder_attention_heads", "encoder_attention_heads",
                               json_get(object, "decoder_attention_heads"), err);
        if (rc == OK && mlp != spec->mlp)
            rc = fields_refuse(&source, "decoder_ffn_dim", "encoder_ffn_dim",
                               json_get(object, "decoder_ffn_dim"), err);
    } else if (strcmp(type, "mllama_text_model") == 0) {
        rc = read_cross_layers(json_get(object, "cross_attention_layers"), file, spec, err);
    } else if (strcmp(type, "swin") == 0) {
        rc = read_stages(object, file, spec, err);
    } else if (strcmp(type, "clip") == 0) {
        const struct json *vision = json_get(object, "vision_config"),
                          *text = json_get(object, "text_config");
        const int project = spec->project;
        if (rc == OK && vision)
            rc = read_keys(vision, type_named("clip_vision_model")->keys, file, spec, err);
        if (rc == OK && text)
            rc = read_keys(text, type_named("clip_text_model")->keys, file, spec, err);
        spec->project = project;
    }
    if (rc == OK && strcmp(type, "deit") == 0)
        spec->teacher = head && strstr(head, "WithTeacher");
    if (rc == OK && (strcmp(type, "deit") == 0 || strcmp(type, "swin") == 0))
        rc = read_classes(object, file, &spec->classes, err);
    return rc;
}

/* Read the settings that are not one number per key. */
static enum status read_rest(const struct json *object, const char *file, struct model_spec *spec,
                             struct err *err)
{
    const char *type = json_string(json_get(object, "model_type"));
    const char *top_k = json_string(json_get(object, "topk_method"));
    switch (spec->family) {
    case FAMILY_VIT:
        return read_classes(object, file, &spec->classes, err);
    case FAMILY_BERT:
        spec->task = bert_task(object);
        return read_classes(object, file, &spec->classes, err);
    case FAMILY_GPT:
        return read_int(object, "n_inner", spec->hidden <= INT32_MAX / 4 ? 4 * spec->hidden : 0,
                        file, &spec->mlp, err);
    case FAMILY_COMPOSED:
        return read_composed(object, type, file, spec, err);
    default:
        break;
    }
    if (top_k)
        spec->expert_bias = strcmp(top_k, "noaux_tc") == 0;
    return read_decoder(object, type, file, spec, err);
}

/* The tokens of a sample: the object's "seq", which is a key of ours, else the family's default and
 * no more than the positions of the model. */
static enum status read_length(const struct json *object, const char *file, struct model_spec *spec,
                               struct err *err)
{
    int positions = spec->max_seq;
    enum status rc = OK;
    if (spec->family == FAMILY_LLAMA)
        rc = read_int(object, "max_position_embeddings", 0, file, &positions, err);
    if (positions > 0 && spec->seq > positions)
        spec->seq = positions;
    const bool images =
        spec->family == FAMILY_VIT || (spec->family == FAMILY_COMPOSED && spec->image > 0);
    if (rc == OK && json_get(object, "seq") && images)
        rc = err_set(err, ERR_INPUT, "%s: seq is for models of texts", file);
    else if (rc == OK && json_get(object, "seq"))
        rc = read_int(object, "seq", 1, file, &spec->seq, err);
    return rc;
}

/* No config_type has the model_type. */
static enum status refuse_type(const char *type, const char *file, struct err *err)
{
    const char *names[NUM_TYPES];
    char list[400];
    for (int t = 0; t < NUM_TYPES; t++)
        names[t] = types[t].type;
    for (size_t i = 0; type && i < sizeof unlike / sizeof *unlike; i++)
        if (strcmp(unlike[i].type, type) == 0) {
            err_set(err, ERR_INPUT, "%s: the %s of model_type '%s' are not modelled", file,
                    unlike[i].lacks, type);
            err_hint(err,
                     "its attention and MLPs alone are llama:layers=,hidden=,heads=,...; other "
                     "layers are written by hand as items (elapse help model)");
            return ERR_INPUT;
        }
    err_set(err, ERR_INPUT, "%s: model_type must be one of %s, got '%.40s'", file,
            join_names(names, NUM_TYPES, list, sizeof list), type ? type : "?");
    err_hint(err, "if its layers are attention and MLP, write it by hand: "
                  "llama:layers=,hidden=,heads=,kv_heads=,mlp=,vocab=,seq= (elapse help model)");
    return ERR_INPUT;
}

enum status model_from_config(const struct json *object, const char *file, int elem_bytes,
                              struct model *model, struct err *err)
{
    const char *type = json_string(json_get(object, "model_type"));
    const struct config_type *found = type_of(object);
    struct model_spec spec;
    const struct json *text = json_get(object, "text_config");
    if (type && is_one_of(type, with_texts, sizeof with_texts / sizeof *with_texts) && text) {
        enum status rc = model_from_config(text, file, elem_bytes, model, err);
        if (rc == OK)
            snprintf(model->note, sizeof model->note, "%.60s: the text part only", file);
        return rc;
    }
    if (!found)
        return refuse_type(type, file, err);
    char note[sizeof model->note];
    enum status rc = model_preset(found->preset, &spec, err);
    const struct model_type *decoder = model_type_find(found->type);
    if (rc == OK && decoder)
        model_type_apply(decoder, &spec);
    THEN(check_activation(object, found, file, err));
    THEN(check_head(object, found, file, err));
    THEN(check_others(object, found, file, note, sizeof note, err));
    THEN(read_above_0(object, found->eps_key, file, &spec.norm_eps, err));
    THEN(read_keys(object, found->keys, file, &spec, err));
    THEN(read_rest(object, file, &spec, err));
    if (rc == OK && spec.family == FAMILY_LLAMA && found->eps_key)
        rc = read_rope(object, file, &spec.turns, err);
    THEN(read_length(object, file, &spec, err));
    if (rc != OK)
        return rc;
    const char *name = json_string(json_get(object, "_name_or_path"));
    snprintf(spec.name, sizeof spec.name, "%.60s", name && *name ? name : found->type);
    if (elem_bytes)
        spec.elem_bytes = elem_bytes;
    rc = model_build(&spec, model, err);
    if (rc != OK)
        return rc;
    memcpy(model->note, note, sizeof note);
    const struct json *tied = json_get(object, "tie_word_embeddings");
    if (tied && !json_true(tied) && (spec.family == FAMILY_GPT || spec.family == FAMILY_BERT)) {
        model_untie(model); /* for decoders it is a key (TIED) */
        model->was_tied = false;
    }
    return OK;
}

/* Whether a rule is about what weights mean, not about a head or about how a file is stored. */
static bool is_of_weights(const char *key)
{
    return strcmp(key, "problem_type") != 0 && strcmp(key, "quantization_config") != 0;
}

static bool same_rope(const struct rope *a, const struct rope *b)
{
    const double x = a->theta > 0.0 ? a->theta : 10000.0, y = b->theta > 0.0 ? b->theta : 10000.0;
    return a->kind == b->kind && x == y && a->factor == b->factor && a->low == b->low &&
           a->high == b->high && a->fast == b->fast && a->slow == b->slow &&
           a->attention == b->attention && (a->kind == ROPE_LINEAR || a->original == b->original);
}

enum status model_config_check(const struct json *object, const char *file,
                               const struct model *model, double eps, struct err *err)
{
    const struct config_type *type = type_of(object);
    struct model_spec spec = {0};
    double want = eps;
    if (!type || !type->eps_key)
        return OK;
    enum status rc = model_preset(type->preset, &spec, err);
    if (rc != OK || spec.family != model->family)
        return rc;
    rc = check_activation(object, type, file, err);
    for (const struct json *m = json_first(object); m && rc == OK; m = json_next(m)) {
        const struct config_rule *rule = rule_of(type->type, json_key(m));
        if (rule && is_of_weights(rule->key))
            rc = check_rule(rule, m, file, err);
    }
    THEN(read_above_0(object, type->eps_key, file, &want, err));
    struct rope rope = model->turns;
    if (rc == OK && model->family == FAMILY_LLAMA)
        rc = read_rope(object, file, &rope, err);
    if (rc == OK && model->family == FAMILY_LLAMA && !same_rope(&rope, &model->turns)) {
        rc = err_set(err, ERR_INPUT, "%s: rotary positions are not those of model '%s'", file,
                     model->name);
        err_hint(err, "take the file as the job's model: \"model\": \"%s\"", file);
    }
    if (rc == OK && (float)want != (float)eps) {
        rc = err_set(err, ERR_INPUT, "%s: %s is %g, but model '%s' has %g", file, type->eps_key,
                     want, model->name, eps);
        err_hint(err, "take the file as the job's model: \"model\": \"%s\"", file);
    }
    return rc;
}
