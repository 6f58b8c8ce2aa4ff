/* exec/cuda/squares.cuh - sums of squares by parts of a tensor: a block takes SQUARE_PART elements,
 * a thread four neighbours at a time; cuda_add_squares() adds the parts. Every kernel that sums
 * squares uses these functions, so that the bits are the same wherever it is done. */
#pragma once

#include "exec/cuda/elem.cuh"

enum { SQUARE_THREADS = 256, SQUARE_PART = 8192, SQUARE_TENSORS = 48 };

#define FOR_FOURS(i, first, end)                                                                   \
    for (int64_t i = (first) + (int64_t)threadIdx.x * 4; i < (end); i += SQUARE_THREADS * 4)

/* Loads x[i] to x[i + 3]; elements from `end` on are zero. wide: one access if all four exist. */
static __device__ __forceinline__ void load_four(bool wide, const float *x, int64_t i, int64_t end,
                                                 float *to)
{
    if (wide && i + 4 <= end) {
        elem_load_n<4>(x + i, to);
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        to[k] = i + k < end ? x[i + k] : 0.0f;
}

static __device__ __forceinline__ double square_four(double sum, const float *x)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        sum += (double)x[k] * (double)x[k];
    return sum;
}

/* Writes the sum of the block to parts[blockIdx.x]. All threads must call it. */
static __device__ __forceinline__ void square_store(double sum, double *parts)
{
    __shared__ double shared[SQUARE_THREADS];
    const int tid = (int)threadIdx.x;
    shared[tid] = sum;
    for (int half = SQUARE_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (tid < half)
            shared[tid] += shared[tid + half];
    }
    if (tid == 0)
        parts[blockIdx.x] = shared[0];
}
