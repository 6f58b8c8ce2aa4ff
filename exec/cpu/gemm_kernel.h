/* exec/cpu/gemm_kernel.h - the ways to multiply blocks of bf16; private to gemm_*.c and their test.
 *
 * gemm_bf16.c cuts a product into blocks and packs each block of b once; a kernel says how. A new
 * one is a file, its name below and in gemm_bf16.c's list. A file whose instructions not every
 * machine has names them in its functions' target attributes, so that it builds whatever the
 * program is built for, and asks the machine in usable(). */
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

extern const struct gemm_kernel gemm_amx, gemm_dot, gemm_widen;

/* All that this program has, the best first; NULL behind the last, which any machine can. */
extern const struct gemm_kernel *const gemm_kernels[];

/* The one in use: the first usable of them. Set for tests only, NULL: that one again. */
const struct gemm_kernel *gemm_kernel(void);
void gemm_kernel_set(const struct gemm_kernel *kernel);

#endif
