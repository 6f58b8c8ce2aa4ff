/* Parts of layers that run again inside the backward: what a layer then keeps, by the lists of torchtitan
 * (distributed/activation_checkpoint.py) and of Megatron-LM (--recompute-modules), written out by hand. */
#include "partition/cost/kernels.h"
#include "partition/layout/model_shard.h"
#include "partition/model/attention.h"
#include "partition/model/framework.h"
#include "partition/model/rerun.h"
#include "partition/plan/plan.h"
#include "tests/unit/test.h"

static void make(const char *name, int seq, enum framework_kind framework, struct model *model)
{
    struct model_spec spec;
    struct err err = {0};
    assert_int_equal(model_preset(name, &spec, &err), OK);
    spec.seq = seq;
    spec.elem_bytes = 2;
    assert_int_equal(model_build(&spec, model, &err), OK);
    model_set_framework(model, framework, NORM_AUTO);
    model_set_attention(model, ATTENTION_FUSED);
}

static int64_t kept(const struct model *model, int item, enum rerun rerun)
{
    return model->items[item].stash_bytes - model_rerun_bytes(model, item, rerun);
}

/* mm 1, 3, 5 and 7 of a Llama's layer are saved: queries, values, gate and down; keys, output and up run again. */
static void model_rerun_bytes__keeps_every_second_product_under_op(void **state)
{
    (void)state;
    const int64_t s = 8192, h = 4096, kv = 1024, m = 14336, a = 32, e = 2;
    struct model model = {0};
    make("llama3-8b", (int)s, FRAMEWORK_FSDP_COMPILED, &model);
    const int64_t input = s * h * e, core = s * h * e + 4 * s * a;
    assert_int_equal(kept(&model, 1, RERUN_OPS), input + s * (h + kv) * e + core);
    assert_int_equal(kept(&model, 2, RERUN_OPS), s * (m + h) * e);
    assert_int_equal(model_rerun_flops(&model, 1, RERUN_OPS), 2 * s * (h * kv + h * h));
    assert_int_equal(model_rerun_flops(&model, 2, RERUN_OPS), 2 * s * h * m);
    model_clear(&model);
    /* Norms by operators keep more; what op keeps is the same, because they run again. */
    make("llama3-8b", (int)s, FRAMEWORK_FSDP, &model);
    assert_int_equal(kept(&model, 1, RERUN_OPS), input + s * (h + kv) * e + core);
    model_clear(&model);
}

static void model_rerun_bytes__gives_up_norms_and_activations(void **state)
{
    (void)state;
    const int64_t s = 1024, e = 2;
    struct model model = {0};
    make("llama3-8b", (int)s, FRAMEWORK_MEGATRON_TE, &model);
    assert_int_equal(model_rerun_bytes(&model, 1, RERUN_NORMS), s * 4096 * e);
    assert_int_equal(model_rerun_bytes(&model, 2, RERUN_NORMS), s * (4096 + 14336) * e);
    assert_int_equal(model_rerun_flops(&model, 1, RERUN_NORMS), 0);
    model_clear(&model);
    /* DeepSeek-V3: ranks of 1,536 and 512; 128 heads of 128 + 64 and values of 128. */
    make("deepseek-v3", (int)s, FRAMEWORK_MEGATRON_TE, &model);
    const int64_t heads = 128 * (2 * 192 + 128);
    assert_int_equal(model_rerun_bytes(&model, 1, RERUN_NORMS),
                     s * (7168 + 1536 + 512 + heads) * e);
    assert_int_equal(model_rerun_flops(&model, 1, RERUN_NORMS),
                     2 * s * 128 * (1536 * 192 + 512 * 256));
    model_clear(&model);
}

/* No part gives up more than an item keeps, on any share of a device; op gives up most. */
static void model_rerun_bytes__stays_within_the_stash(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3-8b", "deepseek-v3", "mixtral-8x7b", "gpt2",
                                        "bert-base", "vit-b16",     "qwen3-30b-a3b"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (int f = 0; f < FRAMEWORK_KIND_COUNT; f++) {
            struct model model = {0};
            struct model_spec spec;
            if (model_preset(names[n], &spec, NULL) != OK)
                continue;
            make(names[n], spec.seq, (enum framework_kind)f, &model);
            for (int i = 0; i < model.num_items; i++)
                for (int p = 0; p < RERUN_COUNT; p++) {
                    const int64_t got = model_rerun_bytes(&model, i, (enum rerun)p);
                    const bool layer =
                        model.items[i].kind == ITEM_ATTENTION || model.items[i].kind == ITEM_MLP;
                    assert_true(got >= 0 && got <= model.items[i].stash_bytes);
                    assert_true(p == RERUN_CORE || (layer ? got > 0 : got == 0));
                    assert_true(model_rerun_flops(&model, i, (enum rerun)p) <=
                                model.items[i].fwd_flops);
                }
            model_clear(&model);
        }
}

/* The products of the list are those that run again, each with the shape that the forward gives it. */
static void kernels_of_rerun__lists_the_products_that_run_again(void **state)
{
    (void)state;
    const struct cost_options options = {0};
    struct kernel list[KERNELS_MAX];
    struct model model = {0};
    make("llama3-8b", 512, FRAMEWORK_FSDP_COMPILED, &model);
    for (int item = 1; item <= 2; item++)
        for (int p = RERUN_NORMS; p < RERUN_COUNT; p++) {
            const int n = kernels_of_rerun(&model, item, (enum rerun)p, 3, &options, list);
            double flops = 0;
            for (int i = 0; i < n; i++)
                flops += list[i].flops;
            assert_true(n > 0);
            assert_true(flops == 3.0 * (double)model_rerun_flops(&model, item, (enum rerun)p));
        }
    model_clear(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_rerun_bytes__keeps_every_second_product_under_op),
        cmocka_unit_test(model_rerun_bytes__gives_up_norms_and_activations),
        cmocka_unit_test(model_rerun_bytes__stays_within_the_stash),
        cmocka_unit_test(kernels_of_rerun__lists_the_products_that_run_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
