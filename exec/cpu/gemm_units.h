/* exec/cpu/gemm_units.h - loads squares of a matrix into AVX-512 registers, whichever way the
 * matrix lies in memory; private to gemm_amx.c and gemm_avx512.c.
 *
 * A unit is what one 32-bit lane holds: a pair (k, k + 1) of bf16, as AVX512-BF16 and AMX need it,
 * or one fp32. Callers need a target attribute with AVX-512 F, BW and VL. */
#pragma once

#include "exec/cpu/gemm_kernel.h"

#ifdef __x86_64__
#include <immintrin.h>

#define GEMM_UNITS __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline)) static inline

/* A square of units has 16 rows (or columns) by 16 units, which are 32 k for pairs of bf16. */
enum { UNITS_SIDE = 16, PAIRS_STEP = 32 };

/* Transposes: x[i][j] becomes x[j][i]. Loops over x must be unrolled, so that x stays in registers.
 */
GEMM_UNITS void units_turn(__m512i x[16])
{
    __m512i y[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 16
        for (int h = 0; h < 2; h++) {
            x[i + 2 * h] = _mm512_unpacklo_epi64(y[i + h], y[i + 2 + h]);
            x[i + 2 * h + 1] = _mm512_unpackhi_epi64(y[i + h], y[i + 2 + h]);
        }
        /* now 128-bit lane l of x[4 q + c] holds rows 4 q to 4 q + 3 of column 4 l + c */
#pragma GCC unroll 16
    for (int c = 0; c < 4; c++) {
        const __m512i low01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x44);
        const __m512i high01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xee);
        const __m512i low23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x44);
        const __m512i high23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xee);
        y[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
        y[4 + c] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
        y[8 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
        y[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        x[i] = y[i];
}

/* Loads `num` rows (or columns) from `first` on, `len` values of k from `k` on; the rest of the
 * square is zero, and num may be 0 or less. by_row: x[i][p] is pair p of row i. Otherwise x[p][i]
 * is. Faster when num and len are compile-time constants. */
GEMM_UNITS void pairs_load(const struct gemm_block *b, int64_t first, int64_t k, int num, int len,
                           bool by_row, __m512i x[16])
{
    const uint16_t *from = b->x;
    const bool along_k = b->inner == 1;
    if (along_k) {
        const __mmask32 mask = len == PAIRS_STEP ? ~0u : (1u << len) - 1;
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            x[i] = i < num ? _mm512_maskz_loadu_epi16(mask, from + (first + i) * b->outer + k)
                           : _mm512_setzero_si512();
    } else {
        const __mmask16 mask = num <= 0 ? 0 : (__mmask16)(0xffffu >> (UNITS_SIDE - num));
#pragma GCC unroll 16
        for (int p = 0; p < 16; p++) {
            const uint16_t *at = from + first + (k + 2 * p) * b->inner;
            const __m256i low =
                2 * p < len ? _mm256_maskz_loadu_epi16(mask, at) : _mm256_setzero_si256();
            const __m256i high = 2 * p + 1 < len ? _mm256_maskz_loadu_epi16(mask, at + b->inner)
                                                 : _mm256_setzero_si256();
            x[p] = _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                   _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
        }
    }
    if (along_k != by_row)
        units_turn(x);
}

/* Loads the elements that the mask selects, fp32 or, if wide, bf16 widened to fp32; the others are
 * zero. */
GEMM_UNITS __m512i floats_row(const void *from, __mmask16 mask, bool wide)
{
    return wide ? _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16)
                : _mm512_maskz_loadu_epi32(mask, from);
}

/* Like pairs_load(), for fp32, or bf16 widened to fp32 if wide; at most 16 k. x[p][i] is element
 * (first + i, k + p). */
GEMM_UNITS void floats_load(const struct gemm_block *b, int64_t first, int64_t k, int num, int len,
                            bool wide, __m512i x[16])
{
    const int64_t elem = wide ? 2 : 4;
    const char *from = (const char *)b->x + (first * b->outer + k * b->inner) * elem;
    if (b->inner == 1) {
        const __mmask16 mask = (__mmask16)(0xffffu >> (UNITS_SIDE - len));
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            x[i] = i < num ? floats_row(from + i * b->outer * elem, mask, wide)
                           : _mm512_setzero_si512();
        units_turn(x);
    } else {
        const __mmask16 mask = num <= 0 ? 0 : (__mmask16)(0xffffu >> (UNITS_SIDE - num));
#pragma GCC unroll 16
        for (int p = 0; p < 16; p++)
            x[p] = p < len ? floats_row(from + p * b->inner * elem, mask, wide)
                           : _mm512_setzero_si512();
    }
}

#endif
