/* exec/cuda/cuda_sums.cu - sums in a fixed order: column sums of a matrix (gradients of biases),
 * and sums of squares of many tensors (norms). A block sums a part of fixed size; the parts are
 * then added in order. */
#include "exec/cuda/columns.cuh"
#include "exec/cuda/squares.cuh"
#include "exec/cuda/cuda_scratch.h"

/* --- parts ------------------------------------------------------------------------------------ */

enum { FOLD_COLS = 32, FOLD_RUNS = 32 };
static __global__ void __launch_bounds__(FOLD_COLS *FOLD_RUNS)
    fold_parts(int64_t num_parts, int64_t cols, const float *parts, float scale, bool add,
               float *dst)
{
    __shared__ float runs[FOLD_RUNS][FOLD_COLS];
    const int lane = (int)threadIdx.x % FOLD_COLS, run = (int)threadIdx.x / FOLD_COLS;
    const int64_t c = (int64_t)blockIdx.x * FOLD_COLS + lane;
    float sum = 0.0f;
    if (c < cols)
#pragma unroll 8
        for (int64_t p = run; p < num_parts; p += FOLD_RUNS)
            sum += parts[p * cols + c];
    runs[run][lane] = sum;
    __syncthreads();
    if (run > 0 || c >= cols)
        return;
    for (int i = 1; i < FOLD_RUNS; i++)
        sum += runs[i][lane];
    dst[c] = add ? dst[c] + scale * sum : scale * sum;
}

void cuda_fold(struct backend *be, int64_t num_parts, int64_t cols, const float *parts, float scale,
               bool add, float *dst)
{
    CUDA_LAUNCH(fold_parts, cuda_blocks(cols, FOLD_COLS, INT32_MAX), FOLD_COLS * FOLD_RUNS, 0,
                cuda_of(be)->stream, num_parts, cols, parts, scale, add, dst);
}

/* --- columns ---------------------------------------------------------------------------------- */

/* Column sums of a part of the rows. Used for a bias gradient that no other kernel has summed on
 * its way. */
template <int V, typename T>
static __global__ void __launch_bounds__(COLUMN_THREADS)
    column_parts(int64_t rows, int64_t per_part, int64_t cols, int64_t ld, const T *x, float *parts)
{
    const int64_t col = column_of_lane<V>(), first = blockIdx.y * per_part;
    const int64_t end = first + per_part < rows ? first + per_part : rows;
    float sum[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        sum[i] = 0.0f;
    if (col < cols)
#pragma unroll 4
        for (int64_t r = first + threadIdx.x / 32; r < end; r += COLUMN_WARPS) {
            float value[V];
            elem_load_n<V>(x + r * ld + col, value);
#pragma unroll
            for (int i = 0; i < V; i++)
                sum[i] += value[i];
        }
    column_store<V>(sum, cols, parts);
}

template <int V, typename T>
static void column_sums(struct backend *be, int64_t rows, int64_t cols, int64_t ld, const T *x,
                        float scale, bool add, float *sums)
{
    const struct column_split split = column_split_of(rows, cols, V);
    float *parts = (float *)cuda_scratch(be, split.num_parts * cols * (int64_t)sizeof *parts);
    if (!parts)
        return;
    CUDA_LAUNCH((column_parts<V, T>), column_grid(split), COLUMN_THREADS, 0, cuda_of(be)->stream,
                rows, split.per_part, cols, ld, x, parts);
    cuda_fold(be, split.num_parts, cols, parts, scale, add, sums);
}

void cuda_column_sums(struct backend *be, int64_t rows, int64_t cols, int64_t ld, const void *x,
                      float scale, bool add, float *sums)
{
    if (cols <= 0)
        return;
    if (rows <= 0) {
        if (!add)
            be->zero(be, sums, cols * (int64_t)sizeof *sums);
        return;
    }
    CUDA_DTYPE(be, T, {
        const int V = 16 / sizeof(T);
        if (cols % V == 0 && ld % V == 0 && (uintptr_t)x % 16 == 0)
            column_sums<V, T>(be, rows, cols, ld, (const T *)x, scale, add, sums);
        else
            column_sums<1, T>(be, rows, cols, ld, (const T *)x, scale, add, sums);
    });
}

/* --- squares ---------------------------------------------------------------------------------- */

enum { SQUARES_AHEAD = 4 }; /* loads in flight per thread */

/* A list of tensors, passed by value: it fits in the 4 KiB of a kernel's arguments. */
struct square_list {
    int count;
    const float *x[SQUARE_TENSORS];
    int64_t num[SQUARE_TENSORS];
    int first_part[SQUARE_TENSORS + 1];
};
struct part_list {
    int first[SQUARE_TENSORS + 1];
};

static __global__ void __launch_bounds__(SQUARE_THREADS)
    square_parts(const struct square_list list, double *parts)
{
    int t = 0;
    while (t + 1 < list.count && (int)blockIdx.x >= list.first_part[t + 1])
        t++;
    const int64_t first = (int64_t)((int)blockIdx.x - list.first_part[t]) * SQUARE_PART;
    const int64_t end = first + SQUARE_PART < list.num[t] ? first + SQUARE_PART : list.num[t];
    const float *x = list.x[t];
    const bool wide = (uintptr_t)x % 16 == 0;
    const int turn = SQUARE_THREADS * 4, tid = (int)threadIdx.x;
    double sum = 0.0;
    if (wide && end - first == SQUARE_PART) {
        for (int64_t i = first + tid * 4; i < end; i += SQUARES_AHEAD * turn) {
            float fours[SQUARES_AHEAD][4];
#pragma unroll
            for (int a = 0; a < SQUARES_AHEAD; a++)
                elem_load_n<4>(x + i + a * turn, fours[a]);
#pragma unroll
            for (int a = 0; a < SQUARES_AHEAD; a++)
                sum = square_four(sum, fours[a]);
        }
    } else {
        FOR_FOURS(i, first, end)
        {
            float four[4];
            load_four(wide, x, i, end, four);
            sum = square_four(sum, four);
        }
    }
    square_store(sum, parts);
}

static __global__ void __launch_bounds__(SQUARE_THREADS)
    add_square_parts(const struct part_list list, const double *parts, double *sums)
{
    const int t = blockIdx.x;
    double sum = 0.0;
    for (int p = list.first[t] + (int)threadIdx.x; p < list.first[t + 1]; p += SQUARE_THREADS)
        sum += parts[p];
    square_store(sum, sums);
}

void cuda_add_squares(struct backend *be, int count, const int *first, const double *parts,
                      double *sums)
{
    struct part_list list;
    memcpy(list.first, first, ((size_t)count + 1) * sizeof *first);
    CUDA_LAUNCH(add_square_parts, count, SQUARE_THREADS, 0, cuda_of(be)->stream, list, parts, sums);
}

static int num_parts(int64_t num)
{
    return (int)((num + SQUARE_PART - 1) / SQUARE_PART);
}

static enum status sumsq_many(struct backend *be, int count, const int64_t *num,
                              const float *const *x, double *sums, struct err *err)
{
    int64_t total = 0;
    for (int t = 0; t < count; t++)
        total += num_parts(num[t]);
    double *results = (double *)cuda_scratch(be, (count + total) * (int64_t)sizeof *results);
    if (!results)
        return be->sync(be, err);
    double *parts = results + count;
    for (int first = 0; first < count; first += SQUARE_TENSORS) {
        struct square_list list;
        list.count = count - first < SQUARE_TENSORS ? count - first : SQUARE_TENSORS;
        list.first_part[0] = 0;
        for (int t = 0; t < list.count; t++) {
            list.x[t] = x[first + t];
            list.num[t] = num[first + t];
            list.first_part[t + 1] = list.first_part[t] + num_parts(list.num[t]);
        }
        const int blocks = list.first_part[list.count];
        if (blocks > 0)
            CUDA_LAUNCH(square_parts, (unsigned)blocks, SQUARE_THREADS, 0, cuda_of(be)->stream,
                        list, parts);
        cuda_add_squares(be, list.count, list.first_part, parts, results + first);
        parts += blocks;
    }
    be->copy_out(be, sums, results, count * (int64_t)sizeof *sums);
    return be->sync(be, err);
}

void cuda_sums_install(struct backend *be)
{
    be->sumsq_many = sumsq_many;
}
