/* exec/cuda/cuda_staging.h - copies between host and device through pinned memory.
 *
 * A copy from or to pageable memory would make the host wait for the device. So copy_in puts the
 * bytes into a ring of pinned memory, starts the transfer and returns; copy_out starts the transfer
 * into the ring, and the bytes reach the caller's memory at the next sync. Memory that was
 * allocated here as pinned is transferred directly: its contents must stay until a sync, or an
 * event behind the copy. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_STAGING_H
#define ELAPSE_EXEC_CUDA_CUDA_STAGING_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_staging;

/* All transfers go to `stream`, in order with its kernels. */
enum status cuda_staging_new(cudaStream_t stream, struct cuda_staging **staging, struct err *err);
void cuda_staging_free(struct cuda_staging *staging); /* NULL is fine */

/* Failures stick (cuda_note()). */
void cuda_staging_in(struct cuda_staging *staging, void *dst, const void *host, int64_t bytes);
void cuda_staging_out(struct cuda_staging *staging, void *host, const void *src, int64_t bytes);

/* Deliver what has arrived for pageable memory; the stream must be idle. */
void cuda_staging_flush(struct cuda_staging *staging);

/* Not zeroed. What is given back is kept for who asks for as much again; who gets it waits for the
 * device. */
enum status cuda_staging_pin(struct cuda_staging *staging, int64_t bytes, void **ptr,
                             struct err *err);
void cuda_staging_unpin(struct cuda_staging *staging, void *ptr); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
