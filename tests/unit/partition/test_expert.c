/* Experts that replicas divide: what a device holds, what the all-to-alls send and take, and what the
 * all-reduce counts, by closed forms on layers of Mixtral. */
#include "partition/plan/autodp.h"
#include "partition/layout/model_shard.h"
#include "partition/search/planner.h"
#include "partition/layout/tensor_group.h"
#include "partition/model/expert_parts.h"
#include "partition/model/framework.h"
#include "partition/step/workload.h"
#include "tests/unit/test.h"

enum {
    LAYERS = 3,
    SEQ = 64,
    H = 4096,
    WIDTH = 14336,
    EXPERTS = 8,
    ACTIVE = 2,
    LATENCY = 700,
    R = 8
};
#define ALL_EXPERTS ((int64_t)EXPERTS * 3 * H * WIDTH) /* parameters of a layer's experts */

/* A time that knows nothing of devices: what the all-to-alls add stands out. */
static enum status plain_ns(const void *ctx, const struct model *model, int item, enum pass pass,
                            int64_t samples, const struct device *device, int64_t *ns,
                            bool *extrapolated, struct err *err)
{
    (void)ctx, (void)device, (void)extrapolated, (void)err, (void)model;
    *ns = 1000 * (1 + item + (int)pass) * samples;
    return OK;
}

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
    int cut[2], device[R], layers[1];
    struct workload workload;
};

/* One stage of all layers, four samples in micro-batches of two; a byte is a nanosecond. */
static void bench_init(struct bench *b, int nodes, int tensor, bool tokens, int expert)
{
    struct err err = {0};
    memset(b, 0, sizeof *b);
    if (model_parse("mixtral-8x7b:layers=3,seq=64,dtype=bf16", &b->model, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(cluster_grid(nodes, R * tensor / nodes, &b->cluster, NULL), OK);
    b->cluster.link_latency_ns = b->cluster.uplink_latency_ns = LATENCY;
    for (int d = 0; d < b->cluster.num_devices; d++)
        b->cluster.devices[d].link_bytes_per_s = 1e9;
    for (int n = 0; n < nodes; n++)
        b->cluster.uplink_bytes_per_s[n] = 1e9;
    b->cost = (struct cost){.source = COST_ROOFLINE, .item_ns = plain_ns};
    b->cut[1] = b->model.num_items;
    b->plan = (struct plan){
        .num_ranks = 1,
        .chunks = 1,
        .num_pipelines = R,
        .layout.tensor = tensor,
        .layout.sequence_parallel = tokens,
        .layout.expert = expert,
        .batch = 4,
        .microbatches = {2, 2, 2},
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

static const struct stage_cost *bench_build(struct bench *b)
{
    const struct setting setting = {&b->model, &b->cluster, &b->cost};
    struct err err = {0};
    workload_clear(&b->workload);
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

/* bf16 weights, fp32 masters and gradients, two moments: 18 bytes a parameter. */
static void workload__a_device_holds_its_share_of_the_experts(void **state)
{
    (void)state;
    for (int tensor = 1; tensor <= 2; tensor++) {
        struct bench whole;
        bench_init(&whole, 1, tensor, false, 1);
        const struct stage_cost *all = bench_build(&whole);
        for (int E = 2; E <= R; E *= 2) {
            struct bench b;
            bench_init(&b, 1, tensor, false, E);
            const struct stage_cost *got = bench_build(&b);
            const int64_t gone = LAYERS * (ALL_EXPERTS - ALL_EXPERTS / E) / tensor;
            assert_int_equal(all->weight_bytes - got->weight_bytes, 6 * gone);
            assert_int_equal(all->grad_bytes - got->grad_bytes, 4 * gone);
            assert_int_equal(all->optim_bytes - got->optim_bytes, 8 * gone);
            assert_int_equal(all->stash_bytes[MB_FULL], got->stash_bytes[MB_FULL]);
            bench_clear(&b);
        }
        bench_clear(&whole);
    }
}

/* Inside a node each device sends (E-1)/E of its tokens, a copy for each expert that they use, and
 * waits for one message. There and back, in the forward, in the backward and where a layer runs
 * again. */
static void workload__experts_expose_two_all_to_alls_a_pass(void **state)
{
    (void)state;
    for (int tensor = 1; tensor <= 2; tensor++)
        for (int tokens = 0; tokens < tensor; tokens++)
            for (int E = 2; E <= R; E *= 2) {
                struct bench b;
                bench_init(&b, 1, tensor, tokens, 1);
                const int64_t bytes = 2 * SEQ * ACTIVE * H * 2 / (tokens ? tensor : 1);
                const int64_t two = 2 * (LATENCY + bytes / E * (E - 1));
                const struct stage_cost all = *bench_build(&b);
                b.plan.layout.expert = E;
                const struct stage_cost got = *bench_build(&b);
                assert_int_equal(got.op_ns[OP_F][MB_FULL] - all.op_ns[OP_F][MB_FULL], LAYERS * two);
                assert_int_equal(got.op_ns[OP_I][MB_FULL] - all.op_ns[OP_I][MB_FULL], LAYERS * two);
                assert_int_equal(got.op_ns[OP_B][MB_FULL] - all.op_ns[OP_B][MB_FULL], LAYERS * two);
                assert_int_equal(got.op_ns[OP_R][MB_FULL] - all.op_ns[OP_R][MB_FULL], LAYERS * two);
                assert_int_equal(got.op_ns[OP_W][MB_FULL], all.op_ns[OP_W][MB_FULL]);
                b.plan.recompute = RECOMPUTE_LAYER;
                b.layers[0] = 2;
                const struct stage_cost again = *bench_build(&b);
                b.plan.layout.expert = 1;
                const struct stage_cost base = *bench_build(&b);
                assert_int_equal(again.op_ns[OP_B][MB_FULL] - base.op_ns[OP_B][MB_FULL],
                                 (LAYERS + 2) * two);
                bench_clear(&b);
            }
}

/* The device whose experts have 1.5 times the mean of the tokens keeps and sends 1.5 times as much. */
static void workload__waits_for_the_device_with_most_tokens(void **state)
{
    (void)state;
    int64_t stash[2], sent[2];
    for (int uneven = 0; uneven < 2; uneven++) {
        int64_t ns[2];
        for (int spread = 0; spread < 2; spread++) {
            struct bench b;
            bench_init(&b, 1, 1, false, spread ? 4 : 1);
            model_set_expert_load(&b.model, uneven ? 1.5 : 1);
            const struct stage_cost *stage = bench_build(&b);
            ns[spread] = stage->op_ns[OP_F][MB_FULL];
            stash[uneven] = stage->stash_bytes[MB_FULL];
            bench_clear(&b);
        }
        sent[uneven] = ns[1] - ns[0] - LAYERS * 2 * LATENCY;
    }
    assert_int_equal(sent[1], sent[0] * 3 / 2);
    assert_true(sent[0] > 0 && stash[1] > stash[0]);
}

/* An overlapped F and B of dualpipe-v hide their all-to-alls x: compute in full, and the share of the
 * device that carries the messages; never less than x. */
static void workload_pair_ns__hides_the_all_to_alls(void **state)
{
    (void)state;
    static const double shares[] = {0, 20.0 / 132, 1};
    for (int slow = 0; slow < 2; slow++) {
        for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
            struct bench b;
            bench_init(&b, 1, 1, false, 1);
            int cut[5] = {0, 1, 2, 4, b.model.num_items};
            b.plan.num_ranks = b.plan.chunks = 2;
            b.plan.num_stages = 4;
            b.plan.num_pipelines = R / 2;
            b.plan.schedule = SCHEDULE_DUALPIPE_V;
            b.plan.batch = 8;
            b.plan.microbatches = microbatches_of(8, 4);
            b.plan.first_item = cut;
            b.cluster.overlap_share = shares[i];
            for (int d = 0; slow && d < R; d++)
                b.cluster.devices[d].link_bytes_per_s = 1e12;
            bench_build(&b);
            const struct op f = {.stage = 0, .kind = OP_F}, back = {.stage = 3, .kind = OP_B};
            const int64_t compute =
                workload_op_ns(&b.workload, 0, f) + workload_op_ns(&b.workload, 0, back);
            int64_t forward;
            assert_int_equal(b.workload.num_stages, 4);
            assert_int_equal(workload_pair_ns(&b.workload, 0, f, back, &forward), compute);
            assert_int_equal(forward, workload_op_ns(&b.workload, 0, f));
            b.plan.layout.expert = 2;
            bench_build(&b);
            const int64_t all =
                workload_op_ns(&b.workload, 0, f) + workload_op_ns(&b.workload, 0, back);
            const int64_t x = all - compute, kept = compute + (int64_t)ceil(shares[i] * (double)x);
            assert_true(x > 0 && (slow || x > compute) && (!slow || x < compute));
            const int64_t ns = workload_pair_ns(&b.workload, 0, f, back, &forward);
            assert_int_equal(ns, kept > x ? kept : x);
            assert_in_range(forward, 1, ns - 1);
            bench_clear(&b);
        }
    }
}

/* A token goes once to each of the E - 1 other devices that has one of its two experts: with 8 experts
 * to each with 1 - C(8 - 8/E, 2) / C(8, 2). */
static void workload__a_token_goes_to_a_device_once(void **state)
{
    static const int64_t of_28[] = {[2] = 22, [4] = 13, [8] = 7}; /* of C(8, 2) */
    const int64_t token = H * 2;
    (void)state;
    for (int E = 2; E <= R; E *= 2) {
        struct bench b;
        bench_init(&b, 1, 1, false, 1);
        const int64_t base = bench_build(&b)->op_ns[OP_F][MB_FULL];
        model_set_overlap(&b.model, OVERLAP_AUTO, DISPATCHER_FLEX);
        b.plan.layout.expert = E;
        const int64_t got = bench_build(&b)->op_ns[OP_F][MB_FULL] - base;
        /* The copies of a sample's tokens, those that stay among them, are whole ones. */
        const int64_t copies = (SEQ * E * of_28[E] + 27) / 28;
        assert_int_equal(got, LAYERS * 2 * (LATENCY + 2 * copies * token / E * (E - 1)));
        bench_clear(&b);
    }
}

/* On two nodes of four devices each token goes once to the other node unless both of its experts are in its own half:
 * of 28 pairs 22 reach a node, so 44 / 28 copies, half of which leave, by four devices through one uplink. Then
 * 8 x 7 / 28 copies, one for each device, of which 3/4 pass inside the node. */
static void workload__a_token_goes_to_a_node_once(void **state)
{
    (void)state;
    const int64_t token = H * 2, waits = LATENCY;
    struct bench b;
    bench_init(&b, 2, 1, false, 1);
    const int64_t base = bench_build(&b)->op_ns[OP_F][MB_FULL];
    model_set_overlap(&b.model, OVERLAP_AUTO, DISPATCHER_FLEX);
    b.plan.layout.expert = R;
    const int64_t got = bench_build(&b)->op_ns[OP_F][MB_FULL] - base;
    const int64_t far = (SEQ * 44 + 27) / 28, near = (SEQ * 8 * 7 + 27) / 28;
    const int64_t between = waits + 4 * (2 * far * token / 2);
    const int64_t inside = waits + 2 * near * token / 4 * 3;
    assert_int_equal(got, LAYERS * 2 * (between + inside));
    bench_clear(&b);
}

/* 2 of 8 experts at random reach 2 (1 - C(4,2) / C(8,2)) = 44/28 of two nodes. Of four groups of two, two are chosen and
 * the experts among their four: a node has none of both groups, one or two with 1, 4 and 1 of C(4,2) = 6, and then misses
 * both experts with 1, C(2,2) / C(4,2) = 1/6 and 0. A device of eight has half a group: it misses with 1/2 + 1/2 C(3,2) / C(4,2). */
static void model_expert_parts__counts_groups(void **state)
{
    (void)state;
    struct model model = {.experts = 8, .experts_active = 2};
    assert_true(fabs(model_expert_parts(&model, 2) - 44.0 / 28) < 1e-12);
    assert_true(fabs(model_expert_parts(&model, 8) - 2) < 1e-12);
    assert_true(fabs(model_expert_parts(&model, 1) - 1) < 1e-12);
    model.expert_groups = 4, model.groups_active = 2;
    assert_true(fabs(model_expert_parts(&model, 2) - 2 * (1 - (1 + 4.0 / 6) / 6)) < 1e-12);
    assert_true(fabs(model_expert_parts(&model, 8) - 8 * (1 - 0.75)) < 1e-12);
    model.expert_groups = 1; /* as without */
    assert_true(fabs(model_expert_parts(&model, 2) - 44.0 / 28) < 1e-12);
}

/* All-to-alls x of a layer beside the passes c of another micro-batch: c + share x, at least x. Those of
 * the last micro-batch are beside none. */
static void workload__other_micro_batches_hide_all_to_alls(void **state)
{
    static const double shares[] = {0, 20.0 / 132, 1};
    (void)state;
    for (int slow = 0; slow < 2; slow++)
        for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
            struct bench b;
            bench_init(&b, 1, 1, false, 4);
            b.cluster.overlap_share = shares[i];
            for (int d = 0; slow && d < R; d++)
                b.cluster.devices[d].link_bytes_per_s = 1e12;
            const struct stage_cost waits = *bench_build(&b);
            b.plan.layout.expert = 1;
            const struct stage_cost base = *bench_build(&b);
            model_set_overlap(&b.model, OVERLAP_EXPERTS, DISPATCHER_ALLTOALL);
            b.plan.layout.expert = 4;
            const struct stage_cost got = *bench_build(&b);
            const int64_t x = waits.op_ns[OP_F][MB_FULL] - base.op_ns[OP_F][MB_FULL];
            /* Equal layers have the times of the first, whose MLP is item 2. */
            const int64_t c = 2 * 1000 * (3 + 4 + 5), both = 2 * (x / LAYERS),
                          part = (int64_t)ceil(shares[i] * (double)both),
                          left = LAYERS * (((both - c > part ? both - c : part) + 1) / 2);
            assert_true(x > 0 && (shares[i] == 1 ? left <= x : left < x));
            assert_int_equal(got.op_ns[OP_F][MB_FULL] - base.op_ns[OP_F][MB_FULL], left);
            assert_int_equal(got.op_ns[OP_B][MB_FULL] - base.op_ns[OP_B][MB_FULL], left);
            assert_int_equal(got.op_ns[OP_F][MB_LAST], waits.op_ns[OP_F][MB_LAST]);
            assert_int_equal(got.op_ns[OP_B][MB_LAST], waits.op_ns[OP_B][MB_LAST]);
            bench_clear(&b);
        }
}

/* On two nodes of four devices, E = 4 stays inside a node. With E = 8 the four devices of a node send
 * half of their tokens through its uplink. */
static void workload__experts_of_two_nodes_share_the_uplink(void **state)
{
    (void)state;
    const int64_t bytes = 2 * SEQ * ACTIVE * H * 2;
    struct bench b;
    bench_init(&b, 2, 1, false, 1);
    const int64_t base = bench_build(&b)->op_ns[OP_F][MB_FULL];
    b.plan.layout.expert = 4;
    assert_int_equal(bench_build(&b)->op_ns[OP_F][MB_FULL] - base,
                     LAYERS * 2 * (LATENCY + bytes / 4 * 3));
    b.plan.layout.expert = 8;
    assert_int_equal(bench_build(&b)->op_ns[OP_F][MB_FULL] - base,
                     LAYERS * 2 * (LATENCY + 4 * bytes / 2));
    bench_clear(&b);
}

/* A ring of R/E sends 2 (R/E - 1) / (R/E) of the gradients of experts. The bucket counts bytes of which
 * a ring of R sends as much, to a byte for each item. */
static void workload__gradients_of_experts_have_shorter_rings(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 1, false, 1);
    bench_build(&b);
    const int64_t dense = b.workload.buckets[0].bytes - 4 * LAYERS * ALL_EXPERTS;
    assert_int_equal(b.workload.num_buckets, 1);
    for (int E = 2; E <= R; E *= 2) {
        b.plan.layout.expert = E;
        bench_build(&b);
        const int64_t counted = b.workload.buckets[0].bytes - dense;
        const int64_t sent = 4 * LAYERS * (ALL_EXPERTS / E) / (R / E) * (R / E - 1);
        assert_in_range(sent - counted / R * (R - 1) + R, 0, 4 * R);
        if (E == R)
            assert_int_equal(counted, 0);
    }
    bench_clear(&b);
}

/* R/E replicas share the experts that they have in common, all R the rest: 18 bytes a parameter in
 * bf16, of which a replica divides 12, 16 or 18 (Rajbhandari et al. 2020). With E = R nobody has
 * the experts of another, so they stay whole. */
static void workload__shards_divide_experts_by_fewer_replicas(void **state)
{
    (void)state;
    static const int divided[SHARD_MODE_COUNT] = {0, 12, 16, 18};
    for (int E = 1; E <= R; E *= 2)
        for (int shard = 0; shard < SHARD_MODE_COUNT; shard++) {
            struct bench b;
            bench_init(&b, 1, 1, false, E);
            const int64_t experts = LAYERS * ALL_EXPERTS / E;
            int64_t dense = 0, layer = 0, most = 0;
            for (int i = 0; i < b.model.num_items; i++) {
                const int64_t params = b.model.items[i].params;
                dense += params - (model_item_has_experts(&b.model, i) ? ALL_EXPERTS : 0);
                layer = b.model.items[i].kind == ITEM_ATTENTION ? params : layer + params;
                if (model_item_has_experts(&b.model, i))
                    most = layer - ALL_EXPERTS + (E == R ? 0 : ALL_EXPERTS / E);
            }
            b.plan.layout.shard = (enum shard_mode)shard;
            const struct stage_cost *got = bench_build(&b);
            const int whole = 18 - divided[shard];
            assert_int_equal(got->weight_bytes + got->grad_bytes + got->optim_bytes,
                             whole * (dense + experts) + divided[shard] * dense / R +
                                 divided[shard] * experts / (R / E));
            if (E <
                R) { /* what is gathered and reduced whole: two layers' weights, one's gradient */
                assert_int_equal(got->work_bytes[0][MB_FULL],
                                 shard == SHARD_WEIGHTS ? 2 * 2 * most : 0);
                assert_int_equal(got->work_bytes[1][MB_FULL] - got->work_bytes[0][MB_FULL],
                                 shard >= SHARD_GRADIENTS ? 4 * most : 0);
            }
            bench_clear(&b);
        }
}

/* Bytes that each device sends in collectives of replicas, with a byte a nanosecond and no
 * compute: (R-1)/R of the dense weights and (R/E-1)/(R/E) of the experts, for each gather and
 * reduce-scatter. */
static void workload__shards_of_experts_have_shorter_rings(void **state)
{
    (void)state;
    for (int E = 1; E <= R; E *= 2) {
        struct bench b;
        bench_init(&b, 1, 1, false, E);
        b.cluster.link_latency_ns = 0;
        b.cost.item_ns = nothing_ns;
        const int64_t experts = LAYERS * (ALL_EXPERTS / E) / (R / E) * (R / E - 1);
        int64_t dense = 0;
        for (int i = 0; i < b.model.num_items; i++)
            dense +=
                b.model.items[i].params - (model_item_has_experts(&b.model, i) ? ALL_EXPERTS : 0);
        const int64_t sent = dense / R * (R - 1) + experts, few = 64 * b.model.num_items;
        /* The time of the all-to-alls is there with any shard. */
        const struct stage_cost *got = bench_build(&b);
        const int64_t forward = got->op_ns[OP_F][MB_FULL], back = got->op_ns[OP_B][MB_FULL];
        b.plan.layout.shard = SHARD_OPTIMIZER;
        got = bench_build(&b);
        assert_in_range(got->op_ns[OP_UPDATE][MB_FULL] - 2 * sent + few, 0, 2 * few);
        b.plan.layout.shard = SHARD_GRADIENTS;
        got = bench_build(&b);
        assert_int_equal(got->op_ns[OP_F][MB_FULL], forward);
        if (E == 1)
            assert_in_range(got->op_ns[OP_B][MB_FULL] - back - 4 * sent + few, 0, 2 * few);
        b.plan.layout.shard = SHARD_WEIGHTS;
        got = bench_build(&b);
        if (E == 1)
            assert_in_range(got->op_ns[OP_F][MB_FULL] - forward - 2 * sent + few, 0, 2 * few);
        assert_true(got->op_ns[OP_F][MB_FULL] >= 2 * sent - few);
        assert_true(got->op_ns[OP_B][MB_FULL] >= (4 + 2) * sent - few);
        assert_true(got->op_ns[OP_B][MB_FULL] <= back + (4 + 2) * sent + few);
        bench_clear(&b);
    }
}

/* One device of a group has each expert (X = 1, T = 2): E of the T R = 16 devices of a stage divide the
 * experts of a layer, each has ALL / E parameters of them, 16 / E have the same ones, and the MLP of
 * experts neither gathers nor scatters tokens. E R = 16 x X: with E = 16 / 2 all of it is within one node
 * of 16, and within two of 4 devices each where a node has 4. */
static void workload__experts_lie_over_tensor_and_data(void **state)
{
    (void)state;
    enum { T = 2 };
    const int64_t sent = 2 * SEQ * ACTIVE * H * 2 / T, tokens = 2 * SEQ * H * 2;
    struct bench whole;
    bench_init(&whole, 1, T, true, 1);
    const struct stage_cost all = *bench_build(&whole);
    const int64_t dense = whole.workload.buckets[0].bytes - 4 * LAYERS * ALL_EXPERTS / T;
    for (int E = 2; E <= EXPERTS; E *= 2) {
        struct bench b;
        bench_init(&b, 1, T, true, E);
        b.plan.layout.expert_tensor = 1;
        const struct stage_cost *got = bench_build(&b);
        const int64_t gone = LAYERS * (ALL_EXPERTS / T - ALL_EXPERTS / E);
        assert_int_equal(all.weight_bytes - got->weight_bytes, 6 * gone);
        assert_int_equal(all.grad_bytes - got->grad_bytes, 4 * gone);
        assert_int_equal(all.optim_bytes - got->optim_bytes, 8 * gone);
        assert_int_equal(all.stash_bytes[MB_FULL], got->stash_bytes[MB_FULL]);
        /* two all-to-alls in place of an all-gather and a reduce-scatter over two devices */
        const int64_t more = 2 * (LATENCY + sent / E * (E - 1)) - 2 * (LATENCY + tokens / 2);
        for (int op = 0; op < 2; op++) {
            const enum op_kind kind = op ? OP_B : OP_F;
            assert_int_equal(got->op_ns[kind][MB_FULL] - all.op_ns[kind][MB_FULL], LAYERS * more);
        }
        const int64_t counted = b.workload.buckets[0].bytes - dense, n = T * R / E;
        const int64_t ring = 4 * LAYERS * (ALL_EXPERTS / E) / n * (n - 1);
        assert_in_range(ring - counted / R * (R - 1) + R, 0, 4 * R);
        b.plan.layout.shard =
            SHARD_OPTIMIZER; /* n devices divide masters and states of the experts */
        const int64_t before = got->optim_bytes - 8 * LAYERS * ALL_EXPERTS / E;
        assert_int_equal(bench_build(&b)->optim_bytes,
                         before / R + 8 * LAYERS * (ALL_EXPERTS / E) / n);
        bench_clear(&b);
    }
    bench_clear(&whole);
}

/* Two nodes of four devices send half of their tokens to each other: with X = 1 in one all-to-all of
 * eight devices, with X = 2 in two of four at once, which share the uplinks. */
static void workload__experts_of_several_nodes_share_uplinks(void **state)
{
    (void)state;
    for (int X = 1; X <= 2; X++) {
        const int T = 2 * X, nodes = T * R / 4, E = 8 / X;
        const int64_t sent = 2 * SEQ * ACTIVE * H * 2 / T, tokens = 2 * SEQ * H * 2;
        struct bench b;
        bench_init(&b, nodes, T, true, 1);
        const int64_t base = bench_build(&b)->op_ns[OP_F][MB_FULL];
        b.plan.layout.expert = E;
        b.plan.layout.expert_tensor = X;
        const int64_t gathers = 2 * ((T - 1) * LATENCY + tokens / T * (T - 1));
        const int64_t own = X > 1 ? 2 * ((X - 1) * LATENCY + tokens / T * (X - 1)) : 0;
        assert_int_equal(bench_build(&b)->op_ns[OP_F][MB_FULL] - base,
                         LAYERS * (2 * (LATENCY + 4 * sent / 2) - gathers + own));
        bench_clear(&b);
    }
}

/* With E and X to choose, the best plan is the best of those with each E and X. */
static void planner_solve__takes_the_best_experts_of_all(void **state)
{
    (void)state;
    enum { T = 2 };
    struct err err = {0};
    struct bench b;
    bench_init(&b, 4, T, true, 1);
    b.model.experts_active = 1; /* the all-to-alls take less than the gathers that X = 1 spares */
    struct planner_problem problem = {
        .setting = {&b.model, &b.cluster, &b.cost},
          .batch = 16, .batch_mode = BATCH_GLOBAL
    };
    for (int trial = 0; trial < 4; trial++) {
        struct planner_options options = {.num_microbatches = trial % 2 ? 16 : AUTO,
                                          .num_replicas = trial < 2 ? 1 : AUTO,
                                          .schedules = 1u << SCHEDULE_1F1B,
                                          .layout.at.tensor = T,
                                          .layout.at.sequence_parallel = true};
        double best = 0;
        int fits = 0, beyond = 0; /* plans whose E exceeds R */
        for (int d = 0; d < b.cluster.num_devices; d++)
            b.cluster.devices[d].mem_bytes = trial == 3 ? 18 * ALL_EXPERTS : INT64_MAX;
        for (int E = 1; E <= EXPERTS; E *= 2)
            for (int X = 1; X <= T; X++) {
                struct planner_result result = {0};
                options.layout.at.expert = E;
                options.layout.at.expert_tensor = X;
                const enum status rc = planner_solve(&problem, &options, &result, &err);
                assert_true(rc == OK || rc == ERR_INFEASIBLE);
                if (rc == OK) {
                    fits++;
                    beyond += E > result.plan.num_pipelines;
                    assert_int_equal(layout_expert_tensor(&result.plan.layout), X);
                    assert_int_equal(T * result.plan.num_pipelines % (E * X), 0);
                    assert_true(result.lower_bound_ns <= result.plan.step_ns);
                    best = fmax(best, result.samples_per_s);
                }
                planner_result_clear(&result);
            }
        struct planner_result result = {0};
        options.layout.open[LAYOUT_EXPERT] = true;
        options.layout.at.expert_tensor = AUTO;
        assert_int_equal(planner_solve(&problem, &options, &result, &err), OK);
        assert_true(fits > 1 && result.samples_per_s == best);
        assert_true(trial >= 2 || beyond > 0);
        assert_int_equal(layout_expert_tensor(&result.plan.layout), 1);
        planner_result_clear(&result);
    }
    bench_clear(&b);
}

/* The best plan with any R is the best of those with each R that E divides, and no plan is faster than
 * the bound. */
static void planner_solve__takes_the_best_replicas_that_experts_divide(void **state)
{
    (void)state;
    for (int trial = 0; trial < 2 * SHARD_MODE_COUNT; trial++) {
        struct bench b;
        const int E = trial % 2 ? 4 : 2;
        bench_init(&b, 1, 1, false, 1);
        struct planner_problem problem = {
            .setting = {&b.model, &b.cluster, &b.cost},
              .batch = 48, .batch_mode = BATCH_GLOBAL
        };
        struct planner_options options = {.num_microbatches = 2,
                                          .schedules = 1u << SCHEDULE_1F1B,
                                          .chunks = AUTO,
                                          .layout.at.expert = E,
                                          .layout.at.shard = (enum shard_mode)(trial / 2)};
        double best = 0;
        struct err err = {0};
        for (int replicas = 0; replicas <= R; replicas++) {
            struct planner_result result = {0};
            options.num_replicas = (replicas + 1) % (R + 1); /* AUTO last */
            const enum status rc = planner_solve(&problem, &options, &result, &err);
            assert_int_equal(rc, options.num_replicas % E == 0 ? OK : ERR_INFEASIBLE);
            if (rc == OK) {
                assert_int_equal(result.plan.layout.expert, E);
                assert_int_equal(result.plan.layout.shard, options.layout.at.shard);
                assert_int_equal(result.plan.num_pipelines % E, 0);
                assert_true(result.lower_bound_ns <= result.plan.step_ns);
                if (options.num_replicas == AUTO)
                    assert_true(result.samples_per_s == best);
                best = result.samples_per_s > best ? result.samples_per_s : best;
            }
            planner_result_clear(&result);
        }
        bench_clear(&b);
    }
}

static void refuses(struct bench *b, int expert, const char *message)
{
    const struct setting setting = {&b->model, &b->cluster, &b->cost};
    struct err err = {0};
    b->plan.layout.expert = expert;
    enum status rc = plan_check_counts(&b->plan, &b->model, &b->cluster, &err);
    if (rc == OK)
        rc = workload_build(&setting, &b->plan, NULL, &b->workload, &err);
    assert_int_equal(rc, ERR_INFEASIBLE);
    assert_string_equal(err.msg, message);
}

static void plans__refuse_groups_of_experts_that_do_not_fit(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 4, true, 1);
    b.plan.layout.expert_tensor = 3;
    refuses(&b, 4, "plan: pipeline.expert_tensor 3 does not divide pipeline.tensor 4");
    b.plan.layout.expert_tensor = 1;
    refuses(&b, 2,
            "plan: pipeline.expert 2 times pipeline.expert_tensor 1 is not a multiple of "
            "pipeline.tensor 4");
    b.plan.num_pipelines = 3;
    refuses(&b, 8,
            "plan: pipeline.expert 8 times pipeline.expert_tensor 1 does not divide the 12 devices "
            "of a stage");
    b.plan.layout.sequence_parallel = false;
    refuses(&b, 4,
            "plan: pipeline.expert_tensor 1 below pipeline.tensor 4 needs "
            "pipeline.sequence_parallel");
    bench_clear(&b);
}

static void plans__refuse_experts_that_cannot_be_divided(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 1, false, 1);
    refuses(&b, 3, "plan: pipeline.expert 3 does not divide 8 replicas");
    b.model.experts = 12;
    refuses(&b, 8,
            "plan: pipeline.expert 8 does not divide the 12 experts of model 'mixtral-8x7b'");
    b.model.experts = 0;
    refuses(&b, 2, "plan: pipeline.expert 2: model 'mixtral-8x7b' has no experts");
    b.model.experts = EXPERTS;
    b.cost.source = COST_MEASURED;
    refuses(&b, 2, "pipeline.expert 2: a measured profile has no times of divided experts");
    b.cost.source = COST_ROOFLINE;
    const struct setting setting = {&b.model, &b.cluster, &b.cost};
    struct tensor_group *group = NULL;
    struct err err = {0};
    assert_int_equal(
        tensor_group_new(&setting,
                         &(struct layout){.tensor = 1, .sequence_parallel = false, .expert = 16},
                         &group, &err),
        ERR_INFEASIBLE);
    assert_string_equal(err.msg,
                        "pipeline.expert 16: cluster '1x8' has room for 8 replicas at most");
    bench_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workload__a_device_holds_its_share_of_the_experts),
        cmocka_unit_test(workload__experts_expose_two_all_to_alls_a_pass),
        cmocka_unit_test(workload__waits_for_the_device_with_most_tokens),
        cmocka_unit_test(workload_pair_ns__hides_the_all_to_alls),
        cmocka_unit_test(workload__a_token_goes_to_a_device_once),
        cmocka_unit_test(workload__a_token_goes_to_a_node_once),
        cmocka_unit_test(model_expert_parts__counts_groups),
        cmocka_unit_test(workload__other_micro_batches_hide_all_to_alls),
        cmocka_unit_test(workload__experts_of_two_nodes_share_the_uplink),
        cmocka_unit_test(workload__gradients_of_experts_have_shorter_rings),
        cmocka_unit_test(workload__shards_divide_experts_by_fewer_replicas),
        cmocka_unit_test(workload__shards_of_experts_have_shorter_rings),
        cmocka_unit_test(planner_solve__takes_the_best_replicas_that_experts_divide),
        cmocka_unit_test(workload__experts_lie_over_tensor_and_data),
        cmocka_unit_test(workload__experts_of_several_nodes_share_uplinks),
        cmocka_unit_test(planner_solve__takes_the_best_experts_of_all),
        cmocka_unit_test(plans__refuse_groups_of_experts_that_do_not_fit),
        cmocka_unit_test(plans__refuse_experts_that_cannot_be_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
