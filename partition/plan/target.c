/* The table of frameworks. Where a row is from: docs/frameworks.md. */
#include "partition/plan/target.h"

#include <string.h>

#include "partition/plan/plan.h"

#define BIT(x) (1u << (x))

/* Schedules whose ranks hold the stages that PyTorch's stage builders give them: s modulo K, or
 * both arms of a V. An op list of ours runs there as CSV. */
#define PYTORCH_SCHEDULES (BIT(SCHEDULE_SEARCH + 1) - 1)

/* The cut of DeepSpeed's partition_method uniform over a list of one module for the embedding, one
 * a layer and one for the head (runtime/utils.py, partition_uniform): the first stages have one
 * module more. */
static bool cut_uniformly(const struct model *model, int num_stages, int *first_item)
{
    int modules = 1;
    for (int i = 1; i < model->num_items; i++)
        modules += model->items[i].layer != model->items[i - 1].layer;
    if (modules < num_stages)
        return false;
    const int each = modules / num_stages, more = modules % num_stages;
    for (int s = 0, i = 0, module = 0; s < num_stages; s++) {
        const int at = s * each + (s < more ? s : more);
        for (; module < at; i++)
            module += model->items[i + 1].layer != model->items[i].layer;
        first_item[s] = i;
    }
    first_item[num_stages] = model->num_items;
    return true;
}

/* The cost that nanotron counts for an item (models/llama.py, get_block_compute_costs): products
 * of a layer as if it had no grouped heads, and of the head. Counts for the first item of a
 * layer. */
static double nanotron_cost(const struct model *m, int item)
{
    const int layer = m->items[item].layer;
    const double hidden = m->hidden;
    if (layer < 0 || (item > 0 && m->items[item - 1].layer == layer))
        return 0;
    if (layer == m->num_layers)
        return hidden * m->vocab;
    return hidden * (4.0 * m->heads * m->head_dim + 3.0 * m->mlp);
}

/* The cut of nanotron (models/base.py, build_model): a stage ends after the block with which the
 * cost of all blocks up to it exceeds its share. */
static bool cut_by_cost(const struct model *model, int num_stages, int *first_item)
{
    double total = 0, sum = 0;
    int s = 1;
    const int n = model->num_items;
    for (int i = 0; i < n; i++)
        total += nanotron_cost(model, i);
    first_item[0] = 0;
    for (int i = 0; i < n; i++) {
        sum += nanotron_cost(model, i);
        const bool ends = i + 1 < n && model->items[i + 1].layer != model->items[i].layer;
        if (ends && s < num_stages && sum > total * s / num_stages)
            first_item[s++] = i + 1;
    }
    first_item[num_stages] = n;
    return s == num_stages;
}

static const struct plan_target targets[TARGET_KIND_COUNT] = {
    {.kind = TARGET_TORCHTITAN,
     .name = "torchtitan",
     .version = "0.3.0",
     .framework = FRAMEWORK_FSDP,
     .schedules = PYTORCH_SCHEDULES,
     .shards = BIT(SHARD_NONE) | BIT(SHARD_GRADIENTS) | BIT(SHARD_WEIGHTS),
     .contexts = BIT(CONTEXT_ALLGATHER),
     .recomputes = BIT(RECOMPUTE_NEVER) | BIT(RECOMPUTE_LAYER) | BIT(RECOMPUTE_OP),
     .all_layers = true,
     .expert_in_shard = true,
     .reduces_by_layer = true},
    {.kind = TARGET_AUTOMODEL,
     .name = "automodel",
     .version = "0.7.0",
     .framework = FRAMEWORK_FSDP,
     .schedules = PYTORCH_SCHEDULES,
     .shards = BIT(SHARD_NONE) | BIT(SHARD_GRADIENTS) | BIT(SHARD_WEIGHTS),
     .recomputes = BIT(RECOMPUTE_NEVER) | BIT(RECOMPUTE_LAYER),
     .all_layers = true,
     .expert_in_shard = true,
     .replicas_in_shard = true,
     .reduces_by_layer = true,
     .filled = true},
    {.kind = TARGET_MEGATRON,
     .name = "megatron",
     .version = "core 0.16.1",
     .framework = FRAMEWORK_MEGATRON_TE,
     .schedules = BIT(SCHEDULE_1F1B) | BIT(SCHEDULE_INTERLEAVED),
     .shards = BIT(SHARD_NONE) | BIT(SHARD_OPTIMIZER),
     .contexts = BIT(CONTEXT_RING) | BIT(CONTEXT_ALLGATHER) | BIT(CONTEXT_ULYSSES),
     .recomputes = BIT(RECOMPUTE_NEVER) | BIT(RECOMPUTE_SELECTIVE) | BIT(RECOMPUTE_LAYER) |
                   BIT(RECOMPUTE_NORMS),
     .equal_layers = true,
     .offloads = true,
     .whole_rounds = true},
    {.kind = TARGET_DEEPSPEED,
     .name = "deepspeed",
     .version = "0.19.8",
     .framework = FRAMEWORK_DEEPSPEED,
     .schedules = BIT(SCHEDULE_1F1B),
     .shards = BIT(SHARD_NONE) | BIT(SHARD_OPTIMIZER) | BIT(SHARD_GRADIENTS) | BIT(SHARD_WEIGHTS),
     .recomputes = BIT(RECOMPUTE_NEVER) | BIT(RECOMPUTE_LAYER),
     .all_layers = true,
     .alone = true,
     .tokens_whole = true,
     .experts_by_group = true,
     .offloads = true,
     .own_cut = cut_uniformly},
    {.kind = TARGET_NANOTRON,
     .name = "nanotron",
     .version = "commit 19f88fb",
     .schedules = BIT(SCHEDULE_GPIPE) | BIT(SCHEDULE_1F1B),
     .shards = BIT(SHARD_NONE) | BIT(SHARD_OPTIMIZER),
     .recomputes = BIT(RECOMPUTE_NEVER) | BIT(RECOMPUTE_LAYER),
     .all_layers = true,
     .experts_by_group = true,
     .own_cut = cut_by_cost                                         },
};

enum status target_find(const char *name, const struct plan_target **target, struct err *err)
{
    for (int i = 0; i < TARGET_KIND_COUNT; i++)
        if (strcmp(targets[i].name, name) == 0) {
            *target = &targets[i];
            return OK;
        }
    return err_set(err, ERR_INPUT, "unknown framework '%s': one of %s", name, TARGET_NAMES);
}
