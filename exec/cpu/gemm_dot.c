/* Blocks of bf16 by the dot-product instruction of AVX512-BF16: twice the multiplications of fp32
 * in a cycle (on Zen 4; no gain was seen on an Intel Xeon with AMX). Subnormal operands count as
 * zero. */
#include <string.h>

#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm_kernel.h"

#ifdef __x86_64__
#include "exec/cpu/gemm_pairs.h"

#define DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

/* b in panels of 48 columns, a in panels of 8 rows; in a panel pairs of k lie together, as the
 * instruction takes them. A panel of b of 256 k is 24 KiB, of the L1 cache. */
enum { PANEL_A = 8, PANEL_B = 48, KC = 256 };

static int64_t panel_bytes(int64_t num, int64_t k, int panel)
{
    return (num + panel - 1) / panel * panel * ((k + 1) / 2) * 4;
}

/* Rows (columns) [first, first + 16) and k [k, k + len): pair p of the first 8 at to[p * stride],
 * of the others at high[p * stride] (NULL: they are none); what is outside of the block is zero. */
DOT static inline __attribute__((always_inline)) void pack_part(const struct gemm_block *b,
                                                                int64_t first, int64_t k, int num,
                                                                int len, int stride, uint32_t *to,
                                                                uint32_t *high)
{
    __m512i x[16];
    pairs_load(b, first, k, num, len, false, x);
#pragma GCC unroll 16
    for (int p = 0; p < 16; p++) {
        if (2 * p >= len)
            break;
        _mm256_storeu_si256((__m256i *)(void *)(to + p * stride), _mm512_castsi512_si256(x[p]));
        if (high)
            _mm256_storeu_si256((__m256i *)(void *)(high + p * stride),
                                _mm512_extracti64x4_epi64(x[p], 1));
    }
}

/* All of the block's k; a full square, where num and len are constants, takes less time. */
DOT static void pack_rows(const struct gemm_block *b, int64_t first, int stride, uint32_t *to,
                          uint32_t *high)
{
    const int num = (int)cpu_min(PAIRS_SIDE, b->num - first);
    for (int64_t k = 0; k < b->k; k += PAIRS_STEP) {
        const int len = (int)cpu_min(PAIRS_STEP, b->k - k);
        const int64_t at = k / 2 * stride;
        if (num == PAIRS_SIDE && len == PAIRS_STEP)
            pack_part(b, first, k, PAIRS_SIDE, PAIRS_STEP, stride, to + at, high + at);
        else
            pack_part(b, first, k, num, len, stride, to + at, high ? high + at : NULL);
    }
}

/* c [8, 48] = (add ? c : 0) + alpha a b over `pairs` pairs of k. */
DOT static void multiply_panels(int64_t pairs, const uint32_t *a, const uint32_t *b, float alpha,
                                bool add, float *c, int64_t ldc)
{
    __m512 sum[PANEL_A][3];
    for (int i = 0; i < PANEL_A; i++)
        for (int j = 0; j < 3; j++)
            sum[i][j] = _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b + p * PANEL_B);
        const __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + p * PANEL_B + 16);
        const __m512bh b2 = (__m512bh)_mm512_loadu_si512(b + p * PANEL_B + 32);
#pragma GCC unroll 8
        for (int i = 0; i < PANEL_A; i++) {
            const __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[p * PANEL_A + i]);
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, b0);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, b1);
            sum[i][2] = _mm512_dpbf16_ps(sum[i][2], x, b2);
        }
    }
    const __m512 scale = _mm512_set1_ps(alpha);
    for (int i = 0; i < PANEL_A; i++)
        for (int j = 0; j < 3; j++) {
            float *to = c + i * ldc + 16 * j;
            const __m512 old = add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
            _mm512_storeu_ps(to, _mm512_fmadd_ps(scale, sum[i][j], old));
        }
}

/* A panel at the edge of a tile goes through a buffer. */
DOT static void multiply_edge(int64_t pairs, const uint32_t *a, const uint32_t *b, float alpha,
                              bool add, int rows, int cols, float *c, int64_t ldc)
{
    float edge[PANEL_A * PANEL_B];
    for (int i = 0; add && i < rows; i++)
        memcpy(edge + i * PANEL_B, c + i * ldc, (size_t)cols * sizeof *c);
    multiply_panels(pairs, a, b, alpha, add, edge, PANEL_B);
    for (int i = 0; i < rows; i++)
        memcpy(c + i * ldc, edge + i * PANEL_B, (size_t)cols * sizeof *c);
}

static bool usable(void)
{
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bf16");
}

static int64_t packed_bytes(int64_t cols, int64_t k)
{
    return panel_bytes(cols, k, PANEL_B);
}

static int64_t work_bytes(int64_t rows, int64_t k)
{
    return panel_bytes(rows, cpu_min(k, KC), PANEL_A);
}

/* Pieces of KC of k one behind the other; within one, panel by panel. */
static void pack(struct backend *be, const struct gemm_block *b, void *packed)
{
    const int64_t panels = cpu_tiles(b->num, PANEL_B);
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t p = 0; p < panels; p++)
        for (int64_t k = 0; k < b->k; k += KC) {
            const struct gemm_block piece = {b->x + k * b->inner, b->outer, b->inner, b->num,
                                             cpu_min(KC, b->k - k)};
            uint32_t *to = (uint32_t *)packed + panels * PANEL_B * (k / 2);
            to += p * PANEL_B * ((piece.k + 1) / 2);
            for (int at = 0; at < PANEL_B; at += PAIRS_SIDE)
                pack_rows(&piece, p * PANEL_B + at, PANEL_B, to + at, to + at + PANEL_A);
        }
}

DOT static void multiply(const struct gemm_block *a, const struct gemm_block *b, const void *packed,
                         void *work, float alpha, bool add, float *c, int64_t ldc)
{
    const int64_t cols = b->num, panels = cpu_tiles(cols, PANEL_B);
    for (int64_t k = 0; k < a->k; k += KC) {
        const struct gemm_block piece = {a->x + k * a->inner, a->outer, a->inner, a->num,
                                         cpu_min(KC, a->k - k)};
        const int64_t pairs = (piece.k + 1) / 2;
        const uint32_t *from = (const uint32_t *)packed + panels * PANEL_B * (k / 2);
        uint32_t *mine = work;
        for (int64_t r = 0; r < a->num; r += PAIRS_SIDE) /* two panels */
            pack_rows(&piece, r, PANEL_A, mine + r * pairs,
                      r + PANEL_A < a->num ? mine + (r + PANEL_A) * pairs : NULL);
        for (int64_t p = 0; p < panels; p++)
            for (int64_t r = 0; r < a->num; r += PANEL_A) {
                const int nr = (int)cpu_min(PANEL_A, a->num - r);
                const int nc = (int)cpu_min(PANEL_B, cols - p * PANEL_B);
                float *to = c + r * ldc + p * PANEL_B;
                if (nr == PANEL_A && nc == PANEL_B)
                    multiply_panels(pairs, mine + r * pairs, from + p * PANEL_B * pairs, alpha,
                                    add || k > 0, to, ldc);
                else
                    multiply_edge(pairs, mine + r * pairs, from + p * PANEL_B * pairs, alpha,
                                  add || k > 0, nr, nc, to, ldc);
            }
    }
}

/* An element's sum goes over k in one order, inside a panel and at its edge. */
const struct gemm_kernel gemm_dot = {.name = "avx512-bf16",
                                     .rows_alone = true,
                                     .usable = usable,
                                     .packed_bytes = packed_bytes,
                                     .work_bytes = work_bytes,
                                     .pack = pack,
                                     .multiply = multiply};
#endif
