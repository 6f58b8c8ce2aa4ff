/* The optimizer's step over many tensors against one call a tensor. */
#include "exec/base/backend.h"
#include "exec/base/bf16.h"
#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

enum { TENSORS = 9, EACH = 40000, GROWS = 4999 }; /* more than a tile */

static float grad[TENSORS][EACH], start[3][TENSORS][EACH];
static float many[3][TENSORS][EACH], single[3][TENSORS][EACH]; /* weight, m, v */
static uint16_t low[TENSORS][EACH];

static void fill(void)
{
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < EACH; i++) {
            const uint64_t at = (uint64_t)(t * EACH + i);
            grad[t][i] = (float)rng_normal(1, at);
            for (int k = 0; k < 3; k++)
                start[k][t][i] = (float)rng_normal(2 + (uint64_t)k, at);
            start[2][t][i] *= start[2][t][i];
        }
    memcpy(many, start, sizeof many);
    memcpy(single, start, sizeof single);
    memset(low, 0xff, sizeof low);
}

/* Tensor t has 1 + GROWS t elements; every other one decays. */
static void step_both_ways(struct backend *be, enum optimizer_kind kind)
{
    const struct update_rule rule = {
        .kind = kind,
        .sgd = {.lr = 0.1f,  .momentum = 0.9f, .weight_decay = 0.01f, .grad_mul = 0.5f},
        .adam = { .lr = 0.01,
                .beta1 = 0.9,
                .beta2 = 0.999,
                .eps = 1e-8,
                .weight_decay = 0.1,
                .grad_mul = 0.5f,
                .step = 3}
    };
    struct update tensors[TENSORS];
    double sums[TENSORS], want;
    fill();
    for (int t = 0; t < TENSORS; t++) {
        const int num = 1 + GROWS * t;
        tensors[t] = (struct update){
            .num = num,
            .grad = grad[t],
            .weight = many[0][t],
            .state = {many[1][t], many[2][t]},
            .low = be->elem_bytes == 2 ? low[t] : NULL,
            .sumsq = t % 3 ? &sums[t] : NULL,
            .decay = t % 2
        };
        const struct update alone = {
            .num = num,
            .grad = grad[t],
            .weight = single[0][t],
            .state = {single[1][t], single[2][t]},
            .decay = t % 2
        };
        be->update(be, &rule, 1, &alone);
    }
    be->update(be, &rule, TENSORS, tensors);
    assert_int_equal(be->sync(be, NULL), OK);
    for (int t = 0; t < TENSORS; t++)
        if (tensors[t].sumsq) { /* to the bit */
            const float *one = grad[t];
            assert_int_equal(be->sumsq_many(be, 1, &tensors[t].num, &one, &want, NULL), OK);
            assert_memory_equal(&sums[t], &want, sizeof want);
        }
}

static void update__equals_one_call_a_tensor(void **state)
{
    (void)state;
    struct backend *be = backend_cpu_new(DTYPE_FP32, 2, NULL);
    assert_non_null(be);
    for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_LAMB; kind++) {
        step_both_ways(be, (enum optimizer_kind)kind);
        assert_memory_equal(many, single, sizeof many); /* and nothing behind the tensors moved */
        assert_int_not_equal(memcmp(many[0], start[0], sizeof many[0]), 0);
    }
    backend_free(be);
}

static void update__of_lamb_does_not_lose_a_failure(void **state)
{
    static float x[4][4];
    double sum = 0;
    struct err err = {0};
    const struct update_rule rule = {
        .kind = OPTIMIZER_LAMB, .adam = {.lr = .1, .grad_mul = 1, .step = 1}
    };
    const struct update tensor = {
        .num = 4, .grad = x[0], .weight = x[1], .state = {x[2], x[3]},
                   .sumsq = &sum
    };
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, NULL);
    (void)state;
    assert_non_null(be);
    fail_malloc_after(0);
    be->update(be, &rule, 1, &tensor);
    if (!fail_malloc_done()) {
        assert_int_equal(be->failure(be, NULL), ERR_NOMEM); /* a look takes nothing away */
        assert_int_equal(be->sync(be, &err), ERR_NOMEM);
        assert_int_equal(be->sync(be, NULL), OK);
    }
    backend_free(be);
}

static void update__writes_the_compute_copy(void **state)
{
    (void)state;
    struct backend *be = backend_cpu_new(DTYPE_BF16, 2, NULL);
    assert_non_null(be);
    for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_LAMB; kind++) {
        step_both_ways(be, (enum optimizer_kind)kind);
        for (int t = 0; t < TENSORS; t++)
            for (int i = 0; i < EACH; i++)
                assert_int_equal(low[t][i], i < 1 + GROWS * t ? bf16_from(many[0][t][i]) : 0xffff);
    }
    backend_free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update__equals_one_call_a_tensor),
        cmocka_unit_test(update__of_lamb_does_not_lose_a_failure),
        cmocka_unit_test(update__writes_the_compute_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
