/* Attention backward in bf16 on mma.m16n8k16 with fp32 sums, in one kernel; used if a block can
 * hold all keys of a head (seq 128; at head_dim 64 also 256).
 *
 *   flash_whole  walks over the queries:     S^T = k q^T, dP^T = v dctx^T,
 *                                            dv += P^T dctx, dk += dS^T q, dq = dS k
 *
 * These are five products per pair of tiles. dS goes through shared memory, where the warps sum it
 * over all keys. No other block reads the head, so dq is written to its place at once. Read
 * flash_whole() first, then whole_dq(). */
#include "exec/cuda/flash_backward.cuh"

/* Blocks have 4 warps (128 keys), two blocks per SM; or, at head_dim 64, 8 warps (256 keys), one
 * block per SM because of their registers. Each warp owns 32 keys.
 *
 * dq of a tile of queries is split into units of 16 queries and `columns` columns, one per warp.
 * (ptxas of CUDA 13.0 for sm_90 spills at most 32 bytes.) */
template <int D, bool DROP, int MANY> struct whole_shape {
    static const int mt = 2, queries = 32, threads = 32 * MANY, keys = 16 * mt * MANY;
    static const int columns = MANY == 4 ? D / 2 : D / 4;
    static const int shared = (2 * keys + 4 * queries) * D * (int)sizeof(bf16) +
                              keys * queries * (int)sizeof(bf16) + 2 * keys * (int)sizeof(float) +
                              32 * MANY * columns / 8 * (int)sizeof(float2);
    static_assert(2 * D / columns == MANY, "a unit for each warp");
};

/* Computes one unit of dq: 16 queries (of the first or second half of the tile) and COLUMNS
 * columns, summed over the first `keys` keys. It is stored through its part of q's tile, which is
 * free by now. column_sums: [COLUMNS / 8][UNITS][32] in shared memory; each lane adds its two
 * columns of each block of 8. NULL: not needed. */
template <int D, int COLUMNS, int QUERIES, int UNITS>
static __device__ __forceinline__ void
whole_dq(const struct attn_args &a, const struct attn_place &p, const bf16 *ds_tile,
         const bf16 *k_tile, bf16 *q_tile, float2 *column_sums, int unit, int q0, int keys)
{
    const int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int row_first = (unit & 1) * 16, column_first = (unit >> 1) * COLUMNS;
    /* dS is stored as [keys][queries]. Read transposed in the order of a B fragment, it is an A
     * fragment. */
    const struct tile_lane lane_ds = tile_lane_b<QUERIES>(lane), lane_a = tile_lane_a<D>(lane);
    float sum[COLUMNS / 8][4];
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[n][e] = 0.0f;
#pragma unroll 2
    for (int k = 0; k < keys; k += 16) {
        uint32_t ds[4];
        ldmatrix_x4_trans(ds, tile_part<QUERIES>(ds_tile, lane_ds, k, row_first));
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; n++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, tile_part<D>(k_tile, lane_a, k, column_first + n * 16));
            mma_bf16_16816(sum[2 * n], ds, b[0], b[1]);
            mma_bf16_16816(sum[2 * n + 1], ds, b[2], b[3]);
        }
    }
    if (column_sums)
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) {
            float2 *mine = column_sums + (n * UNITS + unit) * 32 + lane;
            const float2 before = *mine;
            *mine = {before.x + (sum[n][0] + sum[n][2]), before.y + (sum[n][1] + sum[n][3])};
        }
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<uint32_t *>(
                q_tile + tile_at<D>(row_first + half * 8 + g, column_first / 8 + n) + 2 * t) =
                bf16_pair(sum[n][2 * half] * a.scale, sum[n][2 * half + 1] * a.scale);
    __syncwarp();
    const int chunks = COLUMNS / 8;
#pragma unroll
    for (int i = 0; i < 16 * chunks / 32; i++) {
        const int at = i * 32 + lane, row = row_first + at / chunks;
        const int chunk = column_first / 8 + at % chunks;
        if (q0 + row < a.seq)
            *reinterpret_cast<uint4 *>((bf16 *)a.out + p.qkv_at + (q0 + row) * p.qkv_row +
                                       chunk * 8) =
                *reinterpret_cast<const uint4 *>(q_tile + tile_at<D>(row, chunk));
    }
}

/* Writes the column sums of the block's dq, dk and dv to parts. of_dq as whole_dq() has left it;
 * of_dkdv: [MANY][2][D], by warp. Both must be complete. Rows past the end are zero. */
template <int D, bool DROP, int MANY>
static __device__ __forceinline__ void whole_sums(const struct attn_args &a,
                                                  const struct attn_place &p, const float2 *of_dq,
                                                  const float *of_dkdv, float *parts)
{
    typedef whole_shape<D, DROP, MANY> shape;
    for (int i = (int)threadIdx.x; i < 3 * D; i += shape::threads) {
        const int which = i / D, c = i % D, inside = c % shape::columns;
        float sum = 0.0f;
        if (which == 0) {
            for (int half = 0; half < 2; half++)
                for (int g = 0; g < 8; g++) {
                    const int lane = g * 4 + (c & 7) / 2;
                    const int unit = c / shape::columns * 2 + half;
                    const float2 pair = of_dq[(inside / 8 * MANY + unit) * 32 + lane];
                    sum += c & 1 ? pair.y : pair.x;
                }
        } else {
            for (int w = 0; w < MANY; w++)
                sum += of_dkdv[(w * 2 + which - 1) * D + c];
        }
        sum *= which < 2 ? a.scale : DROP ? a.drop.up : 1.0f;
        parts[((p.sample * 3 + which) * a.heads + p.head) * D + c] = sum;
    }
}

template <int D, bool DROP, int MANY>
static __global__ void __launch_bounds__(32 * MANY, 8 / MANY)
    flash_whole(const struct attn_args a, float *parts)
{
    typedef whole_shape<D, DROP, MANY> shape;
    const int MT = shape::mt, QUERIES = shape::queries, KEYS = shape::keys, LANES = D / 8;
    const bool KEEP = dkdv_shape<D, DROP>::keep;
    CUDA_DYNAMIC_SHARED(bf16, shared);
    bf16 *k_tile = shared, *v_tile = k_tile + KEYS * D, *q_tile = v_tile + KEYS * D,
         *g_tile = q_tile + 2 * QUERIES * D, *ds_tile = g_tile + 2 * QUERIES * D;
    float *lse2 = reinterpret_cast<float *>(ds_tile + KEYS * QUERIES), *delta = lse2 + KEYS;
    float2 *dq_sums = parts ? reinterpret_cast<float2 *>(delta + KEYS) : NULL;
    const struct attn_place p = attn_place_of(a);
    const int tid = (int)threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int key_first = warp * 16 * MT, key_last = key_first + 16 * MT - 1;
    const bf16 *q_head = (const bf16 *)a.qkv + p.qkv_at;
    const bf16 *k_head = q_head + p.ctx_row, *v_head = k_head + p.ctx_row;
    const bf16 *g_head = (const bf16 *)a.dctx + p.ctx_at, *c_head = (const bf16 *)a.ctx + p.ctx_at;
    const int tiles = (a.seq + QUERIES - 1) / QUERIES;
    tile_load<D, KEYS, shape::threads>(k_tile, k_head, p.qkv_row, 0, a.seq);
    tile_load<D, KEYS, shape::threads>(v_tile, v_head, p.qkv_row, 0, a.seq);
    tile_load<D, QUERIES, shape::threads>(q_tile, q_head, p.qkv_row, 0, a.seq);
    tile_load<D, QUERIES, shape::threads>(g_tile, g_head, p.ctx_row, 0, a.seq);
    cp_async_commit();
    /* delta of all rows, LANES threads per row. Rows past the end get probability 0. */
#pragma unroll
    for (int i = 0; i < KEYS * LANES / shape::threads; i++) {
        const int row = (i * shape::threads + tid) / LANES, chunk = tid % LANES;
        float part = 0.0f;
        if (row < a.seq) {
            float grad[8], ctx[8];
            elem_load_n<8>(g_head + row * p.ctx_row + chunk * 8, grad);
            elem_load_n<8>(c_head + row * p.ctx_row + chunk * 8, ctx);
#pragma unroll
            for (int e = 0; e < 8; e++)
                part += grad[e] * ctx[e];
        }
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2)
            part += __shfl_xor_sync(~0u, part, step);
        if (chunk == 0) {
            lse2[row] = row < a.seq ? a.lse[p.stat_at + row] * FLASH_LOG2E : INFINITY;
            delta[row] = part;
        }
    }
    struct own_rows<D, MT, KEEP> own;
    own.one = k_tile + key_first * D;
    own.two = v_tile + key_first * D;
    own.lane_a = tile_lane_a<D>(lane);
    own.lane_b = tile_lane_b<D>(lane);
    float dk[MT][D / 8][4], dv[MT][D / 8][4];
    sum_zero<D, MT>(dk);
    sum_zero<D, MT>(dv);
    for (int i = tid; dq_sums && i < shape::columns / 8 * MANY * 32; i += shape::threads)
        dq_sums[i] = {0.0f, 0.0f};
    for (int j = 0; j < tiles; j++) {
        const int q0 = j * QUERIES, now = (j & 1) * QUERIES * D, next = QUERIES * D - now;
        cp_async_wait<0>();
        __syncthreads(); /* tile j has arrived, and all warps are done with tile j - 1 */
        if (j + 1 < tiles) {
            tile_load<D, QUERIES, shape::threads>(q_tile + next, q_head, p.qkv_row, q0 + QUERIES,
                                                  a.seq);
            tile_load<D, QUERIES, shape::threads>(g_tile + next, g_head, p.ctx_row, q0 + QUERIES,
                                                  a.seq);
        }
        cp_async_commit();
        if (j == 0) {
            keep_fragments<D, MT, KEEP>(own.kept_one, own.one, own.lane_a);
            keep_fragments<D, MT, KEEP>(own.kept_two, own.two, own.lane_a);
        }
        if (key_first < p.keys) {
            bf16 *ds_rows = ds_tile + key_first * QUERIES;
            if (q0 + QUERIES <= a.seq && key_last < p.keys && (!a.causal || q0 >= key_last) &&
                key_first >= attn_first(a, p, q0 + QUERIES - 1)) {
                dkdv_tile<D, DROP, false>(a, p, own, dk, dv, q_tile + now, g_tile + now, lse2 + q0,
                                          delta + q0, ds_rows, key_first, q0, 0, QUERIES);
            } else {
                const int from = a.causal && key_first > q0 ? key_first - q0 : 0;
                const int to = a.seq - q0 < QUERIES ? a.seq - q0 : QUERIES;
                if (from < to)
                    dkdv_tile<D, DROP, true>(a, p, own, dk, dv, q_tile + now, g_tile + now,
                                             lse2 + q0, delta + q0, ds_rows, key_first, q0, from,
                                             to);
            }
        }
        __syncthreads(); /* dS is complete for every key that a query of the tile sees */
        const int last = q0 + QUERIES < a.seq ? q0 + QUERIES : a.seq;
        const int keys = a.causal && last < p.keys ? last : p.keys;
        whole_dq<D, shape::columns, QUERIES, MANY>(a, p, ds_tile, k_tile, q_tile + now, dq_sums,
                                                   warp, q0, keys);
    }
    __syncthreads(); /* all warps are done with k and dS */
    if (parts) {
        float *sums = reinterpret_cast<float *>(ds_tile);
        warp_columns<D, MT>(dk, sums + warp * 2 * D);
        warp_columns<D, MT>(dv, sums + (warp * 2 + 1) * D);
        __syncthreads();
        whole_sums<D, DROP, MANY>(a, p, dq_sums, sums, parts);
    }
    if (key_first < a.seq)
        store_dkdv<D, DROP>(a, p, dk, dv, k_tile + key_first * D, v_tile + key_first * D,
                            key_first);
}

/* --- host ---------------------------------------------------------------------------------- */

template <int D, bool DROP, int MANY>
static void launch_blocks(struct backend *be, struct attn_args a, float *parts, int64_t num_samples)
{
    typedef whole_shape<D, DROP, MANY> shape;
    a.tiles = 1;
    CUDA_ALLOW_SHARED((flash_whole<D, DROP, MANY>), shape::shared);
    CUDA_LAUNCH((flash_whole<D, DROP, MANY>), (unsigned)(num_samples * a.heads), shape::threads,
                shape::shared, cuda_of(be)->stream, a, parts);
}

template <int D, bool DROP>
static void launch_whole(struct backend *be, const struct attn_args &a, float *parts,
                         int64_t num_samples)
{
    if (a.seq <= whole_shape<D, DROP, 4>::keys) {
        launch_blocks<D, DROP, 4>(be, a, parts, num_samples);
        return;
    }
    if constexpr (D == 64)
        launch_blocks<D, DROP, 8>(be, a, parts, num_samples);
}

bool cuda_flash_whole_fits(struct backend *be, const struct attn_args *a)
{
    typedef whole_shape<64, true, 8> large;
    if (!flash_fits(be, a) || (a->head_dim != 32 && a->head_dim != 64))
        return false;
    return a->seq <= whole_shape<64, true, 4>::keys ||
           (a->head_dim == 64 && a->seq <= large::keys &&
            large::shared <= cuda_of(be)->shared_bytes);
}

void cuda_flash_backward_whole(struct backend *be, const struct attn_args *a, float *parts,
                               int64_t num_samples)
{
#define LAUNCH_WHOLE(D, DROP) launch_whole<D, DROP>(be, *a, parts, num_samples)
    switch (a->head_dim) {
        FLASH_DIM(32, a, LAUNCH_WHOLE)
        FLASH_DIM(64, a, LAUNCH_WHOLE)
    }
}
