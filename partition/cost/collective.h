/* partition/cost/collective.h - time of an unshared all-reduce by algorithm. */
#pragma once

#include "partition/cost/cost.h"

/* Algorithms of COLLECTIVE_ALLREDUCE: value, name, and the function of collective.c that computes the
 * time.
 *   ring          2(n-1)/n x bytes / bandwidth + 2(n-1) x latency; the planner uses this
 *   tree          double binary tree: 2 x bytes / bandwidth + 2 ceil(log2 n) x latency
 *   hierarchical  a ring inside each node, then rings between nodes: devices at the same place of
 *                 their nodes form a ring over an equal share of the bytes */
#define ALLREDUCES(ROW)                                                                            \
    ROW(ALLREDUCE_RING, "ring", cost_allreduce_ns)                                                 \
    ROW(ALLREDUCE_TREE, "tree", tree_ns)                                                           \
    ROW(ALLREDUCE_HIERARCHICAL, "hierarchical", hierarchical_ns)

#define ALLREDUCE_VALUE(value, name, ns) value,
enum allreduce_kind { ALLREDUCES(ALLREDUCE_VALUE) ALLREDUCE_KIND_COUNT };
/* The names in one text, each after a blank, for help texts. */
#define ALLREDUCE_WORD(value, name, ns) " " name
#define ALLREDUCE_NAMES (&(ALLREDUCES(ALLREDUCE_WORD))[1])

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
