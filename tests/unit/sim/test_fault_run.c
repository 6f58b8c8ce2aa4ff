/* sim/faults: closed forms of renewal theory, traces by hand, and sums that must come out even. */
#include <math.h>

#include "sim/faults/fault_run.h"
#include "tests/unit/test.h"

#define SECOND 1000000000LL
#define HOUR (3600 * SECOND)

/* Four nodes, one turn of 1000 steps of 10 s, a checkpoint of 2 s every 100 s. */
static struct fault_turn turns[] = {
    {1000, 10 * SECOND, 10 * SECOND, 0}
};
static const struct fault_plan full = {1, turns};
static struct fault_setting small(void)
{
    return (struct fault_setting){.num_nodes = 4,
                                  .devices_per_node = 1,
                                  .slow_speed = 1,
                                  .interval_ns = 100 * SECOND,
                                  .stall_ns = 2 * SECOND,
                                  .restart_ns = 30 * SECOND};
}

static struct fault_run simulate(const struct fault_setting *set, const struct fault_plan *plans,
                                 uint64_t seed)
{
    const struct fault_plan same[] = {
        {0, 0},
        {0, 0},
        {0, 0},
        {0, 0},
        full
    };
    struct fault_run run;
    int64_t sum = 0, lost = 0;
    assert_int_equal(fault_setting_check(set, NULL), OK);
    assert_int_equal(fault_run(set, plans ? plans : same, seed, NULL, NULL, &run, NULL), OK);
    for (int p = 0; p < FAULT_PART_COUNT; p++)
        sum += run.part_ns[p];
    for (int c = 0; c < FAULT_CAUSE_COUNT; c++)
        lost += run.lost_ns[c];
    assert_int_equal(sum, run.total_ns);
    if (run.end == FAULT_DONE)
        assert_int_equal(lost, run.part_ns[FAULT_LOST]);
    return run;
}

static void fault_run__is_the_plan_when_nothing_is_lost(void **state)
{
    (void)state;
    struct fault_turn uneven[] = {
        {7, 13, 5,  0   },
        {3, 11, 11, 1001}
    };
    const struct fault_plan plans[] = {
        {0, 0     },
        {0, 0     },
        {0, 0     },
        {0, 0     },
        {2, uneven}
    };
    struct fault_setting set = small();
    set.interval_ns = 0;
    const struct fault_run run = simulate(&set, plans, 1);
    assert_int_equal(run.total_ns, 6 * 13 + 5 + 1001 + 3 * 11);
    assert_int_equal(run.total_ns, fault_plan_ns(&plans[4]));
    assert_int_equal(run.part_ns[FAULT_USEFUL], run.total_ns);
    set.interval_ns = 100 * SECOND;
    const struct fault_run saved = simulate(&set, NULL, 1);
    assert_int_equal(saved.total_ns, 10000 * SECOND + 100 * 2 * SECOND);
    assert_int_equal(saved.saves, 100);
}

/* Node 2 is lost at 357 s: 3 checkpoints (at 100, 202, 304 s; the third is complete at 306 s), five
 * steps and 1 s. Found 7 s later, back at 400 s, restarted at 430 s. */
static void fault_run__takes_a_loss_as_by_hand(void **state)
{
    (void)state;
    const struct fault_event trace[] = {
        {357 * SECOND, 2, false},
        {400 * SECOND, 2, true }
    };
    struct fault_setting set = small();
    set.detect_ns = 7 * SECOND;
    set.trace = trace;
    set.num_trace = 2;
    const struct fault_run run = simulate(&set, NULL, 1);
    assert_int_equal(run.total_ns, (430 + 9700 + 97 * 2) * SECOND);
    assert_int_equal(run.part_ns[FAULT_LOST], 51 * SECOND);
    assert_int_equal(run.lost_ns[FAULT_TRACE], 51 * SECOND);
    assert_int_equal(run.part_ns[FAULT_DETECT], 7 * SECOND);
    assert_int_equal(run.part_ns[FAULT_WAIT], 36 * SECOND);
    assert_int_equal(run.part_ns[FAULT_LOAD], 30 * SECOND);
    assert_int_equal(run.losses[FAULT_TRACE], 1);

    /* A spare needs no waiting. */
    set.policy = FAULT_SPARE;
    set.spare_nodes = 1;
    assert_int_equal(simulate(&set, NULL, 1).total_ns, (394 + 9700 + 97 * 2) * SECOND);

    /* Written in 60 s beside the steps, the third one is not complete at 357 s: that of 202 s counts,
     * with 100 + 51 s of work behind it. The last one stalls for its write. */
    set.async = true;
    set.write_ns = 60 * SECOND;
    const struct fault_run async = simulate(&set, NULL, 1);
    assert_int_equal(async.part_ns[FAULT_LOST], 151 * SECOND);
    assert_int_equal(async.total_ns, (394 + 9800 + 98 * 2 + 60) * SECOND);

    /* A copy in memory every step, at no cost, loses the present step only. */
    set.memory_interval_ns = 10 * SECOND;
    set.memory_restart_ns = 5 * SECOND;
    const struct fault_run copied = simulate(&set, NULL, 1);
    assert_int_equal(copied.part_ns[FAULT_LOST], 1 * SECOND);
    assert_int_equal(copied.part_ns[FAULT_LOAD], 5 * SECOND);
    assert_int_equal(copied.from_memory, 1);
}

/* The notes of a timeline: useful time, and what of it was thrown away. */
static void note(void *ctx, int64_t from_ns, int64_t to_ns, enum fault_part part, int nodes)
{
    int64_t *sum = ctx;
    (void)nodes;
    sum[part] += to_ns - from_ns;
}

/* A trace of steps: node 2 is lost when step 35 is done (356 s), found 7 s later, restarted at 393 s.
 * From step 30 on steps take 15 s: 40 at 543 s, 50 at 695 s. That checkpoint is the first one behind
 * the return at step 42; the run stops 3 s later and has restarted at 730 s. */
static void fault_run__follows_a_trace_of_steps(void **state)
{
    (void)state;
    struct fault_turn fewer[] = {
        {1000, 15 * SECOND, 15 * SECOND, 0}
    };
    const struct fault_plan plans[] = {
        {0, 0    },
        {0, 0    },
        {0, 0    },
        {1, fewer},
        full
    };
    const struct fault_event trace[] = {
        {35, 2, false},
        {42, 2, true }
    };
    struct fault_setting set = small();
    set.policy = FAULT_SHRINK;
    set.interval_ns = 0;
    set.interval_steps = 10;
    set.detect_ns = 7 * SECOND;
    set.join_ns = 3 * SECOND;
    set.trace = trace;
    set.num_trace = 2;
    set.trace_steps = true;
    const struct fault_run run = simulate(&set, plans, 1);
    assert_int_equal(run.total_ns, (730 + 9500 + 95 * 2) * SECOND);
    assert_int_equal(run.part_ns[FAULT_LOST], 50 * SECOND);
    assert_int_equal(run.part_ns[FAULT_LOAD], 60 * SECOND);
    assert_int_equal(run.grown, 1);
    int64_t sum[FAULT_PART_COUNT] = {0};
    struct fault_run watched;
    assert_int_equal(fault_run(&set, plans, 1, note, sum, &watched, NULL), OK);
    assert_int_equal(sum[FAULT_LOST], 50 * SECOND);
    assert_int_equal(sum[FAULT_USEFUL], (350 + 300 + 9500) * SECOND);
    assert_int_equal(sum[FAULT_SAVE], run.part_ns[FAULT_SAVE]);
}

/* Two neighbours are lost together: the copies in memory are gone, and the file counts. */
static void fault_run__falls_back_to_the_file_when_both_copies_are_lost(void **state)
{
    (void)state;
    const struct fault_event trace[] = {
        {357 * SECOND, 1, false},
        {358 * SECOND, 2, false},
        {359 * SECOND, 1, true },
        {360 * SECOND, 2, true }
    };
    struct fault_setting set = small();
    set.memory_interval_ns = 10 * SECOND;
    set.detect_ns = SECOND / 2;
    set.trace = trace;
    set.num_trace = 4;
    struct fault_run run = simulate(&set, NULL, 1);
    assert_int_equal(run.part_ns[FAULT_LOST], 51 * SECOND);
    assert_int_equal(run.from_memory, 0);
}

/* Three nodes take 15 s a step. The run shrinks at 357 s and grows at the first checkpoint after
 * 700 s: restarted at 387 s, each 7 steps (105 s) a checkpoint of 2 s, so at 387 + 3 * 107 = 708 s,
 * and then the restart. 30 + 21 steps are done by then. */
static void fault_run__shrinks_and_grows(void **state)
{
    (void)state;
    struct fault_turn fewer[] = {
        {1000, 15 * SECOND, 15 * SECOND, 0}
    };
    const struct fault_plan plans[] = {
        {0, 0    },
        {0, 0    },
        {0, 0    },
        {1, fewer},
        full
    };
    const struct fault_event trace[] = {
        {357 * SECOND, 2, false},
        {700 * SECOND, 2, true }
    };
    struct fault_setting set = small();
    set.policy = FAULT_SHRINK;
    set.trace = trace;
    set.num_trace = 2;
    const struct fault_run run = simulate(&set, plans, 1);
    assert_int_equal(run.part_ns[FAULT_SLOWER], 21 * 5 * SECOND);
    assert_int_equal(run.grown, 1);
    assert_int_equal(run.total_ns, (708 + 30 + 9490 + 95 * 2) * SECOND);
}

static void fault_run__ends_when_no_plan_fits_the_nodes_that_are_left(void **state)
{
    (void)state;
    const struct fault_event trace[] = {
        {357 * SECOND, 2, false}
    };
    struct fault_setting set = small();
    set.policy = FAULT_SHRINK;
    set.trace = trace;
    set.num_trace = 1;
    const struct fault_run run = simulate(&set, NULL, 1);
    assert_int_equal(run.end, FAULT_TOO_FEW);
    assert_int_equal(run.part_ns[FAULT_USEFUL], 300 * SECOND);
    set.num_trace = 0;
    set.node_per_hour = 1000; /* of which none ends a checkpoint's interval */
    set.limit_ns = HOUR;
    assert_int_equal(simulate(&set, NULL, 1).end, FAULT_LIMIT);
    assert_int_equal(simulate(&set, NULL, 1).total_ns, HOUR);
    set.limit_ns = 0;
    set.most_losses = 50; /* on average one in 0.9 s */
    const struct fault_run many = simulate(&set, NULL, 1);
    assert_int_equal(many.end, FAULT_MANY);
    assert_true(many.total_ns > 20 * SECOND && many.total_ns < HOUR);
}

/* J. T. Daly 2006, eq. 13: expected time of a run of work_ns, if each interval_ns of work is followed by
 * a checkpoint of cost_ns, and each loss by a restart of restart_ns, in both of which losses occur
 * too. Exact for whole intervals. */
static double renewal_ns(double work_ns, double interval_ns, double cost_ns, double restart_ns,
                         double mean_ns)
{
    return work_ns / interval_ns * mean_ns * exp(restart_ns / mean_ns) *
           expm1((interval_ns + cost_ns) / mean_ns);
}

/* That formula at five rates; 10,000 seeds each. */
static void fault_run__mean_is_dalys_renewal_formula(void **state)
{
    (void)state;
    static const double mean_s[] = {150, 400, 1000, 4000, 20000};
    struct fault_setting set = small();
    set.detect_ns = 10 * SECOND;
    for (int i = 0; i < 5; i++) {
        double sum = 0;
        set.device_per_hour = 3600 / mean_s[i] / 4;
        assert_true(fabs(fault_rate(&set) * mean_s[i] - 3600) < 1e-6);
        for (uint64_t seed = 0; seed < 10000; seed++)
            sum += (double)simulate(&set, NULL, seed).total_ns;
        const double expected = renewal_ns(1e13, 1e11, 2e9, 40e9, mean_s[i] * 1e9);
        const double error = sum / 10000 / expected - 1;
        print_message("mean %g s: %.0f s, Daly %.0f s, %+.3f %%\n", mean_s[i], sum / 1e13,
                      expected / 1e9, 100 * error);
        assert_true(fabs(error) < 0.01);
    }
}

/* A slow device halves the speed until it is found, in whole steps; no work is lost. */
static void fault_run__replaces_a_slow_node_without_losing_work(void **state)
{
    (void)state;
    struct fault_setting set = small();
    set.slow_per_hour = 0.25;
    set.slow_speed = 0.5;
    set.found_ns = 200 * SECOND;
    int64_t found = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        const struct fault_run run = simulate(&set, NULL, seed);
        found += run.losses[FAULT_SLOW];
        assert_int_equal(run.part_ns[FAULT_LOST], 0);
        assert_int_equal(run.part_ns[FAULT_SLOWER] % (10 * SECOND), 0);
        assert_int_equal(run.restarts, run.losses[FAULT_SLOW]);
    }
    assert_in_range(found, 200, 400);
}

static void fault_setting_check__refuses_bad_settings(void **state)
{
    (void)state;
    struct err err = {0};
    struct fault_setting set = small();
    const struct fault_event back[] =
        {
            {1, 2, true}
    },
                             twice[] = {{1, 2, false}, {2, 2, false}}, fifth[] = {{1, 4, false}};
    set.node_per_hour = -1;
    assert_int_equal(fault_setting_check(&set, &err), ERR_INPUT);
    set = small();
    set.async = true;
    set.write_ns = 101 * SECOND;
    assert_int_equal(fault_setting_check(&set, &err), ERR_INFEASIBLE);
    set = small();
    set.num_trace = 1;
    set.trace = back;
    assert_int_equal(fault_setting_check(&set, &err), ERR_INPUT);
    set.trace = fifth;
    assert_int_equal(fault_setting_check(&set, &err), ERR_INPUT);
    set.num_trace = 2;
    set.trace = twice;
    assert_int_equal(fault_setting_check(&set, &err), ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_run__is_the_plan_when_nothing_is_lost),
        cmocka_unit_test(fault_run__follows_a_trace_of_steps),
        cmocka_unit_test(fault_run__takes_a_loss_as_by_hand),
        cmocka_unit_test(fault_run__falls_back_to_the_file_when_both_copies_are_lost),
        cmocka_unit_test(fault_run__shrinks_and_grows),
        cmocka_unit_test(fault_run__ends_when_no_plan_fits_the_nodes_that_are_left),
        cmocka_unit_test(fault_run__mean_is_dalys_renewal_formula),
        cmocka_unit_test(fault_run__replaces_a_slow_node_without_losing_work),
        cmocka_unit_test(fault_setting_check__refuses_bad_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
