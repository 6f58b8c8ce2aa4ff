/* exec/change/move.h - moves weights and optimizer state from their owners under one plan to their
 * owners under the next.
 *
 * partition/plan/autodp.h lists the transfers, the same list on every rank; this file moves the bytes.
 */
#pragma once

#include "exec/trainer/deployment.h"

/* Fill the stages of `next` from those of `old`. Buffers of items that stay on this rank change
 * hands, the rest comes in messages. Afterwards the stages of `old` can only be freed. *bytes: the
 * bytes that went from rank to rank, over all ranks. Collective over the message group. */
enum status move_weights(const struct deployment_base *base, struct deployment *old,
                         struct deployment *next, int64_t *bytes, struct err *err);
