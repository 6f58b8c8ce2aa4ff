/* Low-rank adapters beside a frozen base: parameters, bytes and passes, by closed forms on layers of
 * Llama 3 8B. */
#include "partition/cost/cost.h"
#include "partition/cost/kernels.h"
#include "partition/layout/model_shard.h"
#include "partition/model/framework.h"
#include "partition/model/lora.h"
#include "partition/plan/rates.h"
#include "partition/step/workload.h"
#include "tests/unit/test.h"

enum { LAYERS = 3, H = 4096, KEYS = 1024, QKV = H + 2 * KEYS, WIDTH = 14336, RANK = 16, SEQ = 128 };
#define TEXT "llama3-8b:layers=3,seq=128,dtype=bf16"

static const char *const groups[] = {"all", "attention", "qkv", "mlp"};
enum { GROUPS = sizeof groups / sizeof *groups };

static struct lora_ask ask_of(int rank, const char *targets, enum lora_base base)
{
    struct lora_ask ask = {.rank = rank, .base = base, .head = true};
    snprintf(ask.targets, sizeof ask.targets, "%s", targets);
    return ask;
}

static struct model lora_of(const char *text, const char *targets, enum lora_base base)
{
    const struct lora_ask ask = ask_of(RANK, targets, base);
    struct model model = {0};
    struct err err = {0};
    assert_int_equal(model_parse(text, &model, &err), OK);
    if (model_set_lora(&model, &ask, &err) != OK)
        fail_msg("%s", err.msg);
    return model;
}
static struct model lora_model(const char *targets, enum lora_base base)
{
    return lora_of(TEXT, targets, base);
}

static int64_t base_of(const struct model *model)
{
    int64_t sum = 0;
    for (int i = 0; i < model->num_items; i++)
        sum += model->items[i].base_params;
    return sum;
}

/* An adapter of a product [k -> n] has r (k + n) parameters; nothing else trains. */
static void model_set_lora__leaves_only_adapters_to_train(void **state)
{
    (void)state;
    enum { QKV_EACH = 3 * H + QKV, MLP_EACH = 3 * (H + WIDTH) };
    static const struct {
        const char *targets;
        int64_t each;
    } rows[] = {
        {"all",                    QKV_EACH + 2 * H + MLP_EACH},
        {"attention",              QKV_EACH + 2 * H           },
        {"qkv",                    QKV_EACH                   },
        {"mlp",                    MLP_EACH                   },
        {"q_proj,v_proj",          2 * H + H + KEYS           },
        {"mlp.up_proj, self_attn", 0                          },
        {"k_proj, attention",      QKV_EACH + 2 * H           },
    };
    struct model whole = {0};
    assert_int_equal(model_parse(TEXT, &whole, NULL), OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct lora_ask ask = ask_of(RANK, rows[i].targets, LORA_BASE_SAME);
        struct model model = {0};
        assert_int_equal(model_parse(TEXT, &model, NULL), OK);
        if (rows[i].each == 0) { /* a part of a name names nothing */
            assert_int_equal(model_set_lora(&model, &ask, NULL), ERR_INPUT);
            model_clear(&model);
            continue;
        }
        assert_int_equal(model_set_lora(&model, &ask, NULL), OK);
        assert_int_equal(model_total_params(&model), LAYERS * RANK * rows[i].each);
        assert_int_equal(base_of(&model), model_total_params(&whole));
        model_clear(&model);
    }
    model_clear(&whole);
}

static void model_set_lora__names_what_is_not_there(void **state)
{
    (void)state;
    static const struct {
        const char *model, *names;
        int rank;
        const char *targets;
        enum status rc;
    } cases[] = {
        {"uniform:layers=4,fwd=1ms", "no such layers",                                     16,   "all",       ERR_INFEASIBLE},
        {"t5-small",                 "no such layers",                                     16,   "all",       ERR_INFEASIBLE},
        {"mixtral-8x7b",             "have experts",                                       16,   "mlp",       ERR_INFEASIBLE},
        {"deepseek-v2-lite",         "latent",                                             16,   "attention", ERR_INFEASIBLE},
        {"llama3-8b",                "at most the width",                                  4097, "all",       ERR_INFEASIBLE},
        {"llama3-8b",                "'c_attn' names no product of",                       16,   "c_attn",    ERR_INPUT     },
        {"gpt2",                     "'' names no product of",                             16,   "c_attn,",   ERR_INPUT     },
        {"bert-base:task=mlm",       "'dense' also names cls.predictions.transform.dense", 16,   "dense",
         ERR_INFEASIBLE                                                                                                     },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model model = {0};
        struct err err = {0};
        assert_int_equal(model_parse(cases[i].model, &model, NULL), OK);
        const struct lora_ask ask = ask_of(cases[i].rank, cases[i].targets, LORA_BASE_SAME);
        assert_int_equal(model_set_lora(&model, &ask, &err), cases[i].rc);
        if (!strstr(err.msg, cases[i].names))
            fail_msg("%s", err.msg);
        model_clear(&model);
    }
}

enum { R = 4 };

struct bench {
    struct model model;
    struct cluster cluster;
    struct cost cost;
    struct plan plan;
    int cut[2], device[8];
    struct workload workload;
};

static enum status plain_ns(const void *ctx, const struct model *model, int item, enum pass pass,
                            int64_t samples, const struct device *device, int64_t *ns,
                            bool *extrapolated, struct err *err)
{
    (void)ctx, (void)model, (void)item, (void)pass, (void)samples, (void)device, (void)extrapolated,
        (void)err;
    *ns = 1000;
    return OK;
}

static const struct stage_cost *bench_build(struct bench *b, enum lora_base base, int tensor,
                                            enum shard_mode shard)
{
    struct err err = {0};
    memset(b, 0, sizeof *b);
    b->model = lora_model("all", base);
    assert_int_equal(cluster_grid(1, R * tensor, &b->cluster, NULL), OK);
    b->cost = (struct cost){.source = COST_ROOFLINE, .item_ns = plain_ns};
    b->cut[1] = b->model.num_items;
    for (int r = 0; r < R; r++)
        b->device[r] = r * tensor;
    b->plan = (struct plan){
        .num_ranks = 1,
        .chunks = 1,
        .num_pipelines = R,
        .layout.tensor = tensor,
        .layout.shard = shard,
        .batch = 1,
        .microbatches = {1, 1, 1},
        .schedule = SCHEDULE_1F1B,
        .num_stages = 1,
        .first_item = b->cut,
        .device = b->device,
        .optim_bytes_per_param = 8
    };
    const struct setting setting = {&b->model, &b->cluster, &b->cost};
    if (workload_build(&setting, &b->plan, NULL, &b->workload, &err) != OK)
        fail_msg("%s", err.msg);
    return b->workload.stages;
}

static void bench_clear(struct bench *b)
{
    workload_clear(&b->workload);
    model_clear(&b->model);
    cluster_clear(&b->cluster);
}

/* 18 bytes of each adapter's parameter, as of any that trains in bf16; of the base 2, 1, 0.516 or 0.5195, no
 * gradients and no state. Buckets carry adapters only. With weights divided the base is divided too. */
static void workload__the_base_has_no_gradients_and_no_state(void **state)
{
    (void)state;
    static const double bytes[LORA_BASE_COUNT] = {2, 1, 4.127 / 8, 4.15625 / 8};
    for (int base = 0; base < LORA_BASE_COUNT; base++)
        for (int shard = 0; shard < SHARD_MODE_COUNT; shard += SHARD_WEIGHTS) {
            struct bench b;
            const struct stage_cost *got =
                bench_build(&b, (enum lora_base)base, 1, (enum shard_mode)shard);
            const int64_t ways = shard ? R : 1, params = model_total_params(&b.model);
            const double held = (double)base_of(&b.model) * bytes[base] / (double)ways;
            assert_int_equal(got->grad_bytes, 4 * params / ways);
            assert_int_equal(got->optim_bytes, 8 * params / ways);
            assert_int_equal(got->weight_bytes, 6 * params / ways);
            assert_true(fabs((double)got->frozen_bytes - held) < 2 * b.model.num_items);
            if (!shard)
                assert_int_equal(b.workload.buckets[0].bytes, 4 * params);
            bench_clear(&b);
        }
}

/* A group of T divides the base as it divides the model, and of each adapter the half whose product's
 * weights are divided: the other half has the width of the whole tensor. */
static void workload__groups_divide_half_of_each_adapter(void **state)
{
    (void)state;
    struct bench b;
    for (int T = 2; T <= 8; T *= 2) {
        const int64_t kept = 7 * H, split = QKV + H + 2 * WIDTH + WIDTH;
        const struct stage_cost *got = bench_build(&b, LORA_BASE_SAME, T, SHARD_NONE);
        struct model whole = {0}, part = {0};
        assert_int_equal(model_parse(TEXT, &whole, NULL), OK);
        assert_int_equal(model_shard(&whole, T, false, &part, NULL), OK);
        assert_int_equal(got->grad_bytes, 4 * LAYERS * RANK * (kept + split / T));
        assert_int_equal(got->frozen_bytes, 2 * model_total_params(&part));
        model_clear(&whole);
        model_clear(&part);
        bench_clear(&b);
    }
}

static double list_flops(const struct model *model, int item, enum pass pass)
{
    const struct cost_options options = {.efficiency = 1};
    struct kernel list[KERNELS_MAX];
    const int n = kernels_of(model, item, pass, 1, &options, list);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += list[i].flops;
    return sum;
}

/* Kernels of a layer: forward and input half have the base's products and the adapters', the weight half
 * the adapters' alone: nothing where there is none. */
static void kernels_of__the_weight_half_has_adapters_alone(void **state)
{
    (void)state;
    struct model whole = {0};
    assert_int_equal(model_parse(TEXT, &whole, NULL), OK);
    for (int g = 0; g < GROUPS; g++) {
        struct model model = lora_model(groups[g], LORA_BASE_SAME);
        for (int i = 0; i < model.num_items; i++) {
            const double own = 2.0 * SEQ * (double)model.items[i].params;
            for (int pass = PASS_FWD; pass <= PASS_BWD_INPUT; pass++)
                if (pass == PASS_FWD || pass == PASS_BWD_INPUT)
                    assert_true(list_flops(&model, i, (enum pass)pass) ==
                                list_flops(&whole, i, (enum pass)pass) + own);
            assert_true(list_flops(&model, i, PASS_BWD_WEIGHT) == own);
        }
        model_clear(&model);
    }
    model_clear(&whole);
}

/* Model flops: forward and gradients of inputs, two thirds of full training, and three times the
 * adapters' products. */
static void rates__count_two_passes_of_the_base(void **state)
{
    (void)state;
    struct model whole = {0}, model = lora_model("all", LORA_BASE_SAME);
    const struct plan plan = {.num_ranks = 1, .num_pipelines = 1};
    assert_int_equal(model_parse(TEXT, &whole, NULL), OK);
    const double all = rates_sample_flops(&whole, &plan).model,
                 got = rates_sample_flops(&model, &plan).model;
    const double adapters = 2.0 * SEQ * (double)model_total_params(&model);
    assert_true(fabs(got - (all / 3 * 2 + 3 * adapters)) < 1e-9 * all);
    model_clear(&whole);
    model_clear(&model);
}

/* What autograd of PyTorch 2.15 does not keep of an MLP of Llama once its weights are frozen, by
 * saved_tensors_hooks on LlamaMLP and LlamaRMSNorm of transformers 5.24 (hidden 64, width 176, 32 tokens,
 * bf16): 61,568 bytes are 42,112, a normalised tensor, the linears' input and that of down_proj. */
static void model_set_lora__drops_inputs_that_nobody_needs(void **state)
{
    (void)state;
    enum { TOKENS = 32, HIDDEN = 64, MLP = 176, E = 2 };
    static const struct {
        enum framework_kind framework;
        const char *targets;
        int64_t attention, mlp;
    } rows[] = {
        {FRAMEWORK_HF_EAGER,    "attention", TOKENS * HIDDEN * E,     61568 - 42112              },
        {FRAMEWORK_HF_EAGER,    "all",       TOKENS * HIDDEN * E,     TOKENS * HIDDEN * E        },
        {FRAMEWORK_HF_EAGER,    "mlp",       2 * TOKENS * HIDDEN * E, TOKENS * HIDDEN * E        },
        {FRAMEWORK_MEGATRON_TE, "attention", 0,                       TOKENS * (HIDDEN + MLP) * E},
        {FRAMEWORK_MEGATRON_TE, "all",       0,                       0                          },
        {FRAMEWORK_OURS,        "attention", 0,                       0                          },
        {FRAMEWORK_AUTO,        "attention", 0,                       0                          },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const struct lora_ask ask = ask_of(4, rows[r].targets, LORA_BASE_SAME);
        struct model model = {0}, part = {0};
        struct err err = {0};
        assert_int_equal(
            model_parse("llama:layers=2,hidden=64,heads=4,mlp=176,seq=32,vocab=128,dtype=bf16",
                        &model, &err),
            OK);
        model_set_framework(&model, rows[r].framework, NORM_AUTO);
        const int64_t attention = model.items[1].stash_bytes, mlp = model.items[2].stash_bytes;
        assert_int_equal(model_set_lora(&model, &ask, &err), OK);
        assert_int_equal(attention - model.items[1].stash_bytes, rows[r].attention);
        assert_int_equal(mlp - model.items[2].stash_bytes, rows[r].mlp);
        /* Without sequence parallelism a group of two divides only what is of the MLP's width. */
        const int64_t tokens = model_unkept_bytes(&model, 2, true);
        assert_int_equal(model_shard(&model, 2, false, &part, &err), OK);
        const int64_t whole = model.items[2].stash_bytes, half = part.items[2].stash_bytes;
        model_clear(&model);
        model_clear(&part);
        assert_int_equal(
            model_parse("llama:layers=2,hidden=64,heads=4,mlp=176,seq=32,vocab=128,dtype=bf16",
                        &model, &err),
            OK);
        model_set_framework(&model, rows[r].framework, NORM_AUTO);
        assert_int_equal(model_shard(&model, 2, false, &part, &err), OK);
        assert_int_equal(part.items[2].stash_bytes - half,
                         tokens + (model.items[2].stash_bytes - whole - tokens) / 2);
        model_clear(&model);
        model_clear(&part);
    }
}

/* What autograd of PyTorch 2.15 keeps of a layer with dropped inputs of adapters (tests/reference/stash_peer.py:
 * hidden 64, two heads of keys, width 176, 32 tokens, bf16, without the adapters' own [tokens, rank] numbers):
 * attention 29,312 bytes, an MLP 26,752, with SwiGLU's input in fp8 15,488. Attention that computes in fp8 keeps
 * a byte of queries, keys and values, and of its output where scales are of earlier steps. */
static void model_keep_fp8__keeps_a_byte_in_place_of_two(void **state)
{
    (void)state;
    enum { TOKENS = 32, HIDDEN = 64, OF_KEYS = 32 };
    struct lora_ask ask = ask_of(4, "attention", LORA_BASE_SAME);
    ask.dropout = 0.1;
    for (int bits = 0; bits < 8; bits++) {
        const bool attention = bits & 1, delayed = bits & 2, activation = bits & 4;
        struct model model = {0};
        assert_int_equal(
            model_parse(
                "llama:layers=1,hidden=64,heads=4,kv_heads=2,mlp=176,seq=32,vocab=128,dtype=bf16",
                &model, NULL),
            OK);
        model_set_framework(&model, FRAMEWORK_MEGATRON_TE, NORM_AUTO);
        assert_int_equal(model_set_lora(&model, &ask, NULL), OK);
        model_keep_fp8(&model, attention, delayed, activation);
        const int64_t less = attention ? HIDDEN + 2 * OF_KEYS + (delayed ? HIDDEN : 0) : 0;
        assert_int_equal(model.items[1].stash_bytes, 29312 - TOKENS * less);
        assert_int_equal(model.items[2].stash_bytes, activation ? 15488 : 26752);
        model_clear(&model);
    }
}

/* An input that is kept in fp8 is cast, and backwards cast back: 3 bytes for each number of gate and up. */
static void kernels_of__an_input_kept_in_fp8_is_cast_each_way(void **state)
{
    (void)state;
    const struct cost_options options = {.efficiency = 1};
    for (int back = 0; back < 2; back++) {
        double bytes[2] = {0};
        for (int narrow = 0; narrow < 2; narrow++) {
            struct model model = {0};
            struct kernel list[KERNELS_MAX];
            assert_int_equal(model_parse(TEXT, &model, NULL), OK);
            model.elem_bytes = 2;
            model_keep_fp8(&model, false, false, narrow);
            for (int i =
                     kernels_of(&model, 2, back ? PASS_BWD_INPUT : PASS_FWD, 1, &options, list) - 1;
                 i >= 0; i--)
                bytes[narrow] += list[i].bytes;
            model_clear(&model);
        }
        assert_true(fabs((bytes[1] - bytes[0]) / (3.0 * 2 * SEQ * WIDTH) - 1) < 1e-9);
    }
}

/* One adapter on the fused product has r (k + n) parameters where three had 3 r k + r n. */
static void model_set_lora__has_one_adapter_for_a_fused_product(void **state)
{
    (void)state;
    struct lora_ask ask = ask_of(RANK, "all", LORA_BASE_SAME);
    struct lora_product list[LORA_PRODUCTS];
    struct model model = {0};
    ask.fused_qkv = true;
    assert_int_equal(model_parse(TEXT, &model, NULL), OK);
    assert_int_equal(model_set_lora(&model, &ask, NULL), OK);
    assert_int_equal(lora_products(&model, 1, list), 2);
    assert_int_equal(list[0].out, QKV);
    assert_int_equal(lora_products(&model, 2, list), 3);
    assert_int_equal(model.items[1].params, RANK * (H + QKV + 2 * H));
    model_clear(&model);
}

static struct model model_with_dropout(double dropout, enum framework_kind framework)
{
    struct lora_ask ask = ask_of(RANK, "all", LORA_BASE_SAME);
    struct model model = {0};
    ask.dropout = dropout;
    assert_int_equal(model_parse(TEXT, &model, NULL), OK);
    model_set_framework(&model, framework, NORM_FUSED);
    assert_int_equal(model_set_lora(&model, &ask, NULL), OK);
    return model;
}

/* Each adapted product drops its own copy of its input: 2 bytes and a byte of mask are kept, by a framework in
 * place of the input, and the device reads and writes it and the mask, forward and back. */
static void model_set_lora__counts_dropout_of_the_adapters_inputs(void **state)
{
    (void)state;
    const struct cost_options options = {.efficiency = 1};
    const double inputs[] = {0, 4 * H, 2 * H + WIDTH}; /* q k v o; gate up down */
    const double before[] = {0, H, H + WIDTH};         /* attention keeps its output itself */
    for (int named = 0; named < 2; named++) {
        const enum framework_kind framework = named ? FRAMEWORK_HF_EAGER : FRAMEWORK_AUTO;
        struct model kept = model_with_dropout(0, framework),
                     dropped = model_with_dropout(0.1, framework);
        for (int item = 1; item <= 2; item++) {
            assert_true((double)(dropped.items[item].stash_bytes - kept.items[item].stash_bytes) ==
                        SEQ * (3 * inputs[item] - named * 2 * before[item]));
            for (int back = 0; back < 2; back++) {
                const enum pass pass = back ? PASS_BWD_INPUT : PASS_FWD;
                struct kernel list[KERNELS_MAX];
                double more = 0;
                for (int i = kernels_of(&dropped, item, pass, 1, &options, list) - 1; i >= 0; i--)
                    more += list[i].bytes;
                for (int i = kernels_of(&kept, item, pass, 1, &options, list) - 1; i >= 0; i--)
                    more -= list[i].bytes;
                assert_true(fabs(more / (5 * SEQ * inputs[item]) - 1) < 1e-9);
            }
        }
        /* A group of two divides what second products keep, not what first ones do. */
        struct model half = {0}, half_kept = {0};
        assert_int_equal(model_shard(&dropped, 2, false, &half, NULL), OK);
        assert_int_equal(model_shard(&kept, 2, false, &half_kept, NULL), OK);
        assert_true((double)(half.items[2].stash_bytes - half_kept.items[2].stash_bytes) ==
                    SEQ * (3 * (2 * H + WIDTH / 2.0) - named * 2 * (H + WIDTH / 2.0)));
        model_clear(&half);
        model_clear(&half_kept);
        model_clear(&dropped);
        model_clear(&kept);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_keep_fp8__keeps_a_byte_in_place_of_two),
        cmocka_unit_test(kernels_of__an_input_kept_in_fp8_is_cast_each_way),
        cmocka_unit_test(model_set_lora__has_one_adapter_for_a_fused_product),
        cmocka_unit_test(model_set_lora__counts_dropout_of_the_adapters_inputs),
        cmocka_unit_test(model_set_lora__leaves_only_adapters_to_train),
        cmocka_unit_test(model_set_lora__names_what_is_not_there),
        cmocka_unit_test(workload__the_base_has_no_gradients_and_no_state),
        cmocka_unit_test(workload__groups_divide_half_of_each_adapter),
        cmocka_unit_test(kernels_of__the_weight_half_has_adapters_alone),
        cmocka_unit_test(rates__count_two_passes_of_the_base),
        cmocka_unit_test(model_set_lora__drops_inputs_that_nobody_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
