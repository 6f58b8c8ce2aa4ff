/* cli/faults/sim_faults.h - `elapse sim JOB --faults`: runs on a cluster that loses nodes. */
#pragma once

#include "cli/simulate/sim_command.h"

/* Simulate and print many runs. *job is changed. ERR_INFEASIBLE: none of
 * them is done. */
enum status sim_faults(const struct command *command, const struct sim_args *args, struct job *job,
                       struct err *err);

/* Whether the keys of a cluster's "faults" and of --faults (a file or pairs) can be read; either may be
 * NULL. ERR_INPUT names the key. */
enum status sim_faults_check(const char *of_cluster, const char *text, struct err *err);
