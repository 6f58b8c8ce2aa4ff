/* exec/cache/cache.h - AutoCache on one rank: the machine's arena (exec/cache/arena.h), counts of
 * what it answered, and whether a job may and should use one.
 *
 * A cache never fails a run: what is missing, damaged or has no room is computed again. A sample's
 * content depends on the sample, its view and the frozen weights only (frozen layers run without
 * dropout; each view of a sample has a slot), so a run gives the same bits with and without it,
 * unless it rounds fp32 values to bf16. */
#ifndef ELAPSE_EXEC_CACHE_CACHE_H
#define ELAPSE_EXEC_CACHE_CACHE_H

#include "exec/base/backend.h"
#include "exec/cache/arena.h"
#include "exec/comm/comm.h"
#include "partition/cache_rule.h"
#include "partition/job.h"

struct cache; /* opaque */

/* Of this process, per sample, since open. */
struct cache_counts {
    int64_t hits;     /* taken at the wanted level */
    int64_t upgrades; /* taken at a lower level; the rest was computed */
    int64_t misses;   /* computed from the input on */
    int64_t corrupt;  /* of the misses: the checksum did not fit */
    int64_t puts;
};

/* Make the machine's arena and attach to it; names are gone when it returns (A5). be, borrowed for
 * the call, computes what goes in. Collective over the message group, idle ranks included: they may
 * get work later. Returns OK with *cache NULL on every rank where the job refuses one or one of the
 * ranks cannot have it; note then says why, else how much memory it takes (at least 256 bytes, for
 * rank 0 to print). Errors are of comm only. */
enum status cache_open(const struct comm *comm, const struct job *job, const struct backend *be,
                       int64_t num_samples, struct cache **cache, char *note, int64_t note_bytes,
                       struct err *err);
void cache_close(struct cache *cache); /* NULL is fine */

/* Sample's content at `level` frozen items, as epoch `epoch` sees it, into data. If that is not
 * there but a lower level is, data gets that. Returns the level that data holds; 0: none; -1: none,
 * it was damaged. elems must be what a sample has at that level; others miss. Changes no counts.
 * Values of data are bf16 where train.dtype is, else fp32. Any thread. */
int cache_look(const struct cache *cache, int64_t epoch, int64_t sample, int level, int64_t elems,
               void *data);
/* The same in one go for whoever computes with it: count what cache_look() gave. */
void cache_count(struct cache *cache, int level, int got);
/* Any thread. */
void cache_put(struct cache *cache, int64_t epoch, int64_t sample, int level, int64_t elems,
               const void *data);
int cache_elem_bytes(const struct cache *cache); /* of a value of data: 2 or 4 */
/* Whether only full micro-batches may meet the cache, and are computed as a whole where they lack a
 * sample: cache_whole_wanted(). Products by BLAS, which has other kernels for small matrices, and
 * by a GPU's libraries want it; those of our own kernels do not (exec/cpu/gemm.h). */
bool cache_whole(const struct cache *cache);

bool cache_complete(const struct cache *cache); /* every sample (and view) has a slot */
double cache_room(const struct cache *cache);   /* share of the samples (and views) that have one */

struct cache_counts cache_counts(const struct cache *cache);
/* Sums over all ranks. Collective over the message group. */
enum status cache_counts_all(const struct comm *comm, const struct cache *cache,
                             struct cache_counts *sums, struct err *err);

#endif
