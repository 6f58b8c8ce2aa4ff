/* Kernel lists against the model's own flops and closed forms, and the curves that time them. */
#include "partition/cost/cost.h"
#include "partition/cost/device_curves.h"
#include "partition/cost/kernels.h"
#include "partition/model/framework.h"
#include "partition/model/attention.h"
#include "tests/unit/test.h"

static const struct cost_options plain = {.efficiency = 1},
                                 dropout = {.efficiency = 1, .dropout = true};
static struct device device = {.kind = "a100", .speed = 1};

static struct model parse(const char *text)
{
    struct model model = {0};
    struct err err = {0};
    if (model_parse(text, &model, &err) != OK)
        fail_msg("%s: %s", text, err.msg);
    return model;
}

static double flops_of(const struct model *model, int item, enum pass pass, int64_t samples,
                       const struct cost_options *options)
{
    struct kernel list[KERNELS_MAX];
    double flops = 0;
    const int n = kernels_of(model, item, pass, samples, options, list);
    assert_true(n < KERNELS_MAX);
    for (int i = 0; i < n; i++)
        flops += list[i].flops;
    return flops;
}

/* --- lists ------------------------------------------------------------------------------------ */

static void kernels_of__multiplies_as_often_as_the_model_says(void **state)
{
    static const char *const texts[] = {"gpt2:vocab=51200",
                                        "gpt2-xl:seq=512,vocab=51200",
                                        "vit-b16",
                                        "bert-base:seq=384",
                                        "bert-large:task=qa",
                                        "llama2-7b:seq=2048",
                                        "llama3-8b:vocab=128000",
                                        "mistral-7b"};
    (void)state;
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        struct model model = parse(texts[t]);
        for (int i = 0; i < model.num_items; i++) {
            const double want = 3.0 * (double)model.items[i].fwd_flops;
            for (int u = 0; u < 2; u++) {
                const double got = (model.attention = u ? ATTENTION_UNFUSED : ATTENTION_FUSED,
                                    flops_of(&model, i, PASS_FWD, 3, &plain));
                if (fabs(got - want) > 1e-9 * want)
                    fail_msg("%s, %s: %g flops, the model says %g", texts[t], model.items[i].name,
                             got, want);
            }
        }
        model_clear(&model);
    }
}

/* Both halves of the backward together do twice the forward's products. Fused attention repeats the
 * scores, which is half of its forward again. The embedding's products of ViT have no input half. */
static void kernels_of__does_in_backward_twice_the_forward(void **state)
{
    (void)state;
    struct model model = parse("gpt2:vocab=51200");
    for (int i = 0; i < model.num_items; i++) {
        const double s = model.seq, h = model.hidden;
        const double core = model.items[i].kind == ITEM_ATTENTION ? 4 * s * s * h : 0;
        const double want = 2 * (double)model.items[i].fwd_flops;
        model.attention = ATTENTION_UNFUSED;
        const double parts = flops_of(&model, i, PASS_BWD_INPUT, 1, &dropout) +
                             flops_of(&model, i, PASS_BWD_WEIGHT, 1, &dropout);
        model.attention = ATTENTION_FUSED;
        const double whole = flops_of(&model, i, PASS_BWD_INPUT, 1, &plain) +
                             flops_of(&model, i, PASS_BWD_WEIGHT, 1, &plain);
        assert_true(fabs(parts - want) <= 1e-9 * want);
        assert_true(fabs(whole - want - core / 2) <= 1e-9 * want);
    }
    model_clear(&model);
}

/* Mixture of experts: router, active experts and shared ones; rounding up to whole rows at most. */
static void kernels_of__counts_the_experts_that_tokens_choose(void **state)
{
    (void)state;
    static const char *const texts[] = {"mixtral-8x7b:seq=1024,vocab=32000",
                                        "deepseek-v2-lite:seq=1024,vocab=102400"};
    for (int m = 0; m < 2; m++) {
        struct model model = parse(texts[m]);
        for (int i = 0; i < model.num_items; i++) {
            const double want = 2.0 * (double)model.items[i].fwd_flops;
            const double got = flops_of(&model, i, PASS_FWD, 2, &plain);
            assert_true(fabs(got - want) <= 1e-3 * want);
        }
        model_clear(&model);
    }
}

/* Bytes of a pass over the experts with all biases and clamps less those without, and elements that are taken one by one. */
static void added_by_biases_and_clamps(struct model *model, enum pass pass, double *bytes,
                                       double *elements)
{
    *bytes = *elements = 0;
    for (int with = 1; with >= 0; with--) {
        struct kernel list[KERNELS_MAX];
        model->block.expert_mlp_bias = model->block.expert_clamp = with;
        const int n = kernels_of(model, 2, pass, 1, &plain, list);
        assert_true(n < KERNELS_MAX);
        for (int i = 0; i < n; i++) {
            *bytes += with ? list[i].bytes : -list[i].bytes;
            *elements += with ? list[i].elements : -list[i].elements;
        }
    }
}

/* By the operators of megatron-core 0.16, as PyTorch ran them (tests/reference/gptoss_peer.py), for one number of
 * a row [hidden] that a token sends to an expert. Biases: product 4, sum 2 + 4 + 4, joined 4 + 4, cast 4 + 2; backwards
 * casts 2 + 4 and 4 + 2, products 4 + 4 twice, sums 4 twice, joined 2 + 2. Clamps of gate and up: 2 + 2 each, joined 4 + 4;
 * backwards three masks 2 + 1, two of them joined 3, two choices 1 + 2 + 2, joined 4 + 4. */
static void kernels_of__experts_of_gpt_oss_have_biases_and_clamps(void **state)
{
    (void)state;
    struct model model = parse("gpt-oss-20b:seq=256,dtype=bf16,layers=2");
    const double hidden = 256.0 * 4 * 2880;
    double bytes[3], elements[3];
    model_set_framework(&model, FRAMEWORK_MEGATRON_TE, NORM_AUTO);
    for (int pass = 0; pass < 3; pass++)
        added_by_biases_and_clamps(&model,
                                   (enum pass[]){PASS_FWD, PASS_BWD_INPUT, PASS_BWD_WEIGHT}[pass],
                                   &bytes[pass], &elements[pass]);
    assert_true(fabs(bytes[0] - hidden * (28 + 16)) < 1);
    assert_true(fabs(bytes[1] + bytes[2] - hidden * (40 + 30)) < 1);
    assert_true(fabs(elements[0] - hidden * 4) < 1);
    assert_true(fabs(elements[1] + elements[2] - hidden * 8) < 1);
    model_clear(&model);
}

/* Until a kernel's bytes take as long, its elements do. */
static void device_kernel_ns__takes_elements_one_by_one(void **state)
{
    (void)state;
    const struct device_curve *curve = device_curve_find("b200");
    struct kernel kernel = {.kind = KERNEL_MEMORY, .bytes = 6e9, .elements = 1e9};
    const double scattered = device_kernel_ns(curve, 1e15, 8e12, &kernel);
    assert_true(fabs(scattered - 1e9 / 2.3 / 148 - 3000) < 1);
    kernel.elements = 0;
    assert_true(device_kernel_ns(curve, 1e15, 8e12, &kernel) < 0.5 * scattered);
}

static void kernels_of__divides_by_tensor_ways(void **state)
{
    (void)state;
    struct model model = parse("gpt2-xl:heads=40,hidden=2560,vocab=51200,dtype=bf16");
    double whole[8][PASS_UPDATE] = {0};
    for (int i = 0; i < 4; i++)
        for (int pass = 0; pass < PASS_UPDATE; pass++)
            whole[i][pass] = flops_of(&model, i, (enum pass)pass, 2, &plain);
    for (int ways = 2; ways <= 8; ways *= 2) {
        model.tensor = ways;
        for (int i = 0; i < 4; i++)
            for (int pass = 0; pass < PASS_UPDATE; pass++)
                assert_true(fabs(flops_of(&model, i, (enum pass)pass, 2, &plain) * ways -
                                 whole[i][pass]) <= 1e-9 * whole[i][pass]);
    }
    model_clear(&model);
}

/* Bytes of one layer's forward in bf16 with dropout, by hand: norms 2 x 2, residuals 2 x (3 e + 1)
 * per [t, h]; GELU 2 per [t, 4 h]; without fused attention softmax, its dropout, context's copy. */
static void kernels_of__moves_the_bytes_of_the_closed_form(void **state)
{
    (void)state;
    struct model model = parse("gpt2:dtype=bf16");
    model.attention = ATTENTION_UNFUSED;
    const double s = 1024, h = 768, a = 12, b = 5, th = b * s * h;
    double got = 0;
    for (int item = 1; item <= 2; item++) {
        struct kernel list[KERNELS_MAX];
        const int n = kernels_of(&model, item, PASS_FWD, (int64_t)b, &dropout, list);
        for (int i = 0; i < n; i++)
            got += list[i].kind == KERNEL_MEMORY ? list[i].bytes : 0;
    }
    const double want = 2 * (2 * 2 * th) + 2 * (3 * 2 + 1) * th + 2 * 2 * 4 * th /* norm .. GELU */
                        + 2 * 2 * 3 * th                                         /* QKV's bias */
                        + b * a * s * s * (2 * 1.5 + 5) + 2 * 2 * th;
    assert_true(fabs(got - want) <= 1e-9 * want);
    model_clear(&model);
}

/* Number of kernels of an attention item's pass, and the bytes of those that only move memory. */
static int moved_of(const struct model *model, enum pass pass, int64_t samples, double *bytes)
{
    struct kernel list[KERNELS_MAX];
    const int n = kernels_of(model, 1, pass, samples, &plain, list);
    *bytes = 0;
    for (int i = 0; i < n; i++)
        *bytes += list[i].kind == KERNEL_MEMORY ? list[i].bytes : 0;
    return n;
}

/* Megatron's softmax kernel takes matrices in fours: 2 heads of one sample need five kernels in
 * its place, 36 bytes a score forward and 40 backward, where it has 2 x 1.5 and 2 x 2. So do rows
 * of more than 2048 scores, and all that is eager. */
static void kernels_of__has_the_softmax_kernel_where_megatron_runs_it(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int ways;
        int64_t samples;
        bool fused;
        enum attention_kind attention;
    } cases[] = {
        {"gpt2:dtype=bf16,heads=8",                       4, 1, false, ATTENTION_UNFUSED},
        {"gpt2:dtype=bf16,heads=8",                       4, 2, true,  ATTENTION_UNFUSED},
        {"gpt2:dtype=bf16,heads=8",                       2, 1, true,  ATTENTION_UNFUSED},
        {"gpt2:dtype=bf16,heads=8",                       2, 1, false, ATTENTION_EAGER  },
        {"gpt2:dtype=bf16,heads=8,seq=4096,max_seq=4096", 2, 1, false, ATTENTION_UNFUSED},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct model model = parse(cases[c].model), known = parse("gpt2:dtype=bf16,heads=8");
        double got[2], want[2];
        known.attention = ATTENTION_UNFUSED;
        model.attention = cases[c].attention;
        model.tensor = cases[c].ways;
        for (int back = 0; back < 2; back++) {
            const enum pass pass = back ? PASS_BWD_INPUT : PASS_FWD;
            const int more = moved_of(&model, pass, cases[c].samples, &got[back]) -
                             moved_of(&known, pass, 1, &want[back]);
            assert_int_equal(more, cases[c].fused ? 0 : 4);
            const double s = model.seq, heads = 8.0 / cases[c].ways,
                         scores = (double)cases[c].samples * heads * s * s,
                         once = cases[c].fused ? (back ? 4 : 3)
                                : back         ? 40
                                               : 36;
            const double tokens = (double)cases[c].samples * s, h = model.hidden;
            /* norm, residual, QKV's bias, the heads' outputs side by side */
            const double rest = back ? tokens * h * 2 * (3 + 3 + 2 / (double)cases[c].ways)
                                     : tokens * h * 2 * (2 + 3 + (6 + 2) / (double)cases[c].ways);
            assert_true(fabs(got[back] - scores * once - rest) <= 1e-9 * rest);
        }
        model_clear(&model);
        model_clear(&known);
    }
}

/* --- curves ----------------------------------------------------------------------------------- */

static double matmul_ns(const char *kind, struct kernel k)
{
    const struct roofline *roof = roofline_find(kind);
    struct device_curve curve = *device_curve_find(kind);
    if (strcmp(kind, "h100") == 0) /* timed in bursts, at a clock that has not fallen */
        curve.matmul.hot = curve.matmul.peak;
    k.kind = KERNEL_MATMUL;
    k.out_bytes = k.accumulate ? 4 : 2;
    const double batch = (double)k.batch, m = (double)k.m, n = (double)k.n, depth = (double)k.k;
    k.flops = 2 * batch * m * n * depth;
    k.bytes = batch * (2 * depth * (m + n) + m * n * k.out_bytes * (k.accumulate ? 2 : 1));
    return device_kernel_ns(&curve, roof->bf16_flops_per_s, roof->mem_bytes_per_s, &k);
}

/* Rows of tests/truth that the constants were not fitted on (the half that is kept back). */
static void device_kernel_ns__is_near_measured_products(void **state)
{
    static const struct {
        const char *kind;
        struct kernel k;
        double efficiency, within;
    } rows[] = {
        {"a100-pcie",
         {.batch = 1, .m = 4096, .k = 8192, .n = 8192, .layout = LAYOUT_TN},
         0.7327,                                                                                         0.1},
        {"a100-pcie",
         {.batch = 1, .m = 4096, .k = 14336, .n = 4096, .layout = LAYOUT_NN},
         0.7576,                                                                                         0.1},
        {"a100-pcie",
         {.batch = 1, .m = 8192, .k = 4096, .n = 8192, .layout = LAYOUT_NT, .accumulate = true},
         0.7137,                                                                                         0.1},
        {"h100",      {.batch = 1, .m = 2048, .k = 4096, .n = 4096, .layout = LAYOUT_TN},        0.7617, 0.1},
        {"b200",      {.batch = 1, .m = 4096, .k = 8192, .n = 64128, .layout = LAYOUT_TN},       0.4901, 0.1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct kernel *k = &rows[i].k;
        const double ideal = 2e9 * (double)k->m * (double)k->n * (double)k->k /
                             roofline_find(rows[i].kind)->bf16_flops_per_s;
        const double got = ideal / matmul_ns(rows[i].kind, *k);
        if (fabs(got / rows[i].efficiency - 1) > rows[i].within)
            fail_msg("row %zu: efficiency %.3f, measured %.3f", i, got, rows[i].efficiency);
    }
}

/* A product whose work and bytes take the same time takes 2^(1/blend) times as long, and one that
 * is far from such a balance as long as the longer one. */
static void device_kernel_ns__blends_work_and_bytes(void **state)
{
    (void)state;
    const struct roofline *roof = roofline_find("a100");
    struct device_curve curve = *device_curve_find("a100"), larger = curve;
    larger.matmul.blend = 0;
    const double start = curve.matmul.start_us * 1e3;
    struct kernel k = {.batch = 1, .m = 8192, .n = 8192, .k = 8192, .flops = 1, .bytes = 1};
    const double work =
        device_kernel_ns(&larger, roof->bf16_flops_per_s, roof->mem_bytes_per_s, &k) - start;
    assert_true(fabs(device_kernel_ns(&curve, roof->bf16_flops_per_s, roof->mem_bytes_per_s, &k) -
                     start - work) < 1e-6 * work);
    k.bytes = work * 1e-9 * roof->mem_bytes_per_s * curve.matmul.memory;
    const double both =
        device_kernel_ns(&curve, roof->bf16_flops_per_s, roof->mem_bytes_per_s, &k) - start;
    assert_true(fabs(both / work - pow(2, 1 / curve.matmul.blend)) < 1e-9);
    assert_true(fabs(device_kernel_ns(&larger, roof->bf16_flops_per_s, roof->mem_bytes_per_s, &k) -
                     start - work) < 1e-6 * work);
}

static void device_kernel_ns__never_beats_peak_and_bandwidth(void **state)
{
    (void)state;
    for (const char *const *kind = shipped_curve_names; *kind; kind++) {
        const struct roofline *roof = roofline_find(*kind);
        assert_non_null(roof);
        for (int64_t m = 1; m <= 1 << 15; m *= 2)
            for (int64_t n = 32; n <= 1 << 15; n *= 4)
                for (int64_t k = 32; k <= 1 << 15; k *= 4) {
                    const double ns =
                        matmul_ns(*kind, (struct kernel){.batch = 1, .m = m, .n = n, .k = k});
                    const double ideal =
                        2e9 * (double)m * (double)n * (double)k / roof->bf16_flops_per_s;
                    assert_true(ns > ideal);
                    assert_true(ns > 2e9 * (double)(m * n) / roof->mem_bytes_per_s);
                }
    }
}

/* A product in pieces of rows, or on fewer SMs, takes longer where its tiles no longer fill waves, and as
 * long where they do: 16 x 66 tiles of 256 x 128 are eight waves of 132, and two for each of four pieces. */
static void device_kernel_ns__counts_the_waves_of_pieces(void **state)
{
    (void)state;
    const struct kernel whole = {.batch = 1, .m = 4096, .n = 66 * 128, .k = 8192},
                        coarse = {.batch = 1, .m = 512, .n = 66 * 128, .k = 8192};
    struct kernel k = whole;
    k.pieces = 4;
    assert_true(fabs(matmul_ns("h100", k) / matmul_ns("h100", whole) - 1) < 1e-9);
    k = coarse; /* one wave of 132; for each piece one of smaller tiles */
    k.pieces = 2;
    assert_true(matmul_ns("h100", k) > 1.02 * matmul_ns("h100", coarse));
    k = whole;
    k.taken_sms = 66;
    assert_true(fabs((matmul_ns("h100", k) - 5488) / (matmul_ns("h100", whole) - 5488) - 2) < 0.01);
}

/* Layers of MPT in PyTorch on one H100, forward and backward (tests/truth/data/h100_layers.csv), which
 * no constant was fitted on. */
static void cost_kernels__is_near_measured_layers(void **state)
{
    static const struct {
        int hidden, heads, samples;
        double ms;
    } rows[] = {
        {4096, 32, 6,  25.862 },
        {5120, 40, 2,  13.419 },
        {2048, 16, 20, 25.416 },
        {7168, 56, 14, 170.668},
    };
    (void)state;
    const struct cost_options options = {.efficiency = 1};
    struct kernel list[KERNELS_MAX];
    const struct roofline *roof = roofline_find("h100");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct model model = {0};
        char text[128];
        double ns = 0;
        snprintf(text, sizeof text,
                 "gpt2:layers=1,hidden=%d,heads=%d,mlp=%d,seq=2048,max_seq=2048,dtype=bf16",
                 rows[r].hidden, rows[r].heads, 4 * rows[r].hidden);
        assert_int_equal(model_parse(text, &model, NULL), OK);
        model_set_attention(&model, ATTENTION_FUSED);
        for (int item = 1; item <= 2; item++)
            for (int pass = PASS_FWD; pass <= PASS_BWD_WEIGHT; pass++) {
                const int n =
                    kernels_of(&model, item, (enum pass)pass, rows[r].samples, &options, list);
                for (int i = 0; i < n; i++)
                    ns += device_kernel_ns(device_curve_find("h100"), roof->bf16_flops_per_s,
                                           roof->mem_bytes_per_s, &list[i]);
            }
        if (fabs(ns / 1e6 / rows[r].ms - 1) > 0.04)
            fail_msg("hidden %d: %.3f ms, measured %.3f", rows[r].hidden, ns / 1e6, rows[r].ms);
        model_clear(&model);
    }
}

/* Kernels before FlashAttention-2 take twice as long (Dao 2023), in both directions. */
static void attention__before_flash_2_takes_twice_as_long(void **state)
{
    (void)state;
    const struct cost_options options = {.efficiency = 1};
    const struct roofline *roof = roofline_find("a100");
    double ns[2][2] = {0};
    for (int early = 0; early < 2; early++) {
        struct model model = {0};
        struct kernel list[KERNELS_MAX];
        assert_int_equal(
            model_parse("gpt2:layers=1,seq=8192,max_seq=8192,dtype=bf16", &model, NULL), OK);
        model_set_attention(&model, early ? ATTENTION_FLASH1 : ATTENTION_FUSED);
        for (int back = 0; back < 2; back++) {
            const int n =
                kernels_of(&model, 1, back ? PASS_BWD_INPUT : PASS_FWD, 4, &options, list);
            for (int i = 0; i < n; i++)
                if (list[i].kind == KERNEL_ATTENTION)
                    ns[early][back] +=
                        device_kernel_ns(device_curve_find("a100"), roof->bf16_flops_per_s,
                                         roof->mem_bytes_per_s, &list[i]);
        }
        model_clear(&model);
    }
    for (int back = 0; back < 2; back++)
        assert_true(ns[0][back] > 0 && fabs(ns[1][back] / ns[0][back] - 2) < 0.01);
}

/* --- the cost source -------------------------------------------------------------------------- */

static int64_t ask(const struct cost *cost, const struct model *model, int item, enum pass pass,
                   int64_t samples)
{
    int64_t ns = -1;
    bool beyond = false;
    struct err err = {0};
    if (cost->item_ns(cost->ctx, model, item, pass, samples, &device, &ns, &beyond, &err) != OK)
        fail_msg("%s", err.msg);
    assert_false(beyond);
    return ns;
}

/* More samples take longer, all take longer than the roofline, and remembering changes nothing. */
static void cost_kernels__is_monotone_and_slower_than_ideal(void **state)
{
    static const char *const texts[] = {"gpt2:dtype=bf16", "vit-b16:dtype=bf16",
                                        "bert-base:dtype=bf16", "llama2-7b:dtype=bf16", "gpt2"};
    (void)state;
    const struct roofline *roof = roofline_find(device.kind);
    struct kernel_costs *costs = kernel_costs_new(&plain);
    struct cost kernels, ideal;
    cost_kernels(&kernels, costs);
    cost_roofline(&ideal, NULL);
    assert_int_equal(kernels.source, COST_KERNELS);
    assert_string_equal(cost_source_name(kernels.source), "kernels");
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        struct model model = parse(texts[t]);
        for (int i = 0; i < model.num_items; i++)
            for (int pass = 0; pass < PASS_UPDATE; pass++) {
                int64_t before = 0;
                for (int64_t samples = 1; samples <= 32; samples *= 2) {
                    const int64_t ns = ask(&kernels, &model, i, (enum pass)pass, samples);
                    assert_int_equal(ask(&kernels, &model, i, (enum pass)pass, samples), ns);
                    assert_true(ns >= before);
                    before = ns;
                }
                const double flops = flops_of(&model, i, (enum pass)pass, 32, &plain);
                const double seen = i > 0 && model.task == TASK_CAUSAL_LM ? 0.5 : 1; /* masked */
                assert_true((double)before >=
                            seen * flops / roofline_peak(roof, &model, &plain) * 1e9);
                if (model.items[i].kind == ITEM_MLP && pass == PASS_FWD)
                    assert_true(before > ask(&ideal, &model, i, PASS_FWD, 32));
            }
        model_clear(&model);
    }
    kernel_costs_free(costs);
}

static void cost_kernels__is_bound_by_the_host_when_kernels_are_small(void **state)
{
    (void)state;
    struct model model = parse("gpt2:dtype=bf16,seq=64");
    struct kernel list[KERNELS_MAX];
    struct kernel_costs *costs = kernel_costs_new(&plain);
    struct cost cost;
    cost_kernels(&cost, costs);
    const int n = kernels_of(&model, 2, PASS_FWD, 1, &plain, list);
    assert_int_equal(ask(&cost, &model, 2, PASS_FWD, 1),
                     (int64_t)ceil(n * device_curve_find("a100")->host_us * 1e3));
    kernel_costs_free(costs);
    model_clear(&model);
}

static void cost_kernels__scales_by_efficiency_and_number_format(void **state)
{
    (void)state;
    const struct cost_options half = {.efficiency = 0.5}, tf32 = {.efficiency = 1, .tf32 = true};
    struct model model = parse("gpt2-xl");
    struct kernel_costs *one = kernel_costs_new(&plain), *slow = kernel_costs_new(&half),
                        *fast = kernel_costs_new(&tf32);
    struct cost a, b, c;
    cost_kernels(&a, one);
    cost_kernels(&b, slow);
    cost_kernels(&c, fast);
    const int64_t ns = ask(&a, &model, 2, PASS_FWD, 8);
    assert_in_range(ask(&b, &model, 2, PASS_FWD, 8), 2 * ns - 2, 2 * ns);
    assert_true(ask(&c, &model, 2, PASS_FWD, 8) * 4 < ns);
    kernel_costs_free(one);
    kernel_costs_free(slow);
    kernel_costs_free(fast);
    model_clear(&model);
}

/* hidden 1024, MLP 4096, 2 x 512 tokens; a share of a byte is exact in binary. */
static void kernels_of__an_mlp_in_fp8_is_what_a_count_by_hand_says(void **state)
{
    (void)state;
    const double t = 1024, h = 1024, m = 4096;
    const struct {
        enum narrow_format format;
        double bytes;
        int passes; /* memory kernels of a cast */
    } cases[] = {
        {NARROW_FP8,   1,              2},
        {NARROW_MXFP8, 1 + 1.0 / 32,   1},
        {NARROW_NVFP4, 0.5 + 1.0 / 16, 2},
    };
    struct model model = parse("gpt2:dtype=bf16,hidden=1024,heads=16,mlp=4096,seq=512");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct cost_options narrow = {.efficiency = 1, .narrow = cases[c].format};
        const double b = cases[c].bytes;
        for (int pass = PASS_FWD; pass <= PASS_BWD_WEIGHT; pass++) {
            struct kernel wide[KERNELS_MAX], list[KERNELS_MAX];
            if (pass != PASS_FWD && pass != PASS_BWD_INPUT && pass != PASS_BWD_WEIGHT)
                continue;
            const int before = kernels_of(&model, 2, (enum pass)pass, 2, &plain, wide);
            const int count = kernels_of(&model, 2, (enum pass)pass, 2, &narrow, list);
            const bool casts = pass != PASS_BWD_WEIGHT;
            double was = 0, is = 0;
            int marked = 0;
            for (int i = 0; i < before; i++)
                was += wide[i].bytes;
            for (int i = 0; i < count; i++) {
                is += list[i].bytes;
                marked += list[i].narrow;
            }
            assert_int_equal(marked, 2);
            assert_int_equal(count, before + (casts ? 2 * cases[c].passes : 0));
            /* the operands of both products are narrow; the result is not */
            const double operands = pass == PASS_FWD         ? t * h + h * m + t * m + m * h
                                    : pass == PASS_BWD_INPUT ? t * m + m * h + t * h + h * m
                                                             : 2 * (t * h + t * m);
            const double cast = (h + m) * t * (2 * cases[c].passes + 2 * b);
            assert_true(is == was - operands * (2 - b) + (casts ? cast : 0));
        }
    }
    const struct cost_options fp8 = {.efficiency = 1, .narrow = NARROW_FP8};
    struct kernel list[KERNELS_MAX];
    const int last = model.num_items - 1; /* the head stays in bf16 */
    for (int i = kernels_of(&model, last, PASS_FWD, 2, &fp8, list) - 1; i >= 0; i--)
        assert_false(list[i].narrow);
    model_clear(&model);
}

static double pass_bytes(const struct model *model, int item, enum pass pass,
                         const struct cost_options *options)
{
    struct kernel list[KERNELS_MAX];
    double sum = 0;
    for (int i = kernels_of(model, item, pass, 2, options, list) - 1; i >= 0; i--)
        sum += list[i].bytes;
    return sum;
}

/* In Transformer Engine a kernel for each operand of a narrow product puts its scales in order: a byte read and written for
 * 32 elements of MXFP8, for 16 of NVFP4; none for fp8. The MLP has two products a pass. */
static void kernels_of__puts_scales_in_order(void **state)
{
    (void)state;
    static const int block[] = {[NARROW_FP8] = 0, [NARROW_MXFP8] = 32, [NARROW_NVFP4] = 16};
    const double t = 1024, h = 1024, m = 4096;
    struct model model = parse("gpt2:dtype=bf16,hidden=1024,heads=16,mlp=4096,seq=512");
    for (int format = NARROW_FP8; format <= NARROW_NVFP4; format++)
        for (int pass = 0; pass < 3; pass++) {
            const struct cost_options narrow = {.efficiency = 1,
                                                .narrow = (enum narrow_format)format};
            const enum pass which = (enum pass[]){PASS_FWD, PASS_BWD_INPUT, PASS_BWD_WEIGHT}[pass];
            const double operands = pass < 2 ? t * h + t * m + 2 * h * m : 2 * (t * h + t * m);
            double bytes[2];
            int count[2];
            for (int te = 0; te < 2; te++) {
                struct kernel list[KERNELS_MAX];
                model.framework = framework_of(te ? FRAMEWORK_MEGATRON_TE : FRAMEWORK_AUTO);
                bytes[te] = pass_bytes(&model, 2, which, &narrow);
                count[te] = kernels_of(&model, 2, which, 2, &narrow, list);
            }
            assert_int_equal(count[1] - count[0], block[format] ? 4 : 0);
            assert_true(bytes[1] - bytes[0] == (block[format] ? operands * 2 / block[format] : 0));
        }
    model.framework = NULL;
    model_clear(&model);
}

/* What the experts of Mixtral move by Megatron-LM's lists beyond FSDP's, where E devices have the experts: t tokens, 2 t rows
 * of h numbers of 2 bytes, and c copies of a token for each device that needs it. `flex` reads c t h and writes the rows, and
 * back; an all-to-all reads and writes rows, sorts them once more each way, and ends with t h. In fp8 it pads: rows to
 * a larger tensor, and out of one. */
static void kernels_of__permutes_and_pads_as_the_dispatcher_needs(void **state)
{
    (void)state;
    const double t = 2 * 64, h = 4096, rows = 2 * t * h * 2, tokens = t * h * 2;
    const double copies =
        4 * (1 - 15.0 / 28); /* of 8 experts 2 on each of 4 devices: C(6,2) of C(8,2) miss it */
    struct model model = parse("mixtral-8x7b:layers=1,seq=64,dtype=bf16");
    model.expert_ways = 4;
    for (int fp8 = 0; fp8 < 2; fp8++)
        for (int p = 0; p < 3; p++) {
            const struct cost_options options = {.efficiency = 1,
                                                 .narrow = fp8 ? NARROW_FP8 : NARROW_NONE};
            const enum pass pass = (enum pass[]){PASS_FWD, PASS_BWD_INPUT, PASS_BWD_WEIGHT}[p];
            double got[2];
            for (int flex = 0; flex < 2; flex++) {
                model.sends_once = flex;
                model.framework = framework_of(FRAMEWORK_MEGATRON_TE);
                got[flex] = pass_bytes(&model, 2, pass, &options);
            }
            const double all = 2 * rows + 2 * rows + rows + tokens + 2 * rows;
            const double once = 2 * (rows + copies * tokens), padded = fp8 ? 4 * rows : 0;
            const double want =
                p < 2 ? all + padded - once : 0; /* weights' gradients keep the order */
            assert_true(fabs(got[0] - got[1] - want) < 1);
        }
    /* Scales are put in order for all experts at once: one launch for each operand of the two products. */
    int once_launched[2] = {0, 0};
    for (int mx = 0; mx < 2; mx++) {
        const struct cost_options options = {.efficiency = 1,
                                             .narrow = mx ? NARROW_MXFP8 : NARROW_FP8};
        struct kernel list[KERNELS_MAX];
        for (int i = kernels_of(&model, 2, PASS_FWD, 2, &options, list) - 1; i >= 0; i--)
            once_launched[mx] += list[i].launches == 1;
    }
    assert_int_equal(once_launched[1] - once_launched[0], 4);
    model.framework = NULL;
    model_clear(&model);
}

/* Costs remember times by what they depend on, and a token's experts are on fewer devices where they are in groups. */
static void kernel_costs__tell_groups_of_experts_apart(void **state)
{
    (void)state;
    const struct cost_options options = {.efficiency = 1};
    struct model model = parse("mixtral-8x7b:layers=1,seq=4096,dtype=bf16");
    struct cluster cluster = {0};
    struct cost cost;
    struct kernel_costs *costs = kernel_costs_new(&options);
    static const int groups[][2] = {
        {0, 0},
        {4, 1},
        {4, 2},
        {2, 1}
    }; /* of them, those that a token chooses */
    int64_t ns[4];
    bool extrapolated = false;
    model.framework = framework_of(FRAMEWORK_MEGATRON_TE);
    model.expert_ways = 4;
    model.sends_once = true;
    assert_int_equal(cluster_parse("h100-1x8", &cluster, NULL), OK);
    cost_kernels(&cost, costs);
    for (int i = 0; i < 4; i++) {
        model.expert_groups = groups[i][0];
        model.groups_active = groups[i][1];
        assert_int_equal(cost.item_ns(cost.ctx, &model, 2, PASS_FWD, 2, cluster.devices, &ns[i],
                                      &extrapolated, NULL),
                         OK);
    }
    assert_true(ns[1] < ns[2] && ns[2] < ns[0] && ns[1] < ns[3]);
    model.framework = NULL;
    kernel_costs_free(costs);
    cluster_clear(&cluster);
    model_clear(&model);
}

/* DeepSeek-V3's heads: 128 numbers and 64 turned ones, values of 128. Fused, queries read and write 64, and 128 + 128 of a
 * key's and value's part and 64 shared numbers become 192 and 128. By operators 64 of all queries and of one key are
 * turned (10 passes), heads of queries read and write 192, keys read 128 and the shared 64 and write 192. */
static void kernels_of__latent_attention_turns_one_key_for_all_heads(void **state)
{
    (void)state;
    const double t = 2 * 16 * 2, a = 4;
    struct model model = parse("deepseek-v3:layers=4,heads=4,seq=16,dtype=bf16");
    for (int back = 0; back < 2; back++) {
        const enum pass pass = back ? PASS_BWD_INPUT : PASS_FWD;
        double got[3];
        for (int i = 0; i < 3; i++) { /* none, fused, by operators */
            model.rope = i > 0;
            model.eager_rope = i == 2;
            got[i] = pass_bytes(&model, 1, pass, &plain);
        }
        assert_true(got[1] - got[0] == t * (a * 2 * 64 + a * (256 + 192 + 128) + 64));
        assert_true(got[2] - got[0] ==
                    t * (10 * (a + 1) * 64 + a * 2 * 192 + a * (128 + 192) + 64));
    }
    model_clear(&model);
}

/* A scale of earlier steps saves the pass that finds the largest value, of both linears' operands. */
static void kernels_of__delayed_scales_save_a_read_of_each_cast(void **state)
{
    (void)state;
    const double t = 1024, h = 1024, m = 4096;
    const struct cost_options now = {.efficiency = 1, .narrow = NARROW_FP8};
    struct cost_options delayed = now;
    struct model model = parse("gpt2:dtype=bf16,hidden=1024,heads=16,mlp=4096,seq=512");
    delayed.delayed_scaling = true;
    assert_true(pass_bytes(&model, 2, PASS_FWD, &now) - pass_bytes(&model, 2, PASS_FWD, &delayed) ==
                2 * t * (h + m));
    model_clear(&model);
}

static void kernels_of__attention_in_fp8_casts_its_inputs_and_is_faster(void **state)
{
    (void)state;
    const double t = 2 * 4096, h = 4096, k = 1024;
    const struct cost_options wide = {.efficiency = 1};
    const struct cost_options fp8 = {
        .efficiency = 1, .fp8_attention = true, .delayed_scaling = true};
    const struct device_curve *curve = device_curve_of(&(struct device){.kind = "h100"});
    struct model model = parse("llama3-8b:dtype=bf16,seq=4096");
    struct kernel list[KERNELS_MAX];
    for (int back = 0; back < 2; back++) {
        const enum pass pass = back ? PASS_BWD_INPUT : PASS_FWD;
        const double cast = t * (back ? h : h + 2 * k) * 3; /* 2 bytes read, one written */
        assert_true(pass_bytes(&model, 1, pass, &fp8) - pass_bytes(&model, 1, pass, &wide) == cast);
        for (int i = kernels_of(&model, 1, pass, 2, &fp8, list) - 1; i >= 0; i--) {
            struct kernel slow = list[i];
            if (slow.kind != KERNEL_ATTENTION)
                continue;
            slow.narrow = false;
            const double start = curve->matmul.start_us * 1e3;
            const double ratio = (device_kernel_ns(curve, 989e12, 3.35e12, &slow) - start) /
                                 (device_kernel_ns(curve, 989e12, 3.35e12, &list[i]) - start);
            assert_true(list[i].narrow && fabs(ratio - 971.0 / 600) < 0.01);
        }
    }
    struct err err = {0};
    assert_int_equal(roofline_check_narrow(roofline_find("a100"), &fp8, &err), ERR_INFEASIBLE);
    assert_int_equal(roofline_check_narrow(roofline_find("h100"), &fp8, &err), OK);
    model_clear(&model);
}

static void cost_kernels__refuses_a_narrow_format_without_units(void **state)
{
    (void)state;
    const struct {
        const char *kind;
        enum narrow_format format;
        bool has;
    } cases[] = {
        {"a100",   NARROW_FP8,   false},
        {"h100",   NARROW_FP8,   true },
        {"h100",   NARROW_MXFP8, false},
        {"b200",   NARROW_MXFP8, true },
        {"b200",   NARROW_NVFP4, true },
        {"mi355x", NARROW_NVFP4, false},
        {"mi300x", NARROW_MXFP8, false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct cost_options options = {.efficiency = 1, .narrow = cases[c].format};
        struct err err = {0};
        assert_int_equal(roofline_check_narrow(roofline_find(cases[c].kind), &options, &err),
                         cases[c].has ? OK : ERR_INFEASIBLE);
    }
    const struct cost_options fp8 = {.efficiency = 1, .narrow = NARROW_FP8};
    struct model model = parse("gpt2:dtype=bf16");
    struct kernel_costs *costs = kernel_costs_new(&fp8);
    struct err err = {0};
    struct cost cost;
    int64_t ns;
    bool beyond = false;
    cost_kernels(&cost, costs);
    assert_int_equal(cost.item_ns(cost.ctx, &model, 1, PASS_FWD, 1, &device, &ns, &beyond, &err),
                     ERR_INFEASIBLE);
    assert_string_equal(err.msg, "device kind 'a100' has no fp8 units");
    kernel_costs_free(costs);
    model_clear(&model);
}

static void cost_kernels__refuses_a_kind_without_a_curve(void **state)
{
    (void)state;
    struct device cpu = {.kind = "cpu", .speed = 1};
    struct model model = parse("gpt2");
    struct kernel_costs *costs = kernel_costs_new(&plain);
    struct err err = {0};
    struct cost cost;
    int64_t ns;
    bool beyond = false;
    cost_kernels(&cost, costs);
    assert_int_equal(cost.item_ns(cost.ctx, &model, 1, PASS_FWD, 1, &cpu, &ns, &beyond, &err),
                     ERR_INFEASIBLE);
    assert_string_equal(err.msg, "no kernel curve for device kind 'cpu', so no kernel costs of "
                                 "model 'gpt2'");
    kernel_costs_free(costs);
    model_clear(&model);
}

static void cost_choice_parse__names_what_is_valid(void **state)
{
    (void)state;
    struct err err = {0};
    enum cost_choice choice;
    assert_int_equal(cost_choice_parse("kernels", &choice, &err), OK);
    assert_int_equal(choice, COST_BY_KERNELS);
    assert_int_equal(cost_choice_parse("ideal", &choice, &err), ERR_INPUT);
    assert_string_equal(err.msg,
                        "cost must be one of auto, kernels, roofline, profile, got 'ideal'");
    const double bad[] = {0, -0.5, 10.01, NAN};
    for (int i = 0; i < 4; i++)
        assert_int_equal(cost_efficiency_check(bad[i], &err), ERR_INPUT);
    assert_int_equal(cost_efficiency_check(1, &err), OK);
    assert_int_equal(cost_efficiency_check(1.25, &err), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of__multiplies_as_often_as_the_model_says),
        cmocka_unit_test(kernels_of__does_in_backward_twice_the_forward),
        cmocka_unit_test(kernels_of__counts_the_experts_that_tokens_choose),
        cmocka_unit_test(kernels_of__experts_of_gpt_oss_have_biases_and_clamps),
        cmocka_unit_test(device_kernel_ns__takes_elements_one_by_one),
        cmocka_unit_test(kernels_of__divides_by_tensor_ways),
        cmocka_unit_test(kernels_of__moves_the_bytes_of_the_closed_form),
        cmocka_unit_test(kernels_of__has_the_softmax_kernel_where_megatron_runs_it),
        cmocka_unit_test(device_kernel_ns__is_near_measured_products),
        cmocka_unit_test(device_kernel_ns__blends_work_and_bytes),
        cmocka_unit_test(device_kernel_ns__counts_the_waves_of_pieces),
        cmocka_unit_test(cost_kernels__is_near_measured_layers),
        cmocka_unit_test(attention__before_flash_2_takes_twice_as_long),
        cmocka_unit_test(device_kernel_ns__never_beats_peak_and_bandwidth),
        cmocka_unit_test(cost_kernels__is_monotone_and_slower_than_ideal),
        cmocka_unit_test(cost_kernels__is_bound_by_the_host_when_kernels_are_small),
        cmocka_unit_test(cost_kernels__scales_by_efficiency_and_number_format),
        cmocka_unit_test(kernels_of__an_mlp_in_fp8_is_what_a_count_by_hand_says),
        cmocka_unit_test(kernels_of__delayed_scales_save_a_read_of_each_cast),
        cmocka_unit_test(kernels_of__puts_scales_in_order),
        cmocka_unit_test(kernels_of__permutes_and_pads_as_the_dispatcher_needs),
        cmocka_unit_test(kernel_costs__tell_groups_of_experts_apart),
        cmocka_unit_test(kernels_of__latent_attention_turns_one_key_for_all_heads),
        cmocka_unit_test(kernels_of__attention_in_fp8_casts_its_inputs_and_is_faster),
        cmocka_unit_test(cost_kernels__refuses_a_narrow_format_without_units),
        cmocka_unit_test(cost_kernels__refuses_a_kind_without_a_curve),
        cmocka_unit_test(cost_choice_parse__names_what_is_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
