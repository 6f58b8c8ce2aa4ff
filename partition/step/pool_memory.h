/* partition/step/pool_memory.h - the memory of a device under exec/, which takes all of it once,
 * before the first step. step_rules.h has the memory of a simulated step, which comes and goes with
 * the ops (memory-1 to memory-3).
 *
 * A rank holds its weights, gradients and optimizer state as in memory-1, and pools:
 *
 * Slots. A stage has one slot for each live micro-batch at its peak (from F to the end of B or W),
 * and one more where the peak is below the number of micro-batches, because a message may still
 * leave from it. A slot holds the stash and the outputs of the stage's trained items and the
 * gradient of its input. Under recompute, stash and outputs of items exist only as often as
 * micro-batches wait after their R, or after an F that keeps them: once, unless W is put off.
 *
 * Work space of a stage: three tensors as wide as an activation, two of pool_scratch_cols(), the
 * largest stash of an item, the patches of images where the stage embeds them, and a decoder's
 * table of rotary angles.
 *
 * Messages. In each direction that is used, an edge has MESSAGE_WINDOW receive buffers more than
 * the receiving stage has slots, and never more than there are micro-batches.
 *
 * A frozen prefix outside the pipeline (frozen: first, cached) is a stage of one slot on rank 0
 * that keeps no stash. It also holds what it makes of each micro-batch of a step. A cache is read
 * two micro-batches ahead, into the host's memory. The cache's own pages belong to the machine and
 * are not counted.
 *
 * A device with memory of its own has no buffers for reading the cache ahead. Each slot of a stage,
 * and of the prefix, also holds a copy of what the stage reads of the micro-batch, and a stage that
 * reads images one more, for images that come ahead (a cached prefix has none). What kernels take
 * for themselves comes on top. */
#pragma once

#include "partition/step/workload.h"

enum { MESSAGE_WINDOW = 2 }; /* exec/ takes more where two would hold a list up for ever */

/* The number of slots of a stage of the list, for stage_spec.max_live. O(ops of its rank). */
int pool_slots(const struct schedule *full, int stage);

/* Width of the two tensors in which a stage keeps gradients inside an item: the hidden width. In
 * decoders the gradients of all heads' context and of the gated product lie there too. */
int64_t pool_scratch_cols(const struct model *model);
/* Bytes of a position in a stage's table of rotary angles, [seq, head_dim / 2, 2] in fp32. 0: no
 * decoder. */
int64_t pool_angle_bytes(const struct model *model);

/* Bytes of each rank, num_ranks entries of the caller's. stash_bytes (num_items entries, borrowed):
 * what the executor's kernels keep of one sample of an item beside its output. on_device: the
 * device has memory of its own, else the host computes. ERR_INPUT on overflow. O(ops of the list x
 * stages). */
enum status pool_memory(const struct model *model, const struct schedule *full,
                        const struct workload *workload, const struct plan *plan,
                        const int64_t *stash_bytes, bool on_device, int64_t *memory_bytes,
                        struct err *err);
