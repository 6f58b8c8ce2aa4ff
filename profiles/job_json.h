/* profiles/job_json.h - jobs, models and clusters from files, presets and overrides. */
#ifndef ELAPSE_PROFILES_JOB_JSON_H
#define ELAPSE_PROFILES_JOB_JSON_H

#include "partition/job.h"
#include "profiles/json.h"

/* Load a job file, then apply num_overrides texts "a.b=v" in order. Unknown keys, wrong types and
 * values out of range name file, key, value and limit, and list the valid keys with the nearest.
 * Paths are relative to the file. Data sets are not touched. *job must be zeroed or cleared; the
 * caller owns it, job_clear() releases it. job->json holds the resolved job: loaded again it gives
 * the same job. */
enum status job_load(const char *path, const char *const *overrides, int num_overrides,
                     struct job *job, struct err *err);

/* The same from a tree, which is only read. what names it in errors, dir is the folder that
 * relative paths start from (NULL: the current one). */
enum status job_from_json(const struct json *root, const char *what, const char *dir,
                          const char *const *overrides, int num_overrides, struct job *job,
                          struct err *err);

/* The keys of a job file, one line each: key, what it takes, what it means. Fresh text. */
enum status job_keys_help(char **text, struct err *err);

/* Two arrays that jobs and the command line read, in place of *counts and *norms, which are freed:
 * whole numbers low..high (of `unit`); gradient norms, num_layers of each of *num_epochs. file and
 * key name the array in errors. ERR_INPUT (file, place, limit, value), ERR_NOMEM. */
enum status counts_from_json(const struct json *array, const char *file, const char *key, int low,
                             int high, const char *unit, int **counts, int *num, struct err *err);
enum status norms_from_json(const struct json *array, const char *file, const char *key,
                            int num_layers, double **norms, int *num_epochs, struct err *err);
/* The latter, added to an array. */
void norms_to_json(struct json *array, const double *norms, int64_t num_epochs, int num_layers);

/* Samples of an epoch (train) or an evaluation, for plan and sim, which read no data: what the job
 * says, else the published size of the set (0: unknown, the kind has none). */
int64_t job_num_samples(const struct job *job, bool train);

/* A MODEL of the command line: preset with modifiers, or a JSON file (ours, or a Hugging Face
 * config.json). A CLUSTER: preset, NODESxDEVICES, or a JSON file; "this-machine" asks the operating
 * system for cores and memory. *model and *cluster must be zeroed or cleared. */
enum status model_load(const char *text, struct model *model, struct err *err);
enum status cluster_load(const char *text, struct cluster *cluster, struct err *err);

/* The same from the value of a key "model" or "cluster" of a file: a text as above (file names
 * relative to dir), or an object. elem_bytes (0: default) is the activation size that a model
 * takes unless it says otherwise. */
enum status model_from_json(const struct json *value, const char *file, const char *key,
                            const char *dir, int elem_bytes, struct model *model, struct err *err);
enum status cluster_from_json(const struct json *value, const char *file, const char *key,
                              const char *dir, struct cluster *cluster, struct err *err);

#endif
