/* partition/freeze/shares.h - which share of the weight-gradient time each backward pass leaves out.
 *
 * Timed freezing (after Cho et al., "TimelyFreeze", arXiv 2602.05754): a pass over one micro-batch
 * may leave out the gradients of some weights of its stage, where the pipeline waits for it. A
 * prefix (freeze.h) stops training for good; a share stops a part of a stage for one micro-batch. */
#pragma once

#include <stddef.h>

#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Shares of the weight-gradient time that backward passes leave out: share[stage *
 * num_micro_batches + micro_batch] in [0, 1], stage = virtual stage (chunk) in model order. share
 * NULL: no pass leaves anything out. Owned by the holder; shares_free(). */
struct freeze_shares {
    int num_stages, num_micro_batches;
    double *share;
};

/* Make shares of 0. *shares must be zeroed or freed. ERR_NOMEM. */
enum status shares_init(int num_stages, int num_micro_batches, struct freeze_shares *shares,
                        struct err *err);
/* Copy src into *dst, which the caller owns. On failure *dst is untouched. ERR_NOMEM. */
enum status shares_copy(const struct freeze_shares *src, struct freeze_shares *dst,
                        struct err *err);
/* Release the array and zero *shares; safe twice. */
void shares_free(struct freeze_shares *shares);

/* Check that there are none, or one in [0, 1] for each stage and micro-batch. ERR_INFEASIBLE. */
enum status shares_check(const struct freeze_shares *shares, int num_stages, int num_micro_batches,
                         struct err *err);

/* The share of a pass; 0 where there are none. */
static inline double shares_at(const struct freeze_shares *shares, int stage, int micro_batch)
{
    return shares->share ? shares->share[(ptrdiff_t)stage * shares->num_micro_batches + micro_batch]
                         : 0;
}
/* The mean share of a stage over its micro-batches. */
double shares_mean(const struct freeze_shares *shares, int stage);
/* The mean of all shares. */
double shares_mean_of_all(const struct freeze_shares *shares);

#ifdef __cplusplus
}
#endif
