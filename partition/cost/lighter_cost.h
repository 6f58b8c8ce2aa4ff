/* partition/cost/lighter_cost.h - a cost source whose weight gradients take a part of their time.
 *
 * A plan that leaves out shares of them (partition/freeze/shares.h) may be balanced by another cut. */
#pragma once

#include "partition/cost/cost.h"

struct lighter_cost {
    struct cost cost; /* ask this one; it points to *of and to the whole struct */
    const struct cost *of;
    double part;
};

/* Make *lighter answer as `of`, which is borrowed, with weight gradients at `part` (0..1) of their time.
 * *lighter must stay where it is. */
void lighter_cost_init(const struct cost *of, double part, struct lighter_cost *lighter);
