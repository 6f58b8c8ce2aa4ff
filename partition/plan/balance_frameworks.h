/* partition/plan/balance_frameworks.h - how other frameworks cut a chain into stages.
 *
 * For comparison with the exact cut (cut.h), as their released functions do it, empty stages and all.
 * A unit is what the framework cannot cut: a transformer layer, the embedding, the head. Pure. */
#pragma once

#include <stdbool.h>

#include "partition/base/status.h"

struct framework_balancer {
    const char *name;
    const char *source; /* package, version and function that it equals */
    bool only_layers;   /* counts transformer layers only; the embedding goes with the first one,
                              the head with the last one */
    /* Cut sizes[0..num_units) into num_stages; count[k] gets the units of stage k. ERR_INFEASIBLE: the
     * framework refuses these counts. */
    enum status (*cut)(const double *sizes, int num_units, int num_stages, int *count,
                       struct err *err);
};

enum { NUM_FRAMEWORK_BALANCERS = 4 };
extern const struct framework_balancer framework_balancers[NUM_FRAMEWORK_BALANCERS];
