/* cli/frameworks/target_answer.h - `elapse plan --for`: the plan in the words of a framework. */
#pragma once

#include <limits.h>

#include "profiles/frameworks/target_file.h"

struct target_answer {
    struct target_file file;
    char csv[PATH_MAX]; /* where its op list goes */
};

/* Write the plan of a job for job->pipeline.target, to out_path and beside it if that is not NULL, and
 * add it to json if that is not NULL. *target must be zeroed; release it with target_answer_clear().
 * Errors of target_file_make() and of writing pass through. */
enum status target_answer_make(const struct job *job, const struct plan *plan, const char *out_path,
                               struct json *json, struct target_answer *target, struct err *err);
void target_answer_print(const struct job *job, const struct target_answer *target,
                         const char *out_path);
void target_answer_clear(struct target_answer *target);
