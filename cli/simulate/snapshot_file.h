/* cli/simulate/snapshot_file.h - the memory of a simulated step in the form of PyTorch's allocator: a pickle as
 * torch.cuda.memory._dump_snapshot() writes it, for pytorch.org/memory_viz and torch.cuda._memory_viz. */
#pragma once

#include "cli/simulate/rank_memory.h"

/* Write allocations and releases of each device of the first pipeline, a device a rank. What a rank holds
 * is exact at each pass; which allocation a release ends is by stage and micro-batch where that is known.
 * The file appears whole or not at all. */
enum status snapshot_file(const char *path, const struct traced_step *step, struct err *err);
