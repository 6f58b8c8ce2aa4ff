/* exec/data/tsv.c - GLUE tasks: tab-separated lines with a header, one or two texts and a label
 * each, as WordPiece tokens for BERT.
 *
 * Columns are found by name. Texts: sentence (SST-2); sentence1, sentence2 (RTE, WNLI, MNLI);
 * question, sentence (QNLI); question1, question2 (QQP); #1 String, #2 String (MRPC); question,
 * answer; premise, hypothesis. Label: label, gold_label, is_duplicate or Quality. CoLA has no
 * header; its columns are source, label, mark (* or nothing), sentence. STS-B is refused, because
 * its score is not a class. Labels are numbers, or the words of GLUE (entailment 0, not_entailment
 * and neutral 1, contradiction 2). data.path is a folder with train.tsv and dev.tsv (MNLI:
 * dev_matched.tsv). The test split is the dev file, because GLUE does not publish the labels of its
 * test sets. Source of the layout: gluebenchmark.com. Opening tokenizes all lines. Read tsv_open()
 * first, then read_table(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/data/dataset.h"
#include "exec/data/text_pairs.h"

enum { MAX_BYTES = 1 << 30, MAX_COLUMNS = 64, MAX_LINES = 64 };

/* --- reading ---------------------------------------------------------------------------------- */

struct cells {
    int count;
    const char *at[MAX_COLUMNS];
    int32_t bytes[MAX_COLUMNS];
};

static void split_line(const char *line, size_t length, struct cells *cells)
{
    const char *end = line + length;
    if (length > 0 && end[-1] == '\r')
        end--;
    for (cells->count = 0; cells->count < MAX_COLUMNS; cells->count++) {
        const char *tab = memchr(line, '\t', (size_t)(end - line));
        cells->at[cells->count] = line;
        cells->bytes[cells->count] = (int32_t)((tab ? tab : end) - line);
        if (!tab)
            break;
        line = tab + 1;
    }
    if (cells->count < MAX_COLUMNS)
        cells->count++;
}

static bool cell_is(const struct cells *cells, int i, const char *name)
{
    return (size_t)cells->bytes[i] == strlen(name) && memcmp(cells->at[i], name, strlen(name)) == 0;
}

static int find_column(const struct cells *header, const char *name)
{
    for (int i = 0; i < header->count; i++)
        if (cell_is(header, i, name))
            return i;
    return -1;
}

struct columns {
    int text[2], label; /* text[1] is -1 if there is one text */
};

static enum status find_columns(const struct cells *header, const char *path,
                                struct columns *columns, struct err *err)
{
    static const char *const pairs[][2] = {
        {"sentence1", "sentence2" },
        {"question1", "question2" },
        {"question",  "sentence"  },
        {"question",  "answer"    },
        {"premise",   "hypothesis"},
        {"#1 String", "#2 String" },
        {"sentence",  NULL        }
    };
    static const char *const labels[] = {"label", "gold_label", "is_duplicate", "Quality"};
    columns->label = -1;
    for (size_t i = 0; i < sizeof labels / sizeof *labels && columns->label < 0; i++)
        columns->label = find_column(header, labels[i]);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        columns->text[0] = find_column(header, pairs[i][0]);
        columns->text[1] = pairs[i][1] ? find_column(header, pairs[i][1]) : -1;
        if (columns->text[0] >= 0 && (columns->text[1] >= 0 || !pairs[i][1]))
            break;
        columns->text[0] = -1;
    }
    if (columns->text[0] >= 0 && columns->label >= 0)
        return OK;
    if (columns->label < 0 && find_column(header, "score") >= 0)
        return err_set(err, ERR_INPUT,
                       "'%s' has scores (column score, as STS-B), only classes can be trained",
                       path);
    err_set(err, ERR_INPUT, "'%s': the header has no column %s, got '%.*s'", path,
            columns->label < 0 ? "label" : "sentence",
            header->bytes[0] < 60 ? header->bytes[0] : 60, header->at[0]);
    err_hint(err,
             "one of sentence; sentence1, sentence2; question, sentence; question1, question2; "
             "premise, hypothesis; #1 String, #2 String; and label");
    return ERR_INPUT;
}

/* Whether the first line is a line of CoLA, which has no header. */
static bool cola_line(const struct cells *cells)
{
    return cells->count == 4 && (cell_is(cells, 1, "0") || cell_is(cells, 1, "1")) &&
           (cell_is(cells, 2, "") || cell_is(cells, 2, "*"));
}

/* The words that are labels. */
enum { NOT_ENTAILMENT = 1 };
static const struct {
    const char *name;
    int32_t label;
} words[] = {
    {"entailment",     0},
    {"not_entailment", 1},
    {"neutral",        1},
    {"contradiction",  2}
};
enum { NUM_WORDS = sizeof words / sizeof *words };

/* *seen: bits of the words that were read. */
static enum status read_label(const struct cells *cells, int column, const char *path,
                              int64_t number, int classes, int32_t *label, unsigned *seen,
                              struct err *err)
{
    int32_t got = -1, bytes = cells->bytes[column];
    const char *text = cells->at[column];
    for (int i = 0; i < NUM_WORDS; i++)
        if (cell_is(cells, column, words[i].name)) {
            got = words[i].label;
            *seen |= 1u << i;
        }
    if (got < 0 && bytes > 0 && bytes < 9) {
        got = 0;
        for (int i = 0; got >= 0 && i < bytes; i++)
            got = text[i] >= '0' && text[i] <= '9' ? 10 * got + (text[i] - '0') : -1;
    }
    if (got < 0 || got >= classes)
        return err_set(err, ERR_INPUT, "'%s' line %lld: label must be 0..%d, got '%.*s'", path,
                       (long long)number, classes - 1, bytes < 40 ? bytes : 40, text);
    *label = got;
    return OK;
}

/* Split the line at *line, which ends before `end`, into cells, and move *line and *number past it.
 * Texts of QQP contain newlines. A line with fewer columns than the header is therefore joined with the
 * next ones. (If the line was merely cut off, joining the next one gives too many columns, which the
 * caller refuses.) */
static void next_row(const char **line, const char *end, int header, int64_t *number,
                     struct cells *cells)
{
    const int64_t here = ++*number;
    const char *stop = memchr(*line, '\n', (size_t)(end - *line));
    split_line(*line, (size_t)((stop ? stop : end) - *line), cells);
    for (; here > 1 && stop && stop + 1 < end && cells->count > 1 && cells->count < header &&
           *number < here + MAX_LINES;
         ++*number) {
        stop = memchr(stop + 1, '\n', (size_t)(end - stop - 1));
        split_line(*line, (size_t)((stop ? stop : end) - *line), cells);
    }
    *line = stop ? stop + 1 : end;
}

/* ctx: the set of labels that the files have. */
static enum status read_table(const struct job *job, struct dataset *dataset, enum split split,
                              const char *path, void *ctx, struct err *err)
{
    struct text_pairs *pairs = dataset->ctx;
    struct pair_list *list = &pairs->splits[split];
    char *text = NULL;
    int64_t bytes = 0, number = 0;
    struct columns columns = {
        {-1, -1},
        -1
    };
    struct token_list tokens = {0};
    struct cells cells;
    int header = 0;
    enum status rc;
    rc = data_read_text(path, MAX_BYTES, &text, &bytes, err);
    if (rc != OK)
        return rc;
    for (const char *line = text, *end = text + bytes; rc == OK && line < end;) {
        const int64_t here = number + 1;
        next_row(&line, end, header, &number, &cells);
        if (here == 1) {
            header = cells.count;
            if (cola_line(&cells)) {
                columns = (struct columns){
                    .text = {3, -1},
                      .label = 1
                };
            } else {
                rc = find_columns(&cells, path, &columns, err);
                continue;
            }
        }
        if (cells.count != header) {
            rc = err_set(err, ERR_INPUT, "'%s' line %lld must have %d columns, got %d", path,
                         (long long)here, header, cells.count);
            break;
        }
        int32_t label = 0, first_text = 0;
        tokens.count = 0;
        rc = read_label(&cells, columns.label, path, here, job->model.classes, &label, ctx, err);
        for (int i = 0; rc == OK && i < 2 && columns.text[i] >= 0; i++) {
            rc = tokenizer_encode(pairs->bert.tokenizer, cells.at[columns.text[i]],
                                  (size_t)cells.bytes[columns.text[i]], 0, &tokens, err);
            if (i == 0)
                first_text = (int32_t)tokens.count;
        }
        THEN(text_pairs_add(list, &tokens, first_text, label, err));
    }
    if (rc == OK && list->num_rows == 0)
        rc = err_set(err, ERR_INPUT, "'%s' has no line after its header", path);
    dataset->num_samples[split] = list->num_rows;
    token_list_clear(&tokens);
    free(text);
    return rc;
}

static bool in_folder(const char *dir, const char *name)
{
    char *path = NULL;
    bool there = asprintf(&path, "%s/%s", dir, name) >= 0 && access(path, F_OK) == 0;
    free(path);
    return there;
}

/* MNLI has two dev sets; the matched one is used. */
static const char *dev_file(const char *dir)
{
    static const char *const matched = "dev_matched.tsv";
    return !in_folder(dir, "dev.tsv") && in_folder(dir, matched) ? matched : "dev.tsv";
}

/* Name the classes, if the labels are the words of as many. */
static enum status name_classes(struct dataset *dataset, unsigned seen, struct err *err)
{
    const int leave = dataset->classes == 2 ? NOT_ENTAILMENT + 1 : NOT_ENTAILMENT;
    if (seen == 0 || (seen >> leave & 1) || dataset->classes < 2 || dataset->classes > 3)
        return OK;
    dataset->class_names = calloc((size_t)dataset->classes, sizeof *dataset->class_names);
    if (!dataset->class_names)
        return err_nomem(err);
    for (int i = 0; i < NUM_WORDS; i++)
        if (i != leave && words[i].label < dataset->classes &&
            !(dataset->class_names[words[i].label] = strdup(words[i].name)))
            return err_nomem(err);
    return OK;
}

enum status tsv_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    const char *const names[SPLIT_COUNT] = {"train.tsv", dev_file(job->data.path)};
    struct dataset got = {0};
    unsigned seen = 0;
    enum status rc = text_pairs_open(job, &got, err);
    THEN(dataset_each_split(job, &got, names, read_table, &seen, err));
    THEN(name_classes(&got, seen, err));
    return dataset_hand_over(rc, &got, dataset);
}
