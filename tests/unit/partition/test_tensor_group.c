/* Shares of tensor-parallel groups, shards of replicas, and recompute inside backwards, by the closed
 * forms of the papers: Shoeybi et al. 2019 and Narayanan et al. 2021 (Megatron-LM), Korthikanti et
 * al. 2022, Rajbhandari et al. 2020 (ZeRO). */
#include "partition/plan/autodp.h"
#include "partition/step/lower.h"
#include "partition/layout/model_shard.h"
#include "partition/model/attention.h"
#include "partition/model/framework.h"
#include "partition/step/recompute_fit.h"
#include "partition/step/schedule_memory.h"
#include "partition/layout/tensor_group.h"
#include "partition/step/traffic.h"
#include "tests/unit/test.h"

enum { S = 256, H = 96, A = 8, LAYERS = 3, VOCAB = 160 };

static void make_gpt(struct model *model, enum attention_kind attention)
{
    struct model_spec spec;
    struct err err = {0};
    assert_int_equal(model_preset("gpt2", &spec, &err), OK);
    spec.num_layers = LAYERS;
    spec.hidden = H;
    spec.heads = A;
    spec.mlp = 4 * H;
    spec.seq = spec.max_seq = S;
    spec.vocab = VOCAB;
    spec.elem_bytes = 2;
    assert_int_equal(model_build(&spec, model, &err), OK);
    model_set_attention(model, attention);
}

/* A microsecond for each flop of a forward, twice that for each half of a backward. */
static enum status flops_ns(const void *ctx, const struct model *model, int item, enum pass pass,
                            int64_t samples, const struct device *device, int64_t *ns,
                            bool *extrapolated, struct err *err)
{
    (void)ctx, (void)device, (void)extrapolated, (void)err;
    const int64_t once = 1 + model->items[item].fwd_flops / 1000;
    *ns = pass == PASS_UPDATE ? model->items[item].params : once * samples;
    return OK;
}

struct bench {
    struct model model;
    struct cluster cluster;
    struct cost cost;
    struct plan plan;
    int cut[8], device[16], layers[8];
    struct workload workload;
};

/* One layer in the middle of three stages: embedding and the first layer, the second, the rest. */
static void bench_init(struct bench *b, int tensor, bool tokens, int replicas)
{
    static const int cut[] = {0, 3, 5, 9};
    memset(b, 0, sizeof *b);
    make_gpt(&b->model, ATTENTION_UNFUSED);
    assert_int_equal(cluster_grid(3 * replicas, tensor, &b->cluster, NULL), OK);
    b->cluster.link_latency_ns = 700;
    b->cluster.uplink_latency_ns = 0;
    b->cost = (struct cost){.source = COST_ROOFLINE, .item_ns = flops_ns};
    memcpy(b->cut, cut, sizeof cut);
    b->plan = (struct plan){
        .num_ranks = 3,
        .chunks = 1,
        .num_pipelines = replicas,
        .layout.tensor = tensor,
        .layout.sequence_parallel = tokens,
        .batch = 4,
        .microbatches = {2, 2, 2},
        .schedule = SCHEDULE_1F1B,
        .num_stages = 3,
        .first_item = b->cut,
        .device = b->device,
        .recompute_layers = b->layers,
        .optim_bytes_per_param = 8
    };
    assert_int_equal(
        autodp_map_groups(&b->cluster, MAP_PIPELINE_INSIDE, tensor, 3, replicas, b->device, NULL),
        OK);
}

static struct setting bench_setting(const struct bench *b)
{
    return (struct setting){&b->model, &b->cluster, &b->cost};
}

static void bench_build(struct bench *b)
{
    const struct setting setting = bench_setting(b);
    struct err err = {0};
    workload_clear(&b->workload);
    if (workload_build(&setting, &b->plan, NULL, &b->workload, &err) != OK)
        fail_msg("%s", err.msg);
}

static void bench_clear(struct bench *b)
{
    workload_clear(&b->workload);
    model_clear(&b->model);
    cluster_clear(&b->cluster);
}

/* --- Korthikanti et al., table 2 -------------------------------------------------------------- */

/* Activation memory per layer, in bytes for b samples; the statistics of the two norms, which the
 * paper leaves out, come on top. */
static void workload__activation_memory_is_that_of_the_paper(void **state)
{
    (void)state;
    const int64_t b = 2, sbh = S * b * (int64_t)H, scores = 5 * A * S * (int64_t)S * b;
    for (int t = 1; t <= 8; t *= 2)
        for (int tokens = 0; tokens <= (t > 1); tokens++) {
            struct bench bench;
            const int64_t statistics = 16 * S * b / (tokens ? t : 1);
            const int64_t kept = tokens ? 34 * sbh / t : 10 * sbh + 24 * sbh / t;
            bench_init(&bench, t, tokens, 1);
            const struct stage_cost *layer;
            bench_build(&bench);
            layer = &bench.workload.stages[1];
            assert_int_equal(layer->stash_bytes[MB_FULL], kept + scores / t + statistics);
            assert_int_equal(layer->work_bytes[1][MB_FULL], 0);
            bench.plan.recompute = RECOMPUTE_SELECTIVE;
            bench_build(&bench);
            layer = &bench.workload.stages[1];
            assert_int_equal(layer->stash_bytes[MB_FULL], kept + statistics);
            /* The MLP's backward comes first and makes room. */
            const int64_t mlp = tokens ? 21 * sbh / t : 5 * sbh + 16 * sbh / t;
            assert_int_equal(layer->work_bytes[1][MB_FULL], scores / t - mlp - statistics / 2);
            bench.plan.recompute = RECOMPUTE_LAYER;
            bench.layers[1] = 1;
            bench_build(&bench);
            layer = &bench.workload.stages[1];
            const int64_t input = 2 * sbh / (tokens ? t : 1);
            assert_int_equal(layer->stash_bytes[MB_FULL], input);
            assert_int_equal(layer->work_bytes[1][MB_FULL], kept + scores / t + statistics - input);
            bench_clear(&bench);
        }
}

/* Without dropout a layer keeps softmax's output alone, 2 bytes a score in bf16 and 4 in fp32, and no masks; fused
 * attention then takes out what is left. A group of 4 divides it as before. */
static void model_drop_nothing__takes_out_masks_and_second_scores(void **state)
{
    const char *const texts[] = {"gpt2:layers=1,seq=512,dtype=bf16", "gpt2:layers=1,seq=512"};
    (void)state;
    for (int e = 2, i = 0; i < 2; e = 4, i++) {
        struct model model = {0}, with = {0}, part = {0}, part_with = {0};
        struct err err = {0};
        const int64_t scores = 12 * 512 * 512, mask = 512 * 768;
        assert_int_equal(model_parse(texts[i], &with, &err), OK);
        assert_int_equal(model_parse(texts[i], &model, &err), OK);
        model_drop_nothing(&model);
        assert_int_equal(model_core_stash_bytes(&model, 1), scores * e);
        assert_int_equal(with.items[0].stash_bytes - model.items[0].stash_bytes, mask);
        assert_int_equal(with.items[1].stash_bytes - model.items[1].stash_bytes,
                         mask + scores * (e + 1));
        assert_int_equal(with.items[2].stash_bytes - model.items[2].stash_bytes, mask);
        assert_int_equal(model_shard(&with, 4, false, &part_with, &err), OK);
        assert_int_equal(model_shard(&model, 4, false, &part, &err), OK);
        assert_int_equal(part_with.items[1].stash_bytes - part.items[1].stash_bytes,
                         mask + scores * (e + 1) / 4);
        model_fuse_attention(&model);
        assert_int_equal(with.items[1].stash_bytes - model.items[1].stash_bytes,
                         mask + scores * (2 * e + 1) - 12 * 512 * 4);
        model_clear(&model);
        model_clear(&with);
        model_clear(&part_with);
        model_clear(&part);
    }
}

/* Fused attention keeps a statistic of 4 bytes for each head and token in place of the scores. */
static void model_fuse_attention__takes_out_the_score_matrices(void **state)
{
    (void)state;
    struct model fused = {0}, unfused = {0};
    make_gpt(&fused, ATTENTION_FUSED);
    make_gpt(&unfused, ATTENTION_UNFUSED);
    assert_int_equal(unfused.items[1].stash_bytes - fused.items[1].stash_bytes,
                     5 * A * S * S - 4 * A * S);
    assert_int_equal(model_core_stash_bytes(&fused, 1), 0);
    assert_int_equal(model_core_stash_bytes(&unfused, 1), 5 * A * S * S);
    assert_int_equal(unfused.items[2].stash_bytes, fused.items[2].stash_bytes);
    model_fuse_attention(&fused);
    assert_int_equal(unfused.items[1].stash_bytes - fused.items[1].stash_bytes,
                     5 * A * S * S - 4 * A * S);
    model_clear(&fused);
    model_clear(&unfused);
}

/* FlashAttention needs Ampere or later. */
static void tensor_group_new__leaves_the_scores_to_devices_before_ampere(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        enum attention_kind attention;
    } kinds[] = {
        {"v100",    ATTENTION_UNFUSED},
        {"rtx5000", ATTENTION_UNFUSED},
        {"a100",    ATTENTION_FUSED  },
        {"mi300x",  ATTENTION_FUSED  }
    };
    struct model model = {0};
    make_gpt(&model, ATTENTION_AUTO);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct cluster cluster = {0};
        struct cost cost = {.source = COST_ROOFLINE, .item_ns = flops_ns};
        struct tensor_group *group = NULL;
        const struct layout layout = {.tensor = 1, .expert = 1, .context = 1};
        assert_int_equal(cluster_grid(1, 1, &cluster, NULL), OK);
        snprintf(cluster.devices[0].kind, sizeof cluster.devices[0].kind, "%s", kinds[i].kind);
        const struct setting setting = {&model, &cluster, &cost};
        assert_int_equal(tensor_group_new(&setting, &layout, &group, NULL), OK);
        const struct setting own = tensor_group_setting(group, &setting);
        assert_int_equal(own.model->attention, kinds[i].attention);
        tensor_group_free(group);
        cluster_clear(&cluster);
    }
    model_clear(&model);
}

/* --- Megatron-LM ------------------------------------------------------------------------------- */

static void model_shard__divides_weights_and_flops_as_megatron_does(void **state)
{
    (void)state;
    struct model whole = {0}, part = {0};
    const int64_t h = H, m = 4 * H;
    make_gpt(&whole, ATTENTION_AUTO);
    for (int t = 1; t <= 8; t *= 2) {
        assert_int_equal(model_shard(&whole, t, false, &part, NULL), OK);
        assert_int_equal(part.items[0].params, VOCAB * h / t + S * h);
        assert_int_equal(part.items[1].params, 4 * h * h / t + 3 * h / t + h + 2 * h);
        assert_int_equal(part.items[2].params, 2 * h * m / t + m / t + h + 2 * h);
        assert_int_equal(part.items[1].fwd_flops, whole.items[1].fwd_flops / t);
        assert_int_equal(part.items[2].fwd_flops, whole.items[2].fwd_flops / t);
        assert_int_equal(part.items[part.num_items - 1].fwd_flops, 2 * S * h * VOCAB / t);
        assert_int_equal(part.items[part.num_items - 1].tied_params, VOCAB * h / t);
        assert_int_equal(model_core_flops(&part, 1), 4 * S * (int64_t)S * H / t);
        model_clear(&part);
    }
    model_clear(&whole);
}

/* More devices than heads of keys: T / g neighbours hold each such head whole, and sum its
 * gradients once a step. With 8 heads of queries, 2 of keys and T = 8 a device has one of each. */
static void model_shard__gives_each_device_a_head_of_keys(void **state)
{
    (void)state;
    struct model whole = {0};
    struct cluster cluster = {0};
    const struct cost cost = {.source = COST_ROOFLINE, .item_ns = flops_ns};
    struct err err = {0};
    const int64_t h = 64, a = 8, g = 2, d = 8, s = 32, e = 2;
    assert_int_equal(model_parse("llama:layers=2,hidden=64,heads=8,kv_heads=2,mlp=96,vocab=128,seq="
                                 "32,dtype=bf16",
                                 &whole, &err),
                     OK);
    assert_int_equal(cluster_grid(1, 8, &cluster, NULL), OK);
    const struct setting setting = {&whole, &cluster, &cost};
    for (int t = 2; t <= 8; t *= 2) {
        struct tensor_group *group = NULL;
        const int64_t keys = t > g ? 1 : g / t; /* heads of a device */
        assert_int_equal(
            tensor_group_new(&setting,
                             &(struct layout){.tensor = t, .sequence_parallel = false, .expert = 1},
                             &group, &err),
            OK);
        const struct setting own = tensor_group_setting(group, &setting);
        const struct item *item = &own.model->items[1];
        assert_int_equal(item->params, 2 * h * a * d / t + 2 * h * keys * d + h);
        assert_int_equal(item->fwd_flops,
                         2 * s * (2 * h * a * d / t + 2 * h * keys * d) + 4 * s * s * a * d / t);
        assert_int_equal(item->stash_bytes,
                         e * s * (2 * h + 2 * a * d / t + 2 * keys * d) + 4 * s + 4 * a * s / t);
        int64_t ns;
        bool extrapolated = false;
        assert_int_equal(cost_item_ns(own.cost, own.model, 1, PASS_UPDATE, 2,
                                      &own.cluster->devices[0], STASH_FAR, &ns, &extrapolated,
                                      &err),
                         OK);
        const int devices[] = {0, 1, 2, 3};
        const int64_t sum = cluster_collective_ns(&cluster, COLLECTIVE_ALLREDUCE, devices,
                                                  (int)(t / g), 2 * h * d * 4);
        assert_int_equal(ns, item->params + (t > g ? sum : 0));
        tensor_group_free(group);
    }
    model_clear(&whole);
    assert_int_equal(
        model_parse("llama:layers=1,hidden=96,heads=12,kv_heads=4,mlp=96,vocab=128", &whole, &err),
        OK);
    assert_int_equal(model_shard_check(&whole, 6, false, &err), ERR_INFEASIBLE);
    assert_string_equal(err.msg,
                        "pipeline.tensor 6 is not a multiple of heads of keys 4 of model 'llama'");
    assert_int_equal(model_shard_check(&whole, 12, false, &err), OK);
    model_clear(&whole);
    cluster_clear(&cluster);
}

/* Bytes that a device sends in a pass of an item: (n-1)/n for each step of a ring. */
static int64_t sent_bytes(const struct model *part, int item, enum pass pass, bool hidden)
{
    struct exchange exchanges[MODEL_EXCHANGES_MAX];
    const int n = model_exchanges(part, item, pass, exchanges), t = part->tensor;
    int64_t sent = 0;
    for (int i = 0; i < n; i++)
        if (exchanges[i].hidden == hidden)
            sent += exchanges[i].count * exchanges[i].bytes / t * (t - 1) *
                    (exchanges[i].kind == COLLECTIVE_ALLREDUCE ? 2 : 1);
    return sent;
}

/* Two all-reduces of [s, h] in a layer's forward and two in its backward; sequence parallelism sends
 * as much, and gathers each input once more behind the backward's compute. */
static void model_exchanges__send_what_the_papers_say(void **state)
{
    (void)state;
    struct model whole = {0}, part = {0};
    const int64_t bsh = S * (int64_t)H * 2;
    make_gpt(&whole, ATTENTION_AUTO);
    for (int t = 2; t <= 8; t *= 2)
        for (int tokens = 0; tokens < 2; tokens++) {
            assert_int_equal(model_shard(&whole, t, tokens, &part, NULL), OK);
            const int64_t one = 2 * bsh / t * (t - 1);
            assert_int_equal(sent_bytes(&part, 1, PASS_FWD, false), one);
            assert_int_equal(sent_bytes(&part, 2, PASS_FWD, false), one);
            assert_int_equal(sent_bytes(&part, 1, PASS_BWD_INPUT, false), one);
            assert_int_equal(sent_bytes(&part, 2, PASS_BWD_REST, false), one);
            assert_int_equal(sent_bytes(&part, 1, PASS_BWD_WEIGHT, false), 0);
            assert_int_equal(sent_bytes(&part, 2, PASS_BWD_INPUT, true), tokens ? one / 2 : 0);
            assert_int_equal(sent_bytes(&part, 1, PASS_FWD, true), 0);
            assert_int_equal(sent_bytes(&part, 0, PASS_FWD, false), tokens ? one / 2 : one);
            model_clear(&part);
        }
    assert_int_equal(sent_bytes(&whole, 1, PASS_FWD, false), 0);
    model_clear(&whole);
}

/* An op takes its items' passes and the collectives one after the other. A boundary sends a T-th and
 * gathers it, or with sequence parallelism the shares that there are, or each device sends all. */
static void workload__exposes_the_collectives_of_a_group(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct bench b;
        struct model part = {0};
        const bool tokens = k == 1, whole = k == 2;
        bench_init(&b, 4, tokens, 1);
        b.model.framework = whole ? framework_of(FRAMEWORK_AA_SCALING) : NULL;
        bench_build(&b);
        assert_int_equal(model_shard(&b.model, 4, tokens, &part, NULL), OK);
        const int devices[] = {4, 5, 6, 7};
        const int64_t bytes = 2 * S * H * 2; /* two samples */
        const int64_t reduce = cluster_collective_ns(&b.cluster, COLLECTIVE_ALLREDUCE, devices, 4,
                                                     bytes),
                      gather = cluster_collective_ns(&b.cluster, COLLECTIVE_ALLGATHER, devices, 4,
                                                     bytes),
                      scatter = cluster_collective_ns(&b.cluster, COLLECTIVE_REDUCE_SCATTER,
                                                      devices, 4, bytes);
        const int64_t once = tokens ? gather + scatter : reduce,
                      received = tokens || whole ? 0 : gather, ways = whole ? 1 : 4;
        int64_t compute = 0;
        for (int i = 3; i < 5; i++)
            compute += 2 * (1 + part.items[i].fwd_flops / 1000);
        const struct stage_cost *stage = &b.workload.stages[1];
        assert_true(reduce > 0 && gather > 0);
        assert_int_equal(stage->op_ns[OP_F][MB_FULL], compute + 2 * once + received);
        assert_int_equal(stage->op_ns[OP_I][MB_FULL], compute + 2 * once + received);
        assert_int_equal(stage->op_ns[OP_W][MB_FULL], compute);
        assert_int_equal(b.workload.edges[0].bytes[MB_FULL], bytes / ways);
        assert_int_equal(b.workload.edges[0].held_bytes[MB_FULL], tokens ? bytes / 4 : bytes);
        /* Four devices at once share the uplink, as one that sends all their bytes. */
        assert_int_equal(workload_edge_ns(&b.workload, 0, 0, false, MB_FULL),
                         cluster_transfer_ns(&b.cluster, 0, 4, bytes / ways * 4));
        model_clear(&part);
        bench_clear(&b);
    }
}

/* A group of 2 nodes of 4 devices. Its ring has an edge out of each node, with all of the node's
 * uplink; its messages to the next stage leave both nodes, 4 devices on each uplink. */
static void workload__takes_groups_of_whole_nodes_over_the_network(void **state)
{
    (void)state;
    struct bench b;
    struct model part = {0};
    struct cluster nodes = {0};
    bench_init(&b, 8, false, 1);
    assert_int_equal(cluster_grid(6, 4, &nodes, NULL), OK);
    for (int n = 0; n < 6; n++)
        nodes.uplink_bytes_per_s[n] = 2e9;
    nodes.link_latency_ns = 700;
    nodes.uplink_latency_ns = 3000;
    cluster_clear(&b.cluster);
    b.cluster = nodes;
    bench_build(&b);
    assert_int_equal(model_shard(&b.model, 8, false, &part, NULL), OK);
    const int64_t bytes = 2 * S * H * 2; /* two samples */
    const int64_t once = 14 * 3000 + (bytes * 14 / 8 + 1) / 2, gather = 7 * 3000 + bytes * 7 / 16;
    int64_t compute = 0;
    for (int i = 3; i < 5; i++)
        compute += 2 * (1 + part.items[i].fwd_flops / 1000);
    assert_int_equal(b.workload.stages[1].op_ns[OP_F][MB_FULL], compute + 2 * once + gather);
    assert_int_equal(b.workload.edges[0].bytes[MB_FULL], bytes / 8);
    assert_int_equal(workload_edge_ns(&b.workload, 0, 0, false, MB_FULL), 3000 + bytes / 8 * 2);
    int64_t ns;
    assert_int_equal(workload_traffic_ns(&b.workload, &b.plan, &ns, NULL), OK);
    assert_true(ns > 0);
    model_clear(&part);
    bench_clear(&b);
}

/* A group is whole neighbouring nodes of one size, and only if no node is as large. */
static void tensor_group_list__takes_whole_nodes_where_no_node_is_as_large(void **state)
{
    (void)state;
    static const int sizes[] = {4, 2, 4, 4, 4};
    struct cluster cluster = {0};
    int first[18];
    assert_int_equal(cluster_of_ranks(sizes, 5, "a100", &cluster, NULL), OK);
    assert_int_equal(tensor_group_list(&cluster, 8, first), 1);
    assert_int_equal(first[0], 6);
    assert_int_equal(tensor_group_list(&cluster, 12, first), 1);
    assert_int_equal(tensor_group_list(&cluster, 4, first), 4);
    assert_int_equal(tensor_group_list(&cluster, 6, NULL), 0);
    assert_int_equal(tensor_group_list(&cluster, 16, NULL), 0);
    assert_true(tensor_group_fits(&cluster, 8, 10));
    assert_false(tensor_group_fits(&cluster, 8, 8));
    assert_false(tensor_group_fits(&cluster, 8, 0));
    assert_false(tensor_group_fits(&cluster, 8, 14));
    assert_true(tensor_group_fits(&cluster, 2, 4));
    cluster_clear(&cluster);
}

/* --- ZeRO --------------------------------------------------------------------------------------- */

/* bf16 with fp32 masters, gradients and moments: 2 + 4 + 4 + 8 bytes a parameter, of which ZeRO-1
 * divides 4 + 8, ZeRO-2 also the gradients, ZeRO-3 all (Megatron-LM's table: 18, and 6 + 12/R). */
static void workload__shards_divide_memory_as_zero_does(void **state)
{
    (void)state;
    enum { R = 4 };
    for (int shard = 0; shard < SHARD_MODE_COUNT; shard++) {
        struct bench b;
        bench_init(&b, 1, false, R);
        b.plan.layout.shard = (enum shard_mode)shard;
        bench_build(&b);
        const struct stage_cost *stage = &b.workload.stages[1];
        const int64_t psi = b.model.items[3].params + b.model.items[4].params;
        static const int whole[] = {18, 6, 2, 0};
        assert_int_equal(psi % R, 0);
        assert_int_equal(stage->weight_bytes + stage->grad_bytes + stage->optim_bytes,
                         whole[shard] * psi + (18 - whole[shard]) * psi / R);
        /* gathered weights of one layer, and its gradient, besides */
        assert_int_equal(stage->work_bytes[0][MB_FULL], shard == SHARD_WEIGHTS ? 2 * psi : 0);
        assert_int_equal(stage->work_bytes[1][MB_FULL],
                         (shard == SHARD_WEIGHTS ? 2 * psi : 0) +
                             (shard >= SHARD_GRADIENTS ? 4 * psi : 0));
        bench_clear(&b);
    }
}

/* Without compute, a step takes what is sent. An all-reduce sends 2(R-1)/R of the gradients; ZeRO-1
 * and -2 send as much in two halves; ZeRO-3 gathers twice in each micro-batch. */
static void workload__shards_send_what_zero_says(void **state)
{
    (void)state;
    enum { R = 4, P = 4000 };
    struct item items[2] = {
        {.kind = ITEM_OPAQUE, .params = P    },
        { .kind = ITEM_OPAQUE,         .layer = 1, .params = 3 * P}
    };
    struct model model = {0};
    struct cluster cluster = {0};
    struct cost cost;
    int cut[] = {0, 2}, device[] = {0, 1, 2, 3};
    struct plan plan = {
        .num_ranks = 1,
        .chunks = 1,
        .num_pipelines = R,
        .batch = 1,
        .microbatches = {1, 1, 1},
        .schedule = SCHEDULE_1F1B,
        .num_stages = 1,
        .first_item = cut,
        .device = device
    };
    cost_constant(&cost);
    assert_int_equal(model_explicit("two", items, 2, NULL, 0, false, &model, NULL), OK);
    assert_int_equal(cluster_grid(1, R, &cluster, NULL), OK);
    cluster.link_latency_ns = 0;
    for (int d = 0; d < R; d++)
        cluster.devices[d].link_bytes_per_s = 1e9; /* a byte is a nanosecond */
    const int64_t half = 4 * P * 4 / R * (R - 1);  /* (R-1)/R of the bytes of all weights */
    const struct setting setting = {&model, &cluster, &cost};
    for (int shard = 0; shard < SHARD_MODE_COUNT; shard++) {
        struct workload w = {0};
        plan.layout.shard = (enum shard_mode)shard;
        assert_int_equal(workload_build(&setting, &plan, NULL, &w, NULL), OK);
        const struct stage_cost *stage = &w.stages[0];
        assert_int_equal(w.num_buckets, shard <= SHARD_OPTIMIZER);
        assert_int_equal(w.scatter, shard == SHARD_OPTIMIZER);
        assert_int_equal(stage->op_ns[OP_F][MB_FULL], shard == SHARD_WEIGHTS ? half : 0);
        assert_int_equal(stage->op_ns[OP_B][MB_FULL], shard == SHARD_WEIGHTS     ? 2 * half
                                                      : shard == SHARD_GRADIENTS ? half
                                                                                 : 0);
        assert_int_equal(stage->op_ns[OP_UPDATE][MB_FULL],
                         shard == SHARD_OPTIMIZER || shard == SHARD_GRADIENTS ? half : 0);
        workload_clear(&w);
    }
    model_clear(&model);
    cluster_clear(&cluster);
}

/* If compute hides all that it can, the forward waits for the first gather, the backward for the last gather
 * and the first layer's reduce-scatter. Composer's backward waits for the gather of each layer; FSDP2 also
 * copies what it gathers and sends, at the rate that kernels reach. */
static void workload__shards_cost_what_the_framework_does(void **state)
{
    (void)state;
    enum { R = 4, P = 4000, LONG = 100000000 };
    static const enum framework_kind kinds[] = {FRAMEWORK_HF_EAGER, FRAMEWORK_COMPOSER,
                                                FRAMEWORK_FSDP};
    int64_t forward[3], backward[3];
    for (int k = 0; k < 3; k++) {
        struct item items[2] = {
            {.kind = ITEM_OPAQUE, .params = P, .fwd_ns = LONG, .bwd_input_ns = LONG},
            { .kind = ITEM_OPAQUE,
             .params = 3 * P,
             .fwd_ns = LONG,
             .bwd_input_ns = LONG,
             .layer = 1}
        };
        struct model model = {0};
        struct cluster cluster = {0};
        struct cost cost;
        struct workload w = {0};
        int cut[] = {0, 2}, device[] = {0, 1, 2, 3};
        struct plan plan = {
            .num_ranks = 1,
            .chunks = 1,
            .num_pipelines = R,
            .batch = 1,
            .microbatches = {1, 1, 1},
            .schedule = SCHEDULE_1F1B,
            .layout.shard = SHARD_WEIGHTS,
            .num_stages = 1,
            .first_item = cut,
            .device = device
        };
        cost_constant(&cost);
        cost.source = COST_KERNELS;
        assert_int_equal(model_explicit("two", items, 2, NULL, 0, false, &model, NULL), OK);
        model_set_framework(&model, kinds[k], NORM_AUTO);
        assert_int_equal(cluster_grid(1, R, &cluster, NULL), OK);
        cluster.link_latency_ns = 0;
        cluster.overlap_share = 0;
        for (int d = 0; d < R; d++) {
            snprintf(cluster.devices[d].kind, sizeof cluster.devices[d].kind, "h100");
            cluster.devices[d].link_bytes_per_s = 1e9; /* a byte is a nanosecond */
        }
        const struct setting setting = {&model, &cluster, &cost};
        assert_int_equal(workload_build(&setting, &plan, NULL, &w, NULL), OK);
        forward[k] = w.stages[0].op_ns[OP_F][MB_FULL];
        backward[k] = w.stages[0].op_ns[OP_B][MB_FULL];
        workload_clear(&w);
        model_clear(&model);
        cluster_clear(&cluster);
    }
    const int64_t first = 4 * P / R * (R - 1), last = 3 * first;
    const double rate = roofline_find("h100")->mem_bytes_per_s * 0.86 / 1e9,
                 copies = 2 * 4 * 4 * P / rate;
    assert_int_equal(forward[0], 2 * LONG + first);
    assert_int_equal(backward[0], 2 * LONG + last + first);
    assert_int_equal(forward[1], forward[0]);
    assert_int_equal(backward[1] - backward[0], first);
    assert_in_range(forward[2] - forward[0], (int64_t)copies, (int64_t)copies + 2);
    assert_in_range(backward[2] - backward[0], (int64_t)(2 * copies), (int64_t)(2 * copies) + 4);
}

/* --- layers that run again -------------------------------------------------------------------- */

/* An obvious second answer: the fewest layers of each stage, one after the other, that fit. */
static void recompute_fit__takes_as_few_layers_as_fit(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, false, 1);
    b.plan.recompute = RECOMPUTE_LAYER;
    const struct setting setting = bench_setting(&b);
    int changed = 0;
    for (int64_t mem = 1000000; mem < 30000000; mem += 500000) {
        struct schedule full = {0};
        int64_t memory[3], least[3];
        for (int d = 0; d < 3; d++)
            b.cluster.devices[d].mem_bytes = mem;
        for (int k = 0; k < 3; k++) { /* each stage has one layer here */
            for (least[k] = 0; least[k] < 1; least[k]++) {
                memset(b.layers, 0, sizeof b.layers);
                b.layers[k] = (int)least[k];
                assert_int_equal(plan_lower(&setting, &b.plan, &b.workload, &full, NULL), OK);
                assert_int_equal(schedule_memory(&full, &b.workload, memory, NULL), OK);
                schedule_clear(&full);
                workload_clear(&b.workload);
                if (memory[k] <= mem)
                    break;
            }
        }
        memset(b.layers, 0, sizeof b.layers);
        assert_int_equal(plan_lower(&setting, &b.plan, &b.workload, &full, NULL), OK);
        assert_int_equal(recompute_fit(&b.plan, true, &full, &b.workload, NULL), OK);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(b.layers[k], least[k]);
            changed += b.layers[k];
        }
        schedule_clear(&full);
        workload_clear(&b.workload);
    }
    assert_true(changed > 20 && changed < 150);
    bench_clear(&b);
}

/* --- what is refused ---------------------------------------------------------------------------- */

static void tensor_group_new__refuses_what_cannot_be_divided(void **state)
{
    (void)state;
    struct bench b;
    struct tensor_group *group = NULL;
    struct err err = {0};
    bench_init(&b, 8, false, 1);
    struct setting setting = bench_setting(&b);
    err = (struct err){0};
    assert_int_equal(
        tensor_group_new(&setting,
                         &(struct layout){.tensor = 3, .sequence_parallel = false, .expert = 1},
                         &group, &err),
        ERR_INFEASIBLE);
    assert_string_equal(err.msg, "pipeline.tensor 3 does not divide heads 8 of model 'gpt2'");
    err = (struct err){0};
    assert_int_equal(
        tensor_group_new(&setting,
                         &(struct layout){.tensor = 16, .sequence_parallel = false, .expert = 1},
                         &group, &err),
        ERR_INFEASIBLE);
    b.model.seq = 255;
    err = (struct err){0};
    assert_int_equal(
        tensor_group_new(&setting,
                         &(struct layout){.tensor = 2, .sequence_parallel = true, .expert = 1},
                         &group, &err),
        ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "sequence_parallel"));
    b.model.seq = S;
    b.model.heads = b.model.kv_heads = b.model.mlp = 32;
    err = (struct err){0};
    assert_int_equal(
        tensor_group_new(&setting,
                         &(struct layout){.tensor = 32, .sequence_parallel = false, .expert = 1},
                         &group, &err),
        ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "no node"));
    b.cost.source = COST_MEASURED;
    err = (struct err){0};
    assert_int_equal(
        tensor_group_new(&setting,
                         &(struct layout){.tensor = 2, .sequence_parallel = false, .expert = 1},
                         &group, &err),
        ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "measured"));
    b.plan.num_pipelines = 1;
    b.plan.layout.shard = SHARD_OPTIMIZER;
    err = (struct err){0};
    assert_int_equal(plan_check(&b.plan, &b.model, &b.cluster, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "divides nothing"));
    b.plan.layout.shard = SHARD_NONE;
    b.plan.recompute = RECOMPUTE_LAYER;
    b.plan.schedule = SCHEDULE_ZB_H1;
    err = (struct err){0};
    assert_int_equal(plan_check(&b.plan, &b.model, &b.cluster, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "splits"));
    bench_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workload__activation_memory_is_that_of_the_paper),
        cmocka_unit_test(model_drop_nothing__takes_out_masks_and_second_scores),
        cmocka_unit_test(model_fuse_attention__takes_out_the_score_matrices),
        cmocka_unit_test(tensor_group_new__leaves_the_scores_to_devices_before_ampere),
        cmocka_unit_test(model_shard__divides_weights_and_flops_as_megatron_does),
        cmocka_unit_test(model_shard__gives_each_device_a_head_of_keys),
        cmocka_unit_test(model_exchanges__send_what_the_papers_say),
        cmocka_unit_test(workload__exposes_the_collectives_of_a_group),
        cmocka_unit_test(workload__takes_groups_of_whole_nodes_over_the_network),
        cmocka_unit_test(tensor_group_list__takes_whole_nodes_where_no_node_is_as_large),
        cmocka_unit_test(workload__shards_divide_memory_as_zero_does),
        cmocka_unit_test(workload__shards_send_what_zero_says),
        cmocka_unit_test(workload__shards_cost_what_the_framework_does),
        cmocka_unit_test(recompute_fit__takes_as_few_layers_as_fit),
        cmocka_unit_test(tensor_group_new__refuses_what_cannot_be_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
