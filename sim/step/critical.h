/* sim/step/critical.h - the critical path of a simulated step: the chain of ops, messages and waits
 * whose times add up to its length. */
#pragma once

#include "sim/step/engine.h"

struct critical_path {
    int64_t num_ops;
    int64_t *ops; /* owned; indices into result->ops, first to last */
    /* The parts of the path's time. They sum to step_ns. */
    int64_t *stage_ns; /* owned, num_stages: compute of each stage */
    int num_stages;
    int64_t transfer_ns, allreduce_ns, host_ns; /* host: launching, copy engines, anything else */
};

/* Find the critical path. result must hold recorded ops. *path must be zeroed or cleared; the
 * caller owns it. O(ops log ops), plus O(ops) for each message, sum and norm on the path. */
enum status critical_path_find(const struct sim_result *result, const struct schedule *full,
                               const struct workload *workload, struct critical_path *path,
                               struct err *err);
void critical_path_clear(struct critical_path *path);
