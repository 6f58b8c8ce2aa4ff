/* Layer norm, forward and backward, one warp per row.
 *
 * If width, stride and addresses are multiples of 16 bytes, a row stays in registers between its
 * passes: lane l holds the 16-byte chunks l, l + 32, ... (norm_forward(), norm_backward()). The
 * *_any() kernels take any width and read the row several times. All are bound by memory. Forward
 * reads x and writes y (4 bytes an element in bf16). Backward reads dy, x and add and writes dx (8
 * bytes), and each block writes 2 * cols fp32 sums, which cuda_fold() then adds. Read
 * layernorm_forward() and layernorm_backward() first; they choose the kernel. */
#include "exec/cuda/columns.cuh"
#include "exec/cuda/elem.cuh"
#include "exec/cuda/cuda_scratch.h"

enum { WARPS = 4, THREADS = 32 * WARPS };

template <typename T> struct norm_pack {
    static const int V = 16 / (int)sizeof(T);
    typedef elem_pack<V, T> type;
};

template <typename T, int CHUNKS>
static __global__ void __launch_bounds__(THREADS)
    norm_forward(int64_t rows, int cols, int64_t ldx, const T *x, const float *gamma,
                 const float *beta, float eps, T *y, float *stats)
{
    const int V = norm_pack<T>::V, lane = (int)threadIdx.x & 31, chunks = cols / V;
    const int64_t r = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    float row[CHUNKS][V], sum = 0.0f, square = 0.0f;
    if (r >= rows)
        return;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        if (lane + 32 * i < chunks)
            elem_load_n<V>(x + r * ldx + (lane + 32 * i) * V, row[i]);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        if (lane + 32 * i < chunks)
#pragma unroll
            for (int k = 0; k < V; k++)
                sum += row[i][k];
    const float mean = warp_sum(sum) / (float)cols;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        if (lane + 32 * i < chunks)
#pragma unroll
            for (int k = 0; k < V; k++)
                square += (row[i][k] - mean) * (row[i][k] - mean);
    const float rstd = 1.0f / sqrtf(warp_sum(square) / (float)cols + eps);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        if (lane + 32 * i < chunks) {
            const int c = (lane + 32 * i) * V;
            float scale[V], shift[V];
            elem_load_n<V>(gamma + c, scale);
            elem_load_n<V>(beta + c, shift);
#pragma unroll
            for (int k = 0; k < V; k++)
                row[i][k] = (row[i][k] - mean) * rstd * scale[k] + shift[k];
            elem_store_n<V>(y + r * cols + c, row[i]);
        }
    if (stats && lane == 0) {
        stats[2 * r] = mean;
        stats[2 * r + 1] = rstd;
    }
}

/* For any width and alignment: reads the row three times. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    norm_forward_any(int64_t rows, int cols, int64_t ldx, const T *x, const float *gamma,
                     const float *beta, float eps, T *y, float *stats)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t r = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    float sum = 0.0f, square = 0.0f;
    if (r >= rows)
        return;
    const T *in = x + r * ldx;
    for (int c = lane; c < cols; c += 32)
        sum += elem_load(in + c);
    const float mean = warp_sum(sum) / (float)cols;
    for (int c = lane; c < cols; c += 32) {
        const float d = elem_load(in + c) - mean;
        square += d * d;
    }
    const float rstd = 1.0f / sqrtf(warp_sum(square) / (float)cols + eps);
    for (int c = lane; c < cols; c += 32)
        elem_store(y + r * cols + c, (elem_load(in + c) - mean) * rstd * gamma[c] + beta[c]);
    if (stats && lane == 0) {
        stats[2 * r] = mean;
        stats[2 * r + 1] = rstd;
    }
}

/* Blocks per SM that leave enough registers for a lane: it holds four rows of `elems` elements, of
 * dy, x and two sums. */
constexpr int norm_blocks(int elems)
{
    return elems <= 24 ? 4 : elems <= 32 ? 3 : 2;
}
/* Limit of the number of parts: the blocks of one wave on 128 SMs. It depends on shapes only, so
 * that the bits are the same on every device. */
enum { WAVE_SMS = 128 };

/* Index of a column in a row of sums in shared memory, in chunks of 32 V columns. The groups of
 * four of a lane are 32 groups apart, which avoids bank conflicts. */
template <int V> static __device__ __forceinline__ int norm_place(int column)
{
    const int in = column % (32 * V), lane = in / V, k = in % V;
    return column - in + (k / 4 * 32 + lane) * 4 + k % 4;
}
/* Adds a lane's V columns of chunk i to their sums. */
template <int V>
static __device__ __forceinline__ void norm_add(const float *row, int i, int lane, float *sums)
{
#pragma unroll
    for (int k = 0; k < V; k += 4) {
        float *at = sums + norm_place<V>((i * 32 + lane) * V + k);
        elem_pack<4, float> sum = elem_pack_load<4>(at);
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum.at[j] += row[k + j];
        elem_pack_store<4>(at, sum);
    }
}
/* Shared memory of norm_backward(): with `add`, one row of it per warp; with `part`, two strips of
 * columns per chunk, followed (if SUMS) by a row of sums per warp. */
template <typename T, int CHUNKS, bool SUMS>
static int norm_shared_bytes(const void *add, const float *part)
{
    const int V = norm_pack<T>::V, row = CHUNKS * 32 * V;
    const int floats = 2 * CHUNKS * column_strip<V>::FLOATS + (SUMS ? WARPS * row : 0);
    return (add ? WARPS * row * (int)sizeof(T) : 0) + (part ? floats * (int)sizeof(float) : 0);
}

/* dx = add + rstd (g - mean(g) - h mean(g h)), with g = dy gamma and h = (x - mean) rstd. A block
 * takes `per_block` rows and writes their sums of dy h and of dy to parts[block][2][cols], adding
 * its warps in order. With SUMS it is parts[block][3][cols]; the third row holds the column sums of
 * add, or without add those of dx before rounding, which are collected in shared memory. The
 * elements of dy and x stay in registers in packed form. No registers are left for add, so it is
 * copied to shared memory asynchronously meanwhile. */
template <typename T, int CHUNKS, bool SUMS>
static __global__ void __launch_bounds__(THREADS, norm_blocks(CHUNKS *norm_pack<T>::V))
    norm_backward(int64_t rows, int64_t per_block, int cols, int64_t ldx, const T *dy, const T *x,
                  const float *stats, const float *gamma, const T *add, T *dx, float *parts)
{
    typedef typename norm_pack<T>::type pack;
    const int V = norm_pack<T>::V, chunks = cols / V;
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    typedef column_strip<V> strip;
    CUDA_DYNAMIC_SHARED(T, added); /* norm_shared_bytes() */
    float *total = reinterpret_cast<float *>(added + (add ? WARPS * (CHUNKS * 32 * V) : 0));
    float *rows_of_warps = total + 2 * CHUNKS * strip::FLOATS;
    float *last = rows_of_warps + warp * (CHUNKS * 32 * V);
    T *base = added + warp * (CHUNKS * 32 * V) + lane * V; /* only this lane uses it */
    float dgamma[CHUNKS][V], dbeta[CHUNKS][V];
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
#pragma unroll
        for (int k = 0; k < V; k++)
            dgamma[i][k] = dbeta[i][k] = 0.0f;
    if (SUMS) {
        for (int c = lane; c < CHUNKS * 32 * V; c += 32)
            last[c] = 0.0f;
        __syncwarp();
    }
    const int64_t first = blockIdx.x * per_block;
    const int64_t end = first + per_block < rows ? first + per_block : rows;
    for (int64_t r = first + warp; r < end; r += WARPS) {
        pack grad[CHUNKS], in[CHUNKS];
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            if (add && lane + 32 * i < chunks)
                cp_async_16(base + 32 * i * V, add + r * ldx + (lane + 32 * i) * V, true);
        cp_async_commit();
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            if (lane + 32 * i < chunks) {
                const int c = (lane + 32 * i) * V;
                grad[i] = elem_pack_load<norm_pack<T>::V>(dy + r * cols + c);
                in[i] = elem_pack_load<norm_pack<T>::V>(x + r * ldx + c);
            }
        const float mean = stats[2 * r], rstd = stats[2 * r + 1];
        float sum_g = 0.0f, sum_gh = 0.0f;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            if (lane + 32 * i < chunks) {
                float scale[V];
                elem_load_n<V>(gamma + (lane + 32 * i) * V, scale);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    const float d = elem_load(&grad[i].at[k]);
                    const float h = (elem_load(&in[i].at[k]) - mean) * rstd;
                    dgamma[i][k] += d * h;
                    dbeta[i][k] += d;
                    sum_g += d * scale[k];
                    sum_gh += d * scale[k] * h;
                }
            }
        if (!dx && !SUMS)
            continue;
        const float mean_g = warp_sum(sum_g) / (float)cols;
        const float mean_gh = warp_sum(sum_gh) / (float)cols;
        cp_async_wait<0>();
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            if (lane + 32 * i < chunks) {
                const int c = (lane + 32 * i) * V;
                float out[V], scale[V];
#pragma unroll
                for (int k = 0; k < V; k++)
                    out[k] = 0.0f;
                if (add)
                    elem_load_n<V>(base + 32 * i * V, out);
                if (SUMS && add)
                    norm_add<V>(out, i, lane, last);
                elem_load_n<V>(gamma + c, scale);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    const float h = (elem_load(&in[i].at[k]) - mean) * rstd;
                    out[k] += rstd * (elem_load(&grad[i].at[k]) * scale[k] - mean_g - h * mean_gh);
                }
                if (SUMS && !add)
                    norm_add<V>(out, i, lane, last);
                if (!SUMS || dx)
                    elem_store_n<V>(dx + r * ldx + c, out);
            }
    }
    if (!parts)
        return;
    const int width = (SUMS ? 3 : 2) * cols;
    for (int w = 0; w < WARPS; w++) {
        if (warp == w)
#pragma unroll
            for (int i = 0; i < CHUNKS; i++)
                if (lane + 32 * i < chunks)
#pragma unroll
                    for (int k = 0; k < V; k++) {
                        float *gamma_sum = total + i * strip::FLOATS + strip::place(lane, k);
                        float *beta_sum = gamma_sum + CHUNKS * strip::FLOATS;
                        *gamma_sum = w ? *gamma_sum + dgamma[i][k] : dgamma[i][k];
                        *beta_sum = w ? *beta_sum + dbeta[i][k] : dbeta[i][k];
                    }
        __syncthreads();
    }
    float *part = parts + (int64_t)blockIdx.x * width;
    for (int c = (int)threadIdx.x; c < cols; c += THREADS) {
        const float *at = total + c / (32 * V) * strip::FLOATS + strip::place(c % (32 * V));
        part[c] = at[0];
        part[cols + c] = at[CHUNKS * strip::FLOATS];
        if (SUMS) {
            float sum = 0.0f;
            for (int w = 0; w < WARPS; w++)
                sum += rows_of_warps[w * (CHUNKS * 32 * V) + norm_place<V>(c)];
            part[2 * cols + c] = sum;
        }
    }
}

/* Sums for any width and alignment. Must run before norm_backward_any(), because dx may be x. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    norm_parts_any(int64_t rows, int64_t per_block, int cols, int64_t ldx, const T *dy, const T *x,
                   const float *stats, float *parts)
{
    const int c = (int)(blockIdx.y * THREADS + threadIdx.x);
    const int64_t first = blockIdx.x * per_block;
    const int64_t end = first + per_block < rows ? first + per_block : rows;
    float dgamma = 0.0f, dbeta = 0.0f;
    if (c >= cols)
        return;
    for (int64_t r = first; r < end; r++) {
        const float d = elem_load(dy + r * cols + c);
        dgamma += d * ((elem_load(x + r * ldx + c) - stats[2 * r]) * stats[2 * r + 1]);
        dbeta += d;
    }
    parts[(int64_t)blockIdx.x * 2 * cols + c] = dgamma;
    parts[((int64_t)blockIdx.x * 2 + 1) * cols + c] = dbeta;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    norm_backward_any(int64_t rows, int cols, int64_t ldx, const T *dy, const T *x,
                      const float *stats, const float *gamma, const T *add, T *dx)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t r = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (r >= rows)
        return;
    const T *grad = dy + r * cols, *in = x + r * ldx;
    const float mean = stats[2 * r], rstd = stats[2 * r + 1];
    float sum_g = 0.0f, sum_gh = 0.0f;
    for (int c = lane; c < cols; c += 32) {
        const float g = elem_load(grad + c) * gamma[c];
        sum_g += g;
        sum_gh += g * ((elem_load(in + c) - mean) * rstd);
    }
    const float mean_g = warp_sum(sum_g) / (float)cols;
    const float mean_gh = warp_sum(sum_gh) / (float)cols;
    for (int c = lane; c < cols; c += 32) {
        const float h = (elem_load(in + c) - mean) * rstd;
        const float base = add ? elem_load(add + r * ldx + c) : 0.0f;
        elem_store(dx + r * ldx + c,
                   base + rstd * (elem_load(grad + c) * gamma[c] - mean_g - h * mean_gh));
    }
}

/* --- host ----------------------------------------------------------------------------------- */

/* Chunks per lane if rows can stay in registers, else 0. */
static int norm_chunks(struct backend *be, int cols, int64_t ldx, uintptr_t pointers)
{
    const int v = 16 / be->elem_bytes, chunks = (cols + 32 * v - 1) / (32 * v);
    const bool fits = cols % v == 0 && ldx % v == 0 && pointers % 16 == 0 && chunks <= 8;
    return !fits ? 0 : chunks <= 4 ? chunks : chunks <= 6 ? 6 : 8;
}

/* Calls DO(T, CHUNKS) for 1, 2, 3, 4, 6 or 8 chunks. */
#define NORM_PICK(be, chunks, DO)                                                                  \
    CUDA_DTYPE(be, T, {                                                                            \
        switch (chunks) {                                                                          \
        case 1:                                                                                    \
            DO(T, 1);                                                                              \
            break;                                                                                 \
        case 2:                                                                                    \
            DO(T, 2);                                                                              \
            break;                                                                                 \
        case 3:                                                                                    \
            DO(T, 3);                                                                              \
            break;                                                                                 \
        case 4:                                                                                    \
            DO(T, 4);                                                                              \
            break;                                                                                 \
        case 6:                                                                                    \
            DO(T, 6);                                                                              \
            break;                                                                                 \
        default:                                                                                   \
            DO(T, 8);                                                                              \
            break;                                                                                 \
        }                                                                                          \
    })

static void layernorm_forward(struct backend *be, const struct layernorm *n, const void *x, void *y,
                              float *stats)
{
    const int cols = n->cols;
    const int64_t rows = n->rows, ldx = n->x_stride ? n->x_stride : cols;
    const float *gamma = n->gamma, *beta = n->beta, eps = n->eps;
    const int chunks = norm_chunks(
        be, cols, ldx, (uintptr_t)x | (uintptr_t)y | (uintptr_t)gamma | (uintptr_t)beta);
    const int blocks = cuda_blocks(rows, WARPS, INT32_MAX);
    cudaStream_t stream = cuda_of(be)->stream;
    if (rows <= 0)
        return;
    if (!chunks) {
        CUDA_DTYPE(be, T, {
            CUDA_LAUNCH((norm_forward_any<T>), blocks, THREADS, 0, stream, rows, cols, ldx,
                        (const T *)x, gamma, beta, eps, (T *)y, stats);
        });
        return;
    }
#define NORM_FORWARD(T, CHUNKS)                                                                    \
    CUDA_LAUNCH((norm_forward<T, CHUNKS>), blocks, THREADS, 0, stream, rows, cols, ldx,            \
                (const T *)x, gamma, beta, eps, (T *)y, stats)
    NORM_PICK(be, chunks, NORM_FORWARD);
}

static void layernorm_backward(struct backend *be, const struct layernorm *n, const void *dy,
                               const void *x, const float *stats, const void *add, void *dx,
                               float *part)
{
    const int cols = n->cols;
    const int64_t rows = n->rows, ldx = n->x_stride ? n->x_stride : cols;
    const float *gamma = n->gamma;
    const bool sums = n->sums;
    const int chunks = norm_chunks(be, cols, ldx,
                                   (uintptr_t)dy | (uintptr_t)x | (uintptr_t)gamma |
                                       (uintptr_t)add | (uintptr_t)dx);
    cudaStream_t stream = cuda_of(be)->stream;
    if (!dx && !part)
        return;
    if (!dx && !sums)
        add = NULL;
    const int part_rows = sums ? 3 : 2;
    float *last = sums ? part + 2 * cols : NULL;
    if (rows <= 0) {
        if (part)
            be->zero(be, part, part_rows * cols * (int64_t)sizeof *part);
        return;
    }
    /* Sum add before the kernel, because dx may be add. */
    if (last && add && !chunks)
        cuda_column_sums(be, rows, cols, ldx, add, 1.0f, false, last);
    const int most = WAVE_SMS * norm_blocks(chunks * 16 / be->elem_bytes);
    const int64_t wanted = cuda_blocks(rows, 2 * WARPS, most);
    const int64_t per_block = (rows + wanted - 1) / wanted;
    const int num_parts = (int)((rows + per_block - 1) / per_block);
    float *parts = NULL;
    if (part) {
        parts = (float *)cuda_scratch(be, (int64_t)num_parts * part_rows * cols *
                                              (int64_t)sizeof *parts);
        if (!parts)
            return;
    }
    if (chunks) {
#define NORM_BACKWARD(T, CHUNKS, SUMS)                                                             \
    do {                                                                                           \
        const int shared = norm_shared_bytes<T, CHUNKS, SUMS>(add, part);                          \
        if (shared > 48 * 1024)                                                                    \
            CUDA_ALLOW_SHARED((norm_backward<T, CHUNKS, SUMS>), shared);                           \
        CUDA_LAUNCH((norm_backward<T, CHUNKS, SUMS>), num_parts, THREADS, shared, stream, rows,    \
                    per_block, cols, ldx, (const T *)dy, (const T *)x, stats, gamma,               \
                    (const T *)add, (T *)dx, parts);                                               \
    } while (0)
#define NORM_BACKWARD_PLAIN(T, CHUNKS) NORM_BACKWARD(T, CHUNKS, false)
#define NORM_BACKWARD_SUMS(T, CHUNKS) NORM_BACKWARD(T, CHUNKS, true)
        if (sums)
            NORM_PICK(be, chunks, NORM_BACKWARD_SUMS);
        else
            NORM_PICK(be, chunks, NORM_BACKWARD_PLAIN);
    } else {
        const dim3 grid((unsigned)num_parts, (unsigned)((cols + THREADS - 1) / THREADS));
        CUDA_DTYPE(be, T, {
            if (part)
                CUDA_LAUNCH((norm_parts_any<T>), grid, THREADS, 0, stream, rows, per_block, cols,
                            ldx, (const T *)dy, (const T *)x, stats, parts);
            if (dx)
                CUDA_LAUNCH((norm_backward_any<T>), cuda_blocks(rows, WARPS, INT32_MAX), THREADS, 0,
                            stream, rows, cols, ldx, (const T *)dy, (const T *)x, stats, gamma,
                            (const T *)add, (T *)dx);
        });
    }
    if (part)
        cuda_fold(be, num_parts, (chunks ? part_rows : 2) * cols, parts, 1.0f, false, part);
    if (last && !add && !chunks)
        cuda_column_sums(be, rows, cols, ldx, dx, 1.0f, false, last);
}

void cuda_norm_install(struct backend *be)
{
    be->layernorm_forward = layernorm_forward;
    be->layernorm_backward = layernorm_backward;
    be->sums_norm = true;
}
