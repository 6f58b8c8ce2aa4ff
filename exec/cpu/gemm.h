/* exec/cpu/gemm.h - matrix products with fp32 sums, for cpu_linear.c and cpu_attention.c.
 *
 * bf16 uses the tiles of AMX, or the dot-product instruction of AVX512-BF16 (both treat subnormal
 * operands as zero); elsewhere it is widened to fp32. fp32 uses the multiply-adds of AVX-512, AVX2
 * or NEON; elsewhere BLAS. Sums run over k in ascending blocks whose bounds depend on the shape
 * only. Blocking and packing follow Goto and van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication", ACM TOMS 34(3), 2008. */
#pragma once

#include "exec/base/backend.h"

enum { GEMM_COLS = 960 }; /* largest number of columns of a tile: 20 panels of 48 or 30 of 32 */

/* A product a b, with a [m, k] and b [k, n]. Element (i, k) of a lies at a + i * a_row + k * a_col,
 * element (k, j) of b at b + k * b_row + j * b_col. One stride of each matrix must be 1. Elements
 * have the backend's elem_bytes. */
struct gemm {
    int64_t m, n, k;
    const void *a, *b;
    int64_t a_row, a_col, b_row, b_col;
    float alpha;
    /* c != NULL: c [m, ldc] += alpha a b, or c = alpha a b if fresh. c == NULL: several threads
     * call finish() with tiles of the product, rows [r0, r0 + rows) and columns [c0, c0 + cols),
     * cols <= GEMM_COLS. */
    float *c;
    int64_t ldc;
    bool fresh;
    void (*finish)(void *ctx, int64_t r0, int rows, int64_t c0, int cols, float *tile, int64_t ld);
    void *ctx;
};

/* Whether the bits of a row of a b are independent of the number of rows of a. */
bool gemm_bits_independent_of_row_count(int elem_bytes);
/* Whether the bits of a row are independent of its position among as many rows. They are not with
 * OpenBLAS 0.3.21 for Haswell, which computes the rows of a block in two ways. */
bool gemm_bits_independent_of_row_position(int elem_bytes);

/* Name of the kernel in use for elements of this size. */
const char *gemm_name(int elem_bytes);

/* Choose the kernels. ELAPSE_GEMM in the environment may name the kernel for one element size;
 * otherwise each size uses the first kernel of the list that this machine can run. ERR_INPUT:
 * ELAPSE_GEMM names no usable kernel; the message lists them. */
enum status gemm_choose(struct err *err);

/* Computes g with all threads of the backend. Uses the backend's scratch (cpu_scratch()). */
void gemm(struct backend *be, const struct gemm *g);

/* Computes a small fp32 product into c on the calling thread, for use inside a parallel loop.
 * scratch: gemm_alone_bytes() bytes of the caller's, 64-byte aligned. */
int64_t gemm_alone_bytes(int64_t m, int64_t n, int64_t k);
void gemm_alone(const struct gemm *g, void *scratch);
