/* exec/comm/watchdog.h - ends a run in which no rank makes progress.
 *
 * A thread of each rank looks four times a second at the posts (exec/base/watch.h) of all ranks of
 * its machine. If none of them has had a beat for the limit, and none is at work outside of steps,
 * the first one that notices says what each rank waits for and ends the job (comm_fail()), so that
 * `elapse train --max-restarts` starts it again. A rank whose process is stopped makes no progress.
 * While the watching thread itself does not run, because the whole run is stopped or the machine
 * sleeps, no time counts.
 *
 * The limit is LONGEST_STEPS times the longest step so far under this plan, at least LEAST_S
 * seconds; UNKNOWN_S before the third step of a plan. With ranks on other machines, whose posts
 * cannot be seen, it is at least UNKNOWN_S, and ALONE_S where no rank of this machine is in a step.
 * ELAPSE_STALL=TIME is a limit in place of these, ELAPSE_STALL=off none. */
#pragma once

#include "exec/comm/comm.h"

/* Before MPI_Init(): a thread that calls fail() if watchdog_start() is not called within UNKNOWN_S
 * seconds (LEAST_S where a launcher of one machine wants signs of life, start_sign.h), or within
 * ELAPSE_STALL, but at least LEAST_START_S. Without memory for a thread it does nothing. fail
 * reports the error and ends the process without MPI. */
void watchdog_begin(void (*fail)(const struct err *err));

/* Start it; it runs until the process ends. Does nothing for a single rank, or where some rank cannot
 * have the memory or the thread for it. Collective over the message group. ERR_INPUT: ELAPSE_STALL
 * is no time. */
enum status watchdog_start(const struct comm *comm, struct err *err);
