/* exec/cuda/cuda_arena.h - device memory: large slabs taken from the driver, and pieces given out
 * of them.
 *
 * An allocation takes the first free piece that is large enough, so the same calls give the same
 * addresses. A released piece may be given out again at once, because all work is on one stream and
 * therefore in order. Slabs return to the driver at the end, or when a new slab does not fit. */
#pragma once

#include <stdint.h>

#include "partition/base/status.h"

struct cuda_arena;

enum status cuda_arena_new(struct cuda_arena **arena, struct err *err);
void cuda_arena_free(struct cuda_arena *arena); /* NULL is fine; frees all pieces */

/* Make sure that allocations of these sizes, in this order, will not go to the driver. The sizes
 * that find no free piece get one common new slab. ERR_INFEASIBLE: the device does not have that
 * much free memory. */
enum status cuda_arena_reserve(struct cuda_arena *arena, const int64_t *bytes, int64_t num,
                               struct err *err);

/* Allocate, 256-byte aligned. ERR_INFEASIBLE: out of device memory; the message gives the bytes
 * asked for, the bytes free, and the bytes that this arena holds. ERR_INPUT: bytes < 0. O(pieces).
 */
enum status cuda_arena_alloc(struct cuda_arena *arena, int64_t bytes, void **ptr, struct err *err);
void cuda_arena_release(struct cuda_arena *arena, void *ptr); /* NULL is fine */
