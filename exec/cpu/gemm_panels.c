/* Packing and multiplying by panels (gemm_panels.h), independent of the instruction set. */
#include "exec/cpu/gemm_panels.h"

#include <string.h>

#include "exec/cpu/cpu.h"

/* Columns of c that are multiplied over all k before the next ones, so that they and the rows of a
 * at one piece of k stay in an L2 cache of 512 KiB. */
enum { CHUNK_COLS = 240, LINE = 16 }; /* LINE: units of a cache line */

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
    return panel_bytes(kernel->panels, rows, k, kernel->panels->panel_a);
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

/* Packs rows [first, first + rows) and units [k, k + len) of a piece to their place in the panels at
 * `to`. */
static void pack_area(const struct gemm_panels *p, const struct gemm_block *piece, int64_t first,
                      int64_t rows, int64_t k, int64_t len, int panel, uint32_t *to)
{
    const int side = 2 * p->panel_a, step = side * p->unit_k, strip = gemm_strip_rows(panel);
    const int64_t num = cpu_tiles(piece->k, p->unit_k), end = first + rows;
    for (; p->pack_strip && len % 4 == 0 && first + strip <= cpu_min(end, piece->num);
         first += strip)
        p->pack_strip(piece, first, k, len, panel, num, to + first * num + k * panel);
    for (; first < end; first += side)
        for (int64_t at = k; at < k + len; at += step)
            pack_at(p, piece, first, at, panel, to);
}

/* The packed block has the pieces of k one after another, and in each piece panel after panel. The
 * loops follow the order in which b lies in memory, so that memory is read sequentially. */
void gemm_panels_pack(const struct gemm_kernel *kernel, const struct gemm_block *b, int part,
                      int parts, void *packed)
{
    const struct gemm_panels *p = kernel->panels;
    const int64_t panels = cpu_tiles(b->num, p->panel_b), cols = panels * p->panel_b;
    uint32_t *to = packed;
    if (b->inner == 1) {
        const int64_t first = cpu_share(panels, part, parts) * p->panel_b,
                      end = cpu_share(panels, part + 1, parts) * p->panel_b;
        for (int64_t c = first; c < end; c += p->panel_b)
            for (int64_t k = 0; k < b->k; k += p->kc) {
                const struct gemm_block piece = piece_at(kernel, b, k);
                pack_area(p, &piece, c, p->panel_b, 0, piece.k, p->panel_b,
                          to + cols * (k / p->unit_k));
            }
        return;
    }
    const int step = 2 * p->panel_a * p->unit_k;
    const int64_t steps = cpu_tiles(b->k, step);
    for (int64_t at = cpu_share(steps, part, parts) * step;
         at < cpu_share(steps, part + 1, parts) * step; at += step) {
        const int64_t k = at / p->kc * p->kc;
        const struct gemm_block piece = piece_at(kernel, b, k);
        pack_area(p, &piece, 0, cols, at - k, cpu_min(step, piece.k - (at - k)), p->panel_b,
                  to + cols * (k / p->unit_k));
    }
}

/* Packs a piece of a tile of a, in the order in which it lies in memory. */
static void pack_rows(const struct gemm_panels *p, const struct gemm_block *piece, uint32_t *to)
{
    const int64_t rows = cpu_tiles(piece->num, p->panel_a) * p->panel_a;
    const int64_t step = piece->inner == 1 ? piece->k : 2 * p->panel_a * p->unit_k;
    for (int64_t at = 0; at < piece->k; at += step)
        pack_area(p, piece, 0, rows, at, cpu_min(step, piece->k - at), p->panel_a, to);
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
    const int64_t panels = cpu_tiles(b->num, p->panel_b), chunk = CHUNK_COLS / p->panel_b;
    const int64_t rows = cpu_tiles(a->num, p->panel_a) * p->panel_a;
    for (int64_t j0 = 0; j0 < panels; j0 += chunk)
        for (int64_t k = 0; k < a->k; k += p->kc) {
            const int64_t num = cpu_tiles(cpu_min(p->kc, a->k - k), p->unit_k), at = k / p->unit_k;
            uint32_t *mine = (uint32_t *)work + rows * at;
            const uint32_t *from = (const uint32_t *)packed + panels * p->panel_b * at;
            if (j0 == 0) {
                const struct gemm_block piece = piece_at(kernel, a, k);
                pack_rows(p, &piece, mine);
            }
            /* Each product of a panel of b also fetches its share of the next panel. */
            const int64_t ahead = cpu_tiles(p->panel_b * num * p->panel_a, rows * LINE) * LINE;
            for (int64_t j = j0; j < cpu_min(j0 + chunk, panels); j++)
                for (int64_t r = 0; r < a->num; r += p->panel_a) {
                    const uint32_t *next =
                        from + (j + 1) * p->panel_b * num + r / p->panel_a * ahead;
                    for (int64_t i = 0; i < ahead; i += LINE)
                        __builtin_prefetch(next + i, 0, 2);
                    const int nr = (int)cpu_min(p->panel_a, a->num - r);
                    const int nc = (int)cpu_min(p->panel_b, b->num - j * p->panel_b);
                    const uint32_t *panel_a = mine + r * num,
                                   *panel_b = from + j * p->panel_b * num;
                    float *to = c + r * ldc + j * p->panel_b;
                    if (nr == p->panel_a && nc == p->panel_b)
                        p->multiply(num, panel_a, panel_b, alpha, add || k > 0, to, ldc);
                    else if (nr == p->panel_a && p->narrow_step && nc % p->narrow_step == 0)
                        p->multiply_narrow(num, panel_a, panel_b, alpha, add || k > 0, nc, to, ldc);
                    else
                        multiply_edge(p, num, panel_a, panel_b, alpha, add || k > 0, nr, nc, to,
                                      ldc);
                }
        }
}
