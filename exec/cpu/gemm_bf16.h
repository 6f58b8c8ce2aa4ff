/* exec/cpu/gemm_bf16.h - products of bf16 matrices with fp32 sums, for cpu_linear.c.
 *
 * With AMX on its tiles, with AVX512-BF16 on its dot-product instruction (subnormal operands count
 * as zero in both); elsewhere blocks are widened and BLAS multiplies them in fp32. Sums run over k
 * in ascending blocks whose bounds depend on the shape only. */
#ifndef ELAPSE_EXEC_CPU_GEMM_BF16_H
#define ELAPSE_EXEC_CPU_GEMM_BF16_H

#include "exec/backend.h"

enum { GEMM_COLS = 960 }; /* columns of a tile at most: 20 panels of 48, 30 of 32 */

/* Element (i, k) of a lies at a + i * a_row + k * a_col, element (k, j) of b at
 * b + k * b_row + j * b_col; one stride of each is 1. */
struct gemm_bf16 {
    int64_t m, n, k;
    const uint16_t *a, *b;
    int64_t a_row, a_col, b_row, b_col;
    float alpha;
    /* Either c [m, ldc] += alpha a b (= where fresh); or c NULL and finish() gets the product in
     * tiles of rows [r0, r0 + rows) and columns [c0, c0 + cols), cols <= GEMM_COLS, from several
     * threads. */
    float *c;
    int64_t ldc;
    bool fresh;
    void (*finish)(void *ctx, int64_t r0, int rows, int64_t c0, int cols, float *tile, int64_t ld);
    void *ctx;
};

/* Whether the bits of a row of a b are those that it has in a matrix of any number of rows. */
bool gemm_bf16_rows_alone(void);

/* Name of the kernel in use. */
const char *gemm_bf16_name(void);

/* Takes the backend's scratch. */
void gemm_bf16(struct backend *be, const struct gemm_bf16 *g);

#endif
