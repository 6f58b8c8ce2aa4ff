/* profiles/frameworks/pytorch_pipeline.h - pipelines by torch.distributed.pipelining, which torchtitan
 * and AutoModel use: schedules by name, stages by names of modules. */
#pragma once

#include "profiles/frameworks/command_job.h"

struct pytorch_pipeline {
    const char *schedule;          /* as PyTorch names it; capitals do not count */
    const char *parts;             /* modules of each stage; NULL: the default cut */
    int64_t ranks, layers_a_stage; /* layers_a_stage 0: as many stages as the schedule has */
    int64_t first_less, last_less; /* layers that the embedding and the head count as */
    int64_t microbatches;
    const char
        *csv; /* a file of op lists, which PyTorch runs in place of the schedule's; NULL: none */
    int num_layers;
};

/* Write the pipeline into the job and the cut into made->blocks. flags is told of op lists that are
 * those of no schedule here. ERR_INPUT: a schedule that we do not have, one that PyTorch refuses for
 * these counts, or op lists that do not fit them. ERR_SYSTEM: the file cannot be read. */
enum status pytorch_pipeline_add(struct command_flags *flags, const struct pytorch_pipeline *ask,
                                 struct command_job *made, struct err *err);
