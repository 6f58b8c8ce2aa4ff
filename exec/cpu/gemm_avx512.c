/* The AVX-512 kernels: fp32, and bf16 widened to fp32 when it is packed, by multiply-adds; bf16 by
 * the dot product of AVX512-BF16. The dot product takes two k in a lane, which doubles the
 * multiplications per cycle on Zen 4; on an Intel Xeon with AMX no gain was measured. It treats
 * subnormal operands as zero. */
#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm_panels.h"

#ifdef __x86_64__
#include "exec/cpu/gemm_units.h"

#define FMA __attribute__((target("avx512f,avx512bw,avx512vl")))
#define INLINE FMA __attribute__((always_inline)) static inline
#define DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

/* A panel of b has 192 units of fp32 (36 KiB) or 128 of pairs (24 KiB), about the size of an L1
 * cache. */
enum { PANEL_A = 8, PANEL_B = 48, FLOAT_KC = 192, PAIR_KC = 256 };

/* Content of a unit: fp32, bf16 widened to fp32, or a pair of bf16. */
enum form { FLOATS, WIDE, PAIRS };

/* Packs one square. Faster when num and len are compile-time constants, as for a full square. */
INLINE void pack_square(const struct gemm_block *b, int64_t first, int64_t k, int num, int len,
                        enum form form, int stride, uint32_t *to, uint32_t *high)
{
    __m512i x[16];
    if (form == PAIRS)
        pairs_load(b, first, k, num, len, false, x);
    else
        floats_load(b, first, k, num, len, form == WIDE, x);
#pragma GCC unroll 16
    for (int p = 0; p < 16; p++) {
        if (p * (form == PAIRS ? 2 : 1) >= len)
            break;
        _mm256_storeu_si256((__m256i *)(void *)(to + p * stride), _mm512_castsi512_si256(x[p]));
        if (high)
            _mm256_storeu_si256((__m256i *)(void *)(high + p * stride),
                                _mm512_extracti64x4_epi64(x[p], 1));
    }
}

INLINE void pack_units(const struct gemm_block *b, int64_t first, int64_t k, enum form form,
                       int stride, uint32_t *to, uint32_t *high)
{
    const int step = form == PAIRS ? PAIRS_STEP : UNITS_SIDE;
    const int num = (int)cpu_min(UNITS_SIDE, b->num - first), len = (int)cpu_min(step, b->k - k);
    if (num == UNITS_SIDE && len == step && high)
        pack_square(b, first, k, UNITS_SIDE, step, form, stride, to, high);
    else
        pack_square(b, first, k, num, len, form, stride, to, high);
}

FMA static void pack_pairs(const struct gemm_block *b, int64_t first, int64_t k, int stride,
                           uint32_t *to, uint32_t *high)
{
    pack_units(b, first, k, PAIRS, stride, to, high);
}

FMA static void pack_floats(const struct gemm_block *b, int64_t first, int64_t k, int stride,
                            uint32_t *to, uint32_t *high)
{
    pack_units(b, first, k, FLOATS, stride, to, high);
}

FMA static void pack_wide(const struct gemm_block *b, int64_t first, int64_t k, int stride,
                          uint32_t *to, uint32_t *high)
{
    pack_units(b, first, k, WIDE, stride, to, high);
}

/* name##_vectors() computes the first `vectors` vectors of a panel's columns, a compile-time
 * constant, and stores the elements of `last` of the last one. */
#define PANELS(name, target, vector, load, spread, multiply_add)                                   \
    target __attribute__((always_inline)) static inline void name##_vectors(                       \
        int64_t num, const uint32_t *a, const uint32_t *b, float alpha, bool add, int vectors,     \
        __mmask16 last, float *c, int64_t ldc)                                                     \
    {                                                                                              \
        __m512 sum[PANEL_A][3];                                                                    \
        _Pragma("GCC unroll 8") for (int i = 0; i < PANEL_A; i++)                                  \
            _Pragma("GCC unroll 3") for (int j = 0; j < vectors; j++) sum[i][j] =                  \
                _mm512_setzero_ps();                                                               \
        for (int64_t p = 0; p < num; p++, a += PANEL_A, b += PANEL_B) {                            \
            vector y[3];                                                                           \
            _Pragma("GCC unroll 3") for (int j = 0; j < vectors; j++) y[j] = load(b + 16 * j);     \
            _Pragma("GCC unroll 8") for (int i = 0; i < PANEL_A; i++)                              \
            {                                                                                      \
                const vector x = spread(a[i]);                                                     \
                _Pragma("GCC unroll 3") for (int j = 0; j < vectors; j++) sum[i][j] =              \
                    multiply_add(sum[i][j], x, y[j]);                                              \
            }                                                                                      \
        }                                                                                          \
        const __m512 scale = _mm512_set1_ps(alpha);                                                \
        _Pragma("GCC unroll 8") for (int i = 0; i < PANEL_A; i++)                                  \
            _Pragma("GCC unroll 3") for (int j = 0; j < vectors; j++)                              \
        {                                                                                          \
            const __mmask16 mask = j + 1 < vectors ? 0xffff : last;                                \
            float *to = c + i * ldc + 16 * j;                                                      \
            const __m512 old = add ? _mm512_maskz_loadu_ps(mask, to) : _mm512_setzero_ps();        \
            _mm512_mask_storeu_ps(to, mask, _mm512_fmadd_ps(scale, sum[i][j], old));               \
        }                                                                                          \
    }                                                                                              \
    target static void name(int64_t num, const uint32_t *a, const uint32_t *b, float alpha,        \
                            bool add, float *c, int64_t ldc)                                       \
    {                                                                                              \
        name##_vectors(num, a, b, alpha, add, 3, 0xffff, c, ldc);                                  \
    }                                                                                              \
    target static void name##_narrow(int64_t num, const uint32_t *a, const uint32_t *b,            \
                                     float alpha, bool add, int cols, float *c, int64_t ldc)       \
    {                                                                                              \
        const __mmask16 last = (__mmask16)(0xffff >> (15 - (cols - 1) % 16));                      \
        if (cols <= 16)                                                                            \
            name##_vectors(num, a, b, alpha, add, 1, last, c, ldc);                                \
        else if (cols <= 32)                                                                       \
            name##_vectors(num, a, b, alpha, add, 2, last, c, ldc);                                \
        else                                                                                       \
            name##_vectors(num, a, b, alpha, add, 3, last, c, ldc);                                \
    }

#define LOAD_PAIRS(from) (__m512bh) _mm512_loadu_si512(from)
#define SPREAD_PAIR(x) (__m512bh) _mm512_set1_epi32((int)(x))
#define LOAD_FLOATS(from) _mm512_castsi512_ps(_mm512_loadu_si512(from))
#define SPREAD_FLOAT(x) _mm512_castsi512_ps(_mm512_set1_epi32((int)(x)))
#define MULTIPLY_ADD(sum, x, y) _mm512_fmadd_ps(x, y, sum)

PANELS(multiply_pairs, DOT, __m512bh, LOAD_PAIRS, SPREAD_PAIR, _mm512_dpbf16_ps)
PANELS(multiply_floats, FMA, __m512, LOAD_FLOATS, SPREAD_FLOAT, MULTIPLY_ADD)

static bool floats_usable(void)
{
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

static bool pairs_usable(void)
{
    return floats_usable() && __builtin_cpu_supports("avx512bf16");
}

_Static_assert(GEMM_PANELS_MOST >= PANEL_A * PANEL_B, "a panel fits the edge buffer");
#define AS_PANELS(unit, kc_, pack_, multiply_)                                                     \
    {                                                                                              \
        .unit_k = (unit), .panel_a = PANEL_A, .panel_b = PANEL_B, .kc = (kc_), .pack = (pack_),    \
        .multiply = multiply_, .narrow_step = 1, .multiply_narrow = multiply_##_narrow             \
    }
static const struct gemm_panels pairs = AS_PANELS(2, PAIR_KC, pack_pairs, multiply_pairs);
static const struct gemm_panels floats = AS_PANELS(1, FLOAT_KC, pack_floats, multiply_floats);
static const struct gemm_panels wide = AS_PANELS(1, FLOAT_KC, pack_wide, multiply_floats);

const struct gemm_kernel gemm_dot = GEMM_PANELS_KERNEL("avx512-bf16", 2, &pairs, pairs_usable);
const struct gemm_kernel gemm_fma = GEMM_PANELS_KERNEL("avx512", 4, &floats, floats_usable);
const struct gemm_kernel gemm_fma_wide =
    GEMM_PANELS_KERNEL("avx512-widened", 2, &wide, floats_usable);
#endif
