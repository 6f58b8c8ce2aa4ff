#include "exec/cuda/flash_tile.cuh"

/* Attention backward in bf16 on mma.m16n8k16, fp32 sums. Where a block holds all keys of a head
 * (seq 128; at head_dim 64, 256), in one kernel:
 *
 *   flash_whole  walks over the queries:     S^T = k q^T, dP^T = v dctx^T,
 *                                            dv += P^T dctx, dk += dS^T q, dq = dS k
 *
 * with P = exp(scale S - lse), dS = P (dP - delta), five products a pair of tiles. P^T and dS^T are
 * A fragments as they come out of the products; dS visits shared memory, where the warps gather it
 * over all keys. Nobody else reads the head, so dq goes to its place at once. Else in two
 * (cuda_attention.cuh):
 *
 *   flash_dq     a block of queries walks over the keys:     S = q k^T, dP = dctx v^T, dq += dS k
 *   flash_dkdv   a block of keys walks over the queries, as above but for dq
 *
 * Seven products instead of the five of a kernel that adds dq atomically: 14 seq^2 head_dim
 * operations a head (half of it causal), the price of equal bits. Memory: qkv, dctx and ctx read,
 * dqkv written, 16 seq head_dim bytes; the two kernels read qkv and dctx twice, and in place dq
 * makes a detour through scratch. */
enum { WARPS = 4, THREADS = 32 * WARPS };

/* Chosen so that next to nothing spills (ptxas of CUDA 13.0: at most 68 bytes, head_dim 64 with
 * dropout): blocks of 16 rows a warp, the width of the tiles that pass by, and whether the
 * fragments of the warp's own two operands live in registers. */
template <int D, bool DROP> struct dq_shape {
    static const int mt = D <= 64 ? 2 : 1;
    static const int keys = D <= 64 ? 32 : 64;
    static const bool keep = D <= 64;
    static const int queries = 16 * mt * WARPS;
    static const int shared =
        (2 * queries + 4 * keys) * D * (int)sizeof(bf16) + 2 * queries * (int)sizeof(float);
};
template <int D, bool DROP> struct dkdv_shape {
    static const int mt = D <= 64 ? 2 : 1;
    static const int queries = 32;
    static const bool keep = D <= 32;
    static const int keys = 16 * mt * WARPS;
    static const int shared =
        (2 * keys + 4 * queries) * D * (int)sizeof(bf16) + 4 * queries * (int)sizeof(float);
};

/* The warp's own operand as A fragments of 16 columns, from registers or shared memory. */
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

/* out[MT][N / 8] = own rows times the N rows of `tile`, over D columns; blocks of 16 rows of the
 * tile outside [from, to) are left zero. */
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

/* sum[MT][D / 8] += weight[MT][N / 16], as A fragments, times the N rows of `tile`. */
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

/* The sums over the warp's rows of its accumulators, to sums[D] in shared memory. */
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

/* The same over the block's rows, times scale, to parts[sample][tile][3][heads][D], of which dq, dk
 * and dv are `which` 0 to 2. shared: [WARPS][D] that nobody uses any more. All threads. Rows past
 * the end are zero. */
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

template <int D, int MT, bool KEEP> struct own_rows {
    const bf16 *one, *two; /* q and dctx, or k and v, in shared memory */
    uint32_t kept_one[MT][D / 16][4], kept_two[MT][D / 16][4];
    struct tile_lane lane_a, lane_b;
};

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
                if (EDGE && (key >= p.keys || (a.causal && key > row)))
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
    float *stats = reinterpret_cast<float *>(v_tile + 2 * KEYS * D); /* lse log2(e), delta */
    const struct attn_place p = attn_place_of(a);
    const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31;
    const int q0 = (a.causal ? a.tiles - 1 - p.tile : p.tile) * QUERIES;
    const int row_first = q0 + warp * 16 * MT, row_last = row_first + 16 * MT - 1;
    const bf16 *q_head = (const bf16 *)a.qkv + p.qkv_at;
    const bf16 *k_head = q_head + p.ctx_row, *v_head = k_head + p.ctx_row;
    const bf16 *g_head = (const bf16 *)a.dctx + p.ctx_at, *c_head = (const bf16 *)a.ctx + p.ctx_at;
    const int keys = a.causal && q0 + QUERIES < p.keys ? q0 + QUERIES : p.keys;
    const int tiles = (keys + KEYS - 1) / KEYS;
    tile_load<D, QUERIES, THREADS>(q_tile, q_head, p.qkv_row, q0, a.seq);
    tile_load<D, QUERIES, THREADS>(g_tile, g_head, p.ctx_row, q0, a.seq);
    tile_load<D, KEYS, THREADS>(k_tile, k_head, p.qkv_row, 0, a.seq);
    tile_load<D, KEYS, THREADS>(v_tile, v_head, p.qkv_row, 0, a.seq);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    /* delta of a row: one thread, column order. Rows past the end have probability 0. */
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
    for (int j = 0; j < tiles; j++) {
        const int k0 = j * KEYS, now = (j & 1) * KEYS * D, next = KEYS * D - now;
        cp_async_wait<0>();
        __syncthreads();
        if (j + 1 < tiles) {
            tile_load<D, KEYS, THREADS>(k_tile + next, k_head, p.qkv_row, k0 + KEYS, a.seq);
            tile_load<D, KEYS, THREADS>(v_tile + next, v_head, p.qkv_row, k0 + KEYS, a.seq);
        }
        cp_async_commit();
        if (row_first >= a.seq)
            continue;
        if (k0 + KEYS <= p.keys && (!a.causal || k0 + KEYS - 1 <= row_first)) {
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
        __syncthreads(); /* nobody reads k any more */
        block_columns<D, MT>(a, p, sum, a.scale, 0, reinterpret_cast<float *>(k_tile), parts);
    }
    if (row_first < a.seq)
        tile_store<D, MT>(sum, scale, q_tile + warp * 16 * MT * D, 0,
                          (bf16 *)a.dq + (a.dq == a.out ? p.qkv_at : p.ctx_at), a.dq_stride,
                          row_first, a.seq);
}

/* --- dk and dv ------------------------------------------------------------------------------ */

/* One tile of queries. ds_rows: the warp's rows of dS^T [keys][queries] in shared memory, written;
 * NULL: not wanted. */
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
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = key_first + m * 16 + (e >> 1) * 8 + g;
                const int query = q0 + n * 8 + 2 * t + (e & 1);
                float weight = exp2_approx(fmaf(s[m][n][e], c, -(e & 1 ? lse2.y : lse2.x)));
                if (EDGE && (key >= p.keys || (a.causal && key > query)))
                    weight = 0.0f;
                float grad = dp[m][n][e], shown = weight;
                if (DROP) {
                    const bool keeps = attn_keeps(a, p, query, key);
                    grad = keeps ? grad * a.drop.up : 0.0f;
                    shown = keeps ? weight : 0.0f; /* times up, at the end */
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
                for (int i = 0; i < 4; i++) /* rows g and g + 8, then 8 columns further */
                    *reinterpret_cast<uint32_t *>(
                        ds_rows + tile_at<QUERIES>(m * 16 + (i & 1) * 8 + g, 2 * n + (i >> 1)) +
                        2 * t) = ds[m][n][i];
    product_columns<D, MT, QUERIES, EDGE>(dv, prob, g_tile, own.lane_a, from, to);
    product_columns<D, MT, QUERIES, EDGE>(dk, ds, q_tile, own.lane_a, from, to);
}

/* The warp's dk and dv to their places, through its rows of k and v in shared memory. */
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
    const int tiles = k0 < p.keys ? (a.seq + QUERIES - 1) / QUERIES : first;
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
    float lse2 = INFINITY, delta = 0.0f; /* of query tid of the tile to come */
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
            if (q0 + QUERIES <= a.seq && key_last < p.keys && (!a.causal || q0 >= key_last)) {
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
    __syncthreads(); /* the copies into the tiles are over, and nobody reads q any more */
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

/* --- all of a head ---------------------------------------------------------------------------- */

/* Blocks of 4 warps, two an SM, or of 8, one an SM, where there is shared memory for it (102 KiB,
 * more than on sm_86 and sm_89); each warp owns 32 keys. (ptxas of CUDA 13.0 for
 * sm_90: at most 32 bytes spilt.) */
template <int D, bool DROP, int MANY> struct whole_shape {
    static const int mt = 2, queries = 32, threads = 32 * MANY, keys = 16 * mt * MANY;
    static const int columns = D / (MANY / 2); /* of dq a warp, by 16 queries */
    static const int shared = (2 * keys + 4 * queries) * D * (int)sizeof(bf16) +
                              keys * queries * (int)sizeof(bf16) + 2 * keys * (int)sizeof(float) +
                              threads * columns / 8 * (int)sizeof(float2);
};

/* The warp's part of dq of one tile of queries: 16 queries (from row_first on) and COLUMNS columns,
 * summed over the first `keys` keys. Goes out through its part of q's tile, which nobody reads any
 * more. column_sums: [COLUMNS / 8][threads] in shared memory, to which each lane adds the sums of
 * its two columns of 8; NULL: not wanted. */
template <int D, int COLUMNS, int QUERIES, int THREADS_OF_BLOCK>
static __device__ __forceinline__ void
whole_dq(const struct attn_args &a, const struct attn_place &p, const bf16 *ds_tile,
         const bf16 *k_tile, bf16 *q_tile, float2 *column_sums, int row_first, int column_first,
         int q0, int keys)
{
    const int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    /* dS lies as [keys][queries]: read transposed, in the order of a B fragment, it is A. */
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
            float2 *mine = column_sums + n * THREADS_OF_BLOCK + threadIdx.x;
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

/* The sums of the block's dq, dk and dv to their places. of_dq as whole_dq() has left it, of_dkdv
 * [MANY][2][D] of the warps: all threads have written. Rows past the end are zero. */
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
                    const float2 pair = of_dq[inside / 8 * shape::threads +
                                              (c / shape::columns * 2 + half) * 32 + lane];
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
    /* delta of all rows: LANES threads a row. Rows past the end have probability 0. */
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
    for (int n = 0; dq_sums && n < shape::columns / 8; n++)
        dq_sums[n * shape::threads + tid] = {0.0f, 0.0f};
    for (int j = 0; j < tiles; j++) {
        const int q0 = j * QUERIES, now = (j & 1) * QUERIES * D, next = QUERIES * D - now;
        cp_async_wait<0>();
        __syncthreads(); /* tile j is there; nobody works on tile j - 1 any more */
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
            if (q0 + QUERIES <= a.seq && key_last < p.keys && (!a.causal || q0 >= key_last)) {
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
        __syncthreads(); /* dS is there, of every key that a query of the tile sees */
        const int last = q0 + QUERIES < a.seq ? q0 + QUERIES : a.seq;
        whole_dq<D, shape::columns, QUERIES, shape::threads>(
            a, p, ds_tile, k_tile, q_tile + now, dq_sums, (warp & 1) * 16,
            (warp >> 1) * shape::columns, q0, a.causal && last < p.keys ? last : p.keys);
    }
    __syncthreads(); /* nobody reads k or dS any more */
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
    if (a.seq <= 128)
        launch_blocks<D, DROP, 4>(be, a, parts, num_samples);
    else if constexpr (D == 64)
        launch_blocks<D, DROP, 8>(be, a, parts, num_samples);
}

static bool is_whole(struct backend *be, int seq, int head_dim)
{
    if (head_dim != 32 && head_dim != 64)
        return false;
    return seq <= 128 || (seq <= 256 && head_dim == 64 &&
                          whole_shape<64, true, 8>::shared <= cuda_of(be)->shared_bytes);
}

bool cuda_flash_backward_whole(struct backend *be, const struct attn_args *a, float *parts,
                               int64_t num_samples)
{
    if (!flash_fits(be, a) || !is_whole(be, a->seq, a->head_dim))
        return false;
#define LAUNCH_WHOLE(D, DROP) launch_whole<D, DROP>(be, *a, parts, num_samples)
    switch (a->head_dim) {
        FLASH_DIM(32, a, LAUNCH_WHOLE)
        FLASH_DIM(64, a, LAUNCH_WHOLE)
    }
    return true;
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
