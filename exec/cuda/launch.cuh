/* exec/cuda/launch.cuh - macros around kernel launches, so that kernels also run on a CPU in tests
 * (tests/cudasim/, whose header defines the same names).
 *
 *   CUDA_LAUNCH(kernel, grid, block, shared, stream, args...)   the only way to launch a kernel.
 *       A template needs parentheses: CUDA_LAUNCH((rows<float, 4>), ...). shared: bytes of dynamic
 *       shared memory. A failure sticks, and the next sync() of the backend reports it.
 *   CUDA_DYNAMIC_SHARED(type, name)    declares type *name, the block's dynamic shared memory,
 *       aligned to 16 bytes
 *   CUDA_ALLOW_SHARED(kernel, bytes)   required before a launch with more than 48 KiB of it
 *
 * Kernels must not assume that a warp runs in step without *_sync, and use inline PTX only through
 * ptx.cuh. */
#pragma once

#include "exec/cuda/cuda_internal.h"

#ifndef ELAPSE_CUDASIM /* in the emulation its header is included first, by the compiler's         \
                          -include */

#include <cuda_runtime.h>

#define CUDA_LAUNCH(kernel, grid, block, shared, stream, ...)                                      \
    do {                                                                                           \
        kernel<<<grid, block, shared, stream>>>(__VA_ARGS__);                                      \
        cuda_launched(#kernel, __FILE__, __LINE__);                                                \
    } while (0)

#define CUDA_DYNAMIC_SHARED(type, name)                                                            \
    extern __shared__ __align__(16) unsigned char cuda_dynamic_shared_[];                          \
    type *name = (type *)(void *)cuda_dynamic_shared_

#define CUDA_ALLOW_SHARED(kernel, bytes)                                                           \
    cuda_note(cudaFuncSetAttribute((const void *)(kernel),                                         \
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)),     \
              "cudaFuncSetAttribute(" #kernel ")", __FILE__, __LINE__)

#endif /* ELAPSE_CUDASIM */
