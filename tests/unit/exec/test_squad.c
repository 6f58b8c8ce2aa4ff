/* SQuAD 1.1 on files made here (no real one is at hand): windows, spans, scores. */
#include "exec/data/dataset_open.h"
#include "exec/data/squad.h"
#include "tests/unit/fail_malloc.h" /* before data_case.h, which then tests allocations too */
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

/* Ids: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, a..z 4..29, é is e, "." 30, ##b 31. */
static void put_vocab(void)
{
    char text[256] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
    for (char c = 'a'; c <= 'z'; c++)
        snprintf(text + strlen(text), 8, "%c\n", c);
    strcat(text, ".\n##b\n");
    put_text("vocab.txt", text);
}

static void put_squad(const char *name, const char *context, const char *question,
                      const char *answers)
{
    char text[2000];
    snprintf(text, sizeof text,
             "{\"version\": \"1.1\", \"data\": [{\"title\": \"t\", \"paragraphs\": [{\"context\": "
             "\"%s\", \"qas\": [{\"id\": \"1\", \"question\": \"%s\", \"answers\": [%s]}]}]}]}",
             context, question, answers);
    put_text(name, text);
}

static const char *const bert = "minilm-l6:task=qa,seq=16,vocab=32";
static const char *const long_text = "a b c d e f g h i j k l m n o p q r s t u v w x y z.";

struct view {
    int32_t tokens[16], types[16], length, labels[2];
};

static void look(const struct dataset *data, enum split split, int64_t id, struct view *view)
{
    const struct sample_out out = {.tokens = view->tokens,
                                   .token_types = view->types,
                                   .length = &view->length,
                                   .labels = view->labels};
    assert_int_equal(data->sample(data, split, id, &out, NULL), OK);
}

static void squad_open__slides_windows_and_marks_spans_in_those_that_hold_them(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    struct view view;
    (void)state;
    put_vocab();
    put_squad("train-v1.1.json", long_text, "q w", "{\"text\": \"h i\", \"answer_start\": 14}");
    put_squad("dev-v1.1.json", "\xc3\xa9 \xc3\xa9 ab. c", "q",
              "{\"text\": \"ab\", \"answer_start\": 4}, {\"text\": \"ab.\", \"answer_start\": 4}");
    make_job(&job, bert, DATA_SQUAD, "", "vocab.txt");
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    /* 27 tokens, room for 16 - 3 - 2 = 11, stride 5: windows at 0, 5, 10, 15, 20. */
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 5);
    for (int w = 0; w < 5; w++) {
        int first = 5 * w, count = 27 - first < 11 ? 27 - first : 11;
        look(&data, SPLIT_TRAIN, w, &view);
        assert_int_equal(view.length, 2 + 2 + count + 1);
        assert_int_equal(view.tokens[0], 2);
        assert_int_equal(view.tokens[1], 4 + 'q' - 'a');
        assert_int_equal(view.tokens[2], 4 + 'w' - 'a');
        assert_int_equal(view.tokens[3], 3);
        for (int i = 0; i < 16; i++)
            assert_int_equal(view.types[i], i >= 4 && i < view.length);
        for (int i = 0; i < count; i++)
            assert_int_equal(view.tokens[4 + i], first + i < 26 ? 4 + first + i : 30);
        assert_int_equal(view.tokens[4 + count], 3);
        for (int i = 5 + count; i < 16; i++)
            assert_int_equal(view.tokens[i], 0);
        /* "h i" is tokens 7 and 8. */
        bool inside = first <= 7 && 8 < first + count;
        assert_int_equal(view.labels[0], inside ? 4 + 7 - first : 0);
        assert_int_equal(view.labels[1], inside ? 4 + 8 - first : 0);
    }
    /* answer_start counts code points; the first answer counts: a, ##b. */
    look(&data, SPLIT_TEST, 0, &view);
    assert_int_equal(view.labels[0], 3 + 2);
    assert_int_equal(view.labels[1], 3 + 3);
    assert_int_equal(view.tokens[6], 31);
    struct span span = {0, 5, 6, 0};
    const char *text;
    int bytes;
    assert_true(squad_text(&data, &span, SPLIT_TEST, &text, &bytes));
    assert_int_equal(bytes, 2);
    assert_memory_equal(text, "ab", 2);
    span.start = 2; /* in the question's part */
    assert_false(squad_text(&data, &span, SPLIT_TEST, &text, &bytes));
    dataset_clear(&data);
    /* "k l", tokens 10 and 11: window 0 holds only the first of them. */
    put_squad("train-v1.1.json", long_text, "q w", "{\"text\": \"k l\", \"answer_start\": 20}");
    assert_int_equal(dataset_open(&job, &data, &err), OK);
    look(&data, SPLIT_TRAIN, 0, &view);
    assert_int_equal(view.labels[0], 0);
    assert_int_equal(view.labels[1], 0);
    look(&data, SPLIT_TRAIN, 1, &view);
    assert_int_equal(view.labels[0], 4 + 5);
    assert_int_equal(view.labels[1], 4 + 6);
    dataset_clear(&data);
    open_without_memory(&job);
    job_clear(&job);
}

static void squad_score__takes_the_best_span_over_windows_and_answers(void **state)
{
    static const struct {
        struct span spans[2];
        int count;
        double exact, f1;
    } cases[] = {
        {{{0, 11, 12, .5}},                   1, 1, 1               }, /* h i */
        {{{0, 11, 11, .5}},                   1, 0, 2. / 3          }, /* h: 1 of 1, 1 of 2 */
        {{{0, 11, 13, .5}},                   1, 0, .8              }, /* h i j */
        {{{0, 5, 5, .5}, {1, 6, 7, .9}},      2, 1, 1               }, /* window 1 says h i, louder */
        {{{0, 11, 12, .9}, {1, 10, 10, .95}}, 2, 0, 0               }, /* louder and wrong */
        {{{0, 4, 12, .5}},                    1, 0, 2. * 2 / (2 + 8)}, /* a ... i, of which "a" is an article */
        {{{0, 0, 0, .5}},                     1, 0, 0               }, /* [CLS]: no answer */
        {{{0, 0, 0, 0}},                      0, 0, 0               },
    };
    struct job job;
    struct dataset data = {0};
    struct qa_score score;
    (void)state;
    put_vocab();
    put_squad("train-v1.1.json", long_text, "q w", "{\"text\": \"h i\", \"answer_start\": 14}");
    put_squad("dev-v1.1.json", long_text, "q w", "{\"text\": \"a\", \"answer_start\": 0}");
    make_job(&job, bert, DATA_SQUAD, "", "vocab.txt");
    assert_int_equal(dataset_open(&job, &data, NULL), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            squad_score(&data, SPLIT_TRAIN, cases[i].spans, cases[i].count, &score, NULL), OK);
        assert_int_equal(score.questions, 1);
        if (fabs(score.exact - cases[i].exact) > 1e-12 || fabs(score.f1 - cases[i].f1) > 1e-12)
            fail_msg("case %zu: exact %g, f1 %g", i, score.exact, score.f1);
    }
    dataset_clear(&data);
    job_clear(&job);
}

static void squad_open__names_the_place_of_bad_input(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{\"data\": [",                                                           "train-v1.1.json"                                 },
        {"[]",                                                                     "the list data is missing"                        },
        {"{\"data\": {}}",                                                         "the list data is missing"                        },
        {"{\"data\": []}",                                                         "holds no question"                               },
        {"{\"data\": [{}]}",                                                       "data.0.paragraphs.0.qas.0: paragraphs is missing"},
        {"{\"data\": [{\"paragraphs\": [{\"context\": 3, \"qas\": []}]}]}",
         "must have a context and qas"                                                                                               },
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"a\", \"qas\": [{}]}]}]}",
         "question is missing"                                                                                                       },
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"a\", \"qas\": [{\"question\": \"b\", "
         "\"answers\": []}]}]}]}",                                        "answers is missing or empty"                     },
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"a\", \"qas\": [{\"question\": \"b\", "
         "\"answers\": [{\"text\": \"a\", \"answer_start\": -1}]}]}]}]}", "answer_start of at least 0"                      },
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"a\", \"qas\": [{\"question\": \"b\", "
         "\"answers\": [{\"text\": \"a\", \"answer_start\": 9}]}]}]}]}",  "the context has no 'a' at answer_start 9"        },
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"ab\", \"qas\": [{\"question\": \"b\", "
         "\"answers\": [{\"text\": \"bc\", \"answer_start\": 1}]}]}]}]}", "the context has no 'bc' at answer_start 1"       },
    };
    struct job job;
    (void)state;
    put_vocab();
    make_job(&job, bert, DATA_SQUAD, "", "vocab.txt");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text("train-v1.1.json", cases[i].text);
        refuse_open(&job, ERR_INPUT, cases[i].words);
    }
    put_text("train-v1.1.json", "{\"version\": \"v2.0\", \"data\": []}");
    refuse_open(&job, ERR_INPUT, "train-v1.1.json' is SQuAD 2");
    put_bytes("train-v1.1.json", "\xff\xfe{\0}\0", 6);
    refuse_open(&job, ERR_INPUT, "train-v1.1.json: is UTF-16");
    unlink(in_folder("train-v1.1.json"));
    refuse_open(&job, ERR_SYSTEM, "train-v1.1.json");
    put_text("train-v2.0.json", "{}");
    refuse_open(&job, ERR_INPUT, "train-v2.0.json' is SQuAD 2");
    job_clear(&job);
    make_job(&job, "minilm-l6:seq=16,vocab=32", DATA_SQUAD, "", "vocab.txt");
    refuse_open(&job, ERR_INPUT, "the data are for a bert model with task qa");
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            squad_open__slides_windows_and_marks_spans_in_those_that_hold_them, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(squad_score__takes_the_best_span_over_windows_and_answers,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(squad_open__names_the_place_of_bad_input, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
