/* exec/cuda/elem.cuh - loads and stores of tensor elements in kernels (fp32 or bf16, computed with
 * in fp32), and dropout.
 *
 *   CUDA_DTYPE(be, T, { CUDA_LAUNCH((kernel<T>), ...); })   T is float or __nv_bfloat16, according
 * to the backend's element type CUDA_CASE(name, value, { ... })   one case of a switch over a
 * template argument; inside, `name` is the constant `value` */
#pragma once

#include <cuda_bf16.h>
#include <string.h>

#include "exec/base/rng.h"
#include "exec/cuda/launch.cuh"
#include "exec/cuda/ptx.cuh"

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

/* N neighbours in one access of N * sizeof(T) bytes (2, 4, 8 or 16); the pointer must be aligned to
 * that size. The access uses a built-in vector type, because nvcc may split a structure of elements
 * into several accesses. */
template <int BYTES> struct elem_word;
template <> struct elem_word<2> {
    typedef uint16_t type;
};
template <> struct elem_word<4> {
    typedef uint32_t type;
};
template <> struct elem_word<8> {
    typedef uint2 type;
};
template <> struct elem_word<16> {
    typedef uint4 type;
};
template <int N, typename T> struct alignas(N * sizeof(T)) elem_pack {
    T at[N];
};
template <int N, typename T>
static __device__ __forceinline__ elem_pack<N, T> elem_pack_load(const T *x)
{
    elem_pack<N, T> pack;
    const auto bits = *reinterpret_cast<const typename elem_word<sizeof pack>::type *>(x);
    memcpy(&pack, &bits, sizeof bits);
    return pack;
}
template <int N, typename T>
static __device__ __forceinline__ void elem_pack_store(T *y, const elem_pack<N, T> &pack)
{
    typename elem_word<sizeof pack>::type bits;
    memcpy(&bits, &pack, sizeof bits);
    *reinterpret_cast<decltype(bits) *>(y) = bits;
}
template <int N, typename T>
static __device__ __forceinline__ void elem_load_n(const T *x, float *to)
{
    const elem_pack<N, T> pack = elem_pack_load<N>(x);
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = elem_load(&pack.at[i]);
}
/* fp32 is loaded in fours, so a pointer to 8 elements needs alignment to 16 bytes only. */
template <int N> static __device__ __forceinline__ void elem_load_n(const float *x, float *to)
{
    const int EACH = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += EACH) {
        const elem_pack<EACH, float> pack = elem_pack_load<EACH>(x + i);
#pragma unroll
        for (int k = 0; k < EACH; k++)
            to[i + k] = pack.at[k];
    }
}
/* y is device memory. store_global_16() keeps each store a single instruction. */
template <int N> static __device__ __forceinline__ void elem_store_n(float *y, const float *from)
{
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4)
            store_global_16(y + i,
                            make_uint4(__float_as_uint(from[i]), __float_as_uint(from[i + 1]),
                                       __float_as_uint(from[i + 2]), __float_as_uint(from[i + 3])));
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            y[i] = from[i];
    }
}
template <int N>
static __device__ __forceinline__ void elem_store_n(__nv_bfloat16 *y, const float *from)
{
    if constexpr (N == 1) {
        elem_store(y, from[0]);
    } else { /* in pairs: one instruction rounds two elements */
        typename elem_word<2 * N>::type bits;
        __nv_bfloat162 pair[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            pair[i] = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
        memcpy(&bits, pair, sizeof bits);
        if constexpr (N == 8)
            store_global_16(y, bits);
        else
            *reinterpret_cast<decltype(bits) *>(y) = bits;
    }
}
template <int N> static __device__ __forceinline__ void elem_add_n(float *y, const float *x)
{
    float sum[N];
    elem_load_n<N>(y, sum);
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] += x[i];
    elem_store_n<N>(y, sum);
}

/* The sum over a warp, the same in all lanes. */
static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(~0u, x, step);
    return x;
}

/* Dropout with the counter of exec/base/backend.h. In a row of sample ids[row / rows_per_sample],
 * element c is kept if bits(key, index) >= limit, with index = (row % rows_per_sample) * cols + c.
 */
struct drop_args {
    const int64_t *ids;
    uint64_t key;
    int64_t rows_per_sample;
    uint32_t limit; /* 0: keep all elements */
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

/* The key of a sample's mask; compute it once per row. */
static __device__ __forceinline__ uint64_t drop_row_key(const struct drop_args &d, int64_t sample)
{
    return rng_mix(d.key ^ (uint64_t)d.ids[sample]);
}
static __device__ __forceinline__ float drop_apply(const struct drop_args &d, uint64_t row_key,
                                                   uint32_t index, float x)
{
    return rng_bits(row_key, index) >= d.limit ? x * d.up : 0.0f;
}
