/* Kernels of the llama family in place of layer norms, position tables and GELUs:
 * RMSNorm, rotary positions with grouped heads, gated activations.
 *
 * All are bound by memory. A thread takes packs of V neighbouring elements: 16 bytes, or one
 * element where widths or addresses are not aligned. Sums over rows go to scratch by blocks, whose
 * number depends on the shape only, and cuda_fold() adds them in order. Read the host functions
 * at the end of each part first; they choose the kernel. */
#include "exec/cuda/act.cuh"
#include "exec/cuda/cuda_scratch.h"

enum { WARPS = 4, THREADS = 32 * WARPS };

/* Blocks with sums of their own: those of one wave on 128 SMs. It depends on shapes only, so that
 * the bits are the same on every device. */
enum { WAVE_SMS = 128 };

/* --- RMSNorm ---------------------------------------------------------------------------------- */

/* A row stays in the registers of W warps, 1 or 4, between its passes: of their threads, number t
 * holds the 16-byte chunks t, t + 32 W, ... Forward reads x and writes y (4 bytes an element in
 * bf16); backward reads dy, x and add and writes dx (8 bytes). */

/* The sum over a row's W warps, in their order. All threads call it; `turn` alternates between 0
 * and 1 from call to call, so that one barrier a call is enough. */
template <int W> static __device__ __forceinline__ float rms_row_sum(float x, int turn)
{
    x = warp_sum(x);
    if constexpr (W > 1) {
        __shared__ float sums[2][WARPS];
        if (threadIdx.x % 32 == 0)
            sums[turn][threadIdx.x / 32] = x;
        __syncthreads();
        x = 0.0f;
#pragma unroll
        for (int w = 0; w < W; w++)
            x += sums[turn][w];
    }
    return x;
}

template <typename T, int W, int CHUNKS>
static __global__ void __launch_bounds__(THREADS)
    rms_forward(const struct rmsnorm n, const T *x, const float *gamma, T *y, float *stats)
{
    const int V = 16 / (int)sizeof(T), t = (int)threadIdx.x % (32 * W), chunks = n.cols / V;
    const int64_t r = (int64_t)blockIdx.x * (WARPS / W) + threadIdx.x / (32 * W);
    float row[CHUNKS][V], square = 0.0f;
    if (r >= n.rows) /* all threads of a row */
        return;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        if (t + 32 * W * i < chunks)
            elem_load_n<V>(x + r * n.cols + (t + 32 * W * i) * V, row[i]);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        if (t + 32 * W * i < chunks)
#pragma unroll
            for (int k = 0; k < V; k++)
                square += row[i][k] * row[i][k];
    const float rstd = 1.0f / sqrtf(rms_row_sum<W>(square, 0) / (float)n.cols + n.eps);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        if (t + 32 * W * i < chunks) {
            const int c = (t + 32 * W * i) * V;
            float scale[V];
            elem_load_n<V>(gamma + c, scale);
#pragma unroll
            for (int k = 0; k < V; k++)
                row[i][k] *= rstd * (n.plus + scale[k]);
            elem_store_n<V>(y + r * n.cols + c, row[i]);
        }
    if (t == 0)
        stats[r] = rstd;
}

/* Blocks per SM that leave a thread enough registers for `elems` elements of dy, x and add and
 * their sums. */
constexpr int rms_blocks(int elems)
{
    return elems <= 16 ? 6 : elems <= 32 ? 4 : 2;
}

/* dx = add + rstd (g - h mean(g h)), with g = dy (plus + gamma) and h = x rstd. A block takes
 * `per_block` rows and writes their sums of dy h to parts[block][cols]. */
template <typename T, int W, int CHUNKS>
static __global__ void __launch_bounds__(THREADS, rms_blocks(CHUNKS * 16 / (int)sizeof(T)))
    rms_backward(const struct rmsnorm n, int64_t per_block, const T *dy, const T *x,
                 const float *stats, const float *gamma, const T *add, T *dx, float *parts)
{
    const int V = 16 / (int)sizeof(T), t = (int)threadIdx.x % (32 * W), chunks = n.cols / V;
    const int64_t first = blockIdx.x * per_block;
    const int64_t end = first + per_block < n.rows ? first + per_block : n.rows;
    float dgamma[CHUNKS][V];
    int turn = 0;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
#pragma unroll
        for (int k = 0; k < V; k++)
            dgamma[i][k] = 0.0f;
    for (int64_t r = first + threadIdx.x / (32 * W); r < end; r += WARPS / W) {
        elem_pack<16 / (int)sizeof(T), T> grad[CHUNKS], in[CHUNKS], more[CHUNKS];
        const int64_t at = r * n.cols + t * V;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            if (t + 32 * W * i < chunks) {
                grad[i] = elem_pack_load<16 / (int)sizeof(T)>(dy + at + 32 * W * i * V);
                in[i] = elem_pack_load<16 / (int)sizeof(T)>(x + at + 32 * W * i * V);
                if (add)
                    more[i] = elem_pack_load<16 / (int)sizeof(T)>(add + at + 32 * W * i * V);
            }
        const float rstd = stats[r];
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            if (t + 32 * W * i < chunks) {
                float scale[V];
                elem_load_n<V>(gamma + (t + 32 * W * i) * V, scale);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    const float d = elem_load(&grad[i].at[k]), h = elem_load(&in[i].at[k]) * rstd;
                    dgamma[i][k] += d * h;
                    sum += d * (n.plus + scale[k]) * h;
                }
            }
        if (!dx)
            continue;
        const float mean = rms_row_sum<W>(sum, turn) / (float)n.cols;
        turn ^= 1;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            if (t + 32 * W * i < chunks) {
                float scale[V], out[V];
                elem_load_n<V>(gamma + (t + 32 * W * i) * V, scale);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    const float g = elem_load(&grad[i].at[k]) * (n.plus + scale[k]);
                    out[k] = rstd * (g - elem_load(&in[i].at[k]) * rstd * mean);
                    if (add)
                        out[k] += elem_load(&more[i].at[k]);
                }
                elem_store_n<V>(dx + at + 32 * W * i * V, out);
            }
    }
    if (!parts)
        return;
    if constexpr (W == 1) { /* a column's sums are in four warps: add them in order */
        __shared__ __align__(16) float total[CHUNKS * 32 * V];
        for (int w = 0; w < WARPS; w++) {
            if ((int)threadIdx.x / 32 == w)
#pragma unroll
                for (int i = 0; i < CHUNKS; i++)
#pragma unroll
                    for (int k = 0; k < V; k += 4) {
                        float *sums = total + (t + 32 * i) * V + k;
                        elem_pack<4, float> mine;
                        if (w)
                            mine = elem_pack_load<4>(sums);
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            mine.at[j] = w ? mine.at[j] + dgamma[i][k + j] : dgamma[i][k + j];
                        elem_pack_store<4>(sums, mine);
                    }
            __syncthreads();
        }
        for (int c = (int)threadIdx.x; c < n.cols; c += THREADS)
            parts[(int64_t)blockIdx.x * n.cols + c] = total[c];
    } else {
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            if (t + 32 * W * i < chunks)
                elem_store_n<V>(parts + (int64_t)blockIdx.x * n.cols + (t + 32 * W * i) * V,
                                dgamma[i]);
    }
}

/* For any width and alignment: a warp reads a row twice. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    rms_forward_any(const struct rmsnorm n, const T *x, const float *gamma, T *y, float *stats)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    float square = 0.0f;
    if (r >= n.rows)
        return;
    const T *in = x + r * n.cols;
    for (int c = lane; c < n.cols; c += 32)
        square += elem_load(in + c) * elem_load(in + c);
    const float rstd = 1.0f / sqrtf(warp_sum(square) / (float)n.cols + n.eps);
    for (int c = lane; c < n.cols; c += 32)
        elem_store(y + r * n.cols + c, elem_load(in + c) * (rstd * (n.plus + gamma[c])));
    if (lane == 0)
        stats[r] = rstd;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    rms_parts_any(const struct rmsnorm n, int64_t per_block, const T *dy, const T *x,
                  const float *stats, float *parts)
{
    const int c = (int)(blockIdx.y * THREADS + threadIdx.x);
    const int64_t first = blockIdx.x * per_block;
    const int64_t end = first + per_block < n.rows ? first + per_block : n.rows;
    float sum = 0.0f;
    if (c >= n.cols)
        return;
    for (int64_t r = first; r < end; r++)
        sum += elem_load(dy + r * n.cols + c) * (elem_load(x + r * n.cols + c) * stats[r]);
    parts[(int64_t)blockIdx.x * n.cols + c] = sum;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    rms_backward_any(const struct rmsnorm n, const T *dy, const T *x, const float *stats,
                     const float *gamma, const T *add, T *dx)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, at = r * n.cols;
    float sum = 0.0f;
    if (r >= n.rows)
        return;
    for (int c = lane; c < n.cols; c += 32)
        sum += elem_load(dy + at + c) * (n.plus + gamma[c]) * elem_load(x + at + c);
    const float rstd = stats[r], mean = warp_sum(sum) * rstd / (float)n.cols;
    for (int c = lane; c < n.cols; c += 32) {
        const float g = elem_load(dy + at + c) * (n.plus + gamma[c]);
        const float base = add ? elem_load(add + at + c) : 0.0f;
        elem_store(dx + at + c, base + rstd * (g - elem_load(x + at + c) * rstd * mean));
    }
}

/* Chunks of a row if it can stay in registers, else 0. */
static int rms_chunks(const struct backend *be, int cols, uintptr_t pointers)
{
    const int v = 16 / be->elem_bytes;
    return cols % v == 0 && pointers % 16 == 0 && cols / v <= 8 * THREADS ? cols / v : 0;
}

#define RMS_CASE(T, W, most, CHUNKS, DO)                                                           \
    if (chunks <= (most)) {                                                                        \
        DO(T, W, CHUNKS);                                                                          \
        break;                                                                                     \
    }
/* Calls DO(T, W, CHUNKS) for a row of `chunks` chunks: one warp as long as it holds at most four a
 * lane. */
#define RMS_PICK(be, DO)                                                                           \
    CUDA_DTYPE(be, T, {                                                                            \
        RMS_CASE(T, 1, 32, 1, DO)                                                                  \
        RMS_CASE(T, 1, 64, 2, DO)                                                                  \
        RMS_CASE(T, 1, 96, 3, DO)                                                                  \
        RMS_CASE(T, 1, 128, 4, DO)                                                                 \
        RMS_CASE(T, 4, 256, 2, DO)                                                                 \
        RMS_CASE(T, 4, 384, 3, DO)                                                                 \
        RMS_CASE(T, 4, 512, 4, DO)                                                                 \
        RMS_CASE(T, 4, 768, 6, DO)                                                                 \
        DO(T, 4, 8);                                                                               \
    })

static void rmsnorm_forward(struct backend *be, const struct rmsnorm *n, const void *x,
                            const float *gamma, void *y, float *stats)
{
    const int chunks = rms_chunks(be, n->cols, (uintptr_t)x | (uintptr_t)y | (uintptr_t)gamma);
    if (n->rows <= 0)
        return;
    if (!chunks) {
        CUDA_DTYPE(be, T, {
            CUDA_LAUNCH((rms_forward_any<T>), cuda_blocks(n->rows, WARPS, INT32_MAX), THREADS, 0,
                        cuda_of(be)->stream, *n, (const T *)x, gamma, (T *)y, stats);
        });
        return;
    }
#define RMS_FORWARD(T, W, CHUNKS)                                                                  \
    CUDA_LAUNCH((rms_forward<T, W, CHUNKS>), cuda_blocks(n->rows, WARPS / W, INT32_MAX), THREADS,  \
                0, cuda_of(be)->stream, *n, (const T *)x, gamma, (T *)y, stats)
    RMS_PICK(be, RMS_FORWARD);
}

static void rmsnorm_backward(struct backend *be, const struct rmsnorm *n, const void *dy,
                             const void *x, const float *stats, const float *gamma, const void *add,
                             void *dx, float *part)
{
    cudaStream_t stream = cuda_of(be)->stream;
    const int chunks = rms_chunks(be, n->cols,
                                  (uintptr_t)dy | (uintptr_t)x | (uintptr_t)gamma | (uintptr_t)add |
                                      (uintptr_t)dx);
    if (!dx && !part)
        return;
    if (n->rows <= 0) {
        if (part)
            be->zero(be, part, n->cols * (int64_t)sizeof *part);
        return;
    }
    const int per_thread = (chunks <= 128 ? (chunks + 31) / 32 : (chunks + 127) / 128);
    const int most = WAVE_SMS * rms_blocks(per_thread * 16 / be->elem_bytes);
    const int64_t wanted = cuda_blocks(n->rows, 2 * WARPS, most);
    const int64_t per_block = (n->rows + wanted - 1) / wanted;
    const int num_parts = (int)((n->rows + per_block - 1) / per_block);
    float *parts = NULL;
    if (part) {
        parts = (float *)cuda_scratch(be, (int64_t)num_parts * n->cols * (int64_t)sizeof *parts);
        if (!parts)
            return;
    }
    if (chunks) {
#define RMS_BACKWARD(T, W, CHUNKS)                                                                 \
    CUDA_LAUNCH((rms_backward<T, W, CHUNKS>), num_parts, THREADS, 0, stream, *n, per_block,        \
                (const T *)dy, (const T *)x, stats, gamma, (const T *)add, (T *)dx, parts)
        RMS_PICK(be, RMS_BACKWARD);
    } else {
        const dim3 grid((unsigned)num_parts, (unsigned)((n->cols + THREADS - 1) / THREADS));
        CUDA_DTYPE(be, T, {
            if (part)
                CUDA_LAUNCH((rms_parts_any<T>), grid, THREADS, 0, stream, *n, per_block,
                            (const T *)dy, (const T *)x, stats, parts);
            if (dx)
                CUDA_LAUNCH((rms_backward_any<T>), cuda_blocks(n->rows, WARPS, INT32_MAX), THREADS,
                            0, stream, *n, (const T *)dy, (const T *)x, stats, gamma,
                            (const T *)add, (T *)dx);
        });
    }
    if (part)
        cuda_fold(be, num_parts, n->cols, parts, 1.0f, false, part);
}

/* --- rotary positions ------------------------------------------------------------------------- */

/* A task is one head of one token. `lanes` lanes, a power of two, share it: lane l holds packs l, l
 * + lanes, ... of both halves of the head, so that the two elements of a point meet in one thread.
 * Forward reads a head once and writes it once per query head that reads it; backward the other
 * way round. */
struct head_task {
    int64_t row;
    int h, kind;          /* h: of x's heads; kind: 0 to 2 is query, key, value */
    int64_t x_at, qkv_at; /* first element in x, and of the first copy in qkv */
    int64_t angles_at;    /* first angle of the token's position */
    int times;            /* copies in qkv, head_dim apart */
};
static __device__ __forceinline__ struct head_task head_task_of(const struct rotary &r,
                                                                int64_t task)
{
    struct head_task t;
    const int all = r.heads + 2 * r.kv_heads, d = r.head_dim;
    t.row = task / all;
    t.h = (int)(task - t.row * all);
    t.kind = t.h < r.heads ? 0 : t.h < r.heads + r.kv_heads ? 1 : 2;
    t.times = t.kind ? r.heads / r.kv_heads : 1;
    const int nth = t.kind ? t.h - r.heads - (t.kind - 1) * r.kv_heads : t.h;
    t.x_at = task * d;
    t.qkv_at = ((t.row * 3 + t.kind) * r.heads + nth * t.times) * d;
    t.angles_at = t.row % r.seq * d;
    return t;
}

/* The sum over the lanes of a task. */
static __device__ __forceinline__ float lanes_sum(float x, int lanes)
{
    for (int step = lanes / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(~0u, x, step);
    return x;
}

/* Turns V points by their angles (cosine and sine of each), or back with sign -1. */
template <int V>
static __device__ __forceinline__ void turn_points(const float *angles, float sign, float *a,
                                                   float *b)
{
    float cs[2 * V];
    if constexpr (V == 1) {
        cs[0] = angles[0];
        cs[1] = angles[1];
    } else {
        elem_load_n<2 * V>(angles, cs);
    }
#pragma unroll
    for (int k = 0; k < V; k++) {
        const float c = cs[2 * k], s = sign * cs[2 * k + 1], x = a[k];
        a[k] = x * c - b[k] * s;
        b[k] = b[k] * c + x * s;
    }
}

template <typename T, int V, int ITEMS>
static __global__ void __launch_bounds__(THREADS)
    turn_heads(const struct rotary r, int lanes, int64_t tasks, const T *x, T *qkv, float *stats)
{
    const int d = r.head_dim, half = d / 2, lane = (int)threadIdx.x % lanes;
    const int64_t task = (int64_t)blockIdx.x * (THREADS / lanes) + threadIdx.x / lanes;
    const bool real = task < tasks;
    const struct head_task t = head_task_of(r, real ? task : 0);
    float a[ITEMS][V], b[ITEMS][V], square = 0.0f;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int c = (lane + i * lanes) * V;
        if (!real || c >= half)
            continue;
        elem_load_n<V>(x + t.x_at + c, a[i]);
        elem_load_n<V>(x + t.x_at + half + c, b[i]);
#pragma unroll
        for (int k = 0; k < V; k++)
            square += a[i][k] * a[i][k] + b[i][k] * b[i][k];
    }
    float rstd = 1.0f;
    if (r.gamma) {
        rstd = 1.0f / sqrtf(lanes_sum(square, lanes) / (float)d + r.eps);
        if (real && t.kind < 2 && lane == 0)
            stats[t.row * (r.heads + r.kv_heads) + t.h] = rstd;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int c = (lane + i * lanes) * V;
        if (!real || c >= half)
            continue;
        if (t.kind < 2) {
            if (r.gamma) {
                float low[V], high[V];
                elem_load_n<V>(r.gamma + t.kind * d + c, low);
                elem_load_n<V>(r.gamma + t.kind * d + half + c, high);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    a[i][k] *= rstd * (r.plus + low[k]);
                    b[i][k] *= rstd * (r.plus + high[k]);
                }
            }
            turn_points<V>(r.angles + t.angles_at + 2 * c, 1.0f, a[i], b[i]);
        }
        for (int copy = 0; copy < t.times; copy++) {
            elem_store_n<V>(qkv + t.qkv_at + copy * d + c, a[i]);
            elem_store_n<V>(qkv + t.qkv_at + copy * d + half + c, b[i]);
        }
    }
}

/* parts[block][2][head_dim]: the block's sums of the gradients of gamma, with NORM. */
template <typename T, int V, int ITEMS, bool NORM>
static __global__ void __launch_bounds__(THREADS)
    turn_back(const struct rotary r, int lanes, int64_t tasks, const T *dqkv, const T *x,
              const float *stats, T *dx, float *parts)
{
    const int d = r.head_dim, half = d / 2, slots = THREADS / lanes;
    const int lane = (int)threadIdx.x % lanes, slot = (int)threadIdx.x / lanes;
    float dgamma[4][ITEMS][V]; /* of both halves of queries, then of keys; with NORM */
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int k = 0; k < ITEMS * V; k++)
            dgamma[i][k / V][k % V] = 0.0f;
    for (int64_t first = (int64_t)blockIdx.x * slots; first < tasks;
         first += (int64_t)gridDim.x * slots) {
        const bool real = first + slot < tasks;
        const struct head_task t = head_task_of(r, real ? first + slot : 0);
        float a[ITEMS][V], b[ITEMS][V], low[ITEMS][V], high[ITEMS][V], sum = 0.0f;
        const bool normed = NORM && real && t.kind < 2;
        const float rstd = normed ? stats[t.row * (r.heads + r.kv_heads) + t.h] : 0.0f;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const int c = (lane + i * lanes) * V;
            if (!real || c >= half)
                continue;
            if (normed) {
                elem_load_n<V>(x + t.x_at + c, low[i]);
                elem_load_n<V>(x + t.x_at + half + c, high[i]);
            }
            elem_load_n<V>(dqkv + t.qkv_at + c, a[i]);
            elem_load_n<V>(dqkv + t.qkv_at + half + c, b[i]);
#pragma unroll 4
            for (int copy = 1; copy < t.times; copy++) {
                float left[V], right[V];
                elem_load_n<V>(dqkv + t.qkv_at + copy * d + c, left);
                elem_load_n<V>(dqkv + t.qkv_at + copy * d + half + c, right);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    a[i][k] += left[k];
                    b[i][k] += right[k];
                }
            }
            if (t.kind < 2)
                turn_points<V>(r.angles + t.angles_at + 2 * c, -1.0f, a[i], b[i]);
            if (normed) {
                float low_scale[V], high_scale[V];
                elem_load_n<V>(r.gamma + t.kind * d + c, low_scale);
                elem_load_n<V>(r.gamma + t.kind * d + half + c, high_scale);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    low[i][k] *= rstd;
                    high[i][k] *= rstd;
                    const float of_low = a[i][k] * low[i][k], of_high = b[i][k] * high[i][k];
                    dgamma[0][i][k] += t.kind == 0 ? of_low : 0.0f;
                    dgamma[1][i][k] += t.kind == 0 ? of_high : 0.0f;
                    dgamma[2][i][k] += t.kind == 1 ? of_low : 0.0f;
                    dgamma[3][i][k] += t.kind == 1 ? of_high : 0.0f;
                    a[i][k] *= r.plus + low_scale[k];
                    b[i][k] *= r.plus + high_scale[k];
                    sum += a[i][k] * low[i][k] + b[i][k] * high[i][k];
                }
            }
        }
        const float mean = NORM ? lanes_sum(sum, lanes) / (float)d : 0.0f;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const int c = (lane + i * lanes) * V;
            if (!real || c >= half)
                continue;
#pragma unroll
            for (int k = 0; normed && k < V; k++) {
                a[i][k] = rstd * (a[i][k] - low[i][k] * mean);
                b[i][k] = rstd * (b[i][k] - high[i][k] * mean);
            }
            elem_store_n<V>(dx + t.x_at + c, a[i]);
            elem_store_n<V>(dx + t.x_at + half + c, b[i]);
        }
    }
    if constexpr (NORM) { /* add the block's slots in order */
        __shared__ float sums[THREADS * 4 * ITEMS * V];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int k = 0; k < ITEMS * V; k++) {
                const int c = (lane + k / V * lanes) * V + k % V;
                if (c < half)
                    sums[slot * 2 * d + i * half + c] = dgamma[i][k / V][k % V];
            }
        __syncthreads();
        for (int c = (int)threadIdx.x; c < 2 * d; c += THREADS) {
            float total = 0.0f;
            for (int s = 0; s < slots; s++)
                total += sums[s * 2 * d + c];
            parts[(int64_t)blockIdx.x * 2 * d + c] = total;
        }
    }
}

/* The split of a head over lanes: packs of 16 bytes if that is possible, else up to SINGLE_ITEMS
 * elements of each half a lane. lanes is 0 after recording that the head is too wide for that. */
enum { SINGLE_ITEMS = 8 };
struct head_split {
    bool wide;
    int lanes;
    int64_t tasks;
};
static struct head_split head_split_of(struct backend *be, const struct rotary *r,
                                       uintptr_t pointers)
{
    const int half = r->head_dim / 2, v = 16 / be->elem_bytes;
    struct head_split s = {half % v == 0 && half <= 32 * v && pointers % 16 == 0, 1,
                           r->num_samples * r->seq * (r->heads + 2 * r->kv_heads)};
    if (!s.wide && half > 32 * SINGLE_ITEMS) {
        cuda_note_text(ERR_INFEASIBLE, "cuda backend: no rotary kernel for head_dim %d",
                       r->head_dim);
        s.lanes = 0;
        return s;
    }
    while (s.lanes < 32 && s.lanes * (s.wide ? v : 1) < half)
        s.lanes *= 2;
    return s;
}
#define HEADS_PICK(be, wide, DO)                                                                   \
    CUDA_DTYPE(be, T, {                                                                            \
        if (wide)                                                                                  \
            DO(T, 16 / (int)sizeof(T), 1);                                                         \
        else                                                                                       \
            DO(T, 1, SINGLE_ITEMS);                                                                \
    })

static void rotary_forward(struct backend *be, const struct rotary *r, const void *x, void *qkv,
                           float *stats)
{
    const struct head_split s = head_split_of(
        be, r, (uintptr_t)x | (uintptr_t)qkv | (uintptr_t)r->angles | (uintptr_t)r->gamma);
    if (!s.lanes || s.tasks == 0)
        return;
#define TURN_HEADS(T, V, ITEMS)                                                                    \
    CUDA_LAUNCH((turn_heads<T, V, ITEMS>), cuda_blocks(s.tasks, THREADS / s.lanes, INT32_MAX),     \
                THREADS, 0, cuda_of(be)->stream, *r, s.lanes, s.tasks, (const T *)x, (T *)qkv,     \
                stats)
    HEADS_PICK(be, s.wide, TURN_HEADS);
}

static void rotary_backward(struct backend *be, const struct rotary *r, const void *dqkv,
                            const void *x, const float *stats, void *dx, float *part)
{
    const struct head_split s = head_split_of(be, r,
                                              (uintptr_t)dqkv | (uintptr_t)x | (uintptr_t)dx |
                                                  (uintptr_t)r->angles | (uintptr_t)r->gamma);
    if (!s.lanes || s.tasks == 0) {
        if (r->gamma && s.lanes)
            be->zero(be, part, 2 * r->head_dim * (int64_t)sizeof *part);
        return;
    }
    const int slots = THREADS / s.lanes;
    const int blocks = r->gamma ? cuda_blocks(s.tasks, 2 * slots, 8 * WAVE_SMS)
                                : cuda_blocks(s.tasks, slots, INT32_MAX);
    float *parts = NULL;
    if (r->gamma) {
        parts =
            (float *)cuda_scratch(be, (int64_t)blocks * 2 * r->head_dim * (int64_t)sizeof *parts);
        if (!parts)
            return;
    }
#define TURN_BACK(T, V, ITEMS)                                                                     \
    do {                                                                                           \
        if (parts)                                                                                 \
            CUDA_LAUNCH((turn_back<T, V, ITEMS, true>), blocks, THREADS, 0, cuda_of(be)->stream,   \
                        *r, s.lanes, s.tasks, (const T *)dqkv, (const T *)x, stats, (T *)dx,       \
                        parts);                                                                    \
        else                                                                                       \
            CUDA_LAUNCH((turn_back<T, V, ITEMS, false>), blocks, THREADS, 0, cuda_of(be)->stream,  \
                        *r, s.lanes, s.tasks, (const T *)dqkv, (const T *)x, stats, (T *)dx,       \
                        parts);                                                                    \
    } while (0)
    HEADS_PICK(be, s.wide, TURN_BACK);
    if (parts)
        cuda_fold(be, blocks, 2 * r->head_dim, parts, 1.0f, false, part);
}

/* --- gated activation ------------------------------------------------------------------------- */

/* Forward reads gate and up and writes their product, 6 bytes an element of y in bf16; backward
 * reads both and dy and writes two gradients, 10 bytes. */
template <typename T, int V, int ACT>
static __global__ void __launch_bounds__(THREADS)
    gate_rows(int64_t packs, int per_row, const T *x, T *y)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < packs;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t r = i / per_row, at = (i + r * per_row) * V;
        float gate[V], up[V];
        elem_load_n<V>(x + at, gate);
        elem_load_n<V>(x + at + (int64_t)per_row * V, up);
#pragma unroll
        for (int k = 0; k < V; k++)
            gate[k] = act_of<ACT, T>(gate[k]) * up[k];
        elem_store_n<V>(y + i * V, gate);
    }
}

template <typename T, int V, int ACT>
static __global__ void __launch_bounds__(THREADS)
    gate_rows_back(int64_t packs, int per_row, const T *x, const T *dy, T *dx)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < packs;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t r = i / per_row, at = (i + r * per_row) * V, next = at + (int64_t)per_row * V;
        float gate[V], up[V], grad[V];
        elem_load_n<V>(x + at, gate);
        elem_load_n<V>(x + next, up);
        elem_load_n<V>(dy + i * V, grad);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const float pre = gate[k];
            gate[k] = grad[k] * up[k] * act_grad_of<ACT, T>(pre);
            up[k] = grad[k] * act_of<ACT, T>(pre);
        }
        elem_store_n<V>(dx + at, gate);
        elem_store_n<V>(dx + next, up);
    }
}

#define GATE_WIDTH(T, wide, ACT, DO)                                                               \
    if (wide)                                                                                      \
        DO(T, 16 / (int)sizeof(T), ACT);                                                           \
    else                                                                                           \
        DO(T, 1, ACT);                                                                             \
    break
/* Calls DO(T, V, ACT) for the activations that a gate can have. */
#define GATE_PICK(be, act, wide, DO)                                                               \
    CUDA_DTYPE(be, T, {                                                                            \
        switch (act) {                                                                             \
        case ACT_GELU_ERF:                                                                         \
            GATE_WIDTH(T, wide, ACT_GELU_ERF, DO);                                                 \
        case ACT_GELU_TANH:                                                                        \
            GATE_WIDTH(T, wide, ACT_GELU_TANH, DO);                                                \
        default:                                                                                   \
            GATE_WIDTH(T, wide, ACT_SILU, DO);                                                     \
        }                                                                                          \
    })

struct gate_split {
    int64_t packs;
    int per_row, blocks;
    bool wide;
};
static struct gate_split gate_split_of(struct backend *be, int64_t rows, int cols,
                                       uintptr_t pointers)
{
    struct gate_split s;
    const int v = 16 / be->elem_bytes;
    s.wide = cols % v == 0 && pointers % 16 == 0;
    s.per_row = s.wide ? cols / v : cols;
    s.packs = rows * s.per_row;
    s.blocks = cuda_blocks(s.packs, THREADS, 64 * (int64_t)cuda_of(be)->num_sms);
    return s;
}

static void gate_forward(struct backend *be, int64_t rows, int cols, enum act act, const void *x,
                         void *y)
{
    const struct gate_split s = gate_split_of(be, rows, cols, (uintptr_t)x | (uintptr_t)y);
    if (s.packs <= 0)
        return;
#define GATE_ROWS(T, V, ACT)                                                                       \
    CUDA_LAUNCH((gate_rows<T, V, ACT>), s.blocks, THREADS, 0, cuda_of(be)->stream, s.packs,        \
                s.per_row, (const T *)x, (T *)y)
    GATE_PICK(be, act, s.wide, GATE_ROWS);
}

static void gate_backward(struct backend *be, int64_t rows, int cols, enum act act, const void *x,
                          const void *dy, void *dx)
{
    const struct gate_split s =
        gate_split_of(be, rows, cols, (uintptr_t)x | (uintptr_t)dy | (uintptr_t)dx);
    if (s.packs <= 0)
        return;
#define GATE_ROWS_BACK(T, V, ACT)                                                                  \
    CUDA_LAUNCH((gate_rows_back<T, V, ACT>), s.blocks, THREADS, 0, cuda_of(be)->stream, s.packs,   \
                s.per_row, (const T *)x, (const T *)dy, (T *)dx)
    GATE_PICK(be, act, s.wide, GATE_ROWS_BACK);
}

void cuda_decoder_install(struct backend *be)
{
    be->rmsnorm_forward = rmsnorm_forward;
    be->rmsnorm_backward = rmsnorm_backward;
    be->rotary_forward = rotary_forward;
    be->rotary_backward = rotary_backward;
    be->gate_forward = gate_forward;
    be->gate_backward = gate_backward;
}
