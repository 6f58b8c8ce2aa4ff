/* partition/search/rank_places.h - on which devices the planner may place the ranks of a plan.
 *
 * A place gives every rank of every replica a group of devices (tensor_group.h; a group is one
 * device unless T > 1). Two places are equal if one becomes the other by trading equal devices of a
 * node, equal nodes, or whole replicas. Most equal places are listed once.
 *
 * For each K and R the list holds the rules: the two rank maps of autodp.h over the groups in
 * cluster order, over the fewest nodes that have enough groups, and in an unequal cluster over the
 * first devices and over the devices of some types, type by type. For an unequal cluster it also
 * holds every place, if there are at most MOST_PLACES (rank_places.c). A place counts several times
 * if trading equal nodes gives several ascending sequences of replicas. Otherwise it holds every
 * place on as many first devices as have at most MOST_PLACES, and every place whose replicas do not
 * come back to a node's devices of a type, on as many first devices as have at most MOST_PLACES.
 * So a place on the first devices of a cluster is a place on the whole cluster.
 *
 * Pure; deterministic. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/cluster/cluster.h"

struct rank_places; /* opaque */

/* The number of the place MAP_PIPELINE_INSIDE over all groups in cluster order, whether or not
 * rank_places_of() lists it under this number. */
#define RANK_PLACE_PIPELINE_INSIDE 0

/* Prepare the places on a cluster, which is borrowed. tensor: devices of a group. with_first: leave
 * out places that do not use device 0. *places becomes a fresh object; release it with
 * rank_places_free(). ERR_NOMEM. O(devices * types of devices). */
enum status rank_places_new(const struct cluster *cluster, int tensor, bool with_first,
                            struct rank_places **places, struct err *err);
void rank_places_free(struct rank_places *places);

/* List one place from now on: stages in cluster order, and inside them replicas (MAP_STAGE_INSIDE). */
void rank_places_by_stage(struct rank_places *places);

/* List the places of R replicas of K ranks. *place is borrowed until the next call; *num may be 0.
 * The numbers in it stay valid for rank_places_map() with this K and R. ERR_NOMEM. */
enum status rank_places_of(struct rank_places *places, int num_ranks, int num_pipelines,
                           const int **place, int *num, struct err *err);

/* Write the first device of the group of rank k of replica r to device[r * K + k]. ERR_NOMEM.
 * O(devices). */
enum status rank_places_map(const struct rank_places *places, int place, int num_ranks,
                            int num_pipelines, int *device, struct err *err);
