/* exec/cuda/columns.cuh - column sums of a matrix, for kernels that read the matrix anyway.
 *
 * A block takes 32 V columns and a range of rows, a lane V neighbouring columns, a warp every
 * COLUMN_WARPS-th row. column_store() adds the warps in order, cuda_fold() the blocks. */
#pragma once

#include "exec/cuda/elem.cuh"

enum { COLUMN_WARPS = 8, COLUMN_THREADS = 32 * COLUMN_WARPS, COLUMN_BLOCKS = 1536 };

/* The split of rows into parts. The number of blocks is enough to fill any device and small
 * enough to fold quickly, and depends on the shape only. rows, cols > 0. */
struct column_split {
    int64_t num_parts, per_part;
    unsigned strips; /* number of strips of 32 V columns */
};
static inline struct column_split column_split_of(int64_t rows, int64_t cols, int V)
{
    struct column_split s;
    s.strips = (unsigned)((cols + 32 * V - 1) / (32 * V));
    const int64_t wanted = cuda_blocks(rows, 2 * COLUMN_WARPS,
                                       s.strips < COLUMN_BLOCKS ? COLUMN_BLOCKS / s.strips : 1);
    s.per_part = (rows + wanted - 1) / wanted;
    s.num_parts = (rows + s.per_part - 1) / s.per_part;
    return s;
}
/* Bytes of parts[num_parts][cols]. */
static inline int64_t column_part_bytes(int64_t rows, int64_t cols, int V)
{
    return rows > 0 && cols > 0
               ? column_split_of(rows, cols, V).num_parts * cols * (int64_t)sizeof(float)
               : 0;
}
/* The grid of kernels: x over strips, y over parts. */
static inline dim3 column_grid(const struct column_split &s)
{
    return dim3(s.strips, (unsigned)s.num_parts);
}

/* First column of this lane. */
template <int V> static __device__ __forceinline__ int64_t column_of_lane(void)
{
    return ((int64_t)blockIdx.x * 32 + threadIdx.x % 32) * V;
}

/* Layout of 32 V columns in shared memory, free of bank conflicts both for lanes that access V
 * neighbours each and for lanes that access one column each. */
template <int V> struct column_strip {
    enum { STEP = 32 + 32 / V, FLOATS = V * STEP };
    static __device__ __forceinline__ int place(int lane, int k)
    {
        return k * STEP + lane;
    }
    static __device__ __forceinline__ int place(int column)
    {
        return place(column / V, column % V);
    }
};

/* Writes the block's column sums to parts[blockIdx.y][cols]. All threads must call it. */
template <int V>
static __device__ __forceinline__ void column_store(const float *sum, int64_t cols, float *parts)
{
    __shared__ float shared[COLUMN_WARPS][column_strip<V>::FLOATS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < V; i++)
        shared[warp][column_strip<V>::place(lane, i)] = sum[i];
    __syncthreads();
    for (int c = threadIdx.x; c < 32 * V; c += COLUMN_THREADS) {
        const int64_t at = (int64_t)blockIdx.x * 32 * V + c;
        float total = 0.0f;
        for (int w = 0; w < COLUMN_WARPS; w++)
            total += shared[w][column_strip<V>::place(c)];
        if (at < cols)
            parts[blockIdx.y * cols + at] = total;
    }
}
