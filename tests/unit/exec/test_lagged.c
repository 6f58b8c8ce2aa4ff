/* exec/stage/lagged.c: which weights a swap exchanges, at every cut. Judge: two stages that were
 * initialised with the two seeds. */
#include "exec/cpu/backend_cpu.h"
#include "exec/stage/stage.h"
#include "partition/step/workload.h"
#include "tests/unit/test.h"

enum { OLD_SEED = 3, NEW_SEED = 4 };

static struct job job;
static struct backend *be;

static struct stage *make(int first, int end, int num_frozen, bool lagged)
{
    const struct stage_spec spec = {.model = &job.model,
                                    .job = &job,
                                    .backend = be,
                                    .first_item = first,
                                    .end_item = end,
                                    .num_frozen_items = num_frozen,
                                    .max_samples = 1,
                                    .max_live = 1,
                                    .lagged = lagged};
    struct stage *stage = NULL;
    struct err err = {0};
    if (stage_new(&spec, &stage, &err) != OK)
        fail_msg("%s", err.msg);
    return stage;
}

static void seed(struct stage *stage, uint64_t value)
{
    assert_int_equal(stage_init_weights(stage, value, NULL), OK);
}

/* Swap items [from, to) of one stage, and compare each param. Returns how many are lagged. */
static int check(int first, int end, int num_frozen, int from, int to)
{
    struct stage *stage = make(first, end, num_frozen, true), *old = make(first, end, 0, false),
                 *now = make(first, end, 0, false);
    int swapped = 0;
    seed(old, OLD_SEED);
    seed(now, NEW_SEED);
    seed(stage, OLD_SEED);
    stage_lag_take(stage);
    seed(stage, NEW_SEED);
    for (int twice = 0; twice < 2; twice++) {
        stage_lag_swap(stage, from, to);
        for (int p = 0; p < stage_num_params(stage); p++) {
            const struct param *param = &stage_params(stage)[p];
            const int item = param->tied_copy ? 0 : param->item;
            const bool lags = item >= num_frozen && item >= from && item < to && twice == 0;
            const struct param *want = &stage_params(lags ? old : now)[p];
            assert_memory_equal(param->weight, want->weight,
                                (size_t)param->num_elems * sizeof(float));
            assert_int_equal(stage_lagged(stage, param) != NULL, item >= num_frozen);
            swapped += lags;
        }
    }
    stage_free(stage);
    stage_free(old);
    stage_free(now);
    return swapped;
}

/* memory-1 counts of a lagged plan 4 bytes a weight that trains, and the room. Blocks of
 * tensors are padded to 16 elements. */
static void check_bytes(int first, int end, int num_frozen)
{
    struct stage *with = make(first, end, num_frozen, true);
    struct stage *without = make(first, end, num_frozen, false);
    const int64_t more = stage_bytes(with) - stage_bytes(without);
    int64_t counted = 0;
    for (int p = 0; p < stage_num_params(with); p++)
        counted += stage_params(with)[p].frozen ? 0 : 4 * stage_params(with)[p].num_elems;
    counted += counted > 0 ? LAG_ROOM_BYTES : 0;
    assert_in_range(more, counted, counted + 64 * STAGE_ITEM_PARAMS * (end - first));
    stage_free(with);
    stage_free(without);
}

static void lag_swap__exchanges_a_range_of_items_at_every_cut(void **state)
{
    (void)state;
    static const enum model_family families[] = {FAMILY_VIT, FAMILY_GPT};
    for (int f = 0; f < 2; f++) {
        const bool vit = families[f] == FAMILY_VIT;
        const struct model_spec spec = {.family = families[f],
                                        .task = vit ? TASK_CLASSIFY : TASK_CAUSAL_LM,
                                        .name = "small",
                                        .num_layers = 2,
                                        .hidden = 16,
                                        .heads = 2,
                                        .mlp = 24,
                                        .image = vit ? 8 : 0,
                                        .patch = vit ? 4 : 0,
                                        .channels = vit ? 3 : 0,
                                        .classes = vit ? 10 : 0,
                                        .seq = vit ? 0 : 6,
                                        .max_seq = vit ? 0 : 8,
                                        .vocab = vit ? 0 : 50,
                                        .elem_bytes = 4};
        int swapped = 0;
        job_defaults(&job);
        model_clear(&job.model);
        assert_int_equal(model_build(&spec, &job.model, NULL), OK);
        const int items = job.model.num_items;
        for (int cut = 1; cut < items; cut++)
            for (int frozen = 0; frozen < items - 1; frozen += 3)
                for (int at = 0; at < items; at++) {
                    const int low = check(0, cut, frozen, 0, at) + check(cut, items, frozen, 0, at);
                    const int high =
                        check(0, cut, frozen, at, items) + check(cut, items, frozen, at, items);
                    const int all =
                        check(0, cut, frozen, 0, items) + check(cut, items, frozen, 0, items);
                    assert_int_equal(low + high, all);
                    check_bytes(0, cut, frozen);
                    check_bytes(cut, items, frozen);
                    swapped += low;
                }
        assert_true(swapped > 0);
        job_clear(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lag_swap__exchanges_a_range_of_items_at_every_cut),
    };
    be = backend_cpu_new(DTYPE_FP32, 1, NULL);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_free(be);
    return failed;
}
