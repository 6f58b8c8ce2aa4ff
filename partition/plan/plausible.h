/* partition/plan/plausible.h - answers that cannot be true: more than the devices' peak, more
 * memory than a device has or less than the weights take, idle time below 0 or above all, a step in
 * which memory cannot even be read once. Such an answer is an error of ours, and it is not given.
 * Pure. */
#pragma once

#include "partition/cost/cost.h"
#include "partition/plan/plan.h"
#include "partition/plan/rates.h"

/* An answer about one step of a plan. */
struct step_claim {
    const struct setting *setting; /* borrowed, as all that follows */
    const struct plan *plan;
    int64_t step_ns;
    struct step_rates rates;
    double bubble;               /* NAN: nothing is said of it */
    const int64_t *memory_bytes; /* of each rank of a pipeline; NULL: nothing is said of it */
    bool fits;                   /* it is said that the devices' memory holds it */
    double speed; /* that the job gives its devices over the published ones, at least 1 */
};

/* Whether an answer can be true. Times that were measured, and times and sizes of the model's own
 * items, are whoever's that gave them: of these answers the parts that we computed are judged.
 * ERR_SYSTEM: it cannot; the message says why, and the hint asks for a report. O(items + ranks *
 * replicas). */
enum status plausible_step(const struct step_claim *claim, struct err *err);
