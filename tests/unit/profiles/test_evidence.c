/* Evidence of freezing: candidates keep the order of what they would freeze, rows that of turns. */
#include "profiles/job/evidence_json.h"

#include "tests/unit/test.h"

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

/* A file whose turns do not rise, or are too many, is refused: readers count turns up to the last. */
static void evidence_from_json__wants_rising_turns(void **state)
{
    static const struct {
        const char *turns[2];
        const char *want; /* NULL: fine */
    } cases[] = {
        {{"0", "3"},                   NULL                           },
        {{"3", "3"},                   "e.json: turn 3 follows turn 3"},
        {{"3", "0"},                   "e.json: turn 0 follows turn 3"},
        {{"0", "9223372036854775807"}, "turn must be 0..2147483646"   },
    };
    static const char row[] =
        "{\"turn\":%s,\"step\":1,\"frozen\":0,\"num_probe\":4,\"rate_window\":1,\"rate_left\":1,"
        "\"loss\":1,\"loss_before\":2,\"fall_se\":0,\"candidates\":[]}";
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct freeze_history history = {0};
        struct json *root = NULL;
        struct err err = {0};
        char text[800], rows[2][300];
        for (int r = 0; r < 2; r++)
            snprintf(rows[r], sizeof rows[r], row, cases[i].turns[r]);
        snprintf(text, sizeof text, "{\"schema\":1,\"model\":{\"layers\":4},\"turns\":[%s,%s]}",
                 rows[0], rows[1]);
        assert_int_equal(json_parse(text, "e.json", &root, &err), OK);
        const enum status rc = evidence_from_json(root, "e.json", NULL, &history, &err);
        if (cases[i].want ? rc != ERR_INPUT || !strstr(err.msg, cases[i].want) : rc != OK)
            fail_msg("%s, %s: %s", cases[i].turns[0], cases[i].turns[1], err.msg);
        freeze_history_clear(&history);
        json_free(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freeze_evidence_add__keeps_candidates_in_order),
        cmocka_unit_test(freeze_history_add__takes_the_row_over),
        cmocka_unit_test(evidence_from_json__wants_rising_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
