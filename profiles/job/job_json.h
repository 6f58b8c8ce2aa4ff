/* profiles/job/job_json.h - jobs, models and clusters from files, presets and overrides. */
#pragma once

#include "partition/plan/job.h"
#include "profiles/json/fields.h"
#include "profiles/json/json.h"

/* Load a job file, then apply num_overrides texts "a.b=v" in order. ERR_INPUT: an unknown key, a
 * wrong type, a value out of range; the error names file, key, value and limit, or the nearest key.
 * Paths are relative to the file. Data sets are not opened. *job must be zeroed or cleared; the
 * caller owns it and releases it with job_clear(). job->json holds the resolved job; loading that
 * text gives an equal job. path NULL: an empty job that the overrides fill; errors call it "the
 * options", and its paths are relative to the current folder. There train.dtype and
 * train.optimizer.kind that are not given are what text models are trained with on devices with units
 * for 2-byte numbers: bf16 (fp16 where a device has no other units) and adamw. job->assumed says so. */
enum status job_load(const char *path, const char *const *overrides, int num_overrides,
                     struct job *job, struct err *err);

/* The absolute folder of a file. Fresh (free() it); NULL: there is none. */
char *folder_of(const char *path);

/* Like job_load(), from a JSON tree that is only read. `what` names it in errors, dir is the folder
 * that relative paths start from (NULL: the current one). */
enum status job_from_json(const struct json *root, const char *what, const char *dir,
                          const char *const *overrides, int num_overrides, struct job *job,
                          struct err *err);

/* Like job_load(), but only for job_changed(): nothing of the job but its text, path and dir is set,
 * and its keys are not checked. */
enum status job_open(const char *path, const char *const *overrides, int num_overrides,
                     struct job *job, struct err *err);

/* The job with more overrides, from its own text: no file is read but those that it names. *changed
 * must be zeroed or cleared. Errors of job_load(). */
enum status job_changed(const struct job *job, const char *const *overrides, int num_overrides,
                        struct job *changed, struct err *err);

/* Like job_changed(), but the resolved text, job->json, stays NULL: writing it takes longer than a small
 * step takes to simulate. job NULL: one that the overrides fill, as in job_load(). */
enum status job_point(const struct job *job, const char *const *overrides, int num_overrides,
                      struct job *point, struct err *err);

/* Read a job that a run, a checkpoint or a plan file holds. Older versions wrote times as whole ns
 * under keys that do not name a unit; here they are read as that. Otherwise like job_from_json()
 * without a folder. */
enum status job_from_record(const struct json *root, const char *what, const char *const *overrides,
                            int num_overrides, struct job *job, struct err *err);

/* The tables of keys that the readers use, for help texts. */
enum key_table {
    KEYS_JOB,
    KEYS_CHAIN,      /* a model file with items */
    KEYS_ITEM,       /* of its items */
    KEYS_SKIP,       /* of its skips */
    KEYS_CLUSTER,    /* a cluster file, or a job's cluster */
    KEYS_DEVICE,     /* of its devices */
    KEYS_COLLECTIVE, /* of its collective, or of one kind of collective */
    KEYS_KIND,       /* of a kind of device */
};
void keys_each(enum key_table table, key_visitor *visit, void *ctx);

struct count_limits {
    int low, high;
    const char *unit; /* "layers", for errors */
};

/* Read an array of a job or of the command line: whole numbers within limits, or gradient norms,
 * num_layers for each of *num_epochs epochs. The result replaces *counts or *norms, which are
 * freed. source->prefix is the key of the array. ERR_INPUT (file, place, limit, value), ERR_NOMEM.
 */
enum status counts_from_json(const struct json *array, const struct fields_source *source,
                             const struct count_limits *limits, int **counts, int *num,
                             struct err *err);
enum status norms_from_json(const struct json *array, const struct fields_source *source,
                            int num_layers, double **norms, int *num_epochs, struct err *err);
/* Append gradient norms to a JSON array, in the form that the reader takes. */
void norms_to_json(struct json *array, const double *norms, int64_t num_epochs, int num_layers);

/* Number of samples of an epoch (train) or of an evaluation, without reading the data, for plan and
 * sim. It is the job's number, else the published size of the data set; 0 if the kind has no
 * published size. */
int64_t job_num_samples(const struct job *job, bool train);

/* Load a MODEL text of the command line: a preset with modifiers, or a JSON file (ours, or a
 * Hugging Face config.json). Load a CLUSTER text: a preset, NODESxDEVICES, a JSON file, or the object
 * itself ('{"preset": "a100-2x8", "uplink": "5GBps"}'); "this-machine" asks the operating system for
 * cores and memory. *model and *cluster must be zeroed or cleared. */
enum status model_load(const char *text, struct model *model, struct err *err);
enum status cluster_load(const char *text, struct cluster *cluster, struct err *err);
/* Read the object that a CLUSTER text is or names. *name is what messages call it: the text of a file's
 * path, or "CLUSTER". Both are NULL for other texts. The caller frees *root. */
enum status cluster_text_json(const char *text, struct json **root, const char **name,
                              struct err *err);

/* Load a model or cluster from the value of a file's key, source->prefix: a MODEL or CLUSTER text
 * (file names relative to source->dir), or an object. elem_bytes is the size of an activation
 * element, whatever the model's text says (0: what it says, or the default). */
enum status model_from_json(const struct json *value, const struct fields_source *source,
                            int elem_bytes, struct model *model, struct err *err);
enum status cluster_from_json(const struct json *value, const struct fields_source *source,
                              struct cluster *cluster, struct err *err);
