/* tests/unit/profiles/test_pool_memory.c - pools of the executor against sums by hand. */
#include "partition/cluster/cluster.h"
#include "partition/step/lower.h"
#include "partition/step/pool_memory.h"
#include "profiles/job/job_json.h"
#include "tests/unit/test.h"

enum { STASH = 1000 };

static const char *const vit = "vit-tiny:image=32,patch=8,hidden=64,heads=2,mlp=128,layers=4";
static const char *text; /* of another model; NULL: vit */
static bool canonical;   /* of the plans that peak_frozen() makes */
static bool on_device;

/* Two ranks, a tiny ViT with attention and MLP items, stash STASH bytes a sample everywhere. Two
 * layers (5 items) frozen where a placement is given. */
static int64_t peak_frozen(enum schedule_kind kind, int m, enum recompute_mode recompute, int rank,
                           enum frozen_placement frozen, int64_t *params, int64_t *wide)
{
    struct model model = {0};
    struct cluster cluster = {0};
    struct cost cost;
    struct workload w = {0};
    struct schedule full = {0};
    struct err err = {0};
    int64_t bytes[2], stash[64];
    assert_int_equal(model_load(text ? text : vit, &model, &err), OK);
    assert_int_equal(cluster_grid(1, 2, &cluster, &err), OK);
    strcpy(cluster.devices[0].kind, "a100");
    strcpy(cluster.devices[1].kind, "a100");
    cost_roofline(&cost, NULL);
    int first_item[] = {0, model.num_items / 2, model.num_items}, device[] = {0, 1};
    if (frozen == FROZEN_FIRST || frozen == FROZEN_CACHED) {
        first_item[0] = 5;
        first_item[1] = 7;
    }
    struct plan plan = {.num_ranks = 2,
                        .num_pipelines = 1,
                        .chunks = 1,
                        .num_stages = 2,
                        .batch = 2 * m,
                        .microbatches = microbatches_of(2 * m, m),
                        .schedule = kind,
                        .recompute = recompute,
                        .num_frozen_layers = frozen == FROZEN_NONE ? 0 : 2,
                        .frozen = frozen,
                        .optim_bytes_per_param = 8,
                        .canonical = canonical,
                        .first_item = first_item,
                        .device = device};
    for (int i = 0; i < model.num_items; i++)
        stash[i] = STASH;
    assert_int_equal(plan_lower(&(struct setting){&model, &cluster, &cost}, &plan, &w, &full, &err),
                     OK);
    assert_int_equal(pool_memory(&model, &full, &w, &plan, stash, on_device, bytes, &err), OK);
    *params = 0;
    for (int i = first_item[rank]; i < first_item[rank + 1]; i++)
        *params += model.items[i].params;
    *wide = (int64_t)model.seq * model.hidden * 4;
    schedule_clear(&full);
    workload_clear(&w);
    cluster_clear(&cluster);
    model_clear(&model);
    return bytes[rank];
}

static int64_t peak(enum schedule_kind kind, int m, enum recompute_mode recompute, int rank,
                    int64_t *params, int64_t *wide)
{
    return peak_frozen(kind, m, recompute, rank, FROZEN_NONE, params, wide);
}

/* Items of the first stage: embedding, 2 x (attention, MLP): 5; micro-batches of 2 samples. */
static void pool_memory__first_stage_adds_up_by_hand(void **state)
{
    (void)state;
    int64_t params, wide;
    int64_t got = peak(SCHEDULE_1F1B, 8, RECOMPUTE_NEVER, 0, &params, &wide);
    /* 1F1B keeps 2 live on the first of two ranks: 3 slots. */
    int64_t patches = (int64_t)17 * 3 * 8 * 8 * 4;
    int64_t slot = 2 * (5 * STASH + 4 * wide) + 2 * wide;
    int64_t work = 2 * (5 * wide + STASH + patches);
    int64_t gradients_in = 5 * 2 * wide;
    assert_int_equal(got, params * 16 + 3 * slot + work + gradients_in);
}

/* A decoder's scratch tensors are as wide as its MLP (160), and each stage has the angles of its heads. */
static void pool_memory__of_a_decoder_adds_up_by_hand(void **state)
{
    (void)state;
    int64_t params, wide;
    text = "llama:hidden=64,heads=4,kv_heads=2,mlp=160,layers=4,seq=32,vocab=100,dtype=fp32";
    int64_t got = peak(SCHEDULE_1F1B, 8, RECOMPUTE_NEVER, 0, &params, &wide);
    text = NULL;
    int64_t slot = 2 * (5 * STASH + 4 * wide) + 2 * wide;
    int64_t work = 2 * (3 * wide + 2 * 32 * 160 * 4 + STASH) + 32 * 16 * 4;
    assert_int_equal(got, params * 16 + 3 * slot + work + 5 * 2 * wide);
}

static void pool_memory__recompute_holds_one_stash(void **state)
{
    (void)state;
    int64_t params, wide;
    int64_t never = peak(SCHEDULE_1F1B, 8, RECOMPUTE_NEVER, 0, &params, &wide);
    int64_t always = peak(SCHEDULE_1F1B, 8, RECOMPUTE_STAGE, 0, &params, &wide);
    assert_int_equal(never - always, 2 * 2 * (5 * STASH + 4 * wide));
}

/* The last micro-batch keeps its stash while those before it have theirs rebuilt. */
static void pool_memory__recompute_except_last_holds_two(void **state)
{
    (void)state;
    int64_t params, wide;
    int64_t never = peak(SCHEDULE_GPIPE, 4, RECOMPUTE_NEVER, 0, &params, &wide);
    int64_t but_last = peak(SCHEDULE_GPIPE, 4, RECOMPUTE_EXCEPT_LAST, 0, &params, &wide);
    assert_int_equal(never - but_last, 2 * 2 * (5 * STASH + 4 * wide));
}

/* The second of two ranks puts each W off behind the next I, whose stash is there by then. */
static void pool_memory__recompute_holds_what_put_off_weights_need(void **state)
{
    (void)state;
    int64_t params, wide, kept[2];
    for (int split = 0; split < 2; split++) {
        const enum schedule_kind kind = split ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B;
        const int64_t never = peak(kind, 8, RECOMPUTE_NEVER, 1, &params, &wide);
        kept[split] = never - peak(kind, 8, RECOMPUTE_STAGE, 1, &params, &wide);
    }
    assert_int_equal(kept[0], kept[1]); /* 2 slots and 1 stash, 3 and 2 */
}

static void pool_memory__gpipe_has_a_slot_for_each_microbatch(void **state)
{
    (void)state;
    int64_t params, wide;
    int64_t four = peak(SCHEDULE_GPIPE, 4, RECOMPUTE_NEVER, 0, &params, &wide);
    int64_t eight = peak(SCHEDULE_GPIPE, 8, RECOMPUTE_NEVER, 0, &params, &wide);
    assert_int_equal(eight - four, 4 * (2 * (5 * STASH + 4 * wide) + 2 * wide + 2 * wide));
}

static void pool_memory__frozen_prefix_outside_the_pipeline_adds_up_by_hand(void **state)
{
    (void)state;
    int64_t params, wide, all;
    int64_t got = peak_frozen(SCHEDULE_1F1B, 8, RECOMPUTE_NEVER, 0, FROZEN_CACHED, &params, &wide);
    int64_t first = peak_frozen(SCHEDULE_1F1B, 8, RECOMPUTE_NEVER, 0, FROZEN_FIRST, &params, &wide);
    /* The prefix stays at hand: evaluation runs it. Two micro-batches are read ahead. */
    assert_int_equal(got - first, 2 * 2 * wide);
    peak_frozen(SCHEDULE_1F1B, 8, RECOMPUTE_NEVER, 0, FROZEN_SPREAD, &all, &wide);
    /* Items 5 and 6 train on rank 0: 3 slots with stash, what lies between them, output, gradient
     * of the input. */
    int64_t slot = 2 * (2 * STASH + wide) + 2 * wide + 2 * wide;
    int64_t work = 2 * (5 * wide + STASH);
    int64_t gradients_in = 5 * 2 * wide;
    int64_t prefix = 2 * (5 * wide + STASH + 17 * 3 * 8 * 8 * 4) + (1 + 8) * 2 * wide;
    assert_int_equal(first, params * 16 + all * 4 + 3 * slot + work + gradients_in + prefix);
}

static void pool_memory__counts_the_sums_of_a_canonical_reduction(void **state)
{
    (void)state;
    static const int depths[][2] = {
        {1, 0},
        {2, 1},
        {3, 2},
        {8, 3},
        {9, 4}
    };
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        int64_t params, wide;
        int64_t fast = peak(SCHEDULE_1F1B, depths[i][0], RECOMPUTE_NEVER, 1, &params, &wide);
        canonical = true;
        int64_t tree = peak(SCHEDULE_1F1B, depths[i][0], RECOMPUTE_NEVER, 1, &params, &wide);
        canonical = false;
        assert_int_equal(tree - fast, depths[i][1] * params * 4);
    }
}

/* A copy of 2 samples: ids, images where the embedding is, labels at the head. */
static void pool_memory__on_a_device_holds_what_stages_read(void **state)
{
    (void)state;
    enum { IDS = 256, IMAGES = 2 * 4 * 3 * 32 * 32, LABELS = 256 };
    static const struct {
        enum frozen_placement frozen;
        int64_t more[2]; /* than on the host */
    } cases[] = {
  /* 3 slots (of a frozen stage 2) and the images ahead; 2 slots */
        {FROZEN_NONE,   {4 * (IDS + IMAGES), 2 * (IDS + LABELS)}                          },
        {FROZEN_SPREAD, {3 * (IDS + IMAGES), 2 * (IDS + LABELS)}                          },
 /* the prefix's slot and the images ahead */
        {FROZEN_FIRST,  {2 * (IDS + IMAGES) + 3 * IDS, 2 * (IDS + LABELS)}                },
 /* the images of a miss alone, nothing read ahead */
        {FROZEN_CACHED, {IDS + IMAGES + 3 * IDS - 2 * 2 * 17 * 64 * 4, 2 * (IDS + LABELS)}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int rank = 0; rank < 2; rank++) {
            int64_t params, wide, host, device;
            host = peak_frozen(SCHEDULE_1F1B, 8, RECOMPUTE_NEVER, rank, cases[i].frozen, &params,
                               &wide);
            on_device = true;
            device = peak_frozen(SCHEDULE_1F1B, 8, RECOMPUTE_NEVER, rank, cases[i].frozen, &params,
                                 &wide);
            on_device = false;
            assert_int_equal(device - host, cases[i].more[rank]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_memory__first_stage_adds_up_by_hand),
        cmocka_unit_test(pool_memory__of_a_decoder_adds_up_by_hand),
        cmocka_unit_test(pool_memory__recompute_holds_one_stash),
        cmocka_unit_test(pool_memory__recompute_except_last_holds_two),
        cmocka_unit_test(pool_memory__recompute_holds_what_put_off_weights_need),
        cmocka_unit_test(pool_memory__gpipe_has_a_slot_for_each_microbatch),
        cmocka_unit_test(pool_memory__frozen_prefix_outside_the_pipeline_adds_up_by_hand),
        cmocka_unit_test(pool_memory__on_a_device_holds_what_stages_read),
        cmocka_unit_test(pool_memory__counts_the_sums_of_a_canonical_reduction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
