/* partition/step/traffic.h - a lower bound of a step by what its ports and uplinks carry. */
#pragma once

#include "partition/step/workload.h"

/* The time for which the step's messages and all-reduces (as rings) keep the busiest port or
 * uplink busy. No step that shares them is shorter, in whatever order its ops run. Between
 * devices a message takes what it takes alone, less its latency, at the narrowest point of its
 * way. O(replicas * (edges + stages)). ERR_NOMEM. */
enum status workload_traffic_ns(const struct workload *workload, const struct plan *plan,
                                int64_t *ns, struct err *err);
/* How many times longer than a device's own port an uplink may be busy in a step of a plan on these devices, if
 * each device that it serves sends through it for as long as one port is busy at most. ERR_NOMEM. O(devices). */
enum status traffic_uplink_share(const struct cluster *cluster, const struct plan *plan,
                                 double *share, struct err *err);
/* What workload_traffic_ns() does not exceed: the busiest port, as often as devices share an uplink.
 * allreduce_ns: the longest all-reduces of a stage, as in struct step_time. uplink_share: of the plan's devices.
 * O(classes * edges). ERR_NOMEM. */
enum status workload_traffic_most_ns(const struct workload *workload, double uplink_share,
                                     int64_t allreduce_ns, int64_t *most_ns, struct err *err);
