/* Plans: micro-batches, copies, every structural rule. */
#include "partition/plan/plan.h"
#include "tests/unit/test.h"

static void microbatches_of__chunks_like_torch_when_compared_with_a_loop(void **state)
{
    (void)state;
    for (int64_t batch = 1; batch <= 60; batch++)
        for (int wanted = 1; wanted <= 70; wanted++) {
            int64_t size = (batch + wanted - 1) / wanted, left = batch;
            int count = 0;
            int64_t last = 0;
            while (left > 0) {
                last = left < size ? left : size;
                left -= last;
                count++;
            }
            struct microbatches got = microbatches_of(batch, wanted);
            assert_int_equal(got.count, count);
            assert_int_equal(got.size, size);
            assert_int_equal(got.last_size, last);
        }
    struct microbatches m = microbatches_of(400, 48); /* the paper's B at 6K */
    assert_int_equal(m.count, 45);
    assert_int_equal(m.size, 9);
    assert_int_equal(m.last_size, 4);
}

struct fixture {
    struct item items[6];
    struct model model;
    struct cluster cluster;
    int cut[4], device[6];
    struct plan plan;
};

/* 3 ranks x 2 replicas over 6 items on 2x3 devices. */
static void setup(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < 6; i++)
        f->items[i] = (struct item){.kind = ITEM_OPAQUE, .layer = i};
    f->model = (struct model){.num_items = 6, .num_layers = 6, .items = f->items};
    assert_int_equal(cluster_grid(2, 3, &f->cluster, NULL), OK);
    static const int cut[] = {0, 2, 4, 6}, device[] = {0, 1, 2, 3, 4, 5};
    memcpy(f->cut, cut, sizeof cut);
    memcpy(f->device, device, sizeof device);
    f->plan = (struct plan){
        .num_ranks = 3,
        .chunks = 1,
        .num_pipelines = 2,
        .num_stages = 3,
        .batch = 10,
        .microbatches = {4, 3, 1},
        .schedule = SCHEDULE_1F1B,
        .first_item = f->cut,
        .device = f->device
    };
}

static void refused(struct fixture *f, const char *word)
{
    struct err err = {0};
    assert_int_equal(plan_check(&f->plan, &f->model, &f->cluster, &err), ERR_INFEASIBLE);
    if (!strstr(err.msg, word))
        fail_msg("'%s' lacks '%s'", err.msg, word);
    cluster_clear(&f->cluster);
    setup(f);
    assert_int_equal(plan_check(&f->plan, &f->model, &f->cluster, NULL), OK);
}

static void plan_check__names_the_rule_when_one_is_broken(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    assert_int_equal(plan_check(&f.plan, &f.model, &f.cluster, NULL), OK);
    f.plan.num_ranks = 0, refused(&f, "at least 1");
    f.plan.num_pipelines = -1, refused(&f, "at least 1");
    f.plan.num_stages = 4, refused(&f, "4 stages");
    f.plan.chunks = 2, f.plan.num_stages = 6, f.plan.num_ranks = 4, refused(&f, "stages");
    f.plan.schedule = SCHEDULE_ZB_V, refused(&f, "2 chunks");
    f.model.num_items = 2, refused(&f, "cannot cut 2 items into 3 stages");
    f.plan.num_pipelines = 3, refused(&f, "do not fit");
    f.plan.batch = 11, refused(&f, "micro-batches");
    f.plan.microbatches.last_size = 0, refused(&f, "micro-batches");
    f.plan.microbatches.last_size = 4, refused(&f, "micro-batches");
    f.plan.num_frozen_layers = 7, refused(&f, "0..6");
    f.plan.num_frozen_layers = 1, refused(&f, "placement 'none'");
    f.plan.frozen = FROZEN_SPREAD, refused(&f, "placement 'spread'");
    f.plan.num_frozen_layers = 1, f.plan.frozen = FROZEN_FIRST, refused(&f, "must be 1");
    f.cut[0] = 1, refused(&f, "starts at item 1");
    f.cut[1] = 0, refused(&f, "stage 0 of 3 is empty");
    f.cut[1] = 5, refused(&f, "stage 1");
    f.cut[3] = 5, refused(&f, "ends at item 5");
    f.device[4] = 6, refused(&f, "device 6");
    f.device[4] = -1, refused(&f, "device -1");
    f.device[5] = 0, refused(&f, "device 0 is taken");
    f.plan.first_item = NULL, refused(&f, "cut");
    f.plan.device = NULL, refused(&f, "device");
    /* legal: frozen prefix outside the cut */
    f.plan.num_frozen_layers = 1, f.plan.frozen = FROZEN_CACHED, f.cut[0] = 1;
    assert_int_equal(plan_check(&f.plan, &f.model, &f.cluster, NULL), OK);
    cluster_clear(&f.cluster);
}

/* Every member but the prediction counts. */
static void plan_digest__differs_with_each_member(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    const struct plan plan = f.plan;
    const uint64_t digest = plan_digest(&plan);
    int layers[3] = {1, 0, 1};
    assert_true(digest != 0);
    f.plan.step_ns = 5;
    assert_true(plan_digest(&f.plan) == digest);
#define DIFFERS(member, value)                                                                     \
    do {                                                                                           \
        f.plan = plan;                                                                             \
        f.plan.member = value;                                                                     \
        assert_true(plan_digest(&f.plan) != digest);                                               \
    } while (0)
    DIFFERS(num_ranks, 2);
    DIFFERS(chunks, 2);
    DIFFERS(num_pipelines, 1);
    DIFFERS(num_stages, 2);
    DIFFERS(batch, 9);
    DIFFERS(microbatches.count, 5);
    DIFFERS(microbatches.size, 2);
    DIFFERS(microbatches.last_size, 2);
    DIFFERS(schedule, SCHEDULE_GPIPE);
    DIFFERS(num_frozen_layers, 1);
    DIFFERS(frozen, FROZEN_SPREAD);
    DIFFERS(cache_write, true);
    DIFFERS(recompute, RECOMPUTE_LAYER);
    DIFFERS(recompute_layers, layers);
    DIFFERS(bucket_bytes, 1);
    DIFFERS(clip, true);
    DIFFERS(optim_bytes_per_param, 8);
    DIFFERS(canonical, true);
    DIFFERS(lagged, true);
    DIFFERS(layout.tensor, 2);
    DIFFERS(layout.sequence_parallel, true);
    DIFFERS(layout.expert, 2);
    DIFFERS(layout.expert_tensor, 2);
    DIFFERS(layout.context, 2);
    DIFFERS(layout.context_kind, (enum context_kind)1);
    DIFFERS(layout.shard, SHARD_OPTIMIZER);
    DIFFERS(layout.shard_group, 2);
    DIFFERS(layout.offload, true);
#undef DIFFERS
    f.plan = plan;
    f.cut[1] = 1;
    assert_true(plan_digest(&f.plan) != digest);
    f.cut[1] = 2;
    f.device[5] = 4;
    assert_true(plan_digest(&f.plan) != digest);
    cluster_clear(&f.cluster);
}

static void plan_copy__is_independent_when_the_source_changes(void **state)
{
    (void)state;
    struct fixture f;
    struct plan copy = {0};
    setup(&f);
    assert_int_equal(plan_copy(&f.plan, &copy, NULL), OK);
    f.cut[1] = 3;
    f.device[0] = 5;
    assert_int_equal(copy.first_item[1], 2);
    assert_int_equal(copy.device[0], 0);
    assert_null(copy.memory_bytes);
    plan_clear(&copy);
    plan_clear(&copy);
    cluster_clear(&f.cluster);
}

static void schedule_rank_of_stage__folds_when_the_schedule_is_a_v(void **state)
{
    (void)state;
    static const int v[] = {0, 1, 2, 2, 1, 0}, round[] = {0, 1, 2, 0, 1, 2};
    for (int s = 0; s < 6; s++) {
        assert_int_equal(schedule_rank_of_stage(SCHEDULE_ZB_V, 3, s), v[s]);
        assert_int_equal(schedule_rank_of_stage(SCHEDULE_DUALPIPE_V, 3, s), v[s]);
        assert_int_equal(schedule_rank_of_stage(SCHEDULE_INTERLEAVED, 3, s), round[s]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(microbatches_of__chunks_like_torch_when_compared_with_a_loop),
        cmocka_unit_test(plan_check__names_the_rule_when_one_is_broken),
        cmocka_unit_test(plan_digest__differs_with_each_member),
        cmocka_unit_test(plan_copy__is_independent_when_the_source_changes),
        cmocka_unit_test(schedule_rank_of_stage__folds_when_the_schedule_is_a_v),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
