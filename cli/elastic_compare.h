/* cli/elastic_compare.h - a whole elastic run beside the same job simulated: each epoch's plan and
 * step time, each change by its parts, the time of training.
 *
 * The prediction knows the job, the machine's profile and, where the policy needs them, the
 * recorded gradient norms (RUN_DIR/norms.json). Plans and freezing are decided anew. */
#ifndef ELAPSE_CLI_ELASTIC_COMPARE_H
#define ELAPSE_CLI_ELASTIC_COMPARE_H

#include <stdbool.h>

#include "cli/command.h"
#include "cli/replay.h"

/* Whether the run changed its plan on the way. */
bool elastic_compare_applies(const struct replay *replay);

/* Print the comparison of a loaded run; its job gets the recorded norms. tolerance: of the
 * training time, NaN: none; ERR_INFEASIBLE beyond it, and for a run that is not whole (interrupted,
 * resumed). ERR_INPUT: norms.json does not fit the job. */
enum status elastic_compare(const struct command *command, const char *run_dir,
                            struct replay *replay, double tolerance, bool json, struct err *err);

#endif
