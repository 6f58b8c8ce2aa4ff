/* partition/cost/collective.h - time of an unshared all-reduce by algorithm. */
#ifndef ELAPSE_PARTITION_COLLECTIVE_H
#define ELAPSE_PARTITION_COLLECTIVE_H

#include "partition/cost/cost.h"

#ifdef __cplusplus
extern "C" {
#endif

enum allreduce_kind {
    ALLREDUCE_RING, /* 2(n-1)/n x bytes / bandwidth + 2(n-1) x latency; the planner uses this */
    ALLREDUCE_TREE, /* double binary tree: 2 x bytes / bandwidth + 2 ceil(log2 n) x latency */
    ALLREDUCE_HIERARCHICAL, /* a ring inside each node, then rings between nodes: devices at the
                               same place of their nodes form a ring over an equal share of the
                               bytes */
    ALLREDUCE_KIND_COUNT
};

/* Time in ns of an all-reduce of bytes over n devices in ring order, without other traffic on the
 * links; 0 for n < 2. Hierarchical falls back to the ring if the nodes have different numbers of
 * devices, or if all devices are on one node. */
int64_t collective_ns(enum allreduce_kind kind, const struct cost *cost,
                      const struct cluster *cluster, const int *devices, int n, int64_t bytes);

/* Time of what the replicas of a stage do with a bucket of gradients: collective_ns(), or with
 * scatter a ring's reduce-scatter, whatever the kind. */
int64_t collective_bucket_ns(bool scatter, enum allreduce_kind kind, const struct setting *setting,
                             const int *devices, int n, int64_t bytes);

const char *allreduce_kind_name(enum allreduce_kind kind);

#ifdef __cplusplus
}
#endif
#endif
