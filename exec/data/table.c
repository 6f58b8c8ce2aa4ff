/* exec/data/table.c - a user's own table of texts and classes: CSV, TSV or JSON lines.
 *
 * data.text, data.text_pair and data.label name the columns. If the first record of a CSV or TSV
 * file has them, it is the header. If they are numbers from 1 and it does not, the file has no
 * header. JSON lines have an object a line, whose keys are the columns. A table is UTF-8, with or
 * without a byte order mark, and may be compressed (.gz).
 *
 * data.path is a file, or a folder with a file `train` and one `val`, `validation`, `valid`, `dev`
 * or `test` (the first of these counts). Of a single file a tenth of the rows is the test split
 * (picks.h).
 *
 * Labels are classes by number if all of them are numbers below model.classes. Else they are names:
 * the sorted names of the training rows, as many as model.classes. Opening tokenizes all rows. Read
 * table_open() first, then read_file(), add_row() and number_labels(). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/data/delimited.h"
#include "exec/data/text_pairs.h"
#include "exec/data/vocab.h"
#include "profiles/base/utf8.h"
#include "profiles/json/fields.h"
#include "profiles/json/json.h"
#include "partition/base/arrays.h"

enum { MAX_BYTES = 1 << 30, MAX_LABELS = 100000, NAMED = 8 };
enum column { COLUMN_TEXT, COLUMN_PAIR, COLUMN_LABEL, NUM_COLUMNS };

/* A label as the files spell it, and where it was met first. */
struct label {
    char *name; /* owned */
    enum split split;
    int64_t line;
    int32_t met; /* the order in which labels were met: what rows hold at first */
};
struct reading {
    const char *columns[NUM_COLUMNS]; /* COLUMN_PAIR: NULL if there is one text */
    struct text_pairs *pairs;         /* borrowed */
    struct vocab found;               /* from a label to its place in `labels` */
    struct label *labels;             /* owned; in the order in which they were met */
    int num_labels;
    int64_t room;
    char *paths[SPLIT_COUNT]; /* owned; NULL: no such file */
    char *what;               /* owned: the present file, in quotes */
    enum split split;
    struct token_list tokens;
};

static void reading_clear(struct reading *reading)
{
    for (int i = 0; i < reading->num_labels; i++)
        free(reading->labels[i].name);
    free(reading->labels);
    for (int split = 0; split < SPLIT_COUNT; split++)
        free(reading->paths[split]);
    free(reading->what);
    vocab_clear(&reading->found);
    token_list_clear(&reading->tokens);
}

/* --- files ------------------------------------------------------------------------------------ */

static const char *const suffixes[] = {".csv", ".tsv", ".jsonl", ".ndjson", ".json"};
enum { NUM_SUFFIXES = sizeof suffixes / sizeof *suffixes, FIRST_JSON = 2 };

/* The place of a path's suffix, .gz apart, in `suffixes`; -1: none of them. */
static int suffix_of(const char *path)
{
    size_t length = strlen(path);
    if (path_ends(path, ".gz"))
        length -= 3;
    for (int i = 0; i < NUM_SUFFIXES; i++) {
        const size_t n = strlen(suffixes[i]);
        if (length > n && strncasecmp(path + length - n, suffixes[i], n) == 0)
            return i;
    }
    return -1;
}

/* The file of a name with any suffix in a folder. *path stays NULL if there is none. */
static enum status find_file(const char *dir, const char *name, char **path, struct err *err)
{
    for (int i = 0; i < 2 * NUM_SUFFIXES; i++) {
        char *one = NULL;
        if (asprintf(&one, "%s/%s%s%s", dir, name, suffixes[i / 2], i % 2 ? ".gz" : "") < 0)
            return err_nomem(err);
        if (access(one, F_OK) != 0) {
            free(one);
        } else if (*path) {
            err_set(err, ERR_INPUT, "'%s' and '%s' both exist", *path, one);
            err_hint(err, "set data.path to the file, or remove one of them");
            free(one);
            return ERR_INPUT;
        } else {
            *path = one;
        }
    }
    return OK;
}

static enum status find_files(const struct job *job, struct reading *reading, struct err *err)
{
    static const char *const tests[] = {"val", "validation", "valid", "dev", "test"};
    const char *path = job->data.path;
    enum status rc = OK;
    struct stat st;
    if (stat(path, &st) != 0)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        rc = find_file(path, "train", &reading->paths[SPLIT_TRAIN], err);
        if (rc == OK && !reading->paths[SPLIT_TRAIN])
            rc = err_set(err, ERR_SYSTEM,
                         "'%s' holds no train.csv, train.tsv or train.jsonl (or .gz)", path);
        for (size_t i = 0;
             rc == OK && !reading->paths[SPLIT_TEST] && i < sizeof tests / sizeof *tests; i++)
            rc = find_file(path, tests[i], &reading->paths[SPLIT_TEST], err);
    } else if (!(reading->paths[SPLIT_TRAIN] = strdup(path))) {
        rc = err_nomem(err);
    }
    if (rc == OK && dataset_valid_path(job) &&
        !(reading->paths[SPLIT_VALID] = strdup(job->data.valid)))
        rc = err_nomem(err);
    return rc;
}

/* --- rows ------------------------------------------------------------------------------------- */

/* The place of a label among those that were met. */
static enum status find_label(struct reading *reading, const char *name, size_t bytes, int64_t line,
                              int32_t *place, struct err *err)
{
    *place = vocab_find(&reading->found, name, bytes);
    if (*place >= 0)
        return OK;
    if (reading->num_labels == MAX_LABELS)
        return err_set(err, ERR_INPUT, "%s line %lld: more than %d different labels in column '%s'",
                       reading->what, (long long)line, MAX_LABELS, reading->columns[COLUMN_LABEL]);
    if (!array_grow(&reading->labels, reading->num_labels + 1, &reading->room,
                    sizeof *reading->labels))
        return err_nomem(err);
    *place = reading->num_labels;
    struct label label = {strndup(name, bytes), reading->split, line, *place};
    if (!label.name)
        return err_nomem(err);
    reading->labels[reading->num_labels++] = label;
    return vocab_put(&reading->found, name, bytes, *place, err);
}

static enum status check_utf8(const struct reading *reading, const struct delimited_field *cell,
                              int64_t line, struct err *err)
{
    for (size_t at = 0; at < (size_t)cell->bytes;) {
        const size_t before = at;
        if (cell->text[at] == '\0')
            return err_set(err, ERR_INPUT, "%s line %lld holds a NUL byte", reading->what,
                           (long long)line);
        if (utf8_next(cell->text, (size_t)cell->bytes, &at) == UNICODE_BAD && at == before + 1)
            return err_set(err, ERR_INPUT, "%s line %lld is not UTF-8", reading->what,
                           (long long)line);
    }
    return OK;
}

/* Add a row. cells: by enum column; without a second text its text is NULL. */
static enum status add_row(struct reading *reading, const struct delimited_field *cells,
                           int64_t line, struct err *err)
{
    struct pair_list *list = &reading->pairs->splits[reading->split];
    int64_t num_first = 0;
    int32_t label = 0;
    enum status rc = OK;
    if (reading->columns[COLUMN_LABEL] && cells[COLUMN_LABEL].bytes == 0)
        return err_set(err, ERR_INPUT, "%s line %lld has no label in column '%s'", reading->what,
                       (long long)line, reading->columns[COLUMN_LABEL]);
    reading->tokens.count = 0;
    for (int c = 0; rc == OK && c < NUM_COLUMNS; c++)
        if (cells[c].text)
            rc = check_utf8(reading, &cells[c], line, err);
    for (int c = COLUMN_TEXT; rc == OK && c <= COLUMN_PAIR && cells[c].text; c++) {
        rc = tokenizer_encode(reading->pairs->bert.tokenizer, cells[c].text, (size_t)cells[c].bytes,
                              0, &reading->tokens, err);
        if (c == COLUMN_TEXT)
            num_first = reading->tokens.count;
    }
    if (rc == OK && reading->columns[COLUMN_LABEL])
        rc = find_label(reading, cells[COLUMN_LABEL].text, (size_t)cells[COLUMN_LABEL].bytes, line,
                        &label, err);
    return rc == OK ? text_pairs_add(list, &reading->tokens, num_first, label, err) : rc;
}

/* --- CSV and TSV ------------------------------------------------------------------------------ */

static bool is_name(const struct delimited_field *field, const char *name)
{
    return (size_t)field->bytes == strlen(name) && memcmp(field->text, name, strlen(name)) == 0;
}

static int count_named(const struct delimited *record, const char *name, int *place)
{
    int count = 0;
    for (int i = 0; i < record->num_fields; i++)
        if (is_name(&record->fields[i], name) && count++ == 0)
            *place = i;
    return count;
}

/* The number of a column that is written as one, from 1. 0: it is not. */
static int column_number(const char *name)
{
    return strspn(name, "0123456789") == strlen(name) && strlen(name) < 6 ? atoi(name) : 0;
}

static enum status refuse_columns(const struct reading *reading, const struct delimited *record,
                                  const char *missing, struct err *err)
{
    char names[300] = "";
    for (int i = 0; i < record->num_fields && i < NAMED; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s'%.*s'", i ? ", " : "",
                 record->fields[i].bytes < 30 ? (int)record->fields[i].bytes : 30,
                 record->fields[i].text);
    err_set(err, ERR_INPUT, "%s has no column '%s', its first line is %s%s", reading->what, missing,
            names, record->num_fields > NAMED ? ", ..." : "");
    err_hint(err,
             "set data.text and data.label (and data.text_pair) to names of the first line, or "
             "to numbers from 1 if the file has no header");
    return ERR_INPUT;
}

/* Places of the columns by the first record. *header: whether it is a header. */
static enum status find_columns(const struct reading *reading, const struct delimited *record,
                                int *places, bool *header, struct err *err)
{
    const char *missing = NULL;
    bool numbers = true;
    for (int c = 0; c < NUM_COLUMNS; c++) {
        const char *name = reading->columns[c];
        const int count = name ? count_named(record, name, &places[c]) : 1;
        if (count > 1)
            return err_set(err, ERR_INPUT, "%s has %d columns '%s'", reading->what, count, name);
        if (count == 0 && !missing)
            missing = name;
        numbers = numbers && (!name || column_number(name) > 0);
    }
    *header = !missing;
    if (!missing)
        return OK;
    if (!numbers)
        return refuse_columns(reading, record, missing, err);
    for (int c = 0; c < NUM_COLUMNS; c++) {
        if (!reading->columns[c])
            continue;
        places[c] = column_number(reading->columns[c]) - 1;
        if (places[c] >= record->num_fields)
            return err_set(err, ERR_INPUT, "%s has %d columns, column %s is asked for",
                           reading->what, record->num_fields, reading->columns[c]);
    }
    return OK;
}

static enum status read_delimited(struct reading *reading, char *text, int64_t bytes,
                                  char separator, struct err *err)
{
    struct delimited record = {
        .at = text, .end = text + bytes, .separator = separator, .next_line = 1};
    int places[NUM_COLUMNS], num_columns = 0;
    bool more = true, header = false;
    enum status rc = delimited_next(&record, reading->what, &more, err);
    if (rc == OK && more) {
        rc = find_columns(reading, &record, places, &header, err);
        num_columns = record.num_fields;
    }
    if (rc == OK && header)
        rc = delimited_next(&record, reading->what, &more, err);
    while (rc == OK && more) {
        struct delimited_field cells[NUM_COLUMNS] = {{0}};
        if (record.num_fields != num_columns) {
            rc = err_set(err, ERR_INPUT, "%s line %lld must have %d columns, got %d", reading->what,
                         (long long)record.line, num_columns, record.num_fields);
            break;
        }
        for (int c = 0; c < NUM_COLUMNS; c++)
            if (reading->columns[c])
                cells[c] = record.fields[places[c]];
        rc = add_row(reading, cells, record.line, err);
        THEN(delimited_next(&record, reading->what, &more, err));
    }
    delimited_clear(&record);
    return rc;
}

/* --- JSON lines ------------------------------------------------------------------------------- */

/* The text of a member: a string, and of a label also a whole number, true or false. */
static enum status read_member(const struct reading *reading, const struct json *object,
                               enum column column, int64_t line, char *number,
                               struct delimited_field *cell, struct err *err)
{
    const char *name = reading->columns[column];
    const struct json *value = json_get(object, name);
    const char *text = value ? json_string(value) : NULL;
    int64_t whole;
    if (value && !text && column == COLUMN_LABEL) {
        if (json_type(value) == JSON_BOOL)
            text = json_true(value) ? "true" : "false";
        else if (json_int64(value, &whole) && snprintf(number, 32, "%lld", (long long)whole) > 0)
            text = number;
    }
    if (text) {
        *cell = (struct delimited_field){(char *)text, (int64_t)strlen(text)};
        return OK;
    }
    err_set(err, ERR_INPUT, "%s line %lld: '%s' must be %s, got %s", reading->what, (long long)line,
            name, column == COLUMN_LABEL ? "a text or a whole number" : "a text",
            value ? json_type_name(json_type(value)) : "nothing");
    err_hint(err, "data.text, data.text_pair and data.label name the keys");
    return ERR_INPUT;
}

static enum status read_object(struct reading *reading, const char *text, int64_t line,
                               struct err *err)
{
    struct delimited_field cells[NUM_COLUMNS] = {{0}};
    struct json *object = NULL;
    char number[32], *what = NULL;
    if (asprintf(&what, "%s line %lld", reading->what, (long long)line) < 0)
        return err_nomem(err);
    enum status rc = json_parse(text, what, &object, err);
    if (rc == OK && json_type(object) != JSON_OBJECT)
        rc = err_set(err, ERR_INPUT, "%s must be an object of its own, got %s", what,
                     json_type_name(json_type(object)));
    for (int c = 0; rc == OK && c < NUM_COLUMNS; c++)
        if (reading->columns[c])
            rc = read_member(reading, object, (enum column)c, line, number, &cells[c], err);
    THEN(add_row(reading, cells, line, err));
    json_free(object);
    free(what);
    return rc;
}

/* Changes the text: line ends become NUL. */
static enum status read_json_lines(struct reading *reading, char *text, int64_t bytes,
                                   struct err *err)
{
    int64_t line = 1;
    enum status rc = OK;
    for (char *at = text, *end = text + bytes; rc == OK && at < end; line++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop)
            stop = end; /* a NUL is there already */
        *stop = '\0';
        if (strlen(at) != (size_t)(stop - at))
            return err_set(err, ERR_INPUT, "%s line %lld holds a NUL byte", reading->what,
                           (long long)line);
        if (strspn(at, " \t\r") != (size_t)(stop - at)) {
            if (line == 1 && *at == '[') {
                err_set(err, ERR_INPUT, "%s is an array, must be JSON lines", reading->what);
                err_hint(err, "an object a line, without [ ] and without commas after the lines");
                return ERR_INPUT;
            }
            rc = read_object(reading, at, line, err);
        }
        at = stop + 1;
    }
    return rc;
}

static enum status read_file(struct reading *reading, enum split split, struct err *err)
{
    const char *path = reading->paths[split];
    const int suffix = suffix_of(path);
    char *text = NULL;
    int64_t bytes = 0;
    free(reading->what);
    reading->split = split;
    if (asprintf(&reading->what, "'%s'", path) < 0) {
        reading->what = NULL;
        return err_nomem(err);
    }
    if (suffix < 0)
        return err_set(err, ERR_INPUT,
                       "%s: the name of a table must end in .csv, .tsv, .jsonl, .ndjson or .json "
                       "(or these and .gz)",
                       reading->what);
    enum status rc = data_read_text(path, MAX_BYTES, &text, &bytes, err);
    THEN(suffix >= FIRST_JSON
             ? read_json_lines(reading, text, bytes, err)
             : read_delimited(reading, text, bytes, suffix == 0 ? ',' : '\t', err));
    if (rc == OK && reading->pairs->splits[split].num_rows == 0)
        rc = err_set(err, ERR_INPUT, "%s has no rows", reading->what);
    free(text);
    return rc;
}

/* --- labels ----------------------------------------------------------------------------------- */

/* A label that is a whole number in the usual spelling. */
static bool parse_whole(const char *name, long *number)
{
    char again[32];
    *number = strtol(name, NULL, 10);
    snprintf(again, sizeof again, "%ld", *number);
    return strlen(name) < 10 && strcmp(name, again) == 0;
}

static int by_number(const void *a, const void *b)
{
    long x, y;
    (void)parse_whole(((const struct label *)a)->name, &x);
    (void)parse_whole(((const struct label *)b)->name, &y);
    return (x > y) - (x < y);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct label *)a)->name, ((const struct label *)b)->name);
}

static enum status refuse_labels(const struct reading *reading, const struct job *job, bool numbers,
                                 struct err *err)
{
    char names[300] = "";
    for (int i = 0; i < reading->num_labels && i < NAMED; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s'%.30s'", i ? ", " : "",
                 reading->labels[i].name);
    err_set(err, ERR_INPUT, "model '%s' has %d classes, column '%s' holds %d labels: %s%s",
            job->model.name, job->model.classes, reading->columns[COLUMN_LABEL],
            reading->num_labels, names, reading->num_labels > NAMED ? ", ..." : "");
    if (numbers)
        err_hint(err, "labels that are numbers must be 0..%d, or as many as there are classes",
                 job->model.classes - 1);
    else
        err_hint(err, "set model.classes to %d if these are the classes", reading->num_labels);
    return ERR_INPUT;
}

/* Labels that are not the numbers of classes: each must be in the training rows, and there must be as
 * many as classes. Their order gives their classes. */
static enum status order_labels(const struct job *job, struct reading *reading, bool numbers,
                                struct dataset *dataset, struct err *err)
{
    const int n = reading->num_labels;
    for (int i = 0; i < n; i++) {
        const struct label *label = &reading->labels[i];
        if (label->split != SPLIT_TRAIN)
            return err_set(err, ERR_INPUT,
                           "'%s' line %lld: label '%.60s' is not in the training rows",
                           reading->paths[label->split], (long long)label->line, label->name);
    }
    if (n != job->model.classes)
        return refuse_labels(reading, job, numbers, err);
    qsort(reading->labels, (size_t)n, sizeof *reading->labels, numbers ? by_number : by_name);
    dataset->class_names = calloc((size_t)n, sizeof *dataset->class_names);
    return dataset->class_names ? OK : err_nomem(err);
}

/* Give the labels of all rows their classes, and the classes their names. */
static enum status number_labels(const struct job *job, struct reading *reading,
                                 struct dataset *dataset, struct err *err)
{
    const int n = reading->num_labels;
    bool numbers = true, fit = true;
    int32_t *class_of = calloc((size_t)n, sizeof *class_of);
    enum status rc = class_of ? OK : err_nomem(err);
    for (int i = 0; i < n; i++) {
        long number;
        numbers = numbers && parse_whole(reading->labels[i].name, &number);
        fit = fit && numbers && number >= 0 && number < job->model.classes;
    }
    if (!fit)
        THEN(order_labels(job, reading, numbers, dataset, err));
    for (int i = 0; rc == OK && i < n; i++) {
        const struct label *label = &reading->labels[i];
        class_of[label->met] = fit ? (int32_t)atoi(label->name) : i;
        if (!fit && !(dataset->class_names[i] = strdup(label->name)))
            rc = err_nomem(err);
    }
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++) {
        struct pair_list *list = &reading->pairs->splits[split];
        for (int64_t i = 0; i < list->num_rows; i++)
            list->rows[i].label = class_of[list->rows[i].label];
        if (list->num_rows > 0)
            rc = dataset_note(dataset, err, "'%s': %lld %s rows", reading->paths[split],
                              (long long)list->num_rows, dataset_split_name((enum split)split));
    }
    THEN(dataset_note(dataset, err,
                      fit ? "labels are the numbers of %d classes"
                          : "labels are the names of %d classes, in their order",
                      dataset->classes));
    free(class_of);
    return rc;
}

enum status table_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    struct dataset got = {0};
    struct reading reading = {
        .columns = {job->data.text ? job->data.text : "text", job->data.text_pair,
                    job->data.label ? job->data.label : "label"}
    };
    enum status rc = text_pairs_open(job, &got, err);
    reading.pairs = got.ctx;
    THEN(find_files(job, &reading, err));
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++)
        if (reading.paths[split])
            rc = read_file(&reading, (enum split)split, err);
    THEN(number_labels(job, &reading, &got, err));
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++)
        got.num_samples[split] = reading.pairs->splits[split].num_rows;
    reading_clear(&reading);
    return dataset_hand_over(rc, &got, dataset);
}

/* --- texts without labels
 * ------------------------------------------------------------------------ */

/* Add the lines of a text, which are not empty, as a row each. */
static enum status read_lines(struct reading *reading, const char *path, struct err *err)
{
    char *text = NULL, *what = NULL;
    int64_t bytes = 0, line = 1;
    if (asprintf(&what, "'%s'", path) < 0)
        return err_nomem(err);
    free(reading->what);
    reading->what = what;
    enum status rc = data_read_text(path, MAX_BYTES, &text, &bytes, err);
    for (char *at = text, *end = text + bytes; rc == OK && at < end; line++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        struct delimited_field cells[NUM_COLUMNS] = {
            {at, (stop ? stop : end) - at}
        };
        if (cells[0].bytes > 0 && at[cells[0].bytes - 1] == '\r')
            cells[0].bytes--;
        if (cells[0].bytes > 0)
            rc = add_row(reading, cells, line, err);
        at = stop ? stop + 1 : end;
    }
    free(text);
    return rc;
}

enum status table_texts_open(const struct job *job, const char *const *paths, int num_paths,
                             const struct option_list *texts, const struct option_list *pairs,
                             int64_t *ends, struct dataset *dataset, struct err *err)
{
    const char *usual = job->data.kind == DATA_SST2 ? "sentence" : "text";
    struct dataset got = {0};
    struct reading reading = {
        .columns = {job->data.text ? job->data.text : usual, job->data.text_pair},
          .what = NULL
    };
    enum status rc = text_pairs_open(job, &got, err);
    reading.pairs = got.ctx;
    const struct pair_list *rows = rc == OK ? &reading.pairs->splits[SPLIT_TEST] : NULL;
    for (int i = 0; i < num_paths && rc == OK; i++) {
        const int64_t before = rows->num_rows;
        if (path_ends(paths[i], ".txt")) {
            reading.split = SPLIT_TEST;
            rc = read_lines(&reading, paths[i], err);
        } else if (!(reading.paths[SPLIT_TEST] = strdup(paths[i]))) {
            rc = err_nomem(err);
        } else {
            rc = read_file(&reading, SPLIT_TEST, err);
        }
        if (rc == OK && rows->num_rows == before)
            rc = err_set(err, ERR_INPUT, "'%s' has no rows", paths[i]);
        free(reading.paths[SPLIT_TEST]);
        reading.paths[SPLIT_TEST] = NULL;
        ends[i] = rows->num_rows;
    }
    for (int i = 0; texts && i < texts->count && rc == OK; i++) {
        struct delimited_field cells[NUM_COLUMNS] = {
            {(char *)texts->items[i], (int64_t)strlen(texts->items[i])}
        };
        if (pairs->count > 0)
            cells[COLUMN_PAIR] =
                (struct delimited_field){(char *)pairs->items[i], (int64_t)strlen(pairs->items[i])};
        free(reading.what);
        reading.what = strdup("--text");
        reading.split = SPLIT_TEST;
        rc = reading.what ? add_row(&reading, cells, i + 1, err) : err_nomem(err);
    }
    if (rc == OK)
        got.num_samples[SPLIT_TEST] = rows->num_rows;
    reading_clear(&reading);
    return dataset_hand_over(rc, &got, dataset);
}
