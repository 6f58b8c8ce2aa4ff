/* profiles/job/job_parts.h - declarations that the files job_*.c share. Only they include it. */
#pragma once

#include "partition/plan/job.h"
#include "profiles/json/fields.h"
#include "profiles/job/job_json.h"

/* Change the tree of a job by a text "a.b=v". Missing objects on the way are made. dir is the
 * folder that relative paths start from (NULL: the current one): a cluster that is a file is read
 * first, so that its keys can be overridden. */
enum status job_override(struct json *root, const char *dir, const char *text, struct err *err);

/* keys_each() of the tables in model_json.c, and of those in cluster_json.c and links_json.c. */
void model_keys_each(enum key_table table, key_visitor *visit, void *ctx);
void cluster_keys_each(enum key_table table, key_visitor *visit, void *ctx);

/* Read a key that the table cannot read. The model must be known. */
enum status job_read_table(const struct json *value, const struct fields_source *source,
                           struct job *job, struct err *err);
enum status job_read_stages(const struct json *value, const struct fields_source *source,
                            struct job *job, struct err *err);
enum status job_read_norms(const struct json *value, const struct fields_source *source,
                           struct job *job, struct err *err);
enum status job_read_evidence(const struct json *value, const struct fields_source *source,
                              struct job *job, struct err *err);
enum status job_read_baseline(const struct json *value, const struct fields_source *source,
                              struct job *job, struct err *err);
