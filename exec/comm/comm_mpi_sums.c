/* exec/comm/comm_mpi_sums.c - sums of floats over the ranks of a group (comm.h).
 *
 * They do not use MPI_Allreduce(), because MPI does not fix the order in which it adds. They have
 * two ways instead: in shared memory (shm_reduce.h) where all ranks of a group are on one machine,
 * else by messages, in chunks: each rank gets its segment of all ranks by MPI_Ialltoallv(), adds it
 * in order, and sends the sum to the others by MPI_Iallgatherv(). Read comm_allreduce_start() and
 * next_phase(). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exec/base/watch.h"
#include "exec/comm/comm.h"
#include "exec/comm/mpi_group.h"
#include "exec/comm/shm_reduce.h"

void comm_drop_sums(struct comm_group *group, void (*drop)(struct shm_reduce *))
{
    if (!group->shared)
        free(group->sums);
    drop(group->shared);
    group->shared = NULL;
    group->sums = NULL;
    group->sums_count = 0;
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
    comm_drop_sums(group, shm_reduce_free);
    watch_wait("for memory of sums", -1, group->size);
    MPI_TRY(MPI_Comm_split_type(group->mpi, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local));
    MPI_TRY(MPI_Comm_size(local, &local_size));
    fine = group->size > 1 && local_size == group->size &&
           shm_reduce_new(group->mpi, count, &group->shared, NULL) == OK;
    MPI_TRY(MPI_Allreduce(&fine, &all_fine, 1, MPI_INT, MPI_MIN, group->mpi));
    if (!all_fine)
        comm_drop_sums(group, shm_reduce_free);
    group->sums = group->shared ? shm_reduce_buffer(group->shared)
                                : malloc((size_t)count * sizeof *group->sums);
    if (!group->sums)
        rc = err_nomem(err);
    else
        group->sums_count = count;
    *buffer = group->sums;
out:
    watch_wait_end();
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
    mpi_put_request(&reduce->request, mpi, -1, "in a sum of gradients", group, -1);
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
    mpi_put_request(&reduce->request, mpi, -1, "in a sum of gradients", group, -1);
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
        watch_wait("in a sum of gradients", -1, reduce->group->size);
        shm_reduce_wait(reduce->group->shared);
        watch_wait_end();
        end_sum(reduce);
    }
    while (rc == OK && reduce->active) {
        rc = comm_wait(&reduce->request, err);
        THEN(next_phase(reduce, err));
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
