/* exec/data/sampler.h - decides which samples a micro-batch holds.
 *
 * An epoch is a keyed permutation of the samples. A step takes the next global_batch positions of
 * it, and each global micro-batch takes its share of the step. Nothing depends on K or on the rank,
 * and only the share depends on R, so a micro-batch holds the same samples wherever it runs. Each
 * sample is used exactly once an epoch; therefore the last step of an epoch may be short, and its
 * micro-batches short or empty. If the global batch changes during an epoch, the run continues with a
 * sampler that starts where the last one stopped (origin). Pure; threads may share a sampler. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/plan/plan.h"
#include "partition/base/status.h"

struct sampler_spec {
    int64_t num_samples;
    uint64_t seed;
    bool shuffle; /* false: every epoch is in the order of the ids (evaluation) */
    int num_replicas;
    int64_t batch; /* samples per pipeline and step */
    int num_microbatches;
};

struct sampler {
    struct sampler_spec spec;
    struct microbatches microbatches;
    int64_t origin; /* position of step 0; not 0 only for the rest of an epoch */
};

/* ERR_INPUT: num_samples < 1, a count < 1, or the global batch overflows. */
enum status sampler_init(struct sampler *sampler, const struct sampler_spec *spec, struct err *err);

/* Steps from the origin to the end of the epoch. */
int64_t sampler_steps_per_epoch(const struct sampler *sampler);

/* Steps of a whole epoch with this global batch. */
int64_t sampler_steps_per_whole_epoch(const struct sampler *sampler);

/* Continue an epoch at a position in [0, num_samples). If the global batch divides the position,
 * the origin becomes 0 and the step there is the next. Otherwise the position becomes the origin
 * and step 0 is the next. Returns the next step. */
int64_t sampler_go_on(struct sampler *sampler, int64_t position);

/* First position of a step. */
int64_t sampler_position(const struct sampler *sampler, int64_t step_in_epoch);

/* Samples of a step over all replicas: the global batch, or less at the end of an epoch. */
int64_t sampler_step_samples(const struct sampler *sampler, int64_t step_in_epoch);

/* The positions [*first, *first + count) of the epoch that belong to micro-batch `microbatch` of
 * `replica`. Returns count; 0: the micro-batch is empty. */
int64_t sampler_microbatch(const struct sampler *sampler, int64_t step_in_epoch, int replica,
                           int microbatch, int64_t *first);

/* The sample id at a position of an epoch. For each (seed, epoch) it is a bijection on [0,
 * num_samples). Expected O(1): at most 4 evaluations of the cipher on average. */
int64_t sampler_id(const struct sampler *sampler, int64_t epoch, int64_t position);
