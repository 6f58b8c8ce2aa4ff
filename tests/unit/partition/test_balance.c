/* The greedy balancers and the halving rule against every golden of the release. */
#include "partition/plan/balance.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

enum { MOST = 64 };

struct chain {
    struct model model;
    double sizes[MOST];
};

static struct chain load(const char *text)
{
    struct chain c = {0};
    assert_int_equal(model_parse(text, &c.model, NULL), OK);
    assert_true(c.model.num_items <= MOST);
    balance_sizes(&c.model, c.sizes);
    return c;
}

static void assert_cut(enum balancer_kind variant, const struct chain *c, int frozen_layers,
                       int stages, const int *want)
{
    int count[MOST], frozen = model_frozen_items(&c->model, frozen_layers);
    double stage[MOST];
    assert_int_equal(
        balance_greedy(variant, c->sizes, c->model.num_items, frozen, stages, count, stage, NULL),
        OK);
    for (int k = 0; k < stages; k++)
        assert_int_equal(count[k], want[k]);
}

/* K after freezing 1, 2, ... layers one by one, from K0. */
static void compress_all(enum balancer_kind variant, const struct chain *c, int stages,
                         double want_budget, const int *want)
{
    int count[MOST];
    double stage[MOST], budget;
    assert_int_equal(
        balance_greedy(variant, c->sizes, c->model.num_items, 0, stages, count, stage, NULL), OK);
    budget = balance_max(variant, c->sizes, 0, stages, stage);
    assert_true(fabs(budget - want_budget) < 1e-9);
    for (int f = 1; f <= c->model.num_layers; f++) {
        assert_int_equal(balance_compress(variant, c->sizes, c->model.num_items,
                                          model_frozen_items(&c->model, f), budget, &stages, NULL),
                         OK);
        assert_int_equal(stages, want[f - 1]);
    }
}

static void released__cuts_vit_b_as_the_release(void **state)
{
    struct chain c = load("vit-b16");
    (void)state;
    assert_cut(BALANCER_RELEASED, &c, 0, 8, (int[]){4, 2, 3, 3, 3, 3, 4, 5});
    assert_cut(BALANCER_RELEASED, &c, 4, 8, (int[]){2, 2, 2, 2, 2, 2, 2, 4});
    assert_cut(BALANCER_RELEASED, &c, 5, 4, (int[]){3, 4, 4, 5});
    assert_cut(BALANCER_RELEASED, &c, 8, 4, (int[]){2, 2, 2, 4});
    assert_cut(BALANCER_RELEASED, &c, 9, 2, (int[]){3, 5});
    assert_cut(BALANCER_RELEASED, &c, 10, 2, (int[]){2, 4});
    model_clear(&c.model);
}

static void released__halves_vit_b_as_published(void **state)
{
    struct chain c = load("vit-b16");
    (void)state;
    compress_all(BALANCER_RELEASED, &c, 8, 14.175744, (int[]){8, 8, 8, 8, 4, 4, 4, 4, 2, 2, 1, 1});
    model_clear(&c.model);
}

static void paper__halves_vit_b_later_because_frozen_items_weigh_a_sixth(void **state)
{
    struct chain c = load("vit-b16");
    (void)state;
    compress_all(BALANCER_PAPER, &c, 8, 14.175744, (int[]){8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 2, 2});
    model_clear(&c.model);
}

static void paper__leaves_stages_empty_for_bert_base(void **state)
{
    struct chain c = load("bert-base");
    (void)state;
    assert_cut(BALANCER_PAPER, &c, 0, 8, (int[]){0, 0, 0, 1, 6, 6, 6, 8});
    assert_cut(BALANCER_RELEASED, &c, 0, 8, (int[]){0, 0, 0, 1, 6, 6, 6, 8});
    model_clear(&c.model);
}

static void paper__pins_frozen_items_to_stage_0_at_a_sixth(void **state)
{
    /* Frozen 6; active 2,2,2,2: rest 8, K = 2: mean 4, slack 0, discount 5. Stage 0 counts
     * 6 - 5 = 1; +2 = 3 < 4, +2 = 5 >= 4: one active item. */
    static const double sizes[] = {6, 2, 2, 2, 2};
    int count[2];
    double stage[2];
    (void)state;
    assert_int_equal(balance_greedy(BALANCER_PAPER, sizes, 5, 1, 2, count, stage, NULL), OK);
    assert_int_equal(count[0], 2);
    assert_int_equal(count[1], 3);
    assert_true(stage[0] == 8 && stage[1] == 6);
    assert_true(fabs(balance_max(BALANCER_PAPER, sizes, 1, 2, stage) - 6) < 1e-12);
    assert_int_equal(balance_greedy(BALANCER_RELEASED, sizes, 5, 1, 2, count, stage, NULL), OK);
    assert_int_equal(count[0] + count[1], 4); /* the frozen item is not in the list */
    assert_true(balance_max(BALANCER_RELEASED, sizes, 1, 2, stage) < 8);
}

static void slack__is_the_variance_of_what_is_left_over_the_stages_left(void **state)
{
    /* 1 1 1 5, K = 2: mean 4, variance 3, slack 1.5: stage 0 takes 1, 2, 3 < 5.5; +5 = 8 not. With
     * 3 1 2 2: mean 4, variance .5, slack .25: 3, 4 < 4.25, 6 not. */
    static const double a[] = {1, 1, 1, 5}, b[] = {3, 1, 2, 2}, c[] = {2, 1, 4, 1, 4},
                        d[] = {1, 1, 1, 1};
    int count[2];
    double stage[2];
    (void)state;
    assert_int_equal(balance_greedy(BALANCER_RELEASED, a, 4, 0, 2, count, stage, NULL), OK);
    assert_int_equal(count[0], 3);
    assert_int_equal(balance_greedy(BALANCER_RELEASED, b, 4, 0, 2, count, stage, NULL), OK);
    assert_int_equal(count[0], 2);
    /* population variance 1.84 leaves the limit at 6.92; a sample's 2.3 would let the 4 in */
    assert_int_equal(balance_greedy(BALANCER_RELEASED, c, 5, 0, 2, count, stage, NULL), OK);
    assert_int_equal(count[0], 2);
    /* mean 2, no variance: 2 < 2 is false, so equal items are not split evenly */
    assert_int_equal(balance_greedy(BALANCER_RELEASED, d, 4, 0, 2, count, stage, NULL), OK);
    assert_int_equal(count[0], 1);
}

static void greedy__refuses_bad_input(void **state)
{
    static const double good[] = {1, 2}, negative[] = {1, -2}, nan[] = {1, NAN};
    int count[4], stages = 2;
    double stage[4];
    struct err err = {0};
    (void)state;
    assert_int_equal(balance_greedy(BALANCER_RELEASED, good, 2, 0, 0, count, stage, NULL),
                     ERR_INPUT);
    assert_int_equal(balance_greedy(BALANCER_RELEASED, negative, 2, 0, 1, count, stage, NULL),
                     ERR_INPUT);
    assert_int_equal(balance_greedy(BALANCER_RELEASED, nan, 2, 0, 1, count, stage, NULL),
                     ERR_INPUT);
    assert_int_equal(balance_greedy(BALANCER_RELEASED, good, 2, 3, 1, count, stage, NULL),
                     ERR_INPUT);
    assert_int_equal(balance_greedy(BALANCER_RELEASED, good, 2, 1, 2, count, stage, &err),
                     ERR_INFEASIBLE);
    assert_string_equal(err.msg, "cannot cut 1 item into 2 stages");
    assert_int_equal(balance_greedy(BALANCER_PAPER, good, 2, 0, 3, count, stage, NULL),
                     ERR_INFEASIBLE);
    assert_int_equal(balance_compress(BALANCER_RELEASED, good, 2, 2, 1, &stages, NULL),
                     ERR_INFEASIBLE);
    assert_int_equal(stages, 2);
}

static void compress__survives_the_failure_of_any_allocation(void **state)
{
    static const double sizes[] = {1, 1, 1, 1};
    (void)state;
    if (!FAIL_MALLOC)
        skip();
    for (int n = 0; n < 2; n++) {
        int stages = 4;
        fail_malloc_after(n);
        assert_int_equal(balance_compress(BALANCER_RELEASED, sizes, 4, 0, 9, &stages, NULL),
                         ERR_NOMEM);
        assert_false(fail_malloc_done());
        assert_int_equal(stages, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released__cuts_vit_b_as_the_release),
        cmocka_unit_test(released__halves_vit_b_as_published),
        cmocka_unit_test(paper__halves_vit_b_later_because_frozen_items_weigh_a_sixth),
        cmocka_unit_test(paper__leaves_stages_empty_for_bert_base),
        cmocka_unit_test(paper__pins_frozen_items_to_stage_0_at_a_sixth),
        cmocka_unit_test(slack__is_the_variance_of_what_is_left_over_the_stages_left),
        cmocka_unit_test(greedy__refuses_bad_input),
        cmocka_unit_test(compress__survives_the_failure_of_any_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
