/* partition/step/stage_memo.h - the costs of stages that earlier cuts of a plan had.
 *
 * The planner builds the workloads of many plans that differ only in their cuts. Most stages of such
 * a plan have been in one before: its costs are copied. Direct-mapped, so its size is fixed. */
#pragma once

#include "partition/step/workload.h"

/* What a stage of a class of replicas costs, by its items and how many of its layers run again. */
struct stage_memo_entry {
    int64_t round; /* of stage_memo_forget(); an older entry is nobody's */
    int stage, class_index, first_item, end_item, layers;
    int fit; /* of an entry with no layers: how many run again for the memory; -1: not known */
    bool known, buckets_known; /* the members below are set */
    bool extrapolated;
    struct stage_cost cost;
    struct bucket *buckets; /* owned */
    int num_buckets;
};
struct stage_memo;

struct stage_memo *stage_memo_new(void); /* NULL: no memory */
void stage_memo_free(struct stage_memo *memo);
/* What follows is about a plan that differs in more than its cut and recompute_layers. */
void stage_memo_forget(struct stage_memo *memo);
/* The entry of a stage of a plan, which was filled before, or which the caller may fill. Valid until
 * the next call. */
struct stage_memo_entry *stage_memo_find(struct stage_memo *memo, const struct plan *plan,
                                         int stage, int class_index);
/* Keep a copy of a stage's buckets. False: no memory. */
bool stage_memo_keep_buckets(struct stage_memo_entry *entry, const struct bucket *buckets,
                             int num_buckets);
