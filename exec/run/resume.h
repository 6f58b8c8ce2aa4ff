/* exec/run/resume.h - which checkpoint a run starts from, and which job a resumed run takes. */
#pragma once

#include "exec/checkpoint/checkpoint_check.h"
#include "partition/plan/job.h"
#include "partition/base/options.h"

/* The weights to start from, checked: a checkpoint, or the newest good one of a run's folder, or a
 * safetensors file, which carries no digest. choice->dir becomes its path. Collective. */
enum status resume_choose(const struct comm *comm, const char *from,
                          struct checkpoint_choice *choice, struct err *err);

/* The part of the command line that concerns the job. */
struct job_ask {
    const char *path;              /* the job file; NULL: the job that the checkpoint holds */
    const struct option_list *set; /* "a.b=v" */
    const char *adapter;    /* folder of adapters (adapter_files.h) beside the weights; NULL */
    const char *device;     /* short for train.device=KIND; NULL: not given */
    const char *checkpoint; /* of the run that resumes or is evaluated; NULL: a new run */
    bool weights_only;      /* the checkpoint is one of another tool and holds no job */
    bool override;          /* the job may differ from the recorded one */
    bool evaluates;         /* as override, and values of `set` count as equal */
};

/* Load the job. If the run resumes from a checkpoint, the job must be the one that the checkpoint
 * holds, unless override or evaluates is set. *differences becomes fresh text, a line "key:
 * recorded -> given" for each difference; NULL: there is none. A checkpoint of an older version
 * holds no job, so any job is taken. ERR_INPUT: differences without override, or as job_load()
 * says. */
enum status resume_job(const struct job_ask *ask, struct job *job, char **differences,
                       struct err *err);
