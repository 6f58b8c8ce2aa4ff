/* partition/plan/cut_model.h - the exact cut of cut.h for a model, with times from a cost source and
 * sizes from the model. Pure. */
#pragma once

#include "partition/cost/cost.h"
#include "partition/plan/cut.h"
#include "partition/plan/plan.h"

/* The device, micro-batch and optimizer of an item, which determine its times. */
struct cut_device {
    const struct device *device; /* borrowed */
    int64_t samples;             /* of a micro-batch */
    /* Number of state tensors of the optimizer. If negative, updates and forwards without stash
     * count as 0 ns. */
    int optim_states;
};

/* Set times[i - first_item] for the items i in [first_item, model.num_items) on a device.
 * *extrapolated is set if the cost source extrapolates. Returns the errors of the cost source. */
enum status cut_times(const struct setting *setting, const struct cut_device *on, int first_item,
                      struct cut_time *times, bool *extrapolated, struct err *err);
