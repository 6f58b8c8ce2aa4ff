/* exec/cuda/cuda_arena.h - device memory by the piece: taken from the driver in large slabs, given
 * out by address.
 *
 * Lowest address that fits, so that the same calls give the same addresses. A piece given back may
 * be given out again at once: all work on one stream is in order. Memory returns to the driver when
 * another slab is wanted and does not fit, and at the end. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_ARENA_H
#define ELAPSE_EXEC_CUDA_CUDA_ARENA_H

#include <stdint.h>

#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_arena;

enum status cuda_arena_new(struct cuda_arena **arena, struct err *err);
void cuda_arena_free(struct cuda_arena *arena); /* NULL is fine; all pieces with it */

/* See that allocs of these sizes, in this order, will not go to the driver: what finds no place in
 * what is free gets one slab together. ERR_INFEASIBLE: the device has not that much. */
enum status cuda_arena_reserve(struct cuda_arena *arena, const int64_t *bytes, int64_t num,
                               struct err *err);

/* 256-byte aligned. ERR_INFEASIBLE with what was asked, what the device has free and what this
 * arena holds; ERR_INPUT: bytes < 0. O(pieces). */
enum status cuda_arena_alloc(struct cuda_arena *arena, int64_t bytes, void **ptr, struct err *err);
void cuda_arena_release(struct cuda_arena *arena, void *ptr); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
