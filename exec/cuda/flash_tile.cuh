/* exec/cuda/flash_tile.cuh - tiles of bf16 in shared memory for the tensor-core attention.
 *
 * A tile is [rows][D]. The 16-byte chunks of a row are permuted, so that the eight rows read by one
 * phase of ldmatrix, or the row parts copied by a quarter warp, touch all 32 banks once. If a row
 * is a multiple of 128 bytes, chunk c of row r is at position c ^ (r & 7). Otherwise (64 or 192
 * bytes) two rows share a line of 128 bytes, and chunk c is at c ^ (r / 2 & 3). All rows that a
 * lane reads have the same r & 7, so its permutation is one constant. */
#pragma once

#include "exec/cuda/attention_parts.cuh"
#include "exec/cuda/ptx.cuh"

#define FLASH_LOG2E 1.4426950408889634f

typedef __nv_bfloat16 bf16;

template <int D> static __device__ __forceinline__ int tile_swizzle(int row)
{
    return D % 64 == 0 ? row & 7 : (row >> 1) & 3;
}
template <int D> static __device__ __forceinline__ int tile_at(int row, int chunk)
{
    return row * D + ((chunk ^ tile_swizzle<D>(row)) << 3);
}

/* Starts to copy rows [first, first + ROWS) of a head; rows from `rows` on become zero. */
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tile_load(bf16 *tile, const bf16 *head, int64_t stride,
                                                 int first, int rows)
{
    const int chunks = D / 8;
#pragma unroll
    for (int i = 0; i < (ROWS * chunks + THREADS - 1) / THREADS; i++) {
        const int at = i * THREADS + (int)threadIdx.x, row = at / chunks, chunk = at % chunks;
        if (ROWS * chunks % THREADS != 0 && at >= ROWS * chunks)
            break;
        const bool valid = first + row < rows;
        cp_async_16(tile + tile_at<D>(row, chunk),
                    head + (valid ? (int64_t)(first + row) * stride + chunk * 8 : 0), valid);
    }
}

/* The address offset of a lane for ldmatrix_x4 of 16 rows x 16 columns. tile_lane_a(): matrices in
 * the order of an A fragment (rows 0-7, rows 8-15, then columns 8-15 of both); read transposed,
 * this order gives the B fragments of two neighbouring blocks of 8 columns. tile_lane_b(): the B
 * fragments of two neighbouring blocks of 8 rows. */
struct tile_lane {
    int row, swizzle;
};
template <int D> static __device__ __forceinline__ struct tile_lane tile_lane_a(int lane)
{
    const int row = (lane >> 3 & 1) * 8 + (lane & 7);
    return {row * D, (lane >> 4) ^ tile_swizzle<D>(lane & 7)};
}
template <int D> static __device__ __forceinline__ struct tile_lane tile_lane_b(int lane)
{
    const int row = (lane >> 4) * 8 + (lane & 7);
    return {row * D, (lane >> 3 & 1) ^ tile_swizzle<D>(lane & 7)};
}
/* Address of a lane for the part at (row, column), both multiples of 16. */
template <int D>
static __device__ __forceinline__ const bf16 *tile_part(const bf16 *tile, struct tile_lane lane,
                                                        int row, int column)
{
    return tile + row * D + lane.row + (((column >> 3) ^ lane.swizzle) << 3);
}

static __device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
    union {
        __nv_bfloat162 pair;
        uint32_t bits;
    } u;
    u.pair = __floats2bfloat162_rn(low, high);
    return u.bits;
}

/* Rounds the accumulators of two neighbouring blocks of 8 columns to an A fragment of 16 columns.
 */
static __device__ __forceinline__ void tile_fragment(uint32_t *a, const float *left,
                                                     const float *right)
{
    a[0] = bf16_pair(left[0], left[1]);
    a[1] = bf16_pair(left[2], left[3]);
    a[2] = bf16_pair(right[0], right[1]);
    a[3] = bf16_pair(right[2], right[3]);
}

/* Stores a warp's accumulators of 16 MT rows, times scale, to rows [first, ...) of a head. They go
 * through the warp's own rows of a tile in shared memory (from `row` on), so that whole 16-byte
 * chunks are written. */
template <int D, int MT>
static __device__ __forceinline__ void tile_store(const float (*sum)[D / 8][4], const float *scale,
                                                  bf16 *tile, int row, bf16 *head, int64_t stride,
                                                  int first, int rows)
{
    const int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = row + m * 16 + half * 8 + g;
                const float by = scale[m * 2 + half];
                *reinterpret_cast<uint32_t *>(tile + tile_at<D>(r, n) + 2 * t) =
                    bf16_pair(sum[m][n][2 * half] * by, sum[m][n][2 * half + 1] * by);
            }
    __syncwarp();
    const int chunks = D / 8;
#pragma unroll
    for (int i = 0; i < 16 * MT * chunks / 32; i++) {
        const int at = i * 32 + lane, r = at / chunks, chunk = at % chunks;
        if (first + r < rows)
            *reinterpret_cast<uint4 *>(head + (int64_t)(first + r) * stride + chunk * 8) =
                *reinterpret_cast<const uint4 *>(tile + tile_at<D>(row + r, chunk));
    }
    __syncwarp();
}

/* Whether the kernels support this head_dim, and pointers allow 16 bytes per access. */
static inline bool flash_fits(struct backend *be, const struct attn_args *a)
{
    const uintptr_t bits = (uintptr_t)a->qkv | (uintptr_t)a->ctx | (uintptr_t)a->dctx |
                           (uintptr_t)a->out | (uintptr_t)a->dq;
    return cuda_flash_takes(be, a->head_dim) && bits % 16 == 0;
}

/* FLASH_PICK(a, LAUNCH) calls LAUNCH(D, DROP) for the head_dim, and for whether there is dropout.
 */
#define FLASH_DIM(D, a, LAUNCH)                                                                    \
    CUDA_CASE(DIM, D, {                                                                            \
        if ((a)->drop.limit)                                                                       \
            LAUNCH(DIM, true);                                                                     \
        else                                                                                       \
            LAUNCH(DIM, false);                                                                    \
    })
#define FLASH_PICK(a, LAUNCH)                                                                      \
    switch ((a)->head_dim) {                                                                       \
        FLASH_DIM(32, a, LAUNCH)                                                                   \
        FLASH_DIM(64, a, LAUNCH)                                                                   \
        FLASH_DIM(96, a, LAUNCH)                                                                   \
        FLASH_DIM(128, a, LAUNCH)                                                                  \
    }
