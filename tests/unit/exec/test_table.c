/* Users' own tables: CSV, TSV and JSON lines with named columns, made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <zlib.h>

#include "exec/data/dataset_open.h"
#include "exec/data/delimited.h"
#include "tests/unit/fail_malloc.h"

#include "exec/data/dataset.h"
#include "tests/unit/data_case.h"

static const char *const bert = "minilm-l6:task=classify,classes=2,seq=10,vocab=12";

/* Ids: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, a..h 4..11. */
static void begin(struct job *job, const char *path)
{
    put_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\ne\nf\ng\nh\n");
    make_job(job, bert, DATA_TABLE, path, "vocab.txt");
}

static void columns(struct job *job, const char *text, const char *pair, const char *label)
{
    free(job->data.text);
    free(job->data.text_pair);
    free(job->data.label);
    job->data.text = text ? strdup(text) : NULL;
    job->data.text_pair = pair ? strdup(pair) : NULL;
    job->data.label = label ? strdup(label) : NULL;
}

/* Every sample of a split as "tokens/label", tokens without padding, separated by "; ". */
static void expect_rows(const struct dataset *data, enum split split, const char *want)
{
    char text[1000] = "";
    for (int64_t id = 0; id < data->num_samples[split]; id++) {
        int32_t tokens[10], types[10], length, label;
        const struct sample_out out = {
            .tokens = tokens, .token_types = types, .length = &length, .labels = &label};
        assert_int_equal(data->sample(data, split, id, &out, NULL), OK);
        for (int i = 0; i < length; i++)
            snprintf(text + strlen(text), 16, "%s%d", i ? " " : id ? "; " : "", tokens[i]);
        snprintf(text + strlen(text), 16, "/%d", label);
    }
    assert_string_equal(text, want);
}

/* The rows of data.path's file, all of them for training, without a test split drawn from them. */
static void expect_file(const char *name, const char *text, struct job *job, const char *want)
{
    struct dataset data = {0};
    struct err err = {0};
    remove_tree(in_folder("table"));
    assert_int_equal(mkdir(in_folder("table"), 0777), 0);
    char path[64];
    snprintf(path, sizeof path, "table/train%s", name);
    put_text(path, text);
    snprintf(path, sizeof path, "table/test%s", name);
    put_text(path, text);
    if (dataset_open(job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    expect_rows(&data, SPLIT_TRAIN, want);
    expect_rows(&data, SPLIT_TEST, want);
    dataset_clear(&data);
}

static void table_open__reads_named_columns_of_each_format(void **state)
{
    static const char want[] = "2 4 5 3/1; 2 6 3/0";
    struct job job;
    (void)state;
    begin(&job, "table");
    expect_file(".csv", "id,text,label\n7,a b,1\n8,C,0\n", &job, want);
    expect_file(".tsv", "label\ttext\n1\ta b\n0\tC\n", &job, want);
    expect_file(".jsonl", "{\"text\": \"a b\", \"label\": 1}\n{\"label\": 0, \"text\": \"C\"}\n",
                &job, want);
    columns(&job, "s", NULL, "y");
    expect_file(".csv", "y,s\n1,a b\n0,C\n", &job, want);
    columns(&job, "s", "t", "y");
    expect_file(".csv", "y,s,t\n1,a b,c\n0,C,d e\n", &job, "2 4 5 3 6 3/1; 2 6 3 7 8 3/0");
    expect_file(".jsonl",
                "{\"s\":\"a b\",\"t\":\"c\",\"y\":true}\n{\"s\":\"C\",\"t\":\"d e\",\"y\":false}",
                &job, "2 4 5 3 6 3/1; 2 6 3 7 8 3/0");
    job_clear(&job);
}

static void table_open__reads_quotes_marks_and_line_ends(void **state)
{
    struct job job;
    (void)state;
    begin(&job, "table");
    /* A separator, a line end, doubled quotes (two [UNK]) and nothing in quotes. */
    expect_file(".csv", "text,label\n\"a,b\",1\n\"c\nd\",0\n\"e \"\"f\"\"\",1\n\"\",0\n", &job,
                "2 4 1 5 3/1; 2 6 7 3/0; 2 8 1 9 1 3/1; 2 3/0");
    /* A byte order mark, CRLF, blank lines, a last line without an end. */
    expect_file(".csv", "\xef\xbb\xbftext,label\r\na,1\r\n\r\n\"b\",0\r\n\r\n", &job,
                "2 4 3/1; 2 5 3/0");
    expect_file(".csv", "\n\"text\",\"label\"\r\n\"a\",\"1\"\r\nb,0\r", &job, "2 4 3/1; 2 5 3/0");
    expect_file(
        ".jsonl",
        "\xef\xbb\xbf{\"text\":\"a\",\"label\":\"1\"}\r\n\r\n{\"text\":\"b\",\"label\":0}\n\n",
        &job, "2 4 3/1; 2 5 3/0");
    /* A quote inside a field that does not begin with one is text. */
    expect_file(".tsv", "text\tlabel\na \"b\t1\nc\t0\n", &job, "2 4 1 5 3/1; 2 6 3/0");
    job_clear(&job);
}

static void table_open__takes_numbers_for_columns_without_a_header(void **state)
{
    struct job job;
    (void)state;
    begin(&job, "table");
    columns(&job, "2", NULL, "1");
    expect_file(".csv", "1,a b\n0,c\n", &job, "2 4 5 3/1; 2 6 3/0");
    expect_file(".csv", "2,1\na,0\nb,1\n", &job, "2 4 3/0; 2 5 3/1"); /* names of the header */
    columns(&job, "1", NULL, "2");
    remove_tree(in_folder("table"));
    assert_int_equal(mkdir(in_folder("table"), 0777), 0);
    put_text("table/train.csv", "text,label\na,no\nb,yes\n");
    refuse_open(&job, ERR_INPUT, "has 2 classes, column '2' holds 3 labels: 'label', 'no', 'yes'");
    columns(&job, "1", NULL, "3");
    refuse_open(&job, ERR_INPUT, "train.csv' has 2 columns, column 3 is asked for");
    job_clear(&job);
}

static void table_open__numbers_labels_by_name_or_number(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    (void)state;
    begin(&job, "table");
    expect_file(".csv", "text,label\na,pos\nb,neg\nc,pos\n", &job, "2 4 3/1; 2 5 3/0; 2 6 3/1");
    assert_int_equal(dataset_open(&job, &data, &err), OK);
    assert_string_equal(data.class_names[0], "neg");
    assert_string_equal(data.class_names[1], "pos");
    dataset_clear(&data);
    expect_file(".csv", "text,label\na,1\nb,1\n", &job, "2 4 3/1; 2 5 3/1");
    expect_file(".csv", "text,label\na,10\nb,9\n", &job, "2 4 3/1; 2 5 3/0"); /* by value */
    put_text("table/test.csv", "text,label\na,9\nb,-1\n");
    refuse_open(&job, ERR_INPUT, "test.csv' line 3: label '-1' is not in the training rows");
    put_text("table/train.csv", "text,label\na,0\nb,1\nc,2\n");
    put_text("table/test.csv", "text,label\na,0\n");
    refuse_open(&job, ERR_INPUT, "has 2 classes, column 'label' holds 3 labels: '0', '1', '2'");
    put_text("table/train.csv", "text,label\na,x\nb,\n");
    refuse_open(&job, ERR_INPUT, "train.csv' line 3 has no label in column 'label'");
    job_clear(&job);
}

/* A tenth of the rows of a single file is the test split; val comes before test; gzip is read. */
static void table_open__finds_its_files(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    char text[2000] = "text,label\n";
    (void)state;
    begin(&job, "one.csv");
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), 16, "a,%d\n", i % 2);
    put_text("one.csv", text);
    assert_int_equal(dataset_open(&job, &data, &err), OK);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 36);
    assert_int_equal(data.num_samples[SPLIT_TEST], 4);
    dataset_clear(&data);
    job_clear(&job);
    begin(&job, "");
    refuse_open(&job, ERR_SYSTEM, "holds no train.csv, train.tsv or train.jsonl");
    gzFile packed = gzopen(in_folder("train.tsv.gz"), "wb");
    gzputs(packed, "text\tlabel\na\t1\nb\t0\nc\t1\n");
    gzclose(packed);
    put_text("test.csv", "text,label\na,1\nb,0\n");
    put_text("validation.csv", "text,label\na,1\n");
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 3);
    assert_int_equal(data.num_samples[SPLIT_TEST], 1);
    dataset_clear(&data);
    put_text("train.jsonl", "");
    refuse_open(&job, ERR_INPUT, "' both exist");
    job_clear(&job);
    begin(&job, "vocab.txt");
    refuse_open(&job, ERR_INPUT, "vocab.txt': the name of a table must end in .csv, .tsv, .jsonl");
    job_clear(&job);
}

static void table_open__refuses_what_it_cannot_read_by_line(void **state)
{
    static const struct {
        const char *name, *text, *words;
    } bad[] = {
        {"a.csv",   "text,label\na,1\n\"b,0\nc,1\n",                 "a.csv' line 3: a quote is opened and not"},
        {"a.csv",   "text,label\n\"a\" b,1\n",                       "a.csv' line 2: text after a closing"     },
        {"a.csv",   "text,label\na,1\nb\n",                          "a.csv' line 3 must have 2 columns, got 1"},
        {"a.csv",   "text,label\n\"a\n\n\",1\nb,1,2\n",              "a.csv' line 5 must have 2 columns, got 3"},
        {"a.csv",   "sentence,label\na,1\n",
         "has no column 'text', its first line is "
         "'sentence', 'label'"                                                                                 },
        {"a.csv",   "text,text,label\na,b,1\n",                      "a.csv' has 2 columns 'text'"             },
        {"a.csv",   "text,label\n",                                  "a.csv' has no rows"                      },
        {"a.csv",   "",                                              "a.csv' has no rows"                      },
        {"a.csv",
         "text,label\nfa\xe7"
         "ade,1\n",                                                  "a.csv' line 2 is not UTF-8"              },
        {"a.jsonl", "[{\"text\":\"a\",\"label\":1}]",                "a.jsonl' is an array, must be JSON lines"},
        {"a.jsonl", "{\"text\":\"a\",\"label\":1}\n{\"text\":\"a\"", "a.jsonl' line 2"                         },
        {"a.jsonl", "{\"text\":\"a\"}\n",
         "line 1: 'label' must be a text or a "
         "whole number, got nothing"                                                                           },
        {"a.jsonl", "{\"text\":3,\"label\":1}\n",                    "line 1: 'text' must be a text, got "     },
        {"a.jsonl", "7\n",                                           "line 1 must be an object of its own"     },
    };
    struct job job;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin(&job, bad[i].name);
        put_text(bad[i].name, bad[i].text);
        refuse_open(&job, ERR_INPUT, bad[i].words);
        job_clear(&job);
    }
    begin(&job, "a.csv");
    put_bytes("a.csv", "\xff\xfet\0e\0", 6);
    refuse_open(&job, ERR_INPUT, "a.csv: is UTF-16, must be UTF-8");
    put_bytes("a.csv", "text,label\na\0b,1\n", 17);
    refuse_open(&job, ERR_INPUT, "a.csv' line 2 holds a NUL byte");
    job_clear(&job);
}

static void table_open__survives_any_failed_allocation(void **state)
{
    struct job job;
    (void)state;
    begin(&job, "table");
    expect_file(".csv", "text,label\na,x\nb,y\n", &job, "2 4 3/0; 2 5 3/1");
    open_without_memory(&job);
    expect_file(".jsonl", "{\"text\":\"a\",\"label\":1}\n{\"text\":\"b\",\"label\":0}\n", &job,
                "2 4 3/1; 2 5 3/0");
    open_without_memory(&job);
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(table_open__reads_named_columns_of_each_format, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(table_open__reads_quotes_marks_and_line_ends, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(table_open__takes_numbers_for_columns_without_a_header,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(table_open__numbers_labels_by_name_or_number, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(table_open__finds_its_files, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(table_open__refuses_what_it_cannot_read_by_line,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(table_open__survives_any_failed_allocation, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
