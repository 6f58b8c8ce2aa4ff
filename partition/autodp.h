/* partition/autodp.h - which device does what: rank maps, and what a change of plan moves.
 *
 * PipeTransformer's map (AutoDP; He et al., ICML 2021): inside a node, pipeline r owns devices
 * [r*K, (r+1)*K) and is driven by local rank r. Pipelines stay inside nodes while K devices fit
 * one; longer ones, and those made of what nodes have left, take consecutive devices across nodes.
 * Pure. */
#ifndef ELAPSE_PARTITION_AUTODP_H
#define ELAPSE_PARTITION_AUTODP_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/cluster.h"
#include "partition/model.h"
#include "partition/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rank_map {
    MAP_PIPELINE_INSIDE, /* the paper's: activations stay inside nodes */
    MAP_STAGE_INSIDE,    /* replicas of a stage side by side: all-reduces stay inside nodes */
    MAP_COUNT
};

/* Devices of R pipelines of K: device[r * K + k]. device is the caller's, R * K entries.
 * ERR_INFEASIBLE when R * K exceeds the cluster. O(devices). */
enum status autodp_map(const struct cluster *cluster, enum rank_map map, int num_ranks,
                       int num_replicas, int *device, struct err *err);

enum transfer_kind { TRANSFER_WEIGHTS, TRANSFER_OPTIMIZER, TRANSFER_FROZEN, TRANSFER_KIND_COUNT };

/* One item's tensors of one kind, from a device that held them to one that needs them. */
struct transfer {
    int item;
    bool tied; /* the last stage's copy of the table in this item, the first (tied weights) */
    enum transfer_kind kind;
    int from, to; /* devices */
    int64_t bytes;
};

struct transition {
    int64_t num_transfers;
    struct transfer *transfers;          /* owned; by (to, item, tied, kind) */
    int64_t bytes;                       /* of all transfers */
    int64_t bytes_inside, bytes_between; /* over links inside nodes, over uplinks */
    int moved_devices;                   /* devices that receive anything */
    int64_t ns; /* until the last one is there: the busiest port or uplink, each transfer paying its
                   bytes on every one it crosses, plus one latency */
};

/* The transfers that take a cluster from plan `old` to plan `new_plan`. A device needs each
 * trainable item of its stages with its optimizer state, and each frozen item that it runs forward:
 * of a prefix outside the cut, rank 0 of each replica all (under FROZEN_CACHED too, for evaluation
 * and what the cache lacks); it keeps what it has. Each item comes from one owner: the nearest (the
 * same node first), of equals the one that has sent least so far, then the lower number. An item
 * newly frozen needs no optimizer state. The copy of a tied table goes from owners of the table to
 * devices that have held neither. Both plans must pass plan_check(). ERR_INFEASIBLE:
 * an item that was frozen is to be trained again. *transition must be zeroed or cleared.
 * O(replicas^2 * items). */
enum status transition_build(const struct model *model, const struct cluster *cluster,
                             const struct plan *old, const struct plan *new_plan,
                             struct transition *transition, struct err *err);
void transition_clear(struct transition *transition);

/* Rename the devices of `plan` so that the fewest bytes move from `old` (of equals, to the fewest
 * devices), keeping what lies on which node: devices of a node with the same kind, speed and memory
 * may trade places, and so may whole nodes that are alike. Exact under that rule (assignment by the
 * Hungarian method, nodes over devices). Writes plan->device. O(nodes^2 * devices a node^3). */
enum status autodp_keep_devices(const struct model *model, const struct cluster *cluster,
                                const struct plan *old, struct plan *plan, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
