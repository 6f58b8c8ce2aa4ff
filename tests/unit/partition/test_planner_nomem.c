/* Fail the Nth allocation: the planner and autodp give ERR_NOMEM, touch nothing, leak nothing
 * (under a sanitizer the allocator is not ours, and the test only runs the calls). */
#include "partition/plan/autodp.h"
#include "partition/search/planner.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

/* Every allocation of a small search fails once; returns how many there are. */
static int fail_each(const struct planner_problem *problem, const struct planner_options *options)
{
    for (int n = 0;; n++) {
        struct planner_result result = {0};
        struct err err = {0};
        const long before = fail_malloc_live;
        fail_malloc_after(n);
        enum status rc = planner_solve(problem, options, &result, &err);
        const bool failed = !fail_malloc_done();
        if (failed) {
            assert_int_equal(rc, ERR_NOMEM);
            assert_null(result.stage_ns);
        } else {
            assert_int_equal(rc, OK);
        }
        planner_result_clear(&result);
        assert_int_equal(fail_malloc_live, before);
        if (!failed)
            return n;
    }
}

static void planner_solve__survives_any_failed_allocation(void **state)
{
    (void)state;
    struct model model = {0};
    struct cluster cluster = {0};
    struct cost cost;
    assert_int_equal(
        model_parse("uniform:layers=4,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,params=1000", &model,
                    NULL),
        OK);
    assert_int_equal(cluster_grid(2, 1, &cluster, NULL), OK);
    cost_constant(&cost);
    const struct planner_problem problem = {.setting.model = &model,
                                            .setting.cluster = &cluster,
                                            .setting.cost = &cost,
                                            .batch = 2,
                                            .num_frozen_layers = 1,
                                            .optim_bytes_per_param = 4};
    struct planner_options options = {.schedules = 1u << SCHEDULE_1F1B | 1u << SCHEDULE_ZB_V,
                                      .frozen_auto = true};
    const int num = fail_each(&problem, &options);
    assert_true(!FAIL_MALLOC || num > 30);
    struct planner_problem active = problem;
    active.num_frozen_layers = 0;
    fail_each(&active, &options);
    options.by_params = true;
    fail_each(&problem, &options);
    options.balancer = BALANCER_RELEASED;
    options.num_ranks = 2;
    options.schedules = 1u << SCHEDULE_GPIPE;
    fail_each(&problem, &options);
    model_clear(&model);
    cluster_clear(&cluster);
}

static void transition__survives_any_failed_allocation(void **state)
{
    (void)state;
    struct model model = {0};
    struct cluster cluster = {0};
    assert_int_equal(model_parse("vit-tiny", &model, NULL), OK);
    assert_int_equal(cluster_grid(2, 2, &cluster, NULL), OK);
    int cut1[] = {0, model.num_items}, cut2[] = {0, 9, model.num_items};
    int device1[] = {0, 1, 2, 3}, device2[] = {0, 1, 2, 3};
    const struct plan old = {.num_ranks = 2,
                             .num_stages = 2,
                             .chunks = 1,
                             .num_pipelines = 2,
                             .first_item = cut2,
                             .device = device2,
                             .optim_bytes_per_param = 4};
    struct plan fresh = {.num_ranks = 1,
                         .num_stages = 1,
                         .chunks = 1,
                         .num_pipelines = 4,
                         .first_item = cut1,
                         .device = device1,
                         .optim_bytes_per_param = 4};
    for (int n = 0;; n++) {
        struct transition transition = {0};
        const long before = fail_malloc_live;
        fail_malloc_after(n);
        enum status rc = autodp_keep_devices(&model, &cluster, &old, false, &fresh, NULL);
        if (rc == OK)
            rc = transition_build(&model, &cluster, &old, &fresh, &transition, NULL);
        const bool failed = !fail_malloc_done();
        /* qsort() may ask for memory, and does without */
        assert_true(rc == OK || (failed && rc == ERR_NOMEM));
        transition_clear(&transition);
        assert_int_equal(fail_malloc_live, before);
        if (!failed)
            break;
    }
    model_clear(&model);
    cluster_clear(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planner_solve__survives_any_failed_allocation),
        cmocka_unit_test(transition__survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
