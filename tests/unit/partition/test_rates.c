/* Rates of a step: flops of a sample against published formulas, units, and what a run costs. */
#include "partition/plan/rates.h"

#include <math.h>

#include "tests/unit/test.h"

/* A plan of one stage on one device, with so many samples a step. */
static struct plan whole_plan(const struct model *model, int *first, int *device)
{
    first[0] = 0;
    first[1] = model->num_items;
    device[0] = 0;
    return (struct plan){
        .num_ranks = 1,
        .chunks = 1,
        .num_pipelines = 1,
        .num_stages = 1,
        .batch = 4,
        .microbatches = {4, 1, 1},
        .first_item = first,
        .device = device
    };
}

static struct sample_flops flops_of(const char *text, enum recompute_mode recompute, int frozen)
{
    struct model model = {0};
    int first[2], device[1];
    assert_int_equal(model_parse(text, &model, NULL), OK);
    struct plan plan = whole_plan(&model, first, device);
    plan.recompute = recompute;
    plan.num_frozen_layers = frozen;
    const struct sample_flops got = rates_sample_flops(&model, &plan);
    model_clear(&model);
    return got;
}

static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got / want - 1) <= tolerance))
        fail_msg("got %g, want %g", got, want);
}

/* Narayanan et al. 2021, appendix: with recompute a sample takes 96 s l h^2 (1 + s / 6h + V / 16lh), of which the
 * second forward of the layers is a quarter; without it 72 s l h^2 (1 + s / 6h + V / 12lh). */
static void rates_sample_flops__equal_megatrons_formula_for_gpt(void **state)
{
    (void)state;
    const double s = 2048, l = 48, h = 6144, V = 51200;
    const struct sample_flops got =
        flops_of("gpt2:layers=48,hidden=6144,heads=48,mlp=24576,seq=2048,max_seq=2048,vocab=51200",
                 RECOMPUTE_NEVER, 0);
    assert_near(got.model, 72 * s * l * h * h * (1 + s / (6 * h) + V / (12 * l * h)), 0.001);
    assert_true(got.hardware == got.model);
    /* Ours runs the head again too, as a part of its stage. */
    const struct sample_flops again =
        flops_of("gpt2:layers=48,hidden=6144,heads=48,mlp=24576,seq=2048,max_seq=2048,vocab=51200",
                 RECOMPUTE_STAGE, 0);
    assert_near(again.hardware,
                96 * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h)) + 2 * s * h * V, 0.001);
}

/* Chowdhery et al. 2022 (PaLM), appendix B: 6 N + 12 L H Q T for each token. N counts no input embedding here, because
 * a look-up is no product. */
static void rates_sample_flops__equal_palms_formula_for_llama(void **state)
{
    (void)state;
    const double N = 8030261248.0 - 128256.0 * 4096, s = 8192;
    assert_near(flops_of("llama3-8b:seq=8192", RECOMPUTE_NEVER, 0).model,
                s * (6 * N + 12 * 32 * 32 * 128 * s), 0.001);
}

/* Published step times give the published MFU. Korthikanti et al. 2022, table 5 (A100); PaLM, table 3 and appendix B:
 * PaLM 540B at 238.3 thousand tokens a second on 6,144 TPU v4, and Megatron-Turing NLG 530B at 65.43 thousand on 2,240
 * A100; MPT on H100 (llm-foundry at 061f2c7, scripts/train/benchmarking/README.md); Nemotron-4 340B, table 2 of its report;
 * DeepSeek-V3 (Zhao et al., ISCA 2025, unmasked). Of NeMo's Llama 3 (user guide 24.12,
 * performance summary) TFLOP/s of a device are published, here in units of 1 TFLOP/s. Tolerance: the last digit of the printed times and shares. Table 5's HFU is not compared, because it counts
 * two more forwards of attention's core, which runs again once. */
static void rates_sample_flops__give_the_mfu_of_published_runs(void **state)
{
    (void)state;
    const double a100 = 312e12, h100 = 989.4e12, tpu_v4 = 275e12, tflops = 100e12;
    const char *const mtnlg =
        "gpt2:layers=105,hidden=20480,heads=128,mlp=81920,seq=2048,max_seq=2048,vocab=51200";
    const struct {
        const char *model;
        double samples_per_s; /* of a device */
        double peak, mfu;     /* mfu in per cent */
    } runs[] = {
        {"gpt2:layers=48,hidden=6144,heads=64,mlp=24576,seq=2048,max_seq=2048,vocab=51200",
         4 / 1.10 / 8,                                                                                                  a100,   41.5 },
        {"gpt2:layers=96,hidden=12288,heads=96,mlp=49152,seq=2048,max_seq=2048,vocab=51200",
         1 / 13.75,                                                                                                     a100,   51.4 },
        {mtnlg,                                                                                 1 / 37.83,              a100,   56.0 },
        {"gpt2:layers=128,hidden=25600,heads=160,mlp=102400,seq=2048,max_seq=2048,vocab=51200",
         1 / 71.49,                                                                                                     a100,   56.3 },
        {mtnlg,                                                                                 65430.0 / 2048 / 2240,  a100,   30.2 },
        {"llama:layers=118,hidden=18432,heads=48,kv_heads=1,head_dim=256,mlp=73728,seq=2048,"
         "vocab=256000",                                                               238300.0 / 2048 / 6144, tpu_v4, 46.2 },
        {"gpt2:layers=80,hidden=8192,heads=64,mlp=32768,seq=2048,max_seq=2048,vocab=50368",
         66523.0 / 2048 / 64,                                                                                           h100,   42.57},
        {"gpt2:layers=48,hidden=7168,heads=56,mlp=28672,seq=8192,max_seq=8192,vocab=50368",
         11072.0 / 8192 / 8,                                                                                            h100,   29.92},
        {"gpt2:layers=40,hidden=5120,heads=40,mlp=20480,seq=2048,max_seq=2048,vocab=50368",
         307209.0 / 2048 / 64,                                                                                          h100,   39.86},
        {"gpt2:layers=32,hidden=4096,heads=32,mlp=16384,seq=2048,max_seq=2048,vocab=50368",
         85144.0 / 2048 / 8,                                                                                            h100,   46.44},
        {"llama:layers=96,hidden=18432,heads=96,kv_heads=8,mlp=49152,seq=4096,vocab=256000",    /* 2 x 73728 */
         768 / 10.3 / 1536, h100,   42.4 },
        {"deepseek-v3:seq=4096",                                                                15360 / 19.926 / 2048,  h100,   43.73},
        {"llama3-8b:seq=8192",                                                                  12273.0 / 8192,         tflops, 711  },
        {"llama3-70b:seq=8192",                                                                 1524.0 / 8192,          tflops, 734  },
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        assert_near(flops_of(runs[i].model, RECOMPUTE_NEVER, 0).model * runs[i].samples_per_s /
                        runs[i].peak * 100,
                    runs[i].mfu, 0.005);
}

static void rates_sample_flops__count_active_experts_only(void **state)
{
    (void)state;
    const double h = 4096, kv = 1024, mlp = 14336, s = 4096, V = 32000;
    const double layer = 2 * h * h + 2 * h * kv + 8 * h + 2 * 3 * h * mlp;
    assert_near(flops_of("mixtral-8x7b:seq=4096", RECOMPUTE_NEVER, 0).model,
                s * (6 * (32 * layer + V * h) + 12 * 32 * h * s), 0.001);
}

static void rates_sample_flops__count_the_forward_alone_of_frozen_layers(void **state)
{
    (void)state;
    const double all = flops_of("gpt2", RECOMPUTE_NEVER, 0).model;
    const double half = flops_of("gpt2", RECOMPUTE_NEVER, 6).model;
    assert_true(half < 0.75 * all && half > 0.5 * all);
    assert_true(flops_of("uniform:layers=4,fwd=1ms", RECOMPUTE_NEVER, 0).model == 0);
}

static void rates_of_step__have_the_units_of_the_model(void **state)
{
    (void)state;
    struct cluster cluster = {0};
    struct model gpt = {0}, vit = {0};
    int first[2], device[1];
    assert_int_equal(cluster_parse("h100-1x1", &cluster, NULL), OK);
    assert_int_equal(model_parse("gpt2", &gpt, NULL), OK);
    assert_int_equal(model_parse("vit-b16", &vit, NULL), OK);
    struct plan plan = whole_plan(&gpt, first, device);
    struct step_rates got = rates_of_step(&gpt, &cluster, &plan, DTYPE_BF16, 50);
    assert_true(got.tokens_per_s == 50.0 * 1024 && got.images_per_s == 0);
    assert_near(got.mfu, got.flops_per_s_per_device / 989.4e12, 1e-12);
    plan = whole_plan(&vit, first, device);
    got = rates_of_step(&vit, &cluster, &plan, DTYPE_BF16, 50);
    assert_true(got.images_per_s == 50 && got.tokens_per_s == 0);
    snprintf(cluster.devices[0].kind, sizeof cluster.devices[0].kind, "abacus");
    got = rates_of_step(&vit, &cluster, &plan, DTYPE_BF16, 50);
    assert_true(got.mfu == 0 && got.flops_per_s_per_device > 0);
    cluster_clear(&cluster);
    model_clear(&gpt);
    model_clear(&vit);
}

static void run_cost_of__counts_every_device_of_the_cluster(void **state)
{
    (void)state;
    const struct cluster cluster = {.num_devices = 8, .price_per_hour = 2.5, .power_watts = 1000};
    const struct run_cost got = run_cost_of(&cluster, INT64_C(7200000000000));
    assert_true(got.device_hours == 16 && got.cost == 40 && got.energy_kwh == 16);
    assert_int_equal(rates_run_ns(1000, 2), INT64_C(500000000000));
    assert_int_equal(rates_run_ns(INT64_MAX, 1e-9), INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_sample_flops__equal_megatrons_formula_for_gpt),
        cmocka_unit_test(rates_sample_flops__equal_palms_formula_for_llama),
        cmocka_unit_test(rates_sample_flops__give_the_mfu_of_published_runs),
        cmocka_unit_test(rates_sample_flops__count_active_experts_only),
        cmocka_unit_test(rates_sample_flops__count_the_forward_alone_of_frozen_layers),
        cmocka_unit_test(rates_of_step__have_the_units_of_the_model),
        cmocka_unit_test(run_cost_of__counts_every_device_of_the_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
