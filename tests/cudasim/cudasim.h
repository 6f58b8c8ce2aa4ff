/* tests/cudasim/cudasim.h - CUDA C on the CPU, for tests: what a kernel needs beside the real
 * headers, when exec/cuda/<file>.cu is compiled by g++ (-x c++ -std=c++17 -DELAPSE_CUDASIM -include
 * this header).
 *
 * One block runs at a time and each of its threads is a fiber, so __shared__ is a static variable.
 * A fiber runs until it waits: at __syncthreads(), or in a collective of its warp (shuffle, vote,
 * __syncwarp, mma, ldmatrix), which is computed when its last lane comes. The order of warps and of
 * lanes is free between waits: cudasim_set_order() (ELAPSE_CUDASIM_ORDER) changes it, and a kernel
 * whose bits change with it has a race.
 *
 * What a GPU would answer with an error or with nonsense ends the kernel with a fault: one line on
 * stderr and cudaErrorLaunchFailure (or IllegalAddress, MisalignedAddress), which sticks. Faults:
 * barriers at different places or behind threads that have left, collectives that never complete,
 * lanes outside the mask, writes past dynamic shared memory, addresses not mapped, a stack overrun.
 *
 * Objects of cudasim-check are compiled with -fsanitize=thread, whose hooks cudasim_check.cpp
 * answers itself: every access of a kernel is then checked for bounds, alignment, reads before
 * writes in shared memory, and races (see there). */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <new>
#include <tuple>

#ifdef __SANITIZE_THREAD__
#define __shared__ static thread_local /* cudasim_check.cpp then knows where it lies */
#else
#define __shared__ static
#endif
#define __launch_bounds__(...)
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "tests/cudasim/cudasim_control.h"

struct cudasim_thread {
    uint3 index;
    unsigned linear, lane, warp;
};
extern struct cudasim_thread *cudasim_self; /* the fiber that runs; NULL outside kernels */
extern uint3 cudasim_block;
extern dim3 cudasim_block_dim, cudasim_grid_dim;
extern unsigned char *cudasim_dynamic; /* 16-byte aligned, not more */

#define threadIdx (cudasim_self->index)
#define blockIdx cudasim_block
#define blockDim cudasim_block_dim
#define gridDim cudasim_grid_dim
static const int warpSize = 32;

/* --- launches -------------------------------------------------------------------------------- */

/* Checks the limits of the hardware and puts one launch into the stream. Takes over args, which
 * came from malloc(). */
void cudasim_submit(const void *kernel, const char *name, dim3 grid, dim3 block, size_t shared,
                    cudaStream_t stream, void (*run)(void *args), void *args, size_t args_bytes);

template <typename... P> struct cudasim_call {
    const char *name;
    void (*kernel)(P...);
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;

    struct packed {
        void (*kernel)(P...);
        std::tuple<P...> args;
    };
    static void run(void *packed_args)
    {
        const packed *p = (const packed *)packed_args;
        std::apply(p->kernel, p->args);
    }
    void operator()(P... args) const /* arguments are copied now, as a launch does */
    {
        void *place = malloc(sizeof(packed));
        new (place) packed{kernel, std::tuple<P...>(args...)};
        cudasim_submit((const void *)kernel, name, grid, block, shared, stream, run, place,
                       sizeof(packed));
    }
};
template <typename... P>
static inline cudasim_call<P...> cudasim_prepare(const char *name, void (*kernel)(P...), dim3 grid,
                                                 dim3 block, size_t shared, cudaStream_t stream)
{
    return {name, kernel, grid, block, shared, stream};
}

#define CUDA_LAUNCH(kernel, grid, block, shared, stream, ...)                                      \
    do {                                                                                           \
        cudasim_prepare(#kernel, kernel, grid, block, shared, stream)(__VA_ARGS__);                \
        cuda_launched(#kernel, __FILE__, __LINE__);                                                \
    } while (0)
#define CUDA_DYNAMIC_SHARED(type, name) type *name = (type *)(void *)cudasim_dynamic
#define CUDA_ALLOW_SHARED(kernel, bytes)                                                           \
    cuda_note(cudaFuncSetAttribute((const void *)(kernel),                                         \
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)),     \
              "cudaFuncSetAttribute(" #kernel ")", __FILE__, __LINE__)

/* --- waiting --------------------------------------------------------------------------------- */

enum cudasim_vote { CUDASIM_SYNC, CUDASIM_OR, CUDASIM_AND, CUDASIM_COUNT };
int cudasim_syncthreads(enum cudasim_vote vote, int predicate, const char *file, int line);

/* A collective of the lanes in mask. Each passes its slot; the last lane to come calls `work` with
 * the slots of all (NULL for lanes that are not there), then all go on. */
typedef void (*cudasim_work)(void **slots, unsigned mask);
void cudasim_collective(const char *name, unsigned mask, void *slot, cudasim_work work,
                        const char *file, int line);

enum cudasim_shuffle { CUDASIM_IDX, CUDASIM_UP, CUDASIM_DOWN, CUDASIM_XOR };
uint64_t cudasim_shuffle(enum cudasim_shuffle how, unsigned mask, uint64_t value, int by, int width,
                         const char *file, int line);
enum cudasim_reduce {
    CUDASIM_BALLOT,
    CUDASIM_ADD,
    CUDASIM_MIN,
    CUDASIM_MAX,
    CUDASIM_BITAND,
    CUDASIM_BITOR,
    CUDASIM_BITXOR
};
/* Reduces 32-bit numbers, compared as signed or unsigned. */
unsigned cudasim_reduce(enum cudasim_reduce how, bool is_signed, unsigned mask, unsigned value,
                        const char *file, int line);
void cudasim_syncwarp(unsigned mask, const char *file, int line);

template <typename T>
static inline T cudasim_shuffle_of(enum cudasim_shuffle how, unsigned mask, T value, int by,
                                   int width, const char *file, int line)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = cudasim_shuffle(how, mask, bits, by, width, file, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The name with or without a last argument of 32 lanes. */
#define CUDASIM_PICK(a, b, c, d, name, ...) name
#define CUDASIM_SHUFFLE4(how, m, v, by, w) cudasim_shuffle_of(how, m, v, by, w, __FILE__, __LINE__)
#define CUDASIM_SHUFFLE3(how, m, v, by) cudasim_shuffle_of(how, m, v, by, 32, __FILE__, __LINE__)
#define CUDASIM_SHUFFLE(how, ...)                                                                  \
    CUDASIM_PICK(__VA_ARGS__, CUDASIM_SHUFFLE4, CUDASIM_SHUFFLE3, 0)(how, __VA_ARGS__)
#define __shfl_sync(...) CUDASIM_SHUFFLE(CUDASIM_IDX, __VA_ARGS__)
#define __shfl_up_sync(...) CUDASIM_SHUFFLE(CUDASIM_UP, __VA_ARGS__)
#define __shfl_down_sync(...) CUDASIM_SHUFFLE(CUDASIM_DOWN, __VA_ARGS__)
#define __shfl_xor_sync(...) CUDASIM_SHUFFLE(CUDASIM_XOR, __VA_ARGS__)

#define __syncthreads() ((void)cudasim_syncthreads(CUDASIM_SYNC, 0, __FILE__, __LINE__))
#define __syncthreads_or(p) cudasim_syncthreads(CUDASIM_OR, p, __FILE__, __LINE__)
#define __syncthreads_and(p) cudasim_syncthreads(CUDASIM_AND, p, __FILE__, __LINE__)
#define __syncthreads_count(p) cudasim_syncthreads(CUDASIM_COUNT, p, __FILE__, __LINE__)
#define __syncwarp(...) cudasim_syncwarp(cudasim_mask(__VA_ARGS__), __FILE__, __LINE__)
static inline unsigned cudasim_mask(unsigned mask = 0xffffffffu)
{
    return mask;
}
#define CUDASIM_REDUCE(how, is_signed, m, v)                                                       \
    cudasim_reduce(how, is_signed, m, (unsigned)(v), __FILE__, __LINE__)
#define __ballot_sync(m, p) CUDASIM_REDUCE(CUDASIM_BALLOT, false, m, (p) ? 1 : 0)
#define __any_sync(m, p) (int)(CUDASIM_REDUCE(CUDASIM_BITOR, false, m, (p) ? 1 : 0))
#define __all_sync(m, p) (int)(CUDASIM_REDUCE(CUDASIM_BITAND, false, m, (p) ? 1 : 0))
#define CUDASIM_REDUCE_OF(how, m, v) ((decltype(v))CUDASIM_REDUCE(how, ((decltype(v))-1 < 0), m, v))
#define __reduce_add_sync(m, v) CUDASIM_REDUCE_OF(CUDASIM_ADD, m, v)
#define __reduce_min_sync(m, v) CUDASIM_REDUCE_OF(CUDASIM_MIN, m, v)
#define __reduce_max_sync(m, v) CUDASIM_REDUCE_OF(CUDASIM_MAX, m, v)
#define __reduce_and_sync(m, v) CUDASIM_REDUCE_OF(CUDASIM_BITAND, m, v)
#define __reduce_or_sync(m, v) CUDASIM_REDUCE_OF(CUDASIM_BITOR, m, v)
#define __reduce_xor_sync(m, v) CUDASIM_REDUCE_OF(CUDASIM_BITXOR, m, v)

static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}
static inline void __threadfence_system(void)
{
}
[[noreturn]] void cudasim_trap(const char *file, int line);
#define __trap() cudasim_trap(__FILE__, __LINE__)

/* --- memory ---------------------------------------------------------------------------------- */

void cudasim_atomic(const void *address, size_t bytes); /* checks it */

#define CUDASIM_PLAIN __attribute__((no_sanitize_thread)) static inline
template <typename T, typename F> CUDASIM_PLAIN T cudasim_update(T *at, F change)
{
    cudasim_atomic(at, sizeof *at);
    const T old = *at;
    *at = change(old);
    return old;
}
template <typename T> static inline T atomicAdd(T *at, T v)
{
    return cudasim_update(at, [v](T old) { return (T)(old + v); });
}
static inline unsigned atomicAdd(unsigned *at, int v)
{
    return atomicAdd(at, (unsigned)v);
}
template <typename T> static inline T atomicMax(T *at, T v)
{
    return cudasim_update(at, [v](T old) { return old < v ? v : old; });
}
template <typename T> static inline T atomicMin(T *at, T v)
{
    return cudasim_update(at, [v](T old) { return v < old ? v : old; });
}
template <typename T> static inline T atomicExch(T *at, T v)
{
    return cudasim_update(at, [v](T) { return v; });
}
template <typename T> static inline T atomicOr(T *at, T v)
{
    return cudasim_update(at, [v](T old) { return old | v; });
}
template <typename T> static inline T atomicAnd(T *at, T v)
{
    return cudasim_update(at, [v](T old) { return old & v; });
}
template <typename T> static inline T atomicCAS(T *at, T expected, T v)
{
    return cudasim_update(at, [=](T old) { return old == expected ? v : old; });
}
static inline unsigned atomicInc(unsigned *at, unsigned limit)
{
    return cudasim_update(at, [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}

template <typename T> static inline T __ldg(const T *at)
{
    return *at;
}
template <typename T> static inline T __ldcs(const T *at)
{
    return *at;
}
template <typename T> static inline T __ldcg(const T *at)
{
    return *at;
}
template <typename T> static inline T __ldca(const T *at)
{
    return *at;
}
template <typename T> static inline T __ldlu(const T *at)
{
    return *at;
}
template <typename T> static inline T __ldcv(const T *at)
{
    return *at;
}
template <typename T> static inline void __stcs(T *at, T v)
{
    *at = v;
}
template <typename T> static inline void __stcg(T *at, T v)
{
    *at = v;
}
template <typename T> static inline void __stwb(T *at, T v)
{
    *at = v;
}
template <typename T> static inline void __stwt(T *at, T v)
{
    *at = v;
}

/* --- arithmetic --------------------------------------------------------------------------------
 * Fast intrinsics are exact here: tests allow for what the hardware rounds. */

#define __expf(x) expf(x)
#define __exp2f(x) exp2f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanhf(x) tanhf(x)
static inline float __fdividef(float x, float y)
{
    return x / y;
}
static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline float __frsqrt_rn(float x)
{
    return (float)(1.0 / sqrt((double)x));
}
static inline float __fadd_rn(float x, float y)
{
    return x + y;
}
static inline float __fsub_rn(float x, float y)
{
    return x - y;
}
static inline float __fmul_rn(float x, float y)
{
    return x * y;
}
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline double __dadd_rn(double x, double y)
{
    return x + y;
}
static inline double __dmul_rn(double x, double y)
{
    return x * y;
}
static inline float __saturatef(float x)
{
    return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
}
static inline float rsqrtf(float x)
{
    return (float)(1.0 / sqrt((double)x));
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
static inline float normcdff(float x)
{
    return 0.5f * erfcf(-x * 0.70710678118654752f);
}

template <typename To, typename From> static inline To cudasim_bits(From from)
{
    To to;
    static_assert(sizeof to == sizeof from, "bits of one size");
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x)
{
    return cudasim_bits<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return cudasim_bits<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return cudasim_bits<float>(x);
}
static inline float __int_as_float(int x)
{
    return cudasim_bits<float>(x);
}
static inline int __float2int_rn(float x)
{
    return (int)nearbyintf(x);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)(((uint64_t)x * y) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return (unsigned long long)(((unsigned __int128)x * y) >> 64);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((((uint64_t)high << 32) | low) << (by & 31)) >> 32);
}

#define CUDASIM_MINMAX(T)                                                                          \
    static inline T min(T a, T b)                                                                  \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline T max(T a, T b)                                                                  \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
CUDASIM_MINMAX(int)
CUDASIM_MINMAX(unsigned)
CUDASIM_MINMAX(long)
CUDASIM_MINMAX(unsigned long)
CUDASIM_MINMAX(long long)
CUDASIM_MINMAX(unsigned long long)
CUDASIM_MINMAX(float)
CUDASIM_MINMAX(double)
#undef CUDASIM_MINMAX

/* --- exec/cuda/ptx.cuh ----------------------------------------------------------------------- */

void cudasim_mma_bf16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1);
void cudasim_ldmatrix(uint32_t *to, const void *row, int num, bool trans, const char *name);
void cudasim_cp_async(void *to, const void *from, int bytes, int read);
void cudasim_cp_commit(void);
void cudasim_cp_wait(int pending);

static inline void mma_bf16_16816(float *d, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    cudasim_mma_bf16(d, a, b0, b1);
}
static inline void ldmatrix_x4(uint32_t *to, const void *shared_row)
{
    cudasim_ldmatrix(to, shared_row, 4, false, "ldmatrix_x4");
}
static inline void ldmatrix_x4_trans(uint32_t *to, const void *shared_row)
{
    cudasim_ldmatrix(to, shared_row, 4, true, "ldmatrix_x4_trans");
}
static inline void cp_async_16(void *shared, const void *global, bool valid)
{
    cudasim_cp_async(shared, global, 16, valid ? 16 : 0);
}
static inline void cp_async_commit(void)
{
    cudasim_cp_commit();
}
template <int PENDING> static inline void cp_async_wait(void)
{
    cudasim_cp_wait(PENDING);
}
static inline void store_global_16(void *global, uint4 x)
{
    *(uint4 *)global = x;
}
static inline float exp2_approx(float x)
{
    const float y = exp2f(x);
    return y < 1.17549435e-38f ? 0.0f : y; /* .ftz */
}
static inline float rcp_approx(float x)
{
    const float y = 1.0f / x;
    return fabsf(y) < 1.17549435e-38f ? copysignf(0.0f, y) : y;
}
