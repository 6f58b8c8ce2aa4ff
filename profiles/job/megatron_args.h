/* profiles/job/megatron_args.h - the job of a Megatron-LM command line (names of megatron/training/arguments.py). */
#ifndef ELAPSE_PROFILES_MEGATRON_ARGS_H
#define ELAPSE_PROFILES_MEGATRON_ARGS_H

#include "partition/base/status.h"
#include "profiles/json/json.h"

/* Read the flags in text, which may hold the whole command with backslashes at the ends of lines, for a cluster of
 * num_devices. *job gets the model, the training and the layout of the command as a job without a cluster.
 * *not_counted gets an array of the flags that change costs and that the job cannot say, and of those that we do not
 * know. The caller frees both with json_free(). ERR_INPUT: a flag is missing, has a bad value, or asks for a layout
 * that we do not have; the error names it. ERR_NOMEM. */
enum status megatron_job(const char *text, int num_devices, struct json **job,
                         struct json **not_counted, struct err *err);

#endif
