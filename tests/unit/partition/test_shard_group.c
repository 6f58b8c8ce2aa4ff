/* State that a device does not hold: under HSDP, whose groups of replicas divide gradients or weights of
 * which other groups have copies, and with an optimizer on the host. Bytes and times by closed forms. */
#include "partition/plan/autodp.h"
#include "partition/search/planner.h"
#include "partition/step/workload.h"
#include "tests/unit/test.h"

enum { NODES = 2, R = 8 };
#define LINK 1e9   /* a byte is a nanosecond */
#define UPLINK 1e8 /* of a node: ten */

static enum status nothing_ns(const void *ctx, const struct model *model, int item, enum pass pass,
                              int64_t samples, const struct device *device, int64_t *ns,
                              bool *extrapolated, struct err *err)
{
    (void)ctx, (void)device, (void)extrapolated, (void)err, (void)model, (void)item, (void)pass,
        (void)samples;
    *ns = 0;
    return OK;
}

struct bench {
    struct model model;
    struct cluster cluster;
    struct cost cost;
    struct plan plan;
    int cut[2], device[R];
    struct workload workload;
    int64_t params;
};

static void bench_init(struct bench *b)
{
    memset(b, 0, sizeof *b);
    assert_int_equal(model_parse("llama3-8b:layers=3,seq=64,dtype=bf16", &b->model, NULL), OK);
    assert_int_equal(cluster_grid(NODES, R / NODES, &b->cluster, NULL), OK);
    b->cluster.link_latency_ns = b->cluster.uplink_latency_ns = 0;
    for (int d = 0; d < R; d++)
        b->cluster.devices[d].link_bytes_per_s = LINK;
    for (int n = 0; n < NODES; n++)
        b->cluster.uplink_bytes_per_s[n] = UPLINK;
    b->cost = (struct cost){.source = COST_ROOFLINE, .item_ns = nothing_ns};
    b->cut[1] = b->model.num_items;
    for (int i = 0; i < b->model.num_items; i++)
        b->params += b->model.items[i].params;
    b->plan = (struct plan){
        .num_ranks = 1,
        .chunks = 1,
        .num_pipelines = R,
        .batch = 1,
        .microbatches = {1, 1, 1},
        .schedule = SCHEDULE_1F1B,
        .num_stages = 1,
        .first_item = b->cut,
        .device = b->device,
        .optim_bytes_per_param = 8
    };
    for (int r = 0; r < R; r++)
        b->device[r] = r;
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

/* 18 bytes a parameter in bf16 with fp32 masters, gradients and two moments: G devices divide 16 of them,
 * or all. */
static void workload__a_device_holds_a_share_of_its_group(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    for (int G = 2; G < R; G *= 2)
        for (int weights = 0; weights < 2; weights++) {
            b.plan.layout.shard = weights ? SHARD_WEIGHTS : SHARD_GRADIENTS;
            b.plan.layout.shard_group = G;
            const struct stage_cost got = bench_build(&b);
            const int64_t whole = weights ? 0 : 2 * b.params,
                          share = b.params * (weights ? 18 : 16);
            assert_int_equal(got.weight_bytes + got.grad_bytes + got.optim_bytes,
                             whole + share / G);
        }
    bench_clear(&b);
}

/* Without compute all transfers are exposed. Inside a node a group of G gathers 2 bytes a parameter and
 * reduces 4, (G-1)/G of them. The R/G copies of each share are all-reduced: with G = 4, a node, over
 * uplinks that the four rings of a node share. With all R dividing, one ring passes the uplinks. */
static void workload__groups_gather_inside_and_sum_copies_outside(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    b.plan.layout.shard = SHARD_WEIGHTS;
    const double few = 1e-4 * (double)b.params;
    for (int G = 2; G <= R; G *= 2) {
        b.plan.layout.shard_group = G == R ? 0 : G;
        const struct stage_cost got = bench_build(&b);
        const double rate = (G == R ? UPLINK : LINK) / 1e9, part = (double)(G - 1) / G / rate;
        const double n = R / G, P = (double)b.params;
        /* With G = 2 a ring has two devices on each node, and its node 2 rings on the uplink. */
        const double sums = 2 * (n - 1) / n * (4 * P / G) / (UPLINK / 1e9 / (G == 2 ? 2 : 4));
        const double gathers = 2 * P * part, reduces = 4 * P * part + (G == R ? 0 : sums);
        assert_true(fabs((double)got.op_ns[OP_F][MB_FULL] - gathers) < few);
        assert_true(fabs((double)got.op_ns[OP_B][MB_FULL] - gathers - reduces) < 10 * few);
        b.plan.layout.shard = SHARD_GRADIENTS;
        const struct stage_cost two = bench_build(&b);
        assert_int_equal(two.op_ns[OP_F][MB_FULL], 0);
        assert_true(fabs((double)two.op_ns[OP_B][MB_FULL] - reduces) < 10 * few);
        b.plan.layout.shard = SHARD_WEIGHTS;
    }
    bench_clear(&b);
}

/* With the optimizer on the host a device keeps 2 bytes of weights and 4 of gradients a parameter. UPDATE
 * sends gradients over its copy engine and takes 2 bytes of weights back; the host's memory, of which a
 * device has its node's fourth, moves 4 + 2 (4 + 8) + 2 bytes. A shard divides all of it by R. */
static void workload__an_optimizer_on_the_host_leaves_the_device(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    b.plan.layout.offload = true;
    for (int d = 0; d < R; d++)
        b.cluster.devices[d].copy_bytes_per_s = 2e9;
    for (int n = 0; n < NODES; n++)
        b.cluster.uplink_bytes_per_s[n] = 1e18;
    for (int own = 0; own < 2; own++) {
        const double host = own ? 8e9 : HOST_MEM_BYTES_PER_S, P = (double)b.params;
        const double each = 1e9 * ((4 + 2) / 2e9 + (4 + 2 * (4 + 8) + 2) * 4 / host);
        b.cluster.host_mem_bytes_per_s = own ? host : 0;
        b.plan.layout.shard = SHARD_NONE;
        const struct stage_cost whole = bench_build(&b);
        assert_int_equal(whole.weight_bytes, 2 * b.params);
        assert_int_equal(whole.grad_bytes, 4 * b.params);
        assert_int_equal(whole.optim_bytes, 0);
        assert_true(fabs((double)whole.op_ns[OP_UPDATE][MB_FULL] - each * P) < 1e-6 * each * P);
        b.plan.layout.shard = SHARD_WEIGHTS; /* nothing is gathered behind the update */
        const struct stage_cost share = bench_build(&b);
        assert_true(fabs((double)share.op_ns[OP_UPDATE][MB_FULL] - each * P / R) < 1e-6 * each * P);
    }
    bench_clear(&b);
}

/* A job whose optimizer fits no device has a plan with it on the host; bounds know that. */
static void planner_solve__fits_what_the_host_takes(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    for (int d = 0; d < R; d++)
        b.cluster.devices[d].mem_bytes = b.params * 7;
    struct planner_problem problem = {
        .setting = {&b.model, &b.cluster, &b.cost},
          .batch = 1, .optim_bytes_per_param = 8
    };
    struct planner_options options = {
        .num_ranks = 1, .num_replicas = 1, .num_microbatches = 1, .schedules = 1u << SCHEDULE_1F1B};
    struct planner_result result = {0};
    assert_int_equal(planner_solve(&problem, &options, &result, NULL), ERR_INFEASIBLE);
    options.offload = OFFLOAD_OPTIMIZER;
    assert_int_equal(planner_solve(&problem, &options, &result, NULL), OK);
    assert_true(result.plan.layout.offload);
    assert_true(result.lower_bound_ns <= result.plan.step_ns);
    planner_result_clear(&result);
    bench_clear(&b);
}

/* Time that grows with the parameters and samples of a pass; an update takes none. */
static enum status params_ns(const void *ctx, const struct model *model, int item, enum pass pass,
                             int64_t samples, const struct device *device, int64_t *ns,
                             bool *extrapolated, struct err *err)
{
    (void)ctx, (void)device, (void)extrapolated, (void)err;
    *ns = pass == PASS_UPDATE ? 0 : model->items[item].params * samples / 100;
    return OK;
}

/* Where the optimizer is: over memories and batches, AUTO makes as many samples a second as the better
 * of the fixed values, and FIT goes to the host where no plan fits without, or one that is 5 % faster
 * fits with. */
static void planner_solve__offloads_where_it_is_faster_or_must(void **state)
{
    (void)state;
    struct bench b;
    int faster = 0, needed = 0, kept = 0, moved = 0;
    bench_init(&b);
    b.cost.item_ns = params_ns;
    b.cost.source = COST_CONSTANT;
    for (int trial = 0; trial < 15; trial++) {
        static const double last[] = {2.1e9, 2.246e9, 2.6e9}; /* 3 % slower, 3 and 16 % faster */
        for (int d = 0; d < R; d++) {
            b.cluster.devices[d].mem_bytes = b.params * (trial < 12 ? 3 + trial : 8) / 2;
            b.cluster.devices[d].copy_bytes_per_s = trial >= 12      ? last[trial - 12]
                                                    : trial % 3 == 0 ? 1e8
                                                                     : 1e12;
        }
        b.cluster.host_mem_bytes_per_s = 1e13;
        const struct planner_problem problem = {
            .setting = {&b.model, &b.cluster, &b.cost},
            .batch = R * (trial < 12 ? 1 + trial % 2 : 2),
            .batch_mode = BATCH_GLOBAL,
            .optim_bytes_per_param = 8
        };
        struct planner_options options = {.layout.open[LAYOUT_SHARD] = true,
                                          .schedules = 1u << SCHEDULE_1F1B};
        double rates[OFFLOAD_FIT + 1];
        bool away[OFFLOAD_FIT + 1];
        double gap = 0;
        for (int choice = 0; choice <= OFFLOAD_FIT; choice++) {
            struct planner_result result = {0};
            options.offload = (enum offload_choice)choice;
            const enum status rc = planner_solve(&problem, &options, &result, NULL);
            assert_true(rc == OK || rc == ERR_INFEASIBLE);
            rates[choice] = rc == OK ? result.samples_per_s : 0;
            away[choice] = rc == OK && result.plan.layout.offload;
            gap = choice == OFFLOAD_NONE ? result.gap : gap;
            planner_result_clear(&result);
        }
        const double here = rates[OFFLOAD_NONE], there = rates[OFFLOAD_OPTIMIZER];
        assert_true(rates[OFFLOAD_AUTO] == fmax(here, there));
        const bool moves = gap > 0.05 && there >= 1.05 * here;
        assert_true(rates[OFFLOAD_FIT] == (here > 0 && !moves ? here : there));
        assert_true(away[OFFLOAD_FIT] == (there > 0 && (here == 0 || moves)));
        assert_true(away[OFFLOAD_AUTO] == (there > here));
        needed += here == 0 && there > 0;
        faster += here > 0 && there > here && !moves;
        moved += here > 0 && moves;
        kept += here > 0 && here >= there;
    }
    if (!needed || !faster || !kept || !moved)
        fail_msg("needed %d times, faster %d, kept %d, moved %d", needed, faster, kept, moved);
    bench_clear(&b);
}

static void plans__refuse_groups_without_copies(void **state)
{
    (void)state;
    static const struct {
        int group, replicas, expert;
        enum shard_mode shard;
        const char *names;
    } cases[] = {
        {4, 8, 1, SHARD_OPTIMIZER, "needs pipeline.shard gradients or weights"},
        {3, 8, 1, SHARD_WEIGHTS,   "no whole copies of 8 replicas"            },
        {8, 8, 1, SHARD_WEIGHTS,   "no whole copies of 8 replicas"            },
        {2, 8, 2, SHARD_WEIGHTS,   "pipeline.expert 2"                        },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        assert_int_equal(shard_group_check(cases[i].group, cases[i].shard, cases[i].replicas,
                                           cases[i].expert, &err),
                         ERR_INFEASIBLE);
        if (!strstr(err.msg, cases[i].names))
            fail_msg("%s", err.msg);
    }
    assert_int_equal(shard_group_check(4, SHARD_WEIGHTS, 8, 1, NULL), OK);
}

/* The groups of a node win if uplinks are slow and the weights fit a node. */
static void planner_solve__divides_by_nodes_where_uplinks_are_slow(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    for (int d = 0; d < R; d++)
        b.cluster.devices[d].mem_bytes = b.params * 18 / 2;
    struct planner_problem problem = {
        .setting = {&b.model, &b.cluster, &b.cost},
        .batch = R,
        .batch_mode = BATCH_GLOBAL,
        .optim_bytes_per_param = 8
    };
    struct planner_options options = {.num_ranks = 1,
                                      .num_replicas = R,
                                      .num_microbatches = R,
                                      .layout.open[LAYOUT_SHARD] = true,
                                      .schedules = 1u << SCHEDULE_1F1B};
    struct planner_result result = {0};
    assert_int_equal(planner_solve(&problem, &options, &result, NULL), OK);
    assert_int_equal(result.num_layouts, SHARD_MODE_COUNT + 2);
    assert_true(result.plan.layout.shard >= SHARD_GRADIENTS);
    assert_int_equal(result.plan.layout.shard_group, 4);
    planner_result_clear(&result);
    bench_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workload__a_device_holds_a_share_of_its_group),
        cmocka_unit_test(workload__groups_gather_inside_and_sum_copies_outside),
        cmocka_unit_test(workload__an_optimizer_on_the_host_leaves_the_device),
        cmocka_unit_test(planner_solve__fits_what_the_host_takes),
        cmocka_unit_test(planner_solve__offloads_where_it_is_faster_or_must),
        cmocka_unit_test(plans__refuse_groups_without_copies),
        cmocka_unit_test(planner_solve__divides_by_nodes_where_uplinks_are_slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
