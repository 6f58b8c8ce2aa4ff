/* exec/comm/mpi_group.h - a group of ranks over MPI; private to comm_mpi.c, comm_mpi_sums.c
 * and comm_mpi_messages.c, of which each includes what it needs of the next ones. */
#pragma once

#include <mpi.h>
#include <stdint.h>

#include "exec/base/watch.h"
#include "partition/base/status.h"

struct comm_request;
struct shm_reduce;

enum {
    MAX_CHUNK = 1 << 30, /* bytes of one MPI call */
    SUM_CHUNK = 64       /* values that comm_sum_f64() sums in one call */
};

struct comm_group {
    MPI_Comm mpi;
    int rank, size;
    int *numbers; /* owned, [size]: ranks in the message group; NULL: this is the message group */
    /* Owned, [size][SUM_CHUNK]: received by comm_sum_f64(). It exists from the start, because a
     * rank that found no memory in the middle of a collective would leave the others waiting. */
    double *received;
    struct shm_reduce *shared; /* owned; NULL: not requested, or shared memory is not available */
    float *sums;               /* result of comm_sum_buffer(): the buffer of `shared`, or owned */
    int64_t sums_count;
};

/* Free the memory of sums; drop() is called with group->shared. */
void comm_drop_sums(struct comm_group *group, void (*drop)(struct shm_reduce *));

/* Run an MPI call. On failure record its text, the message of the library, the rank and the place,
 * then go to out. */
#define MPI_TRY(call)                                                                              \
    do {                                                                                           \
        int mpi_code_ = (call);                                                                    \
        if (mpi_code_ != MPI_SUCCESS) {                                                            \
            rc = mpi_failed(#call, mpi_code_, __FILE__, __LINE__, err);                            \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

/* Like MPI_TRY(), for a call that waits for all ranks of a group: the watchdog gets to know of it.
 * what: see watch_wait(). */
#define MPI_MEET(what, group, call)                                                                \
    do {                                                                                           \
        watch_wait(what, -1, (group)->size);                                                       \
        int meet_code_ = (call);                                                                   \
        watch_wait_end();                                                                          \
        if (meet_code_ != MPI_SUCCESS) {                                                           \
            rc = mpi_failed(#call, meet_code_, __FILE__, __LINE__, err);                           \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

/* The rank that mpi_failed() names. */
void mpi_failures_of(int rank);
/* Set err to `rank R: CALL failed: TEXT (file:line)`. ERR_SYSTEM. */
enum status mpi_failed(const char *call, int code, const char *file, int line, struct err *err);

/* Let the request stand for an MPI request of `bytes` (-1: unknown). waits: see watch_wait(); peer: a
 * rank of the group, -1: all of them. */
void mpi_put_request(struct comm_request *request, MPI_Request mpi, int64_t bytes,
                     const char *waits, const struct comm_group *group, int peer);
