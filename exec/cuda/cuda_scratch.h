/* exec/cuda/cuda_scratch.h - device memory for the kernels of one call; private to exec/cuda/. */
#pragma once

#include "exec/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* At least `bytes` of device memory, 256-byte aligned, for the kernels of one call of the table.
 * The next call may reuse it. Without memory the failure is recorded and the result is NULL; launch
 * nothing then. */
void *cuda_scratch(struct backend *be, int64_t bytes);
/* Like cuda_scratch(), but running out of memory is returned in err (may be NULL) instead of ending
 * the run. */
void *cuda_scratch_or(struct backend *be, int64_t bytes, struct err *err);
/* Give the memory back; the next call takes it anew. */
void cuda_scratch_drop(struct cuda_backend *cuda);

#ifdef __cplusplus
}
#endif
