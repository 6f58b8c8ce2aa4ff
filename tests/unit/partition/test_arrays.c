/* Arrays that are freed together: zero, aligned, and none without memory; arrays that grow and keep what
 * they hold. Leaks, and writes beyond the room, are valgrind's and the sanitizers'. */
#include "partition/base/arrays.h"

#include <stdint.h>
#include <stdlib.h>

#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

static void arrays_new__gives_zeros_at_any_alignment(void **state)
{
    (void)state;
    struct arrays arrays = {0};
    for (int round = 0; round < 2; round++) { /* the second gets the memory of the first */
        for (size_t n = 0; n < 40; n++) {
            unsigned char *bytes = arrays_new(&arrays, n, 3);
            assert_non_null(bytes);
            assert_int_equal((uintptr_t)bytes % _Alignof(max_align_t), 0);
            for (size_t i = 0; i < 3 * n; i++) {
                assert_int_equal(bytes[i], 0);
                bytes[i] = 0xff;
            }
        }
        assert_false(arrays.failed);
        arrays_clear(&arrays);
    }
    arrays_clear(&arrays);
    assert_null(arrays.last);
}

static void arrays_new__tells_once_for_all_that_memory_ended(void **state)
{
    (void)state;
    struct arrays arrays = {0};
    assert_null(arrays_new(&arrays, SIZE_MAX / 2, 3));
    assert_true(arrays.failed);
    arrays_clear(&arrays);
    assert_false(arrays.failed);
    if (!FAIL_MALLOC)
        skip();
    fail_malloc_after(1);
    assert_non_null(arrays_new(&arrays, 1, 8));
    assert_null(arrays_new(&arrays, 1, 8));
    fail_malloc_done();
    assert_non_null(arrays_new(&arrays, 1, 8));
    assert_true(arrays.failed);
    arrays_clear(&arrays);
}

/* Fill an array one by one, with room ahead or without, and read all of it after each step. */
static void arrays_that_grow__keep_their_elements(void **state)
{
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        int *at = NULL;
        int64_t room = 0, moves = 0;
        for (int n = 0; n < 300; n++) {
            const int64_t before = room;
            assert_true(ahead ? array_grow(&at, n + 1, &room, sizeof *at)
                              : array_extend(&at, n, sizeof *at));
            assert_true(!ahead || room > n);
            moves += room != before;
            at[n] = 7 * n;
            for (int i = 0; i <= n; i++)
                assert_int_equal(at[i], 7 * i);
        }
        assert_int_equal(moves, ahead ? 3 : 0); /* 66, 198 and 462 */
        free(at);
    }
}

static void arrays_that_grow__stay_as_they_were_without_memory(void **state)
{
    (void)state;
    int *at = NULL;
    int64_t room = 0;
    if (!FAIL_MALLOC)
        skip();
    assert_true(array_grow(&at, 1, &room, sizeof *at));
    int *const was = at;
    const int64_t had = room;
    fail_malloc_after(0);
    assert_false(array_grow(&at, had + 1, &room, sizeof *at));
    fail_malloc_after(0);
    assert_false(array_extend(&at, had, sizeof *at));
    fail_malloc_done();
    assert_ptr_equal(at, was);
    assert_int_equal(room, had);
    free(at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_new__gives_zeros_at_any_alignment),
        cmocka_unit_test(arrays_new__tells_once_for_all_that_memory_ended),
        cmocka_unit_test(arrays_that_grow__keep_their_elements),
        cmocka_unit_test(arrays_that_grow__stay_as_they_were_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
