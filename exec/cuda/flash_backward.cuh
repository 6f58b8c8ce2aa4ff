/* exec/cuda/flash_backward.cuh - code that both backwards on the tensor cores share: products of a
 * warp's rows with a tile, and a tile of queries for dk and dv. Private to cuda_flash_backward.cu
 * and cuda_flash_whole.cu.
 *
 * A warp owns 16 MT rows of one side (keys or queries) and walks over tiles of the other side. With
 * P = exp(scale S - lse) and dS = P (dP - delta), P^T and dS^T come out of the products as A
 * fragments. */
#pragma once

#include "exec/cuda/flash_tile.cuh"

/* A block of flash_dq() and flash_dkdv(). */
enum { WARPS = 4, THREADS = 32 * WARPS };

/* mt: blocks of 16 rows per warp. queries: width of the tiles that pass by. keep: the fragments of
 * the warp's own two operands stay in registers. Chosen so that almost nothing spills. */
template <int D, bool DROP> struct dkdv_shape {
    static const int mt = D <= 64 ? 2 : 1;
    static const int queries = 32;
    static const bool keep = D <= 32;
    static const int keys = 16 * mt * WARPS;
    static const int shared =
        (2 * keys + 4 * queries) * D * (int)sizeof(bf16) + 4 * queries * (int)sizeof(float);
};

/* Gets 16 columns of the warp's own operand as A fragments, from registers or from shared memory.
 */
template <int D, int MT, bool KEEP>
static __device__ __forceinline__ void
own_fragments(uint32_t (*to)[4], const uint32_t (*kept)[D / 16][4], const bf16 *rows,
              struct tile_lane lane_a, int k)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
        if (KEEP)
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[m][i] = kept[m][k][i];
        else
            ldmatrix_x4(to[m], tile_part<D>(rows, lane_a, m * 16, k * 16));
    }
}

/* out[MT][N / 8] = the warp's own rows times the N rows of `tile`, over D columns. Blocks of 16
 * rows of the tile outside [from, to) stay zero. */
template <int D, int MT, int N, bool KEEP, bool EDGE>
static __device__ __forceinline__ void
product_rows(float (*out)[N / 8][4], const uint32_t (*kept)[D / 16][4], const bf16 *rows,
             const bf16 *tile, struct tile_lane lane_a, struct tile_lane lane_b, int from, int to)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                out[m][n][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t own[MT][4];
        own_fragments<D, MT, KEEP>(own, kept, rows, lane_a, k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];
            if (EDGE && (n * 16 + 15 < from || n * 16 >= to))
                continue;
            ldmatrix_x4(b, tile_part<D>(tile, lane_b, n * 16, k * 16));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma_bf16_16816(out[m][2 * n], own[m], b[0], b[1]);
                mma_bf16_16816(out[m][2 * n + 1], own[m], b[2], b[3]);
            }
        }
    }
}

/* sum[MT][D / 8] += weight[MT][N / 16] (A fragments) times the N rows of `tile`. */
template <int D, int MT, int N, bool EDGE>
static __device__ __forceinline__ void
product_columns(float (*sum)[D / 8][4], const uint32_t (*weight)[N / 16][4], const bf16 *tile,
                struct tile_lane lane_a, int from, int to)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        if (EDGE && (k * 16 + 15 < from || k * 16 >= to))
            continue;
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, tile_part<D>(tile, lane_a, k * 16, n * 16));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma_bf16_16816(sum[m][2 * n], weight[m][k], b[0], b[1]);
                mma_bf16_16816(sum[m][2 * n + 1], weight[m][k], b[2], b[3]);
            }
        }
    }
}

template <int D, int MT> static __device__ __forceinline__ void sum_zero(float (*sum)[D / 8][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sum[m][n][e] = 0.0f;
}

template <int D, int MT, bool KEEP>
static __device__ __forceinline__ void keep_fragments(uint32_t (*kept)[D / 16][4], const bf16 *rows,
                                                      struct tile_lane lane_a)
{
    if (KEEP)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int k = 0; k < D / 16; k++)
                ldmatrix_x4(kept[m][k], tile_part<D>(rows, lane_a, m * 16, k * 16));
}

/* Writes the column sums over the warp's rows of its accumulators to sums[D] in shared memory. */
template <int D, int MT>
static __device__ __forceinline__ void warp_columns(const float (*sum)[D / 8][4], float *sums)
{
    const int lane = (int)threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float x = 0.0f;
#pragma unroll
            for (int m = 0; m < MT; m++)
                x += sum[m][n][e] + sum[m][n][2 + e];
#pragma unroll
            for (int step = 4; step < 32; step *= 2)
                x += __shfl_xor_sync(~0u, x, step);
            if (lane < 4)
                sums[n * 8 + 2 * lane + e] = x;
        }
}

template <int D, int MT, bool KEEP> struct own_rows {
    const bf16 *one, *two; /* the warp's rows of q and dctx, or of k and v, in shared memory */
    uint32_t kept_one[MT][D / 16][4], kept_two[MT][D / 16][4];
    struct tile_lane lane_a, lane_b;
};

/* One tile of queries. ds_rows: receives the warp's rows of dS^T [keys][queries], in shared memory;
 * NULL: not needed. */
template <int D, bool DROP, bool EDGE>
static __device__ __forceinline__ void
dkdv_tile(const struct attn_args &a, const struct attn_place &p,
          const struct own_rows<D, dkdv_shape<D, DROP>::mt, dkdv_shape<D, DROP>::keep> &own,
          float (*dk)[D / 8][4], float (*dv)[D / 8][4], const bf16 *q_tile, const bf16 *g_tile,
          const float *lse2_of, const float *delta_of, bf16 *ds_rows, int key_first, int q0,
          int from, int to)
{
    const int MT = dkdv_shape<D, DROP>::mt, QUERIES = dkdv_shape<D, DROP>::queries;
    const bool KEEP = dkdv_shape<D, DROP>::keep;
    const int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const float c = a.scale * FLASH_LOG2E;
    float s[MT][QUERIES / 8][4], dp[MT][QUERIES / 8][4];
    product_rows<D, MT, QUERIES, KEEP, EDGE>(s, own.kept_one, own.one, q_tile, own.lane_a,
                                             own.lane_b, from, to);
    product_rows<D, MT, QUERIES, KEEP, EDGE>(dp, own.kept_two, own.two, g_tile, own.lane_a,
                                             own.lane_b, from, to);
    uint32_t prob[MT][QUERIES / 16][4], ds[MT][QUERIES / 16][4];
#pragma unroll
    for (int n = 0; n < QUERIES / 8; n++) {
        const float2 lse2 = *reinterpret_cast<const float2 *>(lse2_of + n * 8 + 2 * t);
        const float2 delta = *reinterpret_cast<const float2 *>(delta_of + n * 8 + 2 * t);
        int first[2];
#pragma unroll
        for (int e = 0; EDGE && e < 2; e++)
            first[e] = attn_first(a, p, q0 + n * 8 + 2 * t + e);
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = key_first + m * 16 + (e >> 1) * 8 + g;
                const int query = q0 + n * 8 + 2 * t + (e & 1);
                float weight = exp2_approx(fmaf(s[m][n][e], c, -(e & 1 ? lse2.y : lse2.x)));
                if (EDGE && (key >= p.keys || (a.causal && key > query) || key < first[e & 1]))
                    weight = 0.0f;
                float grad = dp[m][n][e], shown = weight;
                if (DROP) {
                    const bool keeps = attn_keeps(a, p, query, key);
                    grad = keeps ? grad * a.drop.up : 0.0f;
                    shown = keeps ? weight : 0.0f; /* drop.up is applied at the end */
                }
                s[m][n][e] = shown;
                dp[m][n][e] = weight * (grad - (e & 1 ? delta.y : delta.x));
            }
            if (n & 1) {
                tile_fragment(prob[m][n / 2], s[m][n - 1], s[m][n]);
                tile_fragment(ds[m][n / 2], dp[m][n - 1], dp[m][n]);
            }
        }
    }
    if (ds_rows)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < QUERIES / 16; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) /* rows g and g + 8, then both 8 columns further */
                    *reinterpret_cast<uint32_t *>(
                        ds_rows + tile_at<QUERIES>(m * 16 + (i & 1) * 8 + g, 2 * n + (i >> 1)) +
                        2 * t) = ds[m][n][i];
    product_columns<D, MT, QUERIES, EDGE>(dv, prob, g_tile, own.lane_a, from, to);
    product_columns<D, MT, QUERIES, EDGE>(dk, ds, q_tile, own.lane_a, from, to);
}

/* Stores the warp's dk and dv, through its rows of k and v in shared memory. */
template <int D, bool DROP>
static __device__ __forceinline__ void
store_dkdv(const struct attn_args &a, const struct attn_place &p, const float (*dk)[D / 8][4],
           const float (*dv)[D / 8][4], bf16 *k_rows, bf16 *v_rows, int key_first)
{
    const int MT = dkdv_shape<D, DROP>::mt;
    bf16 *out = (bf16 *)a.out + p.qkv_at + p.ctx_row;
    float scale[2 * MT], up[2 * MT];
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        scale[i] = a.scale;
        up[i] = DROP ? a.drop.up : 1.0f;
    }
    tile_store<D, MT>(dk, scale, k_rows, 0, out, p.qkv_row, key_first, a.seq);
    tile_store<D, MT>(dv, up, v_rows, 0, out + p.ctx_row, p.qkv_row, key_first, a.seq);
}
