/* tests/unit/cli/test_comparison.c - what a table of real and simulated steps may claim. */
#include "cli/runs/comparison.h"
#include "tests/unit/test.h"

static struct replay run(int64_t median, int64_t p10, int64_t p90, int64_t sim)
{
    struct replay replay = {.real_step_ns = median,
                            .real_p10_ns = p10,
                            .real_p90_ns = p90,
                            .num_counted = 6,
                            .sim = {.step_ns = sim}};
    replay.plan.num_ranks = replay.plan.num_pipelines = 1;
    return replay;
}

static void comparison_add_run__takes_noise_from_runs_where_there_are_several(void **state)
{
    (void)state;
    struct comparison c = {0};
    struct replay one = run(1000, 900, 1300, 1030), two = run(1040, 1000, 1050, 1030);
    assert_int_equal(comparison_add_run(&c, &one, NULL), OK);
    assert_true(fabs(c.noise - 0.4) < 1e-12); /* only its steps tell */
    assert_true(fabs(c.error - 0.03) < 1e-12);
    assert_true(comparison_is_noisy(&c, 0.1));
    assert_int_equal(comparison_add_run(&c, &two, NULL), OK);
    assert_int_equal(c.real_step_ns, 1020);
    assert_int_equal(c.num_steps, 12);
    assert_true(fabs(c.noise - 40.0 / 1020) < 1e-12); /* a slow step does not move two medians */
    assert_true(fabs(c.spread - 0.4) < 1e-12);
    assert_false(comparison_is_noisy(&c, 0.1));
    /* A machine that runs at two speeds for minutes at a time repeats its steps well, not its runs.
     */
    struct replay slow = run(1250, 1249, 1251, 1030);
    assert_int_equal(comparison_add_run(&c, &slow, NULL), OK);
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
    struct comparison configs[] = {config(0.01, 0.02), config(-0.5, 0.11), config(-0.03, 0.1),
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

/* Two stages on two ranks, one edge between them. */
static int first_out[] = {0, 1, 1}, first_in[] = {0, 0, 1}, edges[] = {0};
static const struct workload two_stages = {
    .out_first = first_out, .out_edge = edges, .in_first = first_in, .in_edge = edges};

static struct op_row sent(int kind, int stage, int microbatch, int64_t start, int64_t end)
{
    return (struct op_row){
        .rank = stage,
        .start_ns = start,
        .end_ns = end,
        .op = {.kind = (uint8_t)kind, .stage = (uint16_t)stage, .microbatch = microbatch}
    };
}

static void message_times__compares_transfers_that_were_waited_for(void **state)
{
    (void)state;
    struct op_row ops[] = {
        sent(OP_SEND_ACT, 0, 0, 100, 104),  sent(OP_RECV_ACT, 1, 0, 50, 130),  /* 30 */
        sent(OP_SEND_ACT, 0, 1, 200, 204),  sent(OP_RECV_ACT, 1, 1, 300, 301), /* came before */
        sent(OP_SEND_ACT, 0, 2, 300, 304),  sent(OP_RECV_ACT, 1, 2, 300, 350), /* 50 */
        sent(OP_SEND_ACT, 0, 3, 400, 404),  sent(OP_RECV_ACT, 1, 3, 390, 410), /* 10 */
        sent(OP_SEND_GRAD, 1, 0, 500, 502), sent(OP_RECV_GRAD, 0, 0, 510, 520),
    };
    struct sim_op simulated[] = {
        {sent(OP_SEND_ACT,  0, 3, 0, 0).op, 0, 0, 9, 20},
        {sent(OP_SEND_ACT,  0, 2, 0, 0).op, 0, 0, 6, 18},
        {sent(OP_SEND_ACT,  0, 1, 0, 0).op, 0, 0, 3, 99},
        {sent(OP_SEND_ACT,  0, 0, 0, 0).op, 0, 0, 0, 13},
        {sent(OP_SEND_GRAD, 1, 0, 0, 0).op, 0, 1, 0, 7 },
    };
    const struct sim_result sim = {.ops = simulated, .num_ops = 5};
    struct message_times times[MESSAGE_KINDS];
    assert_int_equal(message_times(ops, 10, &sim, &two_stages, times, NULL), OK);
    assert_int_equal(times[MESSAGE_ACTIVATION].count, 4);
    assert_int_equal(times[MESSAGE_ACTIVATION].num_known, 3);
    assert_int_equal(times[MESSAGE_ACTIVATION].real_ns, 30); /* of 10, 30, 50 */
    assert_int_equal(times[MESSAGE_ACTIVATION].sim_ns, 12);  /* of 11, 12, 13; not 96 */
    assert_int_equal(times[MESSAGE_ACTIVATION].post_ns, 16);
    assert_int_equal(times[MESSAGE_GRADIENT].count, 1);
    assert_int_equal(times[MESSAGE_GRADIENT].num_known, 0);
    assert_int_equal(times[MESSAGE_GRADIENT].post_ns, 2);
}

static void comparison_add_run__takes_joint_ops_from_the_rank_that_came_last(void **state)
{
    (void)state;
    struct op_row ops[] = {sent(OP_NORM, 0, -1, 100, 190), sent(OP_NORM, 1, -1, 170, 191),
                           sent(OP_F, 0, 0, 0, 100), sent(OP_F, 1, 0, 100, 170)};
    struct comparison c = {0};
    struct replay replay = run(191, 191, 191, 200);
    replay.ops = ops;
    replay.num_ops = 4;
    assert_int_equal(comparison_add_run(&c, &replay, NULL), OK);
    assert_int_equal(c.kinds[OP_NORM].real_ns, 2 * 21);
    assert_int_equal(c.kinds[OP_F].real_ns, 170);
}

static void comparison_interval__spans_the_parts_of_all_runs(void **state)
{
    (void)state;
    struct comparison c = {0};
    struct replay one = run(1000, 900, 1300, 1000), two = run(1000, 900, 1300, 1000);
    double low, high;
    assert_int_equal(comparison_add_run(&c, &one, NULL), OK);
    assert_false(comparison_interval(&c, &low, &high)); /* too few steps */
    two.num_parts = REPLAY_PARTS;
    for (int i = 0; i < REPLAY_PARTS; i++)
        two.part_ns[i] = 1000 + (i == 3 ? 250 : i == 5 ? -200 : i);
    assert_int_equal(comparison_add_run(&c, &two, NULL), OK);
    assert_true(comparison_interval(&c, &low, &high));
    assert_true(fabs(low + 0.2) < 1e-12 && fabs(high - 0.25) < 1e-12);
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

static void comparison_refuse__judges_neither_noise_nor_another_host(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(comparison_refuse(false, 0.1, false, &err), OK);
    assert_int_equal(comparison_refuse(true, 0.25, false, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "no step time is known within 25 %"));
    err = (struct err){0};
    assert_int_equal(comparison_refuse(false, 0.1, true, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "of another host"));
    assert_float_equal(comparison_noise_limit(NAN), COMPARISON_NOISY, 0);
    assert_float_equal(comparison_noise_limit(0.01), COMPARISON_NOISY, 0);
    assert_float_equal(comparison_noise_limit(0.3), 0.3, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparison_add_run__takes_noise_from_runs_where_there_are_several),
        cmocka_unit_test(comparison_add_run__takes_joint_ops_from_the_rank_that_came_last),
        cmocka_unit_test(comparison_interval__spans_the_parts_of_all_runs),
        cmocka_unit_test(message_times__compares_transfers_that_were_waited_for),
        cmocka_unit_test(comparison_summarize__leaves_noisy_configurations_out),
        cmocka_unit_test(comparison_refuse__judges_neither_noise_nor_another_host),
        cmocka_unit_test(comparison_peak_error__is_unknown_without_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
