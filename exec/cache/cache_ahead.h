/* exec/cache/cache_ahead.h - the thread on each rank that reads from and writes to the cache.
 *
 * While a micro-batch computes, the thread reads the samples of the next ones from the cache, and
 * writes what was computed.
 *
 * It has CACHE_AHEAD buffers of a micro-batch each and fills them in the order of the sampler. A
 * caller takes a micro-batch by exchanging a buffer of its own for the filled one, so nothing is
 * copied twice. Reading ahead stops at the end of an epoch, so that everything that the last step
 * puts is there before the next epoch looks. A get that is not the next in order (an epoch's first,
 * a resumed run's first) says where to continue.
 *
 * Puts are made in the order given, after the reads that are possible; their data must not change
 * before cache_ahead_flush(). If the queue is full, the caller makes the put itself. A get finds
 * what cache_look() finds: the thread changes neither bits nor counts. If it cannot be started, the
 * callers do its work, and that is no error.
 *
 * One caller at a time. */
#pragma once

#include "exec/cache/cache.h"
#include "exec/data/sampler.h"

enum { CACHE_AHEAD = 2 };

struct cache_ahead; /* opaque */

struct cache_ahead_spec {
    struct cache *cache;           /* borrowed while it lives */
    const struct sampler *sampler; /* borrowed; of the training samples; read again at each jump */
    int replica;
    int level;     /* frozen items wanted */
    int64_t elems; /* of a sample */
    bool full;     /* do not look up micro-batches that are not full */
    /* microbatches.size * elems values each; lent by the caller until cache_ahead_free(). */
    void *buffers[CACHE_AHEAD];
};

/* ERR_NOMEM. */
enum status cache_ahead_new(const struct cache_ahead_spec *spec, struct cache_ahead **ahead,
                            struct err *err);
/* Finish the puts, drop the reads. buffers (may be NULL) receives the buffers that the thread holds
 * at the end, since exchanges have mixed them with the caller's. NULL is fine. */
void cache_ahead_free(struct cache_ahead *ahead, void *buffers[CACHE_AHEAD]);

/* The samples of a micro-batch of the replica. *buffer is exchanged for a buffer that holds them;
 * levels[i] is the level of sample i in it, 0: none, -1: none, because it was damaged. */
void cache_ahead_get(struct cache_ahead *ahead, int64_t epoch, int64_t step_in_epoch,
                     int microbatch, void **buffer, int *levels);

/* Put n samples of this level. ids and data are borrowed until the next flush. */
void cache_ahead_put(struct cache_ahead *ahead, int64_t epoch, const int64_t *ids, int64_t n,
                     const void *data);
void cache_ahead_flush(struct cache_ahead *ahead); /* NULL is fine */
