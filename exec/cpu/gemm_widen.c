/* Blocks of bf16 widened to fp32, in the order in which they lie, and multiplied by BLAS. */
#include <cblas.h>

#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm_kernel.h"

static bool usable(void)
{
    return true;
}

static int64_t packed_bytes(int64_t cols, int64_t k)
{
    return cols * k * (int64_t)sizeof(float);
}

static void widen(const struct gemm_block *b, int64_t first, int64_t end, float *to)
{
    const bool along_k = b->inner == 1;
    const int64_t row = along_k ? b->k : b->num, stride = along_k ? b->outer : b->inner;
    for (int64_t r = first; r < end; r++)
        bf16_widen(row, b->x + r * stride, to + r * row);
}

static void pack(struct backend *be, const struct gemm_block *b, void *packed)
{
    const int64_t rows = b->inner == 1 ? b->num : b->k;
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t r = 0; r < cpu_tiles(rows, 16); r++)
        widen(b, r * 16, cpu_min((r + 1) * 16, rows), packed);
}

static void multiply(const struct gemm_block *a, const struct gemm_block *b, const void *packed,
                     void *work, float alpha, bool add, float *c, int64_t ldc)
{
    const bool a_along = a->inner == 1, b_along = b->inner == 1;
    widen(a, 0, a_along ? a->num : a->k, work);
    cblas_sgemm(CblasRowMajor, a_along ? CblasNoTrans : CblasTrans,
                b_along ? CblasTrans : CblasNoTrans, (int)a->num, (int)b->num, (int)a->k, alpha,
                work, (int)(a_along ? a->k : a->num), packed, (int)(b_along ? b->k : b->num),
                add ? 1.0f : 0.0f, c, (int)ldc);
}

const struct gemm_kernel gemm_widen = {.name = "widened",
                                       .rows_alone = false, /* BLAS: other kernels for few rows */
                                       .usable = usable,
                                       .packed_bytes = packed_bytes,
                                       .work_bytes = packed_bytes,
                                       .pack = pack,
                                       .multiply = multiply};
