/* exec/comm/comm_mpi_messages.c - messages between two ranks (comm.h), and errors of MPI calls. */
#include <assert.h>
#include <limits.h>
#include <mpi.h>
#include <string.h>

#include "exec/base/watch.h"
#include "exec/comm/comm.h"
#include "exec/comm/mpi_group.h"
#include "exec/comm/mpi_progress.h"

/* Rank in the texts of errors; -1 before comm_init(). */
static int own_rank = -1;

void mpi_failures_of(int rank)
{
    own_rank = rank;
}

enum status mpi_failed(const char *call, int code, const char *file, int line, struct err *err)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    MPI_Error_string(code, text, &length);
    return err_set(err, ERR_SYSTEM, "rank %d: %.80s failed: %.200s (%s:%d)", own_rank, call, text,
                   file, line);
}

void mpi_put_request(struct comm_request *request, MPI_Request mpi, int64_t bytes,
                     const char *waits, const struct comm_group *group, int peer)
{
    _Static_assert(sizeof mpi <= sizeof request->handle, "an MPI_Request fits a comm_request");
    memcpy(&request->handle, &mpi, sizeof mpi);
    request->bytes = bytes;
    request->waits = waits;
    request->peer = peer >= 0 && group->numbers ? group->numbers[peer] : peer;
    request->num_peers = group->size;
    request->active = true;
}

static MPI_Request take_request(const struct comm_request *request)
{
    MPI_Request mpi;
    memcpy(&mpi, &request->handle, sizeof mpi);
    return mpi;
}

static enum status check_bytes(int64_t bytes, struct err *err)
{
    if (bytes < 0 || bytes > INT_MAX)
        return err_set(err, ERR_INPUT, "a message of %lld bytes is too large, the limit is %d",
                       (long long)bytes, INT_MAX);
    return OK;
}

enum status comm_isend(const struct comm_group *group, const void *data, int64_t bytes, int peer,
                       int tag, struct comm_request *request, struct err *err)
{
    MPI_Request mpi;
    enum status rc = check_bytes(bytes, err);
    assert(!request->active);
    if (rc != OK)
        return rc;
    MPI_TRY(MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, group->mpi, &mpi));
    mpi_put_request(request, mpi, -1, "with a message for", group, peer);
out:
    return rc;
}

enum status comm_irecv(const struct comm_group *group, void *data, int64_t bytes, int peer, int tag,
                       struct comm_request *request, struct err *err)
{
    MPI_Request mpi;
    enum status rc = check_bytes(bytes, err);
    assert(!request->active);
    if (rc != OK)
        return rc;
    MPI_TRY(MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag, group->mpi, &mpi));
    mpi_put_request(request, mpi, bytes, "for a message of", group, peer);
out:
    return rc;
}

static enum status finish_request(struct comm_request *request, MPI_Status *status, struct err *err)
{
    enum status rc = OK;
    int got = 0;
    request->active = false;
    if (request->bytes >= 0) {
        MPI_TRY(MPI_Get_count(status, MPI_BYTE, &got));
        if (got != request->bytes)
            rc = err_set(err, ERR_SYSTEM, "a message of %d bytes came where %lld were expected",
                         got, (long long)request->bytes);
    }
out:
    return rc;
}

enum status comm_test(struct comm_request *request, bool *done, struct err *err)
{
    enum status rc = OK;
    MPI_Status status;
    int flag = 1;
    if (request->active) {
        MPI_Request mpi = take_request(request);
        MPI_TRY(MPI_Test(&mpi, &flag, &status));
        memcpy(&request->handle, &mpi, sizeof mpi);
        if (flag)
            rc = finish_request(request, &status, err);
    }
    *done = flag;
out:
    return rc;
}

enum status comm_wait(struct comm_request *request, struct err *err)
{
    enum status rc = OK;
    MPI_Status status;
    if (request->active) {
        MPI_Request mpi = take_request(request);
        watch_wait(request->waits, request->peer, request->num_peers);
        const int code = MPI_Wait(&mpi, &status);
        watch_wait_end();
        MPI_TRY(code);
        rc = finish_request(request, &status, err);
    }
out:
    return rc;
}

void comm_cancel(struct comm_request *request)
{
    if (request->active) {
        MPI_Request mpi = take_request(request);
        MPI_Cancel(&mpi);
        MPI_Wait(&mpi, MPI_STATUS_IGNORE);
        request->active = false;
    }
}

void comm_progress(const struct comm_group *group)
{
    if (group->size > 1)
        mpi_progress(group->mpi);
}
