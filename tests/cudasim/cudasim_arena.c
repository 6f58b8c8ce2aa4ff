/* exec/cuda/cuda_arena.h with an allocation of the device for each piece, so that the checks of
 * tests/cudasim/ know where each ends. */
#include "exec/cuda/cuda_arena.h"

#include <stdlib.h>

#include "exec/cuda/cuda_internal.h"

struct cuda_arena {
    int64_t held;
};

enum status cuda_arena_new(struct cuda_arena **arena, struct err *err)
{
    *arena = calloc(1, sizeof **arena);
    return *arena ? OK : err_nomem(err);
}

void cuda_arena_free(struct cuda_arena *arena)
{
    free(arena);
}

enum status cuda_arena_reserve(struct cuda_arena *arena, int64_t bytes, struct err *err)
{
    (void)arena;
    (void)bytes;
    (void)err;
    return OK;
}

enum status cuda_arena_alloc(struct cuda_arena *arena, int64_t bytes, void **ptr, struct err *err)
{
    cudaError_t code = cudaMalloc(ptr, bytes > 0 ? (size_t)bytes : 1);
    if (code != cudaSuccess)
        return cuda_failed(err, "cudaMalloc", code, __FILE__, __LINE__);
    arena->held += bytes;
    return OK;
}

void cuda_arena_release(struct cuda_arena *arena, void *ptr)
{
    (void)arena;
    cudaFree(ptr);
}

int64_t cuda_arena_used(const struct cuda_arena *arena)
{
    return arena->held;
}

int64_t cuda_arena_held(const struct cuda_arena *arena)
{
    return arena->held;
}
