/* Every allocation of a step fails once: ERR_NOMEM, no crash, nothing half-made. The allocator of
 * this program is its own, so it stands apart from the other tests. */
#include <stdio.h>

#include "sim/engine.h"
#include "tests/sim_case.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_ALLOCATOR 0
static long left;
#else
#define OWN_ALLOCATOR 1
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t num, size_t size);
extern void *__libc_realloc(void *old, size_t size);
void *malloc(size_t size);
void *calloc(size_t num, size_t size);
void *realloc(void *old, size_t size);

static long left; /* allocations until the one that fails; 0: none fails */

static int fails(void)
{
    return left > 0 && --left == 0;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t num, size_t size)
{
    return fails() ? NULL : __libc_calloc(num, size);
}

void *realloc(void *old, size_t size)
{
    return fails() ? NULL : __libc_realloc(old, size);
}
#endif

static void sim_step__survives_each_failed_allocation(void **state)
{
    (void)state;
    if (!OWN_ALLOCATOR)
        skip(); /* the sanitizer has the allocator */
    static const enum sim_engine engines[] = {ENGINE_EVENT, ENGINE_RELAX};
    for (int e = 0; e < 2; e++) {
        struct sim_case c = SIM_CASE(SCHEDULE_1F1B, 3, 6, 1000, 1000, 1000, .R = 2, .nodes = 2,
                                     .act = 3000, .params = 100, .link = 1e9, .uplink = 1e9);
        c.options.record_ops = true;
        sim_case_build(&c);
        enum status rc = ERR_NOMEM;
        long n = 1;
        for (; rc != OK && n < 1000; n++) {
            struct err err = {0};
            left = n;
            rc = sim_case_step(&c, engines[e], &err);
            left = 0;
            assert_true(rc == OK || rc == ERR_NOMEM);
            if (rc != OK)
                assert_null(c.result.devices);
        }
        assert_int_equal(rc, OK);
        assert_true(n > 10);
        sim_case_clear(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sim_step__survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
