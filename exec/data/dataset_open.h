/* exec/data/dataset_open.h - the dataset that a job names, by the reader of its kind. */
#pragma once

#include "exec/data/dataset.h"

/* Open the data that job->data names, and check that they fit job->model (image side, channels,
 * classes, sequence). *dataset must be zeroed or cleared. The caller owns it and releases it with
 * dataset_clear(). ERR_SYSTEM: a file is missing. ERR_INPUT: a file is truncated or malformed (the
 * message gives file, size, expected multiple), or does not fit the model. */
enum status dataset_open(const struct job *job, struct dataset *dataset, struct err *err);

/* For weights that may have rules for pictures beside them (preprocess.h); weights NULL: dataset_open(). */
enum status dataset_open_for(const struct job *job, const char *weights, struct dataset *dataset,
                             struct err *err);
