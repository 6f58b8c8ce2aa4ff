/* exec/cuda/elem.cuh - elements of tensors in kernels: fp32 or bf16, computed with in fp32; and the
 * dropout of exec/rng.h.
 *
 *   CUDA_DTYPE(be, T, { CUDA_LAUNCH((kernel<T>), ...); })   T: float or __nv_bfloat16, by the
 *       backend's element type
 *   CUDA_CASE(name, value, { ... })   one case of a switch over a template argument: `name` is the
 *       constant `value` inside */
#ifndef ELAPSE_EXEC_CUDA_ELEM_CUH
#define ELAPSE_EXEC_CUDA_ELEM_CUH

#include <cuda_bf16.h>

#include "exec/cuda/launch.cuh"
#include "exec/rng.h"

#define CUDA_DTYPE(be, T, ...)                                                                     \
    do {                                                                                           \
        if ((be)->elem_bytes == 2) {                                                               \
            typedef __nv_bfloat16 T;                                                               \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            typedef float T;                                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

#define CUDA_CASE(name, value, ...)                                                                \
    case value: {                                                                                  \
        constexpr auto name = value;                                                               \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }

static __device__ __forceinline__ float elem_load(const float *x)
{
    return *x;
}
static __device__ __forceinline__ float elem_load(const __nv_bfloat16 *x)
{
    return __bfloat162float(*x);
}
static __device__ __forceinline__ void elem_store(float *y, float value)
{
    *y = value;
}
static __device__ __forceinline__ void elem_store(__nv_bfloat16 *y, float value)
{
    *y = __float2bfloat16_rn(value);
}

/* N neighbours in one access of N * sizeof(T) bytes (4, 8 or 16), to which the pointer must be
 * aligned. */
template <int N, typename T> struct alignas(N * sizeof(T)) elem_pack {
    T at[N];
};
template <int N, typename T>
static __device__ __forceinline__ void elem_load_n(const T *x, float *to)
{
    const elem_pack<N, T> pack = *reinterpret_cast<const elem_pack<N, T> *>(x);
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = elem_load(&pack.at[i]);
}
template <int N, typename T>
static __device__ __forceinline__ void elem_store_n(T *y, const float *from)
{
    elem_pack<N, T> pack;
#pragma unroll
    for (int i = 0; i < N; i++)
        elem_store(&pack.at[i], from[i]);
    *reinterpret_cast<elem_pack<N, T> *>(y) = pack;
}

/* Dropout of exec/backend.h's counter: on a row of sample ids[row / rows_per_sample], element c is
 * kept where bits(key, index) >= limit, index = (row % rows_per_sample) * cols + c. */
struct drop_args {
    const int64_t *ids;
    uint64_t key;
    int64_t rows_per_sample;
    uint32_t limit; /* 0: keep all */
    float up;       /* 1 / (1 - p) */
};

static inline struct drop_args drop_args_of(const struct dropout *drop)
{
    struct drop_args d = {NULL, 0, 1, 0, 1.0f};
    if (drop && drop->p > 0.0f) {
        d.ids = drop->ids;
        d.key = drop->key;
        d.rows_per_sample = drop->rows_per_sample;
        d.limit = (uint32_t)((double)drop->p * 4294967296.0);
        d.up = 1.0f / (1.0f - drop->p);
    }
    return d;
}

/* Of a sample, once a row. */
static __device__ __forceinline__ uint64_t drop_row_key(const struct drop_args &d, int64_t sample)
{
    return rng_mix(d.key ^ (uint64_t)d.ids[sample]);
}
static __device__ __forceinline__ float drop_apply(const struct drop_args &d, uint64_t row_key,
                                                   uint32_t index, float x)
{
    return rng_bits(row_key, index) >= d.limit ? x * d.up : 0.0f;
}

#endif
