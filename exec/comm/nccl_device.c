/* exec/comm/nccl_device.c - the calls of NCCL behind comm_nccl.h; built as the shared object
 * elapse-nccl.so.
 *
 * Communicators are non-blocking: a call of NCCL may return ncclInProgress, and settle() then polls
 * the communicator until the call has ended. One mutex is held during every call of NCCL and
 * released while waiting, so that the watching thread (watch()) can poll and abort at any time. The
 * first failure is stored in device->cause, all communicators are aborted, and a detached thread
 * (last_resort()) ends the process if it still runs after LAST_SECONDS. Read watch(), give_up() and
 * settle() first; the functions below them are one call of NCCL each. Not yet run on a GPU. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/comm/comm_nccl.h"

_Static_assert(NCCL_ID_BYTES == NCCL_UNIQUE_ID_BYTES, "an id of NCCL's size");

/* WATCH_NS: time between two looks of the watching thread. LAST_SECONDS: a process that still runs
 * after a failure is ended after this time. EAGER_LOOKS: settle() yields this many times before it
 * sleeps PAUSE_NS between two looks. */
enum { WATCH_NS = 50000000, LAST_SECONDS = 5, EAGER_LOOKS = 200, PAUSE_NS = 20000 };

struct nccl_comm {
    struct nccl_device *device;
    ncclComm_t comm; /* NULL: this rank is not in the communicator, or it was aborted */
    bool splits;     /* the split is in flight; the communicator is not in the device's list yet */
    int rank, size;
    struct nccl_comm *next; /* next in the device's list */
};

struct nccl_device {
    struct nccl_comm parent; /* the last entry of the list */
    struct nccl_comm *comms;
    int rank; /* in the message group */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t watch;
    bool watched, ends; /* watched: the watching thread exists; ends: it must return */
    _Atomic bool failed;
    struct err cause; /* written before failed is set */
};

/* --- failures --------------------------------------------------------------------------------- */

static enum status nccl_failed(int rank, ncclComm_t comm, ncclResult_t code, const char *call,
                               struct err *err)
{
    return err_set(err, ERR_SYSTEM, "rank %d: %.60s failed: %.80s: %.200s", rank, call,
                   ncclGetErrorString(code), ncclGetLastError(comm));
}

/* ERR_SYSTEM with the first failure, if there was one. */
static enum status check(const struct nccl_device *device, struct err *err)
{
    if (!atomic_load(&device->failed))
        return OK;
    if (err)
        *err = device->cause;
    return ERR_SYSTEM;
}

/* Ends a process that waits in another library, where an abort of NCCL cannot reach it. */
static void *last_resort(void *arg)
{
    const struct nccl_device *device = arg;
    sleep(LAST_SECONDS);
    fprintf(stderr, "elapse: %s (rank %d waited elsewhere for %d s and ends)\n", device->cause.msg,
            device->rank, LAST_SECONDS);
    _exit(status_exit_code(ERR_SYSTEM));
}

/* Abort all communicators, so that kernels which wait for a peer return. The lock is held. All
 * aborts are in one NCCL group: an abort frees memory, which waits until the device is idle, and so
 * would wait for the messages of communicators that are not aborted yet
 * (github.com/NVIDIA/nccl/issues/1013). */
static void abort_all(struct nccl_device *device)
{
    ncclGroupStart();
    for (struct nccl_comm *c = device->comms; c; c = c->next)
        if (c->comm) {
            ncclCommAbort(c->comm);
            c->comm = NULL;
        }
    ncclGroupEnd();
}

/* Record the first failure and abort all communicators. The lock is held. The peers notice it too,
 * because their connections to this rank break. */
static void give_up(struct nccl_device *device, ncclComm_t comm, ncclResult_t code,
                    const char *call)
{
    pthread_t thread;
    if (atomic_load(&device->failed))
        return;
    nccl_failed(device->rank, comm, code, call, &device->cause);
    atomic_store(&device->failed, true);
    if (pthread_create(&thread, NULL, last_resort, device) == 0)
        pthread_detach(thread);
    abort_all(device);
}

/* The state of the last call on a communicator. The lock is held. */
static ncclResult_t state_of(const struct nccl_comm *c)
{
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(c->comm, &state);
    return asked != ncclSuccess ? asked : state;
}

static bool in_progress(ncclResult_t code)
{
    return code == ncclSuccess || code == ncclInProgress;
}

/* The watching thread: looks at all communicators every WATCH_NS, until one fails or `ends` is set.
 */
static void *watch(void *arg)
{
    struct nccl_device *device = arg;
    pthread_mutex_lock(&device->lock);
    while (!device->ends && !atomic_load(&device->failed)) {
        struct timespec until;
        for (struct nccl_comm *c = device->comms; c && !atomic_load(&device->failed); c = c->next) {
            const ncclResult_t state = c->comm ? state_of(c) : ncclSuccess;
            if (!in_progress(state))
                give_up(device, c->comm, state, "a message between devices");
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += WATCH_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (!device->ends)
            pthread_cond_timedwait(&device->changed, &device->lock, &until);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

/* Wait until a call on c has ended, and return its failure. The lock is held on entry and on
 * return, and released while waiting. NCCL runs each call in a thread of its own. Without a
 * connection to set up, that takes some tens of microseconds, less than a sleep takes; so the first
 * looks only yield. */
static enum status settle(struct nccl_comm *c, ncclResult_t code, const char *call, struct err *err)
{
    struct nccl_device *device = c->device;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (int look = 0; code == ncclInProgress; look++) {
        pthread_mutex_unlock(&device->lock);
        if (look < EAGER_LOOKS)
            sched_yield();
        else
            nanosleep(&pause, NULL);
        pthread_mutex_lock(&device->lock);
        if (check(device, err) != OK)
            return ERR_SYSTEM;
        code = state_of(c);
    }
    if (code != ncclSuccess)
        give_up(device, c->comm, code, call);
    return check(device, err);
}

/* Like settle(), but with later != NULL it does not wait: *later says whether the call is still in
 * flight. */
static enum status settle_or_leave(struct nccl_comm *c, ncclResult_t code, const char *call,
                                   bool *later, struct err *err)
{
    if (!later)
        return settle(c, code, call, err);
    *later = code == ncclInProgress;
    return *later ? OK : settle(c, code, call, err);
}

/* --- communicators ---------------------------------------------------------------------------- */

static enum status make_id(char id[NCCL_ID_BYTES], struct err *err)
{
    ncclUniqueId unique;
    ncclResult_t code = ncclGetUniqueId(&unique);
    if (code != ncclSuccess)
        return nccl_failed(0, NULL, code, "ncclGetUniqueId", err);
    memcpy(id, unique.internal, NCCL_ID_BYTES);
    return OK;
}

static void end_device(struct nccl_device *device)
{
    pthread_mutex_lock(&device->lock);
    abort_all(device);
    pthread_mutex_unlock(&device->lock);
}

static void close_device(struct nccl_device *device)
{
    pthread_mutex_lock(&device->lock);
    device->ends = true;
    pthread_cond_signal(&device->changed);
    pthread_mutex_unlock(&device->lock);
    if (device->watched)
        pthread_join(device->watch, NULL);
    end_device(device);
    if (atomic_load(&device->failed))
        return; /* last_resort() still reads *device; the process ends anyway */
    pthread_mutex_destroy(&device->lock);
    pthread_cond_destroy(&device->changed);
    free(device);
}

static enum status open_device(const char id[NCCL_ID_BYTES], int rank, int size,
                               struct nccl_device **out, struct err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    struct nccl_device *device = calloc(1, sizeof *device);
    if (!device)
        return err_nomem(err);
    device->rank = rank;
    device->parent = (struct nccl_comm){.device = device, .rank = rank, .size = size};
    device->comms = &device->parent;
    pthread_mutex_init(&device->lock, NULL);
    pthread_cond_init(&device->changed, NULL);
    memcpy(unique.internal, id, NCCL_ID_BYTES);
    config.blocking = 0;
    pthread_mutex_lock(&device->lock);
    ncclResult_t code = ncclCommInitRankConfig(&device->parent.comm, size, unique, rank, &config);
    enum status rc = settle(&device->parent, code, "ncclCommInitRankConfig", err);
    pthread_mutex_unlock(&device->lock);
    if (rc == OK && pthread_create(&device->watch, NULL, watch, device) != 0)
        rc = err_set(err, ERR_SYSTEM, "rank %d: cannot start the thread that watches NCCL", rank);
    device->watched = rc == OK;
    if (rc == OK)
        *out = device;
    else
        close_device(device);
    return rc;
}

static void drop(struct nccl_comm *c)
{
    struct nccl_device *device = c->device;
    if (c->splits) /* NCCL may still write to c: the run ends during the split, so c is leaked */
        return;
    pthread_mutex_lock(&device->lock);
    struct nccl_comm **at = &device->comms;
    while (*at != c && *at != &device->parent)
        at = &(*at)->next;
    if (*at == c)
        *at = c->next;
    if (c->comm)
        ncclCommAbort(c->comm);
    pthread_mutex_unlock(&device->lock);
    free(c);
}

static enum status split(struct nccl_device *device, int color, int key, int most_blocks,
                         struct nccl_comm **out, struct err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct nccl_comm *c = calloc(1, sizeof *c);
    bool later;
    *out = NULL;
    if (!c)
        return err_nomem(err);
    c->device = device;
    config.blocking = 0;
    if (most_blocks > 0)
        config.maxCTAs = most_blocks;
    pthread_mutex_lock(&device->lock);
    enum status rc = check(device, err);
    THEN(settle_or_leave(&device->parent,
                         ncclCommSplit(device->parent.comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color,
                                       key, &c->comm, &config),
                         "ncclCommSplit", &later, err));
    c->splits = rc == OK;
    pthread_mutex_unlock(&device->lock);
    if (rc == OK)
        *out = c;
    else
        free(c); /* no split is in flight: the parent has been aborted, and the process ends */
    return rc;
}

/* Finish a split: enter the communicator into the list, where it is watched, and read its rank and
 * size. The lock is held. */
static enum status open_child(struct nccl_comm *c, struct err *err)
{
    enum status rc = OK;
    c->splits = false;
    c->next = c->device->comms;
    c->device->comms = c;
    if (c->comm)
        rc = settle(c, ncclCommUserRank(c->comm, &c->rank), "ncclCommUserRank", err);
    if (rc == OK && c->comm)
        rc = settle(c, ncclCommCount(c->comm, &c->size), "ncclCommCount", err);
    return rc;
}

/* Whether the last call on c has ended. During a split ask the parent first, because c->comm may
 * not exist until the parent has finished. */
static enum status ended(struct nccl_comm *c, bool *done, struct err *err)
{
    struct nccl_device *device = c->device;
    const char *call = c->splits ? "ncclCommSplit" : "a message between devices";
    struct nccl_comm *on = c->splits ? &device->parent : c;
    pthread_mutex_lock(&device->lock);
    enum status rc = check(device, err);
    bool later = false;
    if (rc == OK && on->comm)
        rc = settle_or_leave(on, state_of(on), call, &later, err);
    if (rc == OK && !later && c->splits && c->comm)
        rc = settle_or_leave(c, state_of(c), call, &later, err);
    if (rc == OK && !later && c->splits)
        rc = open_child(c, err);
    pthread_mutex_unlock(&device->lock);
    *done = rc == OK && !later;
    return rc;
}

/* --- work ------------------------------------------------------------------------------------- */

static enum status end_group(struct nccl_comm *c, ncclResult_t code, const char *call, bool *later,
                             struct err *err)
{
    const ncclResult_t end = ncclGroupEnd();
    return settle_or_leave(c, in_progress(code) ? end : code, call, later, err);
}

static enum status exchange(struct nccl_comm *c, const void *out, void *in, int64_t bytes,
                            void *stream, bool *later, struct err *err)
{
    struct nccl_device *device = c->device;
    const int peer = 1 - c->rank;
    if (c->size != 2)
        return err_set(err, ERR_INPUT, "rank %d: a message in a communicator of %d", device->rank,
                       c->size);
    pthread_mutex_lock(&device->lock);
    enum status rc = check(device, err);
    if (rc == OK) {
        ncclResult_t code = ncclGroupStart();
        if (out && in_progress(code))
            code = ncclSend(out, (size_t)bytes, ncclInt8, peer, c->comm, stream);
        if (in && in_progress(code))
            code = ncclRecv(in, (size_t)bytes, ncclInt8, peer, c->comm, stream);
        rc = end_group(c, code, in ? out ? "ncclSend and ncclRecv" : "ncclRecv" : "ncclSend", later,
                       err);
    }
    pthread_mutex_unlock(&device->lock);
    return rc;
}

static enum status sum(struct nccl_comm *c, const struct nccl_block *blocks, int num_blocks,
                       void *stream, bool *later, struct err *err)
{
    struct nccl_device *device = c->device;
    pthread_mutex_lock(&device->lock);
    enum status rc = check(device, err);
    if (rc == OK) {
        ncclResult_t code = ncclGroupStart();
        for (int i = 0; i < num_blocks && in_progress(code); i++)
            if (blocks[i].count > 0)
                code = ncclAllReduce(blocks[i].values, blocks[i].values, (size_t)blocks[i].count,
                                     ncclFloat32, ncclSum, c->comm, stream);
        rc = end_group(c, code, "ncclAllReduce", later, err);
    }
    pthread_mutex_unlock(&device->lock);
    return rc;
}

extern const struct nccl_functions nccl_functions;
const struct nccl_functions nccl_functions = {.make_id = make_id,
                                              .open = open_device,
                                              .end = end_device,
                                              .close = close_device,
                                              .split = split,
                                              .ended = ended,
                                              .drop = drop,
                                              .exchange = exchange,
                                              .sum = sum,
                                              .check = check};
