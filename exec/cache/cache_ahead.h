/* exec/cache/cache_ahead.h - the cache's own thread on a rank: it reads what the next micro-batches
 * want while the present one computes, and writes what was computed.
 *
 * Q1  CACHE_AHEAD buffers of a micro-batch each, filled in the order of the sampler. Who takes a
 *     micro-batch exchanges its own buffer for the filled one; nothing is copied twice.
 * Q2  Reading ahead ends with the epoch: what the last step puts is there before the next epoch
 *     looks. A get that is not the next in order (an epoch's first, a resumed run's first) says
 *     where to go on.
 * Q3  Puts are made in the order given, behind the reads; their data stay as they are until
 *     cache_ahead_flush(). Where the queue is full, the caller puts himself.
 * Q4  What a get finds is what cache_look() finds; the thread changes no bits and no counts. Where
 *     it cannot be started the caller does its work: that is no error.
 *
 * One caller at a time. */
#ifndef ELAPSE_EXEC_CACHE_CACHE_AHEAD_H
#define ELAPSE_EXEC_CACHE_CACHE_AHEAD_H

#include "exec/cache/cache.h"
#include "exec/data/sampler.h"

enum { CACHE_AHEAD = 2 };

struct cache_ahead; /* opaque */

struct cache_ahead_spec {
    struct cache *cache;           /* borrowed while it lives */
    const struct sampler *sampler; /* borrowed; of the training samples, looked at again at jumps */
    int replica;
    int level;     /* frozen items wanted */
    int64_t elems; /* of a sample */
    bool full;     /* micro-batches that are not full are not looked up */
    /* Of microbatches.size * elems values each; the caller's before and after. */
    void *buffers[CACHE_AHEAD];
};

/* ERR_NOMEM. */
enum status cache_ahead_new(const struct cache_ahead_spec *spec, struct cache_ahead **ahead,
                            struct err *err);
/* Puts are finished, reads are dropped. Hands the buffers that it has in the end to buffers (may be
 * NULL). NULL is fine. */
void cache_ahead_free(struct cache_ahead *ahead, void *buffers[CACHE_AHEAD]);

/* The samples of a micro-batch of the replica: *buffer is exchanged for one that holds them, and
 * levels[i] says at which level sample i is there: 0, nothing; -1, nothing, and it was damaged. */
void cache_ahead_get(struct cache_ahead *ahead, int64_t epoch, int64_t step_in_epoch,
                     int microbatch, void **buffer, int *levels);

/* Put n samples of this level. ids and data are borrowed until the next flush. */
void cache_ahead_put(struct cache_ahead *ahead, int64_t epoch, const int64_t *ids, int64_t n,
                     const void *data);
void cache_ahead_flush(struct cache_ahead *ahead); /* NULL is fine */

#endif
