/* exec/comm/patience.h - how a rank waits inside MPI while other work wants its core.
 *
 * comm_init() lets Open MPI call sched_yield() after each poll that brought nothing. Linux's scheduler
 * (EEVDF) then takes the caller's slice away, so that it comes last among all that want the core: with
 * eight busy processes on two cores an all-reduce of four ranks takes 32 ms. A thread that sleeps
 * keeps its place, and it takes 0.5 ms. So patience.c defines sched_yield() for the whole program: it
 * yields as long as yields are fast, and sleeps for a while after a yield that was not. */
#pragma once

#include <stdint.h>

/* Times in ns, of clock_now_ns(). One a thread; all members 0 at first. */
struct patience {
    int64_t sleeps_until; /* sleep in place of yields until then */
    int64_t wait_began;   /* the present row of calls */
    int64_t last_end;     /* of the last call */
};

/* How long the call that comes at `now` is to sleep: an eighth of the present wait, from 20 to 500
 * us; 0: yield. A call long after the last one begins a new wait. */
int64_t patience_sleep_ns(struct patience *patience, int64_t now);
/* That call ends at `now`. yielded_ns: how long a yield took, 0 after a sleep. */
void patience_end(struct patience *patience, int64_t now, int64_t yielded_ns);

/* Calls of sched_yield() by this thread. */
int64_t patience_calls(void);
