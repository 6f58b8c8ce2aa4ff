/* exec/data/sampler.h - which samples a micro-batch holds.
 *
 * An epoch is a keyed permutation of the samples; a step takes the next global_batch positions of
 * it; global micro-batch g takes its share of the step. Nothing depends on K or the rank, and on R
 * only through the share, so that a micro-batch holds the same samples wherever it runs. Each
 * sample is seen exactly once an epoch: the last step of an epoch is short, and micro-batches of it
 * may be short or empty. A run whose global batch changes within an epoch goes on with a sampler
 * that starts where the last one stopped (origin). Pure; threads may share a sampler. */
#ifndef ELAPSE_EXEC_DATA_SAMPLER_H
#define ELAPSE_EXEC_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/plan.h"
#include "partition/status.h"

struct sampler {
    int64_t num_samples;
    uint64_t seed;
    bool shuffle; /* false: epochs run in the order of the ids (evaluation) */
    int num_replicas;
    int64_t batch; /* samples per pipeline and step */
    struct microbatches microbatches;
    int64_t origin; /* position of step 0; 0 but for the rest of an epoch */
};

/* Refuses num_samples < 1, counts < 1, and a global batch that overflows. */
enum status sampler_init(struct sampler *sampler, int64_t num_samples, uint64_t seed, bool shuffle,
                         int num_replicas, int64_t batch, int num_microbatches, struct err *err);

/* From the origin on. */
int64_t sampler_steps_per_epoch(const struct sampler *sampler);

/* The steps of a whole epoch at this global batch. */
int64_t sampler_steps_per_whole_epoch(const struct sampler *sampler);

/* Go on at a position in [0, num_samples) of an epoch: where the global batch divides it nothing
 * changes and the step there is the next, else it becomes the origin. Returns the next step. */
int64_t sampler_go_on(struct sampler *sampler, int64_t position);

/* Where a step begins. */
int64_t sampler_position(const struct sampler *sampler, int64_t step_in_epoch);

/* Samples of a step over all replicas: the global batch, less at the end of an epoch. */
int64_t sampler_step_samples(const struct sampler *sampler, int64_t step_in_epoch);

/* Positions [*first, *first + count) of the epoch that micro-batch `microbatch` of `replica` takes;
 * returns count, 0 for an empty one. */
int64_t sampler_microbatch(const struct sampler *sampler, int64_t step_in_epoch, int replica,
                           int microbatch, int64_t *first);

/* The sample id at a position of an epoch: a bijection on [0, num_samples) for each (seed, epoch).
 * Expected O(1), at most 4 walks of the cycle on average. */
int64_t sampler_id(const struct sampler *sampler, int64_t epoch, int64_t position);

#endif
