/* tests/test_comparison.c - what a table of real and simulated steps may claim. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "cli/comparison.h"

static struct replay run(int64_t median, int64_t p10, int64_t p90, int64_t sim)
{
    struct replay replay = {.real_step_ns = median,
                            .real_p10_ns = p10,
                            .real_p90_ns = p90,
                            .num_counted = 6,
                            .sim = {.step_ns = sim}};
    replay.plan.num_ranks = replay.plan.num_replicas = 1;
    return replay;
}

static void comparison_add_run__takes_noise_from_runs_where_there_are_several(void **state)
{
    (void)state;
    struct comparison c = {0};
    struct replay one = run(1000, 900, 1300, 1030), two = run(1040, 1000, 1050, 1030);
    comparison_add_run(&c, &one);
    assert_true(fabs(c.noise - 0.4) < 1e-12); /* only its steps tell */
    assert_true(fabs(c.error - 0.03) < 1e-12);
    assert_true(comparison_is_noisy(&c, 0.1));
    comparison_add_run(&c, &two);
    assert_int_equal(c.real_step_ns, 1020);
    assert_int_equal(c.num_steps, 12);
    assert_true(fabs(c.noise - 40.0 / 1020) < 1e-12); /* a slow step does not move two medians */
    assert_true(fabs(c.spread - 0.4) < 1e-12);
    assert_false(comparison_is_noisy(&c, 0.1));
    /* A machine that runs at two speeds for minutes at a time repeats its steps well, not its runs.
     */
    struct replay slow = run(1250, 1249, 1251, 1030);
    comparison_add_run(&c, &slow);
    assert_true(comparison_is_noisy(&c, 0.1));
    assert_int_equal(c.run_step_ns[2], 1250);
}

static struct comparison config(double error, double noise)
{
    return (struct comparison){.error = error, .noise = noise, .spread = noise};
}

static void comparison_summarize__leaves_noisy_configurations_out(void **state)
{
    (void)state;
    const struct comparison configs[] = {config(0.01, 0.02), config(-0.5, 0.11), config(-0.03, 0.1),
                                         config(0.02, 0)};
    struct comparison_summary s = comparison_summarize(configs, 4, NAN);
    assert_int_equal(s.num_noisy, 1);
    assert_true(s.noise_limit == 0.1 && s.median_abs_error == 0.02 && s.worst_abs_error == 0.03);
    assert_true(s.worst_spread == 0.11);
    assert_true(isnan(s.worst_abs_peak_error));
    /* A larger tolerance accepts as much noise; a smaller one changes nothing. */
    s = comparison_summarize(configs, 4, 0.2);
    assert_int_equal(s.num_noisy, 0);
    assert_true(s.worst_abs_error == 0.5 && s.median_abs_error == 0.025);
    s = comparison_summarize(configs, 4, 0.05);
    assert_int_equal(s.num_noisy, 1);
    /* Nothing that can be stood behind. */
    s = comparison_summarize(&configs[1], 1, NAN);
    assert_int_equal(s.num_noisy, 1);
    assert_true(isnan(s.median_abs_error) && isnan(s.worst_abs_error));
    const struct comparison unknown = config(0, NAN);
    assert_true(comparison_is_noisy(&unknown, 0.1));
}

static void comparison_peak_error__is_unknown_without_both_sides(void **state)
{
    (void)state;
    struct comparison c = {.real_peak_bytes = 1000, .sim_peak_bytes = 1010};
    assert_true(fabs(comparison_peak_error(&c) - 0.01) < 1e-12);
    c.sim_peak_bytes = 0;
    assert_true(isnan(comparison_peak_error(&c)));
    c = (struct comparison){.sim_peak_bytes = 5};
    assert_true(isnan(comparison_peak_error(&c)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparison_add_run__takes_noise_from_runs_where_there_are_several),
        cmocka_unit_test(comparison_summarize__leaves_noisy_configurations_out),
        cmocka_unit_test(comparison_peak_error__is_unknown_without_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
