/* cli/simulate/trace_file.h - a simulated step, alone or beside the measured one, as a Chrome trace. */
#pragma once

#include "cli/simulate/rank_memory.h"
#include "cli/runs/replay.h"

/* Write the step: ops, messages, idle ranks, memory. The file appears whole or not at all. */
enum status trace_step_file(const char *path, const struct traced_step *step, struct err *err);

/* Write the simulated step of a run and its measured one into one file, as two groups of processes
 * that begin at time 0. ERR_INFEASIBLE: the run recorded no ops. */
enum status trace_both_file(const char *path, const char *run_dir, const struct replay *replay,
                            struct err *err);
