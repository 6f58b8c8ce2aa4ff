/* cli/launch.h - start elapse-exec, for the commands that need a real run. */
#ifndef ELAPSE_CLI_LAUNCH_H
#define ELAPSE_CLI_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

/* Run `mpirun -n num_ranks elapse-exec argv...` (0 ranks: elapse-exec itself, without mpirun) and
 * wait. argv[0] is the command of elapse-exec. What ranks print on stdout comes out when they have
 * ended; quiet: not at all. What a rank ends with comes back as its status without a message (it
 * has printed one); anything else as ERR_SYSTEM with one. Ctrl-C and SIGTERM become SIGUSR1 for
 * every rank, a second one SIGTERM, a third ends the launcher. Not for use from several threads. */
enum status launch_exec(int64_t num_ranks, int argc, char *const *argv, bool quiet,
                        struct err *err);

/* Whether the last run was asked to stop (Ctrl-C, SIGTERM). */
bool launch_stopped(void);

#endif
