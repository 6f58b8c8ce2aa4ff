/* partition/cut_model.h - the exact cut of cut.h for a model: where its times and sizes come from.
 * Pure. */
#ifndef ELAPSE_PARTITION_CUT_MODEL_H
#define ELAPSE_PARTITION_CUT_MODEL_H

#include "partition/cost.h"
#include "partition/cut.h"
#include "partition/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a time of an item depends on, besides the item. */
struct cut_device {
    const struct device *device; /* borrowed */
    int64_t samples;             /* of a micro-batch */
    int optim_states; /* tensors; below 0: updates and forwards without stash cost nothing */
};

/* Times of the items [first_item, model.num_items) on a device, into times. *extrapolated is set
 * where the costs are. Errors of the cost source. */
enum status cut_times(const struct setting *setting, const struct cut_device *on, int first_item,
                      struct cut_time *times, bool *extrapolated, struct err *err);

/* Cut the model's items into the plan's stages, by time on the devices of its first replica. plan
 * has everything but first_item, which it gets. ERR_INFEASIBLE: more stages than items. */
enum status cut_plan(const struct setting *setting, struct plan *plan, struct err *err);

/* Make a plan of counts: K, R, chunks (0: the schedule's own), batch, the wanted
 * microbatches.count, schedule, frozen layers and their placement (FROZEN_NONE: spread where there
 * are any) are as asked; micro-batches, stages, devices in the cluster's order and the cut are
 * filled in. sizes: items a stage, frozen ones outside the pipeline not counted; NULL: cut_plan().
 * On failure the plan owns nothing. ERR_INFEASIBLE where the counts do not fit, ERR_INPUT where
 * sizes do not. */
enum status plan_complete(const struct setting *setting, const int64_t *sizes, int num_sizes,
                          struct plan *plan, struct err *err);

/* A model on a chain of equal devices. */
struct cut_chain {
    const struct model *model;    /* borrowed, as times */
    const struct cut_time *times; /* of all items */
    int num_frozen, num_stages;   /* leading items that are left out; stages wanted */
    int64_t samples;              /* of a micro-batch; of models per micro-batch ignored */
    int64_t num_microbatches, latency_ns;
    double link_bytes_per_s; /* 0: communication is free */
    int64_t mem_bytes;       /* INT64_MAX: no limit */
};

/* Cut its active items under 1F1B with momentum: crossing tensors and memory count. stage_ns is the
 * caller's, a stage's time each; cut as in cut_solve(). ERR_INPUT: a size overflows. */
enum status cut_chain_solve(const struct cut_chain *chain, struct cut *cut, int64_t *stage_ns,
                            struct err *err);

#ifdef __cplusplus
}
#endif
#endif
