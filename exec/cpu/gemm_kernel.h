/* exec/cpu/gemm_kernel.h - the ways to multiply blocks of bf16; private to gemm_*.c and their test.
 *
 * gemm_bf16.c cuts a product into blocks and packs each block of b once; a kernel says how. */
#ifndef ELAPSE_EXEC_CPU_GEMM_KERNEL_H
#define ELAPSE_EXEC_CPU_GEMM_KERNEL_H

#include "exec/backend.h"

/* A block of a or b: element (i, k) of a, (k, i) of b, lies at x + i * outer + k * inner; one of
 * the strides is 1. num: rows of a, columns of b. */
struct gemm_block {
    const uint16_t *x;
    int64_t outer, inner, num, k;
};

struct gemm_kernel {
    const char *name;
    bool rows_alone; /* gemm_bf16_rows_alone() */
    bool (*usable)(void);
    int64_t (*packed_bytes)(int64_t cols, int64_t k); /* of a packed block of b */
    int64_t (*work_bytes)(int64_t rows, int64_t k);   /* of one thread, 64-byte aligned */
    void (*pack)(struct backend *be, const struct gemm_block *b, void *packed);
    /* c [a->num, cols] = (add ? c : 0) + alpha a b; by one thread. */
    void (*multiply)(const struct gemm_block *a, const struct gemm_block *b, const void *packed,
                     void *work, float alpha, bool add, float *c, int64_t ldc);
};

extern const struct gemm_kernel gemm_amx;   /* tiles, Intel since Sapphire Rapids */
extern const struct gemm_kernel gemm_dot;   /* AVX512-BF16, Intel since Cooper Lake, AMD Zen 4 */
extern const struct gemm_kernel gemm_widen; /* any machine: BLAS on widened blocks */

/* The one in use: the first usable in the order above. Set for tests only, NULL: that one again. */
const struct gemm_kernel *gemm_kernel(void);
void gemm_kernel_set(const struct gemm_kernel *kernel);

#endif
