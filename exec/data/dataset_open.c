/* Opens the kind of dataset that a job names, and checks it against the job and the model.
 *
 * open_kind() calls the reader of the kind; a new kind is added there. check_fits() compares with
 * the model and wraps the dataset in a scaler if data.resize is set and the image side differs, or if
 * the weights have rules for pictures (preprocess.h).
 * picks_make() then chooses the samples that the job asks for. Read
 * dataset_open() first. */
#include "exec/data/dataset_open.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/data/picks.h"

enum { SHAPES_TRAIN = 10000, SHAPES_TEST = 2000 };

/* The context of a dataset that scales another one's images to the model's side. */
struct resized {
    struct dataset inner;
};

static enum status resized_sample(const struct dataset *dataset, enum split split, int64_t id,
                                  const struct sample_out *out, struct err *err)
{
    const struct dataset *inner = &((const struct resized *)dataset->ctx)->inner;
    struct sample_out wanted = *out;
    int from = inner->image, to = dataset->image;
    float *small = NULL;
    enum status rc;
    if (out->image) {
        small = malloc((size_t)inner->channels * (size_t)from * (size_t)from * sizeof *small);
        if (!small)
            return err_nomem(err);
        wanted.image = small;
    }
    rc = inner->sample(inner, split, id, &wanted, err);
    /* Bilinear, with pixel centres aligned: output i is the input at (i + 1/2) * from / to - 1/2.
     */
    for (int c = 0; rc == OK && small && c < inner->channels; c++) {
        const float *plane = small + (size_t)c * (size_t)from * (size_t)from;
        for (int y = 0; y < to; y++) {
            float sy = ((float)y + .5f) * (float)from / (float)to - .5f;
            sy = sy < 0 ? 0 : sy > (float)(from - 1) ? (float)(from - 1) : sy;
            int y0 = (int)sy, y1 = y0 + 1 < from ? y0 + 1 : y0;
            for (int x = 0; x < to; x++) {
                float sx = ((float)x + .5f) * (float)from / (float)to - .5f;
                sx = sx < 0 ? 0 : sx > (float)(from - 1) ? (float)(from - 1) : sx;
                int x0 = (int)sx, x1 = x0 + 1 < from ? x0 + 1 : x0;
                float fx = sx - (float)x0, fy = sy - (float)y0;
                float top = plane[y0 * from + x0] * (1 - fx) + plane[y0 * from + x1] * fx;
                float low = plane[y1 * from + x0] * (1 - fx) + plane[y1 * from + x1] * fx;
                out->image[((size_t)c * (size_t)to + (size_t)y) * (size_t)to + (size_t)x] =
                    top * (1 - fy) + low * fy;
            }
        }
    }
    free(small);
    return rc;
}

/* Sample by the rules of a checkpoint: the inner one's bytes, prepared. */
static enum status prepared_sample(const struct dataset *dataset, enum split split, int64_t id,
                                   const struct sample_out *out, struct err *err)
{
    const struct dataset *inner = &((const struct resized *)dataset->ctx)->inner;
    const size_t n = (size_t)inner->image * (size_t)inner->image;
    struct pixels pixels = {inner->image, inner->image, NULL};
    struct sample_out wanted = *out;
    if (!out->image)
        return inner->sample(inner, split, id, out, err);
    float *planes = malloc(3 * n * sizeof *planes);
    pixels.rgb = malloc(3 * n);
    wanted.image = planes;
    enum status rc = planes && pixels.rgb ? OK : err_nomem(err);
    THEN(inner->sample(inner, split, id, &wanted, err));
    for (size_t i = 0; rc == OK && i < 3 * n; i++) {
        const size_t c = i % 3;
        const float level = planes[c * n + i / 3] * inner->pixel_std[c] + inner->pixel_mean[c];
        pixels.rgb[i] = (unsigned char)lrintf(level * 255);
    }
    THEN(preprocess_apply(dataset->rules, &pixels, dataset->image, out->image, err));
    free(planes);
    free(pixels.rgb);
    return rc;
}

static void resized_clear(struct dataset *dataset)
{
    struct resized *resized = dataset->ctx;
    if (resized)
        dataset_clear(&resized->inner);
    free(resized);
}

/* A dataset over another one, whose pictures sample() turns into those of `image` pixels. */
static enum status wrap(struct dataset *dataset, int image,
                        enum status (*sample)(const struct dataset *, enum split, int64_t,
                                              const struct sample_out *, struct err *),
                        struct err *err)
{
    struct resized *resized = calloc(1, sizeof *resized);
    if (!resized)
        return err_nomem(err);
    resized->inner = *dataset;
    resized->inner.rules = NULL;
    dataset->image = image;
    dataset->ctx = resized;
    dataset->sample = sample;
    dataset->clear = resized_clear;
    return OK;
}

/* Pictures enter the model as the rules say. */
static enum status fit_rules(struct dataset *dataset, int image, struct err *err)
{
    enum status rc = preprocess_check_side(dataset->rules, image, err);
    if (rc == OK && dataset->kind != DATA_IMAGES)
        rc = wrap(dataset, image, prepared_sample, err);
    memcpy(dataset->pixel_mean, dataset->rules->mean, sizeof dataset->pixel_mean);
    memcpy(dataset->pixel_std, dataset->rules->deviation, sizeof dataset->pixel_std);
    THEN(dataset_note(dataset, err,
                      "pictures are prepared by the preprocessor_config.json of the weights"));
    return rc;
}

static enum status check_fits(const struct job *job, struct dataset *dataset, struct err *err)
{
    const struct model *model = &job->model;
    const char *name = dataset_job_name(job);
    const bool images = model_has_images(model);
    if (images && dataset->seq)
        return err_set(err, ERR_INPUT, "%s: model '%s' takes images, the data are text", name,
                       model->name);
    if (!images && dataset->image)
        return err_set(err, ERR_INPUT, "%s: model '%s' takes text, the data are images", name,
                       model->name);
    if (dataset->image) {
        if (dataset->channels != model->channels)
            return err_set(err, ERR_INPUT, "%s: model '%s' takes %d channels, the data have %d",
                           name, model->name, model->channels, dataset->channels);
        if (dataset->rules)
            return fit_rules(dataset, model->image, err);
        if (dataset->image != model->image) {
            if (!job->data.resize) {
                err_set(err, ERR_INPUT,
                        "%s: model '%s' takes images of %d pixels, the data have %d", name,
                        model->name, model->image, dataset->image);
                err_hint(err, "set model.image to %d, or data.resize to true", dataset->image);
                return ERR_INPUT;
            }
            enum status rc = wrap(dataset, model->image, resized_sample, err);
            if (rc != OK)
                return rc;
        }
    }
    if (model->task == TASK_CLASSIFY && dataset->classes > model->classes)
        return err_set(err, ERR_INPUT, "%s: model '%s' has %d classes, the data have %d", name,
                       model->name, model->classes, dataset->classes);
    return OK;
}

static enum status open_kind(const struct job *job, struct dataset *dataset, struct err *err)
{
    const int64_t train = job->data.train_samples > 0 ? job->data.train_samples : SHAPES_TRAIN;
    const int64_t test = job->data.test_samples > 0 ? job->data.test_samples : SHAPES_TEST;
    const bool reads_words = job->data.kind == DATA_SST2 || job->data.kind == DATA_SQUAD;
    if (job->data.kind != DATA_SYNTHETIC && !job->data.path)
        return err_set(err, ERR_INPUT, "%s: data.path%s missing", dataset_job_name(job),
                       reads_words && !job->data.vocab ? " and data.vocab are" : " is");
    switch (job->data.kind) {
    case DATA_SYNTHETIC:
    case DATA_IDX:
        if (dataset_valid_path(job))
            return err_set(err, ERR_INPUT, "%s: data.valid must be auto or test for this data.kind",
                           dataset_job_name(job));
        if (job->data.kind == DATA_IDX)
            return idx_open(job, dataset, err);
        if (model_has_images(&job->model))
            return shapes_open(job->model.image, train, test, job->train.seed, dataset, err);
        return phrases_open(&job->model, train, test, job->train.seed, dataset, err);
    case DATA_CIFAR10:
    case DATA_CIFAR100:
        return cifar_open(job->data.path, dataset_valid_path(job),
                          job->data.kind == DATA_CIFAR10 ? 10 : 100, dataset, err);
    case DATA_IMAGES:
        return images_open(job, dataset, err);
    case DATA_SST2:
        return tsv_open(job, dataset, err);
    case DATA_SQUAD:
        return squad_open(job, dataset, err);
    case DATA_TEXT:
        return text_open(job, dataset, err);
    case DATA_TABLE:
        return table_open(job, dataset, err);
    case DATA_KIND_COUNT:
        break;
    }
    return err_set(err, ERR_INPUT, "%s: data.kind is unknown", dataset_job_name(job));
}

/* The rules beside the weights, for pictures of three channels that are bytes. */
static enum status open_rules(const char *weights, struct dataset *dataset, struct err *err)
{
    struct preprocess rules = {0};
    enum status rc = OK;
    if (dataset->channels != 3 || dataset->pixel_std[0] == 0 || dataset->kind == DATA_SYNTHETIC)
        return OK;
    rc = preprocess_read(weights, &rules, err);
    if (rc == OK && rules.text && !(dataset->rules = malloc(sizeof rules)))
        rc = err_nomem(err);
    if (rc == OK && rules.text)
        *dataset->rules = rules;
    else
        preprocess_clear(&rules);
    return rc;
}

enum status dataset_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    return dataset_open_for(job, NULL, dataset, err);
}

enum status dataset_open_for(const struct job *job, const char *weights, struct dataset *dataset,
                             struct err *err)
{
    struct dataset got = {0};
    enum status rc = open_kind(job, &got, err);
    if (rc == OK) {
        got.kind = job->data.kind;
        got.seed = job->train.seed;
        got.augment = job->data.augment && got.image > 0;
        got.views = job->cache.views;
        rc = open_rules(weights, &got, err);
        THEN(check_fits(job, &got, err));
    }
    THEN(picks_make(job, &got, err));
    return dataset_hand_over(rc, &got, dataset);
}
