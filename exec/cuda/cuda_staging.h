/* exec/cuda/cuda_staging.h - copies between host and device through pinned memory.
 *
 * A copy from or to pageable memory would make the host wait for the device. Therefore
 * cuda_staging_in() puts the bytes into a ring of pinned memory, starts the transfer and returns.
 * cuda_staging_out() starts the transfer into the ring, and the bytes reach the caller's memory at
 * the next sync. Memory from cuda_staging_pin() is transferred directly; its contents must not
 * change until a sync, or until an event recorded after the copy. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "partition/base/status.h"

struct cuda_staging;

/* All transfers go to `stream`, in the order of the calls and of its kernels. */
enum status cuda_staging_new(cudaStream_t stream, struct cuda_staging **staging, struct err *err);
void cuda_staging_free(struct cuda_staging *staging); /* NULL is fine */

/* Copies into and out of the device. Failures stick (cuda_note()). */
void cuda_staging_in(struct cuda_staging *staging, void *dst, const void *host, int64_t bytes);
void cuda_staging_out(struct cuda_staging *staging, void *host, const void *src, int64_t bytes);

/* Copy what has arrived in the ring to the callers' memory. The stream must be idle. */
void cuda_staging_flush(struct cuda_staging *staging);

/* Pinned host memory, not zeroed. Released memory is kept for later requests of a similar size; a
 * request that reuses it waits for the device. */
enum status cuda_staging_pin(struct cuda_staging *staging, int64_t bytes, void **ptr,
                             struct err *err);
void cuda_staging_unpin(struct cuda_staging *staging, void *ptr); /* NULL is fine */
