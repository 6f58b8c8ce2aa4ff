/* cli/commands/measured_log.h - the time of a step in the log of a training program. */
#pragma once

#include <stdbool.h>

#include "partition/base/status.h"

/* One step as a log reports it; at least one member is above 0. */
struct measured_log {
    double step_ns, steps_per_s;
    double samples_per_s; /* of all devices */
    double tokens_per_s_per_device;
    bool first_left_out;
};

/* Read a log as it is printed: Megatron-LM (core 0.19), NeMo (2), torchtitan (0.2, 0.3), DeepSpeed
 * (0.19), the Trainer of transformers (5), llm.c, nanoGPT. The median of its steps counts, without
 * the first one, which warms up and under DDP reduces all gradients in one bucket, where there are
 * more than two. ERR_INPUT: no line has a time. ERR_SYSTEM, ERR_NOMEM. */
enum status measured_log_read(const char *path, struct measured_log *log, struct err *err);
