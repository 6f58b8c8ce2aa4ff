/* Checks that several readers share, and views of samples: dataset_view() crops and flips training
 * images (dataset.h). */
#include "exec/data/dataset.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/data/counter.h"

const char *dataset_job_name(const struct job *job)
{
    return job->path ? job->path : job->name;
}

const char *dataset_split_name(enum split split)
{
    static const char *const names[SPLIT_COUNT] = {"training", "test", "valid"};
    return names[split];
}

bool dataset_reads(const struct job *job, enum split source)
{
    return source != SPLIT_VALID || dataset_valid_path(job);
}

const char *dataset_valid_path(const struct job *job)
{
    return job_valid_source(job) == VALID_PATH ? job->data.valid : NULL;
}

int64_t dataset_source(const struct dataset *dataset, enum split split, int64_t id,
                       enum split *source)
{
    const struct picks *picks = &dataset->picks[split];
    *source = picks->chosen ? picks->source : split;
    return picks->ids ? picks->ids[id] : picks->first + id;
}

enum status dataset_note(struct dataset *dataset, struct err *err, const char *format, ...)
{
    char *line = NULL, *notes = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&line, format, args) < 0)
        line = NULL;
    va_end(args);
    if (!line)
        return err_nomem(err);
    if (asprintf(&notes, "%s%s\n", dataset->notes ? dataset->notes : "", line) < 0)
        notes = NULL;
    free(line);
    if (!notes)
        return err_nomem(err);
    free(dataset->notes);
    dataset->notes = notes;
    return OK;
}

enum status dataset_each_split(const struct job *job, struct dataset *dataset,
                               const char *const names[SPLIT_COUNT], split_reader *read, void *ctx,
                               struct err *err)
{
    enum status rc = OK;
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++) {
        char *path = NULL;
        if (!dataset_reads(job, split))
            continue;
        if (split == SPLIT_VALID)
            path = strdup(job->data.valid);
        else if (asprintf(&path, "%s/%s", job->data.path, names[split]) < 0)
            path = NULL;
        rc = path ? read(job, dataset, split, path, ctx, err) : err_nomem(err);
        free(path);
    }
    return rc;
}

enum status dataset_text_model(const struct job *job, enum model_task task, struct err *err)
{
    static const char *const tasks[] = {"classify", "qa", "mlm", "causal-lm"};
    if (job->model.family != FAMILY_BERT || job->model.task != task)
        return err_set(
            err, ERR_INPUT, "%s: the data are for a %s model with task %s, model is '%s'",
            dataset_job_name(job), model_family_name(FAMILY_BERT), tasks[task], job->model.name);
    if (!job->data.vocab) {
        err_set(err, ERR_INPUT, "%s: data.vocab is missing", dataset_job_name(job));
        err_hint(err, "the vocab.txt that the model's weights came with");
        return ERR_INPUT;
    }
    return OK;
}

enum status dataset_vocab_fits(const struct job *job, int size, struct err *err)
{
    if (size <= job->model.vocab)
        return OK;
    return err_set(err, ERR_INPUT, "%s: '%s' has %d tokens, model '%s' has room for %d",
                   dataset_job_name(job), job->data.vocab ? job->data.vocab : "bytes", size,
                   job->model.name, job->model.vocab);
}

enum status dataset_wordpiece(const struct job *job, struct bert_tokens *bert, struct err *err)
{
    static const char *const names[] = {"[PAD]", "[CLS]", "[SEP]", "[MASK]"};
    struct bert_tokens got = {0};
    int32_t *const ids[] = {&got.pad, &got.cls, &got.sep, &got.mask};
    enum status rc =
        tokenizer_open(job->data.vocab, NULL, job->data.lower_case, &got.tokenizer, err);
    if (rc == OK && !tokenizer_is_wordpiece(got.tokenizer))
        rc = err_set(err, ERR_INPUT, "%s: '%s' is not a WordPiece vocabulary",
                     dataset_job_name(job), job->data.vocab);
    for (int i = 0; rc == OK && i < 4; i++) {
        *ids[i] = tokenizer_id(got.tokenizer, names[i]);
        if (i < 3 && *ids[i] < 0)
            rc = err_set(err, ERR_INPUT, "'%s' is not a WordPiece vocabulary: %s is missing",
                         job->data.vocab, names[i]);
    }
    THEN(dataset_vocab_fits(job, tokenizer_size(got.tokenizer), err));
    if (rc == OK) {
        tokenizer_find_special(got.tokenizer, job->data.special_tokens);
        *bert = got;
    } else {
        tokenizer_free(got.tokenizer);
    }
    return rc;
}

void dataset_clear(struct dataset *dataset)
{
    if (dataset->clear)
        dataset->clear(dataset);
    for (int split = 0; split < SPLIT_COUNT; split++)
        free(dataset->picks[split].ids);
    for (int i = 0; dataset->class_names && i < dataset->classes; i++)
        free(dataset->class_names[i]);
    free(dataset->class_names);
    free(dataset->notes);
    if (dataset->rules)
        preprocess_clear(dataset->rules);
    free(dataset->rules);
    *dataset = (struct dataset){0};
}

enum status dataset_hand_over(enum status rc, struct dataset *got, struct dataset *dataset)
{
    if (rc == OK)
        *dataset = *got;
    else
        dataset_clear(got);
    return rc;
}

/* Pads the image by an eighth of the side with the mean (0 after normalisation), crops it at a
 * random place, and mirrors it with probability 1/2: the usual recipe for CIFAR (He et al. 2016,
 * section 4.2). */
static void augment_image(const float *src, float *dst, int channels, int image, uint64_t key)
{
    int pad = image / 8;
    int dy = (int)(counter_bits(key, 0) % (uint64_t)(2 * pad + 1)) - pad;
    int dx = (int)(counter_bits(key, 1) % (uint64_t)(2 * pad + 1)) - pad;
    bool flip = counter_bits(key, 2) & 1;
    for (int c = 0; c < channels; c++)
        for (int y = 0; y < image; y++)
            for (int x = 0; x < image; x++, dst++) {
                int sy = y + dy, sx = (flip ? image - 1 - x : x) + dx;
                bool inside = sy >= 0 && sy < image && sx >= 0 && sx < image;
                *dst =
                    inside
                        ? src[((size_t)c * (size_t)image + (size_t)sy) * (size_t)image + (size_t)sx]
                        : 0.0f;
            }
}

enum status dataset_view(const struct dataset *dataset, enum split split, int64_t epoch, int64_t id,
                         const struct sample_out *out, float *scratch, struct err *err)
{
    bool augment = dataset->augment && split == SPLIT_TRAIN && out->image && scratch;
    struct sample_out plain = *out;
    enum split source;
    enum status rc;
    id = dataset_source(dataset, split, id, &source);
    if (dataset->views > 0)
        epoch %= dataset->views;
    plain.epoch = split == SPLIT_TRAIN ? epoch : 0;
    if (augment)
        plain.image = scratch;
    rc = dataset->sample(dataset, source, id, &plain, err);
    if (rc == OK && augment)
        augment_image(scratch, out->image, dataset->channels, dataset->image,
                      counter_key(dataset->seed ^ 0x61756772u, (uint64_t)epoch, (uint64_t)id));
    return rc;
}
