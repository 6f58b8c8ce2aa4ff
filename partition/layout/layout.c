/* The rows of a layout, its checks and its words. */
#include "partition/layout/layout.h"

enum status shard_group_check(int group, enum shard_mode shard, int replicas, int expert,
                              struct err *err)
{
    if (group == 0)
        return OK;
    if (shard < SHARD_GRADIENTS)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.shard_group %d needs pipeline.shard gradients or weights, got %s",
                       group, shard_mode_name(shard));
    if (expert > 1)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.shard_group %d does not go with pipeline.expert %d", group,
                       expert);
    if (group < 2 || replicas % group != 0 || replicas == group)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.shard_group %d leaves no whole copies of %d replicas", group,
                       replicas);
    return OK;
}

const char *shard_mode_name(enum shard_mode mode)
{
    static const char *const names[SHARD_MODE_COUNT] = {"none", "optimizer", "gradients",
                                                        "weights"};
    return names[mode];
}
