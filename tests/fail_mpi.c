/* tests/fail_mpi.c - a rank that fails in the middle of a change of plan (exec/move.h), for tests.
 *
 * In front of the MPI library (LD_PRELOAD) it counts the messages of moves: those in the group that
 * the program splits off first (comm_init()) whose tags are not below exec/move.c's FIRST_TAG.
 *
 *   FAIL_MPI=WHAT        send@N, recv@N: the Nth to be started is refused; die@N: before the Nth
 *                        send the process is killed
 *   FAIL_MPI_RANK=R      of the rank R in that group */
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_TAG = 16 };

static MPI_Comm all;
static int rank = -1; /* -1: all is not there yet */

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    const int code = PMPI_Comm_split(comm, color, key, out);
    if (rank < 0) {
        all = *out;
        PMPI_Comm_rank(all, &rank);
    }
    return code;
}

static bool fails(const char *what, MPI_Comm comm, int tag, int *calls)
{
    const char *fault = getenv("FAIL_MPI"), *only = getenv("FAIL_MPI_RANK");
    const size_t length = strlen(what);
    if (comm != all || tag < FIRST_TAG || !fault || !only || atoi(only) != rank)
        return false;
    return ++*calls && strncmp(fault, what, length) == 0 && fault[length] == '@' &&
           atoi(fault + length + 1) == *calls;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    static int sends, deaths;
    if (fails("die", comm, tag, &deaths))
        raise(SIGKILL);
    return fails("send", comm, tag, &sends)
               ? MPI_ERR_OTHER
               : PMPI_Isend(data, count, type, peer, tag, comm, request);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    static int receives;
    return fails("recv", comm, tag, &receives)
               ? MPI_ERR_OTHER
               : PMPI_Irecv(data, count, type, peer, tag, comm, request);
}
