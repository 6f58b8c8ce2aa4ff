/* Turns: against a walk step by step. */
#include "partition/turn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/six_case.h"

static void turn_begins__at_epochs_or_every_n_steps(void **state)
{
    (void)state;
    struct job job;
    make_job(&job);
    for (int every = 0; every <= 9; every++)
        for (int an_epoch = 1; an_epoch <= 7; an_epoch++) {
            int64_t turn = -1, left = 0;
            job.freeze.every_steps = every;
            for (int64_t step = 0; step < 60; step++) {
                const bool begins = every > 0 ? left == 0 : step % an_epoch == 0;
                if (begins) {
                    turn++;
                    left = every;
                }
                assert_int_equal(turn_begins(&job, step, step % an_epoch), begins);
                assert_int_equal(turn_at(&job, step, step / an_epoch), turn);
                if (every > 0)
                    assert_int_equal(turn_steps_left(&job, step), left--);
                else
                    assert_true(turn_steps_left(&job, step) == INT64_MAX);
            }
        }
    job_clear(&job);
}

static void turn_changes__where_f_or_the_jobs_k_does(void **state)
{
    (void)state;
    struct job job;
    int stages[2] = {3, 2};
    const struct plan plan = {.num_ranks = 3, .num_frozen_layers = 1};
    make_job(&job);
    assert_false(turn_changes(&job, 5, 1, &plan));
    assert_true(turn_changes(&job, 5, 2, &plan));
    job.elastic.stages = stages;
    job.elastic.num_stages = 2;
    assert_false(turn_changes(&job, 0, 1, &plan));
    assert_true(turn_changes(&job, 1, 1, &plan));
    assert_true(turn_changes(&job, 7, 1, &plan)); /* the last entry goes on */
    job.elastic.stages = NULL;
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turn_begins__at_epochs_or_every_n_steps),
        cmocka_unit_test(turn_changes__where_f_or_the_jobs_k_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
