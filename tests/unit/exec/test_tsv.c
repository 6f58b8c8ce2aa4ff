/* GLUE tables on small files made here. */
#include "exec/data/dataset_open.h"
#include "exec/data/dataset.h"
#include "tests/unit/fail_malloc.h" /* before data_case.h, which then tests allocations too */
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

/* Ids: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, a..h 4..11. */
static void put_vocab(void)
{
    put_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\ne\nf\ng\nh\n");
}

static const char *const bert = "minilm-l6:task=classify,classes=2,seq=10,vocab=12";

static void expect_sample(const struct dataset *data, enum split split, int64_t id,
                          const char *tokens, const char *types, int length, int label)
{
    int32_t got[10], got_types[10], got_length, got_label;
    const struct sample_out out = {
        .tokens = got, .token_types = got_types, .length = &got_length, .labels = &got_label};
    char text[64] = "", type_text[64] = "";
    assert_int_equal(data->sample(data, split, id, &out, NULL), OK);
    for (int i = 0; i < 10; i++) {
        snprintf(text + strlen(text), 8, "%s%d", i ? " " : "", got[i]);
        snprintf(type_text + strlen(type_text), 8, "%d", got_types[i]);
    }
    assert_string_equal(text, tokens);
    assert_string_equal(type_text, types);
    assert_int_equal(got_length, length);
    assert_int_equal(got_label, label);
}

static void tsv_open__reads_single_sentences(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    (void)state;
    put_vocab();
    put_text("train.tsv", "sentence\tlabel\na b\t1\r\nA  zz\t0\na b c d e f g h a b c\t1\n");
    put_text("dev.tsv", "sentence\tlabel\nh\t0\n");
    make_job(&job, bert, DATA_SST2, "", "vocab.txt");
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 3);
    assert_int_equal(data.num_samples[SPLIT_TEST], 1);
    expect_sample(&data, SPLIT_TRAIN, 0, "2 4 5 3 0 0 0 0 0 0", "0000000000", 4, 1);
    expect_sample(&data, SPLIT_TRAIN, 1, "2 4 1 3 0 0 0 0 0 0", "0000000000", 4, 0);
    expect_sample(&data, SPLIT_TRAIN, 2, "2 4 5 6 7 8 9 10 11 3", "0000000000", 10, 1);
    expect_sample(&data, SPLIT_TEST, 0, "2 11 3 0 0 0 0 0 0 0", "0000000000", 3, 0);
    dataset_clear(&data);
    job.data.train_samples = 2;
    assert_int_equal(dataset_open(&job, &data, &err), OK);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 2);
    dataset_clear(&data);
    open_without_memory(&job);
    job_clear(&job);
}

static void tsv_open__reads_pairs_and_shortens_the_longer_one(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    (void)state;
    put_vocab();
    put_text("train.tsv", "index\tquestion\tsentence\tlabel\n"
                          "0\ta b\tc\tentailment\n"
                          "1\ta b c d e f\tg h\tnot_entailment\n"
                          "2\ta b c d e f\ta b c d e f\t0\n"
                          "3\ta\ta b c d e f g h\t1\n");
    put_text("dev.tsv", "sentence1\tsentence2\tlabel\na\tb\t1\n");
    make_job(&job, bert, DATA_SST2, "", "vocab.txt");
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_string_equal(data.class_names[0], "entailment");
    assert_string_equal(data.class_names[1], "not_entailment");
    expect_sample(&data, SPLIT_TRAIN, 0, "2 4 5 3 6 3 0 0 0 0", "0000110000", 6, 0);
    expect_sample(&data, SPLIT_TRAIN, 1, "2 4 5 6 7 8 3 10 11 3", "0000000111", 10, 1);
    expect_sample(&data, SPLIT_TRAIN, 2, "2 4 5 6 7 3 4 5 6 3", "0000001111", 10, 0);
    expect_sample(&data, SPLIT_TRAIN, 3, "2 4 3 4 5 6 7 8 9 3", "0001111111", 10, 1);
    expect_sample(&data, SPLIT_TEST, 0, "2 4 3 5 3 0 0 0 0 0", "0001100000", 5, 1);
    dataset_clear(&data);
    job_clear(&job);
}

static void expect_glue(const char *train, const char *dev_name, const char *dev,
                        const char *tokens, const char *types, int length, int label)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    unlink(in_folder("dev.tsv"));
    put_text("train.tsv", train);
    put_text(dev_name, dev);
    make_job(&job, bert, DATA_SST2, "", "vocab.txt");
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 2);
    assert_int_equal(data.num_samples[SPLIT_TEST], 1);
    expect_sample(&data, SPLIT_TEST, 0, tokens, types, length, label);
    dataset_clear(&data);
    job_clear(&job);
}

/* Headers and rows as GLUE's files have them. */
static void tsv_open__reads_the_columns_of_every_glue_task(void **state)
{
    (void)state;
    put_vocab();
    /* CoLA: no header; the sentence is the fourth column. */
    expect_glue("gj04\t1\t\ta b\ngj04\t0\t*\tb a\n", "dev.tsv", "gj04\t0\t*\tc a\r\n",
                "2 6 4 3 0 0 0 0 0 0", "0000000000", 4, 0);
    /* MRPC, which starts with a byte order mark. */
    expect_glue("\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
                "1\t7\t8\ta\tb\n0\t7\t8\tb\tb\n",
                "dev.tsv",
                "\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tc a\tb\n",
                "2 6 4 3 5 3 0 0 0 0", "0000110000", 6, 1);
    /* QQP */
    expect_glue("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
                "1\t2\t3\ta\tb\t0\n2\t2\t3\ta\tb\t1\n",
                "dev.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\td\te\t1\n",
                "2 7 3 8 3 0 0 0 0 0", "0001100000", 5, 1);
    /* QQP's own file has questions with newlines in them. */
    expect_glue("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
                "1\t2\t3\ta\n\tb\t0\n2\t2\t3\ta\tb\t1\n",
                "dev.tsv",
                "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\td\n\nc\te\t1\n",
                "2 7 6 3 8 3 0 0 0 0", "0000110000", 6, 1);
    /* MNLI: several labels, of which the gold one counts; two dev sets. */
    expect_glue("index\tsentence1\tsentence2\tlabel1\tgold_label\n"
                "0\ta\tb\tneutral\tneutral\n1\ta\tb\tneutral\tentailment\n",
                "dev_matched.tsv",
                "index\tsentence1\tsentence2\tlabel1\tlabel2\tgold_label\n"
                "0\tg\th\tneutral\tneutral\tentailment\n",
                "2 10 3 11 3 0 0 0 0 0", "0001100000", 5, 0);
}

static void tsv_open__names_file_line_value_and_limit_of_bad_input(void **state)
{
    static const struct {
        const char *train, *words;
    } cases[] = {
        {"sentence\tlabel\na\t2\n",                            "train.tsv' line 2: label must be 0..1, got '2'"},
        {"sentence\tlabel\na\t1\nb\t-1\n",                     "line 3: label must be 0..1, got '-1'"          },
        {"sentence\tlabel\na\t\n",                             "line 2: label must be 0..1, got ''"            },
        {"sentence\tlabel\na\t99999999999\n",                  "got '99999999999'"                             },
        {"sentence\tlabel\na\t1\nb\n",                         "line 3 must have 2 columns, got 1"             },
        {"sentence\tlabel\na\tb\t1\n",                         "line 2 must have 2 columns, got 3"             },
        {"text\tlabel\na\t1\n",                                "the header has no column sentence, got 'text'" },
        {"sentence\ta\n",                                      "the header has no column label"                },
        {"sentence\tlabel\n",                                  "has no line after its header"                  },
        {"",                                                   "has no line after its header"                  },
        {"gj04\t1\t\ta\ngj04\t2\t*\tb\n",                      "line 2: label must be 0..1, got '2'"           },
        {"gj04\t1\t\ta\ngj04\t0\tb\n",                         "line 2 must have 4 columns, got 3"             },
        {"gj04\t1\t\ta\ngj04\t0\ngj04\t1\t\ta\n",              "line 2 must have 4 columns, got 5"             },
        {"index\tsentence1\tsentence2\tscore\n0\ta\tb\t3.5\n",
         "train.tsv' has scores (column score, as STS-B), only classes can be trained"                         },
    };
    struct job job;
    (void)state;
    put_vocab();
    put_text("dev.tsv", "sentence\tlabel\nh\t0\n");
    make_job(&job, bert, DATA_SST2, "", "vocab.txt");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text("train.tsv", cases[i].train);
        refuse_open(&job, ERR_INPUT, cases[i].words);
    }
    put_text("train.tsv", "sentence\tlabel\nh\t0\n");
    job.data.train_samples = 2;
    refuse_open(&job, ERR_INPUT, "holds 1 training samples, data.train_samples asks for 2");
    job.data.train_samples = 0;
    job.model.vocab = 11;
    refuse_open(&job, ERR_INPUT, "has 12 tokens, model 'minilm-l6' has room for 11");
    job_clear(&job);
    make_job(&job, bert, DATA_SST2, "nowhere", "vocab.txt");
    refuse_open(&job, ERR_SYSTEM, "nowhere/train.tsv': No such file");
    job_clear(&job);
    make_job(&job, bert, DATA_SST2, "", NULL);
    refuse_open(&job, ERR_INPUT, "data.vocab is missing");
    job_clear(&job);
    make_job(&job, "vit-tiny", DATA_SST2, "", "vocab.txt");
    refuse_open(&job, ERR_INPUT, "the data are for a bert model with task classify");
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tsv_open__reads_single_sentences, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(tsv_open__reads_pairs_and_shortens_the_longer_one,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(tsv_open__reads_the_columns_of_every_glue_task, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(tsv_open__names_file_line_value_and_limit_of_bad_input,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
