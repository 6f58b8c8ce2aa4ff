/* The choice of items that weight-gradient passes leave out: against counting. */
#include "partition/freeze/freeze_choice.h"

#include <math.h>

#include "partition/base/units.h"
#include "tests/unit/test.h"

enum { ITEMS = 26, STEPS = 300, MICROBATCHES = 12 };

static const double shares[] = {0.05, 0.25, 1.0 / 3, 0.5, 0.62, 0.75, 0.9, 0.99};
enum { SHARES = sizeof shares / sizeof *shares };

static bool left_out(uint64_t seed, int64_t step, int microbatch, int item, double share)
{
    const struct freeze_pass pass = {seed, step, microbatch, item, item + 1, share, NULL};
    bool out;
    freeze_choose(CHOICE_ROTATE, &pass, &out);
    return out;
}

/* choice-1 in floating point. */
static void rotate__is_the_sum_of_three_rotations(void **state)
{
    (void)state;
    const long double golden = (sqrtl(5) - 1) / 2, root_2 = sqrtl(2), root_3 = sqrtl(3);
    int seen = 0;
    for (int64_t step = 0; step < 40; step++)
        for (int m = 0; m < MICROBATCHES; m++)
            for (int item = 0; item < ITEMS; item++)
                for (int s = 0; s < SHARES; s++) {
                    const long double sum = (long double)mix64(7) * 0x1p-64L + item * golden +
                                            (long double)step * root_2 + m * root_3;
                    const long double place = sum - floorl(sum);
                    if (fabsl(place - (long double)shares[s]) < 1e-12L)
                        continue;
                    const bool want = place < (long double)shares[s];
                    assert_int_equal(left_out(7, step, m, item, shares[s]), want);
                    seen += want;
                }
    assert_true(seen > 0);
}

static void choice__leaves_out_nothing_at_0_and_all_at_1(void **state)
{
    (void)state;
    int order[ITEMS];
    bool out[ITEMS];
    for (int i = 0; i < ITEMS; i++)
        order[i] = i;
    for (int choice = CHOICE_ROTATE; choice <= CHOICE_NORM; choice++)
        for (int all = 0; all < 2; all++) {
            const struct freeze_pass pass = {3, 5, 1, 0, ITEMS, all, order};
            freeze_choose((enum freeze_choice)choice, &pass, out);
            for (int i = 0; i < ITEMS; i++)
                assert_int_equal(out[i], all);
        }
}

/* Bounds of a rotation by a number with bounded partial quotients: a count is off by at most a few,
 * and by log(n) at most. They are four times smaller than what independent draws give here. */
static void rotate__leaves_out_each_item_equally_often(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        for (int s = 0; s < SHARES; s++)
            for (int item = 0; item < ITEMS; item++) {
                int count = 0;
                for (int m = 0; m < MICROBATCHES; m++)
                    for (int64_t step = 0, in_a_row = 0; step < STEPS; step++) {
                        const bool out = left_out(seed, step, m, item, shares[s]);
                        count += out;
                        in_a_row = out ? in_a_row + 1 : 0;
                        assert_true((double)in_a_row <= 4 / (1 - shares[s])); /* none waits long */
                    }
                assert_true(fabs(count - shares[s] * STEPS * MICROBATCHES) <= 8);
            }
}

static void rotate__leaves_out_as_much_in_every_pass(void **state)
{
    (void)state;
    for (int s = 0; s < SHARES; s++)
        for (int64_t step = 0; step < STEPS; step++)
            for (int m = 0; m < MICROBATCHES; m++)
                for (int first = 0; first + 4 <= ITEMS; first += 11) {
                    int count = 0;
                    for (int n = 1; first + n <= ITEMS; n++) {
                        count += left_out(9, step, m, first + n - 1, shares[s]);
                        assert_true(fabs(count - n * shares[s]) <= 2);
                    }
                }
}

/* Every cut of the items into stages leaves out the items that one stage would. */
static void rotate__knows_no_stages(void **state)
{
    (void)state;
    bool whole[ITEMS], part[ITEMS];
    for (int64_t step = 0; step < 30; step++)
        for (int at = 1; at < ITEMS; at++) {
            const struct freeze_pass all = {4, step, 2, 0, ITEMS, 0.4, NULL};
            const struct freeze_pass low = {4, step, 2, 0, at, 0.4, NULL},
                                     high = {4, step, 2, at, ITEMS, 0.4, NULL};
            freeze_choose(CHOICE_ROTATE, &all, whole);
            freeze_choose(CHOICE_ROTATE, &low, part);
            freeze_choose(CHOICE_ROTATE, &high, part + at);
            assert_memory_equal(whole, part, sizeof whole);
        }
}

static void rotate__adds_items_as_the_share_grows(void **state)
{
    (void)state;
    for (int64_t step = 0; step < STEPS; step++)
        for (int item = 0; item < ITEMS; item++)
            for (int s = 1; s < SHARES; s++)
                assert_true(left_out(2, step, 0, item, shares[s]) ||
                            !left_out(2, step, 0, item, shares[s - 1]));
}

/* One item of a draw of one follows the weights; each draw has its number. */
static void random__prefers_the_front_of_the_first_stage(void **state)
{
    (void)state;
    enum { N = 10, DRAWS = 20000 };
    for (int first = 0; first <= 3; first += 3) {
        int count[N] = {0};
        double total = 0;
        bool out[N];
        for (int64_t step = 0; step < DRAWS; step++) {
            const struct freeze_pass one = {6, step, 1, first, first + N, 0.1, NULL};
            freeze_choose(CHOICE_RANDOM, &one, out);
            for (int i = 0; i < N; i++)
                count[i] += out[i];
        }
        for (int i = 0; i < N; i++)
            total += first == 0 ? 1 - 0.1 * i : 1;
        for (int i = 0; i < N; i++) {
            const double p = (first == 0 ? 1 - 0.1 * i : 1) / total;
            assert_true(fabs(count[i] - DRAWS * p) < 4.5 * sqrt(DRAWS * p * (1 - p)));
        }
    }
    for (int num = 0; num <= N; num++) {
        const struct freeze_pass some = {6, 77, 1, 0, N, (double)num / N, NULL};
        bool out[N];
        int got = 0;
        freeze_choose(CHOICE_RANDOM, &some, out);
        for (int i = 0; i < N; i++)
            got += out[i];
        assert_int_equal(got, num);
    }
}

static void norm__takes_the_first_of_the_order(void **state)
{
    (void)state;
    enum { N = 9, FIRST = 4 };
    int order[FIRST + N];
    bool out[N];
    for (int i = 0; i < FIRST + N; i++)
        order[i] = (i * 7 + 3) % (FIRST + N); /* 7 and 13 have no common divisor */
    for (int num = 0; num <= N; num++) {
        const struct freeze_pass pass = {1, 2, 3, FIRST, FIRST + N, (double)num / N, order};
        int most_in = -1, least_out = FIRST + N, got = 0;
        freeze_choose(CHOICE_NORM, &pass, out);
        for (int i = 0; i < N; i++) {
            const int at = order[FIRST + i];
            got += out[i];
            most_in = out[i] && at > most_in ? at : most_in;
            least_out = !out[i] && at < least_out ? at : least_out;
        }
        assert_int_equal(got, num);
        assert_true(most_in < least_out);
    }
}

/* Layers 0 to 3 after four turns: 0 has been left out since it changed by 1/8, 1 changed by 1/2 in
 * between, 2 by 1/4, and 3 has one norm. */
static void order__is_by_the_last_change_that_is_known(void **state)
{
    (void)state;
    static const double norms[4][4] = {
        {8, 2, 4, 0},
        {9, 4, 4, 0},
        {0, 0, 4, 0},
        {0, 6, 5, 1}
    };
    static const int want[6] = {4, 0, 2, 1, 3, 5};
    struct item items[6] = {{.layer = -1}, {.layer = 0}, {.layer = 1},
                            {.layer = 2},  {.layer = 1}, {.layer = 3}};
    const struct model model = {.num_items = 6, .num_layers = 4, .items = items};
    int order[6];
    freeze_order(&model, norms[0], 4, order);
    assert_memory_equal(order, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotate__is_the_sum_of_three_rotations),
        cmocka_unit_test(choice__leaves_out_nothing_at_0_and_all_at_1),
        cmocka_unit_test(rotate__leaves_out_each_item_equally_often),
        cmocka_unit_test(rotate__leaves_out_as_much_in_every_pass),
        cmocka_unit_test(rotate__knows_no_stages),
        cmocka_unit_test(rotate__adds_items_as_the_share_grows),
        cmocka_unit_test(random__prefers_the_front_of_the_first_stage),
        cmocka_unit_test(norm__takes_the_first_of_the_order),
        cmocka_unit_test(order__is_by_the_last_change_that_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
