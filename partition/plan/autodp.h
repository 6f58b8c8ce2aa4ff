/* partition/plan/autodp.h - map ranks of a plan to devices, and compute the transfers of a plan
 * change.
 *
 * PipeTransformer's map (AutoDP; He et al., ICML 2021): inside a node, pipeline r owns devices
 * [r*K, (r+1)*K) and is driven by local rank r. A pipeline stays inside one node if the node has K
 * devices for it. Longer pipelines, and those made of the nodes' remaining devices, take
 * consecutive devices across nodes. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/cluster/cluster.h"
#include "partition/model/model.h"
#include "partition/plan/plan.h"

enum rank_map {
    MAP_PIPELINE_INSIDE, /* the paper's map: activations stay inside nodes */
    MAP_STAGE_INSIDE,    /* replicas of a stage are neighbours: all-reduces stay inside nodes */
    MAP_COUNT
};

/* Map ranks to the groups 0 .. num_groups - 1, of which node[] is the node. Groups of a node are
 * contiguous. group is the caller's, with num_ranks * num_pipelines <= num_groups entries. */
void autodp_map_nodes(const int *node, int num_groups, enum rank_map map, int num_ranks,
                      int num_pipelines, int *group);

/* Write the first device of rank k of pipeline r to device[r * K + k]. A rank is a group of `tensor`
 * neighbouring devices of a node; devices that are left over in a node are not used. device is the
 * caller's, with R * K entries. ERR_INFEASIBLE if R * K exceeds the groups. O(devices). */
enum status autodp_map_groups(const struct cluster *cluster, enum rank_map map, int tensor,
                              int num_ranks, int num_pipelines, int *device, struct err *err);

enum transfer_kind { TRANSFER_WEIGHTS, TRANSFER_OPTIMIZER, TRANSFER_FROZEN, TRANSFER_KIND_COUNT };

/* One item's tensors of one kind, moved from a device that has them to a device that needs them. */
struct transfer {
    int item;
    bool tied; /* the last stage's copy of the embedding table (tied weights); item is then 0 */
    enum transfer_kind kind;
    int from, to; /* devices */
    int64_t bytes;
};

struct transition {
    int64_t num_transfers;
    struct transfer *transfers;          /* owned; sorted by (to, item, tied, kind) */
    int64_t bytes;                       /* sum over all transfers */
    int64_t bytes_inside, bytes_between; /* over links inside nodes, over uplinks */
    int moved_devices;                   /* devices that receive anything */
    int64_t ns; /* until the last transfer arrives: the time of the busiest port or uplink plus one
                   latency. A transfer counts on every port and uplink that it uses */
};

/* Compute the transfers that take a cluster from plan `old` to plan `new_plan`.
 *
 * A device needs the trainable items of its stages with their optimizer state, and the frozen items
 * that it runs forward. If the frozen prefix is outside the cut, rank 0 of each replica needs all
 * of it. That holds under FROZEN_CACHED too, for evaluation and for samples that the cache misses.
 * A device keeps the items that it has. Each other item comes from one owner: on the same node if
 * possible, then the one that has sent the fewest bytes so far, then the lowest device. A newly
 * frozen item needs no optimizer state. The state of an item that trains again is in no transfer,
 * because its old owner has none: rank 0 keeps it (exec/change/thaw.h). The copy of a tied table goes
 * from owners of the table to devices that had neither the table nor a copy.
 *
 * Both plans must pass plan_check().
 * *transition must be zeroed or cleared. O(replicas^2 * items). */
enum status transition_build(const struct model *model, const struct cluster *cluster,
                             const struct plan *old, const struct plan *new_plan,
                             struct transition *transition, struct err *err);
void transition_clear(struct transition *transition);

/* Permute the devices of `plan` so that the fewest bytes move from `old`; of equal permutations it
 * takes the one that moves bytes to the fewest devices. Devices of a node may trade places if their
 * kind, speed, memory and bandwidths are equal. Whole nodes may trade places if their devices and
 * uplinks are equal. Of these permutations the result is optimal (Hungarian method, inside nodes
 * first, then over nodes). with_device_0: of the permutations that use device 0, if one does.
 * Writes plan->device. O(nodes^2 * devices per node^3). */
enum status autodp_keep_devices(const struct model *model, const struct cluster *cluster,
                                const struct plan *old, bool with_device_0, struct plan *plan,
                                struct err *err);
