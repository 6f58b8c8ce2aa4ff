/* partition/plan/target.h - the training frameworks that `elapse plan --for` plans for, and what
 * each can run.
 *
 * Pure; no state. profiles/frameworks/target_file.h writes the frameworks' configurations. */
#pragma once

#include <stdbool.h>

#include "partition/base/status.h"
#include "partition/model/framework.h"
#include "partition/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum target_kind {
    TARGET_TORCHTITAN,
    TARGET_AUTOMODEL,
    TARGET_MEGATRON,
    TARGET_DEEPSPEED,
    TARGET_NANOTRON,
    TARGET_KIND_COUNT
};
#define TARGET_NAMES "torchtitan automodel megatron deepspeed nanotron" /* for help texts */

/* Every framework keeps the items of a layer together, has micro-batches of one size, and puts
 * tensor ranks on neighbouring devices, then replicas, then stages (Megatron-LM's order
 * tp-cp-ep-dp-pp, the meshes of torchtitan, AutoModel and nanotron, DeepSpeed's
 * pipe-data-model). */
struct plan_target {
    enum target_kind kind;
    const char *name, *version; /* the version whose files the table follows */
    enum framework_kind
        framework;          /* of a job that names none; AUTO: no kernels of its own are known */
    unsigned schedules;     /* bits 1 << enum schedule_kind */
    unsigned shards;        /* bits 1 << enum shard_mode */
    unsigned contexts;      /* bits 1 << enum context_kind, for C > 1 */
    unsigned recomputes;    /* bits 1 << enum recompute_mode */
    bool given;             /* the layout is given: the framework only places its ranks */
    bool all_layers;        /* RECOMPUTE_LAYER runs every layer of every stage again */
    bool equal_layers;      /* RECOMPUTE_LAYER runs as many layers of each stage again */
    bool alone;             /* no pipeline with T > 1, SHARD_GRADIENTS or SHARD_WEIGHTS */
    bool expert_in_shard;   /* E > 1 only with SHARD_GRADIENTS or SHARD_WEIGHTS */
    bool replicas_in_shard; /* so is R > 1 */
    bool tokens_whole;      /* no sequence parallelism */
    bool experts_by_group;  /* X = T */
    bool offloads;          /* layout.offload */
    bool reduces_by_layer;  /* gradients of SHARD_NONE too: bucket_bytes is not its to choose */
    bool filled;            /* M is at least K */
    bool whole_rounds;      /* with several chunks a rank, M is a multiple of K */
    /* The framework's own cut into num_stages, num_stages + 1 entries; false: it leaves a stage
     * empty. NULL: the cut is ours to choose. */
    bool (*own_cut)(const struct model *model, int num_stages, int *first_item);
};

/* ERR_INPUT names the frameworks. *target points to constant data. */
enum status target_find(const char *name, const struct plan_target **target, struct err *err);

#ifdef __cplusplus
}
#endif
