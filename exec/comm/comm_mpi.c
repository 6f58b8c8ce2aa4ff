/* exec/comm/comm_mpi.c - comm.h over MPI, in host memory.
 *
 * Point-to-point calls and small collectives are thin wrappers: MPI_TRY() turns a failed call into
 * one error with its text, the rank and the line. Sums of floats do not use MPI_Allreduce(),
 * because MPI does not fix the order in which it adds. They have two ways instead: in shared memory
 * (shm_reduce.h) where all ranks of a group are on one machine, else by messages, in chunks: each
 * rank gets its segment of all ranks by MPI_Ialltoallv(), adds it in order, and sends the sum to
 * the others by MPI_Iallgatherv(). Read comm_init() for the numbering of ranks, then
 * comm_allreduce_start() and next_phase(). */
#include <assert.h>
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "exec/comm/comm.h"
#include "exec/comm/mpi_progress.h"
#include "exec/comm/shm_reduce.h"
#include "partition/units.h"
#include "profiles/clock.h"

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

/* Rank in the message group; -1 before comm_init(). */
static int own_rank = -1;

enum { PING_ROUNDS = 32, PING_TAG = 1, MAX_CHUNK = 1 << 30 };

struct comm_group {
    MPI_Comm mpi;
    int rank, size;
    struct shm_reduce *shared; /* owned; NULL: not requested, or shared memory is not available */
    float *sums;               /* result of comm_sum_buffer(): the buffer of `shared`, or owned */
    int64_t sums_count;
};

static enum status mpi_failed(const char *call, int code, const char *file, int line,
                              struct err *err)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    MPI_Error_string(code, text, &length);
    return err_set(err, ERR_SYSTEM, "rank %d: %.80s failed: %.200s (%s:%d)", own_rank, call, text,
                   file, line);
}

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
        comm->rank += node_before || (node_of[i] == mine && i < started);
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
    MPI_TRY(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
    MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &got.rank));
    MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &got.size));
    MPI_TRY(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local));
    MPI_TRY(MPI_Comm_rank(local, &got.local_rank));
    MPI_TRY(MPI_Comm_size(local, &got.local_size));
    node_of = malloc((size_t)got.size * sizeof *node_of);
    got.all = calloc(1, sizeof *got.all);
    if (!node_of || !got.all) {
        rc = err_nomem(err);
        goto out;
    }
    node_of[got.rank] = got.rank;
    MPI_TRY(MPI_Bcast(&node_of[got.rank], 1, MPI_INT, 0, local));
    rc = number_ranks(&got, node_of, err);
    if (rc != OK)
        goto out;
    MPI_TRY(MPI_Comm_split(MPI_COMM_WORLD, 0, got.rank, &all));
    own_rank = got.rank;
    got.max_tag = mpi_max_tag();
    *got.all = (struct comm_group){.mpi = all, .rank = got.rank, .size = got.size};
    rc = set_clock(&got, err);
    if (rc != OK)
        goto out;
    *comm = got;
    got = (struct comm){0};
    all = MPI_COMM_NULL;
out:
    if (all != MPI_COMM_NULL)
        MPI_Comm_free(&all);
    if (local != MPI_COMM_NULL)
        MPI_Comm_free(&local);
    free(got.all);
    free(got.node_ranks);
    free(node_of);
    return rc;
}

void comm_finalize(struct comm *comm)
{
    int finalized = 0;
    comm_group_free(comm->all);
    free(comm->node_ranks);
    *comm = (struct comm){0};
    MPI_Finalized(&finalized);
    if (!finalized) {
        shm_reduce_free_retired();
        MPI_Finalize();
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
    MPI_TRY(MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, comm->all->mpi));
    if (lowest == INT_MAX)
        return OK;
    if (lowest == comm->rank && err)
        shared = *err;
    shared.status = status;
    MPI_TRY(MPI_Bcast(&shared, (int)sizeof shared, MPI_BYTE, lowest, comm->all->mpi));
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
    MPI_Comm mpi = MPI_COMM_NULL;
    enum status rc = comm_agree(comm, got ? OK : err_nomem(err), err);
    if (rc != OK)
        goto out;
    /* All ranks of those groups have freed them before this collective call. */
    shm_reduce_free_retired();
    MPI_TRY(MPI_Comm_split(comm->all->mpi, color < 0 ? MPI_UNDEFINED : color, key, &mpi));
    *group = NULL;
    if (mpi != MPI_COMM_NULL) {
        MPI_TRY(MPI_Comm_rank(mpi, &got->rank));
        MPI_TRY(MPI_Comm_size(mpi, &got->size));
        got->mpi = mpi;
        *group = got;
        mpi = MPI_COMM_NULL;
        got = NULL;
    }
    rc = OK;
out:
    if (mpi != MPI_COMM_NULL)
        MPI_Comm_free(&mpi);
    free(got);
    return rc;
}

static void drop_sums(struct comm_group *group, void (*drop)(struct shm_reduce *))
{
    if (!group->shared)
        free(group->sums);
    drop(group->shared);
    group->shared = NULL;
    group->sums = NULL;
    group->sums_count = 0;
}

void comm_group_free(struct comm_group *group)
{
    if (!group)
        return;
    /* Not collective, because this rank may have failed and its peers may be elsewhere. */
    drop_sums(group, shm_reduce_retire);
    MPI_Comm_free(&group->mpi);
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

/* --- point to point -------------------------------------------------------------------------- */

static void put_request(struct comm_request *request, MPI_Request mpi, int64_t bytes)
{
    _Static_assert(sizeof mpi <= sizeof request->handle, "an MPI_Request fits a comm_request");
    memcpy(&request->handle, &mpi, sizeof mpi);
    request->bytes = bytes;
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
    put_request(request, mpi, -1);
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
    put_request(request, mpi, bytes);
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
        MPI_TRY(MPI_Wait(&mpi, &status));
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

/* --- collectives ------------------------------------------------------------------------------ */

enum status comm_sum_f64(const struct comm_group *group, double *values, int count, struct err *err)
{
    enum status rc;
    double *all = NULL;
    if (group->size == 1)
        return OK;
    all = malloc((size_t)count * (size_t)group->size * sizeof *all);
    if (!all)
        return err_nomem(err);
    MPI_TRY(MPI_Allgather(values, count, MPI_DOUBLE, all, count, MPI_DOUBLE, group->mpi));
    for (int i = 0; i < count; i++) {
        values[i] = all[i];
        for (int r = 1; r < group->size; r++)
            values[i] += all[(size_t)r * (size_t)count + (size_t)i];
    }
    rc = OK;
out:
    free(all);
    return rc;
}

enum status comm_max_i64(const struct comm_group *group, int64_t *values, int count,
                         struct err *err)
{
    enum status rc = OK;
    MPI_TRY(MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT64_T, MPI_MAX, group->mpi));
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
        MPI_TRY(MPI_Bcast(at + done, (int)chunk, MPI_BYTE, root, group->mpi));
    }
out:
    return rc;
}

enum status comm_barrier(const struct comm_group *group, struct err *err)
{
    enum status rc = OK;
    MPI_TRY(MPI_Barrier(group->mpi));
out:
    return rc;
}

enum status comm_gather(const struct comm_group *group, const void *data, int64_t bytes,
                        void **gathered, int64_t **sizes, struct err *err)
{
    enum status rc = OK;
    size_t n = (size_t)group->size;
    int64_t total = 0;
    char *all = NULL;
    int64_t *size = calloc(n, sizeof *size);
    int *count = calloc(2 * n, sizeof *count), *at = count ? count + n : NULL;
    *gathered = NULL;
    *sizes = NULL;
    if (!size || !count) {
        rc = err_nomem(err);
        goto out;
    }
    MPI_TRY(MPI_Allgather(&bytes, 1, MPI_INT64_T, size, 1, MPI_INT64_T, group->mpi));
    for (size_t i = 0; i < n; i++) {
        if (!add_ok(total, size[i], &total) || total > INT_MAX) {
            rc = err_set(err, ERR_INPUT, "cannot gather more than %d bytes", INT_MAX);
            goto out;
        }
        count[i] = (int)size[i];
        at[i] = (int)(total - size[i]);
    }
    if (group->rank == 0) {
        all = malloc(total ? (size_t)total : 1);
        if (!all) {
            rc = err_nomem(err);
            goto out;
        }
    }
    MPI_TRY(MPI_Gatherv(data, (int)bytes, MPI_BYTE, all, count, at, MPI_BYTE, 0, group->mpi));
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

/* First element of segment r of n. */
static int64_t segment_first(int64_t count, int r, int n)
{
    return count / n * r + (count % n < r ? count % n : r);
}

/* parts holds n segments of `size` elements, one after another. Writes their sum, added left to
 * right, to `sum`. */
static void sum_in_order(float *parts, int n, size_t size, float *sum)
{
    for (size_t i = 0; i < size; i++) {
        float total = parts[i];
        for (int r = 1; r < n; r++)
            total += parts[(size_t)r * size + i];
        sum[i] = total;
    }
}

/* Like sum_in_order(), but adds neighbours first, then neighbouring pairs. Overwrites parts. */
static void sum_pairwise(float *parts, int n, size_t size, float *sum)
{
    for (int width = 1; width < n; width *= 2)
        for (int r = 0; r + width < n; r += 2 * width) {
            float *to = parts + (size_t)r * size, *from = parts + (size_t)(r + width) * size;
            for (size_t i = 0; i < size; i++)
                to[i] += from[i];
        }
    memcpy(sum, parts, size * sizeof *sum);
}

enum status comm_sum_buffer(struct comm_group *group, int64_t count, float **buffer,
                            struct err *err)
{
    enum status rc = OK;
    MPI_Comm local = MPI_COMM_NULL;
    int local_size = 0, fine, all_fine;
    if (count <= group->sums_count) {
        *buffer = group->sums;
        return OK;
    }
    drop_sums(group, shm_reduce_free);
    MPI_TRY(MPI_Comm_split_type(group->mpi, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local));
    MPI_TRY(MPI_Comm_size(local, &local_size));
    fine = group->size > 1 && local_size == group->size &&
           shm_reduce_new(group->mpi, count, &group->shared, NULL) == OK;
    MPI_TRY(MPI_Allreduce(&fine, &all_fine, 1, MPI_INT, MPI_MIN, group->mpi));
    if (!all_fine)
        drop_sums(group, shm_reduce_free);
    group->sums = group->shared ? shm_reduce_buffer(group->shared)
                                : malloc((size_t)count * sizeof *group->sums);
    if (!group->sums)
        rc = err_nomem(err);
    else
        group->sums_count = count;
    *buffer = group->sums;
out:
    if (local != MPI_COMM_NULL)
        MPI_Comm_free(&local);
    return rc;
}

/* Phases of a sum. PHASE_SHARED: in shared memory. A sum by messages has two phases for each chunk.
 * PHASE_SCATTER: every rank receives its segment of all ranks. PHASE_GATHER: the owners of the
 * segments send the sums to all ranks. */
enum phase { PHASE_SHARED, PHASE_SCATTER, PHASE_GATHER };

static enum status start_scatter(struct comm_reduce *reduce, struct err *err)
{
    enum status rc;
    const struct comm_group *group = reduce->group;
    const int n = group->size, me = group->rank;
    const int64_t left = reduce->count - reduce->at, chunk = MAX_CHUNK / (int64_t)sizeof(float);
    const int64_t count = left < chunk ? left : chunk;
    int *size = reduce->counts, *first = size + n, *in_size = size + 2 * n,
        *in_first = size + 3 * n;
    MPI_Request mpi;
    for (int r = 0; r < n; r++) {
        first[r] = (int)segment_first(count, r, n);
        size[r] = (int)segment_first(count, r + 1, n) - first[r];
    }
    for (int r = 0; r < n; r++) {
        in_size[r] = size[me];
        in_first[r] = r * size[me];
    }
    reduce->phase = PHASE_SCATTER;
    MPI_TRY(MPI_Ialltoallv(reduce->values + reduce->at, size, first, MPI_FLOAT, reduce->parts,
                           in_size, in_first, MPI_FLOAT, group->mpi, &mpi));
    put_request(&reduce->request, mpi, -1);
    rc = OK;
out:
    return rc;
}

static enum status start_gather(struct comm_reduce *reduce, struct err *err)
{
    enum status rc;
    const struct comm_group *group = reduce->group;
    const int n = group->size, me = group->rank;
    const int *size = reduce->counts, *first = size + n;
    float *values = reduce->values + reduce->at;
    MPI_Request mpi;
    (reduce->pairwise ? sum_pairwise : sum_in_order)(reduce->parts, n, (size_t)size[me],
                                                     values + first[me]);
    reduce->phase = PHASE_GATHER;
    MPI_TRY(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values, size, first, MPI_FLOAT,
                            group->mpi, &mpi));
    put_request(&reduce->request, mpi, -1);
    rc = OK;
out:
    return rc;
}

static void end_sum(struct comm_reduce *reduce)
{
    free(reduce->parts);
    free(reduce->counts);
    *reduce = (struct comm_reduce){0};
}

enum status comm_allreduce_start(const struct comm_group *group, float *values, int64_t count,
                                 bool pairwise, struct comm_reduce *reduce, struct err *err)
{
    enum status rc = OK;
    const size_t n = (size_t)group->size;
    /* MPI counts elements with an int, so a sum proceeds in chunks. */
    const int64_t chunk = MAX_CHUNK / (int64_t)sizeof *values;
    assert(!reduce->active);
    if (pairwise && (n & (n - 1)) != 0)
        return err_set(err, ERR_INPUT, "a pairwise sum needs a power of two of ranks, got %d",
                       group->size);
    if (n == 1 || count == 0)
        return OK;
    *reduce = (struct comm_reduce){
        .group = group, .values = values, .count = count, .pairwise = pairwise, .active = true};
    if (group->shared && values >= group->sums && values < group->sums + group->sums_count) {
        shm_reduce_start(group->shared, values - group->sums, count, pairwise);
        return OK;
    }
    reduce->counts = calloc(4 * n, sizeof *reduce->counts);
    reduce->parts = malloc(((size_t)(count < chunk ? count : chunk) + n) * sizeof *reduce->parts);
    rc = reduce->counts && reduce->parts ? start_scatter(reduce, err) : err_nomem(err);
    if (rc != OK)
        end_sum(reduce);
    return rc;
}

/* Start the phase after the one that has just ended. */
static enum status next_phase(struct comm_reduce *reduce, struct err *err)
{
    if (reduce->phase == PHASE_SCATTER)
        return start_gather(reduce, err);
    reduce->at += MAX_CHUNK / (int64_t)sizeof(float);
    if (reduce->at < reduce->count)
        return start_scatter(reduce, err);
    end_sum(reduce);
    return OK;
}

enum status comm_allreduce_test(struct comm_reduce *reduce, bool *done, struct err *err)
{
    enum status rc = OK;
    bool over = true;
    while (rc == OK && over && reduce->active && reduce->phase != PHASE_SHARED) {
        rc = comm_test(&reduce->request, &over, err);
        if (rc == OK && over)
            rc = next_phase(reduce, err);
    }
    if (reduce->active &&
        (rc != OK || (reduce->phase == PHASE_SHARED && shm_reduce_advance(reduce->group->shared))))
        end_sum(reduce);
    *done = !reduce->active;
    return rc;
}

enum status comm_allreduce_wait(struct comm_reduce *reduce, struct err *err)
{
    enum status rc = OK;
    if (reduce->active && reduce->phase == PHASE_SHARED) {
        shm_reduce_wait(reduce->group->shared);
        end_sum(reduce);
    }
    while (rc == OK && reduce->active) {
        rc = comm_wait(&reduce->request, err);
        if (rc == OK)
            rc = next_phase(reduce, err);
    }
    if (rc != OK)
        end_sum(reduce);
    return rc;
}

enum status comm_allreduce_f32(const struct comm_group *group, float *values, int64_t count,
                               struct err *err)
{
    struct comm_reduce reduce = {0};
    enum status rc = comm_allreduce_start(group, values, count, false, &reduce, err);
    return rc == OK ? comm_allreduce_wait(&reduce, err) : rc;
}
