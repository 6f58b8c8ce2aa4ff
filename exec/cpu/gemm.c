/* The blocked matrix product of gemm.h, and the choice of its kernel.
 *
 * gemm() cuts the product into blocks of ROW_BLOCK rows, GEMM_COLS columns and block_k() values of
 * k. All threads pack the block of b together, then multiply it with tiles of rows of a, a tile a
 * thread. A product without c collects each tile in scratch and hands it to finish() after the last
 * block of k. Read gemm() first, then tile_rows(). */
#include "exec/cpu/gemm.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm_kernel.h"
#include "exec/cpu/gemm_panels.h"

/* Rows come in blocks, so that the tiles of a block stay in a cache while the blocks of b, each
 * packed once, are multiplied with all of them. */
enum { ROW_BLOCK = 2048, K_BLOCK = 2048, PIECES = 3, TILE_FLOATS = 128 * 1024 };

const struct gemm_kernel *const gemm_kernels[] = {
#ifdef __x86_64__
    &gemm_amx,      /* AMX tiles: Intel since Sapphire Rapids */
    &gemm_dot,      /* AVX512-BF16: Intel since Cooper Lake, AMD since Zen 4 */
    &gemm_fma_wide, /* AVX-512 */
#endif
#if defined __x86_64__ || defined __aarch64__
    &gemm_vector_wide, /* AVX2, NEON */
#endif
    &gemm_widen, /* BLAS on widened blocks */
#ifdef __x86_64__
    &gemm_fma, /* fp32 kernels from here on: AVX-512 */
#endif
#if defined __x86_64__ || defined __aarch64__
    &gemm_vector, /* AVX2, NEON */
#endif
    &gemm_blas, /* BLAS */
    NULL};

static const struct gemm_kernel *in_use[2]; /* [0] bf16, [1] fp32; no lock is needed, because all
                                               threads choose the same kernel */

const struct gemm_kernel *gemm_kernel(int elem_bytes)
{
    const struct gemm_kernel **chosen = &in_use[elem_bytes == 4];
    for (int i = 0; !*chosen; i++)
        if (gemm_kernels[i]->elem_bytes == elem_bytes && gemm_kernels[i]->usable())
            *chosen = gemm_kernels[i];
    return *chosen;
}

enum status gemm_choose(struct err *err)
{
    const char *named = getenv("ELAPSE_GEMM");
    char names[128] = "";
    for (int i = 0; named && *named && gemm_kernels[i]; i++) {
        const size_t used = strlen(names);
        if (!gemm_kernels[i]->usable())
            continue;
        if (strcmp(gemm_kernels[i]->name, named) == 0) {
            gemm_kernel_set(gemm_kernels[i]);
            return OK;
        }
        snprintf(names + used, sizeof names - used, "%s%s", *names ? ", " : "",
                 gemm_kernels[i]->name);
    }
    if (named && *named)
        return err_set(err, ERR_INPUT, "ELAPSE_GEMM must be one of %s, got '%.40s'", names, named);
    return OK;
}

void gemm_kernel_set(const struct gemm_kernel *kernel)
{
    if (kernel)
        in_use[kernel->elem_bytes == 4] = kernel;
    else
        in_use[0] = in_use[1] = NULL;
}

bool gemm_bits_independent_of_row_count(int elem_bytes)
{
    return gemm_kernel(elem_bytes)->bits_independent_of_row_count;
}

bool gemm_bits_independent_of_row_position(int elem_bytes)
{
    const struct gemm_kernel *kernel = gemm_kernel(elem_bytes);
    return !kernel->bits_independent_of_row_position || kernel->bits_independent_of_row_position();
}

const char *gemm_name(int elem_bytes)
{
    return gemm_kernel(elem_bytes)->name;
}

/* Rows of a tile. Tiles are equal, and their number is even unless there are too few rows for two.
 * Tiles that finish() reads stay in the L2 cache. For BLAS a tile is large and a multiple of 16
 * rows, because BLAS then gives a row the same bits at any place of the tile. */
static int64_t tile_rows(const struct gemm_kernel *kernel, int64_t rows, int64_t cols,
                         bool finished)
{
    const int64_t most =
        finished ? cpu_min(kernel->tile_rows, TILE_FLOATS / cols) : kernel->tile_rows;
    const int64_t step = kernel->bits_independent_of_row_count ? 8 : 16,
                  two = kernel->bits_independent_of_row_count ? 32 : 128;
    const int64_t tiles = rows < two ? 1 : 2 * cpu_tiles(rows, 2 * most);
    return cpu_tiles(cpu_tiles(rows, tiles), step) * step;
}

/* Largest number of k in a block. A product with c takes few pieces of k at a time (gemm_panels.h),
 * so that a packed tile of a stays in the L2 cache while all panels of b pass. Without c every tile
 * of the block of rows would be kept from block to block, so blocks are long. Both are whole pieces,
 * so that the bits of a product do not depend on c. */
static int64_t block_k(const struct gemm_kernel *kernel, bool finished)
{
    if (!kernel->panels)
        return K_BLOCK;
    const int64_t piece = kernel->panels->kc;
    return finished ? K_BLOCK / piece * piece : PIECES * piece;
}

static int64_t up64(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

void gemm(struct backend *be, const struct gemm *g)
{
    const struct gemm_kernel *kernel = gemm_kernel(be->elem_bytes);
    const int64_t elem = be->elem_bytes;
    const int64_t most_rows = cpu_min(g->m, ROW_BLOCK), most_cols = cpu_min(g->n, GEMM_COLS);
    const int64_t k_block = block_k(kernel, !g->c), most_k = cpu_min(g->k, k_block),
                  tile = tile_rows(kernel, most_rows, most_cols, !g->c);
    const int64_t packed = up64(kernel->packed_bytes(kernel, most_cols, most_k)),
                  work = up64(kernel->work_bytes(kernel, tile, most_k));
    /* Scratch for tiles of the product. If one block of k completes a tile, each thread needs one.
     * Otherwise every tile of the block of rows must be kept. */
    const bool whole = g->k <= k_block;
    const int64_t tiles = g->c ? 0 : whole ? be->threads : cpu_tiles(most_rows, tile);
    const int64_t tile_bytes = up64(tile * most_cols * (int64_t)sizeof(float));
    char *scratch = cpu_scratch(be, packed + be->threads * work + tiles * tile_bytes);
    if (!scratch)
        return;
    char *works = scratch + packed, *products = works + be->threads * work;
    for (int64_t r0 = 0; r0 < g->m; r0 += ROW_BLOCK)
        for (int64_t c0 = 0; c0 < g->n; c0 += GEMM_COLS)
            for (int64_t k0 = 0; k0 < g->k; k0 += k_block) {
                const int64_t rows = cpu_min(ROW_BLOCK, g->m - r0);
                const int64_t cols = cpu_min(GEMM_COLS, g->n - c0), k = cpu_min(k_block, g->k - k0);
                const int threads = cpu_threads(be, rows * cols * k / PRODUCTS_PER_ELEMENT);
                const struct gemm_block b = {(const char *)g->b +
                                                 (k0 * g->b_row + c0 * g->b_col) * elem,
                                             g->b_col, g->b_row, cols, k};
#pragma omp parallel num_threads(threads)
                kernel->pack(kernel, &b, omp_get_thread_num(), omp_get_num_threads(), scratch);
#pragma omp parallel for schedule(static) num_threads(threads)
                for (int64_t t = 0; t < cpu_tiles(rows, tile); t++) {
                    const int thread = omp_get_thread_num();
                    const int64_t row = r0 + t * tile, num = cpu_min(tile, r0 + rows - row);
                    const struct gemm_block a = {(const char *)g->a +
                                                     (row * g->a_row + k0 * g->a_col) * elem,
                                                 g->a_row, g->a_col, num, k};
                    float *c =
                        g->c ? g->c + row * g->ldc + c0
                             : (float *)(void *)(products + (whole ? thread : t) * tile_bytes);
                    const int64_t ld = g->c ? g->ldc : cols;
                    kernel->multiply(kernel, &a, &b, scratch, works + thread * work, g->alpha,
                                     (g->c && !g->fresh) || k0 > 0, c, ld);
                    if (!g->c && k0 + k == g->k)
                        g->finish(g->ctx, row, (int)num, c0, (int)cols, c, ld);
                }
            }
}

static int64_t alone_packed_bytes(const struct gemm_kernel *kernel, int64_t n, int64_t k)
{
    return up64(kernel->packed_bytes(kernel, n, k));
}

int64_t gemm_alone_bytes(int64_t m, int64_t n, int64_t k)
{
    const struct gemm_kernel *kernel = gemm_kernel(sizeof(float));
    return alone_packed_bytes(kernel, n, k) + up64(kernel->work_bytes(kernel, m, k));
}

void gemm_alone(const struct gemm *g, void *scratch)
{
    const struct gemm_kernel *kernel = gemm_kernel(sizeof(float));
    const struct gemm_block a = {g->a, g->a_row, g->a_col, g->m, g->k};
    const struct gemm_block b = {g->b, g->b_col, g->b_row, g->n, g->k};
    char *work = (char *)scratch + alone_packed_bytes(kernel, g->n, g->k);
    kernel->pack(kernel, &b, 0, 1, scratch);
    kernel->multiply(kernel, &a, &b, scratch, work, g->alpha, !g->fresh, g->c, g->ldc);
}
