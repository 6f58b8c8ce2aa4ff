/* The judge of plans: a step that it knows is not simulated again. */
#include "sim/run/plan_judge.h"
#include "tests/unit/sim_case.h"
#include "tests/unit/test.h"

/* The judge cannot see that the links change, so it tells the time that it knows of an equal plan; it
 * simulates another plan, and all of them on another setting. */
static void plan_judge_step__knows_plans_by_all_their_members(void **state)
{
    (void)state;
    struct sim_case c =
        SIM_CASE(SCHEDULE_1F1B, 4, 8, 1000, 1000, 1000, .R = 2, .act = 1000, .link = 1e9);
    struct err err = {0};
    sim_case_run(&c);
    struct plan_judge judge = {
        .setting = {&c.model, &c.cluster, &c.cost}
    };
    const struct setting setting = judge.setting;
    struct plan copy = {0};
    int64_t before, step_ns;
    assert_int_equal(plan_judge_step(&judge, &c.plan, &before, &err), OK);
    assert_int_equal(before, c.result.step_ns);
    for (int d = 0; d < c.cluster.num_devices; d++)
        c.cluster.devices[d].link_bytes_per_s = 1e8;
    assert_int_equal(plan_copy(&c.plan, &copy, &err), OK);
    copy.step_ns = 7; /* a prediction is no part of it */
    assert_int_equal(plan_judge_step(&judge, &copy, &step_ns, &err), OK);
    assert_int_equal(step_ns, before);
    copy.clip = true;
    assert_int_equal(plan_judge_step(&judge, &copy, &step_ns, &err), OK);
    assert_true(step_ns > before);
    plan_judge_set(&judge, &setting);
    assert_int_equal(plan_judge_step(&judge, &c.plan, &step_ns, &err), OK);
    assert_true(step_ns > before);
    plan_clear(&copy);
    sim_case_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_judge_step__knows_plans_by_all_their_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
