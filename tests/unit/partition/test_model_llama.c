/* The llama family and its kin: published parameter counts, and a second count of flops and of what
 * is kept, tensor by tensor. */
#include "partition/model/model.h"
#include "tests/unit/test.h"

static struct model parse(const char *text)
{
    struct model model = {0};
    struct err err = {0};
    if (model_parse(text, &model, &err) != OK)
        fail_msg("%s: %s", text, err.msg);
    return model;
}

/* Parameters of the released checkpoints, as Hugging Face counts them in the files ("safetensors",
 * parameters) of meta-llama/Llama-2-*, Llama-3.1-* and Llama-3.2-*, huggyllama/llama-30b and -65b,
 * mistralai/Mistral-7B-v0.1 and Mixtral-8x*-v0.1, Qwen/Qwen2.5-*, deepseek-ai/deepseek-moe-16b-base,
 * DeepSeek-V2, DeepSeek-V2-Lite. DeepSeek-V3: the main model's, without the 14 B of its module for a
 * second token, as its README_WEIGHTS says. */
static void presets__have_the_parameters_of_the_checkpoints(void **state)
{
    static const struct {
        const char *name;
        int layers;
        int64_t params;
    } cases[] = {
        {"llama",                            32,  6738415616  },
        {"llama1-30b",                       60,  32528943616 },
        {"llama1-65b",                       80,  65285660672 },
        {"llama2-7b",                        32,  6738415616  },
        {"llama2-13b",                       40,  13015864320 },
        {"llama2-70b",                       80,  68976648192 },
        {"llama3-8b",                        32,  8030261248  },
        {"llama3-70b",                       80,  70553706496 },
        {"llama3-405b",                      126, 405853388800},
        {"llama3.2-1b",                      16,  1235814400  },
        {"llama3.2-3b",                      28,  3212749824  },
        {"mistral-7b",                       32,  7241732096  },
        {"mixtral-8x7b",                     32,  46702792704 },
        {"mixtral-8x22b",                    56,  140620634112},
        {"qwen2.5-0.5b",                     24,  494032768   },
        {"qwen2.5-1.5b",                     28,  1543714304  },
        {"qwen2.5-3b",                       36,  3085938688  },
        {"qwen2.5-7b",                       28,  7615616512  },
        {"qwen2.5-14b",                      48,  14770033664 },
        {"qwen2.5-32b",                      64,  32763876352 },
        {"qwen2.5-72b",                      80,  72706203648 },
        {"deepseek-moe-16b",                 28,  16375728128 },
        {"deepseek-v2-lite",                 27,  15706484224 },
        {"deepseek-v2",                      60,  235741434880},
        {"deepseek-v3",                      61,  671026419200},
        {"qwen3-0.6b",                       28,  596049920   },
        {"qwen3-1.7b",                       28,  1720574976  },
        {"qwen3-4b",                         36,  4022468096  },
        {"qwen3-8b",                         36,  8190735360  },
        {"qwen3-14b",                        40,  14768307200 },
        {"qwen3-32b",                        64,  32762123264 },
        {"qwen3-30b-a3b",                    48,  30532122624 },
        {"qwen3-235b-a22b",                  94,  235093634560},
        {"gemma-2b",                         18,  2506172416  },
        {"gemma-7b",                         28,  8537680896  },
        {"gemma2-2b",                        26,  2614341888  },
        {"gemma2-9b",                        42,  9241705984  },
        {"gemma2-27b",                       46,  27227128320 },
        {"gemma3-1b",                        26,  999885952   },
        {"gemma3-27b",                       62,  27009346304 },
        {"phi-2",                            32,  2779683840  },
        {"phi3-mini",                        32,  3821079552  },
        {"phi3-medium",                      40,  13960238080 },
        {"phi-4",                            40,  14659507200 },
        {"gpt-neox-20b",                     44,  20554567680 },
        {"pythia-6.9b",                      32,  6857302016  },
        {"opt-6.7b",                         32,  6658473984  },
        {"falcon-7b",                        32,  6921720704  },
        {"falcon-40b",                       60,  41303293952 },
        {"bloom-7b1",                        30,  7069016064  },
        {"bloom",                            70,  176247271424},
        {"starcoder2-3b",                    30,  3030371328  },
        {"olmo-7b",                          32,  6888095744  },
        {"olmo2-7b",                         32,  7298617344  },
        {"olmo2-32b",                        64,  32234279936 },
        {"granite3.1-8b",                    40,  8170848256  },
        {"command-r",                        40,  34980831232 },
        {"command-r-plus",                   64,  103810674688},
        {"gpt-oss-20b",                      24,  20914757184 },
        {"gpt-oss-120b",                     36,  116829156672},
        {"glm4-9b",                          40,  9400279040  },
        {"meta-llama/Llama-3.1-8B-Instruct", 32,  8030261248  },
        {"meta-llama/Meta-Llama-3-8B",       32,  8030261248  },
        {"Qwen/Qwen2.5-7B-Instruct",         28,  7615616512  },
        {"Qwen/Qwen3-32B",                   64,  32762123264 },
        {"google/gemma-2-9b-it",             42,  9241705984  },
        {"openai/gpt-oss-20b",               24,  20914757184 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model m = parse(cases[i].name);
        if (model_total_params(&m) != cases[i].params)
            fail_msg("%s: %lld, published %lld", cases[i].name, (long long)model_total_params(&m),
                     (long long)cases[i].params);
        assert_int_equal(m.num_layers, cases[i].layers);
        assert_int_equal(m.num_items, 2 * cases[i].layers + 3);
        model_clear(&m);
    }
}

/* Parameters that a token uses: all but those of the experts that it does not reach. */
static int64_t active_params(const struct model *model)
{
    const int64_t expert = 3 * (int64_t)model->hidden * model->expert_mlp;
    int64_t total = model_total_params(model);
    for (int i = 0; i < model->num_items; i++)
        if (model_item_has_experts(model, i))
            total -= (model->experts - model->experts_active) * expert;
    return total;
}

/* Active parameters: 12.9 B and 39 B (Mixtral), 2.8 B (DeepSeekMoE 16B), 21 B (V2), 37 B (V3, with
 * its embeddings 37.6 B). */
static void active_params__are_the_published_ones(void **state)
{
    static const struct {
        const char *name;
        double billions;
    } cases[] = {
        {"llama2-7b",        6.738},
        {"mixtral-8x7b",     12.88},
        {"mixtral-8x22b",    39.15},
        {"deepseek-moe-16b", 2.83 },
        {"deepseek-v2",      21.4 },
        {"deepseek-v3",      37.55},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model m = parse(cases[i].name);
        double got = (double)active_params(&m) / 1e9;
        if (got < cases[i].billions * 0.996 || got > cases[i].billions * 1.004)
            fail_msg("%s: %.3f B, published %.3f B", cases[i].name, got, cases[i].billions);
        model_clear(&m);
    }
}

/* The judge lists a layer's matrix products (rows, inner, columns) one by one. */
struct products {
    int64_t flops;
};

static void product(struct products *all, int64_t count, int64_t m, int64_t k, int64_t n)
{
    all->flops += 2 * count * m * k * n;
}

static void flops__are_those_of_the_products_one_by_one(void **state)
{
    (void)state;
    struct products p = {0};
    struct model m = parse("llama3-8b:seq=100");
    product(&p, 1, 100, 4096, 4096);    /* queries */
    product(&p, 2, 100, 4096, 8 * 128); /* keys, values */
    product(&p, 32, 100, 128, 100);     /* scores */
    product(&p, 32, 100, 100, 128);     /* context */
    product(&p, 1, 100, 4096, 4096);    /* output */
    assert_int_equal(m.items[1].fwd_flops, p.flops);
    p = (struct products){0};
    product(&p, 3, 100, 4096, 14336);
    assert_int_equal(m.items[2].fwd_flops, p.flops);
    p = (struct products){0};
    product(&p, 1, 100, 4096, 128256);
    assert_int_equal(m.items[m.num_items - 1].fwd_flops, p.flops);
    model_clear(&m);

    m = parse("deepseek-v2:seq=10");
    p = (struct products){0};
    product(&p, 1, 10, 5120, 1536); /* queries down, up */
    product(&p, 1, 10, 1536, 128 * (128 + 64));
    product(&p, 1, 10, 5120, 512 + 64); /* keys and values down, up */
    product(&p, 1, 10, 512, 128 * (128 + 128));
    product(&p, 128, 10, 128 + 64, 10); /* scores, context */
    product(&p, 128, 10, 10, 128);
    product(&p, 1, 10, 128 * 128, 5120); /* output */
    assert_int_equal(m.items[1].fwd_flops, p.flops);
    p = (struct products){0};
    product(&p, 3, 10, 5120, 12288); /* the first layer is dense */
    assert_int_equal(m.items[2].fwd_flops, p.flops);
    assert_false(model_item_has_experts(&m, 2));
    p = (struct products){0};
    product(&p, 1, 10, 5120, 160); /* router */
    product(&p, 3 * (6 + 2), 10, 5120, 1536);
    assert_int_equal(m.items[4].fwd_flops, p.flops);
    assert_true(model_item_has_experts(&m, 4));
    model_clear(&m);
}

static void stash__is_the_sum_of_the_tensors_that_are_kept(void **state)
{
    (void)state;
    const int64_t s = 7;
    struct model m = parse("llama3-8b:seq=7,dtype=bf16");
    int64_t kept = s * 4096 * 2       /* input of the norm */
                   + s * 4            /* its 1 / rms */
                   + s * 4096 * 2     /* input of queries, keys, values */
                   + s * 4096 * 2     /* queries */
                   + 2 * s * 1024 * 2 /* keys, values */
                   + s * 4096 * 2     /* input of the output linear */
                   + s * 32 * 4;      /* logarithms of the row sums */
    assert_int_equal(m.items[1].stash_bytes, kept);
    kept = 2 * s * 4096 * 2 + s * 4 + 3 * s * 14336 * 2;
    assert_int_equal(m.items[2].stash_bytes, kept);
    assert_int_equal(m.items[m.num_items - 1].stash_bytes, s * 4096 * 2 + s * 128256 * 4);
    model_clear(&m);
    m = parse("mixtral-8x7b:seq=7,dtype=bf16");
    kept = 2 * s * 4096 * 2 + s * 4 + s * 8 * 4 /* probabilities */
           + 2 * s * 12                         /* index and weight of each active expert */
           + 2 * s * (4096 + 4096) * 2          /* tokens in, out */
           + 2 * s * 3 * 14336 * 2;
    assert_int_equal(m.items[2].stash_bytes, kept);
    model_clear(&m);
}

static void modifiers__make_models_of_the_family(void **state)
{
    (void)state;
    struct model m = parse("llama:layers=2,hidden=256,heads=8,kv_heads=2,mlp=512,vocab=1000,seq=64,"
                           "tied_head=1,qkv_bias=true");
    assert_int_equal(m.head_dim, 32);
    assert_int_equal(m.kv_heads, 2);
    assert_int_equal(m.items[1].params, 2 * 256 * 256 + 2 * 256 * 64 + 256 + 128 + 256);
    assert_int_equal(m.items[m.num_items - 1].params, 0);
    assert_int_equal(m.items[m.num_items - 1].tied_params, 256000);
    assert_true(m.gated_mlp && m.rms_norm && m.rope && m.tied_head);
    model_clear(&m);
    m = parse("llama:layers=2,hidden=64,heads=4,head_dim=32,mlp=100,experts=4,experts_active=2");
    assert_int_equal(m.expert_mlp, 100);
    assert_int_equal(m.items[1].params, 4 * 64 * 128 + 64);
    assert_int_equal(m.items[2].params, 4 * 3 * 64 * 100 + 4 * 64 + 64);
    model_clear(&m);
    const struct model_spec spec = {.family = FAMILY_LLAMA, .hidden = 5120, .heads = 40};
    assert_int_equal(model_build(&spec, &m, NULL), OK);
    assert_int_equal(m.mlp, 13824); /* two thirds of 4 h, rounded up to 256: Llama 2 13B */
    model_clear(&m);
}

static void parse__refuses_dims_that_do_not_fit(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"llama3-8b:heads=33",                           "not a multiple of heads 33"              },
        {"llama3-8b:kv_heads=5",                         "heads 32 is not a multiple of kv_heads 5"},
        {"llama3-8b:kv_heads=64",                        "kv_heads must be 1..32, got 64"          },
        {"llama3-8b:max_seq=5",                          "no key 'max_seq'"                        },
        {"llama3-8b:experts_active=2",                   "need experts"                            },
        {"llama3-8b:experts=8",                          "experts_active must be 1..8, got 0"      },
        {"mixtral-8x7b:experts_active=9",                "experts_active must be 1..8, got 9"      },
        {"mixtral-8x7b:expert_groups=3",                 "is not a multiple of expert_groups 3"    },
        {"mixtral-8x7b:expert_groups=8,groups_active=1",
         "groups_active must be 1..8 and have 2 experts, got 1"                                    },
        {"mixtral-8x7b:expert_groups=4,groups_active=5", "groups_active must be 1..4"              },
        {"mixtral-8x7b:dense_layers=32",                 "dense_layers must be 0..31, got 32"      },
        {"llama3-8b:v_dim=128",                          "need kv_rank"                            },
        {"llama3-8b:kv_rank=512",                        "rope_dim must be 1.."                    },
        {"deepseek-v2:qkv_bias=1",                       "no qkv_bias"                             },
        {"llama3-8b:qkv_bias=2",                         "qkv_bias must be 0..1, got '2'"          },
        {"gpt2:kv_heads=4",                              "no key 'kv_heads'"                       },
        {"lama3-8b",                                     "did you mean 'llama3-8b'"                },
        {"deepseek-v3:hidden=1048576,head_dim=1048576,v_dim=1048576,heads=1048576,layers=65535,"
         "experts=65536,expert_mlp=1048576",    "overflows"                               },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model m = {0};
        struct err err = {0};
        enum status rc = model_parse(cases[i].text, &m, &err);
        if (rc != ERR_INPUT || !strstr(err.msg, cases[i].says) || m.items)
            fail_msg("'%s': status %d, '%s'", cases[i].text, (int)rc, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets__have_the_parameters_of_the_checkpoints),
        cmocka_unit_test(active_params__are_the_published_ones),
        cmocka_unit_test(flops__are_those_of_the_products_one_by_one),
        cmocka_unit_test(stash__is_the_sum_of_the_tensors_that_are_kept),
        cmocka_unit_test(modifiers__make_models_of_the_family),
        cmocka_unit_test(parse__refuses_dims_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
