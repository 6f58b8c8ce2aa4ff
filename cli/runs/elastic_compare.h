/* cli/runs/elastic_compare.h - a whole elastic run compared with a simulation of its job: the plan and
 * step time of each epoch, the parts of each change, and the time of the training.
 *
 * The prediction gets the job, the machine's profile and, if the policy needs them, the recorded
 * gradient norms (RUN_DIR/norms.json). The simulation makes all plans and freeze decisions itself.
 */
#pragma once

#include <stdbool.h>

#include "cli/base/command.h"
#include "cli/runs/replay.h"

/* Whether the run changed its plan. */
bool elastic_compare_applies(const struct replay *replay);

/* Print the comparison of a loaded run. Its job gets the recorded norms. tolerance is the largest
 * error of the training time; NaN: no limit. ERR_INFEASIBLE: the error is larger, or the run was
 * interrupted or resumed. ERR_INPUT: norms.json does not fit the job. */
enum status elastic_compare(const struct command *command, const char *run_dir,
                            struct replay *replay, double tolerance, bool json, struct err *err);
