/* Exact cuts against brute force over all cuts, and against a plain O(K n^2) dynamic program. */
#include "partition/plan/cut.h"
#include "partition/model/model.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

#define FAR INT64_MAX

/* --- the judges ------------------------------------------------------------------------------- */

typedef int64_t (*stage_cost)(const void *ctx, int k, int a, int b); /* FAR: not allowed */

/* The best cut by trying all in lexicographic order; only a strictly better one replaces. */
static int64_t brute(stage_cost cost, const void *ctx, int n, int stages, int k, int *now,
                     int64_t worst, int64_t *best, int *best_cut)
{
    if (k == stages) {
        if (worst < *best) {
            *best = worst;
            memcpy(best_cut, now, (size_t)(stages + 1) * sizeof *now);
        }
        return *best;
    }
    for (int b = now[k] + 1; b <= n - (stages - 1 - k); b++) {
        int64_t one;
        if (k == stages - 1 && b < n)
            continue;
        one = cost(ctx, k, now[k], b);
        now[k + 1] = b;
        if (one < FAR)
            brute(cost, ctx, n, stages, k + 1, now, one > worst ? one : worst, best, best_cut);
    }
    return *best;
}

/* D(k, a) without any cleverness, and the earliest of the best cuts. */
static int64_t simple_program(stage_cost cost, const void *ctx, int n, int stages, int *cut)
{
    int64_t *table = malloc((size_t)(stages + 1) * (size_t)(n + 1) * sizeof *table), best;
    for (int i = 0; i < (stages + 1) * (n + 1); i++)
        table[i] = FAR;
    table[stages * (n + 1) + n] = 0;
    for (int k = stages - 1; k >= 0; k--)
        for (int a = 0; a < n; a++)
            for (int b = a + 1; b <= n; b++) {
                int64_t one = cost(ctx, k, a, b), rest = table[(k + 1) * (n + 1) + b];
                int64_t worst = one > rest ? one : rest;
                if (worst < table[k * (n + 1) + a])
                    table[k * (n + 1) + a] = worst;
            }
    best = table[0];
    if (best < FAR) {
        cut[0] = 0;
        for (int k = 0; k < stages; k++) {
            int b = cut[k] + 1;
            while (cost(ctx, k, cut[k], b) > best || table[(k + 1) * (n + 1) + b] > best)
                b++;
            cut[k + 1] = b;
        }
    }
    free(table);
    return best;
}

/* --- plain sizes ------------------------------------------------------------------------------ */

static int64_t sum_cost(const void *ctx, int k, int a, int b)
{
    const int64_t *sizes = ctx;
    int64_t sum = 0;
    (void)k;
    for (int i = a; i < b; i++)
        sum += sizes[i];
    return sum;
}

static void assert_cut(const struct cut *cut, int64_t best, const int *want)
{
    assert_int_equal(cut->max, best);
    for (int k = 0; k <= cut->num_stages; k++)
        assert_int_equal(cut->first_item[k], want[k]);
}

static void cut_sizes__equals_brute_force_on_small_chains(void **state)
{
    (void)state;
    random_state = 1;
    for (int round = 0; round < 6000; round++) {
        int n = 1 + (int)random_below(9), stages = 1 + (int)random_below(n);
        int now[10] = {0}, want[10] = {0};
        int64_t sizes[9], best = FAR, range = round % 3 == 0 ? 3 : round % 3 == 1 ? 10 : 1000000;
        struct cut cut = {0};
        for (int i = 0; i < n; i++)
            sizes[i] = random_below(range);
        brute(sum_cost, sizes, n, stages, 0, now, 0, &best, want);
        assert_int_equal(cut_sizes(sizes, n, stages, &cut, NULL), OK);
        assert_cut(&cut, best, want);
        cut_clear(&cut);
    }
}

static void cut_sizes__equals_the_simple_program_on_longer_chains(void **state)
{
    (void)state;
    random_state = 2;
    for (int round = 0; round < 30; round++) {
        int n = 20 + (int)random_below(60), stages = 1 + (int)random_below(20), want[32];
        int64_t sizes[80];
        struct cut cut = {0};
        for (int i = 0; i < n; i++)
            sizes[i] = random_below(10) == 0 ? random_below(INT64_MAX / 100) : random_below(1000);
        int64_t best = simple_program(sum_cost, sizes, n, stages, want);
        assert_int_equal(cut_sizes(sizes, n, stages, &cut, NULL), OK);
        assert_cut(&cut, best, want);
        cut_clear(&cut);
    }
}

static void cut_sizes__finds_the_published_optimum_of_vit_b(void **state)
{
    struct model model = {0};
    int64_t sizes[27];
    struct cut cut = {0};
    (void)state;
    assert_int_equal(model_parse("vit-b16", &model, NULL), OK);
    assert_int_equal(model.num_items, 27);
    for (int i = 0; i < 27; i++)
        sizes[i] = model.items[i].params;
    assert_int_equal(cut_sizes(sizes, 27, 8, &cut, NULL), OK);
    assert_int_equal((cut.max + 500) / 1000, 12582 /* thousands; the greedy cut has 14,176 */);
    cut_clear(&cut);
    model_clear(&model);
}

static void cut_sizes__handles_zeros_and_extremes(void **state)
{
    int64_t zeros[5] = {0}, huge[2] = {INT64_MAX - 1, 1};
    struct cut cut = {0};
    (void)state;
    assert_int_equal(cut_sizes(zeros, 5, 5, &cut, NULL), OK);
    assert_int_equal(cut.max, 0);
    for (int k = 0; k <= 5; k++)
        assert_int_equal(cut.first_item[k], k);
    cut_clear(&cut);
    assert_int_equal(cut_sizes(huge, 2, 1, &cut, NULL), OK);
    assert_true(cut.max == INT64_MAX);
    cut_clear(&cut);
    cut_clear(&cut);
}

static void cut_sizes__refuses_bad_input_and_leaves_the_cut_alone(void **state)
{
    static const int64_t negative[] = {1, -1, 2}, overflowing[] = {INT64_MAX, 1}, good[] = {1, 2};
    struct cut cut = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(cut_sizes(good, 2, 0, &cut, NULL), ERR_INPUT);
    assert_int_equal(cut_sizes(good, 2, -3, &cut, NULL), ERR_INPUT);
    assert_int_equal(cut_sizes(good, 0, 1, &cut, NULL), ERR_INPUT);
    assert_int_equal(cut_sizes(negative, 3, 2, &cut, NULL), ERR_INPUT);
    assert_int_equal(cut_sizes(overflowing, 2, 2, &cut, NULL), ERR_INPUT);
    assert_int_equal(cut_sizes(good, 2, 3, &cut, &err), ERR_INFEASIBLE);
    assert_string_equal(err.msg, "cannot cut 2 items into 3 stages");
    assert_null(cut.first_item);
}

static void cuts__survive_the_failure_of_any_allocation(void **state)
{
    static const int64_t sizes[] = {3, 1, 2, 5};
    struct cut cut = {0};
    (void)state;
    if (!FAIL_MALLOC)
        skip();
    for (int n = 0;; n++) {
        fail_malloc_after(n);
        enum status rc = cut_sizes(sizes, 4, 2, &cut, NULL);
        if (fail_malloc_done())
            break;
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(cut.first_item);
    }
    assert_non_null(cut.first_item);
    cut_clear(&cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_sizes__equals_brute_force_on_small_chains),
        cmocka_unit_test(cut_sizes__equals_the_simple_program_on_longer_chains),
        cmocka_unit_test(cut_sizes__finds_the_published_optimum_of_vit_b),
        cmocka_unit_test(cut_sizes__handles_zeros_and_extremes),
        cmocka_unit_test(cut_sizes__refuses_bad_input_and_leaves_the_cut_alone),
        cmocka_unit_test(cuts__survive_the_failure_of_any_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
