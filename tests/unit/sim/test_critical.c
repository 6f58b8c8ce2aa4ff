/* The critical path adds up to the step, and follows the ops that make it. */
#include "sim/step/critical.h"
#include "tests/unit/sim_case.h"
#include "tests/unit/test.h"

static int64_t sum_of(const struct critical_path *path)
{
    int64_t sum = path->transfer_ns + path->allreduce_ns + path->host_ns;
    for (int s = 0; s < path->num_stages; s++)
        sum += path->stage_ns[s];
    return sum;
}

static void critical_path_find__follows_the_slow_stage(void **state)
{
    (void)state;
    static const int64_t f[4] = {100, 1000, 100, 100};
    struct sim_case c = {
        .kind = SCHEDULE_GPIPE, .K = 4, .M = 8, .f = 1, .i = 1, .w = 1, .stage_f = f};
    struct critical_path path = {0};
    struct err err = {0};
    c.options.record_ops = true;
    sim_case_run(&c);
    assert_int_equal(critical_path_find(&c.result, &c.full, &c.workload, &path, &err), OK);
    assert_int_equal(sum_of(&path), c.result.step_ns);
    assert_int_equal(path.stage_ns[1], 8 * 3000); /* all of its work is on the path */
    assert_int_equal(path.stage_ns[0], 300);
    assert_int_equal(path.stage_ns[2] + path.stage_ns[3], 600);
    critical_path_clear(&path);
    sim_case_clear(&c);
}

static void critical_path_find__adds_up_on_steps_of_every_kind(void **state)
{
    (void)state;
    static const enum schedule_kind kinds[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_INTERLEAVED,
                                               SCHEDULE_ZB_H1, SCHEDULE_ZB_V};
    for (int n = 0; n < 80; n++) {
        struct sim_case c = {.kind = kinds[n % 5],
                             .K = 2 + n % 3,
                             .R = 1 + n % 2,
                             .nodes = 1 + n % 2,
                             .M = 2 * (2 + n % 3),
                             .chunks = n % 5 == 2 || n % 5 == 4 ? 2 : 1,
                             .f = 1000 + 37 * n,
                             .i = 900,
                             .w = 800,
                             .update = 50,
                             .act = 500,
                             .params = 1000,
                             .tied = n % 4 == 1 ? 700 : 0,
                             .link = 1e9,
                             .uplink = 0.5e9,
                             .latency = 20,
                             .host_op = n % 4 == 0 ? 1500 : 0,
                             .sends_blocking = n / 5 % 2,
                             .clip = n % 3 == 0};
        struct critical_path path = {0};
        struct err err = {0};
        c.options.record_ops = true;
        c.options.jitter = n % 7 == 0 ? 0.1 : 0;
        sim_case_run(&c);
        assert_int_equal(critical_path_find(&c.result, &c.full, &c.workload, &path, &err), OK);
        assert_int_equal(sum_of(&path), c.result.step_ns);
        assert_true(path.num_ops > 0);
        for (int64_t i = 1; i < path.num_ops; i++)
            assert_true(c.result.ops[path.ops[i]].end_ns >= c.result.ops[path.ops[i - 1]].end_ns);
        if (c.host_op == 0 && !c.clip && c.options.jitter == 0)
            assert_int_equal(path.host_ns, 0); /* nothing but work and messages */
        critical_path_clear(&path);
        sim_case_clear(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(critical_path_find__follows_the_slow_stage),
        cmocka_unit_test(critical_path_find__adds_up_on_steps_of_every_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
