/* cli/base/threads.h - threads that share work by a counter of the caller's. */
#pragma once

#include <pthread.h>
#include <stdint.h>

struct threads {
    pthread_t *ids; /* owned */
    int64_t num;
};

/* Start `wanted` threads (0: one a core), but at most `most`, each with work(ctx). If none can be
 * started, the caller's thread does the work before this returns. threads_join() must follow. */
void threads_start(struct threads *threads, int64_t wanted, int64_t most, void *(*work)(void *),
                   void *ctx);
/* Wait for all, and release. */
void threads_join(struct threads *threads);
