/* profiles/frameworks/target_file.h - a plan in the words of a training framework (partition/plan/target.h).
 *
 * The text sets the layout, the batch and the number format. docs/frameworks.md lists the names and
 * their sources. */
#pragma once

#include "partition/plan/job.h"
#include "partition/plan/target.h"
#include "profiles/json/json.h"

struct target_file {
    char *text;           /* owned */
    char *csv;            /* owned: the op list that the text names, NULL: it names none */
    struct json *missing; /* owned: an array of what the framework has no words for */
};

/* Write the plan of a job for job->pipeline.target. csv_path: where csv will be. *file must be
 * zeroed; the caller owns it and releases it with target_file_clear(). ERR_NOMEM, or an error of
 * schedule_generate(). */
enum status target_file_make(const struct job *job, const struct plan *plan, const char *csv_path,
                             struct target_file *file, struct err *err);
void target_file_clear(struct target_file *file);
