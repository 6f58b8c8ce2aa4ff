/* Fail the Nth allocation: the planner and autodp give ERR_NOMEM, touch nothing, leak nothing
 * (under a sanitizer the allocator is not ours, and the test only runs the calls). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "partition/autodp.h"
#include "partition/planner.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_ALLOCATOR 0
static long left, live;
#else
#define OWN_ALLOCATOR 1
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t num, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void __libc_free(void *old);
void *malloc(size_t size);
void *calloc(size_t num, size_t size);
void *realloc(void *old, size_t size);
void free(void *old);

static long left; /* allocations until the one that fails; 0: none fails */
static long live; /* allocated and not freed */

static int fails(void)
{
    return left > 0 && --left == 0;
}

static void *count(void *got)
{
    live += got != NULL;
    return got;
}

void *malloc(size_t size)
{
    return fails() ? NULL : count(__libc_malloc(size));
}

void *calloc(size_t num, size_t size)
{
    return fails() ? NULL : count(__libc_calloc(num, size));
}

void *realloc(void *old, size_t size)
{
    if (fails())
        return NULL;
    void *got = __libc_realloc(old, size);
    live += !old && got;
    return got;
}

void free(void *old)
{
    live -= old != NULL;
    __libc_free(old);
}
#endif

/* Every allocation of a small search fails once; returns how many there are. */
static long fail_each(const struct planner_problem *problem, const struct planner_options *options)
{
    for (long nth = 1;; nth++) {
        struct planner_result result = {0};
        struct err err = {0};
        long before = live;
        left = OWN_ALLOCATOR ? nth : 0;
        enum status rc = planner_solve(problem, options, &result, &err);
        bool failed = OWN_ALLOCATOR && left == 0;
        left = 0;
        if (failed) {
            assert_int_equal(rc, ERR_NOMEM);
            assert_null(result.stage_ns);
        } else {
            assert_int_equal(rc, OK);
        }
        planner_result_clear(&result);
        assert_int_equal(live, before);
        if (!failed)
            return nth;
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
    long most = fail_each(&problem, &options);
    assert_true(!OWN_ALLOCATOR || most > 30);
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
                             .num_replicas = 2,
                             .first_item = cut2,
                             .device = device2,
                             .optim_bytes_per_param = 4};
    struct plan fresh = {.num_ranks = 1,
                         .num_stages = 1,
                         .chunks = 1,
                         .num_replicas = 4,
                         .first_item = cut1,
                         .device = device1,
                         .optim_bytes_per_param = 4};
    for (long nth = 1;; nth++) {
        struct transition transition = {0};
        long before = live;
        left = OWN_ALLOCATOR ? nth : 0;
        enum status rc = autodp_keep_devices(&model, &cluster, &old, &fresh, NULL);
        if (rc == OK)
            rc = transition_build(&model, &cluster, &old, &fresh, &transition, NULL);
        bool failed = OWN_ALLOCATOR && left == 0;
        left = 0;
        /* qsort() may ask for memory, and does without */
        assert_true(rc == OK || (failed && rc == ERR_NOMEM));
        transition_clear(&transition);
        assert_int_equal(live, before);
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
