/* Linked into every C test program: ELAPSE_TEST_FILTER=PATTERN runs only the tests whose names
 * match
 * (* any characters, ? one), so that one that failed can run again by itself, under a debugger or
 * under compute-sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

__attribute__((constructor)) static void filter_tests(void)
{
    const char *pattern = getenv("ELAPSE_TEST_FILTER");
    if (pattern && *pattern)
        cmocka_set_test_filter(pattern);
}
