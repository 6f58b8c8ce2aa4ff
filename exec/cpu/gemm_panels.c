/* Packing and multiplying by panels (gemm_panels.h), independent of the instruction set. */
#include "exec/cpu/gemm_panels.h"

#include <string.h>

#include "exec/cpu/cpu.h"

static int64_t panel_bytes(const struct gemm_panels *p, int64_t num, int64_t k, int panel)
{
    return cpu_tiles(num, panel) * panel * cpu_tiles(k, p->unit_k) * 4;
}

int64_t gemm_panels_packed_bytes(const struct gemm_kernel *kernel, int64_t cols, int64_t k)
{
    return panel_bytes(kernel->panels, cols, k, kernel->panels->panel_b);
}

int64_t gemm_panels_work_bytes(const struct gemm_kernel *kernel, int64_t rows, int64_t k)
{
    const struct gemm_panels *p = kernel->panels;
    return panel_bytes(p, rows, cpu_min(k, p->kc), p->panel_a);
}

/* The part of a block with k in [k, k + kc), or up to its end. */
static struct gemm_block piece_at(const struct gemm_kernel *kernel, const struct gemm_block *b,
                                  int64_t k)
{
    struct gemm_block piece = *b;
    piece.x = (const char *)b->x + k * b->inner * kernel->elem_bytes;
    piece.k = cpu_min(kernel->panels->kc, b->k - k);
    return piece;
}

/* Packs one square of a piece to its place in the panels at `to`. */
static void pack_at(const struct gemm_panels *p, const struct gemm_block *piece, int64_t first,
                    int64_t k, int panel, uint32_t *to)
{
    const int64_t num = cpu_tiles(piece->k, p->unit_k), high = first + p->panel_a;
    to += k / p->unit_k * panel;
    p->pack(piece, first, k, panel, to + first / panel * panel * num + first % panel,
            high < cpu_tiles(piece->num, panel) * panel
                ? to + high / panel * panel * num + high % panel
                : NULL);
}

/* The packed block has the pieces of k one after another, and in each piece panel after panel. The
 * loops follow the order in which b lies in memory, so that memory is read sequentially. */
void gemm_panels_pack(const struct gemm_kernel *kernel, const struct gemm_block *b, int part,
                      int parts, void *packed)
{
    const struct gemm_panels *p = kernel->panels;
    const int side = 2 * p->panel_a, step = side * p->unit_k;
    const int64_t cols = cpu_tiles(b->num, p->panel_b) * p->panel_b;
    uint32_t *to = packed;
    if (b->inner == 1) {
        const int64_t squares = cols / side;
        for (int64_t c = cpu_share(squares, part, parts) * side;
             c < cpu_share(squares, part + 1, parts) * side; c += side)
            for (int64_t k = 0; k < b->k; k += p->kc) {
                const struct gemm_block piece = piece_at(kernel, b, k);
                for (int64_t at = 0; at < piece.k; at += step)
                    pack_at(p, &piece, c, at, p->panel_b, to + cols * (k / p->unit_k));
            }
        return;
    }
    const int64_t steps = cpu_tiles(b->k, step);
    for (int64_t at = cpu_share(steps, part, parts) * step;
         at < cpu_share(steps, part + 1, parts) * step; at += step) {
        const int64_t k = at / p->kc * p->kc;
        const struct gemm_block piece = piece_at(kernel, b, k);
        for (int64_t c = 0; c < cols; c += side)
            pack_at(p, &piece, c, at - k, p->panel_b, to + cols * (k / p->unit_k));
    }
}

/* Multiplies a panel that reaches beyond the edge of c, through a buffer. */
static void multiply_edge(const struct gemm_panels *p, int64_t num, const uint32_t *a,
                          const uint32_t *b, float alpha, bool add, int rows, int cols, float *c,
                          int64_t ldc)
{
    float edge[GEMM_PANELS_MOST];
    for (int i = 0; add && i < rows; i++)
        memcpy(edge + i * p->panel_b, c + i * ldc, (size_t)cols * sizeof *c);
    p->multiply(num, a, b, alpha, add, edge, p->panel_b);
    for (int i = 0; i < rows; i++)
        memcpy(c + i * ldc, edge + i * p->panel_b, (size_t)cols * sizeof *c);
}

void gemm_panels_multiply(const struct gemm_kernel *kernel, const struct gemm_block *a,
                          const struct gemm_block *b, const void *packed, void *work, float alpha,
                          bool add, float *c, int64_t ldc)
{
    const struct gemm_panels *p = kernel->panels;
    const int side = 2 * p->panel_a, step = side * p->unit_k;
    const int64_t panels = cpu_tiles(b->num, p->panel_b);
    uint32_t *mine = work;
    for (int64_t k = 0; k < a->k; k += p->kc) {
        const struct gemm_block piece = piece_at(kernel, a, k);
        const int64_t num = cpu_tiles(piece.k, p->unit_k);
        const uint32_t *from = (const uint32_t *)packed + panels * p->panel_b * (k / p->unit_k);
        if (a->inner == 1)
            for (int64_t r = 0; r < a->num; r += side)
                for (int64_t at = 0; at < piece.k; at += step)
                    pack_at(p, &piece, r, at, p->panel_a, mine);
        else
            for (int64_t at = 0; at < piece.k; at += step)
                for (int64_t r = 0; r < a->num; r += side)
                    pack_at(p, &piece, r, at, p->panel_a, mine);
        for (int64_t j = 0; j < panels; j++, from += p->panel_b * num)
            for (int64_t r = 0; r < a->num; r += p->panel_a) {
                const int nr = (int)cpu_min(p->panel_a, a->num - r);
                const int nc = (int)cpu_min(p->panel_b, b->num - j * p->panel_b);
                float *to = c + r * ldc + j * p->panel_b;
                if (nr == p->panel_a && nc == p->panel_b)
                    p->multiply(num, mine + r * num, from, alpha, add || k > 0, to, ldc);
                else
                    multiply_edge(p, num, mine + r * num, from, alpha, add || k > 0, nr, nc, to,
                                  ldc);
            }
    }
}
