/* cli/launch/start_signs.h - notices a rank that dies while MPI starts.
 *
 * In such a case a launcher may wait for ever: the other ranks wait in MPI_Init() for the dead one
 * (Open MPI 4.1.4 under a limit of file sizes). Each rank leaves a sign of life in a folder of the
 * run before MPI_Init() and renames it afterwards (exec/comm/start_sign.h). It holds a lock on its
 * sign, which ends with the process, in containers too. For ranks of this machine only; ranks of
 * others have the deadline of exec/comm/watchdog.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The launcher has this time to end by itself after a rank has died. */
#define START_DEADLINE_S 10

struct start_signs {
    const char *folder; /* borrowed */
    int64_t num_ranks;
    int64_t dead_ns; /* when a rank was found dead; 0: none was */
    bool over;       /* all ranks have started, or there are no signs */
};

/* Look at the signs. To be called often until `over`. Returns whether a rank died in MPI's start
 * and the deadline has passed. */
bool start_signs_overdue(struct start_signs *signs);
