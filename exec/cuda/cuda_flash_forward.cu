/* Attention forward in bf16 on mma.m16n8k16, with fp32 sums.
 *
 * A block holds 128 queries in 4 warps of 32 rows. It walks over the keys, 32 or 64 at a time,
 * double-buffered by cp.async, with one barrier per tile. Each B fragment that a warp reads from
 * shared memory serves two products. Scores stay in the accumulators; after rounding they are the A
 * fragments of P V (FlashAttention-2, section 3.3). exp(scale (s - max)) is one FMA and one ex2.
 *
 * Work per head: 4 seq^2 head_dim operations (half of it if causal), and 8 seq head_dim bytes of
 * memory, so from 197 tokens on the tensor cores are the limit. There is one exp per 4 head_dim
 * operations; an SM does 16 a clock, so at head_dim 64 the exps take half as long as the products.
 * Shared memory is 48 KiB at head_dim 64 and 64 KiB at 128; registers limit an SM to two blocks.
 * Read flash_forward() first. */
#include "exec/cuda/flash_tile.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS, MT = 2, QUERIES = 16 * MT * WARPS };

/* Chosen so that almost nothing spills with 255 registers (ptxas of CUDA 13.0: at most
 * 116 bytes, on sm_90 with D = 96; no other width more than 40). */
template <int D, bool DROP> struct forward_shape {
    static const int keys = D == 128 || (DROP && D >= 64) ? 32 : 64;
    static const bool keep_q = D <= 64; /* q's fragments stay in registers */
    static const int shared = (QUERIES + 4 * keys) * D * (int)sizeof(bf16);
};

template <int D> struct forward_state {
    float sum[MT][D / 8][4];         /* sums of P V, times exp(-max) */
    float max[2 * MT], norm[2 * MT]; /* norm: over this lane's columns only */
};

/* One tile of keys. EDGE: only the first `limit` keys (rounded up to 16) are read, and keys that a
 * row must not see are masked. */
template <int D, bool DROP, bool EDGE>
static __device__ __forceinline__ void
forward_tile(const struct attn_args &a, const struct attn_place &p, struct forward_state<D> &state,
             const uint32_t (*q)[D / 16][4], const bf16 *q_tile, const bf16 *k_tile,
             const bf16 *v_tile, int row_first, int k0, int limit)
{
    const int KEYS = forward_shape<D, DROP>::keys;
    const int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const struct tile_lane lane_a = tile_lane_a<D>(lane), lane_b = tile_lane_b<D>(lane);
    const float c = a.scale * FLASH_LOG2E;
    float s[MT][KEYS / 8][4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[m][n][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t fresh[MT][4];
        if (!forward_shape<D, DROP>::keep_q)
#pragma unroll
            for (int m = 0; m < MT; m++)
                ldmatrix_x4(fresh[m], tile_part<D>(q_tile, lane_a, m * 16, k * 16));
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            uint32_t b[4];
            if (EDGE && n * 16 >= limit)
                break;
            ldmatrix_x4(b, tile_part<D>(k_tile, lane_b, n * 16, k * 16));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const uint32_t *from = forward_shape<D, DROP>::keep_q ? q[m][k] : fresh[m];
                mma_bf16_16816(s[m][2 * n], from, b[0], b[1]);
                mma_bf16_16816(s[m][2 * n + 1], from, b[2], b[3]);
            }
        }
    }
    int first[2 * MT];
#pragma unroll
    for (int i = 0; EDGE && i < 2 * MT; i++)
        first[i] = attn_first(a, p, row_first + (i >> 1) * 16 + (i & 1) * 8 + g);
    if (EDGE)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int key = k0 + n * 8 + 2 * t + (e & 1);
                    const int row = row_first + m * 16 + (e >> 1) * 8 + g;
                    if (key >= p.keys || (a.causal && key > row) || key < first[2 * m + (e >> 1)])
                        s[m][n][e] = -INFINITY;
                }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float max = state.max[2 * m + half];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
                max = fmaxf(max, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
            max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
            const float old = state.max[2 * m + half];
            state.max[2 * m + half] = max;
            if (EDGE && max == -INFINITY) /* the row has seen no key yet */
                max = 0.0f;
            const float shrink = exp2_approx((old - max) * c);
            const float base = max * c;
            float norm = state.norm[2 * m + half] * shrink;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    s[m][n][e] = exp2_approx(fmaf(s[m][n][e], c, -base));
                    norm += s[m][n][e];
                }
            state.norm[2 * m + half] = norm;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                state.sum[m][n][2 * half] *= shrink;
                state.sum[m][n][2 * half + 1] *= shrink;
            }
        }
    if (DROP)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (!attn_keeps(a, p, row_first + m * 16 + (e >> 1) * 8 + g,
                                    k0 + n * 8 + 2 * t + (e & 1)))
                        s[m][n][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        uint32_t prob[MT][4];
        if (EDGE && k * 16 >= limit)
            break;
#pragma unroll
        for (int m = 0; m < MT; m++)
            tile_fragment(prob[m], s[m][2 * k], s[m][2 * k + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, tile_part<D>(v_tile, lane_a, k * 16, n * 16));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma_bf16_16816(state.sum[m][2 * n], prob[m], b[0], b[1]);
                mma_bf16_16816(state.sum[m][2 * n + 1], prob[m], b[2], b[3]);
            }
        }
    }
}

template <int D, bool DROP>
static __global__ void __launch_bounds__(THREADS, 2) flash_forward(const struct attn_args a)
{
    const int KEYS = forward_shape<D, DROP>::keys;
    CUDA_DYNAMIC_SHARED(bf16, shared);
    bf16 *q_tile = shared, *k_tile = q_tile + QUERIES * D, *v_tile = k_tile + 2 * KEYS * D;
    const struct attn_place p = attn_place_of(a);
    const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31;
    /* If causal, the longest rows start first. */
    const int q0 = (a.causal ? a.tiles - 1 - p.tile : p.tile) * QUERIES;
    const int row_first = q0 + warp * 16 * MT, row_last = row_first + 16 * MT - 1;
    const bf16 *q_head = (const bf16 *)a.qkv + p.qkv_at;
    const bf16 *k_head = q_head + p.ctx_row, *v_head = k_head + p.ctx_row;
    const int keys = a.causal && q0 + QUERIES < p.keys ? q0 + QUERIES : p.keys;
    const int tiles = (keys + KEYS - 1) / KEYS, from = attn_first(a, p, q0) / KEYS;
    const int warp_from = attn_first(a, p, row_first), warp_whole = attn_first(a, p, row_last);
    struct forward_state<D> state;
    uint32_t q[MT][D / 16][4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                state.sum[m][n][e] = 0.0f;
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        state.max[i] = -INFINITY;
        state.norm[i] = 0.0f;
    }
    tile_load<D, QUERIES, THREADS>(q_tile, q_head, p.qkv_row, q0, a.seq);
    tile_load<D, KEYS, THREADS>(k_tile, k_head, p.qkv_row, from * KEYS, a.seq);
    tile_load<D, KEYS, THREADS>(v_tile, v_head, p.qkv_row, from * KEYS, a.seq);
    cp_async_commit();
    bf16 *q_rows = q_tile + warp * 16 * MT * D;
    for (int j = from; j < tiles; j++) {
        const int k0 = j * KEYS, now = ((j - from) & 1) * KEYS * D, next = KEYS * D - now;
        cp_async_wait<0>();
        __syncthreads(); /* tile j has arrived, and all warps are done with tile j - 1 */
        if (j + 1 < tiles) {
            tile_load<D, KEYS, THREADS>(k_tile + next, k_head, p.qkv_row, k0 + KEYS, a.seq);
            tile_load<D, KEYS, THREADS>(v_tile + next, v_head, p.qkv_row, k0 + KEYS, a.seq);
        }
        cp_async_commit();
        if (row_first >= a.seq)
            continue;
        if (forward_shape<D, DROP>::keep_q && j == from) {
            const struct tile_lane lane_a = tile_lane_a<D>(lane);
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int k = 0; k < D / 16; k++)
                    ldmatrix_x4(q[m][k], tile_part<D>(q_rows, lane_a, m * 16, k * 16));
        }
        if (k0 + KEYS <= warp_from) /* no row of the warp sees the tile */
            continue;
        if (k0 + KEYS <= p.keys && (!a.causal || k0 + KEYS - 1 <= row_first) && k0 >= warp_whole) {
            forward_tile<D, DROP, false>(a, p, state, q, q_rows, k_tile + now, v_tile + now,
                                         row_first, k0, KEYS);
        } else {
            int limit = p.keys - k0;
            if (a.causal && limit > row_last + 1 - k0)
                limit = row_last + 1 - k0;
            if (limit > 0)
                forward_tile<D, DROP, true>(a, p, state, q, q_rows, k_tile + now, v_tile + now,
                                            row_first, k0, limit);
        }
    }
    cp_async_wait<0>();
    if (row_first >= a.seq)
        return;
    float scale[2 * MT];
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        float norm = state.norm[i];
        norm += __shfl_xor_sync(~0u, norm, 1);
        norm += __shfl_xor_sync(~0u, norm, 2);
        scale[i] = (DROP ? a.drop.up : 1.0f) / norm;
        const int row = row_first + (i >> 1) * 16 + (i & 1) * 8 + (lane >> 2);
        if ((lane & 3) == 0 && row < a.seq)
            a.lse[p.stat_at + row] = state.max[i] * a.scale + logf(norm);
    }
    tile_store<D, MT>(state.sum, scale, q_rows, 0, (bf16 *)a.out + p.ctx_at, p.ctx_row, row_first,
                      a.seq);
}

template <int D, bool DROP>
static void launch_forward(struct backend *be, struct attn_args a, int64_t num_samples)
{
    const int shared = forward_shape<D, DROP>::shared;
    a.tiles = (a.seq + QUERIES - 1) / QUERIES;
    CUDA_ALLOW_SHARED((flash_forward<D, DROP>), shared);
    CUDA_LAUNCH((flash_forward<D, DROP>), (unsigned)(num_samples * a.heads * a.tiles), THREADS,
                shared, cuda_of(be)->stream, a);
}

bool cuda_flash_forward(struct backend *be, const struct attn_args *a, int64_t num_samples)
{
    if (!flash_fits(be, a))
        return false;
#define LAUNCH_FORWARD(D, DROP) launch_forward<D, DROP>(be, *a, num_samples)
    FLASH_PICK(a, LAUNCH_FORWARD)
    return true;
}
