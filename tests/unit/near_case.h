/* tests/unit/near_case.h - a cost of near stash (cost.h) without a profile: falls with distance, another
 * one for each pass, large enough that some items would take less than nothing. */
#pragma once

#include "partition/cost/cost.h"

static inline double near_case(const void *ctx, const struct device *device, enum pass pass,
                               int64_t distance)
{
    static const double rates[] = {0.05, 0.2, 0.1};
    (void)ctx, (void)device;
    return rates[pass] * 20000 / (20000 + (double)distance);
}
