/* exec/cpu/gemm.h - products of matrices with fp32 sums, for cpu_linear.c and cpu_attention.c.
 *
 * bf16 with AMX on its tiles, with AVX512-BF16 on its dot-product instruction (subnormal operands
 * count as zero in both), elsewhere widened; fp32 by the multiply-adds of AVX-512, AVX2 or NEON,
 * elsewhere by BLAS. Sums run over k in ascending blocks whose bounds depend on the shape only.
 * Blocks and packing after Goto and van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication", ACM TOMS 34(3), 2008. */
#ifndef ELAPSE_EXEC_CPU_GEMM_H
#define ELAPSE_EXEC_CPU_GEMM_H

#include "exec/base/backend.h"

enum { GEMM_COLS = 960 }; /* columns of a tile at most: 20 panels of 48, 30 of 32 */

/* Element (i, k) of a lies at a + i * a_row + k * a_col, element (k, j) of b at
 * b + k * b_row + j * b_col; one stride of each is 1. Elements have the backend's elem_bytes. */
struct gemm {
    int64_t m, n, k;
    const void *a, *b;
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
bool gemm_rows_alone(int elem_bytes);
/* Whether they are those that it has at any other place among as many rows. OpenBLAS 0.3.21 for
 * Haswell computes the rows of a block in two ways. */
bool gemm_rows_anywhere(int elem_bytes);

/* Name of the kernel in use. */
const char *gemm_name(int elem_bytes);

/* ELAPSE_GEMM in the environment names the kernel of its elements; without it each has the first
 * that the machine can. ERR_INPUT: it names none of those; the message lists them. */
enum status gemm_choose(struct err *err);

/* Takes the backend's scratch. */
void gemm(struct backend *be, const struct gemm *g);

/* The same of fp32 into c, by the thread that calls, for small products inside of a parallel loop;
 * scratch of its own, 64-byte aligned. */
int64_t gemm_alone_bytes(int64_t m, int64_t n, int64_t k);
void gemm_alone(const struct gemm *g, void *scratch);

#endif
