/* exec/cpu/gemm_kernel.h - the interface of a kernel that multiplies blocks of matrices; private to
 * gemm*.c and their test.
 *
 * gemm.c cuts a product into blocks and lets the kernel pack each block of b once and multiply it
 * with blocks of a. To add a kernel, write a file, declare its struct below and enter it into
 * gemm.c's list. If its instructions do not exist on every machine, name them in the target
 * attribute of its functions, so that the file builds whatever the compiler's -march is, and test
 * for them in usable(). */
#pragma once

#include "exec/base/backend.h"

/* A block of a or b. Element (i, k) of a, or (k, i) of b, lies at x + i * outer + k * inner; one of
 * the strides is 1. num: the rows of a, or the columns of b. */
struct gemm_block {
    const void *x;
    int64_t outer, inner, num, k;
};

struct gemm_panels;

struct gemm_kernel {
    const char *name;
    int elem_bytes; /* element size of a and b: 2 is bf16, 4 is fp32 */
    /* Both as in gemm.h. */
    bool bits_independent_of_row_count;
    bool (*bits_independent_of_row_position)(void); /* NULL: true */
    int tile_rows;                    /* most rows of one multiply(); a multiple of 8 */
    const struct gemm_panels *panels; /* see gemm_panels.h; NULL: the kernel does not use panels */
    /* Whether this machine can run the kernel. */
    bool (*usable)(void);
    /* Bytes of a packed block of b, and of the work memory that each thread needs for multiply(),
     * 64-byte aligned. */
    int64_t (*packed_bytes)(const struct gemm_kernel *kernel, int64_t cols, int64_t k);
    int64_t (*work_bytes)(const struct gemm_kernel *kernel, int64_t rows, int64_t k);
    /* Pack part `part` of `parts` of a block of b. Threads may pack different parts at the same
     * time. */
    void (*pack)(const struct gemm_kernel *kernel, const struct gemm_block *b, int part, int parts,
                 void *packed);
    /* c [a->num, b->num] = (add ? c : 0) + alpha a b, on the calling thread. */
    void (*multiply)(const struct gemm_kernel *kernel, const struct gemm_block *a,
                     const struct gemm_block *b, const void *packed, void *work, float alpha,
                     bool add, float *c, int64_t ldc);
};

extern const struct gemm_kernel gemm_amx, gemm_dot, gemm_fma_wide, gemm_vector_wide, gemm_widen;
extern const struct gemm_kernel gemm_fma, gemm_vector, gemm_blas;

/* All kernels of this program, bf16 first, then fp32. For each element size the fastest is first,
 * and the last one runs on any machine. Ends with NULL. */
extern const struct gemm_kernel *const gemm_kernels[];

/* The kernel in use for elements of this size: the first usable one, unless gemm_choose() or
 * gemm_kernel_set() chose another. gemm_kernel_set() is called by gemm_choose() and by tests; NULL
 * returns both sizes to the first usable kernel. */
const struct gemm_kernel *gemm_kernel(int elem_bytes);
void gemm_kernel_set(const struct gemm_kernel *kernel);
