/* Context parallelism: replicas that divide the tokens of a sample. What a device holds, computes and
 * sends, by closed forms on layers of Llama 3. */
#include "partition/layout/model_shard.h"
#include "partition/layout/tensor_group.h"
#include "partition/plan/autodp.h"
#include "partition/plan/rates.h"
#include "partition/search/planner.h"
#include "partition/step/workload.h"
#include "tests/unit/test.h"

enum {
    LAYERS = 3,
    SEQ = 1024,
    HIDDEN = 4096,
    HEADS = 32,
    KEYS = 8,
    WIDE = 128,
    LATENCY = 700,
    R = 8
};
enum { SAMPLES = 2 }; /* of a micro-batch */

/* Compute of items in ns: `core_ns` of it is attention's core. */
struct fixed {
    int64_t item_ns, core_ns;
};

static enum status fixed_item_ns(const void *ctx, const struct model *model, int item,
                                 enum pass pass, int64_t samples, const struct device *device,
                                 int64_t *ns, bool *extrapolated, struct err *err)
{
    (void)model, (void)item, (void)pass, (void)samples, (void)device, (void)extrapolated, (void)err;
    *ns = ((const struct fixed *)ctx)->item_ns;
    return OK;
}

static enum status fixed_core_ns(const void *ctx, const struct model *model, int item,
                                 enum rerun rerun, int64_t samples, const struct device *device,
                                 int64_t *ns, bool *extrapolated, struct err *err)
{
    (void)model, (void)item, (void)samples, (void)device, (void)extrapolated, (void)err;
    (void)rerun;
    *ns = ((const struct fixed *)ctx)->core_ns;
    return OK;
}

struct bench {
    struct model model;
    struct cluster cluster;
    struct fixed fixed;
    struct cost cost;
    struct plan plan;
    int cut[2], device[R], layers[1];
    struct workload workload;
};

/* One stage of all layers, four samples in micro-batches of two; a byte is a nanosecond. */
static void bench_init(struct bench *b, int nodes, int tensor, int context)
{
    struct err err = {0};
    memset(b, 0, sizeof *b);
    if (model_parse("llama3-8b:layers=3,seq=1024,dtype=bf16", &b->model, &err) != OK)
        fail_msg("%s", err.msg);
    model_set_attention(&b->model, ATTENTION_FUSED);
    assert_int_equal(cluster_grid(nodes, R * tensor / nodes, &b->cluster, NULL), OK);
    b->cluster.link_latency_ns = b->cluster.uplink_latency_ns = LATENCY;
    for (int d = 0; d < b->cluster.num_devices; d++)
        b->cluster.devices[d].link_bytes_per_s = 1e9;
    for (int n = 0; n < nodes; n++)
        b->cluster.uplink_bytes_per_s[n] = 1e9;
    b->cost = (struct cost){.source = COST_ROOFLINE,
                            .ctx = &b->fixed,
                            .item_ns = fixed_item_ns,
                            .rerun_ns = fixed_core_ns};
    b->cut[1] = b->model.num_items;
    b->plan = (struct plan){
        .num_ranks = 1,
        .chunks = 1,
        .num_pipelines = R,
        .layout.tensor = tensor,
        .layout.context = context,
        .batch = 2 * SAMPLES,
        .microbatches = {2, SAMPLES, SAMPLES},
        .schedule = SCHEDULE_1F1B,
        .num_stages = 1,
        .first_item = b->cut,
        .device = b->device,
        .recompute_layers = b->layers,
        .optim_bytes_per_param = 8
    };
    assert_int_equal(
        autodp_map_groups(&b->cluster, MAP_PIPELINE_INSIDE, tensor, 1, R, b->device, NULL), OK);
}

static struct stage_cost bench_build(struct bench *b)
{
    const struct setting setting = {&b->model, &b->cluster, &b->cost};
    struct err err = {0};
    workload_clear(&b->workload);
    if (workload_build(&setting, &b->plan, NULL, &b->workload, &err) != OK)
        fail_msg("%s", err.msg);
    return b->workload.stages[0];
}

static void bench_clear(struct bench *b)
{
    workload_clear(&b->workload);
    model_clear(&b->model);
    cluster_clear(&b->cluster);
}

/* Bytes of the keys and values that a device has of a micro-batch's own tokens. */
static int64_t key_bytes(int tensor, int context)
{
    return (int64_t)SAMPLES * (SEQ / context) * 2 * (KEYS / tensor) * WIDE * 2;
}

static int64_t query_bytes(int context) /* queries alone; outputs are as large */
{
    return (int64_t)SAMPLES * (SEQ / context) * HEADS * WIDE * 2;
}

/* A C-th of the activations, all of the weights; the optimizer is divided by all replicas. */
static void workload__a_device_keeps_its_tokens_and_all_weights(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 1, 1);
    const struct stage_cost whole = bench_build(&b);
    for (int C = 2; C <= R; C *= 2) {
        b.plan.layout.context = C;
        b.plan.layout.shard = SHARD_NONE;
        const struct stage_cost got = bench_build(&b);
        assert_int_equal(got.stash_bytes[MB_FULL] * C, whole.stash_bytes[MB_FULL]);
        assert_int_equal(got.weight_bytes, whole.weight_bytes);
        assert_int_equal(got.grad_bytes, whole.grad_bytes);
        assert_int_equal(got.work_bytes[0][MB_FULL], 2 * key_bytes(1, C));
        assert_int_equal(got.work_bytes[1][MB_FULL], 4 * key_bytes(1, C));
        b.plan.layout.context_kind = CONTEXT_ALLGATHER;
        assert_int_equal(bench_build(&b).work_bytes[0][MB_FULL], key_bytes(1, 1));
        b.plan.layout.context_kind = CONTEXT_RING;
        b.plan.layout.shard = SHARD_OPTIMIZER;
        const struct stage_cost shared = bench_build(&b);
        assert_int_equal(shared.optim_bytes * R, whole.optim_bytes);
        assert_int_equal(b.workload.buckets[0].bytes * 2, whole.grad_bytes * 2);
    }
    bench_clear(&b);
}

/* Gathering all keys and values sends (C-1)/C of them, in C-1 steps; backwards they are gathered again
 * and their gradients scattered. */
static void workload__all_gather_exposes_three_collectives(void **state)
{
    (void)state;
    for (int tensor = 1; tensor <= 2; tensor++)
        for (int C = 2; C <= R; C *= 2) {
            struct bench b;
            bench_init(&b, 1, tensor, 1);
            b.fixed = (struct fixed){1000, 500};
            const struct stage_cost base = bench_build(&b);
            b.plan.layout.context = C;
            b.plan.layout.context_kind = CONTEXT_ALLGATHER;
            const int64_t all = key_bytes(tensor, 1);
            const int64_t gather = (C - 1) * (int64_t)LATENCY + all / C * (C - 1);
            /* Collectives of the group take a C-th, because it has as few tokens. */
            struct bench alone;
            bench_init(&alone, 1, tensor, C);
            alone.fixed = b.fixed;
            alone.plan.layout.context_kind = CONTEXT_ULYSSES;
            const struct stage_cost got = bench_build(&b);
            if (tensor == 1) {
                assert_int_equal(got.op_ns[OP_F][MB_FULL] - base.op_ns[OP_F][MB_FULL],
                                 LAYERS * gather);
                assert_int_equal(got.op_ns[OP_I][MB_FULL] - base.op_ns[OP_I][MB_FULL],
                                 LAYERS * 2 * gather);
            }
            assert_int_equal(got.op_ns[OP_W][MB_FULL], base.op_ns[OP_W][MB_FULL]);
            if (KEYS / tensor % C == 0) {
                const struct stage_cost traded = bench_build(&alone);
                const int64_t in = key_bytes(tensor, C) + query_bytes(C) / tensor,
                              out = query_bytes(C) / tensor;
                const int64_t trade = 2 * LATENCY + in / C * (C - 1) + out / C * (C - 1);
                assert_int_equal(got.op_ns[OP_F][MB_FULL] - traded.op_ns[OP_F][MB_FULL],
                                 LAYERS * (gather - trade));
                assert_int_equal(got.op_ns[OP_I][MB_FULL] - traded.op_ns[OP_I][MB_FULL],
                                 LAYERS * (2 * gather - trade));
            }
            bench_clear(&alone);
            bench_clear(&b);
        }
}

/* A hop of the ring lasts as long as the longer of its message and a C-th of the core. The backward
 * takes 5/2 of the core, sends twice as much, and brings the last gradients home. */
static void workload__a_ring_hides_hops_beside_the_core(void **state)
{
    (void)state;
    static const int64_t cores[] = {0, 400000, 2000000, 100000000};
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        for (int C = 2; C <= R; C *= 2) {
            struct bench b;
            bench_init(&b, 1, 1, 1);
            b.fixed = (struct fixed){cores[i], cores[i]};
            const struct stage_cost base = bench_build(&b);
            b.plan.layout.context = C;
            const int64_t hop = LATENCY + key_bytes(1, C), both = LATENCY + 2 * key_bytes(1, C);
            const int64_t part = cores[i] / C, back = cores[i] / 2 * 5 / C;
            const int64_t ahead = hop > part ? (hop - part) * (C - 1) : 0,
                          behind = (both > back ? (both - back) * (C - 1) : 0) + hop;
            struct stage_cost got = bench_build(&b);
            assert_int_equal(got.op_ns[OP_F][MB_FULL] - base.op_ns[OP_F][MB_FULL], LAYERS * ahead);
            assert_int_equal(got.op_ns[OP_R][MB_FULL] - base.op_ns[OP_R][MB_FULL], LAYERS * ahead);
            assert_int_equal(got.op_ns[OP_I][MB_FULL] - base.op_ns[OP_I][MB_FULL], LAYERS * behind);
            assert_int_equal(got.op_ns[OP_B][MB_FULL] - base.op_ns[OP_B][MB_FULL], LAYERS * behind);
            b.plan.recompute = RECOMPUTE_LAYER;
            b.layers[0] = 2;
            const int64_t again = bench_build(&b).op_ns[OP_B][MB_FULL];
            b.plan.layout.context = 1;
            assert_int_equal(again - bench_build(&b).op_ns[OP_B][MB_FULL],
                             LAYERS * behind + 2 * ahead);
            bench_clear(&b);
        }
}

/* On two nodes of four devices a ring of 4 stays inside a node; one of 8 passes the uplinks, a tenth as
 * fast. */
static void workload__a_ring_over_nodes_goes_at_the_uplinks_rate(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 2, 1, 1);
    for (int n = 0; n < 2; n++)
        b.cluster.uplink_bytes_per_s[n] = 1e8;
    b.plan.layout.context = 4;
    assert_int_equal(bench_build(&b).op_ns[OP_F][MB_FULL],
                     LAYERS * 3 * (LATENCY + key_bytes(1, 4)));
    b.plan.layout.context = 8;
    assert_int_equal(bench_build(&b).op_ns[OP_F][MB_FULL],
                     LAYERS * 7 * (LATENCY + 10 * key_bytes(1, 8)));
    bench_clear(&b);
}

/* Flops of a device: every item a C-th, attention's core too, because chunks balance the mask. */
static void model_divide_tokens__leaves_a_part_of_every_flop(void **state)
{
    (void)state;
    struct model whole, part;
    assert_int_equal(model_parse("llama3-8b:layers=3,seq=1024,dtype=bf16", &whole, NULL), OK);
    for (int C = 2; C <= 8; C *= 2) {
        memset(&part, 0, sizeof part);
        assert_int_equal(model_copy(&whole, &part, NULL), OK);
        model_divide_tokens(&part, C);
        assert_int_equal(model_sample_tokens(&part), SEQ);
        for (int i = 0; i < whole.num_items; i++) {
            assert_int_equal(part.items[i].fwd_flops * C, whole.items[i].fwd_flops);
            assert_int_equal(part.items[i].act_bytes * C, whole.items[i].act_bytes);
            assert_int_equal(model_core_flops(&part, i) * C, model_core_flops(&whole, i));
            assert_int_equal(part.items[i].params, whole.items[i].params);
        }
        model_clear(&part);
    }
    model_clear(&whole);
}

static void model_context_check__names_what_is_missing(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int context, tensor;
        enum context_kind kind;
        const char *names;
    } cases[] = {
        {"llama3-8b:seq=1024",       1024, 1, CONTEXT_RING,    "the 1024 tokens"         },
        {"llama3-8b:seq=1024",       3,    1, CONTEXT_RING,    "the 1024 tokens"         },
        {"llama3-8b:seq=1024",       16,   1, CONTEXT_ULYSSES, "the 32 heads and 8 heads"},
        {"llama3-8b:seq=1024",       2,    8, CONTEXT_ULYSSES, "the 4 heads and 1 heads" },
        {"bert-large",               2,    1, CONTEXT_RING,    "not a causal language"   },
        {"vit-b16",                  2,    1, CONTEXT_RING,    "not a causal language"   },
        {"uniform:layers=4,fwd=1ms", 2,    1, CONTEXT_RING,    "not a causal language"   },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model model = {0};
        struct err err = {0};
        assert_int_equal(model_parse(cases[i].model, &model, NULL), OK);
        assert_int_equal(
            model_context_check(&model, cases[i].context, cases[i].kind, cases[i].tensor, &err),
            ERR_INFEASIBLE);
        if (!strstr(err.msg, cases[i].names))
            fail_msg("%s", err.msg);
        model_clear(&model);
    }
}

/* With a global batch the planner's rate counts each sample once, whatever number of replicas share
 * it, and it finds the plan of the best C and kind that it finds with each C and kind given. */
static void planner_solve__takes_the_best_context_of_those_tried(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 1, 1);
    b.fixed = (struct fixed){1000000, 500000};
    struct planner_problem problem = {
        .setting = {&b.model, &b.cluster, &b.cost},
          .batch = 8, .batch_mode = BATCH_GLOBAL
    };
    struct planner_options options = {
        .num_ranks = 1, .num_microbatches = 2, .schedules = 1u << SCHEDULE_1F1B};
    struct planner_result result = {0};
    double best[CONTEXT_KIND_COUNT] = {0};
    for (int kind = 0; kind < CONTEXT_KIND_COUNT; kind++)
        for (int C = 2; C <= 8; C *= 2) {
            options.layout.at.context = C;
            options.layout.at.context_kind = (enum context_kind)kind;
            assert_int_equal(planner_solve(&problem, &options, &result, NULL), OK);
            const struct plan *plan = &result.plan;
            assert_int_equal(layout_context(&plan->layout), C);
            assert_int_equal(plan_samples(plan), 8);
            assert_true(fabs(result.samples_per_s * (double)plan->step_ns / 8e9 - 1) < 1e-9);
            if (C == 4)
                best[kind] = result.samples_per_s;
            planner_result_clear(&result);
        }
    options.layout.at.context = 4;
    options.layout.open[LAYOUT_CONTEXT_KIND] = true;
    assert_int_equal(planner_solve(&problem, &options, &result, NULL), OK);
    assert_int_equal(result.num_layouts, CONTEXT_KIND_COUNT);
    assert_true(result.samples_per_s == fmax(best[0], fmax(best[1], best[2])));
    planner_result_clear(&result);
    bench_clear(&b);
}

/* AUTO divides long samples only: parts of 8,192 tokens at least. */
static void planner_solve__divides_samples_that_are_long_or_few(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int context;
        bool few;
        int layouts;
    } cases[] = {
        {"llama3-8b:layers=3,seq=8192,dtype=bf16",   1, false, 1},
        {"llama3-8b:layers=3,seq=16384,dtype=bf16",  1, false, 2},
        {"llama3-8b:layers=3,seq=131072,dtype=bf16", 1, false, 4},
        {"llama3-8b:layers=3,seq=8192,dtype=bf16",   1, true,  3},
        {"llama3-8b:layers=3,seq=4096,dtype=bf16",   0, false, 4},
        {"llama3-8b:layers=3,seq=256,dtype=bf16",    0, false, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench b;
        bench_init(&b, 1, 1, 1);
        model_clear(&b.model);
        assert_int_equal(model_parse(cases[i].model, &b.model, NULL), OK);
        b.fixed = (struct fixed){1000000, 500000};
        struct planner_problem problem = {
            .setting = {&b.model, &b.cluster, &b.cost},
              .batch = 8, .batch_mode = BATCH_GLOBAL
        };
        struct planner_options options = {.num_microbatches = 2,
                                          .schedules = 1u << SCHEDULE_1F1B,
                                          .few_samples = cases[i].few,
                                          .layout.at.context = cases[i].context,
                                          .layout.open[LAYOUT_CONTEXT] = true};
        struct planner_result result = {0};
        assert_int_equal(planner_solve(&problem, &options, &result, NULL), OK);
        assert_int_equal(result.num_layouts, cases[i].layouts);
        planner_result_clear(&result);
        bench_clear(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workload__a_device_keeps_its_tokens_and_all_weights),
        cmocka_unit_test(workload__all_gather_exposes_three_collectives),
        cmocka_unit_test(workload__a_ring_hides_hops_beside_the_core),
        cmocka_unit_test(workload__a_ring_over_nodes_goes_at_the_uplinks_rate),
        cmocka_unit_test(model_divide_tokens__leaves_a_part_of_every_flop),
        cmocka_unit_test(model_context_check__names_what_is_missing),
        cmocka_unit_test(planner_solve__takes_the_best_context_of_those_tried),
        cmocka_unit_test(planner_solve__divides_samples_that_are_long_or_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
