/* The cuts of other frameworks against what their own functions answered. */
#include "partition/plan/balance_frameworks.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

enum { MOST = 12, MOST_STAGES = 6, NUM_LISTS = 2000, CELL = 64 };

struct list {
    double sizes[MOST];
    int n, stages;
};

static uint32_t next_int(uint32_t *state, uint32_t limit)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % limit;
}

/* As in tests/reference/balancers.py. */
static struct list draw(uint32_t seed)
{
    static const uint32_t widths[] = {3, 20, 1000, 1 << 20};
    struct list list;
    uint32_t state = seed * 2654435761u;
    list.n = 1 + (int)next_int(&state, 12);
    list.stages = 1 + (int)next_int(&state, 6);
    const uint32_t width = widths[next_int(&state, 4)];
    for (int i = 0; i < list.n; i++)
        list.sizes[i] = next_int(&state, width);
    return list;
}

static void answer(const struct framework_balancer *balancer, const struct list *list,
                   char text[CELL])
{
    int count[MOST_STAGES], at = 0;
    struct err err = {0};
    const enum status rc = balancer->cut(list->sizes, list->n, list->stages, count, &err);
    strcpy(text, "-");
    assert_true(rc == OK || rc == ERR_INFEASIBLE);
    for (int k = 0; rc == OK && k < list->stages; k++)
        at += snprintf(text + at, (size_t)(CELL - at), "%s%d", k ? "," : "", count[k]);
}

static void framework_balancers__cut_as_the_real_functions(void **state)
{
    (void)state;
    FILE *file = fopen("tests/golden/framework_cuts.txt", "r");
    char line[4 * CELL], want[4][CELL], got[CELL];
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    for (uint32_t seed = 1; seed <= NUM_LISTS; seed++) {
        const struct list list = draw(seed);
        assert_non_null(fgets(line, sizeof line, file));
        assert_int_equal(sscanf(line, "%63s %63s %63s %63s", want[0], want[1], want[2], want[3]),
                         4);
        for (int i = 0; i < NUM_FRAMEWORK_BALANCERS; i++) {
            answer(&framework_balancers[i], &list, got);
            if (strcmp(want[i], "loops") == 0 || strcmp(want[i], "twice") == 0)
                strcpy(want[i], "-"); /* no cut */
            if (strcmp(got, want[i]) != 0)
                fail_msg("list %u: %s cuts %s, the real one %s", seed, framework_balancers[i].name,
                         got, want[i]);
        }
    }
    assert_null(fgets(line, sizeof line, file));
    fclose(file);
}

static void framework_balancers__free_all_where_memory_fails(void **state)
{
    (void)state;
    const double sizes[] = {3, 1, 4, 1, 5, 9, 2, 6};
    int count[3];
    if (!FAIL_MALLOC)
        skip();
    for (int i = 0; i < NUM_FRAMEWORK_BALANCERS; i++)
        for (int nth = 0;; nth++) {
            fail_malloc_after(nth);
            const enum status rc = framework_balancers[i].cut(sizes, 8, 3, count, NULL);
            if (fail_malloc_done())
                break;
            assert_int_equal(rc, ERR_NOMEM);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(framework_balancers__cut_as_the_real_functions),
        cmocka_unit_test(framework_balancers__free_all_where_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
