/* Blocks by the vectors of AVX-512: fp32 by multiply-adds, bf16 by the dot product of AVX512-BF16,
 * which takes two k in a lane: twice the multiplications of fp32 in a cycle (on Zen 4; no gain was
 * seen on an Intel Xeon with AMX). Subnormal operands of bf16 count as zero. A lane's fp32 or pair
 * of bf16 is a unit below. */
#include <string.h>

#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm_kernel.h"

#ifdef __x86_64__
#include "exec/cpu/gemm_units.h"

#define FMA __attribute__((target("avx512f,avx512bw,avx512vl")))
#define INLINE FMA __attribute__((always_inline)) static inline
#define DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

/* b in panels of 48 columns, a in panels of 8 rows; in a panel the same unit of all columns (rows)
 * lies together. A panel of b of 192 units is 36 KiB, of 128 24 KiB: of the L1 cache. */
enum { PANEL_A = 8, PANEL_B = 48, FLOAT_KC = 192, PAIR_KC = 256 };

/* What the two dtypes do not share. */
struct units {
    int k, kc; /* k in a unit, in a piece that is multiplied at a time */
    /* Rows (columns) [first, first + 16) and 16 units from k on: unit p of the first 8 at
     * to[p * stride], of the others at high[p * stride] (NULL: they are none); what is outside of
     * the block is zero. */
    void (*pack)(const struct gemm_block *b, int64_t first, int64_t k, int stride, uint32_t *to,
                 uint32_t *high);
    /* c [8, 48] = (add ? c : 0) + alpha a b over num units. */
    void (*panels)(int64_t num, const uint32_t *a, const uint32_t *b, float alpha, bool add,
                   float *c, int64_t ldc);
};

/* A full square, where num and len are constants, takes less time. */
INLINE void pack_square(const struct gemm_block *b, int64_t first, int64_t k, int num, int len,
                        int per_unit, int stride, uint32_t *to, uint32_t *high)
{
    __m512i x[16];
    if (per_unit == 2)
        pairs_load(b, first, k, num, len, false, x);
    else
        floats_load(b, first, k, num, len, x);
#pragma GCC unroll 16
    for (int p = 0; p < 16; p++) {
        if (p * per_unit >= len)
            break;
        _mm256_storeu_si256((__m256i *)(void *)(to + p * stride), _mm512_castsi512_si256(x[p]));
        if (high)
            _mm256_storeu_si256((__m256i *)(void *)(high + p * stride),
                                _mm512_extracti64x4_epi64(x[p], 1));
    }
}

INLINE void pack_units(const struct gemm_block *b, int64_t first, int64_t k, int per_unit,
                       int stride, uint32_t *to, uint32_t *high)
{
    const int step = UNITS_SIDE * per_unit;
    const int num = (int)cpu_min(UNITS_SIDE, b->num - first), len = (int)cpu_min(step, b->k - k);
    if (num == UNITS_SIDE && len == step && high)
        pack_square(b, first, k, UNITS_SIDE, step, per_unit, stride, to, high);
    else
        pack_square(b, first, k, num, len, per_unit, stride, to, high);
}

FMA static void pack_pairs(const struct gemm_block *b, int64_t first, int64_t k, int stride,
                           uint32_t *to, uint32_t *high)
{
    pack_units(b, first, k, 2, stride, to, high);
}

FMA static void pack_floats(const struct gemm_block *b, int64_t first, int64_t k, int stride,
                            uint32_t *to, uint32_t *high)
{
    pack_units(b, first, k, 1, stride, to, high);
}

#define PANELS(name, target, vector, load, spread, multiply_add)                                   \
    target static void name(int64_t num, const uint32_t *a, const uint32_t *b, float alpha,        \
                            bool add, float *c, int64_t ldc)                                       \
    {                                                                                              \
        __m512 sum[PANEL_A][3];                                                                    \
        _Pragma("GCC unroll 8") for (int i = 0; i < PANEL_A; i++)                                  \
            _Pragma("GCC unroll 3") for (int j = 0; j < 3; j++) sum[i][j] = _mm512_setzero_ps();   \
        for (int64_t p = 0; p < num; p++, a += PANEL_A, b += PANEL_B) {                            \
            const vector b0 = load(b), b1 = load(b + 16), b2 = load(b + 32);                       \
            _Pragma("GCC unroll 8") for (int i = 0; i < PANEL_A; i++)                              \
            {                                                                                      \
                const vector x = spread(a[i]);                                                     \
                sum[i][0] = multiply_add(sum[i][0], x, b0);                                        \
                sum[i][1] = multiply_add(sum[i][1], x, b1);                                        \
                sum[i][2] = multiply_add(sum[i][2], x, b2);                                        \
            }                                                                                      \
        }                                                                                          \
        const __m512 scale = _mm512_set1_ps(alpha);                                                \
        _Pragma("GCC unroll 8") for (int i = 0; i < PANEL_A; i++)                                  \
            _Pragma("GCC unroll 3") for (int j = 0; j < 3; j++)                                    \
        {                                                                                          \
            float *to = c + i * ldc + 16 * j;                                                      \
            const __m512 old = add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();                    \
            _mm512_storeu_ps(to, _mm512_fmadd_ps(scale, sum[i][j], old));                          \
        }                                                                                          \
    }

#define LOAD_PAIRS(from) (__m512bh) _mm512_loadu_si512(from)
#define SPREAD_PAIR(x) (__m512bh) _mm512_set1_epi32((int)(x))
#define LOAD_FLOATS(from) _mm512_castsi512_ps(_mm512_loadu_si512(from))
#define SPREAD_FLOAT(x) _mm512_castsi512_ps(_mm512_set1_epi32((int)(x)))
#define MULTIPLY_ADD(sum, x, y) _mm512_fmadd_ps(x, y, sum)

PANELS(multiply_pairs, DOT, __m512bh, LOAD_PAIRS, SPREAD_PAIR, _mm512_dpbf16_ps)
PANELS(multiply_floats, FMA, __m512, LOAD_FLOATS, SPREAD_FLOAT, MULTIPLY_ADD)

static const struct units pairs = {2, PAIR_KC, pack_pairs, multiply_pairs};
static const struct units floats = {1, FLOAT_KC, pack_floats, multiply_floats};

static int64_t panel_bytes(const struct units *u, int64_t num, int64_t k, int panel)
{
    return cpu_tiles(num, panel) * panel * cpu_tiles(k, u->k) * 4;
}

/* [k, k + kc) of a block, or what is left of it. */
static struct gemm_block piece_at(const struct units *u, const struct gemm_block *b, int64_t k)
{
    struct gemm_block piece = *b;
    piece.x = (const char *)b->x + k * b->inner * (4 / u->k);
    piece.k = cpu_min(u->kc, b->k - k);
    return piece;
}

/* A square of a piece to its place in panels. */
static void pack_at(const struct units *u, const struct gemm_block *piece, int64_t first, int64_t k,
                    int panel, uint32_t *to)
{
    const int64_t num = cpu_tiles(piece->k, u->k), high = first + PANEL_A;
    to += k / u->k * panel;
    u->pack(piece, first, k, panel, to + first / panel * panel * num + first % panel,
            high < cpu_tiles(piece->num, panel) * panel
                ? to + high / panel * panel * num + high % panel
                : NULL);
}

/* Pieces of k one behind the other; within one, panel by panel. Written in the order in which b
 * lies: what comes from memory is read from its start to its end. */
static void pack(struct backend *be, const struct units *u, const struct gemm_block *b,
                 uint32_t *packed)
{
    const int64_t cols = cpu_tiles(b->num, PANEL_B) * PANEL_B, step = UNITS_SIDE * u->k;
    if (b->inner == 1) {
#pragma omp parallel for schedule(static) num_threads(be->threads)
        for (int64_t c = 0; c < cols; c += UNITS_SIDE)
            for (int64_t k = 0; k < b->k; k += u->kc) {
                const struct gemm_block piece = piece_at(u, b, k);
                for (int64_t at = 0; at < piece.k; at += step)
                    pack_at(u, &piece, c, at, PANEL_B, packed + cols * (k / u->k));
            }
        return;
    }
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t at = 0; at < b->k; at += step) {
        const int64_t k = at / u->kc * u->kc;
        const struct gemm_block piece = piece_at(u, b, k);
        for (int64_t c = 0; c < cols; c += UNITS_SIDE)
            pack_at(u, &piece, c, at - k, PANEL_B, packed + cols * (k / u->k));
    }
}

/* A panel at the edge of a tile goes through a buffer. */
static void multiply_edge(const struct units *u, int64_t num, const uint32_t *a, const uint32_t *b,
                          float alpha, bool add, int rows, int cols, float *c, int64_t ldc)
{
    float edge[PANEL_A * PANEL_B];
    for (int i = 0; add && i < rows; i++)
        memcpy(edge + i * PANEL_B, c + i * ldc, (size_t)cols * sizeof *c);
    u->panels(num, a, b, alpha, add, edge, PANEL_B);
    for (int i = 0; i < rows; i++)
        memcpy(c + i * ldc, edge + i * PANEL_B, (size_t)cols * sizeof *c);
}

static void multiply(const struct units *u, const struct gemm_block *a, const struct gemm_block *b,
                     const uint32_t *packed, uint32_t *mine, float alpha, bool add, float *c,
                     int64_t ldc)
{
    const int64_t panels = cpu_tiles(b->num, PANEL_B);
    for (int64_t k = 0; k < a->k; k += u->kc) {
        const struct gemm_block piece = piece_at(u, a, k);
        const int64_t num = cpu_tiles(piece.k, u->k);
        const uint32_t *from = packed + panels * PANEL_B * (k / u->k);
        if (a->inner == 1)
            for (int64_t r = 0; r < a->num; r += UNITS_SIDE)
                for (int64_t at = 0; at < piece.k; at += UNITS_SIDE * u->k)
                    pack_at(u, &piece, r, at, PANEL_A, mine);
        else
            for (int64_t at = 0; at < piece.k; at += UNITS_SIDE * u->k)
                for (int64_t r = 0; r < a->num; r += UNITS_SIDE)
                    pack_at(u, &piece, r, at, PANEL_A, mine);
        for (int64_t p = 0; p < panels; p++, from += PANEL_B * num)
            for (int64_t r = 0; r < a->num; r += PANEL_A) {
                const int nr = (int)cpu_min(PANEL_A, a->num - r);
                const int nc = (int)cpu_min(PANEL_B, b->num - p * PANEL_B);
                float *to = c + r * ldc + p * PANEL_B;
                if (nr == PANEL_A && nc == PANEL_B)
                    u->panels(num, mine + r * num, from, alpha, add || k > 0, to, ldc);
                else
                    multiply_edge(u, num, mine + r * num, from, alpha, add || k > 0, nr, nc, to,
                                  ldc);
            }
    }
}

/* The kernel of `units`: what the table wants, with its first argument given. */
#define KERNEL(units)                                                                              \
    static int64_t units##_packed_bytes(int64_t cols, int64_t k)                                   \
    {                                                                                              \
        return panel_bytes(&(units), cols, k, PANEL_B);                                            \
    }                                                                                              \
    static int64_t units##_work_bytes(int64_t rows, int64_t k)                                     \
    {                                                                                              \
        return panel_bytes(&(units), rows, cpu_min(k, (units).kc), PANEL_A);                       \
    }                                                                                              \
    static void units##_pack(struct backend *be, const struct gemm_block *b, void *packed)         \
    {                                                                                              \
        pack(be, &(units), b, packed);                                                             \
    }                                                                                              \
    static void units##_multiply(const struct gemm_block *a, const struct gemm_block *b,           \
                                 const void *packed, void *work, float alpha, bool add, float *c,  \
                                 int64_t ldc)                                                      \
    {                                                                                              \
        multiply(&(units), a, b, packed, work, alpha, add, c, ldc);                                \
    }

KERNEL(pairs)
KERNEL(floats)

static bool floats_usable(void)
{
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

static bool pairs_usable(void)
{
    return floats_usable() && __builtin_cpu_supports("avx512bf16");
}

/* An element's sum goes over k in one order, inside a panel and at its edge. */
const struct gemm_kernel gemm_dot = {.name = "avx512-bf16",
                                     .elem_bytes = 2,
                                     .rows_alone = true,
                                     .tile_rows = 128,
                                     .usable = pairs_usable,
                                     .packed_bytes = pairs_packed_bytes,
                                     .work_bytes = pairs_work_bytes,
                                     .pack = pairs_pack,
                                     .multiply = pairs_multiply};

const struct gemm_kernel gemm_fma = {.name = "avx512",
                                     .elem_bytes = 4,
                                     .rows_alone = true,
                                     .tile_rows = 128,
                                     .usable = floats_usable,
                                     .packed_bytes = floats_packed_bytes,
                                     .work_bytes = floats_work_bytes,
                                     .pack = floats_pack,
                                     .multiply = floats_multiply};
#endif
