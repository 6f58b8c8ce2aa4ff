/* partition/layout/tensor_group.h - the setting as one device of a plan's tensor-parallel group sees it.
 *
 * With pipeline.tensor T, a rank of a pipeline is a group of T devices. A tensor_group is a setting whose
 * model is the share of one of them (model_shard.h), whose costs include the group's collectives,
 * and whose uplinks carry a T-th each, because the T devices of a group send at once. Planner,
 * workload and engines use it like any other setting. If T exceeds every node, a group is
 * several whole nodes: its collectives cross the network, and each device has its share of its own
 * node's uplink.
 *
 * A message between stages: with sequence_parallel each device of the group sends its own share of
 * the tokens. Without, each holds the whole tensor, sends a T-th of it and the receiving group
 * gathers the parts (Megatron-LM's scatter/gather optimization; Narayanan et al. 2021, section 4.1).
 * That all-gather is part of the forward or backward that needs the tensor (workload_stages.c).
 *
 * With pipeline.context C, the model is that of the tokens of one of C replicas (model_divide_tokens()).
 * What its attention sends is part of the workload (workload_layout.c).
 *
 * With pipeline.expert E, the model is also the share of one of E replicas that divide the experts of
 * each layer. Their all-to-alls go between replicas and are part of the workload
 * (workload_layout.c). With pipeline.expert_tensor X < T each expert is on X devices of a group, and
 * the all-to-alls go between devices of groups (cost.experts_ns).
 *
 * A setting whose costs nobody measured and whose devices are GPUs also takes attention as fused
 * (ATTENTION_AUTO), because frameworks run it so. Pure. */
#pragma once

#include "partition/cost/cost.h"
#include "partition/layout/model_shard.h"
#include "partition/model/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tensor_group;

/* Make the setting that a division needs, or set *group to NULL if the setting is right as it is.
 * The setting is borrowed as long as the group lives. ERR_INFEASIBLE: the errors of
 * model_shard_check(), model_experts_check() and model_context_check(); measured costs, which know
 * nothing of a share of an item; a group that no node has room for; or fewer groups than E or C.
 * ERR_NOMEM. O(items + devices). */
enum status tensor_group_new(const struct setting *setting, const struct layout *layout,
                             struct tensor_group **group, struct err *err);
void tensor_group_free(struct tensor_group *group);

/* The group's setting, or `setting` without a group. */
struct setting tensor_group_setting(const struct tensor_group *group,
                                    const struct setting *setting);

/* Write the first devices of all groups of T neighbouring devices to first, node by node, and
 * return how many there are. first has room for cluster->num_devices / T entries, or is NULL. If T
 * exceeds every node, a group is as many whole neighbouring nodes of one size as have T devices
 * together. */
int tensor_group_list(const struct cluster *cluster, int tensor, int *first);
/* Whether the T devices from `first` on are of one node, or whole nodes of one size. */
bool tensor_group_fits(const struct cluster *cluster, int tensor, int first);
/* ERR_INFEASIBLE: the cluster has no such group. */
enum status tensor_group_check(const struct cluster *cluster, int tensor, struct err *err);

#ifdef __cplusplus
}
#endif
