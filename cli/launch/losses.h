/* cli/launch/losses.h - losses and returns of ranks that a run replays, for `train --plan-losses`.
 *
 * A rank of the first start is a node of the trace. A lost one kills itself after the named step
 * (SIGKILL), and the run continues without it, until it is back: then the run stops at its next
 * checkpoint and takes the rank in. Each event happens once, also if its step is done again. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/cluster/fault_event.h"

struct losses {
    struct fault_event *events; /* owned; at_ns is a step */
    int num, next;              /* events before next have happened */
    bool *down;                 /* owned; for each rank of the first start */
    int num_ranks, num_down;
};

/* Read and check a trace (fault_trace_read()) for this number of ranks. *losses must be zeroed; release it
 * with losses_clear(). ERR_INPUT, ERR_SYSTEM, ERR_NOMEM. */
enum status losses_read(const char *path, int num_ranks, struct losses *losses, struct err *err);
void losses_clear(struct losses *losses);

/* The value of elapse-exec's --losses, "STEP:RANK:STEP": the next loss with the rank among those
 * that are left, and the step after which a rank is back. -1: none. */
void losses_text(const struct losses *losses, char text[64]);

/* The run has stopped after `step`. lost: a rank was killed, else the run has yielded. Returns
 * whether an event of the trace explains it; it has then happened, with the returns before it. */
bool losses_happen(struct losses *losses, bool lost, int64_t step);
