/* sim/run/cache_levels.h - the expected content of a run's cache: the share of the samples at each
 * level. A level is a number of frozen layers whose output the cache holds.
 *
 * Each epoch has a new random order of the samples. So the content at the start of the epoch is
 * spread evenly over the micro-batches still to come, and entries that the epoch writes are read
 * only by later epochs. Each view of a sample has its own entries (epoch e uses view e mod views).
 * Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

struct cache_levels {
    int num_layers;
    int64_t views, view; /* number of views; view of the present epoch */
    double room;         /* share of the samples for which the cache has slots */
    bool whole;          /* see cache_share() */
    double *have;        /* owned, [views][num_layers + 1]: shares by level at the start of the
                            epoch; [0] stays 0; 1 minus the sum is not in the cache */
    double *left; /* owned, num_layers + 1: shares by level at the end of the epoch, so far */
};

/* Start with an empty cache. *levels must be zeroed or cleared. views >= 1. ERR_NOMEM. */
enum status cache_levels_init(struct cache_levels *levels, int num_layers, int64_t views,
                              double room, bool whole, struct err *err);
void cache_levels_clear(struct cache_levels *levels);

void cache_levels_begin(struct cache_levels *levels, int64_t epoch);
/* Run a share of the epoch's samples. cached: the plan reads the cache at level `level`, so the
 * samples are at that level afterwards. */
void cache_levels_visit(struct cache_levels *levels, double share, bool cached, int level);
void cache_levels_end(struct cache_levels *levels);
/* Drop what is above this level, in all views, because those layers train again. */
void cache_levels_fall(struct cache_levels *levels, int level);

/* Set from[l] for 0 <= l <= level: the share of micro-batches of that size that a plan with cache
 * level `level` computes from level l on. from[level] is the share that is only read. The shares
 * sum to 1. */
void cache_levels_from(const struct cache_levels *levels, int level, int64_t microbatch_size,
                       double *from);
