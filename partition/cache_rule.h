/* partition/cache_rule.h - whether reading a frozen prefix's output from a cache pays.
 *
 * One home for the rule of cache.policy auto: the trainer asks it at each change of plan, the
 * simulator for the same change. It compares the epochs that are left, this one included, as if the
 * boundary stayed where it is:
 *
 *   without: every step computes the frozen forward, wherever the best such plan puts it;
 *   with:    the first `views` epochs compute what the cache lacks and write it, the others read.
 *
 * And for how many samples a cache has slots: the trainer makes as many, the simulator counts with
 * them.
 *
 * Pure; times may be of a step or of a sample, alike in all fields. */
#ifndef ELAPSE_PARTITION_CACHE_RULE_H
#define ELAPSE_PARTITION_CACHE_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/cost.h"
#include "partition/job.h"
#include "partition/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CACHE_LEVEL_MAX = 4095 }; /* frozen items */

/* Why a job cannot use a cache: NULL if it can, else a text to print behind "cache off: ". */
const char *cache_refusal(const struct job *job);

/* Whether a micro-batch of which the cache lacks a sample is computed as a whole, else only what
 * lacks: where equal bits are promised (all but a bf16 cache of fp32 values) and the bits of a
 * sample depend on how many it is computed with (bits_independent_of_row_count false). */
bool cache_whole_wanted(const struct job *job, bool bits_independent_of_row_count);

/* Of micro-batches of that many samples, drawn at random, the share that the cache can serve where
 * it has a share `have` of all samples; whole as above. */
double cache_share(double have, int64_t microbatch_size, bool whole);

/* A cache of a node: a file in memory and one in a folder for what that has no room for (the
 * spill), each a header and slots, a slot a sample; the slots' states lie in memory for both. */
enum { CACHE_TIERS = 2, CACHE_HEADER_BYTES = 128, CACHE_STATE_BYTES = 16, CACHE_ALIGN_BYTES = 64 };
struct cache_size {
    int64_t slot_bytes, num_slots[CACHE_TIERS], bytes[CACHE_TIERS];
};
/* limits: bytes at most in memory and in the spill; 0: none of it. ERR_INPUT for counts < 1 and
 * overflow. */
enum status cache_fit(int64_t num_samples, int64_t sample_elems, bool bf16,
                      const int64_t limits[CACHE_TIERS], struct cache_size *size, struct err *err);

/* The share of so many samples, all their views, for which the job's cache has slots; 0: the job
 * has no cache. A limit that the job leaves to the machine (0: half of what is free there) counts
 * as enough: nobody knows what is free on a machine that is not here. */
double cache_job_room(const struct job *job, int64_t num_samples);

/* The rule's mean: what part of a step's extra work (cache_fill_extra()) a step of a plan that
 * reads has, over the `epochs` that are left, this one included. The first `views` of them do all
 * of it, the others for the share of micro-batches that the cache has no room for. */
double cache_fill_weight(int64_t epochs, int64_t views, double share);

/* What a step of a plan that reads takes longer while the cache holds `level` frozen items (0:
 * nothing): the first device of each pipeline computes items [level, first_item[0]) of every
 * micro-batch and writes the output. ERR_INFEASIBLE where the source does not know an item. */
enum status cache_fill_extra(const struct setting *setting, const struct plan *plan, int level,
                             int64_t *ns, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
