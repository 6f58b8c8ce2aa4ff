/* exec/stage/stash.h - memory for the tensors that a forward keeps for its backward. */
#pragma once

#include "exec/stage/stage_state.h"

/* Bytes of item i's stash buffers and of its output, at the largest micro-batch. */
void stash_sizes(const struct stage *stage, int i, int64_t *bytes /* MAX_STASH */, int64_t *out);

/* Allocate a set. shared: for passes that keep nothing; the items use the same memory in turn. */
enum status stash_make(struct stage *stage, struct stash_set *set, bool shared, struct err *err);
void stash_drop(struct stage *stage, struct stash_set *set, bool shared);
/* A set that no micro-batch uses. It is allocated at its first use, because under recompute more
 * than one is seldom in use. */
enum status stash_take(struct stage *stage, struct stash_set **set, struct err *err);
