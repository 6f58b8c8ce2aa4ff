/* Arrays that are freed together: zero, aligned, and none without memory. Leaks are valgrind's and the sanitizers'. */
#include "partition/base/arrays.h"

#include <stdint.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_new__gives_zeros_at_any_alignment),
        cmocka_unit_test(arrays_new__tells_once_for_all_that_memory_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
