/* Sums over ranks in shared memory, without locks.
 *
 * Each rank publishes two counters in shared memory: the number of the last sum whose values it has
 * written, and the number of the last sum whose segment it has added. shm_reduce_advance() compares
 * the counters of all ranks with its own count of sums: release stores and acquire loads order the
 * values after them. Read struct flags, then shm_reduce_start(), shm_reduce_advance() and
 * sum_segment(). The rest maps and frees the memory. */
#include "exec/comm/shm_reduce.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#include "exec/comm/mpi_progress.h"
#include "exec/comm/shm_map.h"

enum { LANES = 16, BLOCK = 512, PATIENCE = 4096 };

/* At the start of each rank's part, in cache lines of their own. written: this rank's values for
 * the sum of that number are in its buffer. summed: it has added its segment of that sum. */
struct flags {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t summed;
};

struct shm_reduce {
    MPI_Comm comm; /* borrowed */
    char *memory;  /* owned; mapped, all ranks' parts */
    size_t bytes;
    int rank, size;
    uint64_t sums;        /* number of sums started */
    int64_t first, count; /* elements of the sum in flight */
    bool pairwise, mine_done, done;
    struct flags **flags;    /* [size], in memory */
    float **buffer;          /* [size], in memory */
    struct shm_reduce *next; /* list of retired objects */
};

/* Whether /dev/shm has enough free space. A file larger than the free space is made without an
 * error and fails later with SIGBUS, when it is first touched. True if there is no /dev/shm to ask,
 * because then the file lies elsewhere. */
static bool there_is_room(int64_t count, int size)
{
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) != 0)
        return true;
    const double room = (double)shm.f_bavail * (double)shm.f_frsize;
    return (double)size * ((double)count * sizeof(float) + 4096) <= room / 2;
}

enum status shm_reduce_new(MPI_Comm comm, int64_t count, struct shm_reduce **reduce,
                           struct err *err)
{
    const int64_t lines = (count + LANES - 1) / LANES; /* of 64 bytes */
    const size_t part = sizeof(struct flags) + (size_t)lines * 64;
    struct shm_reduce *got = calloc(1, sizeof *got);
    int size, code;
    bool all_fine = false;
    void *memory = NULL;
    MPI_Comm_size(comm, &size);
    if (got) {
        got->comm = comm;
        got->size = size;
        got->bytes = part * (size_t)size;
        MPI_Comm_rank(comm, &got->rank);
        got->flags = calloc((size_t)size, sizeof *got->flags);
        got->buffer = calloc((size_t)size, sizeof *got->buffer);
    }
    enum status rc = shm_agree(comm, got && got->flags && got->buffer && there_is_room(count, size),
                               &all_fine, err);
    if (rc == OK && !all_fine)
        rc = err_set(err, ERR_NOMEM, "shared memory: no room for %lld floats on each of %d ranks",
                     (long long)count, size);
    THEN(shm_map(comm, got->bytes, &memory, err));
    if (rc != OK)
        goto out;
    got->memory = memory;
    for (int r = 0; r < size; r++) {
        got->flags[r] = (struct flags *)(got->memory + part * (size_t)r);
        got->buffer[r] = (float *)(got->flags[r] + 1);
    }
    memset(got->flags[got->rank], 0, part); /* each rank touches its part first: it lies near it */
    code = MPI_Barrier(comm);
    if (code != MPI_SUCCESS)
        rc = shm_failed("MPI_Barrier", code, err);
out:
    if (rc == OK) {
        *reduce = got;
        got = NULL;
    }
    shm_reduce_free(got);
    return rc;
}

void shm_reduce_free(struct shm_reduce *reduce)
{
    if (!reduce)
        return;
    if (reduce->memory)
        munmap(reduce->memory, reduce->bytes);
    free(reduce->flags);
    free(reduce->buffer);
    free(reduce);
}

static struct shm_reduce *retired;

void shm_reduce_retire(struct shm_reduce *reduce)
{
    if (reduce) {
        reduce->next = retired;
        retired = reduce;
    }
}

void shm_reduce_free_retired(void)
{
    while (retired) {
        struct shm_reduce *next = retired->next;
        shm_reduce_free(retired);
        retired = next;
    }
}

float *shm_reduce_buffer(const struct shm_reduce *reduce)
{
    return reduce->buffer[reduce->rank];
}

/* to[n] = from[n] + with[n]. */
static void add(const float *from, const float *with, float *to, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        float sum[LANES];
        for (int k = 0; k < LANES; k++)
            sum[k] = from[i + k] + with[i + k];
        memcpy(to + i, sum, sizeof sum);
    }
    for (; i < n; i++)
        to[i] = from[i] + with[i];
}

/* Adds `width` parts as a balanced tree, n <= BLOCK elements of each. Returns where the sum lies:
 * in `to`, or for width 1 in the part itself. */
static const float *add_tree(float *const *parts, int64_t at, int width, float *to, int64_t n)
{
    float right[BLOCK];
    if (width == 1)
        return parts[0] + at;
    const float *a = add_tree(parts, at, width / 2, to, n);
    const float *b = add_tree(parts + width / 2, at, width / 2, right, n);
    add(a, b, to, n);
    return to;
}

void shm_reduce_start(struct shm_reduce *reduce, int64_t first, int64_t count, bool pairwise)
{
    reduce->first = first;
    reduce->count = count;
    reduce->pairwise = pairwise;
    reduce->mine_done = reduce->done = reduce->size == 1;
    reduce->sums++;
    atomic_store_explicit(&reduce->flags[reduce->rank]->written, reduce->sums,
                          memory_order_release);
}

/* Adds this rank's segment of all buffers and writes the sum into all of them. */
static void sum_segment(struct shm_reduce *reduce)
{
    const int n = reduce->size, me = reduce->rank;
    float *const *buffer = reduce->buffer;
    const int64_t first = reduce->first, count = reduce->count;
    const int64_t segment = ((count + n - 1) / n + LANES - 1) / LANES * LANES;
    const int64_t end = first + (count < (me + 1) * segment ? count : (me + 1) * segment);
    for (int64_t at = first + me * segment; at < end; at += BLOCK) {
        const int64_t len = end - at < BLOCK ? end - at : BLOCK;
        float sum[BLOCK];
        if (reduce->pairwise) {
            add_tree(buffer, at, n, sum, len);
        } else {
            add(buffer[0] + at, buffer[1] + at, sum, len);
            for (int r = 2; r < n; r++)
                add(sum, buffer[r] + at, sum, len);
        }
        for (int r = 0; r < n; r++)
            memcpy(buffer[r] + at, sum, (size_t)len * sizeof *sum);
    }
}

bool shm_reduce_advance(struct shm_reduce *reduce)
{
    for (int r = 0; r < reduce->size && !reduce->mine_done; r++)
        if (atomic_load_explicit(&reduce->flags[r]->written, memory_order_acquire) < reduce->sums)
            return false;
    if (!reduce->mine_done) {
        sum_segment(reduce);
        reduce->mine_done = true;
        atomic_store_explicit(&reduce->flags[reduce->rank]->summed, reduce->sums,
                              memory_order_release);
    }
    for (int r = 0; r < reduce->size && !reduce->done; r++)
        if (atomic_load_explicit(&reduce->flags[r]->summed, memory_order_acquire) < reduce->sums)
            return false;
    return reduce->done = true;
}

/* Spin first, because peers on other cores are usually close behind. Then yield the core, and let
 * MPI progress the messages that peers may be waiting for. */
void shm_reduce_wait(struct shm_reduce *reduce)
{
    int patience = PATIENCE;
    while (!shm_reduce_advance(reduce)) {
        if (patience-- > 0)
            continue;
        mpi_progress(reduce->comm);
        sched_yield();
    }
}
