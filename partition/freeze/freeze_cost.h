/* partition/freeze/freeze_cost.h - what freezing a prefix for the rest of a run gives up, from rows
 * of evidence (partition/freeze/evidence.h). The policy `safe` decides by it.
 *
 * Two laws turn the share of one window into a cost:
 *
 * How the fall of the loss continues. After t steps the loss falls at a rate in proportion to t^-p.
 * With p = 1 the sum of all falls to come is without bound, so the fall lasts longer than under
 * any power law of the loss. p = 1 is assumed once two windows show what the layers that train have
 * brought, unless they show, by more than noise, that the fall slows down less: then the largest p
 * that they allow counts, 0 at least. Where the fall even grows, p = 0 and the growth (at most 4)
 * multiplies. With one window p = 0. If the mean learning rate ahead is above that of the window,
 * its ratio multiplies, because progress per step would make a layer look converged in a warm-up.
 * If it is below, it does not count, because at the end of a decaying schedule the loss falls
 * faster than the rate does.
 *
 * How the rest learns without the prefix. What the prefix does not bring stays in the loss, where
 * the other layers can still bring it. If the prefix brings a share s of the fall at any loss, the
 * run continues as before, 1 - s times as fast. With T steps in all, freezing then costs the fall
 * that comes between t + (1 - s) (T - t) and T. For p = 0 that is s times the fall to come, for
 * p > 0 it is less.
 *
 * Costs are in points of accuracy for classifiers, else per cent of the loss. One nat of loss
 * counts 100 * accuracy points, because d(accuracy) = accuracy * d(-loss) for samples that are
 * judged equally well. It counts more where the accuracy of the run's own probe rose faster with
 * the loss, by more than noise. Pure; no I/O. */
#pragma once

#include <stdbool.h>

#include "partition/freeze/evidence.h"

#define ONE_SIDED 0.8416 /* standard errors: 80 % of a normal distribution lie below */

/* Points of accuracy, or per cent of the loss, that one nat is worth. `row` is the newest one, and
 * need not be in the history yet. */
double freeze_cost_per_nat(const struct freeze_history *history, const struct freeze_evidence *row);

/* The law that forecasts the loss reduction by the layers above F. */
struct fall_law {
    bool known;    /* two windows show what the layers above F brought */
    double power;  /* p */
    double growth; /* 1 or more; above 1 only with p = 0 */
};
struct fall_law freeze_cost_law(const struct freeze_history *history,
                                const struct freeze_evidence *row);

struct freeze_weight {
    double cost, se; /* of freezing F for the rest of the run, in the unit of freeze.max_loss */
};
/* Loss reduction given up by freezing the candidate of the newest row. */
struct freeze_weight freeze_cost_weigh(const struct freeze_history *history,
                                       const struct freeze_evidence *row,
                                       const struct freeze_candidate *candidate);
/* The mean of what is above 0: a freeze that may help is not credited with it, because noise looks
 * the same. */
double freeze_cost_expected(const struct freeze_weight *weight);
