/* exec/comm/comm_mpi.c - comm.h over MPI, in host memory, except the sums of floats
 * (comm_mpi_sums.c).
 *
 * Point-to-point calls and small collectives are thin wrappers: MPI_TRY() turns a failed call into
 * one error with its text, the rank and the line. Read comm_init() for the numbering of ranks. */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#include "exec/base/watch.h"
#include "exec/comm/comm.h"
#include "exec/comm/mpi_group.h"
#include "exec/comm/mpi_progress.h"
#include "exec/comm/shm_reduce.h"
#include "exec/comm/start_sign.h"
#include "profiles/base/clock.h"

enum { PING_ROUNDS = 32, PING_TAG = 1 };

/* Set the clock by Cristian's algorithm. The offset measured by the fastest round trip is wrong by
 * less than half of that round trip. */
static enum status set_clock(struct comm *comm, struct err *err)
{
    enum status rc;
    const MPI_Comm all = comm->all->mpi;
    for (int peer = comm->node_ranks[0]; peer < comm->size; peer++) {
        int64_t best = INT64_MAX;
        if (comm->rank != 0 && comm->rank != peer)
            continue;
        for (int i = 0; i < PING_ROUNDS; i++) {
            int64_t there = 0, sent = clock_now_ns();
            if (comm->rank == 0) {
                MPI_TRY(MPI_Recv(&there, 1, MPI_INT64_T, peer, PING_TAG, all, MPI_STATUS_IGNORE));
                there = clock_now_ns();
                MPI_TRY(MPI_Send(&there, 1, MPI_INT64_T, peer, PING_TAG, all));
            } else {
                MPI_TRY(MPI_Send(&sent, 1, MPI_INT64_T, 0, PING_TAG, all));
                MPI_TRY(MPI_Recv(&there, 1, MPI_INT64_T, 0, PING_TAG, all, MPI_STATUS_IGNORE));
                int64_t back = clock_now_ns();
                if (back - sent < best) {
                    best = back - sent;
                    comm->clock_offset_ns = there - (sent + back) / 2;
                }
            }
        }
    }
    rc = OK;
out:
    return rc;
}

/* Number the ranks node by node, so that the stages of a pipeline are neighbours. A node is named
 * by the lowest rank that MPI started on it; node_of holds this rank's entry on entry and all
 * entries afterwards. */
static enum status number_ranks(struct comm *comm, int *node_of, struct err *err)
{
    enum status rc;
    const int started = comm->rank, mine = node_of[started];
    MPI_TRY(MPI_Allgather(&mine, 1, MPI_INT, node_of, 1, MPI_INT, MPI_COMM_WORLD));
    comm->rank = 0;
    for (int i = 0; i < comm->size; i++) {
        const bool node_before = node_of[i] < mine;
        comm->num_nodes += node_of[i] == i;
        comm->node += node_before && node_of[i] == i;
        comm->rank += node_before || (i < started && node_of[i] == mine);
    }
    comm->node_ranks = calloc((size_t)comm->num_nodes, sizeof *comm->node_ranks);
    if (!comm->node_ranks)
        return err_nomem(err);
    for (int i = 0, node = -1; i < comm->size; i++) {
        if (node_of[i] != i)
            continue;
        node++;
        for (int j = i; j < comm->size; j++)
            comm->node_ranks[node] += node_of[j] == i;
    }
    rc = OK;
out:
    return rc;
}

enum status comm_init(int *argc, char ***argv, struct comm *comm, struct err *err)
{
    enum status rc;
    struct comm got = {0};
    MPI_Comm local = MPI_COMM_NULL, all = MPI_COMM_NULL;
    int *node_of = NULL, provided;
    double *received = NULL;
    unsetenv("EVENT_NOEPOLL"); /* for mpirun only, see cli/launch/launch_env.c */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0); /* patience.h */
    start_sign_begin();
    MPI_TRY(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
    start_sign_ready();
    MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &got.rank));
    MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &got.size));
    MPI_TRY(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local));
    MPI_TRY(MPI_Comm_rank(local, &got.local_rank));
    MPI_TRY(MPI_Comm_size(local, &got.local_size));
    node_of = malloc((size_t)got.size * sizeof *node_of);
    got.all = calloc(1, sizeof *got.all);
    received = calloc((size_t)got.size, SUM_CHUNK * sizeof *received);
    if (!node_of || !got.all || !received) {
        rc = err_nomem(err);
        goto out;
    }
    node_of[got.rank] = got.rank;
    MPI_TRY(MPI_Bcast(&node_of[got.rank], 1, MPI_INT, 0, local));
    rc = number_ranks(&got, node_of, err);
    if (rc != OK)
        goto out;
    MPI_TRY(MPI_Comm_split(MPI_COMM_WORLD, 0, got.rank, &all));
    mpi_failures_of(got.rank);
    got.max_tag = mpi_max_tag();
    *got.all =
        (struct comm_group){.mpi = all, .rank = got.rank, .size = got.size, .received = received};
    rc = set_clock(&got, err);
    if (rc != OK)
        goto out;
    *comm = got;
    got = (struct comm){0};
    all = MPI_COMM_NULL;
    received = NULL;
out:
    if (all != MPI_COMM_NULL)
        MPI_Comm_free(&all);
    if (local != MPI_COMM_NULL)
        MPI_Comm_free(&local);
    free(got.all);
    free(received);
    free(got.node_ranks);
    free(node_of);
    return rc;
}

void comm_finalize(struct comm *comm)
{
    int finalized = 0;
    const int size = comm->size;
    comm_group_free(comm->all);
    free(comm->node_ranks);
    *comm = (struct comm){0};
    MPI_Finalized(&finalized);
    if (!finalized) {
        shm_reduce_free_retired();
        watch_wait("for the end", -1, size);
        MPI_Finalize();
        watch_wait_end();
    }
}

_Noreturn void comm_abort(const struct comm *comm, int exit_code)
{
    (void)comm;
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    _Exit(exit_code);
}

_Noreturn void comm_fail(const struct comm *comm, const struct err *err)
{
    if (comm->fail)
        comm->fail(comm, err);
    comm_abort(comm, status_exit_code(err->status));
}

int64_t comm_now_ns(const struct comm *comm)
{
    return clock_now_ns() + comm->clock_offset_ns;
}

enum status comm_agree(const struct comm *comm, enum status status, struct err *err)
{
    enum status rc;
    struct err shared = {0};
    int mine = status == OK ? INT_MAX : comm->rank, lowest;
    if (comm->size == 1)
        return status;
    MPI_MEET("for agreement", comm->all,
             MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, comm->all->mpi));
    if (lowest == INT_MAX)
        return OK;
    if (lowest == comm->rank && err)
        shared = *err;
    shared.status = status;
    MPI_MEET("for an error", comm->all,
             MPI_Bcast(&shared, (int)sizeof shared, MPI_BYTE, lowest, comm->all->mpi));
    if (lowest != comm->rank && err)
        *err = shared;
    rc = shared.status;
out:
    return rc;
}

enum status comm_split(const struct comm *comm, int color, int key, struct comm_group **group,
                       struct err *err)
{
    struct comm_group *got = calloc(1, sizeof *got);
    int *numbers = calloc((size_t)comm->size, sizeof *numbers);
    double *received = calloc((size_t)comm->size, SUM_CHUNK * sizeof *received);
    MPI_Comm mpi = MPI_COMM_NULL;
    enum status rc = comm_agree(comm, got && numbers && received ? OK : err_nomem(err), err);
    if (rc != OK)
        goto out;
    /* All ranks of those groups have freed them before this collective call. */
    shm_reduce_free_retired();
    MPI_MEET("to make groups", comm->all,
             MPI_Comm_split(comm->all->mpi, color < 0 ? MPI_UNDEFINED : color, key, &mpi));
    *group = NULL;
    if (mpi != MPI_COMM_NULL) {
        MPI_TRY(MPI_Comm_rank(mpi, &got->rank));
        MPI_TRY(MPI_Comm_size(mpi, &got->size));
        MPI_MEET("to make groups", got,
                 MPI_Allgather(&comm->rank, 1, MPI_INT, numbers, 1, MPI_INT, mpi));
        got->mpi = mpi;
        got->numbers = numbers;
        got->received = received;
        *group = got;
        mpi = MPI_COMM_NULL;
        got = NULL;
        numbers = NULL;
        received = NULL;
    }
    rc = OK;
out:
    if (mpi != MPI_COMM_NULL)
        MPI_Comm_free(&mpi);
    free(numbers);
    free(received);
    free(got);
    return rc;
}

void comm_group_free(struct comm_group *group)
{
    if (!group)
        return;
    /* Not collective, because this rank may have failed and its peers may be elsewhere. */
    comm_drop_sums(group, shm_reduce_retire);
    MPI_Comm_free(&group->mpi);
    free(group->numbers);
    free(group->received);
    free(group);
}

int comm_group_rank(const struct comm_group *group)
{
    return group->rank;
}

int comm_group_size(const struct comm_group *group)
{
    return group->size;
}

/* --- collectives ------------------------------------------------------------------------------ */

enum status comm_sum_f64(const struct comm_group *group, double *values, int count, struct err *err)
{
    enum status rc;
    for (int done = 0; group->size > 1 && done < count; done += SUM_CHUNK) {
        const int n = count - done < SUM_CHUNK ? count - done : SUM_CHUNK;
        double *to = values + done, *all = group->received;
        MPI_MEET("in a sum", group,
                 MPI_Allgather(to, n, MPI_DOUBLE, all, n, MPI_DOUBLE, group->mpi));
        for (int i = 0; i < n; i++) {
            to[i] = all[i];
            for (int r = 1; r < group->size; r++)
                to[i] += all[r * n + i];
        }
    }
    rc = OK;
out:
    return rc;
}

enum status comm_max_i64(const struct comm_group *group, int64_t *values, int count,
                         struct err *err)
{
    enum status rc = OK;
    MPI_MEET("in a maximum", group,
             MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT64_T, MPI_MAX, group->mpi));
out:
    return rc;
}

enum status comm_bcast(const struct comm_group *group, void *data, int64_t bytes, int root,
                       struct err *err)
{
    enum status rc = OK;
    char *at = data;
    for (int64_t done = 0; done < bytes; done += MAX_CHUNK) {
        int64_t chunk = bytes - done < MAX_CHUNK ? bytes - done : MAX_CHUNK;
        MPI_MEET("in a broadcast", group,
                 MPI_Bcast(at + done, (int)chunk, MPI_BYTE, root, group->mpi));
    }
out:
    return rc;
}

enum status comm_barrier(const struct comm_group *group, struct err *err)
{
    enum status rc = OK;
    MPI_MEET("at a barrier", group, MPI_Barrier(group->mpi));
out:
    return rc;
}

enum status comm_gather(const struct comm_group *group, const void *data, int64_t bytes,
                        void **gathered, int64_t **sizes, struct err *err)
{
    enum status rc = OK;
    const size_t n = group->rank == 0 ? (size_t)group->size : 1;
    int64_t total = bytes, *size = NULL;
    char *all = NULL;
    int *count = NULL;
    *gathered = NULL;
    *sizes = NULL;
    MPI_MEET("in a gathering", group,
             MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_INT64_T, MPI_SUM, group->mpi));
    if (total > INT_MAX) /* on all ranks alike */
        return err_set(err, ERR_INPUT, "cannot gather more than %d bytes", INT_MAX);
    all = malloc(group->rank == 0 && total ? (size_t)total : 1);
    size = calloc(n, sizeof *size);
    count = calloc(2 * n, sizeof *count);
    int64_t lacks = !all || !size || !count;
    rc = comm_max_i64(group, &lacks, 1,
                      err); /* one without memory must not leave the others waiting */
    if (rc == OK && lacks)
        rc = err_nomem(err);
    if (rc != OK)
        goto out;
    MPI_MEET("in a gathering", group,
             MPI_Gather(&bytes, 1, MPI_INT64_T, size, 1, MPI_INT64_T, 0, group->mpi));
    total = 0;
    for (size_t i = 0; group->rank == 0 && i < n; i++) {
        count[i] = (int)size[i];
        count[n + i] = (int)total;
        total += size[i];
    }
    MPI_MEET(
        "in a gathering", group,
        MPI_Gatherv(data, (int)bytes, MPI_BYTE, all, count, count + n, MPI_BYTE, 0, group->mpi));
    if (group->rank == 0) {
        *gathered = all;
        *sizes = size;
        all = NULL;
        size = NULL;
    }
out:
    free(all);
    free(size);
    free(count);
    return rc;
}
