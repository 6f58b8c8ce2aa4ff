/* exec/cuda/cuda_hold.c - a head start for the host: the stream waits in a function of the host, so
 * that what is measured after it finds its kernels queued and does not wait for their launches.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "exec/cuda/cuda_internal.h"
#include "profiles/base/clock.h"

/* A hold ends by itself after this time: a host that launches more than the driver's queue takes
 * (1,024 kernels, some 4 ms of launches) waits for the device. */
static const int64_t longest_hold_ns = 10000000;

struct cuda_hold {
    atomic_bool held;
    atomic_bool passed; /* the stream has left the function that waits */
};

enum status cuda_hold_new(struct cuda_hold **hold, struct err *err)
{
    struct cuda_hold *h = calloc(1, sizeof *h);
    if (!h)
        return err_nomem(err);
    atomic_init(&h->held, false);
    atomic_init(&h->passed, true);
    *hold = h;
    return OK;
}

void cuda_hold_free(struct cuda_hold *hold)
{
    free(hold);
}

/* A thread of the driver runs this function, which must not call CUDA. */
static void CUDART_CB wait_for_release(void *ctx)
{
    struct cuda_hold *hold = ctx;
    const struct timespec pause = {.tv_nsec = 20000};
    const int64_t end_ns = clock_now_ns() + longest_hold_ns;
    while (atomic_load(&hold->held) && clock_now_ns() < end_ns)
        nanosleep(&pause, NULL);
    atomic_store(&hold->passed, true);
}

static void hold_stream(struct backend *be)
{
    struct cuda_hold *hold = cuda_of(be)->hold;
    if (!atomic_load(&hold->passed)) /* released, but the stream has not come there yet */
        CUDA_NOTE(cudaStreamSynchronize(cuda_of(be)->stream));
    atomic_store(&hold->held, true);
    atomic_store(&hold->passed, false);
    if (CUDA_NOTE(cudaLaunchHostFunc(cuda_of(be)->stream, wait_for_release, hold)) != OK)
        atomic_store(&hold->passed, true);
}

static void release_stream(struct backend *be)
{
    atomic_store(&cuda_of(be)->hold->held, false);
}

void cuda_hold_install(struct backend *be)
{
    be->hold = hold_stream;
    be->release = release_stream;
}
