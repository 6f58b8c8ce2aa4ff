/* Evidence of freezing: candidates keep the order of what they would freeze. */
#include "partition/evidence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void freeze_evidence_add__keeps_candidates_in_order(void **state)
{
    static const int added[] = {5, 2, 9, 1, 7, 2};
    enum { NUM = sizeof added / sizeof *added };
    struct freeze_evidence row = {0};
    struct err err = {0};
    (void)state;
    for (int i = 0; i < NUM; i++) {
        const struct freeze_candidate candidate = {.frozen = added[i]};
        assert_int_equal(freeze_evidence_add(&row, candidate, &err), OK);
        assert_int_equal(row.num_candidates, i + 1);
        for (int j = 1; j <= i; j++)
            assert_true(row.candidates[j - 1].frozen <= row.candidates[j].frozen);
    }
    assert_int_equal(row.candidates[0].frozen, 1);
    assert_int_equal(row.candidates[NUM - 1].frozen, 9);
    freeze_evidence_clear(&row);
}

static void freeze_history_add__takes_the_row_over(void **state)
{
    struct freeze_evidence row = {0};
    struct freeze_history history = {0};
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(freeze_evidence_add(&row, (struct freeze_candidate){.frozen = i}, NULL),
                         OK);
        assert_int_equal(freeze_history_add(&history, &row, NULL), OK);
        assert_null(row.candidates); /* the history's now */
    }
    assert_int_equal(history.num_rows, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(history.rows[i].candidates[0].frozen, i);
    freeze_history_clear(&history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freeze_evidence_add__keeps_candidates_in_order),
        cmocka_unit_test(freeze_history_add__takes_the_row_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
