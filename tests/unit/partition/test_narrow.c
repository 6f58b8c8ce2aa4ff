/* What layers keep from forward to backward where their products are in a narrow format, tensor by
 * tensor, for Transformer Engine's modules. */
#include "partition/layout/model_shard.h"
#include "partition/model/framework.h"
#include "tests/unit/test.h"

enum { S = 128 };

/* Bytes of a token, of an attention or MLP item of layer 0: h hidden, ad queries, gd keys, m width. */
enum { H = 8192, AD = 8192, GD = 1024, M = 28672 };

static struct model narrow_model(const char *text, enum framework_kind kind, int thirty_seconds)
{
    struct model model = {0};
    struct err err = {0};
    if (model_parse(text, &model, &err) != OK)
        fail_msg("%s", err.msg);
    model_set_framework(&model, kind, NORM_AUTO);
    if (thirty_seconds > 0)
        model_keep_narrow(&model, thirty_seconds);
    return model;
}

static void assert_bytes(double got, double want, const char *what, int n)
{
    if (fabs(got - want) > 2)
        fail_msg("%s with %d/32: %.1f bytes a token, by hand %.1f", what, n, got, want);
}

static void model_keep_narrow__keeps_inputs_of_products(void **state)
{
    (void)state;
    static const int formats[] = {0, 32, 33, 18};
    for (int f = 0; f < 4; f++) {
        const double n = formats[f] / 32.0, input = formats[f] ? n : 2;
        struct model model = narrow_model("llama3-70b:layers=1,seq=128,dtype=bf16",
                                          FRAMEWORK_MEGATRON_TE, formats[f]);
        /* input of the norm and 1 / rms; its output; queries, keys, values and attention's output and
         * its sums; the copy of the output that the projection keeps, which bf16 shares */
        const double attention = 2 * H + 4 + input * H + 2 * (2 * AD + 2 * GD) + 4 * 64 + n * AD;
        /* gate and up in bf16, what they make as the input of the second linear */
        const double mlp = 2 * H + 4 + input * H + 2 * 2 * M + input * M;
        assert_bytes((double)model.items[1].stash_bytes / S, attention, "attention", formats[f]);
        assert_bytes((double)model.items[2].stash_bytes / S, mlp, "MLP", formats[f]);
        model_clear(&model);
    }
}

/* Under T = 4 the norms' inputs and outputs are whole on each device, or with sequence_parallel a
 * quarter; the rest is a quarter. */
static void model_shard__divides_narrow_inputs(void **state)
{
    (void)state;
    for (int tokens = 0; tokens < 2; tokens++) {
        struct model model =
            narrow_model("llama3-70b:layers=1,seq=128,dtype=bf16", FRAMEWORK_MEGATRON_TE, 33);
        struct model part = {0};
        const double n = 33 / 32.0, ways = tokens ? 4 : 1;
        assert_int_equal(model_shard(&model, 4, tokens, &part, NULL), OK);
        assert_bytes((double)part.items[1].stash_bytes / S,
                     (2 * H + 4 + n * H) / ways + (2 * (2 * AD + 2 * GD) + 4 * 64 + n * AD) / 4,
                     "attention", 33);
        assert_bytes((double)part.items[2].stash_bytes / S,
                     (2 * H + 4 + n * H) / ways + (4.0 * M + n * M) / 4, "MLP", 33);
        model_clear(&part);
        model_clear(&model);
    }
}

/* Qwen3 30B-A3B: 8 of 128 experts of width 768, hidden 2,048. The router keeps the norm's output. An
 * expert's output is not kept where its weight multiplies the activation. */
static void model_keep_narrow__keeps_inputs_of_experts(void **state)
{
    (void)state;
    static const struct {
        enum framework_kind kind;
        int format;
        double token, made, output; /* bytes of an element */
    } cases[] = {
        {FRAMEWORK_AUTO,        0,  2, 2, 2},
        {FRAMEWORK_AUTO,        32, 1, 1, 2},
        {FRAMEWORK_MEGATRON_TE, 0,  2, 2, 0},
        {FRAMEWORK_MEGATRON_TE, 32, 1, 1, 0},
    };
    for (int c = 0; c < 4; c++) {
        struct model model = narrow_model("qwen3-30b-a3b:layers=1,seq=128,dtype=bf16",
                                          cases[c].kind, cases[c].format);
        const double each =
            (cases[c].token + cases[c].output) * 2048 + 2 * 2 * 768 + cases[c].made * 768 + 12;
        assert_bytes((double)model.items[2].stash_bytes / S, 4 * 2048 + 4 + 4 * 128 + 8 * each,
                     "experts", cases[c].format);
        model_clear(&model);
    }
}

/* torchao's linears keep their input in bf16. */
static void model_keep_narrow__keeps_wide_inputs_where_the_framework_does(void **state)
{
    (void)state;
    static const enum framework_kind kinds[] = {FRAMEWORK_FSDP, FRAMEWORK_FSDP_COMPILED,
                                                FRAMEWORK_HF_EAGER};
    for (int k = 0; k < 3; k++) {
        struct model wide = narrow_model("llama3-8b:layers=1,seq=128,dtype=bf16", kinds[k], 0);
        struct model model = narrow_model("llama3-8b:layers=1,seq=128,dtype=bf16", kinds[k], 32);
        for (int i = 0; i < model.num_items; i++)
            assert_int_equal(model.items[i].stash_bytes, wide.items[i].stash_bytes);
        model_clear(&model);
        model_clear(&wide);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_keep_narrow__keeps_inputs_of_products),
        cmocka_unit_test(model_shard__divides_narrow_inputs),
        cmocka_unit_test(model_keep_narrow__keeps_inputs_of_experts),
        cmocka_unit_test(model_keep_narrow__keeps_wide_inputs_where_the_framework_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
