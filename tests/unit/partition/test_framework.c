/* Frameworks that launch the kernels: sizes and kernel lists of eager operators against sums of the tensors
 * and passes, written out one by one. */
#include "partition/cost/kernels.h"
#include "partition/layout/model_shard.h"
#include "partition/layout/tensor_group.h"
#include "partition/model/attention.h"
#include "partition/model/framework.h"
#include "partition/step/framework_range.h"
#include "partition/step/lower.h"
#include "partition/step/schedule_time.h"
#include "tests/unit/test.h"

enum {
    S = 512,
    H = 256,
    M = 768,
    V = 1024,
    A = 4,
    E = 2,
    EMBEDDING = 0,
    ATTENTION = 1,
    MLP = 2,
    NORM = 3,
    HEAD = 4
};

static struct model small(enum framework_kind kind, enum norm_kind norm)
{
    static const char text[] =
        "llama:layers=1,hidden=256,heads=4,mlp=768,seq=512,vocab=1024,dtype=bf16";
    struct model model = {0};
    struct err err = {0};
    if (model_parse(text, &model, &err) != OK)
        fail_msg("%s", err.msg);
    model_set_framework(&model, kind, norm);
    return model;
}

static double bytes_of(const struct model *model, int item, enum pass pass)
{
    const struct cost_options options = {.efficiency = 1};
    struct kernel list[KERNELS_MAX];
    double bytes = 0;
    const int n = kernels_of(model, item, pass, 1, &options, list);
    assert_true(n < KERNELS_MAX);
    for (int i = 0; i < n; i++)
        bytes += list[i].kind == KERNEL_MEMORY ? list[i].bytes : 0;
    return bytes;
}

/* LlamaRMSNorm keeps [s, h] in fp32 for the square, and the normalised [s, h]; not its input. */
static void norm__keeps_an_fp32_copy_when_eager(void **state)
{
    struct model fused = small(FRAMEWORK_AUTO, NORM_FUSED),
                 eager = small(FRAMEWORK_AUTO, NORM_EAGER);
    const int64_t more = (int64_t)S * H * (4 + E - E);
    (void)state;
    for (int i = 0; i < fused.num_items; i++) {
        const bool has = i == ATTENTION || i == MLP || i == NORM;
        assert_int_equal(eager.items[i].stash_bytes - fused.items[i].stash_bytes, has ? more : 0);
    }
    model_clear(&fused);
    model_clear(&eager);
}

/* Every device of a group has it whole, and with sequence_parallel a share. */
static void norm__is_divided_by_tokens_only(void **state)
{
    struct model fused = small(FRAMEWORK_AUTO, NORM_FUSED),
                 eager = small(FRAMEWORK_AUTO, NORM_EAGER);
    struct err err = {0};
    (void)state;
    for (int tokens = 0; tokens < 2; tokens++) {
        struct model a = {0}, b = {0};
        assert_int_equal(model_shard(&fused, 4, tokens, &a, &err), OK);
        assert_int_equal(model_shard(&eager, 4, tokens, &b, &err), OK);
        for (int i = ATTENTION; i <= NORM; i++)
            assert_int_equal(b.items[i].stash_bytes - a.items[i].stash_bytes,
                             (int64_t)S * H * 4 / (tokens ? 4 : 1));
        model_clear(&a);
        model_clear(&b);
    }
    model_clear(&fused);
    model_clear(&eager);
}

static void norm__moves_what_its_operators_read_and_write(void **state)
{
    struct model fused = small(FRAMEWORK_AUTO, NORM_FUSED),
                 eager = small(FRAMEWORK_AUTO, NORM_EAGER);
    const double x = (double)S * H;
    (void)state;
    /* forward: cast 2+4, square 4+4, mean 4, product 4+4, cast 4+2, weights 2+2 */
    assert_true(bytes_of(&eager, NORM, PASS_FWD) == x * 36);
    assert_true(bytes_of(&fused, NORM, PASS_FWD) == x * 4);
    /* backward: weights 4, cast 6, product 8, product and sum 16, square 8, add 12, cast 6 */
    assert_true(bytes_of(&eager, NORM, PASS_BWD_INPUT) == x * 60);
    /* gradient of the weights: product 6, sum 2 */
    assert_true(bytes_of(&eager, NORM, PASS_BWD_WEIGHT) == x * 8);
    model_clear(&fused);
    model_clear(&eager);
}

/* PyTorch has one kernel for a LayerNorm, so a GPT has nothing to lose. */
static void norm__of_gpt_is_one_kernel_always(void **state)
{
    struct model gpt = {0}, eager = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(model_parse("gpt2:dtype=bf16", &gpt, &err), OK);
    assert_int_equal(model_parse("gpt2:dtype=bf16", &eager, &err), OK);
    model_set_framework(&eager, FRAMEWORK_AUTO, NORM_EAGER);
    for (int i = 0; i < gpt.num_items; i++) {
        assert_int_equal(gpt.items[i].stash_bytes, eager.items[i].stash_bytes);
        assert_true(bytes_of(&gpt, i, PASS_FWD) == bytes_of(&eager, i, PASS_FWD));
    }
    model_clear(&gpt);
    model_clear(&eager);
}

/* silu(gate) is kept beside gate, up and their product; rotary positions keep nothing. */
static void operators__of_layers_keep_and_move_more(void **state)
{
    struct model fused = small(FRAMEWORK_MEGATRON_TE, NORM_FUSED),
                 eager = small(FRAMEWORK_DEEPSPEED, NORM_FUSED);
    const double wide = (double)S * M * E, query = (double)S * 2 * H * E; /* queries and keys */
    (void)state;
    assert_int_equal(eager.items[MLP].stash_bytes - fused.items[MLP].stash_bytes,
                     (int64_t)S * M * E);
    assert_int_equal(eager.items[ATTENTION].stash_bytes, fused.items[ATTENTION].stash_bytes);
    assert_true(bytes_of(&eager, MLP, PASS_FWD) - bytes_of(&fused, MLP, PASS_FWD) == 2 * wide);
    assert_true(bytes_of(&eager, MLP, PASS_BWD_INPUT) - bytes_of(&fused, MLP, PASS_BWD_INPUT) ==
                4 * wide);
    assert_true(bytes_of(&eager, ATTENTION, PASS_FWD) - bytes_of(&fused, ATTENTION, PASS_FWD) ==
                8 * query);
    model_clear(&fused);
    model_clear(&eager);
}

/* fp32 numbers of the loss stay until the backward; bf16 logits and an fp32 gradient come and go.
 * A group divides all of them. */
static void logits__are_kept_in_fp32(void **state)
{
    struct model plain = small(FRAMEWORK_AUTO, NORM_AUTO),
                 model = small(FRAMEWORK_MEGATRON_TE, NORM_AUTO), part = {0}, gpt = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(model.items[HEAD].stash_bytes, plain.items[HEAD].stash_bytes);
    assert_int_equal(model.items[HEAD].work_bytes, (int64_t)S * V * (E + 4));
    assert_int_equal(model_shard(&model, 4, false, &part, &err), OK);
    assert_int_equal(part.items[HEAD].work_bytes, (int64_t)S * V * (E + 4) / 4);
    assert_int_equal(model_parse("gpt2:dtype=bf16,seq=512,vocab=1024", &gpt, &err), OK);
    const int64_t before = gpt.items[gpt.num_items - 1].stash_bytes;
    model_set_framework(&gpt, FRAMEWORK_MEGATRON_2021, NORM_AUTO);
    assert_int_equal(gpt.items[gpt.num_items - 1].stash_bytes - before, (int64_t)S * V * (4 - E));
    model_clear(&plain);
    model_clear(&model);
    model_clear(&part);
    model_clear(&gpt);
}

/* cross_entropy()'s backward has two fp32 tensors beside log-softmax's, and clears the first. Who
 * deletes the logits before it has them no longer. */
static void logits__of_eager_loss_have_two_gradients(void **state)
{
    struct model fused = small(FRAMEWORK_MEGATRON_TE, NORM_AUTO),
                 eager = small(FRAMEWORK_HF_EAGER, NORM_AUTO),
                 alone = small(FRAMEWORK_FSDP, NORM_AUTO);
    const double x = (double)S * V;
    (void)state;
    assert_int_equal(eager.items[HEAD].work_bytes, (int64_t)S * V * (E + 8));
    assert_int_equal(alone.items[HEAD].work_bytes, (int64_t)S * V * 8);
    assert_true(bytes_of(&eager, HEAD, PASS_BWD_INPUT) - bytes_of(&fused, HEAD, PASS_BWD_INPUT) ==
                4 * x);
    model_clear(&fused);
    model_clear(&eager);
    model_clear(&alone);
}

/* flash-attn's loss keeps the logits in 2 bytes and makes a gradient of 2, where fp32 numbers of 4
 * stayed beside 2 + 4; its kernels read the logits, and read them and write the gradient. */
static void logits__of_a_fused_loss_stay_narrow(void **state)
{
    struct model fp32 = small(FRAMEWORK_MEGATRON_TE, NORM_AUTO),
                 fused = small(FRAMEWORK_COMPOSER, NORM_AUTO), gpt = {0};
    struct err err = {0};
    const int64_t x = (int64_t)S * V;
    (void)state;
    assert_int_equal(fp32.items[HEAD].stash_bytes - fused.items[HEAD].stash_bytes, x * (4 - E));
    assert_int_equal(fused.items[HEAD].work_bytes, x * E);
    /* and two metrics read the logits too, each a cast and a log-softmax in fp32 */
    assert_true(bytes_of(&fused, HEAD, PASS_FWD) - bytes_of(&fp32, HEAD, PASS_FWD) ==
                (double)x * (E + (E + 4) + 8));
    assert_true(bytes_of(&fp32, HEAD, PASS_BWD_INPUT) - bytes_of(&fused, HEAD, PASS_BWD_INPUT) ==
                (double)x * (12 + (E + 4) - 2 * E));
    assert_int_equal(model_parse("gpt2:dtype=bf16,seq=512,vocab=1024", &gpt, &err), OK);
    const int64_t before = gpt.items[gpt.num_items - 1].stash_bytes;
    model_set_framework(&gpt, FRAMEWORK_COMPOSER, NORM_AUTO);
    assert_int_equal(gpt.items[gpt.num_items - 1].stash_bytes, before);
    model_clear(&fp32);
    model_clear(&fused);
    model_clear(&gpt);
}

/* Each of 4 devices gathers the logits, copies and joins the pieces, and has the loss of all. Only
 * the table is divided. */
static void logits__are_whole_where_the_framework_gathers_them(void **state)
{
    struct model model = small(FRAMEWORK_DEEPSPEED, NORM_AUTO), one = {0}, four = {0};
    struct exchange exchanges[MODEL_EXCHANGES_MAX];
    struct err err = {0};
    const int64_t logits = (int64_t)S * V;
    (void)state;
    assert_int_equal(model_shard(&model, 1, false, &one, &err), OK);
    assert_int_equal(model_shard(&model, 4, false, &four, &err), OK);
    assert_int_equal(four.items[HEAD].stash_bytes, one.items[HEAD].stash_bytes);
    assert_int_equal(four.items[HEAD].work_bytes, logits * (2 * E + 8));
    assert_int_equal(four.items[HEAD].params, one.items[HEAD].params / 4);
    assert_true(bytes_of(&four, HEAD, PASS_FWD) - bytes_of(&one, HEAD, PASS_FWD) ==
                (double)logits * 4 * E);
    assert_int_equal(model_exchanges(&four, HEAD, PASS_FWD, exchanges), 1);
    assert_int_equal(exchanges[0].kind, COLLECTIVE_ALLGATHER);
    assert_int_equal(exchanges[0].bytes, logits * E);
    model_clear(&model);
    model_clear(&one);
    model_clear(&four);
}

/* Gate and up each sum the gradient of their input; forward they share it. */
static void collectives__of_gate_and_up_are_two_backwards(void **state)
{
    const enum framework_kind kinds[] = {FRAMEWORK_MEGATRON_2021, FRAMEWORK_DEEPSPEED};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct model model = small(kinds[k], NORM_AUTO), part = {0};
        struct exchange exchanges[MODEL_EXCHANGES_MAX];
        struct err err = {0};
        assert_int_equal(model_shard(&model, 4, false, &part, &err), OK);
        assert_int_equal(model_exchanges(&part, MLP, PASS_BWD_INPUT, exchanges), 1);
        assert_int_equal(exchanges[0].count, k == 0 ? 1 : 2);
        assert_int_equal(model_exchanges(&part, MLP, PASS_FWD, exchanges), 1);
        assert_int_equal(exchanges[0].count, 1);
        assert_int_equal(model_exchanges(&part, ATTENTION, PASS_BWD_INPUT, exchanges), 1);
        assert_int_equal(exchanges[0].count, 1);
        model_clear(&model);
        model_clear(&part);
    }
}

/* Gradients of 2 bytes are added by a kernel that reads two tensors and writes one. */
static void gradients__have_two_bytes_and_a_kernel_that_adds_them(void **state)
{
    struct model wide = small(FRAMEWORK_MEGATRON_TE, NORM_AUTO),
                 narrow = small(FRAMEWORK_DEEPSPEED, NORM_FUSED);
    (void)state;
    struct model nemo = small(FRAMEWORK_NEMO, NORM_AUTO);
    assert_int_equal(model_grad_bytes(&nemo), 2); /* in the product, as fp32 sums are */
    assert_true(bytes_of(&nemo, MLP, PASS_BWD_WEIGHT) == bytes_of(&wide, MLP, PASS_BWD_WEIGHT));
    model_clear(&nemo);
    assert_int_equal(model_grad_bytes(&wide), 4);
    assert_int_equal(model_grad_bytes(&narrow), 2);
    assert_true(bytes_of(&narrow, MLP, PASS_BWD_WEIGHT) - bytes_of(&wide, MLP, PASS_BWD_WEIGHT) ==
                3.0 * H * M * 3 * E);
    model_clear(&wide);
    model_clear(&narrow);
}

/* What each year of Megatron-LM fuses, keeps and sums, and NeMo's sums of 2 bytes in the product. */
static void years__have_their_operators_and_sums(void **state)
{
    static const struct {
        enum framework_kind kind;
        bool fuses, weighs;
        int64_t bucket; /* of 100 replicas */
        const char *family;
    } years[] = {
        {FRAMEWORK_AUTO,               true,  false, 25 << 20,  "auto"         },
        {FRAMEWORK_MEGATRON_TE_2023,   false, false, 0,         "megatron-te"  },
        {FRAMEWORK_MEGATRON_TE_2024,   true,  false, 400000000, "megatron-te"  },
        {FRAMEWORK_MEGATRON_TE_2025,   true,  true,  400000000, "megatron-te"  },
        {FRAMEWORK_MEGATRON_TE_2026,   true,  true,  400000000, "megatron-te"  },
        {FRAMEWORK_MEGATRON_TE,        true,  true,  400000000, "megatron-te"  },
        {FRAMEWORK_NEMO,               true,  true,  200000000, "megatron-te"  },
        {FRAMEWORK_FSDP_COMPILED_2024, true,  false, 25 << 20,  "fsdp-compiled"},
        {FRAMEWORK_FSDP_COMPILED_2025, true,  false, 25 << 20,  "fsdp-compiled"},
        {FRAMEWORK_HF_EAGER_2024,      false, false, 25 << 20,  "hf-eager"     },
        {FRAMEWORK_DEEPSPEED,          false, false, 0,         "deepspeed"    },
    };
    (void)state;
    for (size_t i = 0; i < sizeof years / sizeof *years; i++) {
        struct model model = small(years[i].kind, NORM_FUSED);
        const struct framework *f = model.framework;
        assert_int_equal(!model.eager_rope && !model.eager_activation, years[i].fuses);
        assert_int_equal(f && f->weighs_activation, years[i].weighs);
        assert_int_equal(framework_bucket_bytes(&model, 100), years[i].bucket);
        assert_string_equal(framework_family(f), years[i].family);
        if (f && f->bucket_params > 0) /* 40 million are the fewest */
            assert_int_equal(framework_bucket_bytes(&model, 8) * 5, years[i].bucket * 2);
        model_clear(&model);
    }
}

/* Until 2024 the sum over experts is zeros, index_copy, a product and a sum, where one kernel reads all and
 * writes the sum; backwards two products, a sum, a copy, and rows that are added to zeros. */
static void permutations__are_operators_until_2024(void **state)
{
    static const enum framework_kind kinds[] = {FRAMEWORK_MEGATRON_TE_2024, FRAMEWORK_MEGATRON_TE};
    double bytes[2][2];
    const double moved = 512.0 * 2 * 256 * E, sum = 512.0 * 256 * E; /* 2 experts a token */
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct model model = {0};
        struct err err = {0};
        assert_int_equal(model_parse("llama:layers=1,hidden=256,heads=4,mlp=768,seq=512,vocab=1024,"
                                     "experts=4,experts_active=2,expert_mlp=768,dtype=bf16",
                                     &model, &err),
                         OK);
        model_set_framework(&model, kinds[k], NORM_AUTO);
        bytes[k][0] = bytes_of(&model, MLP, PASS_FWD);
        bytes[k][1] = bytes_of(&model, MLP, PASS_BWD_INPUT);
        model_clear(&model);
    }
    assert_true(bytes[0][0] - bytes[1][0] == 5 * moved);
    assert_true(bytes[0][1] - bytes[1][1] == 6 * moved + sum);
}

/* Two replicas of two stages. Megatron-LM's second one sums all at once, also where buckets are small. */
static void buckets__are_of_the_first_stage_under_megatron(void **state)
{
    const enum framework_kind kinds[] = {FRAMEWORK_MEGATRON_TE, FRAMEWORK_FSDP};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct model model = small(kinds[k], NORM_AUTO);
        struct cluster cluster = {0};
        struct cost cost;
        struct err err = {0};
        struct workload workload = {0};
        const struct cost_options options = {.efficiency = 1};
        struct kernel_costs *costs = kernel_costs_new(&options);
        int first_item[] = {0, 2, 5}, devices[] = {0, 1, 2, 3};
        const struct plan plan = {
            .num_ranks = 2,
            .num_stages = 2,
            .chunks = 1,
            .num_pipelines = 2,
            .microbatches = {1, 1, 1},
            .first_item = first_item,
            .device = devices,
            .bucket_bytes = 1
        };
        assert_int_equal(cluster_parse("a100-1x8", &cluster, &err), OK);
        cost_kernels(&cost, costs);
        const struct setting setting = {&model, &cluster, &cost};
        assert_int_equal(workload_build(&setting, &plan, NULL, &workload, &err), OK);
        assert_int_equal(workload.first_bucket[1], 2);
        assert_int_equal(workload.num_buckets - 2, k == 0 ? 1 : 3);
        workload_clear(&workload);
        kernel_costs_free(costs);
        cluster_clear(&cluster);
        model_clear(&model);
    }
}

/* The step of a plan of `ranks` stages under a framework, or its range. */
static int64_t ask_step(enum framework_kind kind, int ranks, bool roofline,
                        struct framework_range *range)
{
    struct model model = small(kind, NORM_AUTO);
    struct cluster cluster = {0};
    struct cost cost;
    struct err err = {0};
    struct workload workload = {0};
    struct schedule full = {0};
    struct step_time time = {0};
    const struct cost_options options = {.efficiency = 1};
    struct kernel_costs *costs = kernel_costs_new(&options);
    int first_item[] = {0, ranks > 1 ? 2 : 5, 5}, devices[] = {0, 1, 2, 3};
    const struct plan plan = {
        .num_ranks = ranks,
        .num_stages = ranks,
        .chunks = 1,
        .num_pipelines = 2,
        .batch = 4,
        .microbatches = {4, 1, 1},
        .first_item = first_item,
        .device = devices
    };
    assert_int_equal(cluster_parse("a100-1x8", &cluster, &err), OK);
    cost_kernels(&cost, costs);
    cost.source = roofline ? COST_ROOFLINE : COST_KERNELS;
    const struct setting setting = {&model, &cluster, &cost};
    if (range) {
        assert_int_equal(framework_range_find(&setting, &plan, 1000000, range, &err), OK);
    } else {
        if (plan_lower(&setting, &plan, &workload, &full, &err) != OK)
            fail_msg("%s", err.msg);
        assert_int_equal(schedule_time(&full, &workload, &plan, &time, &err), OK);
    }
    const int64_t ns = time.step_ns;
    step_time_clear(&time);
    schedule_clear(&full);
    workload_clear(&workload);
    kernel_costs_free(costs);
    cluster_clear(&cluster);
    model_clear(&model);
    return ns;
}

/* Where nobody names a framework, a step of 1 ms takes as many times as much under each likely one as its own
 * plan there. transformers' Trainer has no stages. */
static void range__has_the_step_of_each_likely_framework(void **state)
{
    static const enum framework_kind likely[] = {FRAMEWORK_MEGATRON_TE, FRAMEWORK_DEEPSPEED,
                                                 FRAMEWORK_FSDP, FRAMEWORK_FSDP_COMPILED,
                                                 FRAMEWORK_HF_EAGER};
    struct framework_range range;
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        const double own = (double)ask_step(FRAMEWORK_AUTO, ranks, false, NULL);
        ask_step(FRAMEWORK_AUTO, ranks, false, &range);
        assert_true(range.unnamed);
        assert_int_equal(range.count, ranks == 1 ? 5 : 4);
        for (int i = 0; i < range.count; i++) {
            int k = 0;
            assert_true(i == 0 || range.likely[i].step_ns >= range.likely[i - 1].step_ns);
            while (strcmp(framework_kind_names[likely[k]], range.likely[i].name) != 0)
                assert_true(++k < 5);
            const double ns = 1e6 * (double)ask_step(likely[k], ranks, false, NULL) / own;
            assert_true(fabs((double)range.likely[i].step_ns - ns) <= 1);
        }
    }
    ask_step(FRAMEWORK_FSDP, 1, false, &range);
    assert_false(range.unnamed || range.count > 0);
    ask_step(FRAMEWORK_AUTO, 1, true, &range);
    assert_false(range.unnamed || range.count > 0);
}

/* Two replicas that divide the optimizer. Megatron-LM scatters sums of its 4-byte gradients;
 * DeepSpeed's engine sums all of its 2-byte ones in fp32. */
static void gradients__are_summed_whole_in_fp32(void **state)
{
    const enum framework_kind kinds[] = {FRAMEWORK_MEGATRON_TE, FRAMEWORK_DEEPSPEED};
    int64_t bytes[2];
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct model model = small(kinds[k], NORM_AUTO);
        struct cluster cluster = {0};
        struct cost cost;
        struct err err = {0};
        struct workload workload = {0};
        const struct cost_options options = {.efficiency = 1};
        struct kernel_costs *costs = kernel_costs_new(&options);
        int first_item[] = {0, 5}, devices[] = {0, 1};
        const struct plan plan = {
            .num_ranks = 1,
            .num_stages = 1,
            .num_pipelines = 2,
            .microbatches = {1, 1, 1},
            .first_item = first_item,
            .device = devices,
            .layout.shard = SHARD_OPTIMIZER
        };
        assert_int_equal(cluster_parse("a100-1x8", &cluster, &err), OK);
        cost_kernels(&cost, costs);
        const struct setting setting = {&model, &cluster, &cost};
        assert_int_equal(workload_build(&setting, &plan, NULL, &workload, &err), OK);
        assert_int_equal(workload.scatter, k == 0);
        assert_int_equal(workload.num_buckets, 1);
        bytes[k] = workload.buckets[0].bytes;
        workload_clear(&workload);
        kernel_costs_free(costs);
        cluster_clear(&cluster);
        model_clear(&model);
    }
    assert_int_equal(bytes[0], bytes[1]);
}

/* A rank waits for its sends where the framework does, but for the interleaved schedule's; what a
 * cluster says counts before. */
static void sends__block_where_the_framework_waits(void **state)
{
    const enum framework_kind kinds[] = {FRAMEWORK_AUTO, FRAMEWORK_FSDP, FRAMEWORK_OURS,
                                         FRAMEWORK_DEEPSPEED, FRAMEWORK_MEGATRON_TE};
    struct cluster cluster = {0};
    (void)state;
    assert_int_equal(cluster_parse("a100-1x8", &cluster, NULL), OK);
    assert_int_equal(cluster.sends, SENDS_AUTO);
    for (int k = 0; k < 5; k++) {
        struct model model = small(kinds[k], NORM_AUTO);
        const struct setting setting = {&model, &cluster, NULL};
        const struct plan plain = {.chunks = 1}, interleaved = {.chunks = 2};
        cluster.sends = SENDS_AUTO;
        assert_int_equal(workload_sends_block(&setting, &plain), k > 2);
        assert_false(workload_sends_block(&setting, &interleaved));
        cluster.sends = SENDS_EAGER;
        assert_false(workload_sends_block(&setting, &plain));
        cluster.sends = SENDS_BLOCKING;
        assert_true(workload_sends_block(&setting, &interleaved));
        model_clear(&model);
    }
    cluster_clear(&cluster);
}

/* Unfused attention of a llama keeps the softmax's output: [a, s, s] a layer, divided by heads, and
 * selective recompute does without it. */
static void scores__of_llama_are_kept_when_unfused(void **state)
{
    struct model fused = small(FRAMEWORK_AUTO, NORM_AUTO),
                 unfused = small(FRAMEWORK_AUTO, NORM_AUTO),
                 eager = small(FRAMEWORK_AUTO, NORM_AUTO), first = small(FRAMEWORK_AUTO, NORM_AUTO),
                 part = {0};
    struct err err = {0};
    const int64_t scores = (int64_t)A * S * S * E;
    (void)state;
    model_set_attention(&fused, ATTENTION_FUSED);
    model_set_attention(&unfused, ATTENTION_UNFUSED);
    assert_int_equal(unfused.items[ATTENTION].stash_bytes - fused.items[ATTENTION].stash_bytes,
                     scores);
    assert_int_equal(model_core_stash_bytes(&unfused, ATTENTION), scores);
    assert_int_equal(model_core_stash_bytes(&fused, ATTENTION), 0);
    model_set_attention(&first, ATTENTION_FLASH1);
    assert_int_equal(first.items[ATTENTION].stash_bytes, fused.items[ATTENTION].stash_bytes);
    assert_int_equal(model_core_stash_bytes(&first, ATTENTION), 0);
    assert_int_equal(model_shard(&unfused, 4, false, &part, &err), OK);
    assert_int_equal(model_core_stash_bytes(&part, ATTENTION), scores / 4);
    /* operators on fp32 keep softmax's output and its cast, and run with as much again */
    model_set_attention(&eager, ATTENTION_EAGER);
    assert_int_equal(model_core_stash_bytes(&eager, ATTENTION), scores / E * (4 + E));
    assert_int_equal(eager.items[ATTENTION].stash_bytes - fused.items[ATTENTION].stash_bytes,
                     scores / E * (4 + E));
    assert_int_equal(eager.items[ATTENTION].work_bytes - fused.items[ATTENTION].work_bytes,
                     scores / E * 6);
    model_clear(&eager);
    model_clear(&fused);
    model_clear(&unfused);
    model_clear(&first);
    model_clear(&part);
}

/* A plan that fits with the memory beyond tensors fits the room, and the room is 1,000 bytes too large at most.
 * A calibration may have found more or less memory than computed. */
static void framework__has_room_for_all_that_fits(void **state)
{
    const struct framework *eager = framework_of(FRAMEWORK_DEEPSPEED);
    const double factors[] = {0, 1, 1.1, 0.85};
    (void)state;
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
        const int beyond = framework_beyond_tensors(eager, factors[f]);
        for (int64_t bytes = 0; bytes < (int64_t)1 << 60; bytes = 3 * bytes + 777) {
            const int64_t taken = bytes + framework_beyond_bytes(beyond, bytes);
            const int64_t room = framework_room_bytes(beyond, taken);
            assert_true(room >= bytes && room <= bytes + 2000);
            assert_int_equal(framework_room_bytes(0, bytes), bytes);
        }
    }
    assert_int_equal(framework_beyond_tensors(eager, 0), 52);
    assert_int_equal(framework_beyond_tensors(NULL, 1), 0);
    assert_int_equal(framework_beyond_bytes(52, 1000000), 52000);
    assert_int_equal(framework_beyond_tensors(eager, 1.1), 157); /* 1.052 x 1.1 */
    assert_int_equal(framework_beyond_tensors(NULL, 0.85), -150);
}

/* A group of 2 devices, and of more; a device alone has none. */
static void framework__has_a_communicator_for_each_group(void **state)
{
    struct model model = {.framework = framework_of(FRAMEWORK_MEGATRON_TE), .tensor = 1};
    (void)state;
    assert_int_equal(framework_context_bytes(&model, 1, 1), 0);
    assert_int_equal(framework_context_bytes(&model, 2, 1), (int64_t)544 << 20);
    model.tensor = 2;
    assert_int_equal(framework_context_bytes(&model, 8, 4), (int64_t)(544 + 2 * 688) << 20);
    model.framework = framework_of(FRAMEWORK_OURS);
    assert_int_equal(framework_context_bytes(&model, 8, 4), 0);
}

/* Time of a pass of a layer's MLP on one of two devices that divide the tokens, and of its kernels. */
static int64_t pass_ns(enum framework_kind kind, enum pass pass, int64_t *kernels_ns)
{
    struct model model = {0};
    struct cluster cluster = {0};
    struct cost cost;
    struct err err = {0};
    struct tensor_group *group = NULL;
    const struct cost_options options = {.efficiency = 1};
    struct kernel_costs *costs = kernel_costs_new(&options);
    bool extrapolated = false;
    int64_t ns;
    assert_int_equal(model_parse("llama2-7b:dtype=bf16,layers=1", &model, &err), OK);
    assert_int_equal(cluster_parse("a100-1x8", &cluster, &err), OK);
    model_set_framework(&model, kind, NORM_FUSED);
    cost_kernels(&cost, costs);
    const struct setting setting = {&model, &cluster, &cost};
    assert_int_equal(
        tensor_group_new(&setting,
                         &(struct layout){.tensor = 2, .sequence_parallel = true, .expert = 1},
                         &group, &err),
        OK);
    const struct setting own = tensor_group_setting(group, &setting);
    assert_int_equal(own.cost->item_ns(own.cost->ctx, own.model, MLP, pass, 1, own.cluster->devices,
                                       &ns, &extrapolated, &err),
                     OK);
    assert_int_equal(cost.item_ns(cost.ctx, own.model, MLP, pass, 1, own.cluster->devices,
                                  kernels_ns, &extrapolated, &err),
                     OK);
    tensor_group_free(group);
    kernel_costs_free(costs);
    cluster_clear(&cluster);
    model_clear(&model);
    return ns;
}

/* A pass waits for no part of a gather, and for the last of a reduce-scatter's T pieces. Forward has one
 * of each, equally long; a pass waits for both if nothing overlaps. */
static void collectives__of_tensor_run_beside_products(void **state)
{
    int64_t kernels, divided;
    const int64_t waits = pass_ns(FRAMEWORK_OURS, PASS_FWD, &kernels),
                  overlaps = pass_ns(FRAMEWORK_MEGATRON_TE, PASS_FWD, &divided);
    (void)state;
    assert_true(divided > kernels);
    assert_true(waits > kernels);
    assert_true(llabs((overlaps - divided) * 4 - (waits - kernels)) <= 8);
}

/* train.overlap says it of any framework, and auto leaves it as the framework has it. */
static void overlap__is_what_the_job_says(void **state)
{
    static const bool tensor[] = {true, false, true, false, true};
    static const bool experts[] = {false, false, false, true, true};
    (void)state;
    for (int overlap = 0; overlap < OVERLAP_KIND_COUNT; overlap++) {
        struct model te = small(FRAMEWORK_MEGATRON_TE, NORM_AUTO),
                     fsdp = small(FRAMEWORK_FSDP, NORM_AUTO);
        model_set_overlap(&te, (enum overlap_kind)overlap, DISPATCHER_ALLTOALL);
        model_set_overlap(&fsdp, (enum overlap_kind)overlap, DISPATCHER_FLEX);
        assert_int_equal(te.overlaps_tensor, tensor[overlap]);
        assert_int_equal(fsdp.overlaps_tensor, overlap != OVERLAP_AUTO && tensor[overlap]);
        assert_int_equal(te.overlaps_experts, experts[overlap]);
        assert_int_equal(fsdp.overlaps_experts, experts[overlap]);
        assert_true(fsdp.sends_once && !te.sends_once);
        model_clear(&te);
        model_clear(&fsdp);
    }
}

/* The pieces and taken SMs of the two products of a pass; all 0 where the group does not divide tokens. */
static void expect_shared(int item, enum pass pass, const int pieces[2], const int sms[2])
{
    for (int tokens = 0; tokens < 2; tokens++) {
        struct model model = small(FRAMEWORK_MEGATRON_TE, NORM_AUTO);
        struct kernel list[KERNELS_MAX];
        const struct cost_options options = {.efficiency = 1};
        int count = 0;
        model.tensor = 2;
        model.sequence_parallel = tokens;
        const int n = kernels_of(&model, item, pass, 1, &options, list);
        for (int i = 0; i < n; i++) {
            if (list[i].kind != KERNEL_MATMUL)
                continue;
            assert_int_equal(list[i].pieces, tokens ? pieces[count] : 0);
            assert_int_equal(list[i].taken_sms, tokens ? sms[count] : 0);
            count++;
        }
        assert_int_equal(count, 2);
        model_clear(&model);
    }
}

/* Beside collectives, products are divided by tokens or leave SMs, as in NeMo's recipe for GPT-3 175B.
 * Backwards the second linear comes first. */
static void products__give_way_to_collectives(void **state)
{
    static const int gather[] = {2, 4}, gather_back[] = {2, 0}, whole[] = {0, 0};
    (void)state;
    expect_shared(ATTENTION, PASS_FWD, gather, (int[]){0, 24});
    expect_shared(MLP, PASS_FWD, gather, (int[]){0, 20});
    expect_shared(ATTENTION, PASS_BWD_INPUT, gather_back, (int[]){0, 4});
    expect_shared(MLP, PASS_BWD_INPUT, gather_back, (int[]){0, 2});
    expect_shared(ATTENTION, PASS_BWD_WEIGHT, whole, (int[]){0, 8});
    expect_shared(MLP, PASS_BWD_WEIGHT, whole, (int[]){0, 4});
}

/* The router of 8 experts, forward: the only product with 8 columns. */
static struct kernel router_of(enum framework_kind kind, double *casts)
{
    struct model model = {0};
    struct err err = {0};
    struct kernel list[KERNELS_MAX], router = {0};
    const struct cost_options options = {.efficiency = 1};
    if (model_parse(
            "mixtral-8x7b:layers=1,hidden=256,heads=4,kv_heads=4,seq=512,vocab=1024,dtype=bf16",
            &model, &err) != OK)
        fail_msg("%s", err.msg);
    model_set_framework(&model, kind, NORM_FUSED);
    const int n = kernels_of(&model, MLP, PASS_FWD, 1, &options, list);
    *casts = 0;
    for (int i = 0; i < n; i++)
        if (list[i].kind == KERNEL_MATMUL && list[i].batch == 1 && list[i].n == 8)
            router = list[i];
        else if (router.n == 0 && list[i].kind == KERNEL_MEMORY && list[i].bytes != 2.0 * S * H * E)
            *casts += list[i].bytes;
    model_clear(&model);
    return router;
}

/* Megatron-LM's router reads 2-byte operands and writes fp32. PyTorch's casts both, and multiplies by fp32
 * units. */
static void router__is_a_product_in_fp32(void **state)
{
    double casts;
    (void)state;
    struct kernel router = router_of(FRAMEWORK_MEGATRON_TE, &casts);
    assert_false(router.fp32);
    assert_int_equal(router.out_bytes, 4);
    assert_true(router.bytes == E * (S + 8.0) * H + 4.0 * S * 8);
    assert_true(casts == 0);
    router = router_of(FRAMEWORK_HF_EAGER, &casts);
    assert_true(router.fp32);
    assert_true(router.bytes == 4 * (S + 8.0) * H + 4.0 * S * 8);
    assert_true(casts == (E + 4) * (S + 8.0) * H);
}

/* A pass that the host cannot launch as fast as the device runs it takes its number of kernels times the
 * host's time for one. */
static void launches__take_what_the_framework_needs(void **state)
{
    static const double us[FRAMEWORK_KIND_COUNT] = {
        [FRAMEWORK_FSDP_COMPILED] = 14.5, [FRAMEWORK_OURS] = 3.4, [FRAMEWORK_MEGATRON_TE] = 13.48};
    const struct cost_options options = {.efficiency = 1};
    struct device device = {.kind = "h100", .speed = 1};
    (void)state;
    for (int kind = 0; kind < FRAMEWORK_KIND_COUNT; kind++) {
        struct model model = {0};
        struct kernel_costs *costs = kernel_costs_new(&options);
        struct kernel list[KERNELS_MAX];
        struct cost cost;
        struct err err = {0};
        bool beyond = false;
        int64_t ns = 0;
        if (us[kind] > 0) {
            assert_int_equal(
                model_parse("llama:layers=1,hidden=64,heads=4,mlp=64,seq=16,vocab=64,dtype=bf16",
                            &model, &err),
                OK);
            model_set_framework(&model, (enum framework_kind)kind, NORM_AUTO);
            cost_kernels(&cost, costs);
            assert_int_equal(
                cost.item_ns(cost.ctx, &model, MLP, PASS_FWD, 1, &device, &ns, &beyond, &err), OK);
            const int n = kernels_of(&model, MLP, PASS_FWD, 1, &options, list);
            if (kind != FRAMEWORK_OURS) /* whose launches the device does not keep up with */
                assert_true(fabs((double)ns - n * us[kind] * 1e3) <= 1);
            else
                assert_true(ns < (int64_t)(n * 14.5e3));
        }
        kernel_costs_free(costs);
        model_clear(&model);
    }
}

enum { EXPERTS = 8 };

static struct model experts_of(enum framework_kind kind, enum dispatcher_kind dispatcher)
{
    static const char text[] =
        "mixtral-8x7b:layers=1,hidden=64,heads=4,kv_heads=4,mlp=64,seq=16,vocab=64,dtype=bf16";
    struct model model = {0};
    struct err err = {0};
    if (model_parse(text, &model, &err) != OK)
        fail_msg("%s", err.msg);
    model_set_framework(&model, kind, NORM_AUTO);
    model_set_overlap(&model, OVERLAP_AUTO, dispatcher);
    return model;
}

/* Kernels of Megatron-LM's layer of experts, beside those of any framework: 31 or 17 of router and
 * dispatcher for two, and those of a product once for each expert, but for a graph of the whole step. */
static void experts__are_launched_one_by_one(void **state)
{
    static const enum pass passes[] = {PASS_FWD, PASS_BWD_INPUT, PASS_BWD_WEIGHT};
    struct kernel list[KERNELS_MAX];
    (void)state;
    for (int dispatcher = 0; dispatcher < DISPATCHER_KIND_COUNT; dispatcher++)
        for (int p = 0; p < 3; p++)
            for (int te = 0; te < 2; te++)
                for (int graphs = 0; graphs < GRAPHS_COUNT; graphs++) {
                    const struct cost_options options = {.efficiency = 1,
                                                         .graphs = (enum graph_parts)graphs};
                    struct model model =
                        experts_of(te ? FRAMEWORK_MEGATRON_TE : FRAMEWORK_FSDP, dispatcher);
                    const int n = kernels_of(&model, MLP, passes[p], 1, &options, list);
                    int router = 0, products = 0, looped = 0;
                    for (int i = 0; i < n; i++) {
                        if (!list[i].dynamic) {
                            router += list[i].launches;
                            continue;
                        }
                        products += list[i].kind == KERNEL_MATMUL;
                        looped += list[i].launches;
                    }
                    assert_true(products >= 2);
                    assert_int_equal(router, !te || passes[p] != PASS_FWD    ? 0
                                             : dispatcher == DISPATCHER_FLEX ? 16
                                                                             : 30);
                    assert_int_equal(looped, te && graphs != GRAPHS_STEP ? EXPERTS * products : 0);
                    model_clear(&model);
                }
}

static int64_t forward_ns(const struct model *model, int item, enum graph_parts graphs)
{
    const struct cost_options options = {.efficiency = 1, .graphs = graphs};
    struct device device = {.kind = "h100", .speed = 1};
    struct kernel_costs *costs = kernel_costs_new(&options);
    struct cost cost;
    struct err err = {0};
    bool beyond = false;
    int64_t ns = 0;
    cost_kernels(&cost, costs);
    assert_int_equal(cost.item_ns(cost.ctx, model, item, PASS_FWD, 1, &device, &ns, &beyond, &err),
                     OK);
    kernel_costs_free(costs);
    return ns;
}

/* A graph is one launch, of the kernels whose sizes do not depend on the choice of experts. A graph of
 * the step takes the device's time. */
static void graphs__leave_experts_to_the_host(void **state)
{
    static const bool has[GRAPHS_COUNT][2] = {
        [GRAPHS_MLP] = {false, true},
          [GRAPHS_LAYERS] = {true,  true}
    };
    const struct cost_options options = {.efficiency = 1};
    (void)state;
    for (int item = ATTENTION; item <= MLP; item++) {
        struct model model = experts_of(FRAMEWORK_MEGATRON_TE, DISPATCHER_ALLTOALL);
        struct kernel list[KERNELS_MAX];
        const int n = kernels_of(&model, item, PASS_FWD, 1, &options, list);
        int all = 0, outside = 0;
        for (int i = 0; i < n; i++) {
            const int launches = list[i].launches > 1 ? list[i].launches : 1;
            all += launches;
            outside += list[i].dynamic ? launches : 0;
        }
        assert_true(item == MLP ? outside > 2 * EXPERTS && all > outside + 31 : outside == 0);
        for (int graphs = 0; graphs < GRAPHS_STEP; graphs++) {
            const int count = has[graphs][item == MLP] ? outside + 1 : all;
            const int64_t ns = forward_ns(&model, item, (enum graph_parts)graphs);
            if (item == MLP || count > 1)
                assert_true(fabs((double)ns - count * 13.48e3) <= 1);
        }
        assert_true(forward_ns(&model, item, GRAPHS_STEP) <
                    forward_ns(&model, item, GRAPHS_LAYERS) + (item == ATTENTION));
        model_clear(&model);
    }
}

static void framework__has_a_name_each(void **state)
{
    (void)state;
    assert_null(framework_of(FRAMEWORK_AUTO));
    for (int k = 1; k < FRAMEWORK_KIND_COUNT; k++) {
        assert_string_equal(framework_name(framework_of((enum framework_kind)k)),
                            framework_kind_names[k]);
        for (int other = 0; other < k; other++)
            assert_string_not_equal(framework_kind_names[k], framework_kind_names[other]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm__keeps_an_fp32_copy_when_eager),
        cmocka_unit_test(norm__is_divided_by_tokens_only),
        cmocka_unit_test(norm__moves_what_its_operators_read_and_write),
        cmocka_unit_test(norm__of_gpt_is_one_kernel_always),
        cmocka_unit_test(operators__of_layers_keep_and_move_more),
        cmocka_unit_test(logits__are_kept_in_fp32),
        cmocka_unit_test(logits__of_eager_loss_have_two_gradients),
        cmocka_unit_test(logits__of_a_fused_loss_stay_narrow),
        cmocka_unit_test(logits__are_whole_where_the_framework_gathers_them),
        cmocka_unit_test(collectives__of_gate_and_up_are_two_backwards),
        cmocka_unit_test(gradients__have_two_bytes_and_a_kernel_that_adds_them),
        cmocka_unit_test(years__have_their_operators_and_sums),
        cmocka_unit_test(permutations__are_operators_until_2024),
        cmocka_unit_test(buckets__are_of_the_first_stage_under_megatron),
        cmocka_unit_test(range__has_the_step_of_each_likely_framework),
        cmocka_unit_test(gradients__are_summed_whole_in_fp32),
        cmocka_unit_test(sends__block_where_the_framework_waits),
        cmocka_unit_test(scores__of_llama_are_kept_when_unfused),
        cmocka_unit_test(collectives__of_tensor_run_beside_products),
        cmocka_unit_test(overlap__is_what_the_job_says),
        cmocka_unit_test(products__give_way_to_collectives),
        cmocka_unit_test(router__is_a_product_in_fp32),
        cmocka_unit_test(launches__take_what_the_framework_needs),
        cmocka_unit_test(experts__are_launched_one_by_one),
        cmocka_unit_test(graphs__leave_experts_to_the_host),
        cmocka_unit_test(framework__has_a_name_each),
        cmocka_unit_test(framework__has_room_for_all_that_fits),
        cmocka_unit_test(framework__has_a_communicator_for_each_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
