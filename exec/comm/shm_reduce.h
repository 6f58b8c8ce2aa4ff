/* exec/comm/shm_reduce.h - sums over the ranks of one machine in shared memory; private to
 * exec/comm/.
 *
 * Every rank owns one buffer in a common mapping and keeps its values there. A rank reads its
 * segment from all buffers, adds it up, and writes the sum into all buffers. Nothing else is
 * copied. The ranks wait for each other twice: for the values, and for the sums. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

struct shm_reduce; /* opaque */

/* Collective over comm. All its ranks must share this machine's memory. comm is borrowed; count is
 * >= 0 and the same on every rank. ERR_NOMEM: it would need more than half of the free
 * space in /dev/shm. ERR_SYSTEM: a rank cannot map it. All ranks return the same status. */
enum status shm_reduce_new(MPI_Comm comm, int64_t count, struct shm_reduce **reduce,
                           struct err *err);
void shm_reduce_free(struct shm_reduce *reduce); /* NULL is fine */
/* Free in two steps, for an owner that may be shutting down after a failure of its own:
 * shm_reduce_retire() puts the object aside without the peers, and shm_reduce_free_retired(), which
 * is collective, frees all that were put aside. */
void shm_reduce_retire(struct shm_reduce *reduce);
void shm_reduce_free_retired(void);

/* This rank's buffer: `count` elements, 64-byte aligned, valid as long as reduce. */
float *shm_reduce_buffer(const struct shm_reduce *reduce);

/* Replace elements [first, first + count) of every buffer by their sum over the ranks: 0, 1, 2, ...
 * left to right, or, if pairwise, neighbours first, then neighbouring pairs, and so on (the number
 * of ranks must be a power of two). Collective, with the same arguments on every rank; one sum at a
 * time.
 *
 * shm_reduce_start() announces that this rank's values are in its buffer. They belong to the sum
 * until shm_reduce_advance() returns true. shm_reduce_advance() does what is possible now (it adds
 * this rank's segment once all ranks have started) and never waits. shm_reduce_wait() waits, and
 * lets MPI's messages make progress meanwhile. */
void shm_reduce_start(struct shm_reduce *reduce, int64_t first, int64_t count, bool pairwise);
bool shm_reduce_advance(struct shm_reduce *reduce);
void shm_reduce_wait(struct shm_reduce *reduce); /* returns when the sum is done */
