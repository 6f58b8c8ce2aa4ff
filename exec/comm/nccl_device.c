/* exec/comm/nccl_device.c - the calls of NCCL behind comm_nccl.h; the shared object elapse-nccl.so.
 *
 * Communicators do not block: a call that has not ended says so, and the wait for it looks at the
 * communicator's errors (settle()). Not yet run on a GPU. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/comm/comm_nccl.h"

_Static_assert(NCCL_ID_BYTES == NCCL_UNIQUE_ID_BYTES, "an id of NCCL's size");

struct nccl {
    ncclComm_t comm;
    cudaStream_t compute, stream; /* the backend's; the sums' own */
    int rank;
};

struct nccl_group {
    struct nccl *nccl; /* borrowed */
    ncclComm_t comm;
    cudaEvent_t ready, done;
    bool active;
};

static enum status nccl_failed(const struct nccl *nccl, ncclComm_t comm, ncclResult_t code,
                               const char *call, struct err *err)
{
    return err_set(err, ERR_SYSTEM, "rank %d: %.60s failed: %.80s: %.200s", nccl->rank, call,
                   ncclGetErrorString(code), ncclGetLastError(comm));
}

static enum status cuda_failed(const struct nccl *nccl, cudaError_t code, const char *call,
                               struct err *err)
{
    return err_set(err, ERR_SYSTEM, "rank %d: %.60s failed: %s", nccl->rank, call,
                   cudaGetErrorString(code));
}

#define CUDA_TRY(nccl, call)                                                                       \
    do {                                                                                           \
        cudaError_t code_ = (call);                                                                \
        if (code_ != cudaSuccess) {                                                                \
            rc = cuda_failed(nccl, code_, #call, err);                                             \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

/* Until a call on a communicator that does not block has ended, one way or the other. */
static enum status settle(const struct nccl *nccl, ncclComm_t comm, ncclResult_t code,
                          const char *call, struct err *err)
{
    const struct timespec pause = {.tv_nsec = 100000};
    while (code == ncclInProgress) {
        ncclResult_t asked = ncclCommGetAsyncError(comm, &code);
        if (asked != ncclSuccess)
            code = asked;
        if (code == ncclInProgress)
            nanosleep(&pause, NULL);
    }
    return code == ncclSuccess ? OK : nccl_failed(nccl, comm, code, call, err);
}

static enum status make_id(char id[NCCL_ID_BYTES], struct err *err)
{
    ncclUniqueId unique;
    const struct nccl none = {.rank = 0};
    ncclResult_t code = ncclGetUniqueId(&unique);
    if (code != ncclSuccess)
        return nccl_failed(&none, NULL, code, "ncclGetUniqueId", err);
    memcpy(id, unique.internal, NCCL_ID_BYTES);
    return OK;
}

static void close_all(struct nccl *nccl)
{
    if (nccl->comm)
        ncclCommAbort(nccl->comm); /* nothing is under way, or a peer is gone: no wait either way */
    if (nccl->stream)
        cudaStreamDestroy(nccl->stream);
    free(nccl);
}

static enum status open_all(const char id[NCCL_ID_BYTES], int rank, int size, void *stream,
                            struct nccl **out, struct err *err)
{
    enum status rc;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    ncclResult_t code;
    struct nccl *nccl = calloc(1, sizeof *nccl);
    if (!nccl)
        return err_nomem(err);
    nccl->rank = rank;
    nccl->compute = stream;
    memcpy(unique.internal, id, NCCL_ID_BYTES);
    config.blocking = 0;
    CUDA_TRY(nccl, cudaStreamCreateWithFlags(&nccl->stream, cudaStreamNonBlocking));
    code = ncclCommInitRankConfig(&nccl->comm, size, unique, rank, &config);
    rc = settle(nccl, nccl->comm, code, "ncclCommInitRankConfig", err);
    if (rc != OK)
        goto out;
    *out = nccl;
    nccl = NULL;
out:
    if (nccl)
        close_all(nccl);
    return rc;
}

static void group_free(struct nccl_group *group)
{
    if (group->comm)
        ncclCommAbort(group->comm);
    if (group->ready)
        cudaEventDestroy(group->ready);
    if (group->done)
        cudaEventDestroy(group->done);
    free(group);
}

static enum status split(struct nccl *nccl, int color, int key, struct nccl_group **out,
                         struct err *err)
{
    enum status rc;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t code;
    struct nccl_group *group = calloc(1, sizeof *group);
    if (!group)
        return err_nomem(err);
    group->nccl = nccl;
    config.blocking = 0;
    CUDA_TRY(nccl, cudaEventCreateWithFlags(&group->ready, cudaEventDisableTiming));
    CUDA_TRY(nccl, cudaEventCreateWithFlags(&group->done, cudaEventDisableTiming));
    code = ncclCommSplit(nccl->comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &group->comm,
                         &config);
    rc = settle(nccl, nccl->comm, code, "ncclCommSplit", err);
    if (rc == OK && group->comm)
        rc = settle(nccl, group->comm, ncclInProgress, "ncclCommSplit", err);
    if (rc != OK)
        goto out;
    *out = NULL;
    if (group->comm) {
        *out = group;
        group = NULL;
    }
out:
    if (group)
        group_free(group);
    return rc;
}

static enum status sum(struct nccl_group *group, const struct nccl_block *blocks, int num_blocks,
                       struct err *err)
{
    enum status rc;
    struct nccl *nccl = group->nccl;
    ncclResult_t code;
    CUDA_TRY(nccl, cudaEventRecord(group->ready, nccl->compute));
    CUDA_TRY(nccl, cudaStreamWaitEvent(nccl->stream, group->ready, 0));
    code = ncclGroupStart();
    for (int i = 0; i < num_blocks && (code == ncclSuccess || code == ncclInProgress); i++)
        if (blocks[i].count > 0)
            code = ncclAllReduce(blocks[i].values, blocks[i].values, (size_t)blocks[i].count,
                                 ncclFloat32, ncclSum, group->comm, nccl->stream);
    if (code == ncclSuccess || code == ncclInProgress)
        code = ncclGroupEnd();
    else
        (void)ncclGroupEnd();
    rc = settle(nccl, group->comm, code, "ncclAllReduce", err);
    if (rc != OK)
        return rc;
    CUDA_TRY(nccl, cudaEventRecord(group->done, nccl->stream));
    group->active = true;
out:
    return rc;
}

static enum status test(struct nccl_group *group, bool *done, struct err *err)
{
    ncclResult_t async = ncclSuccess, asked;
    cudaError_t code = group->active ? cudaEventQuery(group->done) : cudaSuccess;
    *done = code == cudaSuccess;
    if (*done) {
        group->active = false;
        return OK;
    }
    if (code != cudaErrorNotReady)
        return cuda_failed(group->nccl, code, "the sum of gradients", err);
    (void)cudaGetLastError();
    asked = ncclCommGetAsyncError(group->comm, &async);
    if (asked != ncclSuccess || (async != ncclSuccess && async != ncclInProgress))
        return nccl_failed(group->nccl, group->comm, asked != ncclSuccess ? asked : async,
                           "ncclAllReduce", err);
    return OK;
}

static enum status join(struct nccl_group *group, struct err *err)
{
    enum status rc = OK;
    CUDA_TRY(group->nccl, cudaStreamWaitEvent(group->nccl->compute, group->done, 0));
out:
    return rc;
}

extern const struct nccl_functions nccl_functions;
const struct nccl_functions nccl_functions = {.make_id = make_id,
                                              .open = open_all,
                                              .close = close_all,
                                              .split = split,
                                              .group_free = group_free,
                                              .sum = sum,
                                              .test = test,
                                              .join = join};
