/* Cores of ranks, and what is left of them. */
#include "exec/device/cores.h"
#include "tests/unit/test.h"

static void cores_beside__are_those_that_neither_compute_nor_issue(void **state)
{
    (void)state;
    static const struct {
        int num, threads;
        bool on_device;
        int beside;
    } cases[] =
        {
            {1,  1, false, 1 },
            {2,  2, false, 1 },
            {8,  8, false, 1 },
            {8,  6, false, 2 },
            {8,  1, false, 7 },
            {4,  9, false, 1 }, /* more threads than cores */
            {1,  1, true,  1 },
            {2,  2, true,  1 },
            {16, 1, true,  15},
            {16, 9, true,  15}, /* threads of kernels that the device runs */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct cores cores = {
            .at_hand = 64, .num = cases[i].num, .threads = cases[i].threads};
        assert_int_equal(cores_beside(&cores, cases[i].on_device), cases[i].beside);
    }
}

/* Each core at hand belongs to one rank, or to several where there are fewer cores. */
static void cores_bind__shares_all_cores_out(void **state)
{
    (void)state;
    struct cores cores = {0};
    cpu_set_t before, now;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(cores_bind(0, 1, 0, &cores, NULL), OK);
    const int all = cores.at_hand;
    assert_int_equal(all, CPU_COUNT(&before));
    assert_true(all >= 1 && cores.num == all && cores.first == 0 && cores.threads == all);
    for (int size = 1; size <= 2 * all + 1 && size < 64; size++) {
        int next = 0;
        for (int rank = 0; rank < size; rank++) {
            assert_int_equal(cores_bind(rank, size, rank % 3, &cores, NULL), OK);
            assert_int_equal(cores.at_hand, all);
            assert_true(cores.num >= 1 && cores.first >= 0 && cores.first + cores.num <= all);
            assert_int_equal(cores.threads, rank % 3 ? rank % 3 : cores.num);
            if (size <= all)
                assert_int_equal(cores.first, next);
            next = cores.first + cores.num;
            assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
            assert_int_equal(CPU_COUNT(&now), cores.num);
            assert_int_equal(cores_release(&cores, NULL), OK);
            assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
            assert_true(CPU_EQUAL(&now, &before));
        }
        if (size <= all)
            assert_int_equal(next, all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_beside__are_those_that_neither_compute_nor_issue),
        cmocka_unit_test(cores_bind__shares_all_cores_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
