/* cli/launch/restarts.h - a training run that survives when ranks or machines are lost. */
#pragma once

#include <stdint.h>

#include "partition/base/status.h"

struct restarts {
    int64_t num_ranks, max_restarts, min_ranks;
    const char *out;    /* the run's folder; may be NULL if max_restarts is 0 */
    const char *losses; /* trace of losses to replay (losses.h); NULL: none */
};

/* Run `elapse-exec argv...`. If a rank or its machine is lost, start it again from the last
 * checkpoint, at most max_restarts times, with the ranks of the machines that answer. If the run is
 * lost twice without a new checkpoint between although all machines answer, it continues with one
 * rank fewer. When a lost machine answers again, the run stops at its next checkpoint or the
 * end of its epoch, and continues with its ranks; a rank that was given up is tried once more in that
 * way, unless losses are replayed. Never with fewer than
 * min_ranks ranks. */
enum status restarts_run(const struct restarts *restarts, int argc, char **argv, struct err *err);

/* The step of the newest checkpoint in a run's folder, or of its newest copy in memory, by the names;
 * -1: there is none. */
int64_t restarts_newest_step(const char *dir);
/* The number of ranks that wrote the checkpoint dir, or the newest one in a run's folder that
 * can be read. 0: an older version wrote it, which did not store the number. */
int64_t restarts_ranks(const char *dir);
