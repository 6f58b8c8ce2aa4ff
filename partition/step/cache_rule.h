/* partition/step/cache_rule.h - whether a cache of a frozen prefix's output saves time, and its size.
 *
 * This is the rule of cache.policy auto. Trainer and simulator both use it at each change of plan.
 * It compares the remaining epochs, the current one included, as if the frozen prefix stayed as it
 * is:
 *
 *   without cache: every step computes the frozen forward, where the best such plan puts it.
 *   with cache:    the first `views` epochs compute the missing samples and write them, the others
 *                  read.
 *
 * cache_fit() and cache_job_room() say for how many samples a cache has slots. The trainer makes
 * that many; the simulator assumes that many.
 *
 * Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/cost/cost.h"
#include "partition/plan/job.h"
#include "partition/plan/plan.h"

enum { CACHE_LEVEL_MAX = 4095 }; /* frozen items */

/* The reason why a job cannot use a cache, to print after "cache off: "; NULL if it can. */
const char *cache_refusal(const struct job *job);

/* Whether a micro-batch is recomputed as a whole if the cache misses one of its samples; otherwise
 * only the missing samples are computed. It must be whole if results promise equal bits (all but a
 * bf16 cache of fp32 values) and the bits of a sample depend on the size of its micro-batch. */
bool cache_whole_wanted(const struct job *job, bool bits_independent_of_row_count);

/* The share of micro-batches that the cache can serve, or of samples if not `whole` (see
 * cache_whole_wanted()). The cache holds a share `have` of all samples, and micro-batches draw
 * their microbatch_size samples at random. */
double cache_share(double have, int64_t microbatch_size, bool whole);

/* A node's cache has two tiers: a file in memory, and a file on disk (the spill) for samples that
 * do not fit in memory. Each file is a header and one slot per sample. The states of both tiers'
 * slots are in memory. */
enum { CACHE_TIERS = 2, CACHE_HEADER_BYTES = 128, CACHE_STATE_BYTES = 16, CACHE_ALIGN_BYTES = 64 };
struct cache_size {
    int64_t slot_bytes, num_slots[CACHE_TIERS], bytes[CACHE_TIERS];
};
/* Size of a cache for num_samples samples of sample_elems values each. limits: most bytes in memory
 * and in the spill; 0: do not use that tier. ERR_INPUT: a count < 1, overflow. */
enum status cache_fit(int64_t num_samples, int64_t sample_elems, bool bf16,
                      const int64_t limits[CACHE_TIERS], struct cache_size *size, struct err *err);

/* The share of num_samples samples, with all their views, for which the job's cache has slots; 0 if
 * the job has no cache. The simulator cannot know the free memory or disk of another machine, so a
 * limit of 0 in the job (half of the free bytes) counts as enough. */
double cache_job_room(const struct job *job, int64_t num_samples);

/* Mean share of the extra work of cache_fill_extra() in a step of a plan that reads, over the
 * remaining `epochs`, the current one included. The first `views` epochs do all of the work. The
 * others do it for the 1 - share of the micro-batches that have no slot in the cache. Returns
 * 0..1. */
double cache_fill_weight(int64_t epochs, int64_t views, double share);

/* Extra time of a step of a plan that reads, while the cache holds only `level` frozen items (0:
 * nothing). The first device of each pipeline then computes items [level, first_item[0]) of every
 * micro-batch and writes the output. ERR_INFEASIBLE if the cost source does not know an item. */
enum status cache_fill_extra(const struct setting *setting, const struct plan *plan, int level,
                             int64_t *ns, struct err *err);
