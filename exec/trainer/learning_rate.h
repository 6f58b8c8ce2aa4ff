/* exec/trainer/learning_rate.h - the rate of a step by the job's curve. */
#pragma once

#include <stdint.h>

#include "partition/plan/job.h"

/* Learning rate of a step, counted from 0, of total_steps: it rises linearly over warmup_steps,
 * then follows the job's curve to 0 at the end (a constant one stays). */
double learning_rate(const struct job *job, int64_t step, int64_t total_steps);
