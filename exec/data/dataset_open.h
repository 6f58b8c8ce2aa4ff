/* exec/data/dataset_open.h - the dataset that a job names, by the reader of its kind. */
#ifndef ELAPSE_EXEC_DATA_DATASET_OPEN_H
#define ELAPSE_EXEC_DATA_DATASET_OPEN_H

#include "exec/data/dataset.h"

/* Open what job->data names and check that it fits job->model (image side, channels, classes,
 * sequence). *dataset must be zeroed or cleared; the caller owns it. ERR_SYSTEM: a missing file;
 * ERR_INPUT: truncated or malformed (file, size, expected multiple), or not fit for the model. */
enum status dataset_open(const struct job *job, struct dataset *dataset, struct err *err);

#endif
