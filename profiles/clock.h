/* profiles/clock.h - this machine's monotonic clock, for spans of time. (Ranks of several machines
 * agree by comm_now_ns().) */
#ifndef ELAPSE_PROFILES_CLOCK_H
#define ELAPSE_PROFILES_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Async-signal-safe. */
static inline int64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
