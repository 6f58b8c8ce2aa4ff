/* profiles/job/command_job.h - the job of a command line by which a framework is started today. */
#ifndef ELAPSE_PROFILES_COMMAND_JOB_H
#define ELAPSE_PROFILES_COMMAND_JOB_H

#include "partition/base/status.h"
#include "profiles/json/json.h"

struct command_job {
    struct json *job; /* owned: model, training and layout; it has no cluster */
    struct json *
        not_counted; /* owned: an array of the flags that change costs and that the job cannot say, and of
                                 those that we do not know */
    int num_stages;
    int *
        blocks; /* owned, num_stages: embedding, layers and head of each stage, which count one each */
};
void command_job_clear(struct command_job *made);

/* Read flags of a framework, which may be the whole command with backslashes at the ends of lines,
 * for a cluster of num_devices: megatron_job() those of Megatron-LM
 * (megatron/training/arguments.py), torchtitan_job() those of torchtitan 0.3.0 (config/configs.py).
 * *made must be zeroed; on OK the caller owns it, else it stays zeroed. ERR_INPUT: a flag is
 * missing, has a bad value, or asks for a layout that we do not have; the error names it.
 * ERR_NOMEM. */
enum status megatron_job(const char *text, int num_devices, struct command_job *made,
                         struct err *err);
enum status torchtitan_job(const char *text, int num_devices, struct command_job *made,
                           struct err *err);

#endif
