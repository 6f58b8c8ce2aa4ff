/* Elementwise kernels on activations and gradients.
 *
 * All are bound by memory and access 16 bytes at a time. add and accumulate read two elements and
 * write one. round reads 4 bytes and writes 2. dropout reads and writes one element, and computes a
 * random number from about 10 integer operations. Each has two versions: packs of 16 bytes, and
 * single elements for unaligned pointers.
 */
#include "exec/cuda/elem.cuh"

enum { THREADS = 256 };

/* Enough blocks to fill the device several times; the kernels loop over the rest. */
static int stride_blocks(struct backend *be, int64_t num, int per_thread)
{
    return cuda_blocks(num, (int64_t)THREADS * per_thread, 8 * (int64_t)cuda_of(be)->num_sms);
}

#define FOR_PACKS(i, num, V)                                                                       \
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * (V); i < (num);               \
         i += (int64_t)gridDim.x * THREADS * (V))

/* y += x. The last elements are added one by one. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS) add_elements(int64_t num, const T *x, T *y)
{
    FOR_PACKS(i, num, V)
    {
        if (i + V <= num) {
            float left[V], right[V];
            elem_load_n<V>(y + i, left);
            elem_load_n<V>(x + i, right);
#pragma unroll
            for (int k = 0; k < V; k++)
                left[k] += right[k];
            elem_store_n<V>(y + i, left);
        } else {
            for (int64_t k = i; k < num; k++)
                elem_store(y + k, elem_load(y + k) + elem_load(x + k));
        }
    }
}

template <typename T> static void launch_add(struct backend *be, int64_t num, const T *x, T *y)
{
    const int wide = 16 / (int)sizeof(T);
    if (num <= 0)
        return;
    if (((uintptr_t)x | (uintptr_t)y) % 16 == 0)
        CUDA_LAUNCH((add_elements<T, wide>), stride_blocks(be, num, wide), THREADS, 0,
                    cuda_of(be)->stream, num, x, y);
    else
        CUDA_LAUNCH((add_elements<T, 1>), stride_blocks(be, num, 1), THREADS, 0,
                    cuda_of(be)->stream, num, x, y);
}

static __global__ void __launch_bounds__(THREADS)
    scale_elements(int64_t num, float factor, float *x)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < num; i += step)
        x[i] *= factor;
}

static void scale(struct backend *be, int64_t num, float factor, float *x)
{
    if (num > 0)
        CUDA_LAUNCH(scale_elements, stride_blocks(be, num, 1), THREADS, 0, cuda_of(be)->stream, num,
                    factor, x);
}

static void accumulate(struct backend *be, int64_t num, const float *x, float *y)
{
    launch_add<float>(be, num, x, y);
}

static void add(struct backend *be, int64_t num, const void *x, void *y)
{
    CUDA_DTYPE(
        be, T, { launch_add<T>(be, num, (const T *)x, (T *)y); });
}

template <int V>
static __global__ void __launch_bounds__(THREADS)
    round_elements(int64_t num, const float *master, __nv_bfloat16 *low)
{
    FOR_PACKS(i, num, V)
    {
        if (i + V <= num) {
            float value[V];
            elem_load_n<V>(master + i, value);
            elem_store_n<V>(low + i, value);
        } else {
            for (int64_t k = i; k < num; k++)
                elem_store(low + k, master[k]);
        }
    }
}

static void round_weights(struct backend *be, int64_t num, const float *master, void *low)
{
    if (num <= 0)
        return;
    if (be->elem_bytes == 4)
        be->copy(be, low, master, num * (int64_t)sizeof *master);
    else if (((uintptr_t)master | (uintptr_t)low) % 16 == 0)
        CUDA_LAUNCH((round_elements<8>), stride_blocks(be, num, 8), THREADS, 0, cuda_of(be)->stream,
                    num, master, (__nv_bfloat16 *)low);
    else
        CUDA_LAUNCH((round_elements<1>), stride_blocks(be, num, 1), THREADS, 0, cuda_of(be)->stream,
                    num, master, (__nv_bfloat16 *)low);
}

/* One warp a row, so that a sample's key is mixed once a row. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    drop_rows(int64_t rows, int cols, const struct drop_args d, const T *x, T *y)
{
    const int lane = (int)threadIdx.x & 31;
    for (int64_t r = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; r < rows;
         r += (int64_t)gridDim.x * (THREADS / 32)) {
        const uint64_t key = drop_row_key(d, r / d.rows_per_sample);
        const uint32_t first = (uint32_t)(r % d.rows_per_sample * cols);
        for (int c = lane * V; c < cols; c += 32 * V) {
            float value[V];
            elem_load_n<V>(x + r * cols + c, value);
#pragma unroll
            for (int k = 0; k < V; k++)
                value[k] = drop_apply(d, key, first + (uint32_t)(c + k), value[k]);
            elem_store_n<V>(y + r * cols + c, value);
        }
    }
}

static void dropout(struct backend *be, int64_t rows, int cols, const struct dropout *drop,
                    const void *x, void *y)
{
    const struct drop_args d = drop_args_of(drop);
    if (rows <= 0 || (!d.limit && x == y))
        return;
    if (!d.limit) {
        be->copy(be, y, x, backend_bytes(be, rows * cols));
        return;
    }
    const int blocks = cuda_blocks(rows, THREADS / 32, 16 * (int64_t)cuda_of(be)->num_sms);
    const bool wide = backend_bytes(be, cols) % 16 == 0 && ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
    CUDA_DTYPE(be, T, {
        if (wide)
            CUDA_LAUNCH((drop_rows<T, 16 / (int)sizeof(T)>), blocks, THREADS, 0,
                        cuda_of(be)->stream, rows, cols, d, (const T *)x, (T *)y);
        else
            CUDA_LAUNCH((drop_rows<T, 1>), blocks, THREADS, 0, cuda_of(be)->stream, rows, cols, d,
                        (const T *)x, (T *)y);
    });
}

void cuda_elementwise_install(struct backend *be)
{
    be->add = add;
    be->accumulate = accumulate;
    be->scale = scale;
    be->round = round_weights;
    be->dropout = dropout;
}
