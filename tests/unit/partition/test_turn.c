/* Turns: against a walk step by step. */
#include "partition/search/turn.h"

#include "tests/unit/six_case.h"
#include "tests/unit/test.h"

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

/* The cosine by its half-angle formula; it depends on the place in the turn alone. */
static void turn_anneal__falls_from_1_to_0_within_a_turn(void **state)
{
    (void)state;
    struct job job;
    make_job(&job);
    for (int i = 0; i < 40; i++) {
        const double half = cos(3.14159265358979323846 / 80 * i);
        job.freeze.every_steps = 0;
        assert_true(fabs(turn_anneal(&job, 1000 + i, 11 * i, 440) - half * half) < 1e-15);
        job.freeze.every_steps = 40;
        assert_true(fabs(turn_anneal(&job, 400 + i, 7, 440) - half * half) < 1e-15);
    }
    job_clear(&job);
}

/* Nothing in the warm-up; then a third of a turn's length a turn, by epochs of 5 steps and by turns of
 * 7, step by step. */
static void turn_ramp__rises_over_three_turns_after_the_warm_up(void **state)
{
    (void)state;
    struct job job;
    make_job(&job);
    for (int every = 0; every <= 7; every += 7)
        for (int warmup = 0; warmup < 3; warmup++) {
            const int turn = every > 0 ? every : 5, begin = warmup * turn;
            job.freeze.every_steps = every;
            job.freeze.warmup = warmup;
            for (int step = 0; step < 60; step++) {
                const double ramp = turn_ramp(&job, step, step / 5, step % 5 * 16, 80);
                const double want = step <= begin              ? 0
                                    : step >= begin + 3 * turn ? 1
                                                               : (step - begin) / (3.0 * turn);
                assert_true(fabs(ramp - want) < 1e-12);
            }
        }
    job_clear(&job);
}

/* The next turn decides what was foreseen. In the last turn nothing is foreseen. */
static void turn_next_frozen__is_the_next_decision(void **state)
{
    (void)state;
    struct job job;
    int table[] = {0, 3, 1, 3, 2, 5}, seen = 0;
    make_job(&job);
    for (int i = 0; i < 6; i++) {
        struct freeze freeze = {0};
        job.freeze.policy = i % 3 == 0   ? FREEZE_TABLE
                            : i % 3 == 1 ? FREEZE_CLOSED_FORM
                                         : FREEZE_GRADIENT_NORM;
        job.freeze.alpha = .3;
        job.freeze.warmup = i % 2;
        job.freeze.min_active = 2;
        job.freeze.every_steps = i < 3 ? 0 : 5;
        job.freeze.table = table;
        job.freeze.num_table = 6;
        const int64_t total = 6 * 5, last = job.train.epochs - 1; /* an epoch has 5 steps */
        assert_int_equal(freeze_init(&freeze, &job.freeze, LAYERS, NULL), OK);
        for (int64_t turn = 0, next = 0; turn <= last; turn++) {
            const double norms[LAYERS] = {1, 1, 1, 1, 1, 1};
            const struct turn_facts facts = {.norms = norms, .num_norms = 1};
            int now;
            assert_int_equal(turn_decide(&freeze, &facts, turn, &now, NULL, NULL), OK);
            if (job.freeze.policy == FREEZE_GRADIENT_NORM)
                assert_true(now >= next);
            else if (turn > 0)
                assert_int_equal(now, next);
            next = turn_next_frozen(&job, &freeze, turn, total);
            seen += next > now;
            assert_true(turn < last || next == 0);
        }
        freeze_clear(&freeze);
    }
    assert_in_range(seen, 8, 36);
    job.freeze.table = NULL;
    job_clear(&job);
}

/* The decision before a turn goes by the norms of the turn before it, if they are known. */
static void turn_decide__goes_by_the_norms_of_the_turn_before(void **state)
{
    enum { ROWS = 3 };
    const struct freeze_spec spec = {.policy = FREEZE_GRADIENT_NORM, .alpha = .5};
    struct freeze freeze = {0};
    double norms[ROWS][LAYERS];
    const struct turn_facts facts = {.norms = norms[0], .num_norms = ROWS};
    (void)state;
    for (int row = 0; row < ROWS; row++)
        for (int l = 0; l < LAYERS; l++)
            norms[row][l] = l == row + 1 ? 1 : 2; /* layers below the smallest norm freeze */
    assert_int_equal(freeze_init(&freeze, &spec, LAYERS, NULL), OK);
    for (int turn = 0, frozen; turn <= ROWS; turn++) {
        assert_int_equal(turn_decide(&freeze, &facts, turn, &frozen, NULL, NULL), OK);
        assert_int_equal(frozen, turn);
    }
    int frozen;
    assert_int_equal(turn_decide(&freeze, &facts, ROWS + 1, &frozen, NULL, NULL), OK);
    assert_int_equal(frozen, ROWS + 2); /* no row: the cap, half of three layers */
    freeze_clear(&freeze);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turn_decide__goes_by_the_norms_of_the_turn_before),
        cmocka_unit_test(turn_begins__at_epochs_or_every_n_steps),
        cmocka_unit_test(turn_anneal__falls_from_1_to_0_within_a_turn),
        cmocka_unit_test(turn_ramp__rises_over_three_turns_after_the_warm_up),
        cmocka_unit_test(turn_next_frozen__is_the_next_decision),
        cmocka_unit_test(turn_changes__where_f_or_the_jobs_k_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
