/* exec/cache/cache.h - AutoCache on one rank: outputs of frozen layers, kept by sample.
 *
 * It opens the machine's arena (exec/cache/arena.h), counts hits and misses, and decides whether a
 * job may and should use a cache. A cache never fails a run: a sample that is missing, damaged or
 * has no slot is computed again. A sample's content depends on the sample, its view and the frozen
 * weights only (frozen layers run without dropout, and each view of a sample has a slot). So a run
 * has the same bits with and without a cache, unless the cache rounds fp32 values to bf16. */
#pragma once

#include "exec/base/backend.h"
#include "exec/cache/arena.h"
#include "exec/comm/comm.h"
#include "partition/step/cache_rule.h"
#include "partition/plan/job.h"

enum { CACHE_NOTE_BYTES = 256 };

struct cache; /* opaque */

/* Counts of samples, of this process, since cache_open(). */
struct cache_counts {
    int64_t hits;     /* taken at the wanted level */
    int64_t upgrades; /* taken at a lower level; the rest was computed */
    int64_t misses;   /* computed from the input on */
    int64_t corrupt;  /* of the misses: the checksum did not fit */
    int64_t puts;
};

/* Make the machine's arena and attach to it; its files have no names when this returns (arena-5).
 * be is the backend that computes the content; it is borrowed for the call. Collective over the
 * message group, idle ranks included, because they may get work later. If the job refuses a cache,
 * or one rank cannot have it, the call returns OK with *cache NULL on every rank. note receives the
 * reason, or how much memory the cache takes, for rank 0 to print. Errors are those of comm. */
enum status cache_open(const struct comm *comm, const struct job *job, const struct backend *be,
                       int64_t num_samples, struct cache **cache, char note[CACHE_NOTE_BYTES],
                       struct err *err);
void cache_close(struct cache *cache); /* NULL is fine */

/* Copy the content of the sample, as epoch `epoch` sees it, into data: the output of `level` frozen
 * items, or of fewer if the cache has only that. Returns the level that data holds; 0: none; -1:
 * none, because the content was damaged. elems is the number of values of a sample at that level;
 * if it differs from the cache's, the call misses. Changes no counts. Values are bf16 where
 * train.dtype is, else fp32. Any thread. */
int cache_look(const struct cache *cache, int64_t epoch, int64_t sample, int level, int64_t elems,
               void *data);
/* Count a result of cache_look() that is used. */
void cache_count(struct cache *cache, int level, int got);
/* Any thread. */
void cache_put(struct cache *cache, int64_t epoch, int64_t sample, int level, int64_t elems,
               const void *data);
/* Drop what went through more than `level` frozen items, because those after it train again.
 * Between steps; all ranks call it. */
void cache_fall(struct cache *cache, int level);
int cache_elem_bytes(const struct cache *cache); /* of a value of data: 2 or 4 */
/* Whether only full micro-batches may use the cache, and are recomputed as a whole if it misses a
 * sample (cache_whole_wanted()). It is so where the bits of a row depend on the number of rows:
 * with BLAS, which has other kernels for small matrices, and with a GPU's libraries. Our own
 * kernels (exec/cpu/gemm.h) do not need it. */
bool cache_whole(const struct cache *cache);

bool cache_complete(const struct cache *cache); /* every sample (and view) has a slot */
double cache_room(const struct cache *cache);   /* share of the samples (and views) that have one */

struct cache_counts cache_counts(const struct cache *cache);
/* Sums over all ranks. Collective over the message group. */
enum status cache_counts_all(const struct comm *comm, const struct cache *cache,
                             struct cache_counts *sums, struct err *err);
