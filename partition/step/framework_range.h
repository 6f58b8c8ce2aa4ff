/* partition/step/framework_range.h - how long a plan's step takes under the frameworks that people may run
 * it with, where nobody says which. Pure. */
#pragma once

#include "partition/plan/plan.h"

enum { FRAMEWORK_RANGE_MAX = 8 };

struct framework_range {
    bool unnamed; /* times are those of kernels, and nobody says whose */
    int count;
    struct {
        const char *name;
        int64_t step_ns;
    } likely[FRAMEWORK_RANGE_MAX]; /* the fastest first */
};

/* Cost a plan that takes step_ns once more for each likely framework that can run it (framework.h). A time is
 * step_ns times what schedule_time() finds for the framework over what it finds for the setting, so links that
 * transfers share count as they did. Layout, buckets and memory stay the plan's. ERR_NOMEM, and errors of
 * plan_lower(); a framework that the plan does not suit is left out. */
enum status framework_range_find(const struct setting *setting, const struct plan *plan,
                                 int64_t step_ns, struct framework_range *range, struct err *err);

/* Whether anybody names a framework, without a step. */
struct framework_range framework_range_of_none(const struct setting *setting);

/* The kernels that an answer counts if nobody names a framework. */
extern const char framework_range_taken[];
