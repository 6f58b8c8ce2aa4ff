/* Every allocation of a step fails once: ERR_NOMEM, no crash, nothing half-made. */
#include "sim/step/engine.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/sim_case.h"
#include "tests/unit/test.h"

static void sim_step__survives_each_failed_allocation(void **state)
{
    (void)state;
    if (!FAIL_MALLOC)
        skip(); /* the sanitizer has the allocator */

    struct sim_case c = SIM_CASE(SCHEDULE_1F1B, 3, 6, 1000, 1000, 1000, .R = 2, .nodes = 2,
                                 .act = 3000, .params = 100, .link = 1e9, .uplink = 1e9);
    c.options.record_ops = true;
    sim_case_build(&c);
    for (int every = 0; every < 2; every++) {
        enum status rc = ERR_NOMEM;
        int n = 0;
        c.options.every_event = every;
        for (; rc != OK && n < 1000; n++) {
            struct err err = {0};
            fail_malloc_after(n);
            rc = sim_case_step(&c, &err);
            fail_malloc_done();
            assert_true(rc == OK || rc == ERR_NOMEM);
            if (rc != OK)
                assert_null(c.result.devices);
        }
        assert_int_equal(rc, OK);
        assert_true(n > 10);
    }
    sim_case_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sim_step__survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
