/* exec/comm/shm_reduce.h - sums over ranks of one machine, in memory that they share; private to
 * exec/comm/.
 *
 * Every rank owns a buffer in one MPI window and keeps its values there. A rank sums its segment
 * from all buffers and writes the sum into all of them: nothing is copied besides, and ranks wait
 * for each other twice. */
#ifndef ELAPSE_EXEC_COMM_SHM_REDUCE_H
#define ELAPSE_EXEC_COMM_SHM_REDUCE_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

struct shm_reduce; /* opaque */

/* Collective over comm, whose ranks must all share this machine's memory; comm is borrowed, count
 * >= 0 the same everywhere. ERR_NOMEM where it would take more than half of /dev/shm's free room,
 * ERR_SYSTEM where MPI refuses. */
enum status shm_reduce_new(MPI_Comm comm, int64_t count, struct shm_reduce **reduce,
                           struct err *err);
void shm_reduce_free(struct shm_reduce *reduce); /* collective; NULL is fine */
/* The same in two steps, for an owner that may be on its way out after a failure of its own: put it
 * aside alone, and free all that were put aside together with the peers. */
void shm_reduce_retire(struct shm_reduce *reduce);
void shm_reduce_free_retired(void);

/* This rank's buffer, `count` elements, 64-byte aligned, lives as long as reduce. */
float *shm_reduce_buffer(const struct shm_reduce *reduce);

/* Of every buffer's elements [first, first + count): the sum over ranks, 0, 1, 2, ... left to
 * right; or, pairwise, neighbours first, then neighbouring pairs, ... (a power of two of ranks).
 * Collective, the same arguments everywhere, one sum under way at a time.
 *
 * shm_reduce_start() says that this rank's values are there; from then until shm_reduce_advance()
 * returns true they belong to the sum. advance does what can be done now - this rank's segment,
 * once all have started - and never waits. Ranks in shm_reduce_wait() keep MPI's messages moving.
 */
void shm_reduce_start(struct shm_reduce *reduce, int64_t first, int64_t count, bool pairwise);
bool shm_reduce_advance(struct shm_reduce *reduce);
void shm_reduce_wait(struct shm_reduce *reduce); /* until advance is true */

#endif
