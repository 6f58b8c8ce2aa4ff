/* partition/pool_memory.h - what a device holds when memory is taken once, before the first step,
 * as exec/ does: pools in place of the lives of M1-M3 (partition/workload.h).
 *
 * P1  Weights, gradients and optimizer state as in M1.
 * P2  A stage has a slot for each live micro-batch at its peak (F to the end of B or W), and one
 *     more where the peak is below the number of micro-batches: a message may still leave from it.
 *     A slot holds the stash and the outputs of the stage's trained items and the gradient of its
 *     input; under recompute the outputs of items and the stash exist as often as micro-batches
 *     wait behind their R (or an F that keeps them): once, but where W is put off.
 * P3  Work space of a stage: five tensors as wide as an activation, the largest stash of an item,
 *     the patches of images where it embeds them.
 * P4  An edge has two receive buffers more than the receiving stage has slots, at most one a
 *     micro-batch, in each direction that is used.
 * P5  A frozen prefix outside the pipeline (first, cached) is a stage of one slot on rank 0 that
 *     keeps no stash, and what it makes of each micro-batch of a step; a cache is read two
 *     micro-batches ahead, in the host's memory. The cache's own pages are the machine's, not
 *     counted here.
 * P6  A device with memory of its own holds no buffers of P5 that are read ahead, but in each slot
 *     of a stage, and the prefix's, a copy of what that reads of the micro-batch, and one more for
 *     images that come ahead, where they are read (a cached prefix has none). What kernels take for
 *     themselves comes besides. */
#ifndef ELAPSE_PARTITION_POOL_MEMORY_H
#define ELAPSE_PARTITION_POOL_MEMORY_H

#include "partition/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MESSAGE_WINDOW = 2 }; /* of P4; exec/ takes more where two would hold a list up for ever */

/* P2: how many slots a stage of the list has, for stage_spec.max_live. O(ops of its rank). */
int pool_slots(const struct schedule *full, int stage);

/* Bytes a rank, num_ranks entries of the caller's. stash_bytes: per item, what the executor's
 * kernels keep of one sample beside the output, num_items entries, borrowed. on_device: P6, else
 * the host computes. ERR_INPUT on overflow. O(ops of the list x stages). */
enum status pool_memory(const struct model *model, const struct schedule *full,
                        const struct workload *workload, const struct plan *plan,
                        const int64_t *stash_bytes, bool on_device, int64_t *memory_bytes,
                        struct err *err);

#ifdef __cplusplus
}
#endif
#endif
