#include "exec/cuda/cuda_scratch.h"

#include "exec/cuda/cuda_arena.h"

void cuda_scratch_drop(struct cuda_backend *cuda)
{
    /* Work in flight may still use the piece. The next owner's work comes after it on the same
     * stream. */
    cuda_arena_release(cuda->arena, cuda->scratch);
    cuda->scratch = NULL;
    cuda->scratch_bytes = 0;
}

void *cuda_scratch_or(struct backend *be, int64_t bytes, struct err *err)
{
    struct cuda_backend *cuda = cuda_of(be);
    if (bytes > cuda->scratch_bytes) {
        cuda_scratch_drop(cuda);
        if (cuda_arena_alloc(cuda->arena, bytes, &cuda->scratch, err) == OK)
            cuda->scratch_bytes = bytes;
    }
    return cuda->scratch;
}

void *cuda_scratch(struct backend *be, int64_t bytes)
{
    return cuda_scratch_or(be, bytes, &cuda_of(be)->failed);
}
