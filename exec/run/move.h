/* exec/run/move.h - weights and optimizer state from the owners under one plan to those under the
 * next.
 *
 * The list of what goes where is partition/autodp.h's, the same on every rank; here are the bytes.
 */
#ifndef ELAPSE_EXEC_RUN_MOVE_H
#define ELAPSE_EXEC_RUN_MOVE_H

#include "exec/run/layout.h"

/* Fill the stages of `next` from those of `old`: buffers that stay on this rank change hands, the
 * rest comes in messages. The stages of `old` are of no use afterwards. *bytes: what crossed from
 * rank to rank, on all ranks together. Collective over the message group. */
enum status move_weights(const struct layout_base *base, struct layout *old, struct layout *next,
                         int64_t *bytes, struct err *err);

#endif
