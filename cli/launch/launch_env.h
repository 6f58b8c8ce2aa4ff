/* cli/launch/launch_env.h - what launchers and ranks read from the environment.
 *
 * Variables that the user has set stay. Names that the present MPI does not know have no effect, so
 * nobody asks which MPI this is. */
#pragma once

#include <stdbool.h>

enum { SHARED_FOLDER_MAX = 32 };

/* Set the variables for a start by these words of a launcher. one_machine: it starts the ranks on
 * this machine; a later start on several gets its network back. */
void launch_env_set(const char *launcher, bool one_machine);

/* Whether a launcher starts all ranks on this machine: its words name no hosts, and no batch system
 * or default gives it another one. */
bool launch_env_one_machine(const char *launcher);

/* Have Open MPI make its segments in a folder of this run, because ranks that are killed leave them
 * there. On one machine only, because other nodes have no such folder. Ranks put their signs of
 * life there too (start_signs.h). folder becomes "" where the user has chosen a place, or there is no
 * shared memory to write to. */
void launch_env_share(bool one_machine, char folder[SHARED_FOLDER_MAX]);
/* Remove that folder and all files in it. */
void launch_env_unshare(const char *folder);
