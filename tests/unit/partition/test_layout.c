/* partition/layout/layout.h: the words of a layout, and what its rows say of it. */
#include "partition/layout/layout.h"
#include "tests/unit/test.h"

static void layout_text__has_the_words_of_the_field(void **state)
{
    (void)state;
    static const struct {
        struct layout layout;
        int ranks, replicas, chunks;
        const char *text;
    } cases[] = {
        {{0},                                                                       1, 1,  1, "PP 1 x DP 1 x TP 1"                                     },
        {{0},                                                                       0, 0,  0, "TP 1"                                                   },
        {{.tensor = 2, .sequence_parallel = true, .shard = SHARD_OPTIMIZER},
         2,                                                                            4,
         2,                                                                                   "PP 2 x DP 4 x TP 2 (SP), VP 2, ZeRO-1"                  },
        {{.tensor = 1, .sequence_parallel = true},                                  4, 1,  1, "PP 4 x DP 1 x TP 1"                                     },
        {{.shard = SHARD_WEIGHTS, .shard_group = 8, .offload = true},
         1,                                                                            16,
         1,                                                                                   "PP 1 x DP 16 x TP 1, ZeRO-3 (HSDP 8), optimizer offload"},
        {{.tensor = 4, .expert = 8, .expert_tensor = 1, .sequence_parallel = true},
         0,                                                                            0,
         0,                                                                                   "TP 4 (SP), EP 8, ETP 1"                                 },
        {{.tensor = 4, .expert = 8, .expert_tensor = 4},                            0, 0,  0, "TP 4, EP 8"                                             },
        {{.context = 2, .context_kind = CONTEXT_ULYSSES},
         2,                                                                            1,
         1,                                                                                   "PP 2 x DP 1 x TP 1 x CP 2 (ulysses)"                    },
    };
    char text[128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(layout_text(&cases[i].layout, cases[i].ranks, cases[i].replicas,
                                        cases[i].chunks, text, sizeof text),
                            cases[i].text);
}

/* However short the room is, the text is the begin of the whole one. */
static void layout_text__is_cut_to_its_room(void **state)
{
    (void)state;
    const struct layout layout = {.tensor = 2, .context = 4, .shard = SHARD_GRADIENTS};
    char whole[128], text[128];
    layout_text(&layout, 2, 3, 4, whole, sizeof whole);
    for (size_t size = 1; size < strlen(whole) + 2; size++) {
        memset(text, '?', sizeof text);
        layout_text(&layout, 2, 3, 4, text, size);
        assert_int_equal(strlen(text), size <= strlen(whole) ? size - 1 : strlen(whole));
        assert_int_equal(strncmp(text, whole, strlen(text)), 0);
        assert_int_equal(text[size], '?');
    }
}

/* A layout that differs in one dimension by a value that divides is another one. */
static void each_dimension__makes_another_layout(void **state)
{
    (void)state;
    const struct layout base = {.tensor = 4, .context = 2};
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++) {
        const enum layout_dim dim = (enum layout_dim)d;
        const struct layout_member *row = &layout_members[d];
        struct layout other = base;
        const int value = row->type == LAYOUT_COUNT ? 8 : 1;
        layout_set(&other, dim, value);
        assert_int_equal(layout_get(&other, dim), value);
        assert_true(layout_uses(&other, dim));
        assert_false(layout_equal(&base, &other));
        layout_set(&other, dim, layout_get(&base, dim));
        assert_true(layout_equal(&base, &other));
        assert_true(row->type != LAYOUT_NAME || row->names[value] != NULL);
    }
}

static void an_ask__opens_by_flag_or_by_auto(void **state)
{
    (void)state;
    struct layout_ask ask = {.at.tensor = 1, .at.context = 2};
    assert_false(layout_ask_opens(&ask, LAYOUT_TENSOR));
    assert_false(layout_ask_opens(&ask, LAYOUT_CONTEXT));
    assert_true(layout_ask_opens(&ask, LAYOUT_EXPERT)); /* 0 is AUTO */
    assert_false(layout_ask_opens(&ask, LAYOUT_SHARD_GROUP));
    ask.open[LAYOUT_SHARD] = true;
    assert_true(layout_ask_opens(&ask, LAYOUT_SHARD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_text__has_the_words_of_the_field),
        cmocka_unit_test(layout_text__is_cut_to_its_room),
        cmocka_unit_test(each_dimension__makes_another_layout),
        cmocka_unit_test(an_ask__opens_by_flag_or_by_auto),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
