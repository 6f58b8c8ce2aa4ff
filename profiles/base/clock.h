/* profiles/base/clock.h - this machine's monotonic clock, to measure durations. (Ranks on several
 * machines use comm_now_ns(), which is one clock for all of them.) */
#pragma once

#include <stdint.h>
#include <time.h>

/* Async-signal-safe. */
static inline int64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The processor time of the calling thread: a budget of work, whatever else the machine does. */
static inline int64_t clock_work_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Nanoseconds since 1970, to compare times of several processes. */
static inline int64_t clock_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
