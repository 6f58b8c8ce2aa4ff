/* Two records of one run: the store and metrics.jsonl. */
#include "cli/runs/run_rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/scratch.h"

static void run_rows_merge_metrics__fills_gaps_and_counts_differences(void **state)
{
    struct run_rows rows = {.num_steps = 3};
    struct err err = {0};
    (void)state;
    rows.steps = calloc(3, sizeof *rows.steps);
    assert_non_null(rows.steps);
    for (int i = 0; i < 3; i++) /* steps 3, 4 and 6 */
        rows.steps[i] = (struct step_row){.step = i == 2 ? 6 : 3 + i, .step_ns = 10, .loss = 0.5};
    const char *path =
        file_with("metrics.jsonl", "{\"step\":1,\"loss\":0.5,\"step_ns\":10}\n"
                                   "{\"event\":\"restart\",\"step\":2}\n"
                                   "{\"step\":2,\"loss\":0.5,\"step_ns\":10}\n"
                                   "{\"step\":3,\"loss\":0.5,\"step_ns\":10}\n"
                                   "{\"step\":4,\"loss\":0.25,\"step_ns\":10}\n"
                                   "{\"step\":5,\"loss\":0.5,\"step_ns\":10}\n"
                                   "{\"step\":6,\"loss\":0.5,\"step_ns\":10}\n"
                                   "{\"step\":7,\"loss\":0.5,\"step_ns\":10}\n{\"st");
    assert_int_equal(run_rows_merge_metrics(path, &rows, &err), OK);
    assert_int_equal(rows.num_steps, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(rows.steps[i].step, i + 1);
        assert_true(rows.steps[i].loss == 0.5);
    }
    assert_int_equal(rows.num_differing, 1); /* step 4 */
    assert_int_equal(run_rows_merge_metrics(at("none"), &rows, &err), OK);
    assert_int_equal(rows.num_steps, 7);
    run_rows_clear(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_rows_merge_metrics__fills_gaps_and_counts_differences),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
