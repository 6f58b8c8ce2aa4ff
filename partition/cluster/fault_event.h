/* partition/cluster/fault_event.h - a trace of the nodes that a cluster loses and gets back.
 *
 * `sim --faults` simulates a run over such a trace, and `train --plan-losses` kills ranks by it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

struct fault_event {
    int64_t at_ns; /* in a trace by steps: the number of a step */
    int node;
    bool back; /* false: lost */
};

/* Check a trace. ERR_INPUT: its times do not ascend from 0, or a node does not exist, returns without
 * being lost or is lost twice. ERR_NOMEM. */
enum status fault_trace_check(const struct fault_event *trace, int count, int num_nodes,
                              struct err *err);
