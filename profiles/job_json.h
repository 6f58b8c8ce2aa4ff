/* profiles/job_json.h - jobs, models and clusters from files, presets and overrides. */
#ifndef ELAPSE_PROFILES_JOB_JSON_H
#define ELAPSE_PROFILES_JOB_JSON_H

#include "partition/job.h"
#include "profiles/json.h"

/* Load a job file, then apply num_overrides texts "a.b=v" in order. Unknown keys, wrong types and
 * values out of range name file, key, value and limit, and list the valid keys with the nearest.
 * *job must be zeroed or cleared; the caller owns it, job_clear() releases it. */
enum status job_load(const char *path, const char *const *overrides, int num_overrides,
                     struct job *job, struct err *err);

/* A MODEL of the command line: preset with modifiers, or a JSON file (ours, or a Hugging Face
 * config.json). A CLUSTER: preset, NODESxDEVICES, or a JSON file. */
enum status model_load(const char *text, struct model *model, struct err *err);
enum status cluster_load(const char *text, struct cluster *cluster, struct err *err);

#endif
