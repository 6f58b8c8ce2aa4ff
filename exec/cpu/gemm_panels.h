/* exec/cpu/gemm_panels.h - products by panels of vectors: what the kernels of gemm_avx512.c and
 * gemm_vector.c share; private to exec/cpu/gemm*.c.
 *
 * A block of b is packed into panels of panel_b columns, one of a into panels of panel_a rows; in a
 * panel the same unit of all columns (rows) lies together. A unit is 4 bytes: one fp32, or a pair
 * (k, k + 1) of bf16. */
#ifndef ELAPSE_EXEC_CPU_GEMM_PANELS_H
#define ELAPSE_EXEC_CPU_GEMM_PANELS_H

#include "exec/cpu/gemm_kernel.h"

enum { GEMM_PANELS_MOST = 8 * 48 }; /* panel_a * panel_b at most */

/* What a kernel says of its panels. */
struct gemm_panels {
    int unit_k;  /* k of a unit: 1, or 2 of bf16 */
    int panel_a; /* half the side of a square, of which panel_b is a multiple */
    int panel_b;
    int kc; /* k of a piece, which is multiplied at a time; a multiple of a square's */
    /* Packs a square: rows (columns) [first, first + side), zero where the block has none, and
     * `side` units from k on, or as many as there are. Unit p of the first half of the rows goes to
     * to[p * stride], of the other half to high[p * stride] (NULL: there is none). */
    void (*pack)(const struct gemm_block *b, int64_t first, int64_t k, int stride, uint32_t *to,
                 uint32_t *high);
    /* c [panel_a, panel_b] = (add ? c : 0) + alpha a b over num units. */
    void (*multiply)(int64_t num, const uint32_t *a, const uint32_t *b, float alpha, bool add,
                     float *c, int64_t ldc);
};

/* A struct gemm_kernel of panels: an element's sum goes over k in one order, inside a panel and at
 * its edge. */
#define GEMM_PANELS_KERNEL(name_, elem_bytes_, panels_, usable_)                                   \
    {                                                                                              \
        .name = (name_), .elem_bytes = (elem_bytes_), .rows_alone = true, .tile_rows = 128,        \
        .panels = (panels_), .usable = (usable_), .packed_bytes = gemm_panels_packed_bytes,        \
        .work_bytes = gemm_panels_work_bytes, .pack = gemm_panels_pack,                            \
        .multiply = gemm_panels_multiply                                                           \
    }

/* The functions of such a kernel. */
int64_t gemm_panels_packed_bytes(const struct gemm_kernel *kernel, int64_t cols, int64_t k);
int64_t gemm_panels_work_bytes(const struct gemm_kernel *kernel, int64_t rows, int64_t k);
void gemm_panels_pack(const struct gemm_kernel *kernel, const struct gemm_block *b, int part,
                      int parts, void *packed);
void gemm_panels_multiply(const struct gemm_kernel *kernel, const struct gemm_block *a,
                          const struct gemm_block *b, const void *packed, void *work, float alpha,
                          bool add, float *c, int64_t ldc);

#endif
