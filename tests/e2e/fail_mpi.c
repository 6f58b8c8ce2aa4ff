/* tests/e2e/fail_mpi.c - a rank that fails in the middle of messages, for tests.
 *
 * In front of the MPI library (LD_PRELOAD) it counts the messages of a change of plan
 * (exec/change/move.h): those in the group that the program splits off first (comm_init()) whose tags
 * are not below exec/change/move.c's FIRST_TAG; and the messages of steps, which are those of other
 * groups.
 *
 *   FAIL_MPI=WHAT        send@N, recv@N: the Nth to be started is refused; die@N: before the Nth
 *                        send the process is killed; step@N: the Nth send of steps is refused;
 *                        gone@N: before the Nth send of steps the process is killed
 *   FAIL_MPI_RANK=R      of the rank R in the first group
 *
 * Memory that goes back while a message is under way in it ends the process, with a line. */
#include <malloc.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* --- messages under way ----------------------------------------------------------------------- */

enum { MOST_MESSAGES = 4096, FREED_EXIT = 99 };

static struct message {
    const char *data;
    MPI_Request request;
} under_way[MOST_MESSAGES];
static int num_under_way;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int started(int code, const void *data, MPI_Request request)
{
    pthread_mutex_lock(&lock);
    if (code == MPI_SUCCESS && num_under_way < MOST_MESSAGES)
        under_way[num_under_way++] = (struct message){data, request};
    pthread_mutex_unlock(&lock);
    return code;
}

static void ended(MPI_Request request)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < num_under_way; i++)
        if (under_way[i].request == request) {
            under_way[i] = under_way[--num_under_way];
            break;
        }
    pthread_mutex_unlock(&lock);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    const MPI_Request was = *request;
    const int code = PMPI_Test(request, flag, status);
    if (code == MPI_SUCCESS && *flag)
        ended(was);
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    const MPI_Request was = *request;
    const int code = PMPI_Wait(request, status);
    if (code == MPI_SUCCESS)
        ended(was);
    return code;
}

void __libc_free(void *memory);

void free(void *memory)
{
    static const char line[] = "fail_mpi: memory of a message under way goes back\n";
    const char *first = memory, *end = first + malloc_usable_size(memory);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < num_under_way; i++)
        if (under_way[i].data >= first && under_way[i].data < end) {
            (void)!write(STDERR_FILENO, line, sizeof line - 1);
            _exit(FREED_EXIT);
        }
    pthread_mutex_unlock(&lock);
    __libc_free(memory);
}

/* --- faults ----------------------------------------------------------------------------------- */

static bool fails(const char *what, bool counts, int *calls)
{
    const char *fault = getenv("FAIL_MPI"), *only = getenv("FAIL_MPI_RANK");
    const size_t length = strlen(what);
    if (!counts || rank < 0 || !fault || !only || atoi(only) != rank)
        return false;
    return ++*calls && strncmp(fault, what, length) == 0 && fault[length] == '@' &&
           atoi(fault + length + 1) == *calls;
}

static bool moves(MPI_Comm comm, int tag)
{
    return comm == all && tag >= FIRST_TAG;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    static int sends, deaths, steps, losses;
    if (fails("die", moves(comm, tag), &deaths) || fails("gone", comm != all, &losses))
        raise(SIGKILL);
    if (fails("send", moves(comm, tag), &sends) || fails("step", comm != all, &steps))
        return MPI_ERR_OTHER;
    const int code = PMPI_Isend(data, count, type, peer, tag, comm, request);
    return started(code, data, *request);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    static int receives;
    if (fails("recv", moves(comm, tag), &receives))
        return MPI_ERR_OTHER;
    const int code = PMPI_Irecv(data, count, type, peer, tag, comm, request);
    return started(code, data, *request);
}
