/* What PyTorch's own parallelism costs: collectives of tensor parallelism in steps (async tensor parallelism), float8 by
 * torchao. Sums by hand. */
#include "partition/cluster/cluster.h"
#include "partition/cost/cost.h"
#include "partition/cost/device_curves.h"
#include "partition/cost/kernels.h"
#include "partition/cost/lighter_cost.h"
#include "partition/layout/tensor_group.h"
#include "partition/model/framework.h"
#include "tests/unit/test.h"

enum { ATTENTION = 1, MLP = 2 };
/* Of one sample of llama3-8b, whose group has T devices. */
enum { T = 8, S = 4096, H = 4096, KEYS = 1024, M = 14336 };

static struct model torch_model(enum overlap_kind overlap, int thirty_seconds)
{
    struct model model = {0};
    struct err err = {0};
    if (model_parse("llama3-8b:layers=1,seq=4096,dtype=bf16", &model, &err) != OK)
        fail_msg("%s", err.msg);
    model_set_framework(&model, FRAMEWORK_FSDP_COMPILED, NORM_AUTO);
    model_set_overlap(&model, overlap, DISPATCHER_ALLTOALL);
    if (thirty_seconds > 0)
        model_keep_narrow(&model, thirty_seconds);
    return model;
}

/* The kernels of a pass on one of T devices that divide tokens. */
static int list_scaled(int item, enum pass pass, enum overlap_kind overlap, bool fp8, bool delayed,
                       struct kernel list[KERNELS_MAX])
{
    struct model model = torch_model(overlap, fp8 ? 32 : 0);
    const struct cost_options options = {
        .efficiency = 1, .narrow = fp8 ? NARROW_FP8 : NARROW_NONE, .delayed_scaling = delayed};
    model.tensor = T;
    model.sequence_parallel = true;
    const int n = kernels_of(&model, item, pass, 1, &options, list);
    model_clear(&model);
    return n;
}

static int list_of(int item, enum pass pass, enum overlap_kind overlap, bool fp8,
                   struct kernel list[KERNELS_MAX])
{
    return list_scaled(item, pass, overlap, fp8, false, list);
}

static double moved(const struct kernel *list, int n)
{
    double bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += list[i].kind == KERNEL_MEMORY ? list[i].bytes : 0;
    return bytes;
}

static void expect_products(int item, enum pass pass, const enum kernel_beside beside[2])
{
    struct kernel list[KERNELS_MAX];
    const int n = list_of(item, pass, OVERLAP_TENSOR, false, list);
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (list[i].kind != KERNEL_MATMUL)
            continue;
        const enum kernel_beside want = beside[count++];
        assert_int_equal(list[i].beside, want);
        assert_int_equal(list[i].pieces, want == BESIDE_NOTHING ? 0 : T / 2);
        assert_int_equal(list[i].launches, want == BESIDE_GATHER    ? 2 * T
                                           : want == BESIDE_SCATTER ? 4 * T
                                                                    : 0);
        assert_int_equal(list[i].taken_sms, 0);
    }
    assert_int_equal(count, 2);
}

/* Forward both collectives go in steps, backward only the gather of the output's gradient. Backwards the second
 * linear comes first. */
static void products__run_in_steps_with_gathers_and_the_forward_sum(void **state)
{
    static const enum kernel_beside ahead[] = {BESIDE_GATHER, BESIDE_SCATTER},
                                    back[] = {BESIDE_GATHER, BESIDE_NOTHING},
                                    weights[] = {BESIDE_NOTHING, BESIDE_NOTHING};
    (void)state;
    for (int item = ATTENTION; item <= MLP; item++) {
        expect_products(item, PASS_FWD, ahead);
        expect_products(item, PASS_BWD_INPUT, back);
        expect_products(item, PASS_BWD_WEIGHT, weights);
    }
}

/* Forward: a device's own rows of the input are copied, 2 x 2 bytes, and T tensors of its rows of the output summed
 * into one. Backward: its rows of the output's gradient are copied. */
static void steps__copy_own_rows_and_sum_what_came(void **state)
{
    const double rows = 2.0 * S * H / T;
    (void)state;
    for (int item = ATTENTION; item <= MLP; item++) {
        struct kernel list[KERNELS_MAX];
        const enum pass passes[] = {PASS_FWD, PASS_BWD_INPUT};
        const double want[] = {2 * rows + (T + 1) * rows, 2 * rows};
        for (int p = 0; p < 2; p++) {
            int n = list_of(item, passes[p], OVERLAP_NONE, false, list);
            const double whole = moved(list, n);
            n = list_of(item, passes[p], OVERLAP_TENSOR, false, list);
            assert_true(fabs(moved(list, n) - whole - want[p]) < 1);
            int slow = 0;
            for (int i = 0; i < n; i++)
                if (list[i].share >
                    0) { /* torch.sum() over T tensors: 23 to 43 % of the bandwidth */
                    assert_true(list[i].share >= 0.23 && list[i].share <= 0.43);
                    assert_true(list[i].bytes == (T + 1) * rows);
                    slow++;
                }
            assert_int_equal(slow, p == 0);
        }
    }
}

/* Costs remember times by what they depend on: two models that differ in the format of what is gathered, asked in
 * turn, have the times of costs that know one of them. */
static void times__of_narrow_gathers_are_their_own(void **state)
{
    (void)state;
    const struct cost_options options = {.efficiency = 1, .narrow = NARROW_FP8};
    struct model model = torch_model(OVERLAP_TENSOR, 32);
    struct cluster cluster = {0};
    struct cost cost;
    struct err err = {0};
    int64_t ns[2][2];
    bool extrapolated = false;
    model.tensor = T;
    model.sequence_parallel = true;
    assert_int_equal(cluster_parse("h100-1x8", &cluster, &err), OK);
    for (int apart = 0; apart < 2; apart++) {
        struct kernel_costs *costs = NULL;
        for (int fp8 = 0; fp8 < 2; fp8++) {
            if (!costs)
                costs = kernel_costs_new(&options);
            cost_kernels(&cost, costs);
            model.gathers_fp8 = fp8;
            assert_int_equal(cost.item_ns(cost.ctx, &model, MLP, PASS_FWD, 8, cluster.devices,
                                          &ns[apart][fp8], &extrapolated, &err),
                             OK);
            if (apart) {
                kernel_costs_free(costs);
                costs = NULL;
            }
        }
        kernel_costs_free(costs);
    }
    assert_true(ns[1][0] != ns[1][1]);
    assert_memory_equal(ns[0], ns[1], sizeof ns[0]);
    cluster_clear(&cluster);
    model_clear(&model);
}

/* Times of a pass of the MLP in a group, of its kernels, of what a collective waits beside, and of the collective. */
struct times {
    int64_t pass, kernels, beside, collective;
    int64_t rerun, rerun_kernels; /* of the operators that run again inside the backward */
};

static struct times times_of(const char *cluster_name, enum pass pass, enum collective kind)
{
    struct model model = torch_model(OVERLAP_TENSOR, 0);
    struct cluster cluster = {0};
    struct cost cost;
    struct err err = {0};
    struct tensor_group *group = NULL;
    const struct cost_options options = {.efficiency = 1};
    struct kernel_costs *costs = kernel_costs_new(&options);
    struct times got = {0};
    bool extrapolated = false;
    assert_int_equal(cluster_parse(cluster_name, &cluster, &err), OK);
    cost_kernels(&cost, costs);
    const struct setting setting = {&model, &cluster, &cost};
    const struct layout layout = {.tensor = T, .sequence_parallel = true, .expert = 1};
    assert_int_equal(tensor_group_new(&setting, &layout, &group, &err), OK);
    const struct setting own = tensor_group_setting(group, &setting);
    const struct device *device = own.cluster->devices;
    assert_int_equal(own.cost->item_ns(own.cost->ctx, own.model, MLP, pass, 1, device, &got.pass,
                                       &extrapolated, &err),
                     OK);
    assert_int_equal(
        cost.item_ns(cost.ctx, own.model, MLP, pass, 1, device, &got.kernels, &extrapolated, &err),
        OK);
    assert_int_equal(
        cost.beside_ns(cost.ctx, own.model, MLP, pass, 1, device, kind, &got.beside, &err), OK);
    /* Costs of plans with shares of gradients know it too. */
    struct lighter_cost lighter;
    int64_t beside = -1;
    lighter_cost_init(&cost, 0.5, &lighter);
    assert_int_equal(lighter.cost.beside_ns(lighter.cost.ctx, own.model, MLP, pass, 1, device, kind,
                                            &beside, &err),
                     OK);
    assert_int_equal(beside, got.beside);
    assert_int_equal(cost_rerun_ns(own.cost, own.model, MLP, RERUN_OPS, 1, device, &got.rerun,
                                   &extrapolated, &err),
                     OK);
    assert_int_equal(cost_rerun_ns(&cost, own.model, MLP, RERUN_OPS, 1, device, &got.rerun_kernels,
                                   &extrapolated, &err),
                     OK);
    got.collective = own.cost->group_ns(own.cost->ctx, kind, 0, 2 * (int64_t)S * H);
    tensor_group_free(group);
    kernel_costs_free(costs);
    cluster_clear(&cluster);
    model_clear(&model);
    return got;
}

static int64_t exposed(const struct times *t)
{
    const int64_t covered = t->beside - t->beside / T;
    return t->collective > covered ? t->collective - covered : 0;
}

/* Each of T - 1 copies has a T-th of the product beside it. What takes longer is waited for, and backwards the sum of
 * the input's gradient is waited for as a whole. */
static void pass__waits_for_what_copies_take_longer_than_products(void **state)
{
    static const char *const clusters[] = {"h100-1x8", "rtx4090-1x8"};
    (void)state;
    for (int c = 0; c < 2; c++) {
        const struct times gather = times_of(clusters[c], PASS_FWD, COLLECTIVE_ALLGATHER),
                           scatter = times_of(clusters[c], PASS_FWD, COLLECTIVE_REDUCE_SCATTER),
                           back = times_of(clusters[c], PASS_BWD_INPUT, COLLECTIVE_ALLGATHER),
                           sum = times_of(clusters[c], PASS_BWD_INPUT, COLLECTIVE_REDUCE_SCATTER);
        assert_true(gather.beside > 0 && scatter.beside > 0 && back.beside > 0);
        assert_int_equal(sum.beside, 0);
        assert_true(llabs(gather.pass - gather.kernels - exposed(&gather) - exposed(&scatter)) <=
                    2);
        assert_true(llabs(back.pass - back.kernels - exposed(&back) - sum.collective) <= 2);
        assert_true(c == 0 || exposed(&gather) > 0);
        /* What runs again gathers alone, about half of both collectives. */
        assert_true(llabs(gather.rerun - gather.rerun_kernels -
                          (gather.collective + scatter.collective) / 2) <= 2);
        assert_true(gather.collective > 2);
    }
}

/* In fp8 with one scale a tensor, what is gathered is cast before: a byte an element, and a T-th of the rows. Sums stay
 * in bf16. Not in mxfp8, and not under Transformer Engine. */
static void gathers__are_in_fp8(void **state)
{
    static const int formats[] = {0, 32, 33};
    (void)state;
    for (int f = 0; f < 3; f++) {
        struct model model = torch_model(OVERLAP_NONE, formats[f]), part = {0};
        struct exchange list[MODEL_EXCHANGES_MAX];
        assert_int_equal(model_shard(&model, T, true, &part, NULL), OK);
        assert_int_equal(model_exchanges(&part, MLP, PASS_FWD, list), 2);
        assert_int_equal(list[0].kind, COLLECTIVE_ALLGATHER);
        assert_int_equal(list[0].bytes, (int64_t)S * H * (formats[f] == 32 ? 1 : 2));
        assert_int_equal(list[1].bytes, (int64_t)S * H * 2);
        model_clear(&part);
        model_clear(&model);
    }
}

/* Attention of one of T devices, forward. Casts: of the input's own rows 2 bytes for the largest value, 2 + 2 for the copies;
 * of the output of the heads, all rows; of each weight 2, and 2 + 1. Backward: the output's gradient, own rows, the
 * queries', keys' and values', all rows, and each weight, 2 + 1. */
static void float8__casts_weights_in_each_pass(void **state)
{
    const double qkv = (H + 2.0 * KEYS) / T, weights = H * qkv + (double)H * H / T;
    const double ahead = 6.0 * S * H / T + 6.0 * S * H / T + 5 * weights,
                 back = 6.0 * S * H / T + 6.0 * S * qkv + 3 * weights;
    const enum pass passes[] = {PASS_FWD, PASS_BWD_INPUT};
    struct kernel list[KERNELS_MAX];
    double passes_saved[2];
    (void)state;
    for (int p = 0; p < 2; p++) {
        int n = list_of(ATTENTION, passes[p], OVERLAP_NONE, false, list);
        const double wide = moved(list, n);
        n = list_of(ATTENTION, passes[p], OVERLAP_NONE, true, list);
        const double narrow = moved(list, n);
        assert_true(fabs(narrow - wide - (p == 0 ? ahead : back)) < 1);
        /* Scales of earlier steps need no pass over inputs, gradients and, forward, weights, of 2 bytes. */
        n = list_scaled(ATTENTION, passes[p], OVERLAP_NONE, true, true, list);
        passes_saved[p] = narrow - moved(list, n);
    }
    assert_true(fabs(passes_saved[0] - 2 * (2.0 * S * H / T + weights)) < 1);
    assert_true(fabs(passes_saved[1] - 2 * (S * H / T + S * qkv)) < 1);
}

/* The update casts no weight, which the passes have done. */
static void float8__casts_no_weight_in_the_update(void **state)
{
    struct kernel list[KERNELS_MAX];
    (void)state;
    int n = list_of(MLP, PASS_UPDATE, OVERLAP_NONE, false, list);
    const double wide = moved(list, n);
    n = list_of(MLP, PASS_UPDATE, OVERLAP_NONE, true, list);
    assert_true(moved(list, n) == wide);
}

/* FlashAttention-2 on an H100, 16,384 tokens of heads of 128 under a causal mask: 335 TFLOP/s forward (FlashAttention-3,
 * arXiv 2407.08608, figures of forward speed), 298 with 2,048. */
static void attention__of_h100_reaches_what_flash_attention_2_does(void **state)
{
    static const struct {
        int seq;
        double tflops;
    } rows[] = {
        {2048,  298},
        {8192,  333},
        {16384, 335}
    };
    const struct device_curve *curve = device_curve_find("h100");
    const struct roofline *roof = roofline_find("h100");
    (void)state;
    for (int i = 0; i < 3; i++) {
        const double flops = 4.0 * 16 * 128 * 16384 * rows[i].seq;
        const struct kernel kernel = {.kind = KERNEL_ATTENTION,
                                      .causal = true,
                                      .batch = 16 * 16384 / rows[i].seq,
                                      .m = rows[i].seq,
                                      .k = 128,
                                      .flops = flops};
        const double ns =
            device_kernel_ns(curve, roof->bf16_flops_per_s, roof->mem_bytes_per_s, &kernel);
        assert_true(fabs(flops / 2 / ns / 1e3 / rows[i].tflops - 1) < 0.03);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products__run_in_steps_with_gathers_and_the_forward_sum),
        cmocka_unit_test(steps__copy_own_rows_and_sum_what_came),
        cmocka_unit_test(times__of_narrow_gathers_are_their_own),
        cmocka_unit_test(pass__waits_for_what_copies_take_longer_than_products),
        cmocka_unit_test(gathers__are_in_fp8),
        cmocka_unit_test(float8__casts_weights_in_each_pass),
        cmocka_unit_test(float8__casts_no_weight_in_the_update),
        cmocka_unit_test(attention__of_h100_reaches_what_flash_attention_2_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
