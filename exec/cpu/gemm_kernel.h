/* exec/cpu/gemm_kernel.h - the ways to multiply blocks of matrices; private to gemm*.c and their
 * test.
 *
 * gemm.c cuts a product into blocks and packs each block of b once; a kernel says how. A new one is
 * a file, its name below and in gemm.c's list. A file whose instructions not every machine has
 * names them in its functions' target attributes, so that it builds whatever the program is built
 * for, and asks the machine in usable(). */
#ifndef ELAPSE_EXEC_CPU_GEMM_KERNEL_H
#define ELAPSE_EXEC_CPU_GEMM_KERNEL_H

#include "exec/base/backend.h"

/* A block of a or b: element (i, k) of a, (k, i) of b, lies at x + i * outer + k * inner; one of
 * the strides is 1. num: rows of a, columns of b. */
struct gemm_block {
    const void *x;
    int64_t outer, inner, num, k;
};

struct gemm_panels;

struct gemm_kernel {
    const char *name;
    int elem_bytes;                   /* of a and b: 2 are bf16, 4 are fp32 */
    bool rows_alone;                  /* gemm_rows_alone() */
    bool (*rows_anywhere)(void);      /* gemm_rows_anywhere(); NULL: they are */
    int tile_rows;                    /* of one multiply() at most; a multiple of 8 */
    const struct gemm_panels *panels; /* gemm_panels.h; NULL elsewhere */
    bool (*usable)(void);
    /* Of a packed block of b; of one thread, 64-byte aligned. */
    int64_t (*packed_bytes)(const struct gemm_kernel *kernel, int64_t cols, int64_t k);
    int64_t (*work_bytes)(const struct gemm_kernel *kernel, int64_t rows, int64_t k);
    /* Part `part` of `parts`, which threads may write side by side. */
    void (*pack)(const struct gemm_kernel *kernel, const struct gemm_block *b, int part, int parts,
                 void *packed);
    /* c [a->num, cols] = (add ? c : 0) + alpha a b; by one thread. */
    void (*multiply)(const struct gemm_kernel *kernel, const struct gemm_block *a,
                     const struct gemm_block *b, const void *packed, void *work, float alpha,
                     bool add, float *c, int64_t ldc);
};

extern const struct gemm_kernel gemm_amx, gemm_dot, gemm_fma_wide, gemm_vector_wide, gemm_widen;
extern const struct gemm_kernel gemm_fma, gemm_vector, gemm_blas;

/* All that this program has, of bf16 and of fp32 the best first and one that any machine can last;
 * NULL behind the last. */
extern const struct gemm_kernel *const gemm_kernels[];

/* The one in use: the first usable of them. Set for tests only; NULL: those again. */
const struct gemm_kernel *gemm_kernel(int elem_bytes);
void gemm_kernel_set(const struct gemm_kernel *kernel);

#endif
