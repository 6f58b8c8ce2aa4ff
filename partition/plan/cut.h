/* partition/plan/cut.h - cut a chain of items into contiguous stages, exactly.
 *
 * cut_sizes() minimizes the largest stage, and no stage is empty. Of several optimal cuts it returns
 * the one whose first_item is lexicographically smallest: the first stage is as short as possible,
 * then the second, and so on. The planner also weighs messages, memory and the schedule
 * (partition/search/planner_cuts.c). Pure; threads may call it on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

struct cut {
    int num_stages, num_items;
    int *first_item; /* owned; num_stages + 1 entries, [0] = 0, the last is num_items */
    int64_t max;     /* the largest stage: sum of its sizes */
};

void cut_clear(struct cut *cut);

/* Cut sizes[0..num_items) into num_stages runs so that the largest sum is minimal. *cut must be
 * zeroed or cleared and is untouched on failure. ERR_INPUT: num_stages or num_items < 1, a negative
 * size, a sum beyond int64; ERR_INFEASIBLE: more stages than items. Time O(num_items + num_stages *
 * log(num_items) * probes), about 10 us for 1,000 items and 64 stages. */
enum status cut_sizes(const int64_t *sizes, int num_items, int num_stages, struct cut *cut,
                      struct err *err);

/* Times of one item and one micro-batch on one class of device. */
struct cut_time {
    int64_t fwd_ns, bwd_input_ns, bwd_weight_ns;
    int64_t update_ns;     /* once a step */
    int64_t bwd_rest_ns;   /* replaces bwd_input_ns if no item below needs the input's gradient */
    int64_t fwd_nograd_ns; /* replaces fwd_ns if no stash is kept */
};
