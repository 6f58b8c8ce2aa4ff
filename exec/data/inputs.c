#include "exec/data/inputs.h"

#include <stdlib.h>

#include "exec/data/dataset_open.h"
#include "partition/model/model.h"

/* An epoch must hold a step of the job. Nothing reads its samples. */
#define UNREAD_SAMPLES (INT64_C(1) << 32)

/* Open pictures; `like` is the training data. */
static enum status open_pictures(const struct job *job, const struct inputs *inputs,
                                 struct dataset *like, struct dataset *dataset, struct err *err)
{
    if (inputs->texts->count > 0)
        return err_set(err, ERR_INPUT, "model '%s' takes pictures, not texts", job->model.name);
    return pictures_open(like, job->model.image, inputs->paths, inputs->num_paths, dataset, err);
}

enum status inputs_open(const struct job *job, const char *weights, struct inputs *inputs,
                        struct dataset *dataset, struct err *err)
{
    const bool pictures = model_has_images(&job->model);
    struct dataset like = {0}, got = {0};
    if (job->model.task != TASK_CLASSIFY)
        return err_set(err, ERR_INPUT, "model '%s' is not a classifier", job->model.name);
    if (inputs->pairs->count > 0 && inputs->pairs->count != inputs->texts->count)
        return err_set(err, ERR_INPUT, "--text-pair must be given once for each --text");
    inputs->ends = calloc((size_t)inputs->num_paths + 1, sizeof *inputs->ends);
    enum status rc = inputs->ends ? OK : err_nomem(err);
    /* GLUE's classes are numbers, and its preprocessing needs no training rows. */
    if (rc == OK && (pictures || job->data.kind == DATA_TABLE))
        rc = dataset_open_for(job, weights, &like, err);
    THEN(pictures ? open_pictures(job, inputs, &like, &got, err)
                  : table_texts_open(job, inputs->paths, inputs->num_paths, inputs->texts,
                                     inputs->pairs, inputs->ends, &got, err));
    if (rc == OK) {
        got.kind = job->data.kind;
        got.class_names = like.class_names;
        like.class_names = NULL;
        got.num_samples[SPLIT_TRAIN] = UNREAD_SAMPLES;
        *dataset = got;
    }
    dataset_clear(&like);
    return rc;
}

void inputs_clear(struct inputs *inputs)
{
    free(inputs->ends);
    inputs->ends = NULL;
}

const char *inputs_place(const struct dataset *dataset, const struct inputs *inputs, int64_t id,
                         int64_t *row)
{
    *row = 0;
    if (dataset->file)
        return dataset->file(dataset, SPLIT_TEST, id);
    int path = 0;
    while (path < inputs->num_paths && id >= inputs->ends[path])
        path++;
    *row = id + 1 - (path > 0 ? inputs->ends[path - 1] : 0);
    return path < inputs->num_paths ? inputs->paths[path] : NULL;
}
