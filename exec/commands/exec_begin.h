/* exec/commands/exec_begin.h - how train, eval and predict begin: their weights, job and cores. */
#pragma once

#include "exec/commands/exec_command.h"
#include "exec/device/cores.h"
#include "exec/run/resume.h"

/* The option that starts from the adapters of a folder, on a base with its own weights. */
#define ADAPTER_OPTION(value)                                                                      \
    OPTION("adapter", STRING, value, "DIR",                                                        \
           "adapters of a base's weights: a folder of peft or of 'elapse export'")

/* Options of what runs a job on ranks. */
#define SET_OPTION(list)                                                                           \
    OPTION("set", LIST, list, "a.b=v", "override a value of the job (repeatable)",                 \
           .keys = &job_keys)
#define DEVICE_OPTION(kind)                                                                        \
    OPTION("device", STRING, kind, "KIND", "%s (default: train.device of the job)",                \
           .values = "cpu cuda")
#define THREADS_OPTION(num)                                                                        \
    OPTION("threads", INT, num, "N", "threads a rank (default: its share of the available cores)", \
           .min = 1, .max = MAX_THREADS)

/* Choose the weights to begin with, and load the job, which is compared with the recorded one of
 * a run that resumes or is evaluated. Collective; all ranks agree on the status. */
enum status exec_begin(struct call *call, const char *from, struct job_ask *ask, bool recorded,
                       struct checkpoint_choice *weights, struct job *job, struct err *err);

/* Check everything that can be refused before ranks are started: files that are not there, the job,
 * the number of ranks. from, db: NULL if they are not named. */
enum status exec_check(const struct call *call, const char *from, const char *db,
                       const struct job_ask *ask, bool trains, struct err *err);

/* Divide the cores among the ranks. Collective. */
enum status exec_bind(const struct call *call, int threads, struct cores *cores, struct err *err);
