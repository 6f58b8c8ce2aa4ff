/* Constant and roofline cost sources. */
#include "partition/cost/cost.h"
#include "tests/unit/test.h"

static struct item opaque = {.name = "o",
                             .kind = ITEM_OPAQUE,
                             .fwd_ns = 10,
                             .fwd_stash_ns = 3,
                             .bwd_input_ns = 20,
                             .bwd_weight_ns = 30,
                             .bwd_rest_ns = 15,
                             .update_ns = 40};
static struct device device = {.kind = "h200", .speed = 1};

static int64_t ask(const struct cost *cost, const struct model *model, enum pass pass,
                   int64_t samples)
{
    int64_t ns = -1;
    bool extrapolated = false;
    assert_int_equal(
        cost->item_ns(cost->ctx, model, 0, pass, samples, &device, &ns, &extrapolated, NULL), OK);
    assert_false(extrapolated);
    return ns;
}

static void cost_constant__scales_with_samples_unless_per_microbatch(void **state)
{
    (void)state;
    struct cost cost;
    cost_constant(&cost);
    struct model model = {.num_items = 1, .items = &opaque};
    assert_int_equal(ask(&cost, &model, PASS_FWD, 7), 70);
    assert_int_equal(ask(&cost, &model, PASS_BWD_INPUT, 7), 140);
    assert_int_equal(ask(&cost, &model, PASS_BWD_WEIGHT, 7), 210);
    assert_int_equal(ask(&cost, &model, PASS_BWD_REST, 7), 105);
    assert_int_equal(ask(&cost, &model, PASS_FWD_NOGRAD, 7), 49);
    assert_int_equal(ask(&cost, &model, PASS_UPDATE, 7), 40);
    model.per_microbatch = true;
    assert_int_equal(ask(&cost, &model, PASS_FWD, 7), 10);
    assert_int_equal(ask(&cost, &model, PASS_BWD_WEIGHT, 7), 30);
    assert_int_equal(cost.source, COST_CONSTANT);
}

static void cost_constant__refuses_when_item_is_no_constant_or_overflows(void **state)
{
    (void)state;
    struct cost cost;
    struct err err = {0};
    int64_t ns;
    bool extrapolated;
    cost_constant(&cost);
    struct item item = opaque;
    struct model model = {.num_items = 1, .items = &item, .name = "m"};
    item.fwd_ns = INT64_MAX / 2;
    assert_int_equal(cost.item_ns(NULL, &model, 0, PASS_FWD, 3, &device, &ns, &extrapolated, &err),
                     ERR_INPUT);
    item.kind = ITEM_MLP;
    err = (struct err){0};
    assert_int_equal(cost.item_ns(NULL, &model, 0, PASS_FWD, 1, &device, &ns, &extrapolated, &err),
                     ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "no constant times"));
}

static void cost_roofline__is_the_larger_of_compute_and_memory(void **state)
{
    (void)state;
    struct cost cost;
    cost_roofline(&cost, NULL);
    /* a linear of h x h over 100 tokens, bf16 */
    struct item item = {.name = "l",
                        .kind = ITEM_MLP,
                        .params = 1000000,
                        .fwd_flops = 200000000,
                        .act_bytes = 200000,
                        .stash_bytes = 200000};
    struct model model = {
        .num_items = 1, .items = &item, .seq = 100, .elem_bytes = 2, .param_bytes = 4};
    const struct roofline *roof = roofline_find("h200");
    double compute = 2e8 * 1e6 / roof->bf16_flops_per_s * 1e9;
    assert_int_equal(ask(&cost, &model, PASS_FWD, 1000000), (int64_t)ceil(compute));
    assert_int_equal(ask(&cost, &model, PASS_BWD_INPUT, 1000000), (int64_t)ceil(compute));
    assert_int_equal(ask(&cost, &model, PASS_BWD_WEIGHT, 1000000), (int64_t)ceil(compute));
    /* one sample: the weights' bytes rule; update: five passes over the parameters */
    assert_int_equal(ask(&cost, &model, PASS_FWD, 1),
                     (int64_t)ceil((4e6 + 400000) / roof->mem_bytes_per_s * 1e9));
    assert_int_equal(ask(&cost, &model, PASS_UPDATE, 1),
                     (int64_t)ceil(2e7 / roof->mem_bytes_per_s * 1e9));
    /* fp32 runs on the fp32 peak; an embedding has no backward-input */
    model.elem_bytes = 4;
    assert_int_equal(ask(&cost, &model, PASS_FWD, 1000000),
                     (int64_t)ceil(2e14 / roof->fp32_flops_per_s * 1e9));
    item.kind = ITEM_EMBEDDING;
    assert_int_equal(ask(&cost, &model, PASS_BWD_INPUT, 5), 0);
    assert_int_equal(cost.source, COST_ROOFLINE);
    assert_string_equal(cost_source_name(cost.source), "roofline");
}

/* Behind a frozen prefix: a pre-norm block needs the gradient of its first linear's input for its
 * own norm, a post-norm one saves that product, a classifier has none left. */
static void cost_roofline__leaves_of_the_input_half_what_weights_need(void **state)
{
    (void)state;
    struct cost cost;
    struct model vit = {0}, bert = {0};
    const double tokens = 128, h = 768, peak = roofline_find("h200")->fp32_flops_per_s;
    const int64_t n = 100000; /* far above the bytes rule */
    cost_roofline(&cost, NULL);
    assert_int_equal(model_parse("vit-b16", &vit, NULL), OK);
    assert_int_equal(model_parse("bert-base:task=classify,seq=128", &bert, NULL), OK);
    const struct {
        const struct model *model;
        int item;
        double saved_flops;
    } cases[] = {
        {&vit,  1, 0                     },
        {&vit,  2, 0                     },
        {&bert, 1, 2 * 3 * h * h * tokens},
        {&bert, 2, 2 * 4 * h * h * tokens},
        {&vit,  0, 0                     }, /* an embedding has no input half at all */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ns[2];
        bool extrapolated = false;
        for (int rest = 0; rest < 2; rest++)
            assert_int_equal(cost.item_ns(cost.ctx, cases[i].model, cases[i].item,
                                          rest ? PASS_BWD_REST : PASS_BWD_INPUT, n, &device,
                                          &ns[rest], &extrapolated, NULL),
                             OK);
        const double saved = (double)n * cases[i].saved_flops / peak * 1e9;
        assert_true(fabs((double)(ns[0] - ns[1]) - saved) <= 2);
        assert_true(ns[1] > 0 || cases[i].item == 0);
    }
    model_clear(&vit);
    model_clear(&bert);
}

static void cost_roofline__refuses_when_kind_is_unknown(void **state)
{
    (void)state;
    struct cost cost;
    cost_roofline(&cost, NULL);
    struct model model = {.num_items = 1, .items = &opaque};
    struct device odd = {.kind = "abacus", .speed = 1};
    struct err err = {0};
    int64_t ns;
    bool extrapolated;
    assert_int_equal(cost.item_ns(NULL, &model, 0, PASS_FWD, 1, &odd, &ns, &extrapolated, &err),
                     ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "abacus"));
    err = (struct err){0};
    assert_int_equal(cost.item_ns(NULL, &model, 0, PASS_FWD, 1, &device, &ns, &extrapolated, &err),
                     ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "no flops"));
}

static void roofline__refuses_a_format_without_a_published_peak(void **state)
{
    (void)state;
    struct model model = {0};
    struct cost cost;
    struct device tpu = {.kind = "tpu-v4", .speed = 1};
    struct err err = {0};
    int64_t ns;
    bool extrapolated = false;
    assert_int_equal(model_parse("gpt2", &model, NULL), OK);
    cost_roofline(&cost, NULL);
    assert_int_equal(cost.item_ns(NULL, &model, 1, PASS_FWD, 1, &tpu, &ns, &extrapolated, &err),
                     ERR_INFEASIBLE);
    assert_string_equal(err.msg, "no peak of device kind 'tpu-v4' is published for this dtype");
    model.elem_bytes = 2;
    assert_int_equal(cost.item_ns(NULL, &model, 1, PASS_FWD, 1, &tpu, &ns, &extrapolated, &err),
                     OK);
    model_clear(&model);
}

static void roofline_find__has_a_source_for_every_name(void **state)
{
    (void)state;
    int count = 0;
    for (const char *const *name = shipped_kind_names; *name; name++, count++) {
        const struct roofline *roof = roofline_find(*name);
        assert_non_null(roof);
        assert_string_equal(roof->kind, *name);
        assert_true(roof->bf16_flops_per_s > 0);
        assert_true(roof->fp8_flops_per_s == 0 || roof->fp8_flops_per_s >= roof->bf16_flops_per_s);
        assert_true(roof->mem_bytes_per_s > 0 && roof->mem_bytes > 0 && roof->link_bytes_per_s > 0);
        assert_true(strlen(roof->source) > 10);
    }
    assert_true(count >= 8);
    assert_null(roofline_find("h2"));
    assert_true(roofline_lacks_bf16(roofline_find("t4")));
    assert_false(roofline_lacks_bf16(roofline_find("rtx3090")));
    assert_false(roofline_lacks_bf16(roofline_find("cpu")));
}

static int64_t seven(const void *ctx, const struct cluster *cluster, int from, int to,
                     int64_t bytes)
{
    (void)ctx, (void)cluster, (void)from, (void)to, (void)bytes;
    return 7;
}
static int64_t nine(const void *ctx, const struct cluster *cluster, const int *devices, int n,
                    int64_t bytes)
{
    (void)ctx, (void)cluster, (void)devices, (void)n, (void)bytes;
    return 9;
}

static void cost_transfer_ns__prefers_what_was_measured(void **state)
{
    (void)state;
    struct cost cost;
    struct cluster c = {0};
    int ring[] = {0, 1};
    cost_constant(&cost);
    assert_int_equal(cluster_grid(1, 2, &c, NULL), OK);
    assert_int_equal(cost_transfer_ns(&cost, &c, 0, 1, 0), 5000);
    assert_int_equal(cost_allreduce_ns(&cost, &c, ring, 2, 0), 10000);
    cost.transfer_ns = seven;
    cost.allreduce_ns = nine;
    assert_int_equal(cost_transfer_ns(&cost, &c, 0, 1, 0), 7);
    assert_int_equal(cost_transfer_ns(&cost, &c, 1, 1, 0), 0);
    assert_int_equal(cost_allreduce_ns(&cost, &c, ring, 2, 0), 9);
    assert_int_equal(cost_allreduce_ns(&cost, &c, ring, 1, 0), 0);
    cluster_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_constant__scales_with_samples_unless_per_microbatch),
        cmocka_unit_test(cost_constant__refuses_when_item_is_no_constant_or_overflows),
        cmocka_unit_test(cost_roofline__is_the_larger_of_compute_and_memory),
        cmocka_unit_test(cost_roofline__leaves_of_the_input_half_what_weights_need),
        cmocka_unit_test(cost_roofline__refuses_when_kind_is_unknown),
        cmocka_unit_test(roofline__refuses_a_format_without_a_published_peak),
        cmocka_unit_test(roofline_find__has_a_source_for_every_name),
        cmocka_unit_test(cost_transfer_ns__prefers_what_was_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
