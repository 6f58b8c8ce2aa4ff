/* exec/data/dataset.h - where samples come from: files or the procedural set, one interface.
 *
 * A dataset turns (split, id) - and the epoch, where it masks tokens - into one sample, the same
 * bytes each time, in any order, from any thread. Opening checks every file as a whole (sizes,
 * label ranges), so that training does not stop in the middle over a bad record. */
#ifndef ELAPSE_EXEC_DATA_DATASET_H
#define ELAPSE_EXEC_DATA_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/job.h"
#include "partition/status.h"

enum split { SPLIT_TRAIN, SPLIT_TEST, SPLIT_COUNT };

/* Where one sample goes; fields that are NULL are not wanted. Sizes are the dataset's. */
struct sample_out {
    int64_t epoch;        /* of a training sample: which masks it shows */
    float *image;         /* [channels, image, image], normalised */
    int32_t *tokens;      /* [seq] */
    int32_t *token_types; /* [seq] */
    int32_t *length;      /* [1] */
    int32_t *labels;      /* [labels_per_sample] */
};

struct dataset {
    enum data_kind kind;
    int64_t num_samples[SPLIT_COUNT];
    int channels, image;    /* images; 0 for text */
    int seq;                /* text; 0 for images */
    int labels_per_sample;  /* 1 class, 2 span, seq for language models */
    int targets_per_sample; /* labels that count; 0: varies (masked tokens) */
    int classes;            /* labels are 0..classes-1 (the vocabulary for language models) */
    bool augment;           /* crop and flip training images */
    int64_t views;          /* training: epoch e sees what epoch e mod views saw; 0: its own */
    uint64_t seed;
    void *ctx; /* the kind's own, released by clear */
    /* One sample, without crop and flip. Reads at most the file it came from. */
    enum status (*sample)(const struct dataset *dataset, enum split split, int64_t id,
                          const struct sample_out *out, struct err *err);
    void (*clear)(struct dataset *dataset);
};

void dataset_clear(struct dataset *dataset); /* safe twice, and on a zeroed one */

/* One view of a sample: masked, cropped and flipped as (seed, epoch, id) says where it is a
 * training sample of a dataset that masks or augments; out->epoch is not read. scratch holds one
 * image and may be NULL where nothing is augmented. */
enum status dataset_view(const struct dataset *dataset, enum split split, int64_t epoch, int64_t id,
                         const struct sample_out *out, float *scratch, struct err *err);

/* The readers, one for each kind. Each fills *dataset as dataset_open() does, but without the
 * checks that all kinds share. */
enum status cifar_open(const char *dir, int classes, struct dataset *dataset, struct err *err);
enum status shapes_open(int image, int64_t num_train, int64_t num_test, uint64_t seed,
                        struct dataset *dataset, struct err *err);
enum status idx_open(const struct job *job, struct dataset *dataset, struct err *err);
enum status images_open(const struct job *job, struct dataset *dataset, struct err *err);
enum status tsv_open(const struct job *job, struct dataset *dataset, struct err *err);
enum status squad_open(const struct job *job, struct dataset *dataset, struct err *err);
enum status text_open(const struct job *job, struct dataset *dataset, struct err *err);
/* Token sequences made from a seed, for the text models: see phrases.c. */
enum status phrases_open(const struct model *model, int64_t num_train, int64_t num_test,
                         uint64_t seed, struct dataset *dataset, struct err *err);

/* Shared by the readers: the job's name for messages; whether the model has the family and the task
 * that the data are for, and the job names a vocabulary file; whether the model's table has room
 * for a tokenizer of `size` pieces. */
const char *dataset_job_name(const struct job *job);
enum status dataset_text_model(const struct job *job, enum model_family family,
                               enum model_task task, struct err *err);
enum status dataset_vocab_fits(const struct job *job, int size, struct err *err);

#endif
