/* partition/collective.h - how long an all-reduce takes alone, by algorithm. */
#ifndef ELAPSE_PARTITION_COLLECTIVE_H
#define ELAPSE_PARTITION_COLLECTIVE_H

#include "partition/cost.h"

#ifdef __cplusplus
extern "C" {
#endif

enum allreduce_kind {
    ALLREDUCE_RING, /* 2(n-1)/n x bytes / bandwidth + 2(n-1) x latency, as the planner */
    ALLREDUCE_TREE, /* double binary tree: 2 x bytes / bandwidth + 2 ceil(log2 n) x latency */
    ALLREDUCE_HIERARCHICAL, /* rings inside the nodes, then one ring a device of a node between
                               them: each node's uplink carries every byte once, devices of equal
                               place hold a share each */
    ALLREDUCE_KIND_COUNT
};

/* Whole ns, alone on its links; 0 for n < 2. Hierarchical needs equally many devices on each node
 * and falls back to the ring where they are not, or where all are on one node. */
int64_t collective_ns(enum allreduce_kind kind, const struct cost *cost,
                      const struct cluster *cluster, const int *devices, int n, int64_t bytes);

const char *allreduce_kind_name(enum allreduce_kind kind);

#ifdef __cplusplus
}
#endif
#endif
