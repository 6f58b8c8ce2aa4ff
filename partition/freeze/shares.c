#include "partition/freeze/shares.h"

#include <stdlib.h>
#include <string.h>

enum status shares_init(int num_stages, int num_micro_batches, struct freeze_shares *shares,
                        struct err *err)
{
    shares->num_stages = num_stages;
    shares->num_micro_batches = num_micro_batches;
    shares->share =
        calloc((size_t)num_stages * (size_t)num_micro_batches + 1, sizeof *shares->share);
    return shares->share ? OK : err_nomem(err);
}

enum status shares_copy(const struct freeze_shares *src, struct freeze_shares *dst, struct err *err)
{
    struct freeze_shares got = {0};
    if (src->share) {
        const enum status rc = shares_init(src->num_stages, src->num_micro_batches, &got, err);
        if (rc != OK)
            return rc;
        memcpy(got.share, src->share,
               (size_t)src->num_stages * (size_t)src->num_micro_batches * sizeof *got.share);
    }
    *dst = got;
    return OK;
}

void shares_free(struct freeze_shares *shares)
{
    free(shares->share);
    *shares = (struct freeze_shares){0};
}

enum status shares_check(const struct freeze_shares *shares, int num_stages, int num_micro_batches,
                         struct err *err)
{
    if (!shares->share)
        return OK;
    if (shares->num_stages != num_stages || shares->num_micro_batches != num_micro_batches)
        return err_set(err, ERR_INFEASIBLE,
                       "shares of %d stages and %d micro-batches do not fit a plan of %d and %d",
                       shares->num_stages, shares->num_micro_batches, num_stages,
                       num_micro_batches);
    for (int s = 0; s < num_stages; s++)
        for (int m = 0; m < num_micro_batches; m++)
            if (!(shares_at(shares, s, m) >= 0 && shares_at(shares, s, m) <= 1))
                return err_set(err, ERR_INFEASIBLE,
                               "share of stage %d, micro-batch %d must be 0..1, got %g", s, m,
                               shares_at(shares, s, m));
    return OK;
}

double shares_mean(const struct freeze_shares *shares, int stage)
{
    double sum = 0;
    for (int m = 0; shares->share && m < shares->num_micro_batches; m++)
        sum += shares_at(shares, stage, m);
    return shares->share ? sum / shares->num_micro_batches : 0;
}

double shares_mean_of_all(const struct freeze_shares *shares)
{
    double sum = 0;
    for (int s = 0; s < shares->num_stages; s++)
        sum += shares_mean(shares, s) / shares->num_stages;
    return sum;
}
