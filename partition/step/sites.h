/* partition/step/sites.h - how the devices of a plan relate: which replicas are placed
 * alike, and which links their collectives cross.
 *
 * Both follow from the devices alone. Plans
 * that differ only in cut, schedule or micro-batches share it, so the planner finds it once for all
 * cuts of a family: with many replicas it costs more than the rest of a workload. Pure. */
#pragma once

#include "partition/cost/cost.h"
#include "partition/plan/plan.h"

/* Different rings; equal ones are listed once. */
struct ring_list {
    struct ring *rings; /* owned */
    int num;
};

/* The replicas of one rank. */
struct rank_site {
    struct ring_list sharers; /* those that divide something: all, or each group (HSDP) */
    /* With groups: one ring through all groups for each member. Members of a node send at once, so
     * a ring carries copies_weight times its bytes. */
    struct ring_list copies;
    double copies_weight;
    struct ring_list contexts; /* those that share samples, C in a row; none with C = 1 */
    bool together;             /* all on one node */
    double least_speed;        /* of a device */
};

struct sites {
    int num_ranks, num_pipelines, shard_group;
    struct rank_site *ranks; /* owned, by rank */
    bool one_node, one_pod;  /* the whole plan */
    /* Replicas of one kind have alike devices, and alike links between any two of their ranks. */
    int num_kinds;
    int *kind_of_replica; /* owned, by replica; kinds are numbered as replicas first have them */
    int *example;         /* owned, by kind: its first replica */
};

/* Find the sites of a plan: its num_ranks, num_pipelines, layout and device. *sites becomes a
 * fresh object; release it with sites_free(). ERR_NOMEM.
 * O(replicas * ranks^2 * kinds). */
enum status sites_new(const struct cluster *cluster, const struct plan *plan, struct sites **sites,
                      struct err *err);
void sites_free(struct sites *sites);

/* Time of a collective (not an all-to-all) over the replicas of a rank that divide something. A
 * reduce-scatter of groups is followed by the all-reduce of their copies. */
int64_t sites_collective_ns(const struct sites *sites, const struct setting *setting, int rank,
                            enum collective kind, int64_t bytes);

/* The longest time of a collective (not an all-to-all) over the replicas of a rank that share samples. */
int64_t sites_context_ns(const struct sites *sites, const struct setting *setting, int rank,
                         enum collective kind, int64_t bytes);
