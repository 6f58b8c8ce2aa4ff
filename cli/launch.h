/* cli/launch.h - start elapse-exec, for the commands that need a real run. */
#ifndef ELAPSE_CLI_LAUNCH_H
#define ELAPSE_CLI_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

/* Run `mpirun -n num_ranks elapse-exec argv...` (0 ranks: elapse-exec itself, without mpirun) and
 * wait. argv[0] is the command of elapse-exec. The stdout of the ranks is printed after they have
 * ended, and dropped if quiet. If a rank fails, its status is returned without a message, because
 * the rank has printed one. Any other failure is ERR_SYSTEM with a message. The first Ctrl-C or
 * SIGTERM becomes SIGUSR1 for every rank, the second one SIGTERM, and the third one kills the
 * launcher. Not for use from several threads. */
enum status launch_exec(int64_t num_ranks, int argc, char *const *argv, bool quiet,
                        struct err *err);

/* Whether a Ctrl-C or SIGTERM stopped the last run. */
bool launch_stopped(void);
/* That signal; 0: none. The program then ends with EXIT_SIGNALLED plus its number, as shells do. */
int launch_stop_signal(void);
#define EXIT_SIGNALLED 128

#endif
