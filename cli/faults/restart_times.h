/* cli/faults/restart_times.h - takes the times of restarts and checkpoints from a real run, for the
 * simulator. */
#pragma once

#include "partition/base/status.h"
#include "sim/faults/fault_run.h"

/* Set the times of set by the restarts and checkpoints that the run in folder dir has recorded,
 * each the mean: detect_ns and restart_ns by its losses, join_ns by its returns, stall_ns, write_ns
 * and async by its checkpoints, memory_stall_ns by its copies in memory. What it has not recorded
 * stays. ERR_SYSTEM, ERR_INPUT. */
enum status restart_times_read(const char *dir, struct fault_setting *set, struct err *err);
