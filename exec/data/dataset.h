/* exec/data/dataset.h - one interface over all sources of samples: files and the procedural sets.
 *
 * A dataset turns (split, id), and the epoch where it masks tokens, into one sample. The bytes are
 * the same every time, in any order of calls and from any thread. Opening a dataset checks every
 * file as a whole (sizes, label ranges), so that training does not stop in the middle over a bad
 * record. Pictures take long, so the ranks check them together after that (exec/run/data_check.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/data/preprocess.h"
#include "exec/data/tokenizer.h"
#include "partition/base/options.h"
#include "partition/plan/job.h"
#include "partition/base/status.h"

/* SPLIT_VALID: the samples that evidence about freezing is measured on; empty if the job measures
 * none. */
enum split { SPLIT_TRAIN, SPLIT_TEST, SPLIT_VALID, SPLIT_COUNT };

/* The samples of a source (a split as its files hold it) that a split uses. */
struct picks {
    bool chosen; /* false: all samples of the source that the split is named after */
    enum split source;
    int64_t first; /* sample i is sample first + i of the source, or ids[i] if there are ids */
    int64_t *ids;  /* owned, ascending; NULL: none */
};

/* Destination of one sample. Fields that are NULL are not written. Their sizes follow from the
 * dataset. */
struct sample_out {
    int64_t epoch;        /* of a training sample: the epoch selects the masks */
    float *image;         /* [channels, image, image], normalised */
    int32_t *tokens;      /* [seq] */
    int32_t *token_types; /* [seq]; of causal models: where in the sample the token's document
                             begins */
    int32_t *length;      /* [1] */
    int32_t *labels;      /* [labels_per_sample] */
};

struct dataset {
    enum data_kind kind;
    int64_t num_samples[SPLIT_COUNT]; /* while a reader opens: of the sources */
    struct picks picks[SPLIT_COUNT];
    int channels, image;    /* of images; 0 for text */
    int seq;                /* of text; 0 for images */
    int labels_per_sample;  /* 1: a class; 2: a span; seq: language models */
    int targets_per_sample; /* labels of a sample that enter the loss; 0: varies (masked tokens) */
    bool packed;            /* samples hold several documents: every stage reads token_types */
    int classes;            /* labels are 0..classes-1; for language models the vocabulary */
    /* Images: a pixel enters the model as (byte / 255 - mean) / std. 0: no images of bytes. */
    float pixel_mean[3], pixel_std[3];
    struct preprocess
        *rules;         /* owned: how a checkpoint's pictures are prepared; NULL: by the job */
    bool lower_case;    /* text by WordPiece: the vocabulary is uncased */
    char **class_names; /* owned, [classes]; NULL: classes have numbers only */
    char *notes;        /* owned: lines for people about what was read; NULL: none */
    bool augment;       /* crop and flip training images */
    int64_t views;      /* training: epoch e uses the masks and crops of epoch e mod views; 0: every
                      epoch has its own */
    uint64_t seed;
    void *ctx; /* private to the kind; clear() releases it */
    /* Write one sample of a source, without crop and flip. Reads at most the file that holds it. */
    enum status (*sample)(const struct dataset *dataset, enum split source, int64_t id,
                          const struct sample_out *out, struct err *err);
    /* Samples of one group are neighbours and depend on each other (windows of one text), so a
     * choice takes whole groups. Returns the group of a sample; ids ascend with it from 0. NULL:
     * every sample is a group. */
    int64_t (*group)(const struct dataset *dataset, enum split source, int64_t id);
    /* For data sets in which every sample is a file of its own that opening does not read: a
     * sample's path, and whether sample() can read it. NULL: opening has checked everything.
     * Errors of check(): ERR_SYSTEM (missing), ERR_INPUT (damaged, or not what the job asks
     * for), ERR_NOMEM. */
    const char *(*file)(const struct dataset *dataset, enum split source, int64_t id);
    enum status (*check)(const struct dataset *dataset, enum split source, int64_t id,
                         struct err *err);
    void (*clear)(struct dataset *dataset);
};

void dataset_clear(struct dataset *dataset); /* safe twice, and on a zeroed one */
/* End an open: *got becomes *dataset if rc is OK, else it is cleared. Returns rc. */
enum status dataset_hand_over(enum status rc, struct dataset *got, struct dataset *dataset);

/* The source's id of a sample, and its source. */
int64_t dataset_source(const struct dataset *dataset, enum split split, int64_t id,
                       enum split *source);

/* Add a line to the notes. ERR_NOMEM. */
enum status dataset_note(struct dataset *dataset, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Write one sample as an epoch sees it. A training sample is masked, or cropped and flipped,
 * according to (seed, epoch, id), if the dataset does so. out->epoch is ignored. scratch holds one
 * image; it may be NULL if the dataset does not augment. */
enum status dataset_view(const struct dataset *dataset, enum split split, int64_t epoch, int64_t id,
                         const struct sample_out *out, float *scratch, struct err *err);

/* The readers, one for each kind. Each fills *dataset as dataset_open() does, but without the
 * checks that all kinds share. */
enum status cifar_open(const char *dir, const char *valid, int classes, struct dataset *dataset,
                       struct err *err); /* valid: data.valid's file, or NULL */
enum status shapes_open(int image, int64_t num_train, int64_t num_test, uint64_t seed,
                        struct dataset *dataset, struct err *err);
enum status idx_open(const struct job *job, struct dataset *dataset, struct err *err);
enum status images_open(const struct job *job, struct dataset *dataset, struct err *err);
enum status tsv_open(const struct job *job, struct dataset *dataset, struct err *err);
enum status table_open(const struct job *job, struct dataset *dataset, struct err *err);
/* Open texts without labels as the test split: those of the files (tables, or .txt with a text a
 * line), then those of the options. ends[i] becomes the number of samples up to the end of path i. */
enum status table_texts_open(const struct job *job, const char *const *paths, int num_paths,
                             const struct option_list *texts, const struct option_list *pairs,
                             int64_t *ends, struct dataset *dataset, struct err *err);
/* Open pictures without labels as the test split, prepared as those of `like` are, whose rules move into
 * *dataset. */
enum status pictures_open(struct dataset *like, int side, const char *const *paths, int num_paths,
                          struct dataset *dataset, struct err *err);
enum status squad_open(const struct job *job, struct dataset *dataset, struct err *err);
enum status text_open(const struct job *job, struct dataset *dataset, struct err *err);
/* Token sequences made from a seed, for text models (see phrases.c). */
enum status phrases_open(const struct model *model, int64_t num_train, int64_t num_test,
                         uint64_t seed, struct dataset *dataset, struct err *err);

/* Shared by the readers: the job's name for messages; names of splits; whether the model is a BERT
 * with the task that the data are for, and the job names a vocabulary file; whether the model's
 * table has room for a tokenizer of `size` pieces. */
const char *dataset_job_name(const struct job *job);
/* "training", "test", "valid". */
const char *dataset_split_name(enum split split);
/* Whether a reader is to fill this source: the valid split only if data.valid is a path. */
bool dataset_reads(const struct job *job, enum split source);
/* data.valid, if it is a path. Else NULL. */
const char *dataset_valid_path(const struct job *job);
/* Call read() for each source that dataset_reads(): with the file names[split] of the folder data.path,
 * or with data.valid. It fills that split of *dataset. ctx is the caller's. */
typedef enum status split_reader(const struct job *job, struct dataset *dataset, enum split split,
                                 const char *path, void *ctx, struct err *err);
enum status dataset_each_split(const struct job *job, struct dataset *dataset,
                               const char *const names[SPLIT_COUNT], split_reader *read, void *ctx,
                               struct err *err);
enum status dataset_text_model(const struct job *job, enum model_task task, struct err *err);
enum status dataset_vocab_fits(const struct job *job, int size, struct err *err);

/* The tokenizer of a BERT, and its special tokens; mask -1: there is none. */
struct bert_tokens {
    struct tokenizer *tokenizer; /* owned */
    int32_t pad, cls, sep, mask;
};
/* Open data.vocab as WordPiece, by data.lower_case and data.special_tokens, and check that it fits
 * the model. ERR_INPUT: it is no WordPiece, or a special token is missing; errors of
 * tokenizer_open(). The caller frees the tokenizer. */
enum status dataset_wordpiece(const struct job *job, struct bert_tokens *bert, struct err *err);
