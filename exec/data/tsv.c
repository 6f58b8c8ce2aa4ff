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
 * first, then read_table() (files to tokens) and tsv_sample() (tokens to a sample). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/data/dataset.h"
#include "exec/data/wordpiece.h"

enum { MAX_BYTES = 1 << 30, MAX_COLUMNS = 64, MAX_LINES = 64 };

struct line {
    int64_t first; /* index in ids of the first token of its first text */
    int32_t tokens[2];
    int32_t label;
};
struct table {
    int32_t *ids; /* owned */
    int64_t num_ids, room_ids;
    struct line *lines; /* owned */
    int64_t num_lines, room_lines;
};
struct tsv {
    struct wordpiece wp;
    struct table tables[SPLIT_COUNT];
};

static void tsv_clear(struct dataset *dataset)
{
    struct tsv *tsv = dataset->ctx;
    if (!tsv)
        return;
    wordpiece_clear(&tsv->wp);
    for (int split = 0; split < SPLIT_COUNT; split++) {
        free(tsv->tables[split].ids);
        free(tsv->tables[split].lines);
    }
    free(tsv);
    dataset->ctx = NULL;
}

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

static enum status read_label(const struct cells *cells, int column, const char *path,
                              int64_t number, int classes, int32_t *label, struct err *err)
{
    static const struct {
        const char *name;
        int32_t label;
    } words[] = {
        {"entailment",     0},
        {"not_entailment", 1},
        {"neutral",        1},
        {"contradiction",  2}
    };
    int32_t got = -1, bytes = cells->bytes[column];
    const char *text = cells->at[column];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (cell_is(cells, column, words[i].name))
            got = words[i].label;
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

static enum status add_line(struct table *table, const struct token_list *tokens,
                            int32_t first_text, int32_t label, struct err *err)
{
    if (table->num_lines == table->room_lines) {
        int64_t room = table->room_lines ? 2 * table->room_lines : 1024;
        struct line *lines = realloc(table->lines, (size_t)room * sizeof *lines);
        if (!lines)
            return err_nomem(err);
        table->lines = lines;
        table->room_lines = room;
    }
    if (table->num_ids + tokens->count >=
        table->room_ids) { /* so ids exists, without a token too */
        int64_t room = 2 * (table->num_ids + tokens->count) + 4096;
        int32_t *ids = realloc(table->ids, (size_t)room * sizeof *ids);
        if (!ids)
            return err_nomem(err);
        table->ids = ids;
        table->room_ids = room;
    }
    table->lines[table->num_lines++] = (struct line){
        .first = table->num_ids,
        .tokens = {first_text, (int32_t)tokens->count - first_text},
        .label = label
    };
    for (int64_t i = 0; i < tokens->count; i++)
        table->ids[table->num_ids++] = tokens->at[i].id;
    return OK;
}

static enum status read_table(const struct wordpiece *wp, const char *path, int classes,
                              struct table *table, struct err *err)
{
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
    rc = data_read_file(path, MAX_BYTES, &text, &bytes, err);
    if (rc != OK)
        return rc;
    const int mark = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (const char *line = text + mark, *end = text + bytes; rc == OK && line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((stop ? stop : end) - line);
        split_line(line, length, &cells);
        /* Texts of QQP contain newlines. A line with too few columns is therefore joined with the
         * next ones. (If the line was merely cut off, joining the next one gives too many columns,
         * which is refused below.) */
        const int64_t here = ++number;
        for (; here > 1 && stop && stop + 1 < end && cells.count > 1 && cells.count < header &&
               number < here + MAX_LINES;
             number++) {
            stop = memchr(stop + 1, '\n', (size_t)(end - stop - 1));
            length = (size_t)((stop ? stop : end) - line);
            split_line(line, length, &cells);
        }
        line = stop ? stop + 1 : end;
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
        rc = read_label(&cells, columns.label, path, here, classes, &label, err);
        for (int i = 0; rc == OK && i < 2 && columns.text[i] >= 0; i++) {
            rc = wordpiece_encode(wp, cells.at[columns.text[i]],
                                  (size_t)cells.bytes[columns.text[i]], &tokens, err);
            if (i == 0)
                first_text = (int32_t)tokens.count;
        }
        if (rc == OK)
            rc = add_line(table, &tokens, first_text, label, err);
    }
    if (rc == OK && table->num_lines == 0)
        rc = err_set(err, ERR_INPUT, "'%s' has no line after its header", path);
    token_list_clear(&tokens);
    free(text);
    return rc;
}

/* --- samples ---------------------------------------------------------------------------------- */

static enum status tsv_sample(const struct dataset *dataset, enum split split, int64_t id,
                              const struct sample_out *out, struct err *err)
{
    const struct tsv *tsv = dataset->ctx;
    const struct table *table = &tsv->tables[split];
    const struct line *line = &table->lines[id];
    int32_t a = line->tokens[0], b = line->tokens[1];
    const int32_t *ids = table->ids + line->first, *ids_b = ids + a;
    int at = 0, room = dataset->seq - 2 - (b > 0);
    (void)err;
    if (out->labels)
        out->labels[0] = line->label;
    /* Too long: shorten the longer text first. */
    if (a + b > room) {
        int32_t half = (int32_t)room / 2;
        int32_t keep_b = a < room - half ? (int32_t)room - a : half;
        b = b < keep_b ? b : keep_b;
        a = (int32_t)room - b;
    }
    if (out->length)
        out->length[0] = a + b + 2 + (b > 0);
    if (out->token_types)
        for (int i = 0; i < dataset->seq; i++)
            out->token_types[i] = b > 0 && i >= a + 2 && i < a + b + 3;
    if (!out->tokens)
        return OK;
    out->tokens[at++] = tsv->wp.cls;
    for (int i = 0; i < a; i++)
        out->tokens[at++] = ids[i];
    out->tokens[at++] = tsv->wp.sep;
    for (int i = 0; i < b; i++)
        out->tokens[at++] = ids_b[i];
    if (b > 0)
        out->tokens[at++] = tsv->wp.sep;
    while (at < dataset->seq)
        out->tokens[at++] = tsv->wp.pad;
    return OK;
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

enum status tsv_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    const char *const names[SPLIT_COUNT] = {"train.tsv", dev_file(job->data.path)};
    struct dataset got = {.seq = job->model.seq,
                          .labels_per_sample = 1,
                          .targets_per_sample = 1,
                          .classes = job->model.classes,
                          .sample = tsv_sample,
                          .clear = tsv_clear};
    struct tsv *tsv = calloc(1, sizeof *tsv);
    enum status rc;
    if (!tsv)
        return err_nomem(err);
    got.ctx = tsv;
    rc = dataset_text_model(job, TASK_CLASSIFY, err);
    if (rc == OK && job->model.seq < 8)
        rc = err_set(err, ERR_INPUT, "%s: model.seq must be at least 8 for texts, got %d",
                     dataset_job_name(job), job->model.seq);
    if (rc == OK)
        rc = dataset_wordpiece(job, &tsv->wp, err);
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++) {
        char *path = NULL;
        if (!dataset_reads(job, split))
            continue;
        if (split == SPLIT_VALID)
            path = strdup(job->data.valid);
        else if (asprintf(&path, "%s/%s", job->data.path, names[split]) < 0)
            path = NULL;
        rc = path ? read_table(&tsv->wp, path, job->model.classes, &tsv->tables[split], err)
                  : err_nomem(err);
        free(path);
        got.num_samples[split] = tsv->tables[split].num_lines;
    }
    got.lower_case = tsv->wp.lower;
    if (rc == OK)
        *dataset = got;
    else
        tsv_clear(&got);
    return rc;
}
