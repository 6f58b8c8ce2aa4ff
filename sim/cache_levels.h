/* sim/cache_levels.h - what a run's cache holds, in expectation: shares of the samples by level.
 *
 * An epoch sees its samples in an order drawn anew, so that what the cache held when the epoch
 * began is spread evenly over the micro-batches still to come, and what is written serves later
 * epochs only. Each view of a sample has its own content (epoch e: view e mod views). Levels count
 * frozen layers. Pure. */
#ifndef ELAPSE_SIM_CACHE_LEVELS_H
#define ELAPSE_SIM_CACHE_LEVELS_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

struct cache_levels {
    int num_layers;
    int64_t views, view; /* the latter: of the present epoch */
    double room;         /* share of the samples for which there is a slot */
    bool whole;          /* see cache_share() */
    double *have;        /* owned, [views][num_layers + 1]: by level when the epoch began; what is
                            left of 1 is not in the cache, [0] stays 0 */
    double *left;        /* owned, num_layers + 1: the same when it ends, so far */
};

/* *levels must be zeroed or cleared; nothing is in the cache. views >= 1. ERR_NOMEM. */
enum status cache_levels_init(struct cache_levels *levels, int num_layers, int64_t views,
                              double room, bool whole, struct err *err);
void cache_levels_clear(struct cache_levels *levels);

void cache_levels_begin(struct cache_levels *levels, int64_t epoch);
/* A share of the epoch's samples goes by; cached: under a plan that caches level `level`. */
void cache_levels_visit(struct cache_levels *levels, double share, bool cached, int level);
void cache_levels_end(struct cache_levels *levels);

/* from[l], 0 <= l <= level: of micro-batches of that size under a plan that caches `level`, the
 * share that is computed from level l on (l = level: read). Sums to 1. */
void cache_levels_from(const struct cache_levels *levels, int level, int64_t microbatch_size,
                       double *from);

#endif
