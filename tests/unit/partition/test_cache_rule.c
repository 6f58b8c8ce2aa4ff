/* Whether a cache pays: against adding up the epochs one by one; the fill against a hand count. */
#include "partition/step/cache_rule.h"

#include "partition/search/planner.h"
#include "tests/unit/test.h"

static void cache_fill_weight__is_the_mean_over_the_epochs_left(void **state)
{
    (void)state;
    for (int64_t epochs = 1; epochs <= 6; epochs++)
        for (int64_t views = 1; views <= 4; views++)
            for (int s = 0; s <= 4; s++) {
                double sum = 0;
                for (int64_t e = 0; e < epochs; e++)
                    sum += e < views ? 1 : 1 - s / 4.0;
                assert_true(fabs(cache_fill_weight(epochs, views, s / 4.0) - sum / (double)epochs) <
                            1e-12);
            }
    assert_true(cache_fill_weight(9, 0, 1) == 1); /* endless views: none comes again */
    assert_true(cache_fill_weight(0, 1, 1) == 1);
}

static void cache_whole_wanted__where_equal_bits_are_promised_and_depend_on_the_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        const bool bf16 = i & 1, bf16_cache = i & 2, rows_alone = i & 4;
        struct job job = {.train.dtype = bf16 ? DTYPE_BF16 : DTYPE_FP32, .cache.bf16 = bf16_cache};
        assert_int_equal(cache_whole_wanted(&job, rows_alone), i == 0 || i == 1 || i == 3);
    }
}

static void cache_fill_extra__counts_what_lies_above_the_level(void **state)
{
    (void)state;
    struct model model = {0};
    struct cluster cluster = {0};
    struct cost cost;
    struct err err = {0};
    int first[2] = {9, 0}, device[1] = {0};
    int64_t all, upper, none;
    assert_int_equal(model_parse("uniform:layers=12", &model, &err), OK);
    for (int i = 0; i < model.num_items; i++) {
        model.items[i].fwd_ns = 9000 + 1500 * i;
        model.items[i].fwd_stash_ns = 1000 + 10 * i;
    }
    assert_int_equal(cluster_grid(1, 1, &cluster, &err), OK);
    cost_constant(&cost);
    cost.cache_write_ns = 700;
    first[1] = model.num_items;
    const struct plan plan = {.num_ranks = 1,
                              .num_pipelines = 1,
                              .batch = 30,
                              .microbatches = microbatches_of(30, 4),
                              .num_stages = 1,
                              .first_item = first,
                              .device = device};
    assert_int_equal(
        cache_fill_extra(&(struct setting){&model, &cluster, &cost}, &plan, 0, &all, &err), OK);
    assert_int_equal(
        cache_fill_extra(&(struct setting){&model, &cluster, &cost}, &plan, 5, &upper, &err), OK);
    assert_int_equal(
        cache_fill_extra(&(struct setting){&model, &cluster, &cost}, &plan, 9, &none, &err), OK);
    assert_int_equal(none, 4 * 8 * 700);
    int64_t want = none, low = 0;
    for (int i = 0; i < 9; i++) {
        want += 4 * (8000 + 1490 * i);
        low += i < 5 ? 4 * (8000 + 1490 * i) : 0;
    }
    assert_int_equal(all, want);
    assert_int_equal(upper, want - low);
    cluster.devices[0].speed = 0.5;
    assert_int_equal(
        cache_fill_extra(&(struct setting){&model, &cluster, &cost}, &plan, 0, &all, &err), OK);
    assert_true(all > want);
    model_clear(&model);
    cluster_clear(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_whole_wanted__where_equal_bits_are_promised_and_depend_on_the_rows),
        cmocka_unit_test(cache_fill_weight__is_the_mean_over_the_epochs_left),
        cmocka_unit_test(cache_fill_extra__counts_what_lies_above_the_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
