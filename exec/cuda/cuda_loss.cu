/* Cross-entropy and its gradient, in place, one block per row.
 *
 * A first pass keeps a running maximum and sum per thread (Milakov and Gimelshein, 2018), which are
 * then folded in a fixed order. A second pass replaces the logits by softmax - target.
 * Probabilities are stored nowhere else. The kernel is bound by memory: a row is read once and
 * written once, 4 bytes a logit in bf16. Between the passes a long row is held in shared memory if
 * two blocks per SM fit (50257 classes are 98 KiB in bf16), because the rows in flight (26 MB on an
 * H100) would not all stay in L2. Short rows, and long ones on smaller devices, are read again.
 * Read xent_rows() first. */
#include "exec/cuda/elem.cuh"

#include <math.h>

#include "exec/cuda/ptx.cuh"
#include "exec/cuda/cuda_scratch.h"

enum {
    IGNORED = -100,
    MAX_WARPS = 16,
    AHEAD = 4,             /* packs that a thread loads before it uses the first */
    HELD_BYTES = 16 << 10, /* rows of at least this size are held in shared memory */
};

struct row_result {
    double loss;
    int32_t counted, correct;
};

struct running {
    float max, sum; /* sum: of exp(x - max) */
    int best; /* first class with the maximum; while a row is read, the first class of that class's
                 pack */
};

#define LOG2_E 1.4426950408889634f

/* exp(x - max). It is exactly 1 for x = max, so that the loss of a class with probability 1 is 0.
 */
template <typename T> static __device__ __forceinline__ float loss_exp(float x, float max)
{
    return sizeof(T) == 2 ? exp2_approx((x - max) * LOG2_E) : expf(x - max);
}

template <typename T>
static __device__ __forceinline__ struct running running_merge(struct running a, struct running b)
{
    struct running out;
    out.max = fmaxf(a.max, b.max);
    out.best = b.max > a.max || (b.max == a.max && b.best < a.best) ? b.best : a.best;
    out.sum = a.sum;
    if (out.max > -INFINITY)
        out.sum = a.sum * loss_exp<T>(a.max, out.max) + b.sum * loss_exp<T>(b.max, out.max);
    return out;
}

/* Merges the states of the warp in a fixed order. Lane 0 returns the result. */
template <typename T>
static __device__ __forceinline__ struct running running_fold(struct running run)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        struct running other;
        other.max = __shfl_down_sync(~0u, run.max, step);
        other.sum = __shfl_down_sync(~0u, run.sum, step);
        other.best = __shfl_down_sync(~0u, run.best, step);
        run = running_merge<T>(run, other);
    }
    return run;
}

/* Adds N neighbouring classes from `first` on; a thread must add its classes in ascending order. If
 * the new maximum is among them, best becomes `first`. */
template <typename T, int N>
static __device__ __forceinline__ void running_add(struct running *run, const float *x, int first)
{
    float max = x[0];
#pragma unroll
    for (int i = 1; i < N; i++)
        max = fmaxf(max, x[i]);
    if (max > run->max) {
        run->sum *= loss_exp<T>(run->max, max);
        run->max = max;
        run->best = first;
    }
    if (run->max > -INFINITY)
#pragma unroll
        for (int i = 0; i < N; i++)
            run->sum += loss_exp<T>(x[i], run->max);
}

/* exp(x - max) / sum. For bf16, max and sum are folded into one exponent, which leaves two
 * instructions with a relative error of about 2^-18, while bf16 keeps 2^-9. */
struct row_softmax {
    float shift, inv;
};
template <typename T>
static __device__ __forceinline__ struct row_softmax row_softmax_of(const struct running &run)
{
    if (sizeof(T) == 2)
        return {run.max * LOG2_E + log2f(run.sum), 1.0f};
    return {run.max, 1.0f / run.sum};
}
template <typename T>
static __device__ __forceinline__ float row_share(const struct row_softmax &s, float x)
{
    return sizeof(T) == 2 ? exp2_approx(fmaf(x, LOG2_E, -s.shift)) : expf(x - s.shift) * s.inv;
}

static __device__ __forceinline__ double warp_sum(double x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_down_sync(~0u, x, step);
    return x;
}

/* N: the elements in 16 bytes if classes are adjacent in memory, else 1. HELD: the packs of the row
 * are held in shared memory, where each thread reads only its own. */
template <typename T, int N, bool HELD>
static __global__ void __launch_bounds__(32 * MAX_WARPS, 2)
    xent_rows(const struct xent x, const int32_t *labels, T *logits, struct row_result *results)
{
    __shared__ struct running warp_run[MAX_WARPS];
    __shared__ double warp_logits[MAX_WARPS];
    CUDA_DYNAMIC_SHARED(T, held);
    const int tid = (int)threadIdx.x, threads = (int)blockDim.x, lane = tid & 31, warp = tid >> 5;
    const int64_t r = blockIdx.x;
    const int n = x.classes;
    const int64_t stride = N > 1 ? 1 : x.class_stride;
    T *row = logits + (r / x.group) * x.group_stride + (r % x.group) * x.row_stride;
    const int32_t label = labels[r];
    if (label == IGNORED) {
        for (int c = tid; c < n; c += threads)
            elem_store(row + c * stride, 0.0f);
        if (tid == 0)
            results[r] = {0.0, 0, 0};
        return;
    }
    /* Single elements up to the first multiple of 16 bytes, then packs, then the remaining
     * elements. */
    const int ahead = N > 1 ? (int)((16 - (uintptr_t)row % 16) % 16 / sizeof(T)) : 0;
    const int head = ahead < n ? ahead : n, packs = (n - head) / N, tail = head + packs * N;
    struct running run = {-INFINITY, 0.0f, 0};
    double sum_logits = 0.0;
    const float target = elem_load(row + label * stride);
    if (tid < head) {
        const float value = elem_load(row + tid);
        running_add<T, 1>(&run, &value, tid);
        sum_logits += value;
    }
    for (int i0 = tid; i0 < packs; i0 += AHEAD * threads) {
        elem_pack<N, T> ahead[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (i0 + a * threads < packs)
                ahead[a] =
                    elem_pack_load<N>(row + head + (i0 + a * threads) * (N > 1 ? N : stride));
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const int i = i0 + a * threads;
            float value[N];
            if (i >= packs)
                break;
            if (HELD)
                elem_pack_store<N>(held + i * N, ahead[a]);
#pragma unroll
            for (int k = 0; k < N; k++)
                value[k] = elem_load(&ahead[a].at[k]);
            running_add<T, N>(&run, value, head + i * N);
            if (x.smoothing > 0.0f)
#pragma unroll
                for (int k = 0; k < N; k++)
                    sum_logits += value[k];
        }
    }
    if (N > 1 && run.max > -INFINITY && run.best >= head) { /* find the class within its pack */
        float value[N];
        elem_load_n<N>(HELD ? held + (run.best - head) : row + run.best, value);
        int k = 0;
        while (k < N - 1 && value[k] != run.max)
            k++;
        run.best += k;
    }
    if (tail + tid < n) {
        const float value = elem_load(row + tail + tid);
        running_add<T, 1>(&run, &value, tail + tid);
        sum_logits += value;
    }
    run = running_fold<T>(run);
    sum_logits = warp_sum(sum_logits);
    if (lane == 0) {
        warp_run[warp] = run;
        warp_logits[warp] = sum_logits;
    }
    __syncthreads();
    run = running_fold<T>(lane < threads / 32 ? warp_run[lane] : running{-INFINITY, 0.0f, 0});
    run.max = __shfl_sync(~0u, run.max, 0);
    run.sum = __shfl_sync(~0u, run.sum, 0);
    run.best = __shfl_sync(~0u, run.best, 0);
    if (tid == 0) {
        const double lse = (double)run.max + log((double)run.sum);
        double loss = lse - (double)target;
        if (x.smoothing > 0.0f) {
            sum_logits = warp_logits[0];
            for (int w = 1; w < threads / 32; w++)
                sum_logits += warp_logits[w];
            loss =
                (1.0 - (double)x.smoothing) * loss + (double)x.smoothing * (lse - sum_logits / n);
        }
        results[r] = {loss, 1, run.best == label};
    }
    const float even = x.smoothing / (float)n, hit = 1.0f - x.smoothing;
    const struct row_softmax softmax = row_softmax_of<T>(run);
    if (tid < head) {
        const float p = row_share<T>(softmax, elem_load(row + tid)) - even;
        elem_store(row + tid, tid == label ? p - hit : p);
    }
#pragma unroll 4
    for (int i = tid; i < packs; i += threads) {
        float value[N];
        if (N > 1)
            elem_load_n<N>(HELD ? held + i * N : row + head + i * N, value);
        else
            value[0] = elem_load(row + i * stride);
#pragma unroll
        for (int k = 0; k < N; k++)
            value[k] = row_share<T>(softmax, value[k]) - even;
        if (N > 1)
            elem_store_n<N>(row + head + i * N, value);
        else
            elem_store(row + i * stride, value[0]);
    }
    /* The element of the label is stored again, by the thread that stored its pack. */
    if (label >= head && label < tail && (label - head) / N % threads == tid)
        elem_store(row + label * stride, row_share<T>(softmax, target) - even - hit);
    if (tail + tid < n) {
        const float p = row_share<T>(softmax, elem_load(row + tail + tid)) - even;
        elem_store(row + tail + tid, tail + tid == label ? p - hit : p);
    }
}

/* Sums the results of all rows in one block: thread t sums rows t, t + 256, ..., then the threads
 * are added pairwise. */
enum { FOLD_THREADS = 256 };
static __global__ void __launch_bounds__(FOLD_THREADS)
    xent_fold(int64_t rows, const struct row_result *results, struct xent_sums *sums)
{
    __shared__ double loss[FOLD_THREADS];
    __shared__ int64_t count[FOLD_THREADS], correct[FOLD_THREADS];
    const int tid = (int)threadIdx.x;
    double my_loss = 0.0;
    int64_t my_count = 0, my_correct = 0;
#pragma unroll 4
    for (int64_t r = tid; r < rows; r += FOLD_THREADS) {
        const struct row_result row = results[r];
        my_loss += row.loss;
        my_count += row.counted;
        my_correct += row.correct;
    }
    loss[tid] = my_loss;
    count[tid] = my_count;
    correct[tid] = my_correct;
    for (int half = FOLD_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (tid < half) {
            loss[tid] += loss[tid + half];
            count[tid] += count[tid + half];
            correct[tid] += correct[tid + half];
        }
    }
    if (tid == 0)
        *sums = {loss[0], count[0], correct[0]};
}

template <typename T>
static void launch_rows(struct backend *be, const struct xent *x, const int32_t *labels, T *logits,
                        struct row_result *results)
{
    /* besides: limit of the bytes of the block's other shared memory. */
    const int N = 16 / (int)sizeof(T), besides = 2 << 10;
    const bool wide = x->class_stride == 1;
    const int packs = wide ? x->classes / N : x->classes, bytes = packs * 16;
    cudaStream_t stream = cuda_of(be)->stream;
    /* A block grows only if each thread gets at least three packs, because folding costs about as
     * much. The size depends on shapes only, and so do the bits. */
    const int threads = packs >= 3 * 512 ? 512 : packs >= 3 * 256 ? 256 : packs > 64 ? 128 : 32;
    if (!wide) {
        CUDA_LAUNCH((xent_rows<T, 1, false>), (unsigned)x->rows, threads, 0, stream, *x, labels,
                    logits, results);
    } else if (bytes >= HELD_BYTES && 2 * (bytes + besides) <= cuda_of(be)->shared_bytes) {
        CUDA_ALLOW_SHARED((xent_rows<T, 16 / (int)sizeof(T), true>), bytes);
        CUDA_LAUNCH((xent_rows<T, 16 / (int)sizeof(T), true>), (unsigned)x->rows, threads, bytes,
                    stream, *x, labels, logits, results);
    } else {
        CUDA_LAUNCH((xent_rows<T, 16 / (int)sizeof(T), false>), (unsigned)x->rows, threads, 0,
                    stream, *x, labels, logits, results);
    }
}

static void xent(struct backend *be, const struct xent *x, const int32_t *labels, void *logits,
                 struct xent_sums *sums)
{
    cudaStream_t stream = cuda_of(be)->stream;
    struct row_result *results = (struct row_result *)cuda_scratch(
        be, (x->rows > 0 ? x->rows : 1) * (int64_t)sizeof *results);
    if (!results)
        return;
    if (x->rows > 0)
        CUDA_DTYPE(be, T, { launch_rows<T>(be, x, labels, (T *)logits, results); });
    CUDA_LAUNCH(xent_fold, 1, FOLD_THREADS, 0, stream, x->rows, (const struct row_result *)results,
                sums);
}

void cuda_loss_install(struct backend *be)
{
    be->xent = xent;
}
