/* Attention backward in bf16 on mma.m16n8k16 with fp32 sums, in two kernels; used where
 * cuda_flash_whole.cu has no block that holds a whole head (attention_parts.cuh says why there are
 * two).
 *
 *   flash_dq     a block of queries walks over the keys:     S = q k^T, dP = dctx v^T, dq += dS k
 *   flash_dkdv   a block of keys walks over the queries:     S^T = k q^T, dP^T = v dctx^T,
 *                                                            dv += P^T dctx, dk += dS^T q
 *
 * The two need seven products, where a kernel that adds dq atomically needs five: 14 seq^2 head_dim
 * operations a head (half of it if causal). That is the price of equal bits. Memory: qkv, dctx and
 * ctx are read and dqkv is written, 16 seq head_dim bytes; the two kernels read qkv and dctx twice,
 * and in place dq takes a detour through scratch. Read flash_dq() first, then flash_dkdv(). */
#include "exec/cuda/flash_backward.cuh"

/* The shape of flash_dq(); fields as in dkdv_shape. (ptxas of CUDA 13.0 spills at most 68 bytes, at
 * head_dim 64 with dropout.) */
template <int D, bool DROP> struct dq_shape {
    static const int mt = D <= 64 ? 2 : 1;
    static const int keys = D <= 64 ? 32 : 64;
    static const bool keep = D <= 64;
    static const int queries = 16 * mt * WARPS;
    static const int shared =
        (2 * queries + 4 * keys) * D * (int)sizeof(bf16) + 2 * queries * (int)sizeof(float);
};
/* Writes the column sums over the block's rows, times scale, to parts[sample][tile][3][heads][D];
 * `which` 0 to 2 is dq, dk, dv. shared: [WARPS][D] floats that are free by now. All threads must
 * call it. Rows past the end are zero. */
template <int D, int MT>
static __device__ __forceinline__ void
block_columns(const struct attn_args &a, const struct attn_place &p, const float (*sum)[D / 8][4],
              float scale, int which, float *shared, float *parts)
{
    warp_columns<D, MT>(sum, shared + ((int)threadIdx.x >> 5) * D);
    __syncthreads();
    float *to = parts + (((p.sample * a.tiles + p.tile) * 3 + which) * a.heads + p.head) * D;
    for (int c = (int)threadIdx.x; c < D; c += THREADS) {
        float total = 0.0f;
        for (int w = 0; w < WARPS; w++)
            total += shared[w * D + c];
        to[c] = total * scale;
    }
}

/* --- dq ------------------------------------------------------------------------------------- */

template <int D, bool DROP, bool EDGE>
static __device__ __forceinline__ void
dq_tile(const struct attn_args &a, const struct attn_place &p,
        const struct own_rows<D, dq_shape<D, DROP>::mt, dq_shape<D, DROP>::keep> &own,
        float (*sum)[D / 8][4], const float *lse2, const float *delta, const bf16 *k_tile,
        const bf16 *v_tile, int row_first, int k0, int limit)
{
    const int MT = dq_shape<D, DROP>::mt, KEYS = dq_shape<D, DROP>::keys;
    const bool KEEP = dq_shape<D, DROP>::keep;
    const int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const float c = a.scale * FLASH_LOG2E;
    float s[MT][KEYS / 8][4], dp[MT][KEYS / 8][4];
    product_rows<D, MT, KEYS, KEEP, EDGE>(s, own.kept_one, own.one, k_tile, own.lane_a, own.lane_b,
                                          0, limit);
    product_rows<D, MT, KEYS, KEEP, EDGE>(dp, own.kept_two, own.two, v_tile, own.lane_a, own.lane_b,
                                          0, limit);
    uint32_t ds[MT][KEYS / 16][4];
    int first[2 * MT];
#pragma unroll
    for (int i = 0; EDGE && i < 2 * MT; i++)
        first[i] = attn_first(a, p, row_first + (i >> 1) * 16 + (i & 1) * 8 + g);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = k0 + n * 8 + 2 * t + (e & 1);
                const int row = row_first + m * 16 + (e >> 1) * 8 + g;
                const int stat = 2 * m + (e >> 1);
                float prob = exp2_approx(fmaf(s[m][n][e], c, -lse2[stat]));
                if (EDGE && (key >= p.keys || (a.causal && key > row) || key < first[stat]))
                    prob = 0.0f;
                float grad = dp[m][n][e];
                if (DROP)
                    grad = attn_keeps(a, p, row, key) ? grad * a.drop.up : 0.0f;
                s[m][n][e] = prob * (grad - delta[stat]);
            }
            if (n & 1)
                tile_fragment(ds[m][n / 2], s[m][n - 1], s[m][n]);
        }
    product_columns<D, MT, KEYS, EDGE>(sum, ds, k_tile, own.lane_a, 0, limit);
}

template <int D, bool DROP>
static __global__ void __launch_bounds__(THREADS, 2)
    flash_dq(const struct attn_args a, float *parts)
{
    const int MT = dq_shape<D, DROP>::mt, KEYS = dq_shape<D, DROP>::keys;
    const int QUERIES = dq_shape<D, DROP>::queries;
    const bool KEEP = dq_shape<D, DROP>::keep;
    CUDA_DYNAMIC_SHARED(bf16, shared);
    bf16 *q_tile = shared, *g_tile = q_tile + QUERIES * D, *k_tile = g_tile + QUERIES * D,
         *v_tile = k_tile + 2 * KEYS * D;
    float *stats = reinterpret_cast<float *>(v_tile + 2 * KEYS * D); /* lse * log2(e), then delta */
    const struct attn_place p = attn_place_of(a);
    const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31;
    const int q0 = (a.causal ? a.tiles - 1 - p.tile : p.tile) * QUERIES;
    const int row_first = q0 + warp * 16 * MT, row_last = row_first + 16 * MT - 1;
    const bf16 *q_head = (const bf16 *)a.qkv + p.qkv_at;
    const bf16 *k_head = q_head + p.ctx_row, *v_head = k_head + p.ctx_row;
    const bf16 *g_head = (const bf16 *)a.dctx + p.ctx_at, *c_head = (const bf16 *)a.ctx + p.ctx_at;
    const int keys = a.causal && q0 + QUERIES < p.keys ? q0 + QUERIES : p.keys;
    const int tiles = (keys + KEYS - 1) / KEYS, from = attn_first(a, p, q0) / KEYS;
    const int warp_from = attn_first(a, p, row_first), warp_whole = attn_first(a, p, row_last);
    tile_load<D, QUERIES, THREADS>(q_tile, q_head, p.qkv_row, q0, a.seq);
    tile_load<D, QUERIES, THREADS>(g_tile, g_head, p.ctx_row, q0, a.seq);
    tile_load<D, KEYS, THREADS>(k_tile, k_head, p.qkv_row, from * KEYS, a.seq);
    tile_load<D, KEYS, THREADS>(v_tile, v_head, p.qkv_row, from * KEYS, a.seq);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    /* A thread computes delta of a row, in column order. Rows past the end get probability 0. */
    for (int r = (int)threadIdx.x; r < QUERIES; r += THREADS) {
        float delta = 0.0f, lse2 = INFINITY;
        if (q0 + r < a.seq) {
            for (int chunk = 0; chunk < D / 8; chunk++) {
                float grad[8], ctx[8];
                elem_load_n<8>(g_tile + tile_at<D>(r, chunk), grad);
                elem_load_n<8>(c_head + (int64_t)(q0 + r) * p.ctx_row + chunk * 8, ctx);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    delta += grad[i] * ctx[i];
            }
            a.delta[p.stat_at + q0 + r] = delta;
            lse2 = a.lse[p.stat_at + q0 + r] * FLASH_LOG2E;
        }
        stats[r] = lse2;
        stats[QUERIES + r] = delta;
    }
    __syncthreads();
    struct own_rows<D, MT, KEEP> own;
    own.one = q_tile + warp * 16 * MT * D;
    own.two = g_tile + warp * 16 * MT * D;
    own.lane_a = tile_lane_a<D>(lane);
    own.lane_b = tile_lane_b<D>(lane);
    keep_fragments<D, MT, KEEP>(own.kept_one, own.one, own.lane_a);
    keep_fragments<D, MT, KEEP>(own.kept_two, own.two, own.lane_a);
    float sum[MT][D / 8][4], lse2[2 * MT], delta[2 * MT], scale[2 * MT];
    sum_zero<D, MT>(sum);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const int r = warp * 16 * MT + (i >> 1) * 16 + (i & 1) * 8 + (lane >> 2);
        lse2[i] = stats[r];
        delta[i] = stats[QUERIES + r];
        scale[i] = a.scale;
    }
    for (int j = from; j < tiles; j++) {
        const int k0 = j * KEYS, now = ((j - from) & 1) * KEYS * D, next = KEYS * D - now;
        cp_async_wait<0>();
        __syncthreads();
        if (j + 1 < tiles) {
            tile_load<D, KEYS, THREADS>(k_tile + next, k_head, p.qkv_row, k0 + KEYS, a.seq);
            tile_load<D, KEYS, THREADS>(v_tile + next, v_head, p.qkv_row, k0 + KEYS, a.seq);
        }
        cp_async_commit();
        if (row_first >= a.seq || k0 + KEYS <= warp_from)
            continue;
        if (k0 + KEYS <= p.keys && (!a.causal || k0 + KEYS - 1 <= row_first) && k0 >= warp_whole) {
            dq_tile<D, DROP, false>(a, p, own, sum, lse2, delta, k_tile + now, v_tile + now,
                                    row_first, k0, KEYS);
        } else {
            int limit = p.keys - k0;
            if (a.causal && limit > row_last + 1 - k0)
                limit = row_last + 1 - k0;
            if (limit > 0)
                dq_tile<D, DROP, true>(a, p, own, sum, lse2, delta, k_tile + now, v_tile + now,
                                       row_first, k0, limit);
        }
    }
    cp_async_wait<0>();
    if (parts) {
        __syncthreads(); /* all warps are done with k */
        block_columns<D, MT>(a, p, sum, a.scale, 0, reinterpret_cast<float *>(k_tile), parts);
    }
    if (row_first < a.seq)
        tile_store<D, MT>(sum, scale, q_tile + warp * 16 * MT * D, 0,
                          (bf16 *)a.dq + (a.dq == a.out ? p.qkv_at : p.ctx_at), a.dq_stride,
                          row_first, a.seq);
}

/* --- dk and dv ------------------------------------------------------------------------------ */

template <int D, bool DROP>
static __global__ void __launch_bounds__(THREADS, 2)
    flash_dkdv(const struct attn_args a, float *parts)
{
    const int MT = dkdv_shape<D, DROP>::mt, QUERIES = dkdv_shape<D, DROP>::queries;
    const int KEYS = dkdv_shape<D, DROP>::keys;
    const bool KEEP = dkdv_shape<D, DROP>::keep;
    CUDA_DYNAMIC_SHARED(bf16, shared);
    bf16 *k_tile = shared, *v_tile = k_tile + KEYS * D, *q_tile = v_tile + KEYS * D,
         *g_tile = q_tile + 2 * QUERIES * D;
    float *stats = reinterpret_cast<float *>(g_tile + 2 * QUERIES * D); /* [2][lse2, delta] */
    const struct attn_place p = attn_place_of(a);
    const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31, tid = (int)threadIdx.x;
    const int k0 = p.tile * KEYS;
    const int key_first = k0 + warp * 16 * MT, key_last = key_first + 16 * MT - 1;
    const bf16 *q_head = (const bf16 *)a.qkv + p.qkv_at;
    const bf16 *k_head = q_head + p.ctx_row, *v_head = k_head + p.ctx_row;
    const bf16 *g_head = (const bf16 *)a.dctx + p.ctx_at;
    const int first = a.causal ? k0 / QUERIES : 0;
    const int end = k0 < p.keys ? attn_queries_end(a, p, k0 + KEYS) : 0;
    const int tiles = k0 < p.keys ? (end + QUERIES - 1) / QUERIES : first;
    struct own_rows<D, MT, KEEP> own;
    own.one = k_tile + warp * 16 * MT * D;
    own.two = v_tile + warp * 16 * MT * D;
    own.lane_a = tile_lane_a<D>(lane);
    own.lane_b = tile_lane_b<D>(lane);
    float dk[MT][D / 8][4], dv[MT][D / 8][4];
    sum_zero<D, MT>(dk);
    sum_zero<D, MT>(dv);
    tile_load<D, KEYS, THREADS>(k_tile, k_head, p.qkv_row, k0, a.seq);
    tile_load<D, KEYS, THREADS>(v_tile, v_head, p.qkv_row, k0, a.seq);
    tile_load<D, QUERIES, THREADS>(q_tile, q_head, p.qkv_row, first * QUERIES, a.seq);
    tile_load<D, QUERIES, THREADS>(g_tile, g_head, p.ctx_row, first * QUERIES, a.seq);
    cp_async_commit();
    float lse2 = INFINITY, delta = 0.0f; /* of query tid of the next tile */
    if (tid < QUERIES) {
        if (first * QUERIES + tid < a.seq) {
            lse2 = a.lse[p.stat_at + first * QUERIES + tid] * FLASH_LOG2E;
            delta = a.delta[p.stat_at + first * QUERIES + tid];
        }
        stats[tid] = lse2;
        stats[QUERIES + tid] = delta;
    }
    for (int j = first; j < tiles; j++) {
        const int q0 = j * QUERIES, turn = (j - first) & 1;
        const int now = turn * QUERIES * D, next = QUERIES * D - now;
        cp_async_wait<0>();
        __syncthreads();
        if (j + 1 < tiles) {
            tile_load<D, QUERIES, THREADS>(q_tile + next, q_head, p.qkv_row, q0 + QUERIES, a.seq);
            tile_load<D, QUERIES, THREADS>(g_tile + next, g_head, p.ctx_row, q0 + QUERIES, a.seq);
            lse2 = INFINITY;
            delta = 0.0f;
            if (tid < QUERIES && q0 + QUERIES + tid < a.seq) {
                lse2 = a.lse[p.stat_at + q0 + QUERIES + tid] * FLASH_LOG2E;
                delta = a.delta[p.stat_at + q0 + QUERIES + tid];
            }
        }
        cp_async_commit();
        if (j == first) {
            keep_fragments<D, MT, KEEP>(own.kept_one, own.one, own.lane_a);
            keep_fragments<D, MT, KEEP>(own.kept_two, own.two, own.lane_a);
        }
        if (key_first < p.keys) {
            const float *stat = stats + turn * 2 * QUERIES;
            if (q0 + QUERIES <= a.seq && key_last < p.keys && (!a.causal || q0 >= key_last) &&
                key_first >= attn_first(a, p, q0 + QUERIES - 1)) {
                dkdv_tile<D, DROP, false>(a, p, own, dk, dv, q_tile + now, g_tile + now, stat,
                                          stat + QUERIES, NULL, key_first, q0, 0, QUERIES);
            } else {
                const int from = a.causal && key_first > q0 ? key_first - q0 : 0;
                const int to = a.seq - q0 < QUERIES ? a.seq - q0 : QUERIES;
                if (from < to)
                    dkdv_tile<D, DROP, true>(a, p, own, dk, dv, q_tile + now, g_tile + now, stat,
                                             stat + QUERIES, NULL, key_first, q0, from, to);
            }
        }
        if (j + 1 < tiles && tid < QUERIES) {
            float *stat = stats + (1 - turn) * 2 * QUERIES;
            stat[tid] = lse2;
            stat[QUERIES + tid] = delta;
        }
    }
    cp_async_wait<0>();
    __syncthreads(); /* all copies have ended, and all warps are done with q */
    if (parts) {
        float *sums = reinterpret_cast<float *>(q_tile);
        block_columns<D, MT>(a, p, dk, a.scale, 1, sums, parts);
        block_columns<D, MT>(a, p, dv, DROP ? a.drop.up : 1.0f, 2, sums + WARPS * D, parts);
    }
    if (key_first >= a.seq)
        return;
    store_dkdv<D, DROP>(a, p, dk, dv, k_tile + warp * 16 * MT * D, v_tile + warp * 16 * MT * D,
                        key_first);
}

/* --- host ---------------------------------------------------------------------------------- */

int cuda_flash_tiles(int seq, int head_dim)
{
    const int rows = head_dim <= 64 ? dq_shape<64, true>::queries : dq_shape<128, true>::queries;
    return (seq + rows - 1) / rows;
}

template <int D, bool DROP>
static void launch_backward(struct backend *be, struct attn_args a, float *parts,
                            int64_t num_samples)
{
    static_assert(dq_shape<D, DROP>::queries == dkdv_shape<D, DROP>::keys,
                  "one part has all three");
    const int64_t blocks = num_samples * a.heads * (a.tiles = cuda_flash_tiles(a.seq, D));
    CUDA_ALLOW_SHARED((flash_dq<D, DROP>), (dq_shape<D, DROP>::shared));
    CUDA_ALLOW_SHARED((flash_dkdv<D, DROP>), (dkdv_shape<D, DROP>::shared));
    CUDA_LAUNCH((flash_dq<D, DROP>), (unsigned)blocks, THREADS, (dq_shape<D, DROP>::shared),
                cuda_of(be)->stream, a, parts);
    CUDA_LAUNCH((flash_dkdv<D, DROP>), (unsigned)blocks, THREADS, (dkdv_shape<D, DROP>::shared),
                cuda_of(be)->stream, a, parts);
}

bool cuda_flash_backward(struct backend *be, const struct attn_args *a, float *parts,
                         int64_t num_samples)
{
    if (!flash_fits(be, a))
        return false;
#define LAUNCH_BACKWARD(D, DROP) launch_backward<D, DROP>(be, *a, parts, num_samples)
    FLASH_PICK(a, LAUNCH_BACKWARD)
    return true;
}
