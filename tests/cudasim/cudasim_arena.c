/* exec/cuda/cuda_arena.h with an allocation of the device for each piece, so that the checks of
 * tests/cudasim/ know where each ends. */
#include "exec/cuda/cuda_arena.h"

#include <stdlib.h>

#include "exec/cuda/cuda_internal.h"
#include "tests/cudasim/cudasim_control.h"

struct cuda_arena {
    char unused;
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

enum status cuda_arena_reserve(struct cuda_arena *arena, const int64_t *bytes, int64_t num,
                               struct err *err)
{
    (void)arena;
    (void)bytes;
    (void)num;
    (void)err;
    return OK;
}

enum status cuda_arena_alloc(struct cuda_arena *arena, int64_t bytes, void **ptr, struct err *err)
{
    (void)arena;
    cudaError_t code = cudaMalloc(ptr, bytes > 0 ? (size_t)bytes : 1);
    if (code == cudaSuccess)
        return OK;
    (void)cudaGetLastError(); /* as the arena does */
    return cuda_failed(err, "cudaMalloc", code, __FILE__, __LINE__);
}

void cuda_arena_release(struct cuda_arena *arena, void *ptr)
{
    (void)arena;
    cudasim_pass_time(); /* nobody waits for a piece: who gets it next must come behind its users */
    cudaFree(ptr);
}
