/* cli/simulate/rank_memory.h - memory of a rank over the time of a simulated step. */
#pragma once

#include "partition/step/workload.h"
#include "sim/step/engine.h"

/* A simulated step with recorded ops, and what it ran; all borrowed. */
struct traced_step {
    const struct sim_result *sim;
    const struct schedule *full;
    const struct workload *workload;
};

/* From at_ns on, the rank holds this many bytes. */
struct memory_point {
    int64_t at_ns, bytes;
    int64_t op; /* that starts or ends then: its place in sim->ops */
};

/* Set *points to a fresh array of *n points in order of time, two a pass: at its start the memory
 * while it runs, at its end what it leaves (partition/step/schedule_memory.h). ERR_INPUT on
 * overflow, ERR_NOMEM. */
enum status rank_memory(const struct traced_step *step, int replica, int rank,
                        struct memory_point **points, int64_t *n, struct err *err);
