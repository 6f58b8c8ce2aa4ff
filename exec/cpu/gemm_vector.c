/* The kernel for processors without AVX-512: vectors of eight floats (AVX2) or four (Arm's NEON).
 * bf16 is widened to fp32 when it is packed. Written in GCC's vector extensions; -ffp-contract=fast
 * turns a product and the following sum into one multiply-add. */
#include <string.h>

#include "exec/base/bf16.h"
#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm_panels.h"

#if defined __x86_64__ || defined __aarch64__
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

#ifdef __x86_64__
#define VECTOR __attribute__((target("avx2,fma")))
#define NAME "avx2"
#define IN_REGISTER(x) "+x"(x)
enum { LANES = 8 };
#else
#define VECTOR
#define NAME "neon"
#define IN_REGISTER(x) "+w"(x)
enum { LANES = 4 };
#endif

/* The sums of 4 x 24 elements take 12 of the 16 registers of AVX2, or 24 of the 32 of NEON. A panel
 * of b with KC = 256 values of k is 24 KiB and fits the L1 cache. */
enum { PANEL_A = 4, PANEL_B = 24, VECTORS = PANEL_B / LANES, SIDE = 2 * PANEL_A, KC = 256 };

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint32_t words __attribute__((vector_size(16), may_alias));

/* Transposes: x[i][j] becomes x[j][i]. */
VECTOR static inline void turn(four x[4])
{
    const four low01 = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5);
    const four high01 = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
    const four low23 = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
    const four high23 = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
    x[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    x[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    x[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    x[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

VECTOR static inline four load(const char *from, int elem_bytes)
{
    if (elem_bytes == 4)
        return *(const four *)(const void *)from;
    const words wide = __builtin_convertvector(*(const halves *)(const void *)from, words) << 16;
    return (four)wide;
}

/* Loads four rows (or columns) from `from` on by four k: x[p][i] is k p of row i. */
VECTOR static inline void load_square(const char *from, int64_t outer, int64_t inner,
                                      int elem_bytes, four x[4])
{
    const int64_t step = (inner == 1 ? outer : inner) * elem_bytes;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        x[i] = load(from + i * step, elem_bytes);
    if (inner == 1)
        turn(x);
}

/* Packs four rows (or columns) and up to eight k; rows beyond the block are zero. */
VECTOR static inline void pack_half(const struct gemm_block *b, int64_t first, int64_t k,
                                    int stride, int elem_bytes, uint32_t *to)
{
    const char *from = (const char *)b->x + (first * b->outer + k * b->inner) * elem_bytes;
    const int64_t num = b->num - first, len = cpu_min(SIDE, b->k - k), inner = b->inner;
    int p = 0;
    for (; num >= PANEL_A && p + 4 <= len; p += 4) {
        four x[4];
        load_square(from + p * inner * elem_bytes, b->outer, inner, elem_bytes, x);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            *(four *)(void *)(to + (p + i) * stride) = x[i];
    }
    for (; p < len; p++)
        for (int i = 0; i < PANEL_A; i++) {
            const char *at = from + (i * b->outer + p * inner) * elem_bytes;
            float x = 0.0f;
            if (i < num)
                x = elem_bytes == 4 ? *(const float *)(const void *)at
                                    : bf16_to(*(const uint16_t *)(const void *)at);
            memcpy(to + p * stride + i, &x, sizeof x);
        }
}

VECTOR static void pack_floats(const struct gemm_block *b, int64_t first, int64_t k, int stride,
                               uint32_t *to, uint32_t *high)
{
    pack_half(b, first, k, stride, sizeof(float), to);
    if (high)
        pack_half(b, first + PANEL_A, k, stride, sizeof(float), high);
}

VECTOR static void pack_wide(const struct gemm_block *b, int64_t first, int64_t k, int stride,
                             uint32_t *to, uint32_t *high)
{
    pack_half(b, first, k, stride, sizeof(uint16_t), to);
    if (high)
        pack_half(b, first + PANEL_A, k, stride, sizeof(uint16_t), high);
}

/* rows, panel: compile-time constants, so that the loops over rows unroll. The rows that follow are
 * fetched ahead, because the runs along memory are too short for the processor to do so. */
VECTOR static inline void strip(const struct gemm_block *b, int64_t first, int64_t k, int64_t len,
                                int rows, int panel, int64_t num, int elem_bytes, uint32_t *to)
{
    const char *from = (const char *)b->x + (first * b->outer + k * b->inner) * elem_bytes;
    if (b->inner != 1) {
        for (int64_t p = 0; p < len; p++) {
            const char *row = from + p * b->inner * elem_bytes;
            for (int r = 0; r < rows; r += 16)
                __builtin_prefetch(row + (SIDE * b->inner + r) * elem_bytes);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r += 4)
                *(four *)(void *)(to + r / panel * panel * num + p * panel + r % panel) =
                    load(row + r * elem_bytes, elem_bytes);
        }
        return;
    }
    for (int r = 0; r < rows; r += 4)
        for (int64_t p = 0; p < len; p += 4) {
            const char *row = from + (r * b->outer + p) * elem_bytes;
            four x[4];
            for (int i = 8; i < 12 && p % 16 == 0; i++)
                __builtin_prefetch(row + i * b->outer * elem_bytes);
            load_square(row, b->outer, 1, elem_bytes, x);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                *(four *)(void *)(to + r / panel * panel * num + (p + i) * panel + r % panel) =
                    x[i];
        }
}

VECTOR static void strip_floats(const struct gemm_block *b, int64_t first, int64_t k, int64_t len,
                                int panel, int64_t num, uint32_t *to)
{
    if (panel == PANEL_A)
        strip(b, first, k, len, 16, PANEL_A, num, sizeof(float), to);
    else
        strip(b, first, k, len, PANEL_B, PANEL_B, num, sizeof(float), to);
}

VECTOR static void strip_wide(const struct gemm_block *b, int64_t first, int64_t k, int64_t len,
                              int panel, int64_t num, uint32_t *to)
{
    if (panel == PANEL_A)
        strip(b, first, k, len, 16, PANEL_A, num, sizeof(uint16_t), to);
    else
        strip(b, first, k, len, PANEL_B, PANEL_B, num, sizeof(uint16_t), to);
}

/* Adds the products of the first `vectors` vectors of each row of a panel of b, a compile-time
 * constant. */
VECTOR __attribute__((always_inline)) static inline void
add_products(int64_t num, const uint32_t *a, const uint32_t *b, int vectors,
             vec sum[PANEL_A][VECTORS])
{
    for (; num > 0; num--, a += PANEL_A, b += PANEL_B) {
        const four x = *(const four *)(const void *)a;
        vec row[VECTORS];
#pragma GCC unroll 6
        for (int j = 0; j < vectors; j++) {
            row[j] = *(const vec *)(const void *)(b + j * LANES);
            /* Keeps row[j] in a register, so that it is read once and not for each product. */
            __asm__("" : IN_REGISTER(row[j]));
        }
#pragma GCC unroll 4
        for (int i = 0; i < PANEL_A; i++)
#pragma GCC unroll 6
            for (int j = 0; j < vectors; j++)
                sum[i][j] += x[i] * row[j];
    }
}

/* c = (add ? c : 0) + alpha sum, `vectors` vectors of each row. */
VECTOR __attribute__((always_inline)) static inline void
put_sums(vec sum[PANEL_A][VECTORS], int vectors, float alpha, bool add, float *c, int64_t ldc)
{
#pragma GCC unroll 4
    for (int i = 0; i < PANEL_A; i++)
#pragma GCC unroll 6
        for (int j = 0; j < vectors; j++) {
            vec *to = (vec *)(void *)(c + i * ldc + j * LANES);
            *to = alpha * sum[i][j] + (add ? *to : (vec){0});
        }
}

#ifdef __x86_64__
/* Row i of the sums at the k-th value of k: AVX2 reads the element of a where it is broadcast. */
#define ROW(k, i)                                                                                  \
    "vbroadcastss 16*" #k "+4*" #i "(%[a]), %%ymm15\n\t"                                           \
    "vfmadd231ps %%ymm12, %%ymm15, %[s" #i "0]\n\t"                                                \
    "vfmadd231ps %%ymm13, %%ymm15, %[s" #i "1]\n\t"                                                \
    "vfmadd231ps %%ymm14, %%ymm15, %[s" #i "2]\n\t"
#define STEP(k)                                                                                    \
    "vmovups 96*" #k "(%[b]), %%ymm12\n\t"                                                         \
    "vmovups 96*" #k "+32(%[b]), %%ymm13\n\t"                                                      \
    "vmovups 96*" #k "+64(%[b]), %%ymm14\n\t" ROW(k, 0) ROW(k, 1) ROW(k, 2) ROW(k, 3)
#define SUM(i) [s##i##0] "+x"(sum[i][0]), [s##i##1] "+x"(sum[i][1]), [s##i##2] "+x"(sum[i][2])
/* Adds the products of some values of k. Written out, because GCC spills sums to load the next k
 * early. */
#define ADD_PRODUCTS(steps)                                                                        \
    __asm__ volatile(steps                                                                         \
                     : SUM(0), SUM(1), SUM(2), SUM(3)                                              \
                     : [a] "r"(a), [b] "r"(b)                                                      \
                     : "xmm12", "xmm13", "xmm14", "xmm15", "memory")
_Static_assert(PANEL_A == 4 && VECTORS == 3, "the sums of ADD_PRODUCTS()");
#endif

VECTOR static void multiply(int64_t num, const uint32_t *a, const uint32_t *b, float alpha,
                            bool add, float *c, int64_t ldc)
{
    vec sum[PANEL_A][VECTORS] = {0};
#ifdef __x86_64__
    for (; num >= 4; num -= 4, a += 4 * PANEL_A, b += 4 * PANEL_B)
        ADD_PRODUCTS(STEP(0) STEP(1) STEP(2) STEP(3));
    for (; num > 0; num--, a += PANEL_A, b += PANEL_B)
        ADD_PRODUCTS(STEP(0));
#else
    add_products(num, a, b, VECTORS, sum);
#endif
    put_sums(sum, VECTORS, alpha, add, c, ldc);
}

VECTOR static void multiply_narrow(int64_t num, const uint32_t *a, const uint32_t *b, float alpha,
                                   bool add, int cols, float *c, int64_t ldc)
{
    vec sum[PANEL_A][VECTORS] = {0};
    switch (cols / LANES) {
    case 1:
        add_products(num, a, b, 1, sum);
        put_sums(sum, 1, alpha, add, c, ldc);
        break;
    case 2:
        add_products(num, a, b, 2, sum);
        put_sums(sum, 2, alpha, add, c, ldc);
        break;
    default: /* NEON's vectors are shorter */
        for (int j = 0; j < cols / LANES; j++) {
            vec one[PANEL_A][VECTORS] = {0};
            add_products(num, a, b + j * LANES, 1, one);
            put_sums(one, 1, alpha, add, c + j * LANES, ldc);
        }
    }
}

static bool usable(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

_Static_assert(GEMM_PANELS_MOST >= PANEL_A * PANEL_B, "a panel fits the edge buffer");
#define PANELS(pack_, strip_)                                                                      \
    {                                                                                              \
        .unit_k = 1, .panel_a = PANEL_A, .panel_b = PANEL_B, .kc = KC, .pack = (pack_),            \
        .pack_strip = (strip_), .multiply = multiply, .narrow_step = LANES,                        \
        .multiply_narrow = multiply_narrow                                                         \
    }
static const struct gemm_panels floats = PANELS(pack_floats, strip_floats);
static const struct gemm_panels wide = PANELS(pack_wide, strip_wide);

const struct gemm_kernel gemm_vector = GEMM_PANELS_KERNEL(NAME, 4, &floats, usable);
const struct gemm_kernel gemm_vector_wide = GEMM_PANELS_KERNEL(NAME "-widened", 2, &wide, usable);
#endif
