/* Kernels that call BLAS: fp32 blocks as they lie in memory, and bf16 blocks widened to fp32 in the
 * order in which they lie. */
#include <cblas.h>
#include <string.h>

#include "exec/base/rng.h"
#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm_kernel.h"

static bool usable(void)
{
    return true;
}

static void blas(const struct gemm_block *a, const float *ax, int64_t lda,
                 const struct gemm_block *b, const float *bx, int64_t ldb, float alpha, bool add,
                 float *c, int64_t ldc)
{
    cblas_sgemm(CblasRowMajor, a->inner == 1 ? CblasNoTrans : CblasTrans,
                b->inner == 1 ? CblasTrans : CblasNoTrans, (int)a->num, (int)b->num, (int)a->k,
                alpha, ax, (int)lda, bx, (int)ldb, add ? 1.0f : 0.0f, c, (int)ldc);
}

/* Tests the library: multiplies a matrix of equal rows and compares the rows of the result. */
static bool bits_independent_of_row_position(void)
{
    enum { M = 61, N = 64, K = 64 };
    static float a[M * K], b[N * K], c[M * N];
    for (int i = 0; i < N * K; i++)
        b[i] = (float)rng_normal(1, (uint64_t)i);
    for (int i = 0; i < M * K; i++)
        a[i] = (float)rng_normal(2, (uint64_t)(i % K));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, M, N, K, 1.0f, a, K, b, K, 0.0f, c, N);
    for (int i = 1; i < M; i++)
        if (memcmp(c, c + i * N, N * sizeof *c) != 0)
            return false;
    return true;
}

/* --- fp32 ------------------------------------------------------------------------------------ */

static int64_t nothing_bytes(const struct gemm_kernel *kernel, int64_t num, int64_t k)
{
    (void)kernel, (void)num, (void)k;
    return 0;
}

static void pack_nothing(const struct gemm_kernel *kernel, const struct gemm_block *b, int part,
                         int parts, void *packed)
{
    (void)kernel, (void)b, (void)part, (void)parts, (void)packed;
}

/* The leading dimension for BLAS. For a block with one row both strides may be 1, but BLAS requires
 * at least the row's length. */
static int64_t stride(const struct gemm_block *block)
{
    if (block->inner != 1)
        return block->inner;
    return block->outer > block->k ? block->outer : block->k;
}

static void multiply_in_place(const struct gemm_kernel *kernel, const struct gemm_block *a,
                              const struct gemm_block *b, const void *packed, void *work,
                              float alpha, bool add, float *c, int64_t ldc)
{
    (void)kernel, (void)packed, (void)work;
    blas(a, a->x, stride(a), b, b->x, stride(b), alpha, add, c, ldc);
}

const struct gemm_kernel gemm_blas = {
    .name = "blas",
    .elem_bytes = 4,
    .bits_independent_of_row_count = false, /* few rows use other kernels */
    .bits_independent_of_row_position = bits_independent_of_row_position,
    .tile_rows = 512,
    .usable = usable,
    .packed_bytes = nothing_bytes,
    .work_bytes = nothing_bytes,
    .pack = pack_nothing,
    .multiply = multiply_in_place};

/* --- bf16 ------------------------------------------------------------------------------------ */

static int64_t packed_bytes(const struct gemm_kernel *kernel, int64_t cols, int64_t k)
{
    (void)kernel;
    return cols * k * (int64_t)sizeof(float);
}

static void widen(const struct gemm_block *b, int64_t first, int64_t end, float *to)
{
    const int64_t row = b->inner == 1 ? b->k : b->num;
    for (int64_t r = first; r < end; r++)
        bf16_widen(row, (const uint16_t *)b->x + r * stride(b), to + r * row);
}

static void pack(const struct gemm_kernel *kernel, const struct gemm_block *b, int part, int parts,
                 void *packed)
{
    (void)kernel;
    const int64_t rows = b->inner == 1 ? b->num : b->k;
    widen(b, cpu_share(rows, part, parts), cpu_share(rows, part + 1, parts), packed);
}

static void multiply(const struct gemm_kernel *kernel, const struct gemm_block *a,
                     const struct gemm_block *b, const void *packed, void *work, float alpha,
                     bool add, float *c, int64_t ldc)
{
    (void)kernel;
    widen(a, 0, a->inner == 1 ? a->num : a->k, work);
    blas(a, work, a->inner == 1 ? a->k : a->num, b, packed, b->inner == 1 ? b->k : b->num, alpha,
         add, c, ldc);
}

const struct gemm_kernel gemm_widen = {.name = "widened",
                                       .elem_bytes = 2,
                                       .bits_independent_of_row_count = false,
                                       .bits_independent_of_row_position =
                                           bits_independent_of_row_position,
                                       .tile_rows = 128,
                                       .usable = usable,
                                       .packed_bytes = packed_bytes,
                                       .work_bytes = packed_bytes,
                                       .pack = pack,
                                       .multiply = multiply};
