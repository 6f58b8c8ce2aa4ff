/* `elapse predict` (predict_request.h). It is an evaluation whose hook keeps the probabilities of every
 * sample; rank 0 gathers and prints them. Read predict_request_run() first. */
#include "exec/serve/predict_request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/data/dataset_open.h"
#include "exec/run/trainer_run.h"
#include "exec/weights/hf_classes.h"
#include "exec/weights/weights_files.h"
#include "partition/base/arrays.h"
#include "profiles/base/whole_file.h"
#include "profiles/json/json.h"

/* The results that one rank keeps: for each sample its id, its label and its probabilities. */
struct kept {
    int classes;
    int64_t count, room;
    char *rows; /* owned; row_bytes() each */
};
struct row {
    int64_t id;
    int32_t label, class;  /* label: -1 unless the samples have labels; class: the likeliest */
    float probabilities[]; /* [classes] */
};

static size_t row_bytes(int classes)
{
    const size_t bytes = sizeof(struct row) + (size_t)classes * sizeof(float);
    return (bytes + 7) & ~(size_t)7;
}

static struct row *row_at(const struct kept *kept, int64_t i)
{
    return (struct row *)(kept->rows + (size_t)i * row_bytes(kept->classes));
}

/* A runtime_eval_hook with a struct kept as ctx. */
static enum status keep_block(void *ctx, struct stage *stage, const struct sample_block *block,
                              struct err *err)
{
    struct kept *kept = ctx;
    const int64_t n = block->num_samples;
    const int classes = kept->classes;
    float *all = malloc((size_t)(n > 0 ? n : 1) * (size_t)classes * sizeof *all);
    enum status rc =
        all && array_grow(&kept->rows, kept->count + n, &kept->room, row_bytes(classes))
            ? OK
            : err_nomem(err);
    THEN(stage_class_probabilities(stage, block, all, err));
    for (int64_t i = 0; rc == OK && i < n * classes; i++)
        if (!isfinite(all[i]))
            rc = err_set(err, ERR_INFEASIBLE,
                         "the logits of sample %lld are not finite: the weights overflow",
                         (long long)block->ids[i / classes]);
    for (int64_t i = 0; rc == OK && i < n; i++) {
        struct row *row = row_at(kept, kept->count++);
        row->id = block->ids[i];
        row->label = block->labels[i];
        row->class = 0;
        memcpy(row->probabilities, all + i * classes, (size_t)classes * sizeof *all);
        for (int c = 1; c < classes; c++)
            if (row->probabilities[c] > row->probabilities[row->class])
                row->class = c;
    }
    free(all);
    return rc;
}

/* Bring the rows of all ranks to rank 0. */
static enum status gather(const struct comm *comm, struct kept *kept, struct err *err)
{
    void *all = NULL;
    int64_t *sizes = NULL, bytes = 0;
    const size_t each = row_bytes(kept->classes);
    const enum status rc =
        comm_gather(comm->all, kept->rows, kept->count * (int64_t)each, &all, &sizes, err);
    if (rc == OK && comm->rank == 0) {
        for (int r = 0; r < comm->size; r++)
            bytes += sizes[r];
        free(kept->rows);
        kept->rows = all;
        kept->count = bytes / (int64_t)each;
        all = NULL;
    }
    free(all);
    free(sizes);
    return rc;
}

static int by_id(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* --- rows ------------------------------------------------------------------------------------- */

struct output {
    FILE *file;
    const struct predict_request *q;
    const struct dataset *samples;
    bool labelled; /* the samples have labels */
    int classes, top;
};

/* The name of a class: a label of the data, or its number. */
static const char *class_name(const struct output *out, int class, char number[16])
{
    if (out->samples->class_names && class < out->samples->classes)
        return out->samples->class_names[class];
    snprintf(number, 16, "%d", class);
    return number;
}

/* The source of a sample, as "cat.png", "reviews.csv:3", "text 1" or "test 17". */
static const char *place_name(const struct output *out, int64_t id, char *text, size_t size)
{
    int64_t row = id + 1;
    const char *file = NULL;
    if (!out->labelled)
        file = inputs_place(out->samples, &out->q->inputs, id, &row);
    else if (out->samples->file)
        return out->samples->file(out->samples, SPLIT_TEST, id);
    if (file && row == 0)
        return file;
    snprintf(text, size, "%s%s%lld",
             file            ? file
             : out->labelled ? "test"
                             : "text",
             file ? ":" : " ", (long long)row);
    return text;
}

/* The classes of a row, the likeliest first, in order[top]. O(classes * top). */
static void rank_classes(const struct output *out, const struct row *row, int *order)
{
    for (int i = 0; i < out->top; i++) {
        order[i] = -1;
        for (int c = 0; c < out->classes; c++) {
            bool taken = false;
            for (int k = 0; k < i; k++)
                taken |= order[k] == c;
            if (!taken && (order[i] < 0 || row->probabilities[c] > row->probabilities[order[i]]))
                order[i] = c;
        }
    }
}

static void put_cell(FILE *file, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, file);
        return;
    }
    putc('"', file);
    for (; *text; text++)
        fputs(*text == '"' ? "\"\"" : (char[]){*text, 0}, file);
    putc('"', file);
}

static void put_head(const struct output *out)
{
    if (out->q->form != PREDICT_CSV)
        return;
    fprintf(out->file, "input,class,name,probability%s", out->labelled ? ",label" : "");
    for (int c = 0; out->q->top == 0 && c < out->classes; c++) {
        char number[16], column[128];
        snprintf(column, sizeof column, "p(%s)", class_name(out, c, number));
        putc(',', out->file);
        put_cell(out->file, column);
    }
    putc('\n', out->file);
}

static void put_csv(const struct output *out, const struct row *row, const char *place)
{
    char number[16];
    put_cell(out->file, place);
    fprintf(out->file, ",%d,", row->class);
    put_cell(out->file, class_name(out, row->class, number));
    fprintf(out->file, ",%.6g", (double)row->probabilities[row->class]);
    if (out->labelled)
        fprintf(out->file, ",%d", row->label);
    for (int c = 0; out->q->top == 0 && c < out->classes; c++)
        fprintf(out->file, ",%.6g", (double)row->probabilities[c]);
    putc('\n', out->file);
}

static enum status put_json(const struct output *out, const struct row *row, const char *place,
                            const int *order, struct err *err)
{
    char number[16];
    struct json *root = json_object_new();
    json_add_string(root, "input", place);
    json_add_int(root, "class", row->class);
    json_add_string(root, "name", class_name(out, row->class, number));
    json_add_double(root, "probability", (double)row->probabilities[row->class]);
    if (out->labelled)
        json_add_int(root, "label", row->label);
    struct json *classes = json_add_array(root, "classes");
    for (int i = 0; i < out->top; i++) {
        struct json *one = json_add_object(classes, NULL);
        json_add_int(one, "class", order[i]);
        json_add_string(one, "name", class_name(out, order[i], number));
        json_add_double(one, "probability", (double)row->probabilities[order[i]]);
    }
    const enum status rc = json_write(root, false, out->file, err);
    json_free(root);
    return rc;
}

static void put_text(const struct output *out, const struct row *row, const char *place,
                     const int *order)
{
    char number[16];
    fprintf(out->file, "%s", place);
    for (int i = 0; i < out->top && i < (out->q->top > 0 ? out->top : 3); i++)
        fprintf(out->file, "%s%s %.1f %%", i ? ", " : "  ", class_name(out, order[i], number),
                100 * (double)row->probabilities[order[i]]);
    if (out->labelled)
        fprintf(out->file, "%s%s", row->label == row->class ? "" : "  is ",
                row->label == row->class ? "" : class_name(out, row->label, number));
    putc('\n', out->file);
}

static enum status put_rows(const struct output *out, const struct kept *kept, struct err *err)
{
    int *order = malloc((size_t)out->top * sizeof *order);
    enum status rc = order ? OK : err_nomem(err);
    if (rc == OK)
        put_head(out);
    for (int64_t i = 0; rc == OK && i < kept->count; i++) {
        const struct row *row = row_at(kept, i);
        char text[512];
        const char *place = place_name(out, row->id, text, sizeof text);
        if (out->q->form != PREDICT_CSV)
            rank_classes(out, row, order);
        if (out->q->form == PREDICT_JSON)
            rc = put_json(out, row, place, order, err);
        else if (out->q->form == PREDICT_CSV)
            put_csv(out, row, place);
        else
            put_text(out, row, place, order);
    }
    free(order);
    return rc;
}

static enum status print_rows(struct output *out, const struct kept *kept, struct err *err)
{
    struct atomic_file file = {0};
    out->file = stdout;
    if (!out->q->out)
        return put_rows(out, kept, err);
    enum status rc = output_open(&file, out->q->out, err);
    if (rc != OK)
        return rc;
    out->file = file.out;
    rc = put_rows(out, kept, err);
    return atomic_close(&file, rc, err);
}

enum status predict_request_run(const struct comm *comm, const struct cores *cores,
                                const struct job *job, struct predict_request *q, struct err *err)
{
    const bool labelled = q->inputs.num_paths + q->inputs.texts->count == 0;
    struct dataset samples = {0};
    struct kept kept = {.classes = job->model.classes};
    struct json *summary = NULL;
    enum status rc = OK;
    if (job->model.task != TASK_CLASSIFY)
        rc = err_set(err, ERR_INPUT, "model '%s' is not a classifier", job->model.name);
    if (rc == OK && q->out && comm->rank == 0)
        rc = output_check(q->out, err);
    THEN(labelled ? dataset_open_for(job, q->weights, &samples, err)
                  : inputs_open(job, q->weights, &q->inputs, &samples, err));
    if (rc == OK && !samples.class_names && weights_are_at(q->weights)) /* the data have none */
        rc = hf_class_names(q->weights, samples.classes, &samples.class_names, err);
    rc = comm_agree(comm, rc, err);
    const struct trainer_options options = {.init = q->weights,
                                            .adapter = q->adapter,
                                            .db = q->db,
                                            .samples = &samples,
                                            .on_eval = keep_block,
                                            .on_eval_ctx = &kept};
    THEN(trainer_eval(comm, cores, job, &options, &summary, err));
    THEN(gather(comm, &kept, err));
    if (rc == OK && comm->rank == 0) {
        const char *note = json_string(json_get(summary, "class_note"));
        if (note && *note)
            fprintf(stderr, "note: %s\n", note);
        struct output out = {.q = q,
                             .samples = &samples,
                             .labelled = labelled,
                             .classes = kept.classes,
                             .top =
                                 q->top > 0 && q->top < kept.classes ? (int)q->top : kept.classes};
        qsort(kept.rows, (size_t)kept.count, row_bytes(kept.classes), by_id);
        rc = print_rows(&out, &kept, err);
        if (rc == OK && labelled && kept.count > 0)
            fprintf(stderr, "accuracy %.2f %% over %lld test samples\n",
                    100 * json_number(json_get(summary, "eval_accuracy")), (long long)kept.count);
    }
    json_free(summary);
    free(kept.rows);
    inputs_clear(&q->inputs);
    dataset_clear(&samples);
    return rc;
}
