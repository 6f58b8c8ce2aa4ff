/* Attention in fp32 arithmetic, for dtype fp32 and for shapes that the tensor-core kernels do not
 * take; and the host functions of attention.
 *
 * A block has 256 threads as 16 x 16. Thread (ty, tx) holds rows ty + 16 i and columns tx + 16 j of
 * a tile, so a warp reads two rows by broadcast and 16 rows of odd stride, without bank conflicts.
 * The kernels are bound by shared memory: two loads of 4 values for 16 FMAs. TILE queries meet TILE
 * keys; head_dim is at most 16 * WIDE. Read attention_forward() and attention_backward() at the end
 * first, then simt_forward(). */
#include "exec/cuda/attention_parts.cuh"

#include <math.h>

#include "exec/cuda/cuda_scratch.h"

enum { SIDE = 16, THREADS = SIDE * SIDE };

static __host__ __device__ __forceinline__ int simt_stride(int head_dim)
{
    return head_dim | 1;
}

/* Loads rows [first, first + TILE) of a head to shared memory; rows from `rows` on are zero. */
template <typename T, int TILE>
static __device__ __forceinline__ void simt_load(float *tile, const T *head, int64_t stride,
                                                 int first, int rows, int dim)
{
    const int ld = simt_stride(dim);
    for (int i = (int)threadIdx.x; i < TILE * dim; i += THREADS) {
        const int r = i / dim, c = i % dim;
        tile[r * ld + c] = first + r < rows ? elem_load(head + (first + r) * stride + c) : 0.0f;
    }
}

/* out[i][j] = row ty + 16 i of x times row tx + 16 j of y. */
template <int N>
static __device__ __forceinline__ void simt_rows(float (*out)[N], const float *x, const float *y,
                                                 int dim)
{
    const int ld = simt_stride(dim), ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
            out[i][j] = 0.0f;
    for (int c = 0; c < dim; c++) {
        float left[N], right[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            left[i] = x[(ty + SIDE * i) * ld + c];
            right[i] = y[(tx + SIDE * i) * ld + c];
        }
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                out[i][j] += left[i] * right[j];
    }
}

/* sum[i][w] += the sum over k of weight(ty + 16 i, k) x[k][tx + 16 w]; TRANS: weight is stored as
 * [k][row]. */
template <int N, int WIDE, bool TRANS>
static __device__ __forceinline__ void simt_columns(float (*sum)[WIDE], const float *weight,
                                                    const float *x, int dim)
{
    const int TILE = SIDE * N, pitch = TILE + 1, ld = simt_stride(dim);
    const int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
    for (int k = 0; k < TILE; k++) {
        float left[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            left[i] =
                TRANS ? weight[k * pitch + ty + SIDE * i] : weight[(ty + SIDE * i) * pitch + k];
#pragma unroll
        for (int w = 0; w < WIDE; w++) {
            if (tx + SIDE * w >= dim)
                break;
            const float right = x[k * ld + tx + SIDE * w];
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[i][w] += left[i] * right;
        }
    }
}

template <typename T, int N, int WIDE>
static __device__ __forceinline__ void simt_store(T *head, int64_t stride, int first, int rows,
                                                  int dim, float (*sum)[WIDE], const float *scale)
{
    const int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int w = 0; w < WIDE; w++)
            if (first + ty + SIDE * i < rows && tx + SIDE * w < dim)
                elem_store(head + (int64_t)(first + ty + SIDE * i) * stride + tx + SIDE * w,
                           sum[i][w] * scale[i]);
}

/* Maximum over the 16 threads of a row; row_sum() adds them. */
static __device__ __forceinline__ float row_max(float x)
{
#pragma unroll
    for (int step = SIDE / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    return x;
}
static __device__ __forceinline__ float row_sum(float x)
{
#pragma unroll
    for (int step = SIDE / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(~0u, x, step);
    return x;
}

template <typename T, int TILE, int WIDE>
static __global__ void __launch_bounds__(THREADS) simt_forward(const struct attn_args a)
{
    const int N = TILE / SIDE, ld = simt_stride(a.head_dim), dim = a.head_dim;
    CUDA_DYNAMIC_SHARED(float, shared);
    float *q_tile = shared, *kv_tile = q_tile + TILE * ld, *prob = kv_tile + TILE * ld;
    const struct attn_place p = attn_place_of(a);
    const int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE, q0 = p.tile * TILE;
    const T *q_head = (const T *)a.qkv + p.qkv_at, *k_head = q_head + p.ctx_row;
    const int keys = a.causal && q0 + TILE < p.keys ? q0 + TILE : p.keys;
    float sum[N][WIDE], max[N], norm[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        max[i] = -INFINITY;
        norm[i] = 0.0f;
#pragma unroll
        for (int w = 0; w < WIDE; w++)
            sum[i][w] = 0.0f;
    }
    int first[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        first[i] = attn_first(a, p, q0 + ty + SIDE * i);
    simt_load<T, TILE>(q_tile, q_head, p.qkv_row, q0, a.seq, dim);
    for (int k0 = attn_first(a, p, q0) / TILE * TILE; k0 < keys; k0 += TILE) {
        float s[N][N];
        __syncthreads();
        simt_load<T, TILE>(kv_tile, k_head, p.qkv_row, k0, a.seq, dim);
        __syncthreads();
        simt_rows<N>(s, q_tile, kv_tile, dim);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int query = q0 + ty + SIDE * i;
            const float old = max[i];
            float top = old;
#pragma unroll
            for (int j = 0; j < N; j++) {
                const int key = k0 + tx + SIDE * j;
                s[i][j] *= a.scale;
                if (key >= p.keys || (a.causal && key > query) || key < first[i])
                    s[i][j] = -INFINITY;
                top = fmaxf(top, s[i][j]);
            }
            top = row_max(top);
            max[i] = top;
            if (top == -INFINITY) /* the row has seen no key yet */
                top = 0.0f;
            const float shrink = expf(old - top);
            norm[i] *= shrink;
#pragma unroll
            for (int j = 0; j < N; j++) {
                const int key = k0 + tx + SIDE * j;
                float e = expf(s[i][j] - top);
                norm[i] += e;
                if (a.drop.limit && !attn_keeps(a, p, query, key))
                    e = 0.0f;
                prob[(ty + SIDE * i) * (TILE + 1) + tx + SIDE * j] = e;
            }
#pragma unroll
            for (int w = 0; w < WIDE; w++)
                sum[i][w] *= shrink;
        }
        __syncthreads();
        simt_load<T, TILE>(kv_tile, k_head + p.ctx_row, p.qkv_row, k0, a.seq, dim);
        __syncthreads();
        simt_columns<N, WIDE, false>(sum, prob, kv_tile, dim);
    }
    float scale[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int query = q0 + ty + SIDE * i;
        norm[i] = row_sum(norm[i]);
        scale[i] = a.drop.up / norm[i];
        if (tx == 0 && query < a.seq)
            a.lse[p.stat_at + query] = max[i] + logf(norm[i]);
    }
    simt_store<T, N, WIDE>((T *)a.out + p.ctx_at, p.ctx_row, q0, a.seq, dim, sum, scale);
}

/* A pair of tiles in the backward: this thread's P (as dv sees it) in `shown`, and dS / scale in
 * `ds`. */
template <int N>
static __device__ __forceinline__ void
simt_pair(const struct attn_args &a, const struct attn_place &p, const float *q_tile,
          const float *g_tile, const float *k_tile, const float *v_tile, const float *lse,
          const float *delta, const int *first, int q0, int k0, float (*shown)[N], float (*ds)[N])
{
    const int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
    simt_rows<N>(shown, q_tile, k_tile, a.head_dim);
    simt_rows<N>(ds, g_tile, v_tile, a.head_dim);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int query = q0 + ty + SIDE * i;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int key = k0 + tx + SIDE * j;
            const bool seen =
                query < a.seq && key < p.keys && !(a.causal && key > query) && key >= first[i];
            const float weight = seen ? expf(shown[i][j] * a.scale - lse[i]) : 0.0f;
            const float up =
                a.drop.limit ? (attn_keeps(a, p, query, key) ? a.drop.up : 0.0f) : 1.0f;
            ds[i][j] = weight * (ds[i][j] * up - delta[i]);
            shown[i][j] = weight * up;
        }
    }
}

template <int N> static __device__ __forceinline__ void simt_put(float *pair, float (*x)[N])
{
    const int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
            pair[(ty + SIDE * i) * (SIDE * N + 1) + tx + SIDE * j] = x[i][j];
}

template <typename T, int TILE, int WIDE>
static __global__ void __launch_bounds__(THREADS) simt_dq(const struct attn_args a)
{
    const int N = TILE / SIDE, ld = simt_stride(a.head_dim), dim = a.head_dim;
    CUDA_DYNAMIC_SHARED(float, shared);
    float *q_tile = shared, *g_tile = q_tile + TILE * ld, *k_tile = g_tile + TILE * ld,
          *v_tile = k_tile + TILE * ld, *pair = v_tile + TILE * ld;
    const struct attn_place p = attn_place_of(a);
    const int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE, q0 = p.tile * TILE;
    const T *q_head = (const T *)a.qkv + p.qkv_at, *k_head = q_head + p.ctx_row;
    const T *c_head = (const T *)a.ctx + p.ctx_at;
    const int keys = a.causal && q0 + TILE < p.keys ? q0 + TILE : p.keys;
    simt_load<T, TILE>(q_tile, q_head, p.qkv_row, q0, a.seq, dim);
    simt_load<T, TILE>(g_tile, (const T *)a.dctx + p.ctx_at, p.ctx_row, q0, a.seq, dim);
    __syncthreads();
    float sum[N][WIDE], lse[N], delta[N], scale[N];
    int first[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int row = ty + SIDE * i, query = q0 + row;
        float part = 0.0f;
        first[i] = attn_first(a, p, query);
        if (query < a.seq)
            for (int c = tx; c < dim; c += SIDE)
                part += g_tile[row * ld + c] * elem_load(c_head + query * p.ctx_row + c);
        delta[i] = row_sum(part);
        lse[i] = query < a.seq ? a.lse[p.stat_at + query] : 0.0f;
        scale[i] = a.scale;
        if (tx == 0 && query < a.seq)
            a.delta[p.stat_at + query] = delta[i];
#pragma unroll
        for (int w = 0; w < WIDE; w++)
            sum[i][w] = 0.0f;
    }
    for (int k0 = attn_first(a, p, q0) / TILE * TILE; k0 < keys; k0 += TILE) {
        float shown[N][N], ds[N][N];
        __syncthreads();
        simt_load<T, TILE>(k_tile, k_head, p.qkv_row, k0, a.seq, dim);
        simt_load<T, TILE>(v_tile, k_head + p.ctx_row, p.qkv_row, k0, a.seq, dim);
        __syncthreads();
        simt_pair<N>(a, p, q_tile, g_tile, k_tile, v_tile, lse, delta, first, q0, k0, shown, ds);
        simt_put<N>(pair, ds);
        __syncthreads();
        simt_columns<N, WIDE, false>(sum, pair, k_tile, dim);
    }
    simt_store<T, N, WIDE>((T *)a.dq + (a.dq == a.out ? p.qkv_at : p.ctx_at), a.dq_stride, q0,
                           a.seq, dim, sum, scale);
}

template <typename T, int TILE, int WIDE>
static __global__ void __launch_bounds__(THREADS) simt_dkdv(const struct attn_args a)
{
    const int N = TILE / SIDE, ld = simt_stride(a.head_dim), dim = a.head_dim;
    CUDA_DYNAMIC_SHARED(float, shared);
    float *k_tile = shared, *v_tile = k_tile + TILE * ld, *q_tile = v_tile + TILE * ld,
          *g_tile = q_tile + TILE * ld, *shown_pair = g_tile + TILE * ld,
          *ds_pair = shown_pair + TILE * (TILE + 1);
    const struct attn_place p = attn_place_of(a);
    const int ty = (int)threadIdx.x / SIDE, k0 = p.tile * TILE;
    const T *q_head = (const T *)a.qkv + p.qkv_at, *k_head = q_head + p.ctx_row;
    float dk[N][WIDE], dv[N][WIDE], scale[N], one[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        scale[i] = a.scale;
        one[i] = 1.0f;
#pragma unroll
        for (int w = 0; w < WIDE; w++)
            dk[i][w] = dv[i][w] = 0.0f;
    }
    simt_load<T, TILE>(k_tile, k_head, p.qkv_row, k0, a.seq, dim);
    simt_load<T, TILE>(v_tile, k_head + p.ctx_row, p.qkv_row, k0, a.seq, dim);
    /* No query attends to padding. */
    const int last = k0 < p.keys ? attn_queries_end(a, p, k0 + TILE) : 0;
    for (int q0 = a.causal ? k0 : 0; q0 < last; q0 += TILE) {
        float shown[N][N], ds[N][N], lse[N], delta[N];
        int first[N];
        __syncthreads();
        simt_load<T, TILE>(q_tile, q_head, p.qkv_row, q0, a.seq, dim);
        simt_load<T, TILE>(g_tile, (const T *)a.dctx + p.ctx_at, p.ctx_row, q0, a.seq, dim);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int query = q0 + ty + SIDE * i;
            lse[i] = query < a.seq ? a.lse[p.stat_at + query] : 0.0f;
            delta[i] = query < a.seq ? a.delta[p.stat_at + query] : 0.0f;
            first[i] = attn_first(a, p, query);
        }
        simt_pair<N>(a, p, q_tile, g_tile, k_tile, v_tile, lse, delta, first, q0, k0, shown, ds);
        simt_put<N>(shown_pair, shown);
        simt_put<N>(ds_pair, ds);
        __syncthreads();
        simt_columns<N, WIDE, true>(dv, shown_pair, g_tile, dim);
        simt_columns<N, WIDE, true>(dk, ds_pair, q_tile, dim);
    }
    __syncthreads(); /* in place: all threads must have read their part of k and v before it is
                        overwritten, also without the loop */
    T *out = (T *)a.out + p.qkv_at + p.ctx_row;
    simt_store<T, N, WIDE>(out, p.qkv_row, k0, a.seq, dim, dk, scale);
    simt_store<T, N, WIDE>(out + p.ctx_row, p.qkv_row, k0, a.seq, dim, dv, one);
}

/* Copies the rows of dq from scratch into qkv, after all blocks have read q. */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    put_dq(const T *dq, T *dqkv, int64_t rows, int width)
{
    const int64_t chunks = width / N, num = rows * chunks;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < num;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t r = i / chunks, c = i % chunks * N;
        elem_pack_store<N>(dqkv + r * 3 * width + c, elem_pack_load<N>(dq + r * width + c));
    }
}

/* --- host ----------------------------------------------------------------------------------- */

static int64_t simt_bytes(int tile, int dim, int operands, int pairs)
{
    return ((int64_t)operands * tile * simt_stride(dim) + (int64_t)pairs * tile * (tile + 1)) *
           (int64_t)sizeof(float);
}

/* Size of a tile: 64 if it fits, else 32. 0 after recording that neither fits. */
static int simt_tile(struct backend *be, int dim)
{
    struct cuda_backend *cuda = cuda_of(be);
    if (dim <= 128 && simt_bytes(64, dim, 4, 2) <= cuda->shared_bytes)
        return 64;
    if (dim <= 256 && simt_bytes(32, dim, 4, 2) <= cuda->shared_bytes)
        return 32;
    if (cuda->failed.status == OK)
        err_set(&cuda->failed, ERR_INFEASIBLE,
                "cuda backend: no attention kernel for head_dim %d with %lld bytes of shared "
                "memory",
                dim, (long long)cuda->shared_bytes);
    return 0;
}

#define SIMT_LAUNCH(kernel, be, T, N, WIDE, blocks, bytes, a)                                      \
    do {                                                                                           \
        CUDA_ALLOW_SHARED((kernel<T, N, WIDE>), bytes);                                            \
        CUDA_LAUNCH((kernel<T, N, WIDE>), (unsigned)(blocks), THREADS, (size_t)(bytes),            \
                    cuda_of(be)->stream, a);                                                       \
    } while (0)
#define SIMT_PICK(kernel, be, tile, blocks, bytes, a)                                              \
    CUDA_DTYPE(be, T, {                                                                            \
        if (tile == 32)                                                                            \
            SIMT_LAUNCH(kernel, be, T, 32, 16, blocks, bytes, a);                                  \
        else if ((a).head_dim <= 64)                                                               \
            SIMT_LAUNCH(kernel, be, T, 64, 4, blocks, bytes, a);                                   \
        else                                                                                       \
            SIMT_LAUNCH(kernel, be, T, 64, 8, blocks, bytes, a);                                   \
    })

static struct attn_args args_of(const struct attention *a, const struct dropout *drop)
{
    struct attn_args args = {};
    args.lengths = a->lengths;
    args.seq = a->seq;
    args.heads = a->heads;
    args.head_dim = a->head_dim;
    args.causal = a->causal;
    args.window = a->window < a->seq ? a->window : 0;
    args.starts = a->starts;
    args.scale = 1.0f / sqrtf((float)a->head_dim);
    args.drop = drop_args_of(drop);
    return args;
}

static void attention_forward(struct backend *be, const struct attention *a, const void *qkv,
                              const struct dropout *drop, void *ctx, float *lse)
{
    struct attn_args args = args_of(a, drop);
    args.qkv = qkv;
    args.out = ctx;
    args.lse = lse;
    if (a->num_samples == 0 || cuda_flash_forward(be, &args, a->num_samples))
        return;
    const int tile = simt_tile(be, a->head_dim);
    if (!tile)
        return;
    const int64_t bytes = simt_bytes(tile, a->head_dim, 2, 1);
    args.tiles = (a->seq + tile - 1) / tile;
    SIMT_PICK(simt_forward, be, tile, a->num_samples * a->heads * args.tiles, bytes, args);
}

static void put_back(struct backend *be, int64_t rows, int width, const void *dq, void *dqkv)
{
    const bool wide = width * be->elem_bytes % 16 == 0 && (uintptr_t)dqkv % 16 == 0;
    const int blocks = cuda_blocks(rows * width, 8 * THREADS, 8 * cuda_of(be)->num_sms);
    CUDA_DTYPE(be, T, {
        if (wide)
            CUDA_LAUNCH((put_dq<T, 16 / (int)sizeof(T)>), blocks, THREADS, 0, cuda_of(be)->stream,
                        (const T *)dq, (T *)dqkv, rows, width);
        else
            CUDA_LAUNCH((put_dq<T, 1>), blocks, THREADS, 0, cuda_of(be)->stream, (const T *)dq,
                        (T *)dqkv, rows, width);
    });
}

static bool sums_dqkv(struct backend *be, const struct attention *a, const struct dropout *drop)
{
    (void)drop;
    return cuda_flash_takes(be, a->head_dim);
}

/* The backward in one kernel; its sums are in scratch. false: not for this shape. */
static bool backward_whole(struct backend *be, const struct attention *a,
                           const struct attn_args &args)
{
    const int64_t width = 3 * (int64_t)a->heads * a->head_dim;
    float *parts = NULL;
    if (!cuda_flash_whole_fits(be, &args))
        return false;
    if (a->dqkv_sums) {
        parts = (float *)cuda_scratch(be, a->num_samples * width * (int64_t)sizeof *parts);
        if (!parts)
            return true; /* the failure is recorded */
    }
    cuda_flash_backward_whole(be, &args, parts, a->num_samples);
    if (parts)
        cuda_fold(be, a->num_samples, width, parts, 1.0f, false, a->dqkv_sums);
    return true;
}

static int64_t aligned_bytes(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static void attention_backward(struct backend *be, const struct attention *a, const void *qkv,
                               const struct dropout *drop, const void *ctx, const float *lse,
                               const void *dctx, void *dqkv)
{
    struct attn_args args = args_of(a, drop);
    const int width = a->heads * a->head_dim;
    const int64_t rows = a->num_samples * a->seq;
    const bool in_place = dqkv == qkv;
    args.qkv = qkv;
    args.ctx = ctx;
    args.dctx = dctx;
    args.lse = (float *)lse;
    args.out = dqkv;
    if (a->num_samples == 0 || backward_whole(be, a, args))
        return;
    const int64_t stat_bytes =
        aligned_bytes(a->num_samples * a->heads * a->seq * (int64_t)sizeof(float));
    const int64_t dq_bytes = in_place ? aligned_bytes(rows * width * be->elem_bytes) : 0;
    const int64_t num_parts = a->num_samples * cuda_flash_tiles(a->seq, a->head_dim);
    const int64_t part_bytes = a->dqkv_sums ? num_parts * 3 * width * (int64_t)sizeof(float) : 0;
    char *scratch = (char *)cuda_scratch(be, stat_bytes + dq_bytes + part_bytes);
    if (!scratch)
        return;
    args.delta = (float *)(void *)scratch;
    /* In place, a block may overwrite its own k and v by dk and dv. dq must wait until all blocks
     * of keys have read q, so it goes to scratch first. */
    args.dq = in_place ? scratch + stat_bytes : dqkv;
    args.dq_stride = in_place ? width : 3 * (int64_t)width;
    float *parts = a->dqkv_sums ? (float *)(void *)(scratch + stat_bytes + dq_bytes) : NULL;
    const bool flash = cuda_flash_backward(be, &args, parts, a->num_samples);
    if (!flash) {
        const int tile = simt_tile(be, a->head_dim);
        if (!tile)
            return;
        args.tiles = (a->seq + tile - 1) / tile;
        const int64_t blocks = a->num_samples * a->heads * args.tiles;
        SIMT_PICK(simt_dq, be, tile, blocks, simt_bytes(tile, a->head_dim, 4, 1), args);
        SIMT_PICK(simt_dkdv, be, tile, blocks, simt_bytes(tile, a->head_dim, 4, 2), args);
    }
    if (in_place)
        put_back(be, rows, width, args.dq, dqkv);
    if (parts && flash)
        cuda_fold(be, num_parts, 3 * width, parts, 1.0f, false, a->dqkv_sums);
    else if (parts)
        cuda_column_sums(be, rows, 3 * width, 3 * width, dqkv, 1.0f, false, a->dqkv_sums);
}

void cuda_attention_install(struct backend *be)
{
    be->attention_forward = attention_forward;
    be->attention_backward = attention_backward;
    be->sums_dqkv = sums_dqkv;
}
