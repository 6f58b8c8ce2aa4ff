/* partition/step/recompute_fit.h - how many layers each stage runs again (RECOMPUTE_LAYER). Pure. */
#pragma once

#include "partition/schedule/schedule.h"
#include "partition/step/workload.h"

/* Set plan->recompute_layers, num_stages entries of the caller's, and work the lowered plan's
 * workload out again with them. With `search`, each rank runs as few layers again as let it fit its
 * device's memory (the smallest of the replicas), or all of them if it does not fit then either; a
 * rank with several stages takes them in turn. With a schedule and a cut given, a rank's memory
 * depends on its own layers only, and no op gets shorter when more run again, so with one stage a
 * rank no other counts have a shorter step. (A forward without stash may be faster, which this
 * ignores.) Without `search`, the counts are kept and only limited to the layers that a stage has.
 * O(log(layers) * (ops + items)). */
enum status recompute_fit(struct plan *plan, bool search, const struct schedule *full,
                          struct workload *workload, struct err *err);

/* Whether an item belongs to a layer, which may run again. */
static inline bool recompute_in_layer(const struct model *model, int item)
{
    return model->items[item].layer >= 0 && model->items[item].layer < model->num_layers;
}

/* Number of layers of a stage of which an item trains. */
int recompute_layers_of(const struct model *model, const struct plan *plan, int stage);
