/* exec/cpu/gemm_panels.h - products by panels of vectors: code that the kernels of gemm_avx512.c
 * and gemm_vector.c share; private to exec/cpu/gemm*.c.
 *
 * A block of b is packed into panels of panel_b columns, and a block of a into panels of panel_a
 * rows. A panel stores, for each k in turn, one unit of every column (or row) side by side. A unit
 * is 4 bytes: one fp32, or a pair (k, k + 1) of bf16. */
#pragma once

#include "exec/cpu/gemm_kernel.h"

enum { GEMM_PANELS_MOST = 8 * 48 }; /* largest panel_a * panel_b */

/* Sizes and inner functions that a kernel provides. */
struct gemm_panels {
    int unit_k;  /* number of k in a unit: 1, or 2 for pairs of bf16 */
    int panel_a; /* half the side of a square (see pack()); panel_b is a multiple of the side */
    int panel_b;
    int kc; /* number of k that are packed and multiplied at a time; a multiple of the k in a square
             */
    /* Packs a square of side 2 * panel_a: rows (or columns) [first, first + side), zero where the
     * block has none, and `side` units from k on, or as many as the block has. Unit p of the lower
     * half of the rows goes to to[p * stride], of the upper half to high[p * stride]. high NULL:
     * skip the upper half. */
    void (*pack)(const struct gemm_block *b, int64_t first, int64_t k, int stride, uint32_t *to,
                 uint32_t *high);
    /* Packs whole panels of `panel` rows (or columns) at a time: rows [first, first + gemm_strip_rows(panel)),
     * all of which exist, and `len` units from k on, a multiple of 4. A panel has `num` units.
     * NULL: pack() does everything. */
    void (*pack_strip)(const struct gemm_block *b, int64_t first, int64_t k, int64_t len, int panel,
                       int64_t num, uint32_t *to);
    /* c [panel_a, panel_b] = (add ? c : 0) + alpha a b over num units. */
    void (*multiply)(int64_t num, const uint32_t *a, const uint32_t *b, float alpha, bool add,
                     float *c, int64_t ldc);
    /* As multiply(), for the first `cols` columns of the panel of b, a multiple of narrow_step below
     * panel_b. narrow_step 0: there is none. */
    int narrow_step;
    void (*multiply_narrow)(int64_t num, const uint32_t *a, const uint32_t *b, float alpha,
                            bool add, int cols, float *c, int64_t ldc);
};

/* Rows of pack_strip(): a cache line of fp32 at least. */
static inline int gemm_strip_rows(int panel)
{
    return panel < 16 ? 16 : panel;
}

/* Initialiser of a struct gemm_kernel that uses panels. bits_independent_of_row_count is
 * true, because the sum of an element runs over k in the same order inside a panel and at the edge
 * of the matrix. */
#define GEMM_PANELS_KERNEL(name_, elem_bytes_, panels_, usable_)                                   \
    {                                                                                              \
        .name = (name_), .elem_bytes = (elem_bytes_), .bits_independent_of_row_count = true,       \
        .tile_rows = 128, .panels = (panels_), .usable = (usable_),                                \
        .packed_bytes = gemm_panels_packed_bytes, .work_bytes = gemm_panels_work_bytes,            \
        .pack = gemm_panels_pack, .multiply = gemm_panels_multiply                                 \
    }

/* The functions of a kernel that uses panels. */
int64_t gemm_panels_packed_bytes(const struct gemm_kernel *kernel, int64_t cols, int64_t k);
int64_t gemm_panels_work_bytes(const struct gemm_kernel *kernel, int64_t rows, int64_t k);
void gemm_panels_pack(const struct gemm_kernel *kernel, const struct gemm_block *b, int part,
                      int parts, void *packed);
void gemm_panels_multiply(const struct gemm_kernel *kernel, const struct gemm_block *a,
                          const struct gemm_block *b, const void *packed, void *work, float alpha,
                          bool add, float *c, int64_t ldc);
